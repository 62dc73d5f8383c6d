"""Long polls for work, without a crowd at the door.

Waiters who want the same work stand in one line. A hint, or the passing of a second, sends the first of the line to look;
whoever gets something leaves and sends the next. So one new job costs one claim that finds it and one that does not,
however many wait; and everyone who asks looks once by himself before he stands in line.
"""

import asyncio
import logging
import time
from collections import deque
from dataclasses import dataclass, field

from tenure.api.presence import first_of
from tenure.api.services import Services
from tenure.jobs.model import Claimed
from tenure.store import notify
from tenure.store.claim import KindSelector, claim
from tenure.store.settle import Outcome, OutcomeKind, settle
from tenure.store.workers import Directive, WorkerSeen, seen

logger = logging.getLogger(__name__)

_POLL_SECONDS = 1.0
"""A delayed job or a retry becomes due without a hint; the first of each line finds it within this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkWanted:
    """What a caller serves: who stands in one line with whom."""

    queues: tuple[str, ...]
    kinds: tuple[KindSelector, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """A caller: its name, how many jobs it takes, and for how long it asks to hold them."""

    worker_id: str
    max_jobs: int
    lease_seconds: float | None
    capacity: int | None = None
    version: str | None = None
    host: str | None = None
    restarted: bool = False


@dataclass(slots=True, eq=False)
class _Waiter:
    sent: asyncio.Event = field(default_factory=asyncio.Event)


_SEEN_AGAIN_SECONDS = 5.0
"""A worker that claims all the time is noted this often: that is how late it hears what it was told, when it is idle."""
_REMEMBERED_WORKERS = 10_000


class ClaimDesk:
    """Hands out leases, now or when there is work; knows who asks."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._lines: dict[WorkWanted, deque[_Waiter]] = {}
        self._seen: dict[str, tuple[float, Directive | None]] = {}
        services.listener.subscribe(self._on_hint)

    async def claim(
        self, wanted: WorkWanted, claimant: Claimant, *, wait_seconds: float, gone: asyncio.Event
    ) -> list[Claimed]:
        """Leases for the caller; none after ``wait_seconds``, or when the service stops, or once ``gone`` is set.

        What was claimed for a caller who left meanwhile is released at once.
        """
        if wait_seconds <= 0:
            return await self._look(wanted, claimant, gone)
        end = time.monotonic() + wait_seconds
        waiter = _Waiter()
        line = self._lines.setdefault(wanted, deque())
        # In line before the first look: a hint that comes while it runs must not be lost.
        line.append(waiter)
        try:
            claimed = await self._look(wanted, claimant, gone)
            return claimed or await self._wait(wanted, claimant, line, waiter, end, gone)
        finally:
            line.remove(waiter)
            if line:
                line[0].sent.set()
            elif self._lines.get(wanted) is line:
                del self._lines[wanted]

    async def directive(self, wanted: WorkWanted, claimant: Claimant) -> Directive | None:
        """Notes that the worker is there; says what an operator told it."""
        now = time.monotonic()
        seen_at, directive = self._seen.get(claimant.worker_id, (0.0, None))
        if seen_at and not claimant.restarted and now - seen_at < _SEEN_AGAIN_SECONDS:
            return directive
        kinds = None if wanted.kinds is None else [kind.kind for kind in wanted.kinds]
        async with self._services.database.connection() as connection:
            directive = await seen(
                connection,
                WorkerSeen(
                    id=claimant.worker_id,
                    queues=wanted.queues,
                    kinds=kinds,
                    capacity=claimant.capacity,
                    version=claimant.version,
                    host=claimant.host,
                    restarted=claimant.restarted,
                ),
            )
        if len(self._seen) >= _REMEMBERED_WORKERS:
            self._seen.clear()
        self._seen[claimant.worker_id] = (now, directive)
        return directive

    async def _wait(
        self,
        wanted: WorkWanted,
        claimant: Claimant,
        line: deque[_Waiter],
        waiter: _Waiter,
        end: float,
        gone: asyncio.Event,
    ) -> list[Claimed]:
        draining = self._services.lifecycle.draining
        while (left := end - time.monotonic()) > 0 and not draining.is_set() and not gone.is_set():
            first = line[0] is waiter
            await first_of(waiter.sent, gone, draining, timeout_seconds=min(left, _POLL_SECONDS) if first else left)
            if gone.is_set() or draining.is_set() or not (waiter.sent.is_set() or first):
                continue
            waiter.sent.clear()
            if claimed := await self._look(wanted, claimant, gone):
                return claimed
        return []

    async def _look(self, wanted: WorkWanted, claimant: Claimant, gone: asyncio.Event) -> list[Claimed]:
        services = self._services
        claimed: list[Claimed] = []
        async with services.database.connection() as connection:
            for part in range(connection.parts):
                claimed += await claim(
                    connection,
                    worker_id=claimant.worker_id,
                    queues=wanted.queues,
                    kinds=wanted.kinds,
                    limit=claimant.max_jobs - len(claimed),
                    lease_seconds=claimant.lease_seconds,
                    default_lease_seconds=services.settings.jobs.lease_seconds,
                    part=part,
                )
                if len(claimed) == claimant.max_jobs:
                    break
        if claimed and gone.is_set():
            await self._give_back(claimed, claimant)
            return []
        return claimed

    async def _give_back(self, claimed: list[Claimed], claimant: Claimant) -> None:
        services = self._services
        outcomes = [Outcome(job_id=item.job.id, token=item.token, kind=OutcomeKind.RELEASE) for item in claimed]
        async with services.database.transaction() as connection:
            await settle(connection, outcomes, policy_of=services.registry.policy_of, random=lambda: 0.0)
        logger.info(
            "worker %s left while %d jobs were claimed for it; they are queued again", claimant.worker_id, len(claimed)
        )
        for queue in {item.job.queue for item in claimed}:
            services.bell.ring(notify.WORK, queue)

    def _on_hint(self, topic: str, subject: str) -> None:
        if topic == notify.WORKER:
            self._seen.pop(subject, None)
        if topic != notify.WORK:
            return
        for wanted, line in self._lines.items():
            if line and (subject == "*" or subject in wanted.queues):
                line[0].sent.set()
