"""Group commit: what comes together is written together, and each caller hears of its own job only."""

import asyncio

import pytest

from tenure.api.intake import Intake
from tenure.errors import DatabaseUnavailable, InvalidInput
from tenure.settings import load
from tenure.store.database import Database
from tests.factories import new_job


async def transactions(database: Database) -> int:
    """How many transactions wrote the jobs there are."""
    async with database.connection() as connection:
        row = await connection.fetchrow("SELECT count(DISTINCT xmin::text) AS n FROM tenure.jobs")
    assert row is not None
    return int(row["n"])


async def test_enqueues_that_come_together_share_a_commit(database: Database) -> None:
    intake = Intake(database)
    accepted = await asyncio.gather(*(intake.enqueue(new_job(payload=str(number))) for number in range(100)))
    assert [item.job.payload for item in accepted] == [str(number) for number in range(100)]
    assert await transactions(database) == 1
    await intake.enqueue(new_job())
    assert await transactions(database) == 2


async def test_repeat_within_one_group_is_a_replay(database: Database) -> None:
    intake = Intake(database)
    jobs = [new_job(idempotency_key="k", request_digest=b"same") for _ in range(10)]
    accepted = await asyncio.gather(*(intake.enqueue(job) for job in jobs))
    assert {item.job.id for item in accepted} == {jobs[0].id}
    assert [item.replayed for item in accepted] == [False] + [True] * 9


async def test_refusal_reaches_only_who_caused_it(database: Database) -> None:
    intake = Intake(database)
    jobs = [new_job(idempotency_key="k", request_digest=bytes([number == 3])) for number in range(5)]
    answers = await asyncio.gather(*(intake.enqueue(job) for job in jobs), return_exceptions=True)
    assert [isinstance(answer, InvalidInput) for answer in answers] == [number == 3 for number in range(5)]


async def test_caller_who_gives_up_spoils_nothing_for_the_others(database: Database) -> None:
    intake = Intake(database)
    waiting = [asyncio.create_task(intake.enqueue(new_job(queue=f"q{number}"))) for number in range(3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.wait(waiting)
    await intake.close()
    async with database.connection() as connection:
        rows = await connection.fetch("SELECT queue FROM tenure.jobs ORDER BY queue")
    assert {"q0", "q2"} <= {row["queue"] for row in rows}
    assert waiting[1].cancelled()


async def test_close_writes_what_waits(database: Database) -> None:
    intake = Intake(database)
    waiting = asyncio.create_task(intake.enqueue(new_job()))
    await asyncio.sleep(0)
    await intake.close()
    assert (await waiting).replayed is False


async def test_outage_is_told_to_all_that_wait() -> None:
    settings = load({"TENURE_DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none"})
    async with await Database.open(settings.database) as database:
        intake = Intake(database)
        answers = await asyncio.gather(*(intake.enqueue(new_job()) for _ in range(5)), return_exceptions=True)
        assert all(isinstance(answer, DatabaseUnavailable) for answer in answers)
        with pytest.raises(DatabaseUnavailable):
            await intake.enqueue(new_job())
