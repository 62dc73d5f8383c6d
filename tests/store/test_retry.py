"""An operator's retry."""

from datetime import timedelta

import pytest

from tenure.errors import DeadlinePassed, NotFound, VersionMismatch
from tenure.jobs.model import ErrorKind, State
from tenure.store.database import Database
from tenure.store.retry import retry
from tests.factories import age, claimed, failure, history, in_state, read, running, settled


async def test_a_dead_job_starts_afresh_with_its_history_kept(database: Database) -> None:
    held = await running(database, max_attempts=1)
    await settled(database, failure(held))
    async with database.transaction() as connection:
        job = await retry(connection, held.job.id, reason="fixed upstream", requested_by="ops")
    assert (job.state, job.attempts, job.finished_at, job.lease) == (State.QUEUED, 0, None, None)
    assert job.last_error is not None
    (again,) = await claimed(database)
    assert (again.job.id, again.job.attempts) == (held.job.id, 1)
    assert await history(database, job) == ["enqueued", "leased", "dead", "manual_retry", "leased"]


async def test_an_always_failing_job_dies_again_each_time(database: Database) -> None:
    held = await running(database, max_attempts=1)
    for _ in range(3):
        await settled(database, failure(held))
        async with database.transaction() as connection:
            await retry(connection, held.job.id)
        (held,) = await claimed(database)
    assert (await history(database, held.job)).count("manual_retry") == 3


async def test_a_passed_deadline_must_be_renewed(database: Database) -> None:
    held = await running(database, expires_in_seconds=3_600.0)
    await settled(database, failure(held, ErrorKind.PERMANENT))
    async with database.connection() as connection:
        await age(connection, held.job, "deadline_at", timedelta(hours=2))
    before = await read(database, held.job)
    with pytest.raises(DeadlinePassed):
        async with database.transaction() as connection:
            await retry(connection, held.job.id)
    assert await read(database, held.job) == before
    async with database.transaction() as connection:
        job = await retry(connection, held.job.id, expires_in_seconds=60.0)
    assert job.deadline_at is not None
    assert job.deadline_at - job.updated_at == timedelta(seconds=60)


async def test_a_delay_is_kept(database: Database) -> None:
    job = await in_state(database, State.DEAD)
    async with database.transaction() as connection:
        await retry(connection, job.id, delay_seconds=60.0)
    assert await claimed(database) == []


async def test_a_stale_version_and_a_foreign_job_change_nothing(database: Database) -> None:
    job = await in_state(database, State.DEAD)
    for fields, error in (({"version": 1}, VersionMismatch), ({"tenant": "t2"}, NotFound)):
        with pytest.raises(error):
            async with database.transaction() as connection:
                await retry(connection, job.id, **fields)
    assert await read(database, job) == job


async def test_when_the_requeue_is_refused_the_dead_row_stays(database: Database) -> None:
    job = await in_state(database, State.DEAD)
    async with database.connection() as connection:
        await connection.execute(
            "CREATE FUNCTION tenure.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " IF NEW.state = 'queued' THEN RAISE 'refused'; END IF; RETURN NEW; END $$"
        )
        await connection.execute(
            "CREATE TRIGGER refuse BEFORE UPDATE ON tenure.jobs FOR EACH ROW EXECUTE FUNCTION tenure.refuse()"
        )
    try:
        with pytest.raises(Exception, match="refused"):
            async with database.transaction() as connection:
                await retry(connection, job.id)
        assert await read(database, job) == job
        assert (await history(database, job))[-1] == "dead"
    finally:
        async with database.connection() as connection:
            await connection.execute("DROP FUNCTION tenure.refuse() CASCADE")
