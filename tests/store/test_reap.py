"""Taking back what nobody holds any more."""

import asyncio
from datetime import timedelta

from tenure.jobs.model import ErrorKind, State
from tenure.store.cancel import cancel
from tenure.store.database import Database
from tenure.store.heartbeat import Heartbeat, heartbeat
from tenure.store.reap import expire_deadlines, reap_expired
from tests.factories import age, claimed, expire_lease, history, many_queued, queued, read, running


async def reap(database: Database, limit: int = 500) -> int:
    async with database.transaction() as connection:
        return len(await reap_expired(connection, limit=limit))


async def test_an_expired_lease_is_requeued_with_its_attempt_counted(database: Database) -> None:
    held = await running(database)
    await expire_lease(database, held.job)
    assert await reap(database) == 1
    job = await read(database, held.job)
    assert (job.state, job.attempts, job.lease) == (State.QUEUED, 1, None)
    assert job.last_error is not None
    assert job.last_error.kind is ErrorKind.LEASE_LOST
    (again,) = await claimed(database, worker_id="w2")
    assert again.job.attempts == 2
    assert await history(database, held.job) == ["enqueued", "leased", "lease_expired", "leased"]


async def test_a_live_lease_is_left_alone_however_old_the_job(database: Database) -> None:
    held = await running(database)
    async with database.connection() as connection:
        for column in ("created_at", "started_at", "lease_acquired_at", "lease_heartbeat_at"):
            await age(connection, held.job, column, timedelta(days=30))
    assert await reap(database) == 0
    assert (await read(database, held.job)).state is State.RUNNING


async def test_the_last_attempt_is_dead_and_says_that_the_worker_vanished(database: Database) -> None:
    held = await running(database, max_attempts=1)
    await expire_lease(database, held.job)
    await reap(database)
    job = await read(database, held.job)
    assert job.state is State.DEAD
    assert job.last_error is not None
    assert job.last_error.kind is ErrorKind.LEASE_LOST


async def test_a_vanished_holder_of_a_canceled_job_is_unconfirmed(database: Database) -> None:
    held = await running(database)
    async with database.transaction() as connection:
        await cancel(connection, held.job.id)
    await expire_lease(database, held.job)
    await reap(database)
    job = await read(database, held.job)
    assert job.state is State.CANCELED
    assert job.cancellation is not None
    assert (job.cancellation.outcome, job.cancellation.confirmed_at) == ("unconfirmed", None)


async def test_an_expired_lease_past_its_deadline_fails(database: Database) -> None:
    held = await running(database, expires_in_seconds=3_600.0)
    await expire_lease(database, held.job)
    async with database.connection() as connection:
        await age(connection, held.job, "deadline_at", timedelta(hours=2))
    await reap(database)
    job = await read(database, held.job)
    assert job.state is State.FAILED
    assert job.last_error is not None
    assert job.last_error.kind is ErrorKind.DEADLINE


async def test_a_heartbeat_that_comes_first_wins(database: Database) -> None:
    held = await running(database)
    await expire_lease(database, held.job)
    async with database.transaction() as connection:
        await heartbeat(connection, [Heartbeat(job_id=held.job.id, token=held.token)])
        assert await reap(database) == 0
    assert await reap(database) == 0
    assert (await read(database, held.job)).state is State.RUNNING


async def test_batches_are_bounded_and_several_reapers_share_the_work(database: Database) -> None:
    await many_queued(database, 120)
    await claimed(database, limit=120)
    async with database.connection() as connection:
        await connection.execute("UPDATE tenure.jobs SET lease_expires_at = now() - interval '1 s'")
    assert await reap(database, limit=20) == 20
    assert sum(await asyncio.gather(*[reap(database, limit=50) for _ in range(4)])) == 100
    async with database.connection() as connection:
        (row,) = await connection.fetch("SELECT count(*) AS n FROM tenure.events WHERE type = 'lease_expired'")
    assert row["n"] == 120


async def test_a_row_that_somebody_locks_does_not_stop_the_others(database: Database) -> None:
    first, second = await many_queued(database, 2)
    await claimed(database, limit=2)
    for job in (first, second):
        await expire_lease(database, job)
    async with database.transaction() as other:
        await other.execute("SELECT 1 FROM tenure.jobs WHERE id = $1 FOR UPDATE", first.id)
        assert await reap(database) == 1
    assert await reap(database) == 1


async def test_a_queued_job_past_its_deadline_fails_and_others_are_left_alone(database: Database) -> None:
    late = await queued(database, expires_in_seconds=60.0)
    in_time = await queued(database, expires_in_seconds=60.0)
    held = await running(database, expires_in_seconds=60.0, queue="q")
    async with database.connection() as connection:
        await age(connection, late, "deadline_at", timedelta(minutes=5))
        await age(connection, held.job, "deadline_at", timedelta(minutes=5))
    async with database.transaction() as connection:
        assert set(await expire_deadlines(connection)) == {late.id}
    failed = await read(database, late)
    assert failed.state is State.FAILED
    assert failed.last_error is not None
    assert failed.last_error.kind is ErrorKind.DEADLINE
    assert (await read(database, in_time)).state is State.QUEUED
    assert (await read(database, held.job)).state is State.RUNNING


async def test_a_row_that_cannot_be_judged_stops_nobody_elses_recovery(database: Database) -> None:
    odd = await running(database, queue="a")
    sound = await running(database, queue="b")
    for held in (odd, sound):
        await expire_lease(database, held.job)
    async with database.connection() as connection:
        await connection.execute("ALTER TABLE tenure.jobs DROP CONSTRAINT jobs_times_are_finite_check")
        await connection.execute("UPDATE tenure.jobs SET deadline_at = 'infinity' WHERE id = $1", odd.job.id)
    try:
        assert await reap(database) == 1
        assert (await read(database, sound.job)).state is State.QUEUED
    finally:
        async with database.connection() as connection:
            await connection.execute("UPDATE tenure.jobs SET deadline_at = NULL")
            await connection.execute(
                "ALTER TABLE tenure.jobs ADD CONSTRAINT jobs_times_are_finite_check CHECK (isfinite(available_at)"
                " AND (deadline_at IS NULL OR isfinite(deadline_at))"
                " AND (lease_expires_at IS NULL OR isfinite(lease_expires_at)))"
            )
