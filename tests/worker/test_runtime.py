"""Slots, retries, loops that never end, and every job once."""

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest
from pydantic import BaseModel

from tenure.errors import PermanentError, PoisonError, RetryLater
from tenure.jobs.model import ErrorKind, Job, State
from tenure.jobs.retry import RetryPolicy
from tenure.store.database import Database
from tenure.store.notify import WORK
from tenure.worker.context import JobContext
from tenure.worker.registry import JobRegistry
from tests.factories import history, many_queued, queued, read
from tests.waiting import until
from tests.worker.running import settled_as, working

AT_ONCE = RetryPolicy(base_seconds=0.01, cap_seconds=0.01, jitter="none")


class Order(BaseModel):
    n: int


@pytest.fixture
def jobs() -> JobRegistry:
    return JobRegistry(default_policy=AT_ONCE)


async def test_an_async_handler_gets_its_model_and_its_result_is_stored(database: Database, jobs: JobRegistry) -> None:
    seen: list[Any] = []

    @jobs.handler("order")
    async def handle(context: JobContext, order: Order) -> dict[str, int]:
        seen.append((context.job.id, context.attempt_version, context.idempotency_key, order))
        return {"n": order.n + 1}

    job = await queued(database, kind="order", payload='{"n": 41}')
    async with working(database, jobs):
        ended = await settled_as(database, job)
    assert (ended.state, ended.result) == (State.SUCCEEDED, '{"n":42}')
    assert seen == [(job.id, 2, str(job.id), Order(n=41))]
    assert await history(database, job) == ["enqueued", "leased", "succeeded"]


async def test_a_plain_function_runs_in_a_thread_of_its_own(database: Database, jobs: JobRegistry) -> None:
    names: list[str] = []

    @jobs.handler("plain")
    def handle(context: JobContext) -> str:
        context.progress(0.5, "half")
        names.append(threading.current_thread().name)
        return "from a thread"

    job = await queued(database, kind="plain")
    async with working(database, jobs):
        ended = await settled_as(database, job)
    assert ended.result == '"from a thread"'
    assert names == [f"tenure-plain-{job.id}"]


async def test_a_hundred_jobs_over_few_slots_run_once_each_and_never_more_at_once(
    database: Database, jobs: JobRegistry
) -> None:
    starts: Counter[int] = Counter()
    at_once = 0
    most = 0

    @jobs.handler("many")
    async def handle(context: JobContext, n: int) -> int:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        starts[n] += 1
        await asyncio.sleep(0)
        at_once -= 1
        return n

    accepted = [await queued(database, kind="many", payload=str(n)) for n in range(100)]
    async with working(database, jobs, slots=7) as one, working(database, jobs, slots=7) as two:
        for job in accepted:
            assert (await settled_as(database, job)).state is State.SUCCEEDED
        assert (one.worker.running, two.worker.running) == (0, 0)
    assert starts == Counter(range(100))
    assert most <= 14


@pytest.mark.parametrize("most", [1, 2, 3])
async def test_a_job_that_always_fails_starts_exactly_max_attempts_times(
    database: Database, jobs: JobRegistry, most: int
) -> None:
    starts: list[int] = []

    @jobs.handler("fails")
    async def handle(context: JobContext) -> None:
        starts.append(context.job.attempts)
        raise RuntimeError("always")

    job = await queued(database, kind="fails", max_attempts=most)
    async with working(database, jobs):
        ended = await settled_as(database, job)
    assert ended.state is State.DEAD
    assert starts == list(range(1, most + 1))
    assert ended.last_error is not None
    assert (ended.last_error.kind, ended.last_error.type, ended.last_error.attempt) == (
        ErrorKind.UNKNOWN,
        "RuntimeError",
        most,
    )


