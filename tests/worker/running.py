"""A worker on a test's own database, with the wake-ups that a service would give it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tenure.jobs.model import DEFAULT_TENANT, Job, State
from tenure.store.cancel import Receipt, cancel
from tenure.store.database import Database
from tenure.store.notify import CANCEL, Bell, Listener
from tenure.worker.broker import DatabaseBroker
from tenure.worker.registry import JobRegistry
from tenure.worker.runtime import Worker
from tests.factories import read
from tests.waiting import until


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A worker at work; ``finished`` is its `run`."""

    worker: Worker
    broker: DatabaseBroker
    bell: Bell
    finished: "asyncio.Task[None]"


def broker_of(database: Database, registry: JobRegistry, bell: Bell, listener: Listener) -> DatabaseBroker:
    return DatabaseBroker(
        database,
        worker_id="test-worker",
        tenant=DEFAULT_TENANT,
        default_lease_seconds=30.0,
        policy_of=registry.policy_of,
        bell=bell,
        listener=listener,
    )


@asynccontextmanager
async def working(
    database: Database, registry: JobRegistry, *, hints: bool = True, **options: Any
) -> AsyncIterator[Running]:
    """Runs a worker while the block runs. Without ``hints`` there is no LISTEN connection: polling must do."""
    listener = Listener(database)
    bell = Bell(database, listener if hints else None)
    broker = broker_of(database, registry, bell, listener)
    worker = Worker(
        broker,
        registry,
        worker_id="test-worker",
        **{"poll_seconds": 0.05, "shutdown_grace_seconds": 10.0, "slots": 4, **options},
    )
    aside = [asyncio.create_task(bell.run())]
    if hints:
        aside.append(asyncio.create_task(listener.run()))
        await until(lambda: listener.healthy)
    finished = asyncio.create_task(worker.run())
    try:
        yield Running(worker=worker, broker=broker, bell=bell, finished=finished)
    finally:
        worker.stop_now()
        _, late = await asyncio.wait({finished}, timeout=20)
        assert not late, "the worker does not end"
        for task in aside:
            task.cancel()
        await asyncio.gather(*aside, return_exceptions=True)


async def settled_as(database: Database, job: Job, *states: State) -> Job:
    """The job, once it is in one of these states (none given: any in which it has ended)."""
    wanted = states or (State.SUCCEEDED, State.FAILED, State.CANCELED, State.DEAD)

    async def look() -> Job | None:
        found = await read(database, job)
        return found if found.state in wanted else None

    found: Job = await until(look, timeout_seconds=20, what=f"job {job.id} {wanted}")
    return found


async def request_cancel(database: Database, job: Job, bell: Bell | None = None) -> Receipt:
    async with database.transaction() as connection:
        receipt = await cancel(connection, job.id, requested_by="a test")
    if bell is not None:
        bell.ring(CANCEL, str(job.id))
    return receipt
