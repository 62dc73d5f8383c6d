"""What a worker says and hears: claim, heartbeat, and the four ways to give a lease back."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BeforeValidator, Field, model_validator

from tenure.errors import FieldError
from tenure.wire.fields import (
    DelaySeconds,
    Id,
    LeaseSeconds,
    Name,
    RetryAfterSeconds,
    Token,
    Version,
    WorkerId,
)
from tenure.wire.jobs import Job, StateName
from tenure.wire.problems import Problem
from tenure.wire.reading import Answer, Request

DirectiveName = Literal["quiet", "terminate"]
ReportableKind = Literal["transient", "permanent", "timeout", "unknown", "poison", "canceled", "deadline"]


class KindWanted(Request):
    """A kind that the worker serves, and which versions of its payload."""

    kind: Name
    schema_versions: list[Version] | None = Field(None, description="default: any")


def _named(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


class ClaimRequest(Request):
    """A worker asks for work."""

    worker_id: WorkerId = Field(description="who asks; shown as the holder")
    queues: Annotated[list[Name], Field(min_length=1, max_length=1_000)] = Field(description="served queues")
    kinds: (
        Annotated[
            list[Annotated[KindWanted, BeforeValidator(_named, json_schema_input_type=Name | KindWanted)]],
            Field(min_length=1, max_length=1_000),
        ]
        | None
    ) = Field(None, description="served kinds; default: any")
    max_jobs: Annotated[int, Field(ge=1, le=1_000)] = Field(1, description="most jobs to lease now")
    lease_seconds: LeaseSeconds | None = Field(None, description="default: the job's, its kind's, the service's")
    wait_seconds: Annotated[float, Field(ge=0, le=30)] = Field(0, description="how long to wait while there is none")
    capacity: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description="jobs the worker can run at once"
    )
    version: Annotated[str, Field(max_length=200)] | None = Field(None, description="the worker's version")
    host: Annotated[str, Field(max_length=200)] | None = Field(None, description="where the worker runs")
    restarted: bool = Field(
        False, description="the first claim of a new process: what its name was told before is void"
    )


class LeaseGrant(Answer):
    """A job that is now yours, until `lease_expires_at` unless you send heartbeats."""

    job: Job
    lease_token: str = Field(description="show it with every report; it is shown nowhere else")
    lease_expires_at: datetime
    heartbeat_every_seconds: float = Field(description="a third of the lease")


class ClaimAnswer(Answer):
    """The leases granted; none after the wait."""

    leases: list[LeaseGrant]
    directive: DirectiveName | None = Field(None, description="what an operator told this worker to do")


class ProgressReport(Request):
    """How far the handler is."""

    fraction: Annotated[float, Field(ge=0, le=1)] | None = None
    message: Annotated[str, Field(max_length=1_000)] | None = None


class HeartbeatRequest(Request):
    """A sign of life."""

    lease_token: Token
    progress: ProgressReport | None = Field(None, description="replaces what was known")


class HeartbeatAnswer(Answer):
    """The lease goes on."""

    lease_expires_at: datetime
    cancel_requested: bool = Field(description="stop as soon as you can, then report")
    deadline_at: datetime | None
    directive: DirectiveName | None = Field(None, description="what an operator told this worker to do")


class HeartbeatItem(HeartbeatRequest):
    """A sign of life for one of several jobs."""

    job_id: Id


class HeartbeatManyRequest(Request):
    """Signs of life for all that a worker holds."""

    leases: Annotated[list[HeartbeatItem], Field(min_length=1, max_length=10_000)]


class HeartbeatManyItem(Answer):
    """What became of one heartbeat: the lease goes on, or the problem."""

    job_id: UUID
    status: int
    lease_expires_at: datetime | None = None
    cancel_requested: bool | None = None
    deadline_at: datetime | None = None
    directive: DirectiveName | None = None
    problem: Problem | None = None


class HeartbeatManyAnswer(Answer):
    """One item a heartbeat, in the order given."""

    items: list[HeartbeatManyItem]


class ReportedFailure(Request):
    """What went wrong in an attempt."""

    kind: ReportableKind = Field(description="decides what follows: retried, failed, dead or canceled")
    type: Annotated[str, Field(max_length=200)] | None = Field(None, description="the exception's name")
    message: str = Field(description="redacted and cut to 2,000 characters before it is stored")


class CompleteRequest(Request):
    """The job is done."""

    lease_token: Token
    result: Any = Field(None, description="any JSON value; absent is null")


class FailRequest(Request):
    """The attempt failed."""

    lease_token: Token
    error: ReportedFailure
    retry_after_seconds: RetryAfterSeconds | None = Field(None, description="not tried again before this")


class ReleaseRequest(Request):
    """The job goes back, and the attempt does not count."""

    lease_token: Token


class SnoozeRequest(Request):
    """As a release, but available later."""

    lease_token: Token
    delay_seconds: DelaySeconds


class SettleAnswer(Answer):
    """Where the job went."""

    job_id: UUID
    state: StateName
    version: int
    available_at: datetime | None


class OutcomeItem(Request):
    """The outcome of one of several attempts."""

    job_id: Id
    lease_token: Token
    outcome: Literal["complete", "fail", "release", "snooze"]
    result: Any = Field(None, description="with `complete`")
    error: ReportedFailure | None = Field(None, description="with `fail`, required")
    retry_after_seconds: RetryAfterSeconds | None = Field(None, description="with `fail`")
    delay_seconds: DelaySeconds | None = Field(None, description="with `snooze`, required")

    @model_validator(mode="before")
    @classmethod
    def _nulls_are_absent(cls, value: Any) -> Any:
        return {name: item for name, item in value.items() if item is not None} if isinstance(value, dict) else value

    def rules(self) -> Iterator[FieldError]:
        allowed = {"complete": {"result"}, "fail": {"error", "retry_after_seconds"}, "snooze": {"delay_seconds"}}
        for name in ("result", "error", "retry_after_seconds", "delay_seconds"):
            if name in self.model_fields_set and name not in allowed.get(self.outcome, set()):
                yield FieldError(pointer=f"/{name}", message=f"does not go with the outcome `{self.outcome}`")
        if self.outcome == "fail" and self.error is None:
            yield FieldError(pointer="/error", message="is required with the outcome `fail`")
        if self.outcome == "snooze" and self.delay_seconds is None:
            yield FieldError(pointer="/delay_seconds", message="is required with the outcome `snooze`")


class SettleManyRequest(Request):
    """The outcomes of all attempts that just ended."""

    outcomes: Annotated[list[OutcomeItem], Field(min_length=1, max_length=10_000)]

    def rules(self) -> Iterator[FieldError]:
        for position, outcome in enumerate(self.outcomes):
            for rule in outcome.rules():
                yield FieldError(pointer=f"/outcomes/{position}{rule.pointer}", message=rule.message)


class SettleManyItem(Answer):
    """What became of one outcome: where the job went, or the problem."""

    job_id: UUID
    status: int
    state: StateName | None = None
    version: int | None = None
    available_at: datetime | None = None
    problem: Problem | None = None


class SettleManyAnswer(Answer):
    """One item an outcome, in the order given."""

    items: list[SettleManyItem]
