"""A job as JSON: asking for one, reading it, listing many."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from tenure.errors import FieldError
from tenure.wire.fields import (
    DelaySeconds,
    ExpiresInSeconds,
    Key,
    LeaseSeconds,
    MaxAttempts,
    Metadata,
    Name,
    Priority,
    Tag,
    Tags,
    Time,
    TimeInQuery,
    TimeoutSeconds,
    Version,
    WholeNumber,
    WorkerId,
)
from tenure.wire.reading import Answer, Request

StateName = Literal["queued", "running", "succeeded", "failed", "canceled", "dead"]
OutcomeName = Literal["prevented", "requested", "stopped", "finished_first", "unconfirmed"]


class EnqueueRequest(Request):
    """A job to be accepted. Fields that are absent or null take the kind's value, else the service's."""

    kind: Name = Field(description="what is to be done; the name that a handler is registered under")
    payload: Any = Field(None, description="any JSON value; absent is null")
    queue: Name | None = Field(None, description="default: the kind's queue, else `default`")
    priority: Priority | None = Field(None, description="higher goes first; default 0")
    delay_seconds: DelaySeconds | None = Field(None, description="not before this many seconds from now")
    available_at: Time | None = Field(None, description="not before this time; a past one is now")
    max_attempts: MaxAttempts | None = Field(None, description="attempts before the job is dead")
    timeout_seconds: TimeoutSeconds | None = Field(None, description="longest time of one attempt; default none")
    deadline_at: Time | None = Field(None, description="no attempt starts from then on")
    expires_in_seconds: ExpiresInSeconds | None = Field(None, description="the deadline, counted from now")
    lease_seconds: LeaseSeconds | None = Field(None, description="length of each lease")
    schema_version: Version | None = Field(None, description="version of the payload's form; default 1")
    idempotency_key: Key | None = Field(None, description="as the Idempotency-Key header")
    concurrency_key: Key | None = Field(None, description="groups jobs of a queue that share a limit")
    tags: Tags | None = Field(None, description="up to 20, to find the job by")
    metadata: Metadata | None = Field(None, description="an object of your own, up to 16 KiB, never interpreted")

    def rules(self) -> Iterator[FieldError]:
        yield from both_given(self, "delay_seconds", "available_at")
        yield from both_given(self, "deadline_at", "expires_in_seconds")


def both_given(request: Request, relative: str, absolute: str) -> Iterator[FieldError]:
    """Two ways to say one thing: only one of them may be used."""
    if getattr(request, relative) is not None and getattr(request, absolute) is not None:
        yield FieldError(pointer=f"/{relative}", message=f"give `{relative}` or `{absolute}`, not both")


class BatchRequest(Request):
    """Many jobs, accepted all together or not at all."""

    jobs: Annotated[list[EnqueueRequest], Field(min_length=1, max_length=10_000)]


class Progress(Answer):
    """How far the handler says it is."""

    fraction: Annotated[float, Field(ge=0, le=1)] | None
    message: str | None
    at: datetime


class Lease(Answer):
    """Who holds a running job, and until when. The token is shown to the holder only."""

    worker_id: str
    acquired_at: datetime
    expires_at: datetime
    heartbeat_at: datetime
    heartbeats: int


class Cancellation(Answer):
    """The request to cancel and what became of it."""

    outcome: OutcomeName
    reason: str | None
    requested_by: str | None
    requested_at: datetime
    delivered_at: datetime | None
    confirmed_at: datetime | None


class JobError(Answer):
    """Why the last failed attempt failed; redacted."""

    kind: str
    type: str | None
    message: str
    fingerprint: str
    attempt: int
    at: datetime


class Event(Answer):
    """One fact of a job's history."""

    version: int
    at: datetime
    type: str
    state: StateName
    attempt: int
    worker_id: str | None
    detail: dict[str, Any]


class Job(Answer):
    """One job. In lists `payload` and `result` are left out unless asked for."""

    id: UUID
    kind: str
    queue: str
    state: StateName
    version: int
    priority: int
    schema_version: int
    payload: Any = None
    result: Any = None
    progress: Progress | None
    tags: list[str]
    metadata: dict[str, Any]
    attempts: int
    max_attempts: int
    available_at: datetime
    timeout_seconds: float | None
    deadline_at: datetime | None
    lease_seconds: float | None
    lease: Lease | None
    cancellation: Cancellation | None
    last_error: JobError | None
    idempotency_key: str | None
    concurrency_key: str | None
    tenant: str
    submitted_by: str | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    traceparent: str | None = None
    events: list[Event] | None = Field(None, description="with `include=events` only")


class JobPage(Answer):
    """Jobs, newest first."""

    items: list[Job]
    next_cursor: str | None = Field(description="pass it as `cursor` for the next page; null at the end")


class EventPage(Answer):
    """Events, oldest first."""

    items: list[Event]
    next_cursor: str | None = Field(description="pass it as `cursor` for the next page; null at the end")


class BatchItem(Answer):
    """What became of one job of a batch."""

    job: Job
    replayed: bool = Field(description="whether its idempotency key had been accepted before")


class BatchAnswer(Answer):
    """The jobs of a batch, in the order given."""

    items: list[BatchItem]


class Page(Request):
    """Which page of a list."""

    limit: Annotated[WholeNumber, Field(ge=1, le=500)] = Field(50, description="most items in the answer")
    cursor: str | None = Field(None, description="`next_cursor` of the page before")


class _JobFilter(Page):
    queue: list[Name] = Field([], description="any of these queues")
    kind: list[Name] = Field([], description="any of these kinds")
    tag: list[Tag] = Field([], description="any of these tags")
    concurrency_key: list[Key] = Field([], description="any of these keys")
    fingerprint: list[Annotated[str, Field(min_length=1, max_length=64)]] = Field(
        [], description="any of these fingerprints of the last error"
    )
    created_after: TimeInQuery | None = Field(None, description="created later than this")
    created_before: TimeInQuery | None = Field(None, description="created earlier than this")
    include: list[Literal["payload", "result"]] = Field([], description="what to add to each job")


class JobsQuery(_JobFilter):
    """What to list; a repeated parameter means "any of these"."""

    state: list[StateName] = Field([], description="any of these states")
    worker_id: list[WorkerId] = Field([], description="held by any of these workers now")


class DeadQuery(_JobFilter):
    """Which dead jobs to list."""

    died_after: TimeInQuery | None = Field(None, description="dead since later than this")
    died_before: TimeInQuery | None = Field(None, description="dead since earlier than this")


class JobQuery(Request):
    """What to add to a job."""

    include: list[Literal["events"]] = Field([], description="`events`: the job's history, too")


class EventsQuery(Request):
    """Which part of the history."""

    limit: Annotated[WholeNumber, Field(ge=1, le=10_000)] = Field(1_000, description="most items in the answer")
    cursor: str | None = Field(None, description="`next_cursor` of the page before")


class NoQuery(Request):
    """This operation takes no query parameters."""
