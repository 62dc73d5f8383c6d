"""Outcomes are reported until they are answered, and none keeps another waiting."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tenure.jobs.decisions import ReportedError
from tenure.jobs.model import ErrorKind, State
from tenure.store.database import Database
from tenure.store.notify import Bell, Listener
from tenure.store.settle import Outcome, OutcomeKind
from tenure.worker.registry import JobRegistry
from tenure.worker.settler import Report, Settler
from tests.factories import Held, claimed, expire_lease, history, many_queued, read, running
from tests.waiting import until
from tests.worker.running import broker_of


@asynccontextmanager
async def settling(database: Database) -> AsyncIterator[Settler]:
    listener = Listener(database)
    settler = Settler(broker_of(database, JobRegistry(), Bell(database, listener), listener))
    task = asyncio.create_task(settler.run())
    try:
        yield settler
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def report(held: Held, result: str = "1", *, done: list[object] | None = None) -> Report:
    outcome = Outcome(job_id=held.job.id, token=held.token, kind=OutcomeKind.COMPLETE, result=result)
    return Report(
        outcome=outcome,
        queue="default",
        on_settled=lambda: None if done is None else done.append(held.job.id),
    )


@pytest.fixture
async def held(database: Database) -> list[Held]:
    await many_queued(database, 20)
    return await claimed(database, limit=20)


async def test_all_that_is_put_is_settled_and_told_once(database: Database, held: list[Held]) -> None:
    done: list[object] = []
    async with settling(database) as settler:
        for item in held:
            settler.put(report(item, done=done))
        assert settler.pending == 20
        await settler.drained()
        assert settler.pending == 0
    assert sorted(map(str, done)) == sorted(str(item.job.id) for item in held)
    assert {(await read(database, item.job)).state for item in held} == {State.SUCCEEDED}


async def test_one_that_cannot_be_stored_becomes_a_failure_and_spoils_no_other(
    database: Database, held: list[Held]
) -> None:
    async with settling(database) as settler:
        for i, item in enumerate(held):
            settler.put(report(item, "{not json" if i == 7 else "1"))
        await settler.drained()
    for i, item in enumerate(held):
        job = await read(database, item.job)
        assert job.state is (State.FAILED if i == 7 else State.SUCCEEDED)
        if job.last_error is not None:
            assert job.last_error.kind is ErrorKind.PERMANENT
            assert "could not be stored" in job.last_error.message
            assert "not json" not in job.last_error.message


async def test_a_refused_outcome_becomes_a_failure_rather_than_a_job_that_hangs(database: Database) -> None:
    item = await running(database, max_attempts=1)
    error = ReportedError(kind=ErrorKind.CANCELED, message="nobody asked")
    outcome = Outcome(job_id=item.job.id, token=item.token, kind=OutcomeKind.FAIL, error=error)
    async with settling(database) as settler:
        settler.put(Report(outcome=outcome, queue="default", on_settled=lambda: None))
        await settler.drained()
    job = await read(database, item.job)
    assert job.last_error is not None
    assert (job.state, job.last_error.kind) == (State.DEAD, ErrorKind.UNKNOWN)


async def test_a_lost_lease_is_the_end_of_it(database: Database, held: list[Held]) -> None:
    async with database.connection() as connection:
        await connection.execute("UPDATE tenure.jobs SET lease_token_digest = '\\x00' WHERE id = $1", held[0].job.id)
    async with settling(database) as settler:
        for item in held:
            settler.put(report(item))
        await settler.drained()
    states = [(await read(database, item.job)).state for item in held]
    assert states == [State.RUNNING, *[State.SUCCEEDED] * 19]


async def test_an_expired_lease_that_nobody_took_is_still_settled(database: Database, held: list[Held]) -> None:
    await expire_lease(database, held[0].job)
    async with settling(database) as settler:
        settler.put(report(held[0]))
        await settler.drained()
    assert await history(database, held[0].job) == ["enqueued", "leased", "succeeded"]


async def test_a_row_that_somebody_locks_does_not_hold_up_the_others(database: Database, held: list[Held]) -> None:
    impatient = database.settings.model_copy(update={"lock_timeout_seconds": 0.3})
    async with await Database.open(impatient) as own, settling(own) as settler:
        async with database.transaction() as connection:
            await connection.execute("SELECT 1 FROM tenure.jobs WHERE id = $1 FOR UPDATE", held[10].job.id)
            for item in held:
                settler.put(report(item))
            await until(lambda: settler.pending == 1)
        await settler.drained()
    assert {(await read(database, item.job)).state for item in held} == {State.SUCCEEDED}
