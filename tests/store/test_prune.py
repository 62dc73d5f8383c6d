"""Retention, and the partitions of events."""

from datetime import date, timedelta

from tenure.jobs.model import State
from tenure.store.artifacts import Artifact, find, register
from tenure.store.database import Database
from tenure.store.inspect import events, get
from tenure.store.partitions import create_partition, drop_partition, droppable_days, missing_days, partition_days
from tenure.store.prune import Pruned, prune
from tests.factories import age, history, in_state, many_queued, queued, read

RETENTION = {
    State.SUCCEEDED: timedelta(days=7),
    State.CANCELED: timedelta(days=7),
    State.FAILED: timedelta(days=30),
    State.DEAD: timedelta(days=90),
}


async def prune_now(database: Database, limit: int = 1_000) -> list[Pruned]:
    async with database.transaction() as connection:
        return await prune(connection, RETENTION, limit=limit)


async def test_each_state_goes_after_its_own_time_and_others_stay(database: Database) -> None:
    made = {state: await in_state(database, state, queue=f"q-{state}") for state in State}
    gone_at = {8: {State.SUCCEEDED, State.CANCELED}, 31: {State.FAILED}, 91: {State.DEAD}}
    gone: set[State] = set()
    for days, states in gone_at.items():
        async with database.connection() as connection:
            await connection.execute(
                "UPDATE tenure.jobs SET finished_at = now() - $1::interval WHERE finished_at IS NOT NULL",
                timedelta(days=days),
            )
        assert {item.state for item in await prune_now(database)} == states
        gone |= states
        async with database.connection() as connection:
            left = {state for state, job in made.items() if await get(connection, job.id) is not None}
        assert left == set(State) - gone


async def test_a_job_with_a_key_stays_a_day_after_its_end(database: Database) -> None:
    job = await in_state(database, State.SUCCEEDED, idempotency_key="k", request_digest=b"x")
    async with database.connection() as connection:
        await age(connection, job, "finished_at", timedelta(hours=23))
    async with database.transaction() as connection:
        assert await prune(connection, {State.SUCCEEDED: timedelta(0)}) == []
    async with database.connection() as connection:
        await age(connection, job, "finished_at", timedelta(hours=2))
    async with database.transaction() as connection:
        assert [item.jobs for item in await prune(connection, {State.SUCCEEDED: timedelta(0)})] == [1]


async def test_batches_are_bounded_and_artifacts_are_named(database: Database) -> None:
    jobs = await many_queued(database, 5)
    async with database.transaction() as connection:
        for job in jobs:
            await connection.execute(
                "UPDATE tenure.jobs SET state = 'succeeded', finished_at = now() - interval '8 days' WHERE id = $1",
                job.id,
            )
            await register(
                connection,
                job.id,
                [
                    Artifact(
                        name="a.csv", location=f"{job.id}/2/a.csv", bytes=1, rows=1, sha256="0", content_type="text/csv"
                    )
                ],
            )
    (first,) = await prune_now(database, limit=3)
    (second,) = await prune_now(database, limit=3)
    assert (first.jobs, second.jobs) == (3, 2)
    assert len({*first.artifact_locations, *second.artifact_locations}) == 5
    async with database.connection() as connection:
        assert await find(connection, jobs[0].id) == []


async def test_two_weeks_of_partitions_lie_ahead(database: Database) -> None:
    async with database.connection() as connection:
        assert await missing_days(connection) == []
        assert len(await partition_days(connection)) >= 15


async def test_a_late_partition_takes_over_what_the_default_one_held(database: Database) -> None:
    day = date(2030, 1, 2)
    job = await queued(database)
    async with database.transaction() as connection:
        await connection.execute(
            "INSERT INTO tenure.events (part, job_id, version, at, type, state, attempt)"
            " VALUES (0, $1, 2, '2030-01-02 12:00+00', 'leased', 'running', 1)",
            job.id,
        )
    async with database.transaction() as connection:
        await create_partition(connection, day)
        await create_partition(connection, day)
    async with database.connection() as connection:
        (row,) = await connection.fetch("SELECT count(*) AS n FROM tenure.events_d20300102")
        assert row["n"] == 1
        assert day in await partition_days(connection)
    async with database.transaction() as connection:
        await drop_partition(connection, day)


async def test_dropping_a_day_keeps_the_events_of_jobs_that_are_kept(database: Database) -> None:
    day = date(2020, 5, 6)
    kept = await queued(database)
    async with database.transaction() as connection:
        await create_partition(connection, day)
        await connection.execute("UPDATE tenure.jobs SET created_at = '2020-05-06 10:00+00' WHERE id = $1", kept.id)
        await connection.execute("UPDATE tenure.events SET at = '2020-05-06 10:00+00' WHERE job_id = $1", kept.id)
        await connection.execute(
            "INSERT INTO tenure.events (part, job_id, version, at, type, state, attempt)"
            " VALUES (0, gen_random_uuid(), 1, '2020-05-06 11:00+00', 'enqueued', 'queued', 0)"
        )
        assert day in await droppable_days(connection, timedelta(days=7))
    async with database.transaction() as connection:
        assert await drop_partition(connection, day) == 1
    async with database.connection() as connection:
        assert day not in await partition_days(connection)
        assert [event.type for event in await events(connection, kept.id)] == ["enqueued"]
    assert await history(database, await read(database, kept)) == ["enqueued"]