@pytest.mark.parametrize(
    ("error", "state", "kind"),
    [
        (PermanentError("no such customer"), State.FAILED, ErrorKind.PERMANENT),
        (PoisonError("kills the printer"), State.DEAD, ErrorKind.POISON),
        (RetryLater("busy", after_seconds=3600), State.QUEUED, ErrorKind.TRANSIENT),
    ],
)
async def test_what_a_handler_raises_decides(
    database: Database, jobs: JobRegistry, error: Exception, state: State, kind: ErrorKind
) -> None:
    @jobs.handler("raises")
    async def handle(context: JobContext) -> None:
        raise error

    job = await queued(database, kind="raises")
    async with working(database, jobs):

        async def failed() -> Job | None:
            found = await read(database, job)
            return found if found.last_error else None

        found: Job = await until(failed)
    assert found.last_error is not None
    assert (found.state, found.last_error.kind, found.last_error.message) == (state, kind, str(error))
    if isinstance(error, RetryLater):
        assert (found.available_at - found.updated_at).total_seconds() >= 3600


async def test_a_payload_that_does_not_fit_fails_for_good_without_a_start_and_without_its_values(
    database: Database, jobs: JobRegistry
) -> None:
    starts: list[Order] = []

    @jobs.handler("order")
    async def handle(context: JobContext, order: Order) -> None:
        starts.append(order)

    job = await queued(database, kind="order", payload='{"n": "sesame-open"}')
    async with working(database, jobs):
        ended = await settled_as(database, job)
    assert ended.state is State.FAILED
    assert ended.last_error is not None
    assert ended.last_error.message.startswith("/payload/n: ")
    assert "sesame" not in ended.last_error.message
    assert starts == []


@pytest.mark.parametrize("value", [float("nan"), "\ud800", "a\x00b", object(), "x" * 2_000_000])
async def test_a_result_that_cannot_be_stored_is_a_permanent_failure_that_says_so(
    database: Database, jobs: JobRegistry, value: object
) -> None:
    @jobs.handler("odd")
    async def handle(context: JobContext) -> object:
        return value

    odd = await queued(database, kind="odd")
    async with working(database, jobs):
        ended = await settled_as(database, odd)
    assert ended.state is State.FAILED
    assert ended.last_error is not None
    assert ended.last_error.kind is ErrorKind.PERMANENT
    assert "the result" in ended.last_error.message


class Odd(BaseException):
    """Not even an Exception."""


def recurse(n: int) -> int:
    return recurse(n + 1) + 1


RAISES: dict[str, Any] = {
    "SystemExit": lambda: (_ for _ in ()).throw(SystemExit(3)),
    "KeyboardInterrupt": lambda: (_ for _ in ()).throw(KeyboardInterrupt()),
    "CancelledError": lambda: (_ for _ in ()).throw(asyncio.CancelledError()),
    "GeneratorExit": lambda: (_ for _ in ()).throw(GeneratorExit()),
    "MemoryError": lambda: (_ for _ in ()).throw(MemoryError()),
    "Odd": lambda: (_ for _ in ()).throw(Odd()),
    "RecursionError": lambda: recurse(0),
}


@pytest.mark.parametrize("threaded", [False, True])
async def test_whatever_a_handler_raises_fails_that_job_only(
    database: Database, jobs: JobRegistry, threaded: bool
) -> None:
    if threaded:

        @jobs.handler("wild")
        def handle(context: JobContext, name: str) -> None:
            RAISES[name]()
    else:

        @jobs.handler("wild")
        async def handle_async(context: JobContext, name: str) -> None:
            RAISES[name]()

    @jobs.handler("calm")
    async def calm(context: JobContext) -> str:
        return "well"

    wild = {name: await queued(database, kind="wild", payload=f'"{name}"', max_attempts=1) for name in RAISES}
    async with working(database, jobs, slots=2) as running:
        for name, job in wild.items():
            ended = await settled_as(database, job)
            assert ended.state is State.DEAD
            assert ended.last_error is not None
            assert ended.last_error.kind is ErrorKind.UNKNOWN
            assert name in (ended.last_error.type or "")
        after = await queued(database, kind="calm")
        assert (await settled_as(database, after)).state is State.SUCCEEDED
        assert not running.finished.done()
        await until(lambda: running.worker.running == 0)


