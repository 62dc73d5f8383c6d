"""A database that goes away and comes back: no handler is stopped for it, no outcome is lost, nothing is guessed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tenure.jobs.model import Job, State
from tenure.jobs.retry import RetryPolicy
from tenure.settings import DatabaseSettings
from tenure.store.database import Database
from tenure.store.reap import reap_expired
from tenure.worker.context import JobContext
from tenure.worker.registry import JobRegistry
from tests.factories import expire_lease, history, many_queued, queued, read
from tests.waiting import until
from tests.worker.cable import Cable, cabled
from tests.worker.running import Running, settled_as, working

CUT_ALL = """
SELECT count(pg_terminate_backend(pid)) AS n FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@pytest.fixture
def jobs() -> JobRegistry:
    return JobRegistry(default_policy=RetryPolicy(base_seconds=0.01, cap_seconds=0.01, jitter="none"))


@asynccontextmanager
async def working_over_a_cable(
    settings: DatabaseSettings, jobs: JobRegistry
) -> AsyncIterator[tuple[Running, Database, Cable]]:
    """A worker whose connections can be cut; the test's own database is not on that cable."""
    async with (
        cabled(settings) as (through, cable),
        await Database.open(through) as far,
        working(far, jobs, hints=False) as running,
    ):
        yield running, far, cable


async def test_backends_terminated_again_and_again_cost_a_running_job_nothing(
    database: Database, jobs: JobRegistry
) -> None:
    go = asyncio.Event()
    starts: list[Job] = []

    @jobs.handler("long")
    async def handle(context: JobContext) -> str:
        starts.append(context.job)
        await go.wait()
        return "done"

    accepted = await many_queued(database, 3, kind="long")
    async with working(database, jobs) as running:
        await until(lambda: len(starts) == 3)
        for _ in range(3):
            before = [(await read(database, job)).heartbeats for job in accepted]
            async with database.connection() as connection:
                row = await connection.fetchrow(CUT_ALL)
            assert row is not None

            async def beating(before: list[int] = before) -> bool:
                return all(
                    [(await read(database, job)).heartbeats > n for job, n in zip(accepted, before, strict=True)]
                )

            await until(beating, timeout_seconds=20)
        assert running.worker.running == 3
        go.set()
        for job in accepted:
            assert (await settled_as(database, job)).result == '"done"'
    assert len(starts) == 3
    for job in accepted:
        assert await history(database, job) == ["enqueued", "leased", "succeeded"]


async def test_an_outcome_that_cannot_be_reported_is_reported_when_the_database_is_back(
    database: Database, database_settings: DatabaseSettings, jobs: JobRegistry
) -> None:
    go, done = asyncio.Event(), asyncio.Event()
    starts: list[int] = []

    @jobs.handler("long")
    async def handle(context: JobContext, fails: bool) -> str:
        starts.append(context.job.attempts)
        await go.wait()
        done.set()
        if fails and context.job.attempts == 1:
            raise ValueError("first")
        return "done"

    good = await queued(database, kind="long", payload="false")
    bad = await queued(database, kind="long", payload="true")
    async with working_over_a_cable(database_settings, jobs) as (running, _, cable):
        await until(lambda: len(starts) == 2)
        await cable.pull()
        go.set()
        await done.wait()
        await until(lambda: running.worker.running == 0)
        assert (await read(database, good)).state is State.RUNNING
        await cable.plug()
        assert (await settled_as(database, good)).result == '"done"'
        assert (await settled_as(database, bad)).attempts == 2
    assert await history(database, good) == ["enqueued", "leased", "succeeded"]
    assert await history(database, bad) == ["enqueued", "leased", "retry_scheduled", "leased", "succeeded"]


async def test_a_lease_that_was_taken_over_during_the_outage_stops_the_handler_when_it_is_over(
    database: Database, database_settings: DatabaseSettings, jobs: JobRegistry
) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    @jobs.handler("long", lease_seconds=1)
    async def handle(context: JobContext) -> str:
        if context.job.attempts > 1:
            return "second"
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "first"

    job = await queued(database, kind="long")
    async with working_over_a_cable(database_settings, jobs) as (running, _, cable):
        await started.wait()
        await cable.pull()
        await expire_lease(database, job)
        async with database.transaction() as connection:
            await reap_expired(connection)
        assert not stopped.is_set()
        assert running.worker.running == 1
        await cable.plug()
        await asyncio.wait_for(stopped.wait(), 10)
        assert (await settled_as(database, job)).result == '"second"'


@pytest.mark.parametrize("answer_lost", [True, False])
async def test_the_answer_to_a_settle_may_be_lost_and_it_still_counts_once(
    database: Database, database_settings: DatabaseSettings, jobs: JobRegistry, answer_lost: bool
) -> None:
    go = asyncio.Event()

    @jobs.handler("long")
    async def handle(context: JobContext) -> str:
        await go.wait()
        return "done"

    job = await queued(database, kind="long")
    async with working_over_a_cable(database_settings, jobs) as (running, _, cable):
        await settled_as(database, job, State.RUNNING)
        cable.cut_after = b'"done"' if answer_lost else None
        go.set()
        ended = await settled_as(database, job)
        await until(lambda: cable.cuts == int(answer_lost))
        running.worker.drain()
        await running.finished
    assert ended.result == '"done"'
    assert await history(database, job) == ["enqueued", "leased", "succeeded"]


async def test_the_answer_to_a_completion_s_commit_may_be_lost_and_the_handler_learns_that_it_happened(
    database: Database, database_settings: DatabaseSettings, jobs: JobRegistry
) -> None:
    after: list[str] = []

    @jobs.handler("pays")
    async def handle(context: JobContext) -> None:
        async with context.completion("paid"):
            cable.cut_after = b"COMMIT"
        after.append("committed")

    async with working_over_a_cable(database_settings, jobs) as (_, _, cable):
        job = await queued(database, kind="pays")
        ended = await settled_as(database, job)
        await until(lambda: after)
        assert cable.cuts == 1
    assert (ended.result, after) == ('"paid"', ["committed"])
    assert await history(database, job) == ["enqueued", "leased", "succeeded"]


async def test_a_worker_that_starts_before_its_database_works_once_it_is_there(
    database: Database, database_settings: DatabaseSettings, jobs: JobRegistry
) -> None:
    @jobs.handler("quick")
    async def handle(context: JobContext) -> None:
        return None

    job = await queued(database, kind="quick")
    async with cabled(database_settings) as (through, cable):
        await cable.pull()
        async with await Database.open(through) as far, working(far, jobs, hints=False) as running:
            assert not running.finished.done()
            await cable.plug()
            assert (await settled_as(database, job)).state is State.SUCCEEDED


async def test_draining_while_the_database_is_away_ends_within_its_bounds(
    database: Database, database_settings: DatabaseSettings, jobs: JobRegistry
) -> None:
    started = asyncio.Event()

    @jobs.handler("long")
    async def handle(context: JobContext) -> None:
        started.set()
        await asyncio.Event().wait()

    job = await queued(database, kind="long")
    async with (
        cabled(database_settings) as (through, cable),
        await Database.open(through) as far,
        working(far, jobs, hints=False, shutdown_grace_seconds=0.0, settle_seconds=0.2) as running,
    ):
        await started.wait()
        await cable.pull()
        running.worker.drain()
        await asyncio.wait_for(running.finished, 20)
    assert (await read(database, job)).state is State.RUNNING
