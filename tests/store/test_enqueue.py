"""Accepting jobs."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from tenure.errors import IdempotencyKeyReused, InvalidInput
from tenure.jobs.model import State
from tenure.store.database import Database
from tenure.store.enqueue import enqueue
from tenure.store.inspect import JobFilter, list_jobs
from tests.factories import history, many_queued, new_job, queued, read


async def test_what_is_answered_is_what_is_stored(database: Database) -> None:
    job = await queued(
        database,
        kind="report",
        queue="exports",
        priority=-7,
        payload='{"ü": "😀", "n": 18446744073709551617, "z": [1.5, null]}',
        tags=("a", "b c", "ü"),
        metadata='{"team": "x"}',
        max_attempts=9,
        timeout_seconds=1.5,
        lease_seconds=7.0,
        delay_seconds=60.0,
        expires_in_seconds=600.0,
        concurrency_key="acct-7",
        submitted_by="me",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )
    assert await read(database, job) == job
    assert job.available_at - job.created_at == timedelta(seconds=60)
    assert job.deadline_at is not None
    assert job.deadline_at - job.created_at == timedelta(seconds=600)
    assert await history(database, job) == ["enqueued"]


async def test_a_past_available_at_is_now(database: Database) -> None:
    job = await queued(database, available_at=datetime(2001, 1, 1, tzinfo=UTC))
    assert job.available_at == job.created_at


async def test_a_deadline_that_has_passed_is_refused_and_nothing_is_stored(database: Database) -> None:
    with pytest.raises(InvalidInput) as caught:
        async with database.transaction() as connection:
            await enqueue(connection, [new_job(), new_job(deadline_at=datetime(2001, 1, 1, tzinfo=UTC))])
    assert caught.value.errors[0].pointer == "/jobs/1/deadline_at"
    async with database.connection() as connection:
        assert await list_jobs(connection, JobFilter()) == []


async def test_one_key_and_one_body_give_one_job(database: Database) -> None:
    first = await queued(database, idempotency_key="k", request_digest=b"body")
    async with database.transaction() as connection:
        (again,) = await enqueue(connection, [new_job(idempotency_key="k", request_digest=b"body")])
    assert (again.replayed, again.job) == (True, first)


async def test_one_key_and_another_body_is_refused(database: Database) -> None:
    await queued(database, idempotency_key="k", request_digest=b"body")
    with pytest.raises(IdempotencyKeyReused):
        async with database.transaction() as connection:
            await enqueue(connection, [new_job(idempotency_key="k", request_digest=b"other")])


async def test_two_tenants_have_their_own_keys(database: Database) -> None:
    mine = await queued(database, idempotency_key="k", request_digest=b"a", tenant="t1")
    other = await queued(database, idempotency_key="k", request_digest=b"b", tenant="t2")
    assert mine.id != other.id


async def test_a_key_twice_in_one_batch_is_one_job_or_a_refusal(database: Database) -> None:
    same = [new_job(idempotency_key="k", request_digest=b"x") for _ in range(3)]
    async with database.transaction() as connection:
        accepted = await enqueue(connection, same)
    assert len({item.job.id for item in accepted}) == 1
    assert [item.replayed for item in accepted] == [False, True, True]
    with pytest.raises(IdempotencyKeyReused) as caught:
        async with database.transaction() as connection:
            await enqueue(
                connection,
                [
                    new_job(idempotency_key="k2", request_digest=b"x"),
                    new_job(),
                    new_job(idempotency_key="k2", request_digest=b"y"),
                ],
            )
    assert caught.value.errors[0].pointer == "/jobs/2/idempotency_key"


async def test_fifty_posts_of_one_key_at_once_give_one_job(database: Database) -> None:
    async def post(key: str) -> tuple[object, bool]:
        async with database.connection() as connection:
            (accepted,) = await enqueue(connection, [new_job(idempotency_key=key, request_digest=b"x")])
        return accepted.job.id, accepted.replayed

    for key in ("a", "b"):
        answers = await asyncio.gather(*[post(key) for _ in range(50)])
        assert len({job_id for job_id, _ in answers}) == 1
        assert sum(not replayed for _, replayed in answers) == 1


async def test_the_loser_of_a_race_whose_winner_rolls_back_gets_the_job(database: Database) -> None:
    started, finish = asyncio.Event(), asyncio.Event()

    async def winner() -> None:
        async with database.transaction() as connection:
            await enqueue(connection, [new_job(idempotency_key="k", request_digest=b"x")])
            started.set()
            await finish.wait()
            raise RuntimeError("rolled back")

    async def loser() -> bool:
        async with database.connection() as connection:
            (accepted,) = await enqueue(connection, [new_job(idempotency_key="k", request_digest=b"x")])
        return accepted.replayed

    first = asyncio.create_task(winner())
    await started.wait()
    second = asyncio.create_task(loser())
    finish.set()
    with pytest.raises(RuntimeError):
        await first
    assert await second is False
    async with database.connection() as connection:
        assert len(await list_jobs(connection, JobFilter())) == 1


async def test_batches_that_share_keys_in_opposite_order_do_not_deadlock(database: Database) -> None:
    keys = [f"k{n}" for n in range(40)]

    async def post(order: list[str]) -> int:
        async with database.transaction() as connection:
            accepted = await enqueue(connection, [new_job(idempotency_key=key, request_digest=b"x") for key in order])
        return len({item.job.id for item in accepted})

    assert await asyncio.gather(*[post(keys if n % 2 else keys[::-1]) for n in range(8)]) == [40] * 8


async def test_ten_thousand_jobs_are_one_batch_in_order(database: Database) -> None:
    jobs = await many_queued(database, 10_000)
    assert len({job.id for job in jobs}) == 10_000
    assert all(job.state is State.QUEUED for job in jobs)
