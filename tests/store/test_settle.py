"""What became of an attempt."""

from datetime import timedelta

import pytest

from tenure.errors import InvalidInput, LeaseLost, NotFound
from tenure.jobs.ids import new_job_id
from tenure.jobs.model import CancelOutcome, ErrorKind, State
from tenure.store.cancel import cancel
from tenure.store.database import Database
from tenure.store.inspect import events
from tenure.store.reap import reap_expired
from tenure.store.retry import retry
from tenure.store.settle import Outcome, OutcomeKind, Settled, settle
from tests.factories import (
    Held,
    claimed,
    expire_lease,
    failure,
    half,
    history,
    many_queued,
    outcome,
    policy_of,
    read,
    running,
    settled,
)


async def reap(database: Database) -> None:
    async with database.transaction() as connection:
        await reap_expired(connection)


async def refused(database: Database, report: Outcome) -> LeaseLost:
    with pytest.raises(LeaseLost) as caught:
        await settled(database, report)
    return caught.value


async def test_success_stores_the_result_and_ends_the_lease(database: Database) -> None:
    held = await running(database)
    answer = await settled(database, outcome(held, result='{"rows": 3}'))
    job = await read(database, held.job)
    assert (answer.state, answer.version, answer.replayed) == (State.SUCCEEDED, 3, False)
    assert (job.state, job.result, job.lease) == (State.SUCCEEDED, '{"rows": 3}', None)
    assert job.finished_at is not None


async def test_the_same_outcome_again_is_answered_and_changes_nothing(database: Database) -> None:
    held = await running(database)
    first = await settled(database, outcome(held))
    before = await read(database, held.job)
    again = await settled(database, outcome(held))
    assert again.replayed
    assert (again.state, again.version) == (first.state, first.version)
    assert await read(database, held.job) == before
    assert await history(database, held.job) == ["enqueued", "leased", "succeeded"]


@pytest.mark.parametrize("kind", [OutcomeKind.FAIL, OutcomeKind.RELEASE, OutcomeKind.SNOOZE])
async def test_every_kind_of_outcome_can_be_repeated(database: Database, kind: OutcomeKind) -> None:
    held = await running(database)
    report = failure(held) if kind is OutcomeKind.FAIL else outcome(held, kind, delay_seconds=5.0)
    first = await settled(database, report)
    again = await settled(database, report)
    assert (again.replayed, again.version, again.state) == (True, first.version, first.state)


async def test_a_repeat_is_answered_even_while_a_later_attempt_runs(database: Database) -> None:
    first = await running(database)
    report = outcome(first, OutcomeKind.RELEASE)
    await settled(database, report)
    (second,) = await claimed(database, worker_id="w2")
    assert (await settled(database, report)).replayed
    assert (await read(database, first.job)).lease is not None
    assert (await settled(database, outcome(second))).state is State.SUCCEEDED


async def test_another_outcome_after_the_first_is_refused_as_settled(database: Database) -> None:
    held = await running(database)
    await settled(database, outcome(held))
    assert (await refused(database, outcome(held, result='"other"'))).reason == "settled"
    assert (await refused(database, failure(held))).reason == "settled"
    assert (await read(database, held.job)).result == '{"ok": true}'


async def test_an_expired_holder_cannot_complete_once_the_lease_was_taken_back(database: Database) -> None:
    held = await running(database)
    await expire_lease(database, held.job)
    await reap(database)
    assert (await refused(database, outcome(held))).reason == "expired"
    assert (await read(database, held.job)).state is State.QUEUED


async def test_a_holder_whose_lease_ran_out_but_was_not_taken_back_is_still_the_holder(database: Database) -> None:
    held = await running(database)
    await expire_lease(database, held.job)
    assert (await settled(database, outcome(held))).state is State.SUCCEEDED


