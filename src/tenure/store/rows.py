"""Rows to jobs and back: the one place that knows the columns of a job by name."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import orjson

from tenure.jobs.ids import JobId
from tenure.jobs.model import (
    Cancellation,
    CancelOutcome,
    ErrorKind,
    Event,
    Job,
    JobError,
    Lease,
    Progress,
    State,
)
from tenure.store.database import Record

JOB_COLUMNS: tuple[str, ...] = (
    "id",
    "tenant",
    "kind",
    "queue",
    "state",
    "version",
    "priority",
    "schema_version",
    "tags",
    "metadata",
    "attempts",
    "max_attempts",
    "releases",
    "available_at",
    "timeout_seconds",
    "deadline_at",
    "lease_seconds",
    "lease_worker_id",
    "lease_acquired_at",
    "lease_expires_at",
    "lease_heartbeat_at",
    "lease_heartbeats",
    "progress_fraction",
    "progress_message",
    "progress_at",
    "cancel_outcome",
    "cancel_reason",
    "cancel_requested_by",
    "cancel_requested_at",
    "cancel_delivered_at",
    "cancel_confirmed_at",
    "cancel_accepted_version",
    "last_error",
    "idempotency_key",
    "concurrency_key",
    "submitted_by",
    "traceparent",
    "created_at",
    "updated_at",
    "started_at",
    "finished_at",
)
"""All that makes up a Job but its payload and result, which a listing leaves in the table."""

BODY_COLUMNS = ("payload", "result")


def columns(alias: str, *, body: bool = True) -> str:
    """The select list for `job_from`."""
    names = JOB_COLUMNS + BODY_COLUMNS if body else JOB_COLUMNS
    return ", ".join(f"{alias}.{name}" for name in names)


def job_from(row: Record) -> Job:
    """A Job from a row that has `columns()`."""
    present = row.keys()
    return Job(
        id=JobId(row["id"]),
        tenant=row["tenant"],
        kind=row["kind"],
        queue=row["queue"],
        state=State(row["state"]),
        version=row["version"],
        priority=row["priority"],
        schema_version=row["schema_version"],
        payload=row["payload"] if "payload" in present else None,
        result=row["result"] if "result" in present else None,
        progress=_progress(row),
        tags=tuple(row["tags"]),
        metadata=row["metadata"],
        attempts=row["attempts"],
        max_attempts=row["max_attempts"],
        releases=row["releases"],
        available_at=row["available_at"],
        timeout_seconds=row["timeout_seconds"],
        deadline_at=row["deadline_at"],
        lease_seconds=row["lease_seconds"],
        lease=_lease(row),
        cancellation=_cancellation(row),
        last_error=_error(row["last_error"]),
        idempotency_key=row["idempotency_key"],
        concurrency_key=row["concurrency_key"],
        submitted_by=row["submitted_by"],
        traceparent=row["traceparent"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
    )


LEASED_COLUMNS: tuple[str, ...] = (
    "id",
    "kind",
    "queue",
    "version",
    "priority",
    "schema_version",
    "payload",
    "tags",
    "metadata",
    "attempts",
    "max_attempts",
    "releases",
    "available_at",
    "timeout_seconds",
    "deadline_at",
    "lease_seconds",
    "lease_expires_at",
    "last_error",
    "idempotency_key",
    "concurrency_key",
    "submitted_by",
    "traceparent",
    "created_at",
    "updated_at",
)
"""What a claim needs to know of a job that it has just leased: the rest follows from that."""


def leased_job_from(row: Sequence[Any], *, tenant: str, worker_id: str) -> Job:
    """The job as a claim left it, from the values of LEASED_COLUMNS: nothing is left of an earlier attempt's progress, no
    cancellation survives into the queue, and the lease began at the row's last change."""
    (
        job_id,
        kind,
        queue,
        version,
        priority,
        schema_version,
        payload,
        tags,
        metadata,
        attempts,
        max_attempts,
        releases,
        available_at,
        timeout_seconds,
        deadline_at,
        lease_seconds,
        lease_expires_at,
        last_error,
        idempotency_key,
        concurrency_key,
        submitted_by,
        traceparent,
        created_at,
        updated_at,
    ) = row
    return Job(
        id=job_id,
        tenant=tenant,
        kind=kind,
        queue=queue,
        state=State.RUNNING,
        version=version,
        priority=priority,
        schema_version=schema_version,
        payload=payload,
        result=None,
        progress=None,
        tags=tuple(tags),
        metadata=metadata,
        attempts=attempts,
        max_attempts=max_attempts,
        releases=releases,
        available_at=available_at,
        timeout_seconds=timeout_seconds,
        deadline_at=deadline_at,
        lease_seconds=lease_seconds,
        lease=Lease(
            worker_id=worker_id,
            acquired_at=updated_at,
            expires_at=lease_expires_at,
            heartbeat_at=updated_at,
            heartbeats=0,
        ),
        cancellation=None,
        last_error=_error(last_error),
        idempotency_key=idempotency_key,
        concurrency_key=concurrency_key,
        submitted_by=submitted_by,
        traceparent=traceparent,
        created_at=created_at,
        updated_at=updated_at,
        started_at=updated_at,
        finished_at=None,
    )


def event_from(row: Record) -> Event:
    """An Event from a row of the events table."""
    return Event(
        version=row["version"],
        at=row["at"],
        type=row["type"],
        state=State(row["state"]),
        attempt=row["attempt"],
        worker_id=row["worker_id"],
        detail=orjson.loads(row["detail"]) if row["detail"] else {},
    )


def error_to_json(error: JobError | None) -> str | None:
    """The text of the `last_error` column."""
    return orjson.dumps(error).decode() if error else None


def to_json(value: Any) -> str:
    """The text of a small JSON column of our own making."""
    return orjson.dumps(value).decode()


def _progress(row: Record) -> Progress | None:
    if row["progress_at"] is None:
        return None
    return Progress(fraction=row["progress_fraction"], message=row["progress_message"], at=row["progress_at"])


def _lease(row: Record) -> Lease | None:
    if row["lease_expires_at"] is None:
        return None
    return Lease(
        worker_id=row["lease_worker_id"],
        acquired_at=row["lease_acquired_at"],
        expires_at=row["lease_expires_at"],
        heartbeat_at=row["lease_heartbeat_at"],
        heartbeats=row["lease_heartbeats"],
    )


def _cancellation(row: Record) -> Cancellation | None:
    if row["cancel_outcome"] is None:
        return None
    return Cancellation(
        outcome=CancelOutcome(row["cancel_outcome"]),
        reason=row["cancel_reason"],
        requested_by=row["cancel_requested_by"],
        requested_at=row["cancel_requested_at"],
        delivered_at=row["cancel_delivered_at"],
        confirmed_at=row["cancel_confirmed_at"],
        accepted_version=row["cancel_accepted_version"],
    )


def _error(text: str | None) -> JobError | None:
    if text is None:
        return None
    value = orjson.loads(text)
    return JobError(
        kind=ErrorKind(value["kind"]),
        type=value["type"],
        message=value["message"],
        fingerprint=value["fingerprint"],
        attempt=value["attempt"],
        at=datetime.fromisoformat(value["at"]),
    )


def one_by_id(rows: Sequence[Record]) -> dict[JobId, Record]:
    """Rows keyed by job id."""
    return {JobId(row["id"]): row for row in rows}
