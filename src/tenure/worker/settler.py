"""Reporting outcomes until they are accepted.

Whatever finished while one batch was written makes up the next; there is no timer. An outcome is repeated under its own
token until the store has answered: it was accepted (now or before), or the lease is lost. A batch that fails is tried
again in smaller ones, so that one row that somebody locks, or one value that cannot be stored, keeps nobody waiting.
"""

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tenure.errors import InvalidInput, LeaseLost, NotFound, Unavailable
from tenure.jobs.decisions import ReportedError
from tenure.jobs.model import ErrorKind, State
from tenure.store.settle import Answer, Outcome, OutcomeKind, Settled
from tenure.worker.broker import Broker

logger = logging.getLogger(__name__)

_MAX_BATCH = 500
_SHRINK = 8
_WAIT_SECONDS = (0.05, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """An outcome on its way; ``on_settled`` is called once, when nothing more is to be done about it."""

    outcome: Outcome
    queue: str
    on_settled: Callable[[], None]
    replaced: bool = False


class Settler:
    """One loop that writes what was put into it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._pending: deque[Report] = deque()
        self._writing = 0
        self._batch = _MAX_BATCH
        self._wait_seconds = _WAIT_SECONDS[0]
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()

    @property
    def pending(self) -> int:
        """Outcomes that are not accepted yet."""
        return len(self._pending) + self._writing

    def put(self, report: Report) -> None:
        """Reports this outcome, as soon as the one before is written."""
        self._pending.append(report)
        self._emptied.clear()
        self._filled.set()

    async def drained(self) -> None:
        """Returns when everything is settled."""
        await self._emptied.wait()

    async def run(self) -> None:
        """Settles until cancelled. Nothing else ends it."""
        while True:
            await self._filled.wait()
            try:
                await self.step()
            except Exception:
                logger.exception("settling failed, trying again")
                await self._back_off()

    async def step(self) -> None:
        """Writes one batch."""
        batch = [self._pending.popleft() for _ in range(min(len(self._pending), self._batch))]
        if not batch:
            self._filled.clear()
            self._emptied.set()
            return
        self._writing = len(batch)
        try:
            answers = await self._broker.settle([report.outcome for report in batch])
        except Unavailable as error:
            logger.warning("%d outcome(s) cannot be reported now, trying again: %s", self.pending, error)
            self._put_back(batch)
            await self._back_off()
        except Exception as error:
            if len(batch) > 1:
                self._put_back(batch)
            else:
                self._replace(batch[0], f"{type(error).__name__}", error)
        except BaseException:
            self._put_back(batch)
            raise
        else:
            self._wait_seconds = _WAIT_SECONDS[0]
            self._batch = min(self._batch * _SHRINK, _MAX_BATCH)
            self._take(batch, answers)
        finally:
            self._writing = 0

    def _put_back(self, batch: Sequence[Report]) -> None:
        """To the end: what did not fail yet goes first, and the next batches are smaller."""
        self._pending.extend(batch)
        self._batch = max(self._batch // _SHRINK, 1) if len(batch) > 1 else 1

    async def _back_off(self) -> None:
        await asyncio.sleep(self._wait_seconds * (0.5 + random.random()))  # noqa: S311 - spreads load, hides nothing
        self._wait_seconds = min(self._wait_seconds * 2, _WAIT_SECONDS[1])

    def _take(self, batch: Sequence[Report], answers: Sequence[Answer]) -> None:
        for report, answer in zip(batch, answers, strict=True):
            job_id = report.outcome.job_id
            match answer:
                case Settled():
                    logger.debug("job %s is %s", job_id, answer.state)
                    if report.outcome.kind is OutcomeKind.RELEASE and answer.state is State.QUEUED:
                        self._broker.work_returned(report.queue)
                    _finish(report)
                case LeaseLost():
                    logger.info("job %s: %s", job_id, answer)
                    _finish(report)
                case NotFound():
                    logger.warning("job %s: %s", job_id, answer)
                    _finish(report)
                case InvalidInput():
                    self._replace(report, str(answer), answer)

    def _replace(self, report: Report, why: str, error: Exception) -> None:
        """What the store will not take becomes a failure that says so; if even that is refused, the lease expires."""
        logger.error("job %s: its outcome cannot be stored: %s", report.outcome.job_id, why, exc_info=error)
        if report.replaced:
            _finish(report)
            return
        kind = ErrorKind.UNKNOWN if isinstance(error, InvalidInput) else ErrorKind.PERMANENT
        failure = ReportedError(kind=kind, type="UnstorableOutcome", message=f"the outcome could not be stored: {why}")
        outcome = replace(report.outcome, kind=OutcomeKind.FAIL, result=None, error=failure, delay_seconds=None)
        self._pending.append(replace(report, outcome=outcome, replaced=True))


def _finish(report: Report) -> None:
    with contextlib.suppress(Exception):
        report.on_settled()
