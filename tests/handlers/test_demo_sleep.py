"""`demo.sleep` does as it is told."""

import json

import pytest

from tenure.errors import InvalidInput
from tenure.handlers.demo_sleep import SleepRequest, register_demo_sleep
from tenure.jobs.model import ErrorKind, Job, State
from tenure.store.cancel import cancel
from tenure.store.database import Database
from tenure.store.retry import retry
from tenure.worker.registry import JobRegistry
from tests.factories import history, read
from tests.handlers.workers import at_work, ended, enqueued
from tests.waiting import until


@pytest.fixture
def registry() -> JobRegistry:
    registry = JobRegistry()
    register_demo_sleep(registry)
    return registry


async def run(database: Database, registry: JobRegistry, **payload: object) -> Job:
    job = await enqueued(database, registry, "demo.sleep", **payload)
    async with at_work(database, registry):
        return await ended(database, job)


async def test_it_sleeps_then_says_what_it_did(database: Database, registry: JobRegistry) -> None:
    job = await run(database, registry, duration_ms=10)
    assert job.state is State.SUCCEEDED
    assert json.loads(job.result or "") == {"slept_ms": 10, "attempt": 1}


@pytest.mark.parametrize(
    ("error", "state", "attempts"),
    [
        ("transient", State.DEAD, 3),
        ("unknown", State.DEAD, 3),
        ("permanent", State.FAILED, 1),
        ("poison", State.DEAD, 1),
    ],
)
async def test_it_fails_as_the_kind_of_error_it_is_told(
    database: Database, registry: JobRegistry, error: str, state: State, attempts: int
) -> None:
    job = await run(database, registry, duration_ms=0, fail=True, error=error)
    assert (job.state, job.attempts) == (state, attempts)
    assert job.last_error is not None
    assert job.last_error.kind is ErrorKind(error)
    assert job.last_error.message == f"attempt {attempts} failed, as told"


@pytest.mark.parametrize("fail", [False, True])
async def test_it_fails_so_many_times_then_succeeds(database: Database, registry: JobRegistry, fail: bool) -> None:
    job = await run(database, registry, duration_ms=0, fail=fail, fail_times=2)
    assert (job.state, job.attempts) == (State.SUCCEEDED, 3)
    assert (await history(database, job)).count("retry_scheduled") == 2


async def test_an_operators_retry_does_not_make_it_fail_all_over_again(
    database: Database, registry: JobRegistry
) -> None:
    job = await run(database, registry, duration_ms=0, fail_times=1, error="permanent")
    assert job.state is State.FAILED
    async with database.transaction() as connection:
        await retry(connection, job.id)
    async with at_work(database, registry):
        again = await ended(database, job)
    assert (again.state, again.attempts) == (State.SUCCEEDED, 1)


async def test_a_cancel_ends_the_sleep(database: Database, registry: JobRegistry) -> None:
    job = await enqueued(database, registry, "demo.sleep", duration_ms=86_400_000)

    async def runs() -> bool:
        return (await read(database, job)).state is State.RUNNING

    async with at_work(database, registry):
        await until(runs)
        async with database.transaction() as connection:
            await cancel(connection, job.id)
        assert (await ended(database, job)).state is State.CANCELED


@pytest.mark.parametrize(
    ("payload", "pointer"),
    [
        ('{"duration_ms": -1}', "/payload/duration_ms"),
        ('{"duration_ms": 86400001}', "/payload/duration_ms"),
        ('{"error": "weird"}', "/payload/error"),
        ('{"fail_times": -1}', "/payload/fail_times"),
        ('{"seconds": 1}', "/payload/seconds"),
        ("[]", "/payload"),
    ],
)
def test_a_payload_that_does_not_fit_is_refused_by_field(registry: JobRegistry, payload: str, pointer: str) -> None:
    spec = registry.get("demo.sleep")
    assert spec is not None
    with pytest.raises(InvalidInput) as caught:
        spec.validate(payload)
    assert [error.pointer for error in caught.value.errors] == [pointer]


def test_without_a_payload_of_its_own_it_sleeps_two_seconds() -> None:
    request = SleepRequest.model_validate({})
    assert (request.duration_ms, request.fails(1)) == (2_000, False)
