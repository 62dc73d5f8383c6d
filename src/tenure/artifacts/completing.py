"""Calls that must not be left half way: a cancellation waits for the end of the one that is under way."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def to_its_end(call: Awaitable[T]) -> T:
    """Awaits the call to its end even when this task is canceled meanwhile; the cancellation is raised after it.

    A thread cannot be interrupted, and an upload that is cut while it begins cannot be aborted any more: only when the
    call has returned is it known what there is to clean up. The call itself must end in bounded time.
    """
    task = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:  # asked again; the first request is raised below
                continue
        if not task.cancelled():
            task.exception()  # taken note of: the cancellation is what the caller hears
        raise
