"""The runtime over HTTP, against a real service: everything that holds over a database, and what may break on the way."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from uuid import UUID, uuid4

import httpx
import pytest

from tenure.client import AsyncClient
from tenure.errors import PermanentError, PoisonError
from tenure.jobs.model import State
from tenure.store.claim import KindSelector
from tenure.worker.context import JobContext
from tenure.worker.http_broker import HttpBroker
from tenure.worker.registry import JobRegistry
from tests.client.cutting import line_to
from tests.client.telling import telling
from tests.running import Running, running
from tests.waiting import until
from tests.worker.over_http import Freezer, ended, types, working


@pytest.fixture(scope="module")
def service(migrated_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("data")
    with running(migrated_url, folder, workers=False, MAX_RESULT_BYTES="1000") as started:
        yield started


@pytest.fixture
async def client(service: Running) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(service.url) as made:
        yield made


@pytest.fixture
def queue() -> str:
    return f"q-{uuid4().hex}"


class Held:
    """A kind whose handler says when it starts, and holds until it may go on."""

    def __init__(self, queue: str) -> None:
        self.registry = JobRegistry()
        self.started: list[JobContext] = []
        self.stopped: list[UUID] = []
        self.go = asyncio.Event()

        @self.registry.handler("held", queue=queue)
        async def held(context: JobContext) -> str:
            self.started.append(context)
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.stopped.append(context.job.id)
                raise
            return "done"


async def test_a_job_comes_as_it_was_sent_and_its_result_is_kept(
    service: Running, client: AsyncClient, queue: str
) -> None:
    registry = JobRegistry()
    seen: list[JobContext] = []

    @registry.handler("echo", queue=queue)
    async def echo(context: JobContext, payload: object) -> object:
        seen.append(context)
        return payload

    payload = {"big": 2**80, "text": "ä\u2028\x85", "nested": [[None, True, 0.1]]}
    async with working(service.url, registry):
        job = await client.enqueue("echo", payload, queue=queue, tags=["a"], metadata={"m": 1}, priority=3)
        done = await ended(client, job)
    assert (done.state, done.result, done.attempts) == ("succeeded", payload, 1)
    assert await types(client, job) == ["enqueued", "leased", "succeeded"]
    (context,) = seen
    assert (context.job.id, context.job.tags, context.job.metadata) == (job.id, ("a",), '{"m":1}')
    assert (context.job.state, context.attempt_version, context.job.priority) == (State.RUNNING, 2, 3)
    assert context.job.lease is not None
    assert context.job.lease.worker_id == "remote"


async def test_many_jobs_keep_all_slots_busy_and_none_runs_twice(
    service: Running, client: AsyncClient, queue: str
) -> None:
    registry = JobRegistry()
    starts: list[UUID] = []

    @registry.handler("count", queue=queue)
    async def count(context: JobContext) -> None:
        starts.append(context.job.id)
        await asyncio.sleep(0)

    made = await client.enqueue_many([{"kind": "count", "queue": queue} for _ in range(60)])
    async with working(service.url, registry, slots=7):
        for item in made:
            assert (await ended(client, item.job)).state == "succeeded"
    assert sorted(starts) == sorted(item.job.id for item in made)


async def test_heartbeats_keep_the_lease_and_carry_progress(service: Running, client: AsyncClient, queue: str) -> None:
    held = Held(queue)
    async with working(service.url, held.registry):
        job = await client.enqueue("held", queue=queue, lease_seconds=1)
        await until(lambda: held.started)
        held.started[0].progress(0.5, "half")

        async def kept() -> bool:
            found = await client.get(job.id)
            return bool(
                found.lease and found.lease.heartbeats >= 6 and found.progress and found.progress.fraction == 0.5
            )

        await until(kept, timeout_seconds=20)
        held.go.set()
        assert (await ended(client, job)).attempts == 1


@pytest.mark.parametrize(
    ("kind", "state"), [("transient", "dead"), ("permanent", "failed"), ("unknown", "dead"), ("poison", "dead")]
)
async def test_failures_are_reported_as_what_they_are(
    service: Running, client: AsyncClient, queue: str, kind: str, state: str
) -> None:
    registry = JobRegistry()
    from_kind = {
        "transient": ConnectionError("no line"),
        "permanent": PermanentError("no such customer"),
        "unknown": RuntimeError("a bug"),
        "poison": PoisonError("stay away"),
    }

    @registry.handler("fails", queue=queue)
    async def fails(context: JobContext) -> None:
        raise from_kind[kind]

    async with working(service.url, registry):
        job = await ended(client, await client.enqueue("fails", queue=queue, max_attempts=1))
    assert job.last_error is not None
    assert (job.state, job.last_error.kind, job.last_error.message) == (state, kind, str(from_kind[kind]))


async def test_a_cancel_request_stops_the_handler_and_is_confirmed(
    service: Running, client: AsyncClient, queue: str
) -> None:
    held = Held(queue)
    async with working(service.url, held.registry):
        job = await client.enqueue("held", queue=queue)  # a lease of 30 s: its third would be ten
        await until(lambda: held.started)
        receipt = await client.cancel(job.id, wait_seconds=8)
        assert receipt.outcome == "stopped"
        assert held.stopped == [job.id]


async def test_a_lost_lease_stops_its_handler_and_nothing_else(
    service: Running, client: AsyncClient, queue: str
) -> None:
    held = Held(queue)

    async def take_away(job_id: UUID) -> None:
        async with service.service.database.transaction() as connection:
            await connection.execute(
                "UPDATE tenure.jobs SET lease_expires_at = now() - interval '1 second' WHERE id = $1", job_id
            )

    async with working(service.url, held.registry, slots=2):
        lost = await client.enqueue("held", queue=queue, lease_seconds=2)
        other = await client.enqueue("held", queue=queue, lease_seconds=2)
        await until(lambda: len(held.started) == 2)
        service.call(take_away(lost.id))
        await until(lambda: held.stopped == [lost.id])
        await until(lambda: len(held.started) == 3)  # it is claimed again, by the same worker
        held.go.set()
        assert (await ended(client, lost)).attempts == 2
        assert (await ended(client, other)).attempts == 1
    assert await types(client, lost) == ["enqueued", "leased", "lease_expired", "leased", "succeeded"]


async def test_a_result_over_the_services_limit_becomes_a_failure_that_says_so(
    service: Running, client: AsyncClient, queue: str
) -> None:
    registry = JobRegistry()

    @registry.handler("large", queue=queue)
    async def large(context: JobContext) -> str:
        return "x" * 2_000

    @registry.handler("small", queue=queue)
    async def small(context: JobContext) -> str:
        return "x"

    made = await client.enqueue_many([{"kind": kind, "queue": queue} for kind in ("large", "small")])
    async with working(service.url, registry):
        refused, fine = [await ended(client, item.job) for item in made]
    assert (refused.state, refused.attempts, fine.state) == ("failed", 1, "succeeded")
    assert refused.last_error is not None
    assert "at most 1,000" in refused.last_error.message


async def test_completion_needs_a_database_and_says_so(service: Running, client: AsyncClient, queue: str) -> None:
    registry = JobRegistry()

    @registry.handler("commits", queue=queue)
    async def commits(context: JobContext) -> None:
        async with context.completion("x"):
            pass

    async with working(service.url, registry):
        job = await ended(client, await client.enqueue("commits", queue=queue, max_attempts=1))
    assert job.last_error is not None
    assert job.last_error.type == "tenure.errors.CompletionUnavailable"
    assert "TENURE_DATABASE_URL" in job.last_error.message


async def test_an_operator_ends_a_worker_that_is_idle(service: Running, client: AsyncClient, queue: str) -> None:
    held = Held(queue)
    held.go.set()
    name = f"told-{uuid4().hex}"
    async with working(service.url, held.registry, worker_id=name) as (_, finished):
        await ended(client, await client.enqueue("held", queue=queue))
        async with httpx.AsyncClient() as operator:
            assert (await operator.post(f"{service.url}/workers/{name}/terminate")).status_code == 200
        await until(finished.done, timeout_seconds=15)


async def test_a_drain_ends_the_wait_for_work_at_once(service: Running, queue: str) -> None:
    held = Held(queue)
    with line_to(service.url) as line:
        async with working(line.url, held.registry, wait_seconds=20) as (worker, finished):
            await until(lambda: line.connections)
            worker.drain()
            await until(finished.done, timeout_seconds=4)


async def test_what_is_leased_for_a_caller_who_left_is_given_back(
    service: Running, client: AsyncClient, queue: str
) -> None:
    job = await client.enqueue("held", queue=queue)
    locked, released = asyncio.Event(), asyncio.Event()
    here = asyncio.get_running_loop()

    async def hold_claims() -> None:
        # Claims wait for this lock; meanwhile the caller leaves.
        async with service.service.database.transaction() as connection:
            await connection.execute("LOCK TABLE tenure.jobs IN SHARE MODE")
            here.call_soon_threadsafe(locked.set)
            await released.wait()

    holding = here.run_in_executor(None, lambda: service.call(hold_claims()))
    try:
        await locked.wait()
        async with HttpBroker(service.url, worker_id="leaver") as broker:
            claiming = asyncio.create_task(broker.claim(limit=1, queues=[queue], kinds=[KindSelector(kind="held")]))
            await until(lambda: asyncio.to_thread(lambda: service.call(_claims_waiting(service))))
            broker.stop_waiting()
            assert await claiming == []
    finally:
        service.loop.call_soon_threadsafe(released.set)
        await holding
    await until(lambda: _has_types(client, job.id, ["enqueued", "leased", "released"]))
    back = await client.get(job.id)
    assert (back.state, back.attempts) == ("queued", 0)


async def _claims_waiting(service: Running) -> int:
    async with service.service.database.connection() as connection:
        row = await connection.fetchrow(
            "SELECT count(*) AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%WITH RECURSIVE kinds%'"
            " AND pid <> pg_backend_pid() AND datname = current_database()"
        )
        return int(row["n"]) if row is not None else 0


async def _has_types(client: AsyncClient, job_id: UUID, wanted: list[str]) -> bool:
    return [event.type for event in await client.events(job_id)] == wanted


async def test_outcomes_whose_answers_are_lost_are_accepted_once(
    service: Running, client: AsyncClient, queue: str
) -> None:
    held = Held(queue)
    with line_to(service.url) as line:
        async with working(line.url, held.registry, slots=1):
            job = await client.enqueue("held", queue=queue)
            await until(lambda: held.started)
            line.lose_answers = 3
            held.go.set()
            assert (await ended(client, job)).attempts == 1
            await until(lambda: len(line.lost) == 3)
            after = await ended(client, await client.enqueue("held", queue=queue))
            assert after.attempts == 1
    assert await types(client, job) == ["enqueued", "leased", "succeeded"]


async def test_a_connection_whose_other_end_is_gone_is_given_up(
    service: Running, client: AsyncClient, queue: str
) -> None:
    held = Held(queue)
    held.go.set()
    freezer = Freezer(service.url)
    await freezer.start()
    try:
        async with working(freezer.url, held.registry):
            await ended(client, await client.enqueue("held", queue=queue))
            assert await until(freezer.freeze)
            job = await client.enqueue("held", queue=queue, lease_seconds=2)
            assert (await ended(client, job, timeout_seconds=15)).state == "succeeded"
    finally:
        await freezer.stop()


async def test_a_service_that_does_not_answer_is_asked_about_once_a_second(queue: str) -> None:
    held = Held(queue)
    with telling(b"") as told:
        async with working(told.url, held.registry):
            began = time.monotonic()
            await until(lambda: len(told.asked) >= 7, timeout_seconds=30)
            # At least: 0.1, 0.2, 0.4, 0.8, 1 and 1 second lie between them, less a quarter.
            assert time.monotonic() - began >= 2.6


async def test_a_service_that_answers_without_work_at_once_is_not_flooded(queue: str) -> None:
    held = Held(queue)
    body = b'{"leases": [], "directive": null}'
    empty = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
    with telling(empty % (len(body), body)) as told:
        async with working(told.url, held.registry, poll_seconds=0.4):
            began = time.monotonic()
            await until(lambda: len(told.asked) >= 4, timeout_seconds=30)
            assert time.monotonic() - began >= 3 * 0.3
