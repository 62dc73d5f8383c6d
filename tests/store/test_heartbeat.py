"""Keeping leases."""

import re
from datetime import timedelta

from tenure.errors import DatabaseUnavailable, LeaseLost, NotFound
from tenure.jobs.ids import new_job_id
from tenure.store.cancel import cancel
from tenure.store.database import Database
from tenure.store.heartbeat import _HEARTBEAT, BeatAnswer, Heartbeat, HeartbeatAnswer, heartbeat
from tenure.store.tables import jobs
from tests.factories import age, history, outcome, read, running, settled


async def beat(database: Database, *beats: Heartbeat) -> list[BeatAnswer]:
    async with database.connection() as connection:
        return await heartbeat(connection, beats)


async def test_a_heartbeat_renews_the_lease_and_leaves_no_event(database: Database) -> None:
    held = await running(database, lease_seconds=60.0)
    async with database.connection() as connection:
        await age(connection, held.job, "lease_expires_at", timedelta(seconds=50))
    (answer,) = await beat(database, Heartbeat(job_id=held.job.id, token=held.token))
    job = await read(database, held.job)
    assert isinstance(answer, HeartbeatAnswer)
    assert job.lease is not None
    assert job.lease.expires_at == answer.lease_expires_at
    assert job.lease.expires_at - job.lease.heartbeat_at == timedelta(seconds=60)
    assert (job.lease.heartbeats, job.version) == (1, held.job.version)
    assert await history(database, held.job) == ["enqueued", "leased"]


async def test_a_hung_handler_cannot_hold_past_its_timeout_and_one_lease(database: Database) -> None:
    held = await running(database, lease_seconds=60.0, timeout_seconds=30.0)
    async with database.connection() as connection:
        for column in ("lease_acquired_at", "lease_expires_at"):
            await age(connection, held.job, column, timedelta(seconds=85))
    (answer,) = await beat(database, Heartbeat(job_id=held.job.id, token=held.token))
    job = await read(database, held.job)
    assert job.lease is not None
    assert isinstance(answer, HeartbeatAnswer)
    assert answer.lease_expires_at == job.lease.acquired_at + timedelta(seconds=90)


async def test_progress_is_kept_until_the_next_one(database: Database) -> None:
    held = await running(database)
    await beat(
        database,
        Heartbeat(job_id=held.job.id, token=held.token, has_progress=True, fraction=0.5, message="half"),
    )
    await beat(database, Heartbeat(job_id=held.job.id, token=held.token))
    job = await read(database, held.job)
    assert job.progress is not None
    assert (job.progress.fraction, job.progress.message) == (0.5, "half")


async def test_a_cancel_request_is_delivered_once(database: Database) -> None:
    held = await running(database)
    (before,) = await beat(database, Heartbeat(job_id=held.job.id, token=held.token))
    async with database.transaction() as connection:
        await cancel(connection, held.job.id)
    (first,) = await beat(database, Heartbeat(job_id=held.job.id, token=held.token))
    delivered = (await read(database, held.job)).cancellation
    await beat(database, Heartbeat(job_id=held.job.id, token=held.token))
    assert isinstance(before, HeartbeatAnswer)
    assert not before.cancel_requested
    assert isinstance(first, HeartbeatAnswer)
    assert first.cancel_requested
    assert delivered is not None
    assert delivered.delivered_at is not None
    assert (await read(database, held.job)).cancellation == delivered


async def test_a_stale_token_is_refused_beside_the_current_one_of_the_same_job(database: Database) -> None:
    held = await running(database)
    answers = await beat(
        database,
        Heartbeat(job_id=held.job.id, token="f" * 32),
        Heartbeat(job_id=held.job.id, token=held.token),
        Heartbeat(job_id=new_job_id(tenant="t", queue="q"), token=held.token),
    )
    assert isinstance(answers[0], LeaseLost)
    assert answers[0].reason == "unknown"
    assert isinstance(answers[1], HeartbeatAnswer)
    assert isinstance(answers[2], NotFound)


async def test_a_settled_lease_cannot_be_renewed(database: Database) -> None:
    held = await running(database)
    await settled(database, outcome(held))
    (answer,) = await beat(database, Heartbeat(job_id=held.job.id, token=held.token))
    assert isinstance(answer, LeaseLost)
    assert answer.reason == "settled"
    assert (await read(database, held.job)).lease is None


def test_a_heartbeat_touches_no_indexed_column_so_that_it_can_stay_a_hot_update() -> None:
    assigned = set(re.findall(r"^    (\w+) = ", _HEARTBEAT.partition("UPDATE tenure.jobs")[2], re.MULTILINE))
    assert {"lease_expires_at", "lease_heartbeats", "progress_message"} <= assigned
    indexed = {column.name for index in jobs.indexes for column in index.columns} | {"part", "id"}
    predicates = " ".join(str(index.dialect_options["postgresql"]["where"]) for index in jobs.indexes)
    in_predicates = {column.name for column in jobs.columns if re.search(rf"\b{column.name}\b", predicates)}
    assert not assigned & (indexed | in_predicates)


async def test_a_locked_row_costs_only_its_own_lease_and_never_looks_lost(database: Database) -> None:
    locked = await running(database, queue="a")
    free = await running(database, queue="b")
    impatient = database.settings.model_copy(update={"lock_timeout_seconds": 0.05})
    beats = [Heartbeat(job_id=held.job.id, token=held.token) for held in (locked, free)]
    async with database.transaction() as other, await Database.open(impatient) as quick:
        await other.execute("SELECT 1 FROM tenure.jobs WHERE id = $1 FOR UPDATE", locked.job.id)
        first, second = await beat(quick, *beats)
    assert isinstance(first, DatabaseUnavailable)
    assert isinstance(second, HeartbeatAnswer)
    assert (await read(database, free.job)).heartbeats == 1
    assert all(isinstance(answer, HeartbeatAnswer) for answer in await beat(database, *beats))


async def test_a_progress_message_gives_no_secret_away_and_not_its_own_token(database: Database) -> None:
    held = await running(database)
    message = f"posting with {held.token}, Bearer abcdef123456, joe@example.org"
    await beat(database, Heartbeat(job_id=held.job.id, token=held.token, has_progress=True, message=message))
    progress = (await read(database, held.job)).progress
    assert progress is not None
    assert progress.message == "posting with [redacted], Bearer [redacted], [redacted e-mail]"
