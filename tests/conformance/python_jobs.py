"""What the kit has jobs do, for `tenure worker --url`."""

import asyncio
import os
from typing import Any

from tenure import JobContext, JobRegistry, PermanentError, RetryLater

jobs = JobRegistry()


@jobs.handler("verify.worker", queue=os.environ.get("TENURE_QUEUE", "default"))
async def obey(context: JobContext, payload: dict[str, Any]) -> Any:
    """Does as the payload tells."""
    if payload["do"] == "sleep":
        await asyncio.sleep(payload["seconds"])
    if payload["do"] == "fail":
        raise (PermanentError if payload["kind"] == "permanent" else RetryLater)(payload["message"])
    return payload["result"]
