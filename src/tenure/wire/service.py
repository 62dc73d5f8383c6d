"""Artifacts of a job, and the state of the service itself."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from tenure.wire.reading import Answer


class ArtifactInfo(Answer):
    """A file that a job left for its submitter."""

    name: str
    bytes: int
    rows: int | None
    sha256: str
    content_type: str
    created_at: datetime


class ArtifactPage(Answer):
    """A job's files, by name."""

    items: list[ArtifactInfo]
    next_cursor: str | None


class Health(Answer):
    """The process is alive; nothing is said about its database."""

    status: Literal["ok"]


class Readiness(Answer):
    """Whether to send requests here, and why not."""

    status: Literal["ready", "not_ready"]
    reasons: list[str] = Field(description="why not; empty when ready")
