"""Every state × every event: the target that the table names, or a refusal and nothing changed at all."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tenure.errors import LeaseLost, NotCancelable, NotRetryable
from tenure.jobs.decisions import ReportedError
from tenure.jobs.lifecycle import TRANSITIONS, EventType, State
from tenure.jobs.model import ErrorKind, Job
from tenure.store.cancel import cancel
from tenure.store.claim import claim
from tenure.store.database import Database
from tenure.store.reap import expire_deadlines, reap_expired
from tenure.store.retry import retry
from tenure.store.settle import Outcome, OutcomeKind, settle
from tests.factories import expire_lease, half, history, policy_of, queued, read, running, settled
from tests.factories import failure as failure_of
from tests.factories import outcome as outcome_of

Attempt = Callable[[Database, Job, str], Awaitable[Any]]


async def _prepared(database: Database, state: State) -> tuple[Job, str]:
    """A job in that state, and the token that its last holder has (or had)."""
    if state in {State.QUEUED, State.CANCELED}:
        job = await queued(database)
        if state is State.CANCELED:
            async with database.transaction() as connection:
                await cancel(connection, job.id)
        return await read(database, job), "0" * 32
    held = await running(database, max_attempts=5)
    if state is State.SUCCEEDED:
        await settled(database, outcome_of(held))
    elif state is State.FAILED:
        await settled(database, failure_of(held, ErrorKind.PERMANENT))
    elif state is State.DEAD:
        await settled(database, failure_of(held, ErrorKind.POISON))
    return await read(database, held.job), held.token


async def _settle(database: Database, report: Outcome) -> Any:
    async with database.transaction() as connection:
        (answer,) = await settle(connection, [report], policy_of=policy_of, random=half)
    if isinstance(answer, LeaseLost):
        raise answer
    return answer


def _reporting(kind: OutcomeKind, error: ErrorKind | None = None, **fields: Any) -> Attempt:
    async def attempt(database: Database, job: Job, token: str) -> Any:
        reported = ReportedError(kind=error, message="other words than before") if error else None
        result = '"another result"' if kind is OutcomeKind.COMPLETE else None
        return await _settle(
            database, Outcome(job_id=job.id, token=token, kind=kind, error=reported, result=result, **fields)
        )

    return attempt


async def _lease(database: Database, job: Job, _: str) -> Any:
    async with database.connection() as connection:
        return await claim(connection, worker_id="w2", queues=[job.queue], limit=5, default_lease_seconds=30)


async def _cancel(database: Database, job: Job, _: str) -> Any:
    async with database.transaction() as connection:
        return await cancel(connection, job.id)


async def _retry(database: Database, job: Job, _: str) -> Any:
    async with database.transaction() as connection:
        return await retry(connection, job.id)


async def _reap(database: Database, job: Job, _: str) -> Any:
    if job.state is State.RUNNING:
        await expire_lease(database, job)
    async with database.transaction() as connection:
        return await reap_expired(connection)


async def _deadline(database: Database, job: Job, _: str) -> Any:
    async with database.connection() as connection:
        await connection.execute("UPDATE tenure.jobs SET deadline_at = now() - interval '1 s' WHERE id = $1", job.id)
    async with database.transaction() as connection:
        return await expire_deadlines(connection)


# Each event as its actor causes it. `canceled` of a running job needs a request before, and is tried apart.
ATTEMPTS: dict[EventType, dict[State, Attempt]] = {
    EventType.LEASED: dict.fromkeys(State, _lease),
    EventType.SUCCEEDED: dict.fromkeys(State, _reporting(OutcomeKind.COMPLETE)),
    EventType.RETRY_SCHEDULED: dict.fromkeys(State, _reporting(OutcomeKind.FAIL, ErrorKind.TRANSIENT)),
    EventType.FAILED: dict.fromkeys(State, _reporting(OutcomeKind.FAIL, ErrorKind.PERMANENT))
    | {State.QUEUED: _deadline},
    EventType.DEAD: dict.fromkeys(State, _reporting(OutcomeKind.FAIL, ErrorKind.POISON)),
    EventType.CANCELED: dict.fromkeys(set(State) - {State.RUNNING, State.CANCELED}, _cancel),
    EventType.CANCEL_REQUESTED: dict.fromkeys(set(State) - {State.QUEUED, State.CANCELED}, _cancel),
    EventType.LEASE_EXPIRED: dict.fromkeys(State, _reap),
    EventType.RELEASED: dict.fromkeys(State, _reporting(OutcomeKind.RELEASE)),
    EventType.SNOOZED: dict.fromkeys(State, _reporting(OutcomeKind.SNOOZE, delay_seconds=5.0)),
    EventType.MANUAL_RETRY: dict.fromkeys(State, _retry),
}

CASES = [(event, state) for event, by_state in ATTEMPTS.items() for state in State if state in by_state]


@pytest.mark.parametrize(("event", "state"), CASES, ids=[f"{event}-on-{state}" for event, state in CASES])
async def test_an_event_happens_where_the_table_says_and_nowhere_else(
    database: Database, event: EventType, state: State
) -> None:
    transition = next(transition for transition in TRANSITIONS if transition.event == event)
    job, token = await _prepared(database, state)
    before = await history(database, job)
    refused = None
    try:
        await ATTEMPTS[event][state](database, job, token)
    except (LeaseLost, NotCancelable, NotRetryable) as error:
        refused = error
    after = await read(database, job)
    if state in transition.sources:
        assert refused is None
        assert after.state in transition.targets
        assert after.version == job.version + 1
        assert await history(database, job) == [*before, str(event)]
    else:
        assert (after.state, after.version) == (job.state, job.version)
        assert await history(database, job) == before
        assert after.result == job.result
        if event not in {EventType.LEASED, EventType.LEASE_EXPIRED}:
            assert refused is not None


async def test_a_running_job_is_canceled_by_its_holder_after_a_request(database: Database) -> None:
    held = await running(database)
    async with database.transaction() as connection:
        await cancel(connection, held.job.id)
    await settled(database, failure_of(held, ErrorKind.TRANSIENT))
    assert (await read(database, held.job)).state is State.CANCELED
    assert await history(database, held.job) == ["enqueued", "leased", "cancel_requested", "canceled"]


async def test_a_canceled_job_stays_as_it_is_when_canceled_again(database: Database) -> None:
    job, _ = await _prepared(database, State.CANCELED)
    await _cancel(database, job, "")
    assert await read(database, job) == job
