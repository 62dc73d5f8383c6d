"""What follows from what happened: pure functions from where a job stands to the one transition it takes.

`store/` locks the rows, asks here, and applies a whole batch of decisions in one statement. ``now`` is always the
database's; ``random`` is uniform in [0, 1).
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tenure.errors import DeadlinePassed, InvalidInput, NotCancelable, NotRetryable, VersionMismatch
from tenure.jobs.ids import JobId
from tenure.jobs.lifecycle import EventType, sources_of
from tenure.jobs.model import CancelOutcome, ErrorKind, JobError, State
from tenure.jobs.redact import fingerprint, redact
from tenure.jobs.retry import RetryPolicy
from tenure.jobs.text import rfc3339

MAX_FREE_RELEASES = 100
"""Deploys and snoozes give the attempt back this often; after that they count, so that no job circles for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a locked job stands: all that a decision may look at."""

    id: JobId
    kind: str
    state: State
    version: int
    attempts: int
    max_attempts: int
    releases: int
    deadline_at: datetime | None
    worker_id: str | None = None
    token_digest: bytes | None = None
    lease_expires_at: datetime | None = None
    cancel_outcome: CancelOutcome | None = None
    cancel_accepted_version: int | None = None

    @property
    def cancel_requested(self) -> bool:
        return self.cancel_outcome is CancelOutcome.REQUESTED

    def deadline_passed(self, at: datetime) -> bool:
        """Nothing starts at or after the deadline."""
        return self.deadline_at is not None and self.deadline_at <= at


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One transition, ready to be applied. What is None stays as it is in the row."""

    event: EventType
    state: State
    attempts: int
    releases: int
    available_at: datetime | None = None
    deadline_at: datetime | None = None
    error: JobError | None = None
    cancel_outcome: CancelOutcome | None = None
    cancel_reason: str | None = None
    cancel_requested_by: str | None = None
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedError:
    """A failure as its holder tells it, not yet redacted."""

    kind: ErrorKind
    message: str
    type: str | None = None
    retry_after_seconds: float | None = None


def decide_failure(
    job: Standing, error: ReportedError, *, policy: RetryPolicy, now: datetime, random: float
) -> Decision:
    """The holder reports a failure. Raises InvalidInput for `canceled` without a request: the lease then stays."""
    if error.kind is ErrorKind.CANCELED and not job.cancel_requested:
        raise InvalidInput.of("/error/kind", "`canceled` can be reported only after cancellation was requested")
    if error.kind is ErrorKind.DEADLINE and job.deadline_at is None:
        raise InvalidInput.of("/error/kind", "`deadline` can be reported only of a job that has one")
    if job.cancel_requested:
        stored = None if error.kind is ErrorKind.CANCELED else _stored(job, error, now)
        return _canceled(job, CancelOutcome.STOPPED, error=stored)
    stored = _stored(job, error, now)
    if error.kind is ErrorKind.POISON:
        return _ended(job, EventType.DEAD, State.DEAD, stored)
    if error.kind in {ErrorKind.PERMANENT, ErrorKind.DEADLINE}:
        return _ended(job, EventType.FAILED, State.FAILED, stored)
    if job.attempts >= job.max_attempts:
        return _ended(job, EventType.DEAD, State.DEAD, stored)
    delay = policy.delay_seconds(job.attempts, random=random, at_least_seconds=error.retry_after_seconds)
    available_at = now + timedelta(seconds=delay)
    if job.deadline_passed(available_at):
        late = ReportedError(kind=ErrorKind.DEADLINE, type=error.type, message=error.message)
        return _ended(job, EventType.FAILED, State.FAILED, _stored(job, late, now))
    return Decision(
        event=EventType.RETRY_SCHEDULED,
        state=State.QUEUED,
        attempts=job.attempts,
        releases=job.releases,
        available_at=available_at,
        error=stored,
        detail={
            "error": error_detail(stored),
            "delay_seconds": round(delay, 6),
            "available_at": rfc3339(available_at),
        },
    )


