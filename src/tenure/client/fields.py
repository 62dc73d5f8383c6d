"""What callers may give, as type checkers see it. The service judges it: a newer one may know more."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Required, TypedDict
from uuid import UUID

from tenure.wire.jobs import StateName

Times = datetime | str


class JobFields(TypedDict, total=False):
    """The fields of ``POST /jobs`` beside kind and payload."""

    queue: str | None
    priority: int | None
    delay_seconds: float | None
    available_at: Times | None
    max_attempts: int | None
    timeout_seconds: float | None
    deadline_at: Times | None
    expires_in_seconds: float | None
    lease_seconds: float | None
    schema_version: int | None
    idempotency_key: str | None
    concurrency_key: str | None
    tags: Sequence[str] | None
    metadata: Mapping[str, Any] | None


class NewJob(JobFields, total=False):
    """One job of a batch."""

    kind: Required[str]
    payload: Any


class JobFilters(TypedDict, total=False):
    """What to list. One value, or several as "any of these". ``limit`` is that of a page (50, at most 500)."""

    state: StateName | Sequence[StateName] | Sequence[str] | None
    queue: str | Sequence[str] | None
    kind: str | Sequence[str] | None
    tag: str | Sequence[str] | None
    worker_id: str | Sequence[str] | None
    concurrency_key: str | Sequence[str] | None
    fingerprint: str | Sequence[str] | None
    created_after: Times | None
    created_before: Times | None
    include: Sequence[Literal["payload", "result"]] | None
    limit: int | None
    cursor: str | None


class DeadFilters(TypedDict, total=False):
    """Which dead jobs to list."""

    queue: str | Sequence[str] | None
    kind: str | Sequence[str] | None
    tag: str | Sequence[str] | None
    concurrency_key: str | Sequence[str] | None
    fingerprint: str | Sequence[str] | None
    created_after: Times | None
    created_before: Times | None
    died_after: Times | None
    died_before: Times | None
    include: Sequence[Literal["payload", "result"]] | None
    limit: int | None
    cursor: str | None


class CancelFields(TypedDict, total=False):
    """The fields of a cancellation."""

    reason: str | None
    version: int | None


class RetryFields(TypedDict, total=False):
    """The fields of a retry."""

    deadline_at: Times | None
    expires_in_seconds: float | None
    delay_seconds: float | None
    version: int | None
    reason: str | None


class ClaimFields(TypedDict, total=False):
    """The fields of a claim beside who asks and for which queues."""

    kinds: Sequence[str | Mapping[str, Any]] | None
    max_jobs: int | None
    lease_seconds: float | None
    capacity: int | None
    version: str | None
    host: str | None
    restarted: bool


class Beat(TypedDict, total=False):
    """A sign of life for one lease; ``progress`` is ``{"fraction": 0.5, "message": "half"}``."""

    job_id: Required[UUID | str]
    lease_token: Required[str]
    progress: Mapping[str, Any] | None


class LeaseOutcome(TypedDict, total=False):
    """How one attempt ended: ``result`` goes with complete, ``error`` with fail, ``delay_seconds`` with snooze."""

    job_id: Required[UUID | str]
    lease_token: Required[str]
    outcome: Required[Literal["complete", "fail", "release", "snooze"]]
    result: Any
    error: Mapping[str, Any] | None
    retry_after_seconds: float | None
    delay_seconds: float | None
