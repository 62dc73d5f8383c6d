"""The kinds that the measured workers serve: `tenure worker --app benchmarks.application:jobs`."""

import asyncio
import os
from pathlib import Path
from typing import Any

from benchmarks.recording import RECORD_FOLDER, Recorder
from tenure import JobContext, JobRegistry

QUEUE = "benchmark"
NOOP = "benchmark.noop"
HOLD = "benchmark.hold"

jobs = JobRegistry()

_recorder: Recorder | None = None


def _record(payload: dict[str, Any]) -> None:
    # Made at the first job: the API loads this module, too, and has nothing to record.
    global _recorder
    if _recorder is None:
        _recorder = Recorder(Path(os.environ[RECORD_FOLDER]))
        _recorder.start()
    _recorder(payload)


@jobs.handler(NOOP, queue=QUEUE, timeout_seconds=300)
async def noop(context: JobContext, payload: dict[str, Any]) -> None:
    """Does nothing, under all that a real job has: lease, heartbeats, timeout, retries, events."""
    _record(payload)


@jobs.handler(HOLD, queue=QUEUE)
async def hold(context: JobContext, payload: dict[str, Any]) -> None:
    """Holds its lease for ``seconds``."""
    _record(payload)
    await asyncio.sleep(payload["seconds"])
