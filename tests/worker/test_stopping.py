"""Cancel, timeout, deadline, lost leases: who is told what, and what is reported for it."""

import asyncio
import contextlib
import threading

import pytest

from tenure.errors import JobCanceled, PermanentError
from tenure.jobs.model import CancelOutcome, ErrorKind, Job, State
from tenure.jobs.retry import RetryPolicy
from tenure.store.database import Database
from tenure.store.reap import reap_expired
from tenure.worker.context import JobContext
from tenure.worker.registry import JobRegistry
from tests.factories import expire_lease, history, queued, read
from tests.waiting import until
from tests.worker.running import request_cancel, settled_as, working


@pytest.fixture
def jobs() -> JobRegistry:
    return JobRegistry(default_policy=RetryPolicy(base_seconds=0.01, cap_seconds=0.01, jitter="none"))


@pytest.mark.parametrize("hints", [True, False])
async def test_a_cancel_request_cancels_the_handler_s_task_and_is_confirmed(
    database: Database, jobs: JobRegistry, hints: bool
) -> None:
    started = asyncio.Event()
    cleaned: list[bool] = []

    @jobs.handler("waits")
    async def handle(context: JobContext) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(context.cancel_requested)

    job = await queued(database, kind="waits")
    async with working(database, jobs, hints=hints) as running:
        await started.wait()
        receipt = await request_cancel(database, job, running.bell if hints else None)
        assert receipt.cancellation.outcome is CancelOutcome.REQUESTED
        ended = await settled_as(database, job)
    assert ended.state is State.CANCELED
    assert ended.cancellation is not None
    assert ended.cancellation.outcome is CancelOutcome.STOPPED
    assert ended.cancellation.delivered_at is not None
    assert (ended.last_error, cleaned) == (None, [True])


async def test_a_handler_that_finishes_in_spite_of_the_request_has_finished_first(
    database: Database, jobs: JobRegistry
) -> None:
    started = asyncio.Event()

    @jobs.handler("stubborn")
    async def handle(context: JobContext) -> str:
        started.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "done all the same"

    job = await queued(database, kind="stubborn")
    async with working(database, jobs) as running:
        await started.wait()
        await request_cancel(database, job, running.bell)
        ended = await settled_as(database, job)
    assert (ended.state, ended.result) == (State.SUCCEEDED, '"done all the same"')
    assert ended.cancellation is not None
    assert ended.cancellation.outcome is CancelOutcome.FINISHED_FIRST


async def test_an_error_raised_after_the_request_is_kept_but_not_retried(database: Database, jobs: JobRegistry) -> None:
    started = asyncio.Event()

    @jobs.handler("breaks")
    async def handle(context: JobContext) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("while cleaning up")

    job = await queued(database, kind="breaks")
    async with working(database, jobs) as running:
        await started.wait()
        await request_cancel(database, job, running.bell)
        ended = await settled_as(database, job)
    assert ended.state is State.CANCELED
    assert ended.last_error is not None
    assert (ended.last_error.kind, ended.last_error.message) == (ErrorKind.UNKNOWN, "while cleaning up")


async def test_job_canceled_without_a_request_is_a_bug_not_a_cancellation(
    database: Database, jobs: JobRegistry
) -> None:
    @jobs.handler("claims")
    async def handle(context: JobContext) -> None:
        context.raise_if_canceled()
        raise JobCanceled("I made this up")

    job = await queued(database, kind="claims", max_attempts=1)
    async with working(database, jobs):
        ended = await settled_as(database, job)
    assert ended.state is State.DEAD
    assert ended.last_error is not None
    assert ended.last_error.kind is ErrorKind.UNKNOWN


async def test_a_thread_is_told_by_the_context_and_reports_when_it_returns(
    database: Database, jobs: JobRegistry
) -> None:
    started = threading.Event()
    go = threading.Event()

    @jobs.handler("thread")
    def handle(context: JobContext) -> None:
        started.set()
        assert go.wait(10)
        while not context.cancel_requested:
            go.wait(0.01)
        context.raise_if_canceled()

    job = await queued(database, kind="thread")
    async with working(database, jobs) as running:
        await until(started.is_set)
        await request_cancel(database, job, running.bell)

        async def delivered() -> bool:
            cancellation = (await read(database, job)).cancellation
            return cancellation is not None and cancellation.delivered_at is not None

        await until(delivered)
        assert (await read(database, job)).state is State.RUNNING
        assert running.worker.running == 1
        go.set()
        ended = await settled_as(database, job)
    assert ended.cancellation is not None
    assert (ended.state, ended.cancellation.outcome) == (State.CANCELED, CancelOutcome.STOPPED)


