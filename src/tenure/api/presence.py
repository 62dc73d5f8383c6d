"""Waiting for a caller who may leave, in a service that may stop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request


@asynccontextmanager
async def following(request: Request) -> AsyncIterator[asyncio.Event]:
    """An event that is set when the caller has gone. The request's body must have been read before."""
    gone = asyncio.Event()

    async def follow() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        gone.set()

    task = asyncio.create_task(follow(), name="tenure caller presence")
    try:
        yield gone
    finally:
        task.cancel()
        await asyncio.wait([task])


async def first_of(*events: asyncio.Event, timeout_seconds: float) -> None:
    """Returns when any of the events is set, or the time is over."""
    if timeout_seconds <= 0 or any(event.is_set() for event in events):
        return
    tasks = [asyncio.create_task(event.wait(), name="tenure wait") for event in events]
    try:
        await asyncio.wait(tasks, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
