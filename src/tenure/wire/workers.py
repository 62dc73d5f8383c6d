"""Who works here, and what an operator tells them."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field

from tenure.wire.fields import Reason
from tenure.wire.jobs import Page
from tenure.wire.leases import DirectiveName
from tenure.wire.reading import Answer, Request


class WorkersQuery(Page):
    """Which page of workers."""


class DirectRequest(Request):
    """What an operator says beside the order itself; the body may be left out."""

    reason: Reason | None = Field(None, description="why; shown with the worker")


class Worker(Answer):
    """A worker as it is known; what it never said is null."""

    id: str
    queues: list[str] | None
    kinds: list[str] | None = Field(description="null: any, or never said")
    capacity: int | None
    version: str | None
    host: str | None
    directive: DirectiveName | None = Field(description="what it was told; it hears with its next claim or heartbeat")
    directed_at: datetime | None
    directed_by: str | None
    directive_reason: str | None
    first_seen_at: datetime | None
    last_seen_at: datetime | None
    running: int = Field(description="jobs it holds")


class WorkerPage(Answer):
    """A page of workers, by name."""

    items: list[Worker]
    next_cursor: str | None


class HeldJob(Answer):
    """A job in a worker's hands."""

    job_id: UUID
    kind: str
    queue: str
    attempts: int
    acquired_at: datetime
    expires_at: datetime
    heartbeat_at: datetime


class WorkerDetail(Worker):
    """A worker with all that it holds, longest first."""

    holds: Annotated[list[HeldJob], Field(max_length=1_000)]
