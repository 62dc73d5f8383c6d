"""Running a plain function in a thread of its own.

Not the default executor: its size would be a second, hidden limit beside the slots, and it is waited for at exit. These
threads are daemons: nothing can stop them, and the process must be able to end.
"""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

ValueT = TypeVar("ValueT")


async def run_in_thread(function: Callable[[], ValueT], *, name: str) -> ValueT:
    """Calls the function in a new daemon thread; it must not raise. Not to be cancelled: the thread would run on."""
    loop = asyncio.get_running_loop()
    finished: asyncio.Future[ValueT] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(value: ValueT) -> None:
        if not finished.done():
            finished.set_result(value)

    def body() -> None:
        value = context.run(function)
        with contextlib.suppress(RuntimeError):  # the loop is closed: the worker gave up waiting
            loop.call_soon_threadsafe(deliver, value)

    threading.Thread(target=body, name=name, daemon=True).start()
    return await finished
