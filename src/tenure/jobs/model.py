"""A job and what belongs to it, as the store reads it and the rest of the house passes it on.

JSON values (payload, result, metadata, event details) travel as the JSON *text* that is stored: whoever needs the value
parses it, whoever only forwards it does not.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from tenure.jobs.ids import JobId

DEFAULT_TENANT = "default"
DEFAULT_QUEUE = "default"


class State(StrEnum):
    """The six states. Scheduled, backing off, blocked and paused are reasons why a queued job waits."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"
    DEAD = "dead"


TERMINAL_STATES = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELED, State.DEAD})


class ErrorKind(StrEnum):
    """What a failure is, which decides what follows from it."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"
    TIMEOUT = "timeout"
    UNKNOWN = "unknown"
    POISON = "poison"
    CANCELED = "canceled"
    LEASE_LOST = "lease_lost"
    DEADLINE = "deadline"


class CancelOutcome(StrEnum):
    """What is known of a cancellation; see the receipt."""

    PREVENTED = "prevented"
    REQUESTED = "requested"
    STOPPED = "stopped"
    FINISHED_FIRST = "finished_first"
    UNCONFIRMED = "unconfirmed"


class LostReason(StrEnum):
    """Why a lease token is not the current one."""

    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    SETTLED = "settled"
    FINISHED = "finished"
    CANCELED = "canceled"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the handler says it is: ``fraction`` 0 … 1, a short message, both optional."""

    fraction: float | None
    message: str | None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Who holds a running job. The token itself is in the claim's answer only, and nowhere else."""

    worker_id: str
    acquired_at: datetime
    expires_at: datetime
    heartbeat_at: datetime
    heartbeats: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancellation:
    """The request to cancel and what became of it."""

    outcome: CancelOutcome
    reason: str | None
    requested_by: str | None
    requested_at: datetime
    delivered_at: datetime | None
    confirmed_at: datetime | None
    accepted_version: int
    """The version that the first request met: a repeat of that request is answered, not refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobError:
    """Why an attempt failed; the message is redacted and bounded before it gets here."""

    kind: ErrorKind
    type: str | None
    message: str
    fingerprint: str
    attempt: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job, whole. ``payload`` and ``result`` are JSON text, or None where a listing left them out (or no result)."""

    id: JobId
    tenant: str
    kind: str
    queue: str
    state: State
    version: int
    priority: int
    schema_version: int
    payload: str | None
    result: str | None
    progress: Progress | None
    tags: tuple[str, ...]
    metadata: str
    attempts: int
    max_attempts: int
    releases: int
    available_at: datetime
    timeout_seconds: float | None
    deadline_at: datetime | None
    lease_seconds: float | None
    lease: Lease | None
    cancellation: Cancellation | None
    last_error: JobError | None
    idempotency_key: str | None
    concurrency_key: str | None
    submitted_by: str | None
    traceparent: str | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def heartbeats(self) -> int:
        """The count that, with the version, makes up the ETag: progress changes what is read, too."""
        return self.lease.heartbeats if self.lease else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job to be accepted. Relative times (``…_seconds``) are resolved by the database's clock.

    ``request_digest`` stands for the body as sent: the same key with another digest is refused.
    """

    id: JobId
    kind: str
    payload: str
    queue: str = DEFAULT_QUEUE
    tenant: str = DEFAULT_TENANT
    priority: int = 0
    schema_version: int = 1
    tags: tuple[str, ...] = ()
    metadata: str = "{}"
    max_attempts: int = 3
    available_at: datetime | None = None
    delay_seconds: float | None = None
    timeout_seconds: float | None = None
    deadline_at: datetime | None = None
    expires_in_seconds: float | None = None
    lease_seconds: float | None = None
    idempotency_key: str | None = None
    request_digest: bytes | None = None
    concurrency_key: str | None = None
    submitted_by: str | None = None
    traceparent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One fact of a job's history. ``type`` is a name of the transition table."""

    version: int
    at: datetime
    type: str
    state: State
    attempt: int
    worker_id: str | None
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A job just claimed, with the token that its holder must show; the only place where the token is."""

    job: Job
    token: str
