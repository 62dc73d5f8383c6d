"""How a worker ends: grace, then a cancel, then the leases go back; nothing is lost and no attempt is spent."""

import asyncio
import contextlib
import threading

import pytest

from tenure.jobs.model import CancelOutcome, State
from tenure.store.database import Database
from tenure.worker.context import JobContext
from tenure.worker.registry import JobRegistry
from tests.factories import history, many_queued, queued, read
from tests.waiting import until
from tests.worker.running import request_cancel, settled_as, working


async def test_draining_gives_the_lease_back_without_spending_the_attempt(database: Database) -> None:
    jobs, started = JobRegistry(), asyncio.Event()

    @jobs.handler("long")
    async def handle(context: JobContext) -> None:
        started.set()
        await asyncio.Event().wait()

    job = await queued(database, kind="long", max_attempts=1)
    async with working(database, jobs, shutdown_grace_seconds=0.0) as running:
        await started.wait()
        running.worker.drain()
        await running.finished
    left = await read(database, job)
    assert (left.state, left.attempts, left.lease, left.last_error) == (State.QUEUED, 0, None, None)
    assert await history(database, job) == ["enqueued", "leased", "released"]


async def test_the_grace_lets_a_job_finish_and_nothing_more_is_claimed(database: Database) -> None:
    jobs, started, go = JobRegistry(), asyncio.Event(), asyncio.Event()

    @jobs.handler("long", lease_seconds=1)
    async def handle(context: JobContext) -> str:
        started.set()
        await go.wait()
        return "finished"

    job = await queued(database, kind="long")
    async with working(database, jobs) as running:
        await started.wait()
        running.worker.drain()
        other = await queued(database, kind="long")
        running.worker.wake()

        async def renewed() -> bool:
            return (await read(database, job)).heartbeats >= 4  # well over one lease

        await until(renewed)
        go.set()
        await running.finished
        assert running.worker.running == 0
    assert (await read(database, job)).result == '"finished"'
    assert await history(database, other) == ["enqueued"]


async def test_a_cancel_request_is_obeyed_while_draining(database: Database) -> None:
    jobs, started = JobRegistry(), asyncio.Event()

    @jobs.handler("long")
    async def handle(context: JobContext) -> None:
        started.set()
        await asyncio.Event().wait()

    job = await queued(database, kind="long")
    async with working(database, jobs, shutdown_grace_seconds=60.0) as running:
        await started.wait()
        running.worker.drain()
        await request_cancel(database, job, running.bell)
        await running.finished
    ended = await read(database, job)
    assert ended.cancellation is not None
    assert (ended.state, ended.cancellation.outcome) == (State.CANCELED, CancelOutcome.STOPPED)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_stopping_now_releases_at_once_even_inside_an_uninterruptible_block(
    database: Database, cancelled: bool
) -> None:
    jobs, started = JobRegistry(), asyncio.Event()

    @jobs.handler("long")
    async def handle(context: JobContext) -> None:
        async with context.uninterruptible():
            started.set()
            await asyncio.Event().wait()

    job = await queued(database, kind="long")
    async with working(database, jobs, shutdown_grace_seconds=3600.0) as running:
        await started.wait()
        if cancelled:
            running.finished.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running.finished
        else:
            running.worker.drain()
            running.worker.stop_now()
            await running.finished
        assert await history(database, job) == ["enqueued", "leased", "released"]


async def test_a_thread_that_does_not_return_is_left_behind_and_its_lease_is_not_released(database: Database) -> None:
    jobs, started, go = JobRegistry(), threading.Event(), threading.Event()

    @jobs.handler("thread")
    def handle(context: JobContext) -> str:
        started.set()
        assert go.wait(30)
        return "too late to be told"

    job = await queued(database, kind="thread")
    async with working(database, jobs, shutdown_grace_seconds=0.0, stop_seconds=0.1) as running:
        await until(started.is_set)
        running.worker.drain()
        await running.finished
        left = await read(database, job)
        go.set()
    assert (left.state, left.attempts) == (State.RUNNING, 1)
    assert left.lease is not None
    assert await history(database, job) == ["enqueued", "leased"]


async def test_what_is_released_is_taken_by_another_worker_at_once(database: Database) -> None:
    jobs, started = JobRegistry(), asyncio.Queue[str]()
    go = asyncio.Event()

    @jobs.handler("long")
    async def handle(context: JobContext) -> None:
        started.put_nowait(context.job.lease.worker_id if context.job.lease else "")
        await go.wait()

    accepted = await many_queued(database, 2, kind="long")
    async with working(database, jobs, slots=2, shutdown_grace_seconds=0.0) as first:
        for _ in accepted:
            await started.get()
        async with working(database, jobs, slots=2, poll_seconds=3600) as second:
            first.worker.drain()
            await first.finished
            for _ in accepted:
                await asyncio.wait_for(started.get(), 10)
            go.set()
            for job in accepted:
                assert (await settled_as(database, job)).attempts == 1
            assert not second.finished.done()


async def test_draining_before_it_runs_ends_it_at_once(database: Database) -> None:
    jobs = JobRegistry()

    @jobs.handler("quick")
    async def handle(context: JobContext) -> None:
        return None

    async with working(database, jobs) as running:
        running.worker.drain()
        await running.finished