def decide_expiry(job: Standing, *, now: datetime) -> Decision:
    """The lease ran out: its attempt counts, and the job is available at once, unless something ends it."""
    stored = _stored(
        job,
        ReportedError(
            kind=ErrorKind.LEASE_LOST,
            type="LeaseExpired",
            message="the lease ran out: its worker crashed, hung or lost the network, "
            "or the attempt went on for a whole lease beyond its timeout",
        ),
        now,
    )
    if job.cancel_requested:
        state, outcome = State.CANCELED, CancelOutcome.UNCONFIRMED
    elif job.deadline_passed(now):
        state, outcome = State.FAILED, None
        stored = _stored(
            job,
            ReportedError(
                kind=ErrorKind.DEADLINE, type="LeaseExpired", message="the deadline passed while the lease ran out"
            ),
            now,
        )
    elif job.attempts >= job.max_attempts:
        state, outcome = State.DEAD, None
    else:
        state, outcome = State.QUEUED, None
    return Decision(
        event=EventType.LEASE_EXPIRED,
        state=state,
        attempts=job.attempts,
        releases=job.releases,
        available_at=now if state is State.QUEUED else None,
        error=stored,
        cancel_outcome=outcome,
        detail={
            "error": error_detail(stored),
            "expired_at": rfc3339(job.lease_expires_at) if job.lease_expires_at else None,
        },
    )


def decide_release(job: Standing, *, now: datetime, delay_seconds: float | None = None) -> Decision:
    """The holder gives the job back, to be available at once or (snooze) after ``delay_seconds``.

    Raises InvalidInput when a snooze would end past the deadline: the lease then stays.
    """
    if job.cancel_requested:
        return _canceled(job, CancelOutcome.STOPPED)
    event = EventType.RELEASED if delay_seconds is None else EventType.SNOOZED
    available_at = now + timedelta(seconds=delay_seconds or 0.0)
    if event is EventType.SNOOZED and job.deadline_passed(available_at):
        raise InvalidInput.of(
            "/delay_seconds", f"the job's deadline ({rfc3339(job.deadline_at)}) would pass before it is over"
        )
    free = job.releases < MAX_FREE_RELEASES
    attempts = max(job.attempts - 1, 0) if free else job.attempts
    if attempts >= job.max_attempts:
        reported = ReportedError(
            kind=ErrorKind.UNKNOWN,
            type="ReleasedTooOften",
            message=f"released or snoozed more than {MAX_FREE_RELEASES} times, and no attempt is left",
        )
        return _ended(job, EventType.DEAD, State.DEAD, _stored(job, reported, now))
    return Decision(
        event=event,
        state=State.QUEUED,
        attempts=attempts,
        releases=job.releases + 1,
        available_at=available_at,
        detail={"available_at": rfc3339(available_at), "attempt_returned": free},
    )


def decide_deadline(job: Standing, *, now: datetime) -> Decision:
    """A queued job's deadline has passed: it fails, without ever being counted as a fault."""
    reported = ReportedError(
        kind=ErrorKind.DEADLINE, type="DeadlinePassed", message="the deadline passed before an attempt could start"
    )
    return _ended(job, EventType.FAILED, State.FAILED, _stored(job, reported, now))


