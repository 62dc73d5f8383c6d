"""Claiming."""

import asyncio
from datetime import timedelta

import pytest

from tenure.jobs.model import State
from tenure.store.claim import KindSelector, claim
from tenure.store.database import Database
from tests.factories import age, claimed, history, many_queued, queued, read


async def test_a_claim_leases_the_job_and_counts_the_attempt(database: Database) -> None:
    job = await queued(database, lease_seconds=12.0)
    (held,) = await claimed(database, worker_id="w1")
    assert (held.job.id, held.job.state, held.job.attempts, held.job.version) == (job.id, State.RUNNING, 1, 2)
    assert held.job.lease is not None
    assert held.job.lease.worker_id == "w1"
    assert held.job.lease.expires_at - held.job.lease.acquired_at == timedelta(seconds=12)
    assert await history(database, job) == ["enqueued", "leased"]


async def test_the_token_is_stored_nowhere(database: Database) -> None:
    job = await queued(database)
    (held,) = await claimed(database)
    async with database.connection() as connection:
        for table, key in (("jobs", "id"), ("events", "job_id")):
            (row,) = await connection.fetch(
                f"SELECT string_agg(t::text, ' ') AS text FROM tenure.{table} t WHERE {key} = $1", job.id
            )
            assert held.token not in row["text"]
            assert bytes.fromhex(held.token).hex() not in row["text"]


async def test_higher_priority_first_then_longest_due_over_all_queues_and_kinds(database: Database) -> None:
    low = await queued(database, priority=-5)
    normal = await queued(database, queue="other", kind="b")
    older = await queued(database, kind="a")
    urgent = await queued(database, priority=100, kind="c")
    async with database.connection() as connection:
        await age(connection, older, "available_at", timedelta(hours=1))
    held = await claimed(database, queues=["default", "other"], limit=10)
    assert [h.job.id for h in held] == [urgent.id, older.id, normal.id, low.id]


async def test_a_limit_smaller_than_a_lane_takes_the_best(database: Database) -> None:
    await many_queued(database, 5, priority=1)
    best = await many_queued(database, 3, priority=2)
    held = await claimed(database, limit=2)
    assert {h.job.id for h in held} <= {job.id for job in best}
    assert len(held) == 2


async def test_only_asked_queues_and_kinds_are_taken(database: Database) -> None:
    wanted = await queued(database, kind="a")
    await queued(database, kind="b")
    await queued(database, kind="a", queue="other")
    held = await claimed(database, limit=10, kinds=[KindSelector(kind="a"), KindSelector(kind="zzz")])
    assert [h.job.id for h in held] == [wanted.id]
    assert await claimed(database, queues=["nobody"], limit=10) == []
    assert await claimed(database, limit=10, kinds=[]) == []


async def test_schema_versions_that_the_worker_does_not_know_wait(database: Database) -> None:
    old = await queued(database, kind="a", schema_version=1)
    new = await queued(database, kind="a", schema_version=2)
    (held,) = await claimed(database, limit=10, kinds=[KindSelector(kind="a", schema_versions=(1,))])
    assert held.job.id == old.id
    (held,) = await claimed(database, limit=10, kinds=[KindSelector(kind="a", schema_versions=(2, 3))])
    assert held.job.id == new.id


async def test_a_job_that_is_not_due_or_past_its_deadline_is_never_handed_out(database: Database) -> None:
    await queued(database, delay_seconds=60.0)
    late = await queued(database, expires_in_seconds=60.0)
    async with database.connection() as connection:
        await age(connection, late, "deadline_at", timedelta(hours=1))
    assert await claimed(database, limit=10) == []
    assert (await read(database, late)).state is State.QUEUED


async def test_a_paused_queue_gives_nothing_and_the_others_do(database: Database) -> None:
    await queued(database, queue="paused")
    open_one = await queued(database, queue="open")
    async with database.connection() as connection:
        await connection.execute(
            "INSERT INTO tenure.queues (tenant, name, paused_at, created_at, updated_at)"
            " VALUES ('default', 'paused', now(), now(), now())"
        )
    held = await claimed(database, queues=["paused", "open"], limit=10)
    assert [h.job.id for h in held] == [open_one.id]


async def test_another_tenants_jobs_are_not_taken(database: Database) -> None:
    await queued(database, tenant="t1")
    assert await claimed(database, tenant="t2") == []
    assert len(await claimed(database, tenant="t1")) == 1


async def test_the_lease_length_is_the_claims_then_the_jobs_then_the_kinds_then_the_default(database: Database) -> None:
    async def length(*, job: float | None = None, kind: float | None = None, asked: float | None = None) -> float:
        await queued(database, kind="a", lease_seconds=job)
        (held,) = await claimed(
            database,
            kinds=[KindSelector(kind="a", lease_seconds=kind)],
            lease_seconds=asked,
            default_lease_seconds=30.0,
        )
        assert held.job.lease is not None
        return (held.job.lease.expires_at - held.job.lease.acquired_at).total_seconds()

    assert await length() == 30
    assert await length(kind=20.0) == 20
    assert await length(kind=20.0, job=10.0) == 10
    assert await length(kind=20.0, job=10.0, asked=5.0) == 5


@pytest.mark.parametrize("limit", [1, 2, 7])
async def test_no_more_than_the_limit_is_taken_on_a_table_without_statistics(database: Database, limit: int) -> None:
    await many_queued(database, 40)
    assert len(await claimed(database, limit=limit)) == limit
    async with database.connection() as connection:
        (row,) = await connection.fetch("SELECT count(*) AS n FROM tenure.jobs WHERE state = 'running'")
    assert row["n"] == limit


async def test_many_claimers_at_once_take_each_job_exactly_once(database: Database) -> None:
    jobs = [job for kind in ("a", "b") for job in await many_queued(database, 300, kind=kind)]
    taken: list[object] = []

    async def work(number: int) -> None:
        while held := await claimed(database, worker_id=f"w{number}", limit=1 + number % 10):
            taken.extend(h.job.id for h in held)

    await asyncio.gather(*[work(number) for number in range(16)])
    # A claimer may find the last rows locked by another one and stop; what is left then is nobody's loss.
    await work(3)
    assert len(taken) == len(set(taken))
    assert set(taken) == {job.id for job in jobs}


async def test_a_row_that_somebody_else_locks_is_passed_over_at_once(database: Database) -> None:
    locked, free = await many_queued(database, 2)
    async with database.transaction() as other:
        await other.execute("SELECT 1 FROM tenure.jobs WHERE id = $1 FOR UPDATE", locked.id)
        (held,) = await claimed(database, limit=10)
        assert held.job.id == free.id
    (held,) = await claimed(database, limit=10)
    assert held.job.id == locked.id


@pytest.mark.parametrize("limit", [1, 2])
async def test_a_locked_job_of_one_lane_does_not_hide_the_jobs_of_others(database: Database, limit: int) -> None:
    locked = await queued(database, priority=100, kind="a")
    free = await queued(database, priority=-100, kind="b")
    async with database.transaction() as other:
        await other.execute("SELECT 1 FROM tenure.jobs WHERE id = $1 FOR UPDATE", locked.id)
        held = await claimed(database, limit=limit)
        assert [h.job.id for h in held] == [free.id]
    assert [h.job.id for h in await claimed(database, limit=limit)] == [locked.id]


async def test_fresh_tokens_for_each_attempt(database: Database) -> None:
    await many_queued(database, 200)
    async with database.connection() as connection:
        leases = await claim(connection, worker_id="w", queues=["default"], limit=200, default_lease_seconds=30)
    assert len({lease.token for lease in leases}) == 200
