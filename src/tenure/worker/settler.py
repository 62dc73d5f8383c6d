"""Reporting outcomes until they are accepted.

Whatever finished while one batch was written makes up the next; there is no timer. An outcome is repeated under its own
token until the store has answered: it was accepted (now or before), or the lease is lost. A batch that fails is tried
again in smaller ones, after what is fresh, so that one row that somebody locks, or one value that cannot be stored, does
not hold up the rest.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tenure.errors import BodyTooLarge, InvalidInput, LeaseLost, NotFound, Unavailable
from tenure.jobs.decisions import ReportedError
from tenure.jobs.model import ErrorKind, State
from tenure.store.settle import Outcome, OutcomeKind, Settled
from tenure.worker.broker import Broker, SettleAnswer

logger = logging.getLogger(__name__)

_MAX_BATCH = 500
_WAIT_SECONDS = (0.05, 1.0)
_STUBBORN_SECONDS = 2.0
"""A row that stays locked is tried this often: each try keeps the others waiting for a lock timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """An outcome on its way; ``on_settled`` is called once, when nothing more is to be done about it."""

    outcome: Outcome
    queue: str
    on_settled: Callable[[], None]
    replaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stubborn:
    """A report that failed ``failures`` times; ``not_before`` is of `time.monotonic()`."""

    report: Report
    failures: int
    not_before: float


class Settler:
    """One loop that writes what was put into it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._fresh: deque[Report] = deque()
        self._doubtful: deque[Report] = deque()
        """Of a batch that failed: tried by ones, then by twos, by fours …"""
        self._stubborn: deque[_Stubborn] = deque()
        """Failed more than once: tried by ones, and ever more rarely."""
        self._writing = 0
        self._probe = 1
        self._wait_seconds = _WAIT_SECONDS[0]
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()

    @property
    def pending(self) -> int:
        """Outcomes that are not accepted yet."""
        return len(self._fresh) + len(self._doubtful) + len(self._stubborn) + self._writing

    def put(self, report: Report) -> None:
        """Reports this outcome, as soon as the batch under way is written."""
        self._fresh.append(report)
        self._emptied.clear()
        self._filled.set()

    async def drained(self) -> None:
        """Returns when everything is settled."""
        await self._emptied.wait()

    async def run(self) -> None:
        """Settles until cancelled. Nothing else ends it."""
        while True:
            try:
                await self.step()
            except Exception:
                logger.exception("settling failed, trying again")
                await self._back_off()

    async def step(self) -> None:
        """Waits until there is something to write, and writes one batch."""
        if self._fresh:
            failures, batch = 0, _taken(self._fresh, _MAX_BATCH)
        elif self._doubtful:
            failures, batch = 1, _taken(self._doubtful, self._probe)
        else:
            stubborn = await self._next_stubborn()
            if stubborn is None:
                return
            failures, batch = stubborn.failures, [stubborn.report]
        self._writing = len(batch)
        try:
            answers = await self._broker.settle([report.outcome for report in batch])
        except Unavailable as error:
            logger.warning("%d outcome(s) cannot be reported now, trying again: %s", self.pending, error)
            self._put_back(batch, failures, wait=True)
            await self._back_off()
        except Exception as error:
            if len(batch) > 1:
                self._put_back(batch, failures, wait=False)
            else:
                self._replace(batch[0], type(error).__name__, error)
        except BaseException:
            self._fresh.extendleft(reversed(batch))
            raise
        else:
            self._wait_seconds = _WAIT_SECONDS[0]
            self._probe = min(self._probe * 2, _MAX_BATCH)
            self._take(batch, answers)
        finally:
            self._writing = 0
            if not self.pending:
                self._emptied.set()

    async def _next_stubborn(self) -> _Stubborn | None:
        """The next that is due; None after a wait, for something else may be there now."""
        self._filled.clear()
        first = min(self._stubborn, key=lambda item: item.not_before, default=None)
        left = None if first is None else first.not_before - time.monotonic()
        if first is not None and left is not None and left <= 0:
            self._stubborn.remove(first)
            return first
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._filled.wait()
        return None

    def _put_back(self, batch: Sequence[Report], failures: int, *, wait: bool) -> None:
        self._probe = 1
        if failures == 0:
            self._doubtful.extend(batch)
            return
        seconds = min(_WAIT_SECONDS[0] * 2**failures, _STUBBORN_SECONDS) if wait else 0.0
        not_before = time.monotonic() + seconds
        self._stubborn.extend(_Stubborn(report=it, failures=failures + 1, not_before=not_before) for it in batch)

    async def _back_off(self) -> None:
        await asyncio.sleep(self._wait_seconds * (0.5 + random.random()))  # noqa: S311 - spreads load, hides nothing
        self._wait_seconds = min(self._wait_seconds * 2, _WAIT_SECONDS[1])

    def _take(self, batch: Sequence[Report], answers: Sequence[SettleAnswer]) -> None:
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
                case InvalidInput() | BodyTooLarge():
                    self._replace(report, str(answer), answer)

    def _replace(self, report: Report, why: str, error: Exception) -> None:
        """What the store will not take becomes a failure that says so; if even that is refused, the lease expires."""
        logger.error("job %s: its outcome cannot be stored: %s", report.outcome.job_id, why)
        if report.replaced:
            _finish(report)
            return
        kind = ErrorKind.UNKNOWN if isinstance(error, InvalidInput) else ErrorKind.PERMANENT
        failure = ReportedError(kind=kind, type="UnstorableOutcome", message=f"the outcome could not be stored: {why}")
        outcome = replace(report.outcome, kind=OutcomeKind.FAIL, result=None, error=failure, delay_seconds=None)
        self._fresh.append(replace(report, outcome=outcome, replaced=True))


def _taken(reports: deque[Report], limit: int) -> list[Report]:
    return [reports.popleft() for _ in range(min(len(reports), limit))]


def _finish(report: Report) -> None:
    try:
        report.on_settled()
    except Exception:
        logger.exception("job %s is settled, but its slot was not told", report.outcome.job_id)