@pytest.mark.parametrize("by_job", [True, False])
async def test_an_attempt_past_its_timeout_is_stopped_and_retried(
    database: Database, jobs: JobRegistry, by_job: bool
) -> None:
    attempts: list[int] = []

    @jobs.handler("hangs", timeout_seconds=3600 if by_job else 0.05)
    async def handle(context: JobContext) -> str:
        attempts.append(context.job.attempts)
        if context.job.attempts == 1:
            await asyncio.Event().wait()
        return "second time lucky"

    job = await queued(database, kind="hangs", **({"timeout_seconds": 0.05} if by_job else {}))
    async with working(database, jobs):
        ended = await settled_as(database, job)
    assert (ended.state, attempts) == (State.SUCCEEDED, [1, 2])
    assert ended.last_error is not None
    assert (ended.last_error.kind, ended.last_error.type) == (ErrorKind.TIMEOUT, "AttemptTimeout")
    assert ended.last_error.message == "the attempt ran longer than its timeout of 0.05 s"


async def test_a_thread_that_succeeds_after_its_timeout_has_succeeded(database: Database, jobs: JobRegistry) -> None:
    @jobs.handler("late", timeout_seconds=0.02)
    def handle(context: JobContext) -> bool:
        for _ in range(1_000):
            if context.should_stop:
                return context.cancel_requested
            threading.Event().wait(0.01)
        raise AssertionError("was never told")

    job = await queued(database, kind="late")
    async with working(database, jobs):
        ended = await settled_as(database, job)
    assert (ended.state, ended.result) == (State.SUCCEEDED, "false")


async def test_what_a_handler_means_is_believed_after_its_timeout_too(database: Database, jobs: JobRegistry) -> None:
    @jobs.handler("refuses", timeout_seconds=0.02)
    async def handle(context: JobContext) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise PermanentError("and it never will work") from None

    job = await queued(database, kind="refuses")
    async with working(database, jobs):
        ended = await settled_as(database, job)
    assert ended.state is State.FAILED
    assert ended.last_error is not None
    assert ended.last_error.kind is ErrorKind.PERMANENT


async def test_at_the_deadline_the_attempt_is_stopped_and_the_job_fails(database: Database, jobs: JobRegistry) -> None:
    starts: list[int] = []

    @jobs.handler("waits")
    async def handle(context: JobContext) -> None:
        starts.append(context.job.attempts)
        await asyncio.Event().wait()

    job = await queued(database, kind="waits", expires_in_seconds=0.5)
    async with working(database, jobs):
        ended = await settled_as(database, job)
    assert (ended.state, starts) == (State.FAILED, [1])
    assert ended.last_error is not None
    assert ended.last_error.kind is ErrorKind.DEADLINE


async def test_a_success_that_races_the_deadline_is_accepted(database: Database, jobs: JobRegistry) -> None:
    @jobs.handler("races")
    async def handle(context: JobContext) -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "just in time"

    job = await queued(database, kind="races", expires_in_seconds=0.3)
    async with working(database, jobs):
        ended = await settled_as(database, job)
    assert (ended.state, ended.result) == (State.SUCCEEDED, '"just in time"')


async def test_cancel_waits_for_the_end_of_an_uninterruptible_block(database: Database, jobs: JobRegistry) -> None:
    inside, told, go = asyncio.Event(), asyncio.Event(), asyncio.Event()
    steps: list[str] = []

    @jobs.handler("pays")
    async def handle(context: JobContext) -> None:
        async with context.uninterruptible():
            inside.set()
            await until(lambda: context.cancel_requested)
            told.set()
            await go.wait()
            steps.append("paid")
        steps.append("went on")

    job = await queued(database, kind="pays")
    async with working(database, jobs) as running:
        await inside.wait()
        await request_cancel(database, job, running.bell)
        await told.wait()
        pending = await read(database, job)
        assert pending.cancellation is not None
        assert pending.cancellation.outcome is CancelOutcome.REQUESTED
        go.set()
        ended = await settled_as(database, job)
    assert (ended.state, steps) == (State.CANCELED, ["paid"])


async def test_a_timeout_waits_for_the_block_too_and_a_block_without_one_changes_nothing(
    database: Database, jobs: JobRegistry
) -> None:
    @jobs.handler("pays", timeout_seconds=0.02)
    async def handle(context: JobContext, patient: bool) -> str:
        async with context.uninterruptible():
            if not patient:
                await until(lambda: context.should_stop)
        return "paid"

    late = await queued(database, kind="pays", payload="false", max_attempts=1)
    prompt = await queued(database, kind="pays", payload="true", max_attempts=1)
    async with working(database, jobs):
        ended = await settled_as(database, late)
        assert (await settled_as(database, prompt)).state is State.SUCCEEDED
    assert ended.last_error is not None
    assert (ended.state, ended.last_error.kind) == (State.DEAD, ErrorKind.TIMEOUT)


async def _take_over(database: Database, job: Job) -> None:
    """The lease ends by the database's clock, and the reaper takes the job back."""
    await expire_lease(database, job)
    async with database.transaction() as connection:
        assert [applied.id for applied in await reap_expired(connection)] == [job.id]