def decide_cancel(
    job: Standing, *, version: int | None, reason: str | None, requested_by: str | None
) -> Decision | None:
    """A wish to cancel. None means: the receipt stands as it is, nothing changes.

    Raises VersionMismatch for a stale ``version`` and NotCancelable for what finished before any request.
    """
    if job.cancel_outcome is not None and version == job.cancel_accepted_version:
        return None
    if version is not None and version != job.version:
        raise VersionMismatch(
            f"the job is at version {job.version}, the request was meant for version {version}",
            current_version=job.version,
        )
    if job.cancel_outcome is not None:
        return None
    detail = {"reason": reason, "requested_by": requested_by}
    if job.state in sources_of(EventType.CANCEL_REQUESTED):
        return Decision(
            event=EventType.CANCEL_REQUESTED,
            state=State.RUNNING,
            attempts=job.attempts,
            releases=job.releases,
            cancel_outcome=CancelOutcome.REQUESTED,
            cancel_reason=reason,
            cancel_requested_by=requested_by,
            detail=detail,
        )
    if job.state in sources_of(EventType.CANCELED):
        return Decision(
            event=EventType.CANCELED,
            state=State.CANCELED,
            attempts=job.attempts,
            releases=job.releases,
            cancel_outcome=CancelOutcome.PREVENTED,
            cancel_reason=reason,
            cancel_requested_by=requested_by,
            detail={**detail, "outcome": str(CancelOutcome.PREVENTED)},
        )
    raise NotCancelable(f"the job is {job.state} already; it finished before any request to cancel")


def decide_retry(
    job: Standing,
    *,
    now: datetime,
    version: int | None = None,
    deadline_at: datetime | None = None,
    expires_in_seconds: float | None = None,
    delay_seconds: float | None = None,
    reason: str | None = None,
    requested_by: str | None = None,
) -> Decision:
    """An operator wants a dead or failed job tried afresh.

    Raises VersionMismatch, NotRetryable, DeadlinePassed (give a new deadline), InvalidInput (delay beyond the deadline).
    """
    if version is not None and version != job.version:
        raise VersionMismatch(
            f"the job is at version {job.version}, the request was meant for version {version}",
            current_version=job.version,
        )
    if job.state not in sources_of(EventType.MANUAL_RETRY):
        raise NotRetryable(f"the job is {job.state}; only dead and failed jobs can be retried")
    if expires_in_seconds is not None:
        deadline_at = now + timedelta(seconds=expires_in_seconds)
    deadline = deadline_at or job.deadline_at
    if deadline is not None and deadline <= now:
        raise DeadlinePassed(
            f"the deadline {rfc3339(deadline)} has passed; give a later `deadline_at` or `expires_in_seconds`"
        )
    available_at = now + timedelta(seconds=delay_seconds or 0.0)
    if deadline is not None and available_at >= deadline:
        raise InvalidInput.of(
            "/delay_seconds", f"the job's deadline ({rfc3339(deadline)}) would pass before it is over"
        )
    return Decision(
        event=EventType.MANUAL_RETRY,
        state=State.QUEUED,
        attempts=0,
        releases=0,
        available_at=available_at,
        deadline_at=deadline_at,
        detail={"reason": reason, "requested_by": requested_by, "available_at": rfc3339(available_at)},
    )


def error_detail(error: JobError) -> dict[str, Any]:
    """An error as an event's detail holds it."""
    return {
        "kind": str(error.kind),
        "type": error.type,
        "message": error.message,
        "fingerprint": error.fingerprint,
    }


def _stored(job: Standing, error: ReportedError, now: datetime) -> JobError:
    message = redact(error.message)
    error_type = redact(error.type)[:200] if error.type else None
    return JobError(
        kind=error.kind,
        type=error_type,
        message=message,
        fingerprint=fingerprint(kind=job.kind, error_type=error_type, message=message),
        attempt=job.attempts,
        at=now,
    )


def _ended(job: Standing, event: EventType, state: State, error: JobError) -> Decision:
    return Decision(
        event=event,
        state=state,
        attempts=job.attempts,
        releases=job.releases,
        error=error,
        detail={"error": error_detail(error)},
    )


def _canceled(job: Standing, outcome: CancelOutcome, error: JobError | None = None) -> Decision:
    detail: dict[str, Any] = {"outcome": str(outcome)}
    if error is not None:
        detail["error"] = error_detail(error)
    return Decision(
        event=EventType.CANCELED,
        state=State.CANCELED,
        attempts=job.attempts,
        releases=job.releases,
        error=error,
        cancel_outcome=outcome,
        detail=detail,
    )
