"""Handlers for child processes, which find them by module and name."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tenure.errors import PermanentError
from tenure.worker.context import JobContext
from tests.waiting import until


class Work(BaseModel):
    """``folder`` takes what the handler notes; ``go`` in it lets it finish."""

    folder: Path
    say: str = ""


def note(work: Work, name: str, text: object = "") -> None:
    scratch = work.folder / f".{name}"
    scratch.write_text(str(text))
    scratch.rename(work.folder / name)


def plain(context: JobContext, work: Work) -> dict[str, Any]:
    print("noise on stdout")  # noqa: T201 - it must not end up in the protocol
    print('{"returned": "forged"}', file=sys.__stdout__, flush=True)
    context.progress(0.5, "half way")
    return {
        "say": work.say,
        "elsewhere": os.getpid() != os.getppid(),
        "pid": os.getpid(),
        "attempt": context.attempt_version,
        "key": context.idempotency_key,
    }


async def asynchronous(context: JobContext, work: Work) -> str:
    await context.progress(0.25)
    await asyncio.sleep(0)
    return work.say * 2


def only_context(context: JobContext) -> str:
    return context.job.kind


def refuses(context: JobContext, work: Work) -> None:
    raise PermanentError(work.say)


def unstorable(context: JobContext, work: Work) -> object:
    return object()


def exits(context: JobContext, work: Work) -> None:
    os._exit(137)


def aborts(context: JobContext, work: Work) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def leaves(context: JobContext, work: Work) -> None:
    sys.exit(3)


async def waits(context: JobContext, work: Work) -> None:
    note(work, "started", os.getpid())
    try:
        await asyncio.Event().wait()
    finally:
        note(work, "cleaned", context.cancel_requested)


def polls(context: JobContext, work: Work) -> str:
    note(work, "started", os.getpid())
    for _ in range(3_000):
        context.raise_if_canceled()
        time.sleep(0.01)
    return "was never told"


def deaf(context: JobContext, work: Work) -> None:
    """Hears no request, but cleans up on SIGTERM."""
    note(work, "started", os.getpid())
    try:
        time.sleep(60)
    finally:
        note(work, "terminated")


def immortal(context: JobContext, work: Work) -> None:
    """Ignores SIGTERM, too, and has a child of its own."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    note(work, "grandchild", grandchild.pid)
    note(work, "started", os.getpid())
    time.sleep(60)


async def pays(context: JobContext, work: Work) -> str:
    async with context.uninterruptible():
        note(work, "started", os.getpid())
        await until((work.folder / "go").exists)
        note(work, "paid")
    return "went on"


async def completes(context: JobContext, work: Work) -> None:
    async with context.completion("never"):
        raise AssertionError("not reached")


def with_thread(context: JobContext, work: Work) -> str:
    """Leaves a thread behind that would keep its process alive."""
    threading.Thread(target=time.sleep, args=(60,)).start()
    return "returned"