@pytest.mark.parametrize("held", [False, True])
async def test_a_lost_lease_stops_the_handler_at_once_and_its_result_is_discarded(
    database: Database, jobs: JobRegistry, held: bool
) -> None:
    started = asyncio.Event()
    stopped: list[int] = []

    @jobs.handler("loses")
    async def handle(context: JobContext) -> str:
        if context.job.attempts > 1:
            return "second"
        try:
            async with context.uninterruptible() if held else contextlib.nullcontext():
                started.set()
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append(context.attempt_version)
        return "first"

    job = await queued(database, kind="loses")
    async with working(database, jobs, hints=False):
        await started.wait()
        await _take_over(database, job)
        ended = await settled_as(database, job)
    assert (ended.state, ended.result, ended.attempts) == (State.SUCCEEDED, '"second"', 2)
    assert stopped == [2]
    assert await history(database, job) == ["enqueued", "leased", "lease_expired", "leased", "succeeded"]


async def test_a_thread_that_lost_its_lease_reports_nothing_and_keeps_its_slot_until_it_returns(
    database: Database, jobs: JobRegistry
) -> None:
    started, go = threading.Event(), threading.Event()
    told: list[bool] = []

    @jobs.handler("thread")
    def handle(context: JobContext) -> str:
        if context.job.attempts > 1:
            return "second"
        started.set()
        for _ in range(1_000):
            if context.should_stop:
                break
            threading.Event().wait(0.01)
        told.append(context.cancel_requested)
        assert go.wait(10)
        return "first"

    job = await queued(database, kind="thread")
    async with working(database, jobs, hints=False) as running:
        await until(started.is_set)
        await _take_over(database, job)
        ended = await settled_as(database, job)
        await until(lambda: told)
        assert running.worker.running == 1
        go.set()
        await until(lambda: running.worker.running == 0)
        assert (await read(database, job)).version == ended.version
    assert (ended.result, told) == ('"second"', [False])


async def test_a_handler_that_blocks_the_event_loop_keeps_its_lease(database: Database, jobs: JobRegistry) -> None:
    starts: list[int] = []
    blocked = threading.Event()

    @jobs.handler("blocks", lease_seconds=1)
    async def handle(context: JobContext) -> str:
        starts.append(context.job.attempts)
        blocked.set()
        threading.Event().wait(3)  # three leases long, nothing else on this loop runs
        return "kept"

    def reap_beside(stop: threading.Event) -> None:
        async def reap() -> None:
            async with await Database.open(database.settings) as own:
                while not stop.is_set():
                    async with own.transaction() as connection:
                        await reap_expired(connection)
                    await asyncio.sleep(0.05)

        asyncio.run(reap())

    job = await queued(database, kind="blocks")
    stop = threading.Event()
    reaper = threading.Thread(target=reap_beside, args=(stop,))
    reaper.start()
    try:
        async with working(database, jobs):
            ended = await settled_as(database, job)
    finally:
        stop.set()
        await asyncio.to_thread(reaper.join)
    assert (ended.state, ended.result, starts) == (State.SUCCEEDED, '"kept"', [1])
    assert blocked.is_set()


async def test_an_exhausted_pool_does_not_starve_heartbeats(database: Database, jobs: JobRegistry) -> None:
    go = asyncio.Event()

    @jobs.handler("long", lease_seconds=1)
    async def handle(context: JobContext) -> None:
        await go.wait()

    job = await queued(database, kind="long")
    async with working(database, jobs, slots=1):
        await settled_as(database, job, State.RUNNING)
        async with contextlib.AsyncExitStack() as taken:
            connections = [
                await taken.enter_async_context(database.connection()) for _ in range(database.settings.pool_size)
            ]

            async def beats() -> int:
                row = await connections[0].fetchrow(
                    "SELECT lease_heartbeats AS n FROM tenure.jobs WHERE id = $1", job.id
                )
                assert row is not None
                return int(row["n"]) >= 2

            await until(beats)
        go.set()
        assert (await settled_as(database, job)).state is State.SUCCEEDED


async def test_a_row_that_somebody_locks_does_not_cost_the_other_leases_theirs(
    database: Database, jobs: JobRegistry
) -> None:
    go = asyncio.Event()

    @jobs.handler("long", lease_seconds=1)
    async def handle(context: JobContext) -> None:
        await go.wait()

    locked, free = await queued(database, kind="long"), await queued(database, kind="long")
    async with working(database, jobs, slots=2):
        for job in (locked, free):
            await settled_as(database, job, State.RUNNING)
        async with database.transaction() as connection:
            await connection.execute("SELECT 1 FROM tenure.jobs WHERE id = $1 FOR UPDATE", locked.id)
            before = (await read(database, free)).heartbeats

            async def renewed() -> bool:
                return (await read(database, free)).heartbeats >= before + 3

            await until(renewed)
        go.set()
        for job in (locked, free):
            assert (await settled_as(database, job)).state is State.SUCCEEDED
    assert (await history(database, locked)) == ["enqueued", "leased", "succeeded"]
