"""Waiting for a condition, with a bound: the tests' only way to wait."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any


async def until(
    condition: Callable[[], Any] | Callable[[], Awaitable[Any]], *, timeout_seconds: float = 10.0, what: str = ""
) -> Any:
    """Returns the condition's first true value; fails loudly when it stays false."""
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_seconds
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if loop.time() > end:
            raise AssertionError(f"still not so after {timeout_seconds} s: {what or condition}")
        await asyncio.sleep(0.01)
