"""What a handler is given besides its payload."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Generator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from tenure.errors import JobCanceled
from tenure.jobs.model import Job
from tenure.jobs.redact import redact
from tenure.store.artifacts import Artifact
from tenure.worker.stops import StopReason, Stops

MAX_PROGRESS_CHARACTERS = 500
"""A line for a person: it is written with every heartbeat and read in every listing."""


class AttemptLink(Protocol):
    """The way from a handler back to the attempt that runs it: within the process, or out of a child process."""

    def report_progress(self, fraction: float | None, message: str | None) -> None: ...

    def completion(self, result: Any, artifacts: Sequence[Artifact]) -> AbstractAsyncContextManager[Any]: ...


class JobContext:
    """The job, this attempt at it, and the ways to report and to stop.

    ``job`` is the job as it was claimed. ``attempt_version`` identifies the attempt: the version of its `leased` event,
    which grows with every attempt. Hand it downstream as a fence, and name what is temporary after it.
    """

    __slots__ = ("_link", "_stops", "attempt_version", "job")

    def __init__(self, *, job: Job, attempt_version: int, stops: Stops, link: AttemptLink) -> None:
        self.job = job
        self.attempt_version = attempt_version
        self._stops = stops
        self._link = link

    @property
    def idempotency_key(self) -> str:
        """The same text in every attempt at this job, and in no other job: the key for what is done downstream."""
        return str(self.job.id)

    @property
    def cancel_requested(self) -> bool:
        """Whether somebody asked to cancel this job."""
        return StopReason.CANCEL in self._stops

    @property
    def should_stop(self) -> bool:
        """Whether there is any reason to stop: cancel request, timeout, deadline, lost lease, or the worker's end.

        For handlers in threads, which nothing else can stop.
        """
        return self._stops.requested

    def raise_if_canceled(self) -> None:
        """Raises JobCanceled when this attempt should stop, whatever the reason; let it pass through.

        What is then reported follows from the reason: an attempt that ran out of time is not called canceled.
        """
        reason = self._stops.weightiest
        if reason is not None:
            raise JobCanceled(_SENTENCES[reason])

    def progress(self, fraction: float | None, message: str | None = None) -> Awaitable[None]:
        """Notes how far it is: ``fraction`` 0 … 1 or None, and a line of up to 500 characters.

        Costs next to nothing: it is sent with the next heartbeat, about once a second at most, the latest wins. Await
        it in an async handler; in a plain one calling it is enough.
        """
        if fraction is not None:
            fraction = None if math.isnan(fraction) else min(max(float(fraction), 0.0), 1.0)
        self._link.report_progress(
            fraction, None if message is None else redact(str(message))[:MAX_PROGRESS_CHARACTERS]
        )
        return _Done()

    def completion(self, result: Any, artifacts: Sequence[Artifact] = ()) -> AbstractAsyncContextManager[Any]:
        """A transaction in which the handler's own writes and the job's success commit together, or neither does.

        ``async with context.completion(result) as connection:`` gives asyncpg's connection to Tenure's own database.
        When the block ends, the artifacts are registered, the job succeeds with ``result``, and it commits; what the
        handler returns afterwards is ignored. For async handlers on the worker's event loop only.

        Raises LeaseLost (the job is no longer this attempt's; nothing was written), DatabaseUnavailable (nothing was
        written), CompletionUnavailable (no database here). What the block raises passes through, rolled back.
        """
        return self._link.completion(result, artifacts)

    @contextlib.asynccontextmanager
    async def uninterruptible(self) -> AsyncIterator[None]:
        """For the irreversible step: cancel, timeout, deadline and drain wait for its end; a lost lease does not."""
        self._stops.hold()
        try:
            yield
        finally:
            self._stops.unhold()
        # What came meanwhile is raised here, not at whatever the handler happens to await next.
        await asyncio.sleep(0)


class _Done:
    """An awaitable with nothing to wait for, which nobody has to await."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


_SENTENCES = {
    StopReason.LOST: "the lease is lost: another attempt may hold the job",
    StopReason.CANCEL: "cancellation was requested",
    StopReason.DEADLINE: "the job's deadline has passed",
    StopReason.TIMEOUT: "the attempt ran longer than its timeout",
    StopReason.DRAIN: "the worker is stopping",
}
