"""From the house's dataclasses to what JSON shows of them. Payloads and results go through as text, never parsed."""

from datetime import datetime
from typing import Any

import orjson

from tenure.jobs.model import Event, Job
from tenure.jobs.text import rfc3339

_NULL = orjson.Fragment(b"null")


def time(moment: datetime | None) -> str | None:
    """RFC 3339, UTC, always with microseconds."""
    return None if moment is None else rfc3339(moment)


def json_text(text: str | None) -> Any:
    """Stored JSON text, to be embedded as it is."""
    return _NULL if text is None else orjson.Fragment(text)


def job(job: Job, *, payload: bool = True, result: bool = True) -> dict[str, Any]:
    """The members of a job, in the contract's order."""
    shown: dict[str, Any] = {
        "id": str(job.id),
        "kind": job.kind,
        "queue": job.queue,
        "state": job.state,
        "version": job.version,
        "priority": job.priority,
        "schema_version": job.schema_version,
    }
    if payload:
        shown["payload"] = json_text(job.payload)
    if result:
        shown["result"] = json_text(job.result)
    shown |= {
        "progress": _progress(job),
        "tags": job.tags,
        "metadata": json_text(job.metadata),
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "available_at": time(job.available_at),
        "timeout_seconds": job.timeout_seconds,
        "deadline_at": time(job.deadline_at),
        "lease_seconds": job.lease_seconds,
        "lease": _lease(job),
        "cancellation": _cancellation(job),
        "last_error": _error(job),
        "idempotency_key": job.idempotency_key,
        "concurrency_key": job.concurrency_key,
        "tenant": job.tenant,
        "submitted_by": job.submitted_by,
        "created_at": time(job.created_at),
        "updated_at": time(job.updated_at),
        "started_at": time(job.started_at),
        "finished_at": time(job.finished_at),
        "traceparent": job.traceparent,
    }
    return shown


def event(event: Event) -> dict[str, Any]:
    """The members of an event."""
    return {
        "version": event.version,
        "at": time(event.at),
        "type": event.type,
        "state": event.state,
        "attempt": event.attempt,
        "worker_id": event.worker_id,
        "detail": event.detail,
    }


def _progress(job: Job) -> dict[str, Any] | None:
    progress = job.progress
    if progress is None:
        return None
    return {"fraction": progress.fraction, "message": progress.message, "at": time(progress.at)}


def _lease(job: Job) -> dict[str, Any] | None:
    lease = job.lease
    if lease is None:
        return None
    return {
        "worker_id": lease.worker_id,
        "acquired_at": time(lease.acquired_at),
        "expires_at": time(lease.expires_at),
        "heartbeat_at": time(lease.heartbeat_at),
        "heartbeats": lease.heartbeats,
    }


def _cancellation(job: Job) -> dict[str, Any] | None:
    cancellation = job.cancellation
    if cancellation is None:
        return None
    return {
        "outcome": cancellation.outcome,
        "reason": cancellation.reason,
        "requested_by": cancellation.requested_by,
        "requested_at": time(cancellation.requested_at),
        "delivered_at": time(cancellation.delivered_at),
        "confirmed_at": time(cancellation.confirmed_at),
    }


def _error(job: Job) -> dict[str, Any] | None:
    error = job.last_error
    if error is None:
        return None
    return {
        "kind": error.kind,
        "type": error.type,
        "message": error.message,
        "fingerprint": error.fingerprint,
        "attempt": error.attempt,
        "at": time(error.at),
    }