async def test_without_kinds_nothing_is_claimed(database: Database, jobs: JobRegistry) -> None:
    job = await queued(database, kind="unknown.here")
    async with working(database, jobs, queues=["default"]) as running:
        running.worker.wake()
        running.bell.ring(WORK, "default")
        await asyncio.sleep(0)
        running.worker.drain()
        await running.finished
    assert (await read(database, job)).state is State.QUEUED
    assert await history(database, job) == ["enqueued"]


async def test_only_known_kinds_and_schema_versions_are_taken(database: Database, jobs: JobRegistry) -> None:
    @jobs.handler("shape", schema_versions=[2, 3])
    async def handle(context: JobContext) -> int:
        return context.job.schema_version

    old = await queued(database, kind="shape", schema_version=1)
    other = await queued(database, kind="other")
    new = await queued(database, kind="shape", schema_version=3)
    async with working(database, jobs):
        assert (await settled_as(database, new)).result == "3"
    for left in (old, other):
        assert await history(database, left) == ["enqueued"]


async def test_a_kind_s_lease_holds_where_the_job_names_none(database: Database, jobs: JobRegistry) -> None:
    lengths: list[float] = []

    @jobs.handler("leased", lease_seconds=7)
    async def handle(context: JobContext) -> None:
        lease = context.job.lease
        assert lease is not None
        lengths.append((lease.expires_at - lease.acquired_at).total_seconds())

    for fields in ({}, {"lease_seconds": 11.0}):
        job = await queued(database, kind="leased", **fields)
        async with working(database, jobs):
            await settled_as(database, job)
    assert lengths == [7.0, 11.0]


async def test_a_hint_wakes_a_worker_that_polls_rarely_and_polling_suffices_without_one(
    database: Database, jobs: JobRegistry
) -> None:
    @jobs.handler("quick")
    async def handle(context: JobContext) -> None:
        return None

    async with working(database, jobs, poll_seconds=3600) as running:
        job = await queued(database, kind="quick")
        running.bell.ring(WORK, "default")
        assert (await settled_as(database, job)).state is State.SUCCEEDED
    async with working(database, jobs, hints=False):
        for job in await many_queued(database, 3, kind="quick"):
            assert (await settled_as(database, job)).state is State.SUCCEEDED


async def test_progress_is_seen_while_the_job_runs_and_odd_progress_does_no_harm(
    database: Database, jobs: JobRegistry
) -> None:
    go = asyncio.Event()

    @jobs.handler("slow")
    async def handle(context: JobContext) -> None:
        await context.progress(float("nan"), "a\x00b\ud800")
        await context.progress(7, "rows 1 … 100")
        await go.wait()

    job = await queued(database, kind="slow")
    async with working(database, jobs):

        async def told() -> Job | None:
            found = await read(database, job)
            return found if found.progress else None

        found: Job = await until(told)
        assert found.progress is not None
        assert (found.progress.fraction, found.progress.message) == (1.0, "rows 1 … 100")
        assert found.version == 2
        go.set()
        assert (await settled_as(database, job)).state is State.SUCCEEDED


async def test_no_transaction_and_no_pooled_connection_is_held_while_handlers_run(
    database: Database, jobs: JobRegistry
) -> None:
    go = asyncio.Event()
    started = 0

    @jobs.handler("long")
    async def handle(context: JobContext) -> None:
        nonlocal started
        started += 1
        await go.wait()

    accepted = await many_queued(database, 30, kind="long")
    async with working(database, jobs, slots=30, poll_seconds=60):
        await until(lambda: started == 30)

        async def busy() -> int:
            async with database.connection() as connection:
                row = await connection.fetchrow(
                    "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database()"
                    " AND pid <> pg_backend_pid() AND state <> 'idle'"
                )
            assert row is not None
            return int(row["n"])

        await until(lambda: _is_zero(busy))
        go.set()
        for job in accepted:
            await settled_as(database, job)


async def _is_zero(count: Any) -> bool:
    return bool(await count() == 0)
