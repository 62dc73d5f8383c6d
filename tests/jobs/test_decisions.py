"""What follows from what happened: each branch, without a database."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tenure.errors import DeadlinePassed, InvalidInput, NotCancelable, NotRetryable, VersionMismatch
from tenure.jobs.decisions import (
    MAX_FREE_RELEASES,
    ReportedError,
    Standing,
    decide_cancel,
    decide_deadline,
    decide_expiry,
    decide_failure,
    decide_release,
    decide_retry,
)
from tenure.jobs.ids import new_job_id
from tenure.jobs.lifecycle import TRANSITIONS, EventType
from tenure.jobs.model import CancelOutcome, ErrorKind, State
from tenure.jobs.retry import RetryPolicy

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
POLICY = RetryPolicy(base_seconds=10, factor=2, cap_seconds=100)
RUNNING = Standing(
    id=new_job_id(tenant="t", queue="q"),
    kind="k",
    state=State.RUNNING,
    version=2,
    attempts=1,
    max_attempts=3,
    releases=0,
    deadline_at=None,
    worker_id="w",
    token_digest=b"x" * 16,
    lease_expires_at=NOW - timedelta(seconds=1),
)
CANCELING = replace(
    RUNNING,
    deadline_at=NOW + timedelta(days=1),
    cancel_outcome=CancelOutcome.REQUESTED,
    cancel_accepted_version=2,
    version=3,
)


def fail(job: Standing, kind: ErrorKind, *, random: float = 0.5, retry_after: float | None = None):  # type: ignore[no-untyped-def]
    error = ReportedError(kind=kind, message="it broke", retry_after_seconds=retry_after)
    return decide_failure(job, error, policy=POLICY, now=NOW, random=random)


@pytest.mark.parametrize("kind", [ErrorKind.TRANSIENT, ErrorKind.TIMEOUT, ErrorKind.UNKNOWN])
def test_what_may_pass_is_retried_with_backoff(kind: ErrorKind) -> None:
    decision = fail(RUNNING, kind)
    assert (decision.event, decision.state) == (EventType.RETRY_SCHEDULED, State.QUEUED)
    assert decision.available_at == NOW + timedelta(seconds=5)
    assert decision.detail["delay_seconds"] == 5
    assert decision.error is not None
    assert decision.error.kind is kind


@pytest.mark.parametrize("kind", [ErrorKind.TRANSIENT, ErrorKind.TIMEOUT, ErrorKind.UNKNOWN])
def test_the_last_attempt_makes_it_dead(kind: ErrorKind) -> None:
    assert fail(replace(RUNNING, attempts=3), kind).state is State.DEAD


def test_a_permanent_error_fails_at_once_and_poison_kills_at_once() -> None:
    assert fail(RUNNING, ErrorKind.PERMANENT).state is State.FAILED
    assert fail(RUNNING, ErrorKind.POISON).state is State.DEAD


def test_retry_after_is_a_floor() -> None:
    decision = fail(RUNNING, ErrorKind.TRANSIENT, retry_after=60)
    assert decision.available_at is not None
    assert decision.available_at >= NOW + timedelta(seconds=60)


def test_a_retry_past_the_deadline_fails_now_and_says_deadline() -> None:
    decision = fail(replace(RUNNING, deadline_at=NOW + timedelta(seconds=5)), ErrorKind.TRANSIENT)
    assert decision.state is State.FAILED
    assert decision.error is not None
    assert decision.error.kind is ErrorKind.DEADLINE
    assert decision.error.message == "it broke"


@pytest.mark.parametrize("kind", [kind for kind in ErrorKind if kind is not ErrorKind.LEASE_LOST])
def test_after_a_cancel_request_every_failure_is_stopped(kind: ErrorKind) -> None:
    decision = fail(CANCELING, kind)
    assert (decision.event, decision.state) == (EventType.CANCELED, State.CANCELED)
    assert decision.cancel_outcome is CancelOutcome.STOPPED
    assert (decision.error is None) == (kind is ErrorKind.CANCELED)


def test_canceled_without_a_request_is_refused() -> None:
    with pytest.raises(InvalidInput, match="only after cancellation was requested"):
        fail(RUNNING, ErrorKind.CANCELED)


def test_an_expired_lease_is_available_at_once_and_its_attempt_counts() -> None:
    decision = decide_expiry(RUNNING, now=NOW)
    assert (decision.event, decision.state) == (EventType.LEASE_EXPIRED, State.QUEUED)
    assert (decision.attempts, decision.available_at) == (1, NOW)


def test_an_expired_lease_ends_what_cannot_go_on() -> None:
    assert decide_expiry(replace(RUNNING, attempts=3), now=NOW).state is State.DEAD
    late = decide_expiry(replace(RUNNING, deadline_at=NOW), now=NOW)
    assert late.state is State.FAILED
    assert late.error is not None
    assert late.error.kind is ErrorKind.DEADLINE
    vanished = decide_expiry(replace(CANCELING, attempts=3, deadline_at=NOW), now=NOW)
    assert (vanished.state, vanished.cancel_outcome) == (State.CANCELED, CancelOutcome.UNCONFIRMED)


def test_a_release_gives_the_attempt_back() -> None:
    decision = decide_release(RUNNING, now=NOW)
    assert (decision.event, decision.attempts, decision.releases) == (EventType.RELEASED, 0, 1)
    assert decision.available_at == NOW


def test_releases_beyond_the_cap_count() -> None:
    capped = replace(RUNNING, releases=MAX_FREE_RELEASES)
    assert decide_release(capped, now=NOW).attempts == 1
    used_up = decide_release(replace(capped, attempts=3), now=NOW)
    assert used_up.state is State.DEAD


def test_a_snooze_past_the_deadline_is_refused() -> None:
    job = replace(RUNNING, deadline_at=NOW + timedelta(seconds=10))
    with pytest.raises(InvalidInput, match="deadline"):
        decide_release(job, now=NOW, delay_seconds=10)
    assert decide_release(job, now=NOW, delay_seconds=9).event is EventType.SNOOZED


def test_release_and_snooze_after_a_request_are_stopped() -> None:
    for delay in (None, 5.0):
        assert decide_release(CANCELING, now=NOW, delay_seconds=delay).cancel_outcome is CancelOutcome.STOPPED


def test_cancel_says_prevented_or_requested() -> None:
    queued = replace(RUNNING, state=State.QUEUED)
    prevented = decide_cancel(queued, version=None, reason="r", requested_by=None)
    assert prevented is not None
    assert prevented.cancel_outcome is CancelOutcome.PREVENTED
    requested = decide_cancel(RUNNING, version=2, reason="r", requested_by=None)
    assert requested is not None
    assert (requested.state, requested.cancel_outcome) == (State.RUNNING, CancelOutcome.REQUESTED)


def test_a_repeated_cancel_changes_nothing_also_with_its_first_version() -> None:
    assert decide_cancel(CANCELING, version=2, reason=None, requested_by=None) is None
    assert decide_cancel(CANCELING, version=3, reason=None, requested_by=None) is None
    assert decide_cancel(CANCELING, version=None, reason=None, requested_by=None) is None
    with pytest.raises(VersionMismatch):
        decide_cancel(CANCELING, version=1, reason=None, requested_by=None)


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED, State.DEAD])
def test_what_finished_before_any_request_cannot_be_canceled(state: State) -> None:
    with pytest.raises(NotCancelable):
        decide_cancel(replace(RUNNING, state=state), version=None, reason=None, requested_by=None)


@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING, State.SUCCEEDED, State.CANCELED])
def test_only_dead_and_failed_jobs_are_retried(state: State) -> None:
    with pytest.raises(NotRetryable):
        decide_retry(replace(RUNNING, state=state), now=NOW)


def test_a_retry_starts_afresh() -> None:
    decision = decide_retry(replace(RUNNING, state=State.DEAD, attempts=3, releases=7), now=NOW, delay_seconds=5)
    assert (decision.state, decision.attempts, decision.releases) == (State.QUEUED, 0, 0)
    assert decision.available_at == NOW + timedelta(seconds=5)


def test_a_retry_needs_a_deadline_that_is_not_past() -> None:
    late = replace(RUNNING, state=State.FAILED, deadline_at=NOW - timedelta(seconds=1))
    with pytest.raises(DeadlinePassed):
        decide_retry(late, now=NOW)
    with pytest.raises(DeadlinePassed):
        decide_retry(late, now=NOW, deadline_at=NOW - timedelta(days=1))
    renewed = decide_retry(late, now=NOW, expires_in_seconds=60)
    assert renewed.deadline_at == NOW + timedelta(seconds=60)
    with pytest.raises(InvalidInput):
        decide_retry(late, now=NOW, expires_in_seconds=60, delay_seconds=60)


def test_every_decision_is_a_row_of_the_table() -> None:
    allowed = {(t.event, source, target) for t in TRANSITIONS for source in t.sources for target in t.targets}
    queued = replace(RUNNING, state=State.QUEUED)
    decided = [
        *[
            (job, fail(job, kind))
            for job in (replace(RUNNING, deadline_at=NOW + timedelta(days=1)), CANCELING)
            for kind in ErrorKind
            if kind is not ErrorKind.CANCELED
        ],
        *[(job, decide_expiry(job, now=NOW)) for job in (RUNNING, CANCELING, replace(RUNNING, attempts=3))],
        (RUNNING, decide_release(RUNNING, now=NOW)),
        (RUNNING, decide_release(RUNNING, now=NOW, delay_seconds=1)),
        (queued, decide_deadline(queued, now=NOW)),
        (replace(RUNNING, state=State.DEAD), decide_retry(replace(RUNNING, state=State.DEAD), now=NOW)),
    ]
    for job, decision in decided:
        assert (decision.event, job.state, decision.state) in allowed
