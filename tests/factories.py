"""Jobs in any state, by the product's own verbs: what a test needs as its starting point."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tenure.jobs.decisions import ReportedError
from tenure.jobs.ids import new_job_id
from tenure.jobs.model import DEFAULT_TENANT, ErrorKind, Job, NewJob, State
from tenure.jobs.retry import RetryPolicy
from tenure.store.cancel import cancel
from tenure.store.claim import claim
from tenure.store.database import Connection, Database
from tenure.store.enqueue import enqueue
from tenure.store.inspect import events, get
from tenure.store.settle import Outcome, OutcomeKind, Settled, settle_one

POLICY = RetryPolicy(base_seconds=1.0, factor=2.0, cap_seconds=60.0)


def policy_of(_: str) -> RetryPolicy:
    return POLICY


def half() -> float:
    return 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A job under a lease."""

    job: Job
    token: str


def new_job(**fields: Any) -> NewJob:
    """A job to be enqueued; the id fits the keys."""
    fields = {"kind": "test.noop", "payload": '{"n": 1}', **fields}
    job_id = new_job_id(
        tenant=fields.get("tenant", DEFAULT_TENANT),
        queue=fields.get("queue", "default"),
        idempotency_key=fields.get("idempotency_key"),
        concurrency_key=fields.get("concurrency_key"),
    )
    return NewJob(**{"id": job_id, **fields})


async def queued(database: Database, **fields: Any) -> Job:
    async with database.transaction() as connection:
        (accepted,) = await enqueue(connection, [new_job(**fields)])
    return accepted.job


async def many_queued(database: Database, count: int, **fields: Any) -> list[Job]:
    async with database.transaction() as connection:
        accepted = await enqueue(connection, [new_job(**fields) for _ in range(count)])
    return [item.job for item in accepted]


async def claimed(
    database: Database,
    *,
    worker_id: str = "worker-1",
    queues: Sequence[str] = ("default",),
    limit: int = 1,
    **options: Any,
) -> list[Held]:
    async with database.connection() as connection:
        leases = await claim(
            connection, worker_id=worker_id, queues=queues, limit=limit, **{"default_lease_seconds": 30.0, **options}
        )
    return [Held(job=lease.job, token=lease.token) for lease in leases]


async def running(database: Database, *, worker_id: str = "worker-1", **fields: Any) -> Held:
    """A job of a queue of its own, claimed."""
    job = await queued(database, **fields)
    (held,) = await claimed(database, worker_id=worker_id, queues=[job.queue])
    assert held.job.id == job.id
    return held


def outcome(held: Held, kind: OutcomeKind = OutcomeKind.COMPLETE, **fields: Any) -> Outcome:
    if kind is OutcomeKind.COMPLETE:
        fields.setdefault("result", '{"ok": true}')
    return Outcome(job_id=held.job.id, token=held.token, kind=kind, **fields)


def failure(held: Held, kind: ErrorKind = ErrorKind.TRANSIENT, message: str = "it broke", **fields: Any) -> Outcome:
    return outcome(held, OutcomeKind.FAIL, error=ReportedError(kind=kind, message=message, **fields))


async def settled(database: Database, report: Outcome, *, random: float = 0.5) -> Settled:
    async with database.transaction() as connection:
        return await settle_one(connection, report, policy_of=policy_of, random=lambda: random)


async def in_state(database: Database, state: State, **fields: Any) -> Job:
    """A job in that state, with the history that leads there."""
    if state is State.QUEUED:
        return await queued(database, **fields)
    if state is State.CANCELED:
        job = await queued(database, **fields)
        async with database.transaction() as connection:
            await cancel(connection, job.id)
        return await read(database, job)
    held = await running(database, **fields)
    match state:
        case State.SUCCEEDED:
            await settled(database, outcome(held))
        case State.FAILED:
            await settled(database, failure(held, ErrorKind.PERMANENT))
        case State.DEAD:
            await settled(database, failure(held, ErrorKind.POISON))
        case _:
            pass
    return await read(database, held.job)


async def read(database: Database, job: Job) -> Job:
    async with database.connection() as connection:
        found = await get(connection, job.id, tenant=job.tenant)
    assert found is not None
    return found


async def history(database: Database, job: Job) -> list[str]:
    async with database.connection() as connection:
        return [event.type for event in await events(connection, job.id, tenant=job.tenant)]


async def age(connection: Connection, job: Job, column: str, by: timedelta) -> None:
    """Moves a time of the job into the past (or, negative, the future): the tests' clock is the database's."""
    await connection.execute(f"UPDATE tenure.jobs SET {column} = {column} - $2::interval WHERE id = $1", job.id, by)


async def expire_lease(database: Database, job: Job) -> None:
    async with database.connection() as connection:
        await connection.execute(
            "UPDATE tenure.jobs SET lease_expires_at = now() - interval '1 second' WHERE id = $1", job.id
        )
