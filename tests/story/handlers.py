"""Handlers that the stories steer from outside, by files: each start is written to a ledger, each waits for its signal."""

import asyncio
import os
import time
from pathlib import Path

from pydantic import BaseModel

from tenure.worker.context import JobContext
from tenure.worker.registry import JobRegistry

jobs = JobRegistry()


class Hold(BaseModel):
    """``ledger``: a folder; the handler goes on when a file ``go`` appears in it."""

    ledger: Path
    say: str = ""


def note(request: Hold, context: JobContext, what: str) -> None:
    """One line a fact, in a file of its own for each process: nothing that is killed can tear another's line."""
    with (request.ledger / f"{os.getpid()}.ledger").open("a") as file:
        file.write(f"{what} {context.job.id} {context.job.attempts} {os.getpid()}\n")


@jobs.handler("story.hold", queue="story")
async def hold(context: JobContext, request: Hold) -> str:
    """Waits for the file ``go``, then says who finished."""
    note(request, context, "started")
    while not (request.ledger / "go").exists():  # noqa: ASYNC110 - the signal comes from another process
        await asyncio.sleep(0.02)
    note(request, context, "finished")
    return f"{request.say}{os.getpid()}"


@jobs.handler("story.block", queue="story")
async def block(context: JobContext, request: Hold) -> str:
    """As hold, but blocks its event loop while it waits."""
    note(request, context, "started")
    while not (request.ledger / "go").exists():
        time.sleep(0.02)  # noqa: ASYNC251 - that is the point
    note(request, context, "finished")
    return str(os.getpid())


@jobs.handler("story.exit", queue="story")
async def leave(context: JobContext, request: Hold) -> None:
    """Takes its whole process with it."""
    note(request, context, "started")
    os._exit(137)


@jobs.handler("story.stubborn", queue="story")
async def stubborn(context: JobContext, request: Hold) -> str:
    """Will not stop for a cancel: only ``go`` ends it."""
    note(request, context, "started")
    while not (request.ledger / "go").exists():
        try:
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            note(request, context, "cancelled")
    return "done all the same"


@jobs.handler("story.quick", queue="story")
async def quick(context: JobContext, request: Hold) -> str:
    """Notes its start and is done."""
    note(request, context, "started")
    return "quick"
