"""One attempt at one job: run its handler, tell it when to stop, and say what came of it."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from tenure.errors import InvalidInput, LeaseLost
from tenure.jobs.model import Claimed, ErrorKind
from tenure.jobs.redact import redact
from tenure.store.artifacts import Artifact
from tenure.store.settle import Outcome, OutcomeKind
from tenure.worker.alarms import Alarm, Alarms
from tenure.worker.broker import Broker
from tenure.worker.classify import frames_of, payload_refused
from tenure.worker.completion import Completion
from tenure.worker.context import JobContext
from tenure.worker.heartbeats import Heartbeats, HeldLease
from tenure.worker.outcome import Ended, Raised, checked_result, outcome_of, raised, returned
from tenure.worker.process import run_in_process
from tenure.worker.spec import HandlerSpec, Mode
from tenure.worker.stops import StopReason, Stops
from tenure.worker.threads import run_in_thread

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLimits:
    """``result_bytes``: the largest result, as JSON. ``process_grace_seconds``: what a child process gets after it was
    asked to stop, and again after SIGTERM, before it is killed."""

    result_bytes: int = 1_048_576
    process_grace_seconds: float = 2.0


class Attempt:
    """One attempt. Lives on the worker's event loop; `run` is called once.

    The timeout runs from here, the deadline from the claim's answer by what the database's clock said in it.
    """

    def __init__(
        self,
        claimed: Claimed,
        spec: HandlerSpec,
        *,
        broker: Broker,
        heartbeats: Heartbeats,
        alarms: Alarms,
        limits: AttemptLimits,
        asked_at: float,
        heard_at: float,
    ) -> None:
        """``asked_at`` and ``heard_at`` are `time.monotonic()` before the claim was sent, and when it was answered.

        Between them the claim may have waited for work. The lease is kept as if it began at the first, the deadline is
        counted from the second: neither a renewal nor a stop may come at a time that is wrong by the wait.
        """
        job, lease = claimed.job, claimed.job.lease
        assert lease is not None
        self.claimed = claimed
        self.job = job
        self.spec = spec
        self.stops = Stops()
        self.abandoned = False
        self.timeout_seconds = job.timeout_seconds if job.timeout_seconds is not None else spec.timeout_seconds
        self.lease = HeldLease(
            job_id=job.id,
            token=claimed.token,
            length_seconds=(lease.expires_at - lease.acquired_at).total_seconds(),
            asked_at=asked_at,
            on_cancel_requested=lambda: self.stops.request(StopReason.CANCEL),
            on_lost=self._on_lost,
        )
        self._deadline_at = (
            None if job.deadline_at is None else heard_at + (job.deadline_at - lease.acquired_at).total_seconds()
        )
        self._broker = broker
        self._heartbeats = heartbeats
        self._alarms = alarms
        self._limits = limits
        self._completion: Completion | None = None
        """The last one whose commit was asked for, or the one under way."""

    async def run(self) -> Outcome | None:
        """Runs the handler to its end. None when nothing is to be reported: the lease is lost, or the job is completed."""
        try:
            ended = await self._run_handler()
        except Exception as error:  # ours, not the handler's: the job must not hang because of it
            logger.exception("job %s: its attempt could not be carried out", self.job.id)
            ended = raised(error)
        if isinstance(ended, Raised) and not ended.stopping:
            job, told = self.job, redact(ended.error.message)  # as what is stored is
            logger.info("job %s (%s): attempt %d: %s: %s", job.id, job.kind, job.attempts, ended.error.type, told)
        return self._outcome(ended)

    def report_progress(self, fraction: float | None, message: str | None) -> None:
        """See JobContext.progress."""
        self._heartbeats.report_progress(self.lease, fraction, message)

    @contextlib.asynccontextmanager
    async def completion(self, result: Any, artifacts: Sequence[Artifact]) -> AsyncIterator[Any]:
        """See JobContext.completion."""
        before = self._completion
        if before is not None and before.committed:
            raise RuntimeError("this attempt has completed its job already")
        outcome = Outcome(
            job_id=self.job.id,
            token=self.claimed.token,
            kind=OutcomeKind.COMPLETE,
            result=checked_result(self.spec.dump_result(result), self._limits.result_bytes),
        )
        completion = self._broker.completion(outcome, artifacts, sealed=self.stops.sealed)
        self._completion = completion
        try:
            async with completion as connection:
                yield connection
        except LeaseLost:
            self.stops.request(StopReason.LOST)
            raise
        finally:
            if not completion.asked:
                self._completion = before
            if completion.committed:
                self._heartbeats.remove(self.lease)

    def _on_lost(self) -> None:
        # Its own commit ends the lease, too: then the commit, not the heartbeat, finds out what became of it.
        if self._completion is None or not self._completion.asked or self._completion.committed is False:
            self.stops.request(StopReason.LOST)

    async def _run_handler(self) -> Ended:
        try:
            payload = self.spec.validate(self.job.payload or "null") if self.spec.takes_payload else None
        except InvalidInput as refusal:
            return Raised(error=payload_refused(refusal), meant=True)
        except Exception as error:  # a validator that somebody wrote
            return raised(error)
        context = JobContext(job=self.job, attempt_version=self.job.version, stops=self.stops, link=self)
        arguments = (context, payload) if self.spec.takes_payload else (context,)
        alarms = self._set_alarms()
        try:
            match self.spec.mode:
                case Mode.ASYNC:
                    return await self._run_async(arguments)
                case Mode.THREAD:
                    name = f"tenure-{self.spec.kind}-{self.job.id}"
                    return await run_in_thread(lambda: self._call(arguments), name=name)
                case Mode.PROCESS:
                    return await run_in_process(
                        self.spec,
                        self.job,
                        stops=self.stops,
                        report_progress=self.report_progress,
                        max_result_bytes=self._limits.result_bytes,
                        grace_seconds=self._limits.process_grace_seconds,
                    )
        finally:
            for alarm in alarms:
                alarm.call_off()

    async def _run_async(self, arguments: tuple[Any, ...]) -> Ended:
        """In the task that `run` is in: it has been started, so a cancellation lands here, and nowhere else.

        Never raises: an exception that left a task could stop the event loop (SystemExit does).
        """
        task = asyncio.current_task()
        assert task is not None
        self.stops.interrupt = task.cancel
        self.stops.deliver()
        try:
            value = await self.spec.function(*arguments)
        except BaseException as error:
            return self._raised(error)
        finally:
            self.stops.interrupt = _nothing
        return returned(self.spec, value, max_result_bytes=self._limits.result_bytes)

    def _call(self, arguments: tuple[Any, ...]) -> Ended:
        try:
            value = self.spec.function(*arguments)
        except BaseException as error:
            return self._raised(error)
        return returned(self.spec, value, max_result_bytes=self._limits.result_bytes)

    def _raised(self, error: BaseException) -> Raised:
        if isinstance(error, asyncio.CancelledError):
            # Only ours when we cancelled: a CancelledError that the handler's own code raised is a bug like any other.
            return raised(error, stopping=self.stops.requested)
        ended = raised(error)
        if ended.error.kind is ErrorKind.UNKNOWN:  # a bug: whoever mends it must find it
            logger.info("job %s: %s was raised at\n%s", self.job.id, ended.error.type, frames_of(error))
        return ended

    def _outcome(self, ended: Ended) -> Outcome | None:
        completion = self._completion
        if completion is not None and completion.asked:
            if completion.committed:
                if isinstance(ended, Raised) and not ended.stopping:
                    logger.warning(
                        "job %s has succeeded; afterwards its handler raised %s", self.job.id, ended.error.type
                    )
                return None
            if completion.committed is None and StopReason.LOST not in self.stops:
                # Whether it committed is not known. Giving the job back is right either way: if it did, the store says
                # that this attempt is settled; if it did not, the handler's writes are undone and must be made again.
                return Outcome(job_id=self.job.id, token=self.claimed.token, kind=OutcomeKind.RELEASE)
        return outcome_of(
            ended, self.stops, job_id=self.job.id, token=self.claimed.token, timeout_seconds=self.timeout_seconds
        )

    def _set_alarms(self) -> Sequence[Alarm]:
        alarms: list[Alarm] = []
        if self.timeout_seconds is not None:
            alarms.append(self._alarms.set(self.timeout_seconds, lambda: self.stops.request(StopReason.TIMEOUT)))
        if self._deadline_at is not None:
            left = max(self._deadline_at - time.monotonic(), 0.0)
            alarms.append(self._alarms.set(left, lambda: self.stops.request(StopReason.DEADLINE)))
        return alarms


def _nothing() -> None:
    pass
