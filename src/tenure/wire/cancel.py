"""Cancelling, retrying: the requests, and the receipt that says what is true."""

from collections.abc import Iterator
from datetime import datetime
from uuid import UUID

from pydantic import Field

from tenure.errors import FieldError
from tenure.wire.fields import DelaySeconds, ExpiresInSeconds, Reason, Time, Version
from tenure.wire.jobs import OutcomeName, StateName, both_given
from tenure.wire.reading import Answer, Request


class CancelRequest(Request):
    """A wish to cancel; every field may be left out, and so may the body."""

    reason: Reason | None = Field(None, description="why; shown in the receipt and the history")
    version: Version | None = Field(None, description="only if the job is at this version; as If-Match")


class CancelReceipt(Answer):
    """What is known of a cancellation now; read it again by cancelling again."""

    outcome: OutcomeName
    job_id: UUID
    state: StateName
    version: int
    requested_at: datetime
    requested_by: str | None
    reason: str | None
    delivered_at: datetime | None = Field(description="when the holder was told")
    confirmed_at: datetime | None = Field(description="when it was known for certain that nothing runs")
    worker_id: str | None = Field(None, description="who holds the job, while it is running")
    lease_expires_at: datetime | None = Field(None, description="when that lease ends unless renewed")


class RetryRequest(Request):
    """A wish to try a dead or failed job afresh; every field may be left out, and so may the body."""

    deadline_at: Time | None = Field(None, description="a new deadline")
    expires_in_seconds: ExpiresInSeconds | None = Field(None, description="a new deadline, counted from now")
    delay_seconds: DelaySeconds | None = Field(None, description="not before this many seconds from now")
    version: Version | None = Field(None, description="only if the job is at this version; as If-Match")
    reason: Reason | None = Field(None, description="why; shown in the history")

    def rules(self) -> Iterator[FieldError]:
        yield from both_given(self, "deadline_at", "expires_in_seconds")