async def test_a_zombie_is_refused_and_the_later_result_stands(database: Database) -> None:
    zombie = await running(database, worker_id="w1")
    await expire_lease(database, zombie.job)
    await reap(database)
    (second,) = await claimed(database, worker_id="w2")
    assert (await refused(database, outcome(zombie, result='"1"'))).reason == "superseded"
    await settled(database, outcome(second, result='"2"'))
    refusal = await refused(database, outcome(zombie, result='"1"'))
    assert (refusal.reason, refusal.current_attempt, refusal.result_discarded) == ("finished", 2, True)
    assert not (await refused(database, failure(zombie))).result_discarded
    assert (await read(database, zombie.job)).result == '"2"'


async def test_a_token_belongs_to_one_attempt_of_one_job(database: Database) -> None:
    first = await running(database)
    other = await running(database, queue="other")
    await expire_lease(database, first.job)
    await reap(database)
    (second,) = await claimed(database, worker_id="worker-1")
    assert second.token != first.token
    for token in (other.token, second.token.upper(), second.token[:-1], ""):
        if token != second.token:
            assert (await refused(database, outcome(Held(job=second.job, token=token)))).reason == "unknown"
    assert (await refused(database, outcome(first))).reason == "superseded"
    nowhere = new_job_id(tenant="t", queue="q")
    missing = Outcome(job_id=nowhere, token=second.token, kind=OutcomeKind.COMPLETE, result="1")
    with pytest.raises(NotFound):
        await settled(database, missing)


async def test_one_bad_report_among_a_hundred_spoils_nothing_else(database: Database) -> None:
    await many_queued(database, 100)
    held = await claimed(database, limit=100)
    reports = [outcome(item) for item in held]
    for position in (3, 50, 99):
        reports[position] = Outcome(job_id=held[position].job.id, token="0" * 32, kind=OutcomeKind.COMPLETE, result="1")
    reports[10] = Outcome(job_id=new_job_id(tenant="t", queue="q"), token="0" * 32, kind=OutcomeKind.COMPLETE)
    reports[20] = failure(held[20], ErrorKind.CANCELED)
    async with database.transaction() as connection:
        answers = await settle(connection, reports, policy_of=policy_of, random=half)
    assert sum(isinstance(answer, Settled) for answer in answers) == 95
    assert all(isinstance(answers[position], LeaseLost) for position in (3, 50, 99))
    assert isinstance(answers[10], NotFound)
    assert isinstance(answers[20], InvalidInput)
    assert (await read(database, held[20].job)).state is State.RUNNING


async def test_the_same_report_twice_in_one_call_counts_once(database: Database) -> None:
    held = await running(database)
    async with database.transaction() as connection:
        answers = await settle(connection, [outcome(held), outcome(held)], policy_of=policy_of, random=half)
    assert [answer.replayed for answer in answers if isinstance(answer, Settled)] == [False, True]
    assert await history(database, held.job) == ["enqueued", "leased", "succeeded"]


async def test_exactly_max_attempts_starts_then_dead(database: Database) -> None:
    held = await running(database, max_attempts=2)
    await settled(database, failure(held), random=0.0)
    (second,) = await claimed(database)
    answer = await settled(database, failure(second))
    job = await read(database, held.job)
    assert answer.state is State.DEAD
    assert (job.attempts, job.max_attempts) == (2, 2)
    assert await claimed(database) == []
    assert await history(database, held.job) == ["enqueued", "leased", "retry_scheduled", "leased", "dead"]


async def test_a_retry_waits_and_the_event_says_how_long_and_why(database: Database) -> None:
    held = await running(database)
    await settled(database, failure(held, message="upstream said no, password=hunter2"), random=0.999)
    job = await read(database, held.job)
    async with database.connection() as connection:
        event = (await events(connection, job.id))[-1]
    assert job.available_at - job.updated_at == timedelta(seconds=event.detail["delay_seconds"])
    assert event.detail["error"]["message"] == "upstream said no, password=[redacted]"
    assert job.last_error is not None
    assert job.last_error.fingerprint == event.detail["error"]["fingerprint"]


async def test_two_thousand_retries_do_not_come_back_together(database: Database) -> None:
    await many_queued(database, 2_000)
    held = await claimed(database, limit=2_000)
    ticks = iter([(n * 7919 % 2_000) / 2_000 for n in range(2_000)])
    async with database.transaction() as connection:
        await settle(connection, [failure(item) for item in held], policy_of=policy_of, random=lambda: next(ticks))
        (row,) = await connection.fetch(
            "SELECT max(n) AS most FROM (SELECT count(*) AS n FROM tenure.jobs"
            " GROUP BY floor(extract(epoch FROM available_at) * 10)) AS buckets"
        )
    assert row["most"] <= 2_000 * 0.2


