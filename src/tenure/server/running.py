"""Running a process: its event loop, its signals, its name."""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import uvloop

from tenure.server.child import ParentLine

_LEFTOVER_SECONDS = 2.0


def new_worker_id() -> str:
    """A name that tells people where the worker runs, and that no other one has."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def run(make: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Runs the coroutine on the fastest event loop there is and returns its exit code."""
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    code = loop.run_until_complete(make())
    # All that matters has ended in order by now. A handler that will not stop, whose job the worker has left to its
    # lease, must not keep the process: it gets a moment, then goes with it.
    leftover = asyncio.all_tasks(loop)
    for task in leftover:
        task.cancel()
    if leftover and loop.run_until_complete(asyncio.wait(leftover, timeout=_LEFTOVER_SECONDS))[1]:
        logging.shutdown()
        sys.stdout.flush()
        os._exit(code)
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    return code


@contextlib.contextmanager
def signals(line: ParentLine | None = None) -> Iterator["asyncio.Queue[signal.Signals]"]:
    """SIGTERM and SIGINT as they come. A supervisor's order to stop and the first signal are one and the same."""
    queue: asyncio.Queue[signal.Signals] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    caught = (signal.SIGTERM, signal.SIGINT)
    heard: set[str] = set()

    def on_signal(number: signal.Signals) -> None:
        if heard != {"order"}:
            queue.put_nowait(number)
        heard.add("signal")

    def on_order() -> None:
        if not heard:
            queue.put_nowait(signal.SIGTERM)
        heard.add("order")

    for number in caught:
        loop.add_signal_handler(number, on_signal, number)
    try:
        with (
            contextlib.nullcontext()
            if line is None
            else line.heard(drain=on_order, hurry=lambda: queue.put_nowait(signal.SIGTERM))
        ):
            yield queue
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
