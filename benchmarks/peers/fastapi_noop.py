"""What FastAPI and Pydantic cost by themselves: the same request, checked and answered, and nothing stored.

A reference for the rate of enqueues over HTTP, not a queue.
"""

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from fastapi import FastAPI
from pydantic import BaseModel, Field

app = FastAPI()


class Submission(BaseModel):
    kind: str = Field(min_length=1, max_length=200)
    payload: Any = None
    queue: str = "default"
    priority: int = Field(0, ge=-100, le=100)
    timeout_seconds: float | None = None


class Submitted(BaseModel):
    id: str
    kind: str
    queue: str
    priority: int
    payload: Any
    created_at: datetime


@app.post("/jobs", status_code=202)
async def submit(submission: Submission) -> Submitted:
    """Checks the body and answers."""
    return Submitted(
        id=str(uuid4()),
        kind=submission.kind,
        queue=submission.queue,
        priority=submission.priority,
        payload=submission.payload,
        created_at=datetime.now(UTC),
    )


@app.get("/readyz")
async def ready() -> dict[str, str]:
    """So that it is waited for as a service is."""
    return {"status": "ready"}