async def test_a_release_costs_no_attempt_and_thirty_deploys_do_not_kill(database: Database) -> None:
    held = await running(database, max_attempts=3)
    for _ in range(30):
        await settled(database, outcome(held, OutcomeKind.RELEASE))
        (held,) = await claimed(database)
    assert (await read(database, held.job)).attempts == 1


async def test_finishing_before_the_stop_says_finished_first_and_the_result_stands(database: Database) -> None:
    held = await running(database)
    async with database.transaction() as connection:
        await cancel(connection, held.job.id)
    await settled(database, outcome(held))
    job = await read(database, held.job)
    assert job.state is State.SUCCEEDED
    assert job.cancellation is not None
    assert job.cancellation.outcome is CancelOutcome.FINISHED_FIRST
    assert job.result == '{"ok": true}'


async def test_after_a_cancel_request_nothing_is_retried_and_the_error_is_kept(database: Database) -> None:
    held = await running(database)
    async with database.transaction() as connection:
        await cancel(connection, held.job.id)
    await settled(database, failure(held, ErrorKind.UNKNOWN, message="died while stopping"))
    job = await read(database, held.job)
    assert job.state is State.CANCELED
    assert job.cancellation is not None
    assert job.cancellation.outcome is CancelOutcome.STOPPED
    assert job.cancellation.confirmed_at is not None
    assert job.last_error is not None


async def test_a_lease_lost_after_a_cancel_is_told_canceled(database: Database) -> None:
    held = await running(database)
    async with database.transaction() as connection:
        await cancel(connection, held.job.id)
    await expire_lease(database, held.job)
    await reap(database)
    assert (await refused(database, outcome(held))).reason == "canceled"


async def test_an_old_token_is_still_known_after_a_manual_retry(database: Database) -> None:
    held = await running(database)
    await settled(database, failure(held, ErrorKind.POISON))
    async with database.transaction() as connection:
        await retry(connection, held.job.id)
    await claimed(database, worker_id="w2")
    assert (await settled(database, failure(held, ErrorKind.POISON))).replayed
    assert (await refused(database, outcome(held))).reason == "settled"
    assert (await read(database, held.job)).state is State.RUNNING


async def test_a_result_with_its_members_in_another_order_is_the_same_outcome(database: Database) -> None:
    held = await running(database)
    await settled(database, outcome(held, result='{"a": 1.0, "b": {"c": 2, "d": 3}}'))
    assert (await settled(database, outcome(held, result='{"b": {"d": 3, "c": 2}, "a": 1.0}'))).replayed
    assert (await refused(database, outcome(held, result='{"a": 2}'))).reason == "settled"


async def test_an_error_message_does_not_give_the_token_away(database: Database) -> None:
    held = await running(database)
    await settled(database, failure(held, message=f"cannot post with {held.token}"))
    job = await read(database, held.job)
    assert job.last_error is not None
    assert job.last_error.message == "cannot post with [redacted]"


async def test_times_of_a_history_never_run_backwards(database: Database) -> None:
    held = await running(database)
    async with database.transaction() as early:
        await early.execute("SELECT 1")  # its clock stands still from here on
        await settled(database, failure(held), random=0.0)
        await cancel(early, held.job.id)
    async with database.connection() as connection:
        times = [event.at for event in await events(connection, held.job.id)]
    job = await read(database, held.job)
    assert times == sorted(times)
    assert job.cancellation is not None
    assert job.cancellation.requested_at >= times[-2]


async def test_a_deadline_cannot_be_reported_of_a_job_that_has_none(database: Database) -> None:
    held = await running(database)
    with pytest.raises(InvalidInput, match="deadline"):
        await settled(database, failure(held, ErrorKind.DEADLINE))
    assert (await read(database, held.job)).state is State.RUNNING
