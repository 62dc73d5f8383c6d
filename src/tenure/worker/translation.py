"""Between what crosses HTTP and what the runtime knows: jobs, outcomes, heartbeats, and their answers."""

from collections.abc import Iterator, Sequence

from tenure.client import ServiceUnreachable
from tenure.client.fields import Beat as BeatSent
from tenure.client.fields import LeaseOutcome
from tenure.errors import BodyTooLarge, InvalidInput, LeaseLost, NotFound, TenureError, Unavailable
from tenure.jobs import model
from tenure.jobs.ids import JobId
from tenure.store.heartbeat import HeartbeatAnswer
from tenure.store.settle import Outcome, OutcomeKind, Settled
from tenure.store.workers import Directive
from tenure.wire import jobs as wire
from tenure.wire import json
from tenure.wire.leases import HeartbeatManyItem, LeaseGrant, SettleManyItem
from tenure.wire.problems import Problem, error_from
from tenure.worker.broker import Beat, BeatAnswer, SettleAnswer

_SETTLED_AT_ONCE_BYTES = 4_194_304
"""Of results in one request: far below the 64 MiB that a service takes, and soon sent over a slow line."""
_PROGRESS_CHARACTERS = 1_000


def claimed(lease: LeaseGrant) -> model.Claimed:
    """The job just leased, and its token."""
    return model.Claimed(job=_job(lease.job), token=lease.lease_token)


def _job(job: wire.Job) -> model.Job:
    """The job as handlers know it: JSON values as text."""
    if job.lease is None:
        raise ServiceUnreachable(f"job {job.id} was handed out without a lease")
    return model.Job(
        id=JobId(job.id),
        tenant=job.tenant,
        kind=job.kind,
        queue=job.queue,
        state=model.State(job.state),
        version=job.version,
        priority=job.priority,
        schema_version=job.schema_version,
        payload=json.dumps(job.payload).decode(),
        result=None if job.result is None else json.dumps(job.result).decode(),
        progress=None if job.progress is None else model.Progress(**job.progress.model_dump()),
        tags=tuple(job.tags),
        metadata=json.dumps(job.metadata).decode(),
        attempts=job.attempts,
        max_attempts=job.max_attempts,
        releases=0,
        available_at=job.available_at,
        timeout_seconds=job.timeout_seconds,
        deadline_at=job.deadline_at,
        lease_seconds=job.lease_seconds,
        lease=model.Lease(**job.lease.model_dump()),
        cancellation=_cancellation(job),
        last_error=_last_error(job),
        idempotency_key=job.idempotency_key,
        concurrency_key=job.concurrency_key,
        submitted_by=job.submitted_by,
        traceparent=job.traceparent,
        created_at=job.created_at,
        updated_at=job.updated_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
    )


def _cancellation(job: wire.Job) -> model.Cancellation | None:
    if job.cancellation is None:
        return None
    told = {**job.cancellation.model_dump(), "outcome": model.CancelOutcome(job.cancellation.outcome)}
    return model.Cancellation(**told, accepted_version=job.version)


def _last_error(job: wire.Job) -> model.JobError | None:
    if job.last_error is None:
        return None
    return model.JobError(**{**job.last_error.model_dump(), "kind": model.ErrorKind(job.last_error.kind)})


def by_size(outcomes: Sequence[Outcome]) -> Iterator[Sequence[Outcome]]:
    """The outcomes in parts that one request may carry."""
    part: list[Outcome] = []
    size = 0
    for outcome in outcomes:
        length = len(outcome.result or "")
        if part and size + length > _SETTLED_AT_ONCE_BYTES:
            yield part
            part, size = [], 0
        part.append(outcome)
        size += length
    if part:
        yield part


def sent_outcome(outcome: Outcome) -> LeaseOutcome:
    """The outcome as it is sent. Raises InvalidInput for a result that no service would take."""
    sent: LeaseOutcome = {
        "job_id": outcome.job_id,
        "lease_token": outcome.token,
        "outcome": outcome.kind.value,
    }
    match outcome.kind:
        case OutcomeKind.COMPLETE if outcome.result is not None:
            sent["result"] = json.parse(outcome.result)
        case OutcomeKind.SNOOZE:
            sent["delay_seconds"] = outcome.delay_seconds or 0.0
        case OutcomeKind.FAIL if outcome.error is not None:
            error = outcome.error
            told = {"kind": error.kind.value, "message": error.message, "type": error.type and error.type[:200]}
            sent["error"] = {name: value for name, value in told.items() if value is not None}
            sent["retry_after_seconds"] = error.retry_after_seconds
    return sent


def settled(item: SettleManyItem) -> SettleAnswer:
    """What became of one outcome. Raises Unavailable when it has to be reported again."""
    if item.problem is None and item.state is not None and item.version is not None:
        return Settled(
            job_id=JobId(item.job_id),
            state=model.State(item.state),
            version=item.version,
            available_at=item.available_at,
        )
    error = _error(item.problem, item.status)
    if isinstance(error, Unavailable):
        raise error
    if isinstance(error, LeaseLost | NotFound | InvalidInput | BodyTooLarge):
        return error
    return InvalidInput(f"{error.title}: {error.detail}")


def sent_beat(beat: Beat) -> BeatSent:
    """The heartbeat as it is sent."""
    sent: BeatSent = {"job_id": beat.job_id, "lease_token": beat.token}
    if beat.has_progress:
        # What a service would refuse must not cost the lease.
        sent["progress"] = {"fraction": beat.fraction, "message": (beat.message or "")[:_PROGRESS_CHARACTERS] or None}
    return sent


def beaten(item: HeartbeatManyItem) -> BeatAnswer:
    """What became of one heartbeat."""
    if item.problem is None and item.lease_expires_at is not None:
        return HeartbeatAnswer(
            job_id=JobId(item.job_id),
            lease_expires_at=item.lease_expires_at,
            cancel_requested=bool(item.cancel_requested),
            deadline_at=item.deadline_at,
            directive=directive_of(item.directive),
        )
    error = _error(item.problem, item.status)
    return error if isinstance(error, LeaseLost | NotFound | Unavailable) else Unavailable(error.detail)


def _error(problem: Problem | None, status: int) -> TenureError:
    return error_from(problem.model_dump() if problem is not None else {}, status=status)


def directive_of(name: str | None) -> Directive | None:
    """What an operator told this worker."""
    return None if name is None else Directive(name)
