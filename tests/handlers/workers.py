"""A worker of the real kind on the test's database, and jobs for it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tenure.jobs.model import TERMINAL_STATES, Job
from tenure.jobs.retry import RetryPolicy
from tenure.store.artifacts import Artifact, find
from tenure.store.database import Database
from tenure.store.notify import Bell, Listener
from tenure.worker.broker import DatabaseBroker
from tenure.worker.registry import JobRegistry
from tenure.worker.runtime import Worker
from tests.factories import queued, read
from tests.waiting import until

SOON = RetryPolicy(base_seconds=0.001, factor=1.0, cap_seconds=0.001, jitter="none")


@asynccontextmanager
async def at_work(database: Database, registry: JobRegistry) -> AsyncIterator[Worker]:
    """Runs the registry's handlers until the block ends; retries follow at once."""
    registry.default_policy = SOON
    listener = Listener(database)
    broker = DatabaseBroker(
        database,
        worker_id="test-worker",
        default_lease_seconds=30.0,
        policy_of=registry.policy_of,
        bell=Bell(database, listener),
        listener=listener,
    )
    worker = Worker(broker, registry, worker_id="test-worker", poll_seconds=0.02)
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop_now()
        await task


async def enqueued(database: Database, registry: JobRegistry, kind: str, **payload: Any) -> Job:
    """A job as the service would accept it: validated, on its kind's queue."""
    spec = registry.get(kind)
    assert spec is not None
    text = json.dumps(payload)
    spec.validate(text)
    return await queued(database, kind=kind, queue=spec.queue, payload=text, max_attempts=spec.max_attempts or 3)


async def ended(database: Database, job: Job) -> Job:
    """The job once it is terminal."""

    async def terminal() -> Job | None:
        found = await read(database, job)
        return found if found.state in TERMINAL_STATES else None

    found: Job = await until(terminal, what=f"job {job.id} ends")
    return found


async def artifacts_of(database: Database, job: Job) -> list[Artifact]:
    async with database.connection() as connection:
        return await find(connection, job.id)
