"""Handlers for chaos: each writes down that it started, before anything else, and what it did.

Where the ledger is comes from the payload of each job, as does all that a handler is to do.
"""

import asyncio
import os
import time
from pathlib import Path

from pydantic import BaseModel

from tenure.errors import PermanentError, PoisonError, RetryLater
from tenure.worker.context import JobContext
from tenure.worker.registry import JobRegistry
from tests.chaos.ledger import Ledger

QUEUE = "chaos"
DATABASE_QUEUE = "chaos-database"
HELD_QUEUE = "chaos-held"
"""No handler here serves it: the harness itself claims its jobs, over HTTP."""

remote_jobs = JobRegistry()
"""What a worker over HTTP can do as well."""

jobs = JobRegistry()
"""All."""


class Order(BaseModel):
    """``n`` names the request that this job came from; no two requests share one."""

    n: str
    ledger: Path
    seconds: float = 0.0
    fails: int = 0


_LEDGERS: dict[Path, Ledger] = {}


def note(context: JobContext, order: Order, fact: str) -> None:
    """Writes a fact of this attempt down."""
    ledger = _LEDGERS.get(order.ledger)
    if ledger is None:
        ledger = _LEDGERS[order.ledger] = Ledger(order.ledger, "handler")
    ledger.note(
        fact,
        job=str(context.job.id),
        n=order.n,
        attempt=context.job.attempts,
        fence=context.attempt_version,
        pid=os.getpid(),
    )


@remote_jobs.handler("chaos.quick", queue=QUEUE)
async def quick(context: JobContext, order: Order) -> str:
    """Is done at once."""
    note(context, order, "start")
    return order.n


@remote_jobs.handler("chaos.thread", queue=QUEUE)
def thread(context: JobContext, order: Order) -> str:
    """As quick, in a thread."""
    note(context, order, "start")
    time.sleep(order.seconds)
    return order.n


@remote_jobs.handler("chaos.slow", queue=QUEUE)
async def slow(context: JobContext, order: Order) -> str:
    """Takes longer than a lease: without heartbeats it would be lost."""
    note(context, order, "start")
    steps = 10
    for step in range(steps):
        await asyncio.sleep(order.seconds / steps)
        await context.progress(step / steps, f"step {step}")
    note(context, order, "end")
    return order.n


@remote_jobs.handler("chaos.flaky", queue=QUEUE)
async def flaky(context: JobContext, order: Order) -> str:
    """Fails as often as it was told, with an error that passes."""
    note(context, order, "start")
    if context.job.attempts <= order.fails:
        raise RetryLater("not yet")
    return order.n


@remote_jobs.handler("chaos.bug", queue=QUEUE)
async def bug(context: JobContext, order: Order) -> str:
    """Has a bug, always."""
    note(context, order, "start")
    raise LookupError("no such thing")


@remote_jobs.handler("chaos.poison", queue=QUEUE)
async def poison(context: JobContext, order: Order) -> str:
    """Cannot be done by anybody."""
    note(context, order, "start")
    raise PoisonError("unreadable")


@remote_jobs.handler("chaos.refused", queue=QUEUE)
async def refused(context: JobContext, order: Order) -> str:
    """Is refused for good."""
    note(context, order, "start")
    raise PermanentError("not allowed")


@remote_jobs.handler("chaos.crash", queue=QUEUE)
async def crash(context: JobContext, order: Order) -> str:
    """Takes its whole process with it."""
    note(context, order, "start")
    os._exit(137)


@jobs.handler("chaos.effect", queue=DATABASE_QUEUE)
async def effect(context: JobContext, order: Order) -> str:
    """Has an effect that must happen exactly once: in the transaction that completes the job."""
    note(context, order, "start")
    await asyncio.sleep(order.seconds)
    async with context.completion(order.n) as connection:
        await connection.execute(
            "INSERT INTO chaos_effects (job_id, n, fence) VALUES ($1, $2, $3)",
            context.job.id,
            order.n,
            context.attempt_version,
        )
    note(context, order, "effect")
    return order.n


jobs.include(remote_jobs)
