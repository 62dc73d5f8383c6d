"""Tenure's own claim, timed: the broker that a worker uses, without the worker around it."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from benchmarks.application import NOOP, QUEUE
from tenure.jobs.ids import new_job_id
from tenure.jobs.model import DEFAULT_TENANT, Claimed, NewJob
from tenure.jobs.retry import RetryPolicy
from tenure.settings import load
from tenure.store.claim import KindSelector
from tenure.store.database import Database
from tenure.store.enqueue import enqueue
from tenure.store.notify import Bell, Listener
from tenure.store.settle import Outcome, OutcomeKind
from tenure.worker.broker import DatabaseBroker

_LEASE_SECONDS = 300.0
_POLICY = RetryPolicy()


@dataclass(slots=True, kw_only=True)
class Claimer:
    """Puts jobs in, claims them, settles them; says how long each claim took."""

    database: Database
    broker: DatabaseBroker
    queue: str = QUEUE
    kind: str = NOOP

    async def put(self, count: int, *, payload: str = "{}", delay_seconds: float | None = None) -> None:
        """Puts jobs in; without a delay they are due at once."""
        jobs = [
            NewJob(
                id=new_job_id(tenant=DEFAULT_TENANT, queue=self.queue),
                kind=self.kind,
                queue=self.queue,
                payload=payload,
                delay_seconds=delay_seconds,
            )
            for _ in range(count)
        ]
        async with self.database.transaction() as connection:
            await enqueue(connection, jobs)

    async def claim(self, count: int) -> tuple[float, list[Claimed]]:
        """Seconds that the claim took, and what it brought."""
        kinds = [KindSelector(kind=self.kind)]
        began = time.perf_counter()
        claimed = await self.broker.claim(limit=count, queues=[self.queue], kinds=kinds)
        return time.perf_counter() - began, list(claimed)

    async def settle(self, claimed: Sequence[Claimed]) -> None:
        if claimed:
            await self.broker.settle(
                [Outcome(job_id=one.job.id, token=one.token, kind=OutcomeKind.COMPLETE) for one in claimed]
            )

    async def timed(self, count: int, *, repeats: int, put: bool = True) -> list[float]:
        """Milliseconds of each claim for ``count`` jobs, which are put in before (or are there already)."""
        took: list[float] = []
        for _ in range(repeats):
            if put:
                await self.put(count)
            seconds, claimed = await self.claim(count)
            if len(claimed) < count:
                raise AssertionError(f"a claim for {count} jobs brought {len(claimed)}, with enough of them due")
            took.append(seconds * 1_000)
            await self.settle(claimed)
        return took

    async def empty_handed(self, *, repeats: int) -> list[float]:
        """Milliseconds of each claim that finds nothing."""
        return [(await self.claim(10))[0] * 1_000 for _ in range(repeats)]


@asynccontextmanager
async def claimer(database_url: str, *, queue: str = QUEUE, kind: str = NOOP) -> AsyncIterator[Claimer]:
    """A claimer with connections of its own."""
    settings = load({"TENURE_DATABASE_URL": database_url}).database
    async with await Database.open(settings, application_name="tenure benchmark") as database:
        listener = Listener(database)
        broker = DatabaseBroker(
            database,
            worker_id="benchmark",
            default_lease_seconds=_LEASE_SECONDS,
            policy_of=lambda _: _POLICY,
            bell=Bell(database, listener),
            listener=listener,
        )
        listening = asyncio.create_task(listener.run())
        try:
            yield Claimer(database=database, broker=broker, queue=queue, kind=kind)
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
