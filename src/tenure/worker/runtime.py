"""The worker: claims jobs into free slots, runs them, reports what came of them, and ends in order."""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Sequence

from tenure.errors import Unavailable
from tenure.jobs.model import Claimed
from tenure.store.claim import KindSelector
from tenure.store.settle import Outcome, OutcomeKind
from tenure.store.workers import Directive
from tenure.worker.alarms import Alarms
from tenure.worker.attempt import Attempt, AttemptLimits
from tenure.worker.broker import Broker
from tenure.worker.heartbeats import Heartbeats, HeldLease
from tenure.worker.registry import JobRegistry
from tenure.worker.settler import Report, Settler
from tenure.worker.stops import StopReason

logger = logging.getLogger(__name__)

_BACKOFF_SECONDS = (0.1, 2.0)
_GATHER_SECONDS = 0.003
"""While there is more work than slots, a claim waits so long for half of them: one for one, each would cost a statement.
About as long as a claim takes: a handler that runs for seconds does not notice, and quick ones are claimed in sets."""

_AT_ONCE = 500
"""So many a claim, at most: what one brought runs while the next is under way."""

_UNREPORTED = 100
"""So many outcomes beyond the number of slots may wait to be written before new work has to wait, too."""

_CLAIM_SECONDS = 5.0
"""At the end, so long a claim that was sent already may take: what it brings would else wait for its lease to expire."""


class Worker:
    """Runs the registry's handlers on jobs of ``queues`` (none: those of the registered kinds), ``slots`` at once.

    poll_seconds: how often it looks for work without a wake-up. shutdown_grace_seconds: what running handlers get to
    finish when it drains. stop_seconds: what they then get to stop when they are told to. settle_seconds: how long, at
    the end, it goes on trying to report outcomes while the database is away.

    The order of the end, begun by `drain`:

    1. No more claims. What a claim under way still brings is released, unstarted.
    2. Running handlers get the grace. Heartbeats, cancel requests, timeouts and deadlines go on as before.
    3. Those still running are told to stop; as each does, its lease is released and its attempt given back.
    4. What does not stop (a thread, a handler that swallows its cancellation) is left behind: nothing is reported for
       it, and its lease is left to expire, for it may still be at work.
    5. The last outcomes are written; only then heartbeats end.

    In step 3 an `uninterruptible` block is waited for, too, but not beyond ``stop_seconds``: the process is about to end,
    and a handler that is cancelled can still clean up. `stop_now` goes to step 3 at once, and waits for no such block.
    """

    def __init__(
        self,
        broker: Broker,
        registry: JobRegistry,
        *,
        worker_id: str,
        slots: int = 10,
        queues: Sequence[str] = (),
        poll_seconds: float = 1.0,
        shutdown_grace_seconds: float = 25.0,
        stop_seconds: float = 5.0,
        settle_seconds: float = 10.0,
        limits: AttemptLimits | None = None,
    ) -> None:
        self.worker_id = worker_id
        self._broker = broker
        self._registry = registry
        self._slots = slots
        self._poll_seconds = poll_seconds
        self._grace_seconds = shutdown_grace_seconds
        self._stop_seconds = stop_seconds
        self._settle_seconds = settle_seconds
        self._limits = limits or AttemptLimits()
        self._kinds = [
            KindSelector(kind=spec.kind, schema_versions=spec.schema_versions, lease_seconds=spec.lease_seconds)
            for spec in registry.kinds()
        ]
        self._queues = tuple(queues) or tuple(dict.fromkeys(spec.queue for spec in registry.kinds()))
        self._heartbeats = Heartbeats(broker, on_directive=self._on_directive)
        self._settler = Settler(broker)
        self._alarms = Alarms()
        self._attempts: dict[Attempt, asyncio.Task[None]] = {}
        self._enough = min(max(slots // 2, 1), _AT_ONCE)
        """So many free slots are worth a claim while there is more work than slots."""
        self._wanted = 1
        self._more = False
        """Whether the last claim brought all that it asked for."""
        self._changed = asyncio.Event()
        """The wanted number of slots is free, or the end has begun."""
        self._woken = asyncio.Event()
        self._draining = asyncio.Event()
        self._stopping_now = asyncio.Event()

    @property
    def running(self) -> int:
        """Handlers at work."""
        return len(self._attempts)

    @property
    def draining(self) -> bool:
        """Whether the end has begun."""
        return self._draining.is_set()

    def wake(self) -> None:
        """Looks for work now."""
        self._woken.set()

    def drain(self) -> None:
        """Begins to end, see the class."""
        self._draining.set()
        self._broker.stop_waiting()
        self._woken.set()
        self._changed.set()

    def stop_now(self) -> None:
        """Ends as fast as it can without losing anything."""
        self._stopping_now.set()
        self.drain()

    async def run(self) -> None:
        """Works until it has been drained. Cancelling it is `stop_now`."""
        self._heartbeats.start()
        settling = asyncio.create_task(self._settler.run(), name="tenure-settler")
        claiming = asyncio.create_task(self._claim_until_drained(), name="tenure-claims")
        try:
            with self._broker.listening(self._queues, self._heartbeats.beat_now, self._on_directive):
                try:
                    await self._draining.wait()
                    await self._finish(claiming)
                except asyncio.CancelledError:
                    self.stop_now()
                    await self._finish(claiming)
                    raise
        finally:
            leftover = [settling, claiming, *self._attempts.values()]
            for task in leftover:
                task.cancel()
            await asyncio.wait({settling, claiming})
            await self._heartbeats.stop()

    def _on_directive(self, directive: Directive | None) -> None:
        # Quiet needs nothing here: whoever hands out leases gives none to a quiet worker.
        if directive is Directive.TERMINATE and not self._draining.is_set():
            logger.info("told to end by an operator")
            self.drain()

    async def _claim_until_drained(self) -> None:
        wait, longest = _BACKOFF_SECONDS
        while not self._draining.is_set():
            try:
                await self._claim_once()
                wait = _BACKOFF_SECONDS[0]
            except Exception as error:
                if isinstance(error, Unavailable):
                    logger.warning("cannot claim, trying again: %s", error)
                else:
                    logger.exception("cannot claim, trying again")
                await self._pause(wait * (0.5 + random.random()))  # noqa: S311 - spreads load, hides nothing
                wait = min(wait * 2, longest)

    async def _claim_once(self) -> None:
        """Fills the free slots, then waits for whatever makes it worth to look again."""
        await self._until_free(1)
        if self._more:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GATHER_SECONDS):
                    await self._until_free(self._enough)
        self._woken.clear()
        limit = min(self._free_slots(), _AT_ONCE)
        if not limit or self._draining.is_set():
            return
        asked_at = time.monotonic()
        claimed = await self._broker.claim(limit=limit, queues=self._queues, kinds=self._kinds)
        heard_at = time.monotonic()
        begun: list[HeldLease] = []
        try:
            for job in claimed:
                if (attempt := self._begin(job, asked_at, heard_at)) is not None:
                    begun.append(attempt.lease)
        finally:
            self._heartbeats.add(begun)
        self._more = len(claimed) == limit
        if not self._more and not self._draining.is_set():
            await self._wait_for_work()

    async def _until_free(self, wanted: int) -> None:
        """Waits until so many slots are free (and there is a kind to claim), or the end has begun."""
        self._wanted = wanted
        self._changed.clear()
        if not self._draining.is_set() and (self._free_slots() < wanted or not self._kinds):
            await self._changed.wait()

    def _free_slots(self) -> int:
        # Outcomes that cannot be written hold back new work, or an outage would let them pile up without bound.
        if self._settler.pending >= self._slots + _UNREPORTED:
            return 0
        return max(self._slots - len(self._attempts), 0)

    def _slot_changed(self) -> None:
        if self._draining.is_set() or (self._free_slots() >= self._wanted and self._kinds):
            self._changed.set()

    def _begin(self, claimed: Claimed, asked_at: float, heard_at: float) -> Attempt | None:
        spec = self._registry.get(claimed.job.kind)
        if spec is None or self._draining.is_set():
            if spec is None:
                logger.error("job %s: no handler for kind %r here, giving it back", claimed.job.id, claimed.job.kind)
            outcome = Outcome(job_id=claimed.job.id, token=claimed.token, kind=OutcomeKind.RELEASE)
            self._settler.put(Report(outcome=outcome, queue=claimed.job.queue, on_settled=self._slot_changed))
            return None
        attempt = Attempt(
            claimed,
            spec,
            broker=self._broker,
            heartbeats=self._heartbeats,
            alarms=self._alarms,
            limits=self._limits,
            asked_at=asked_at,
            heard_at=heard_at,
        )
        name = f"tenure-{claimed.job.kind}-{claimed.job.id}"
        self._attempts[attempt] = asyncio.get_running_loop().create_task(self._attend(attempt), name=name)
        return attempt

    async def _attend(self, attempt: Attempt) -> None:
        """Runs the attempt in its slot, then hands its outcome on."""
        outcome: Outcome | None = None
        try:
            outcome = await attempt.run()
        finally:
            if outcome is not None and not attempt.abandoned:
                self._settler.put(
                    Report(
                        outcome=outcome,
                        queue=attempt.job.queue,
                        on_settled=lambda: self._settled(attempt),
                    )
                )
            else:
                self._heartbeats.remove(attempt.lease)
            del self._attempts[attempt]
            self._slot_changed()

    def _settled(self, attempt: Attempt) -> None:
        self._heartbeats.remove(attempt.lease)
        self._slot_changed()

    async def _wait_for_work(self) -> None:
        """Until a hint comes, somebody calls `wake`, or it is time to look again."""
        # Workers that began together must not go on asking together.
        timeout = self._poll_seconds * (0.75 + 0.5 * random.random())  # noqa: S311 - spreads load, hides nothing
        hinted = asyncio.ensure_future(self._broker.wait_for_work(timeout))
        woken = asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait({hinted, woken}, return_when=asyncio.FIRST_COMPLETED)
            if hinted.done():
                await hinted
        finally:
            hinted.cancel()
            woken.cancel()
            await asyncio.gather(hinted, woken, return_exceptions=True)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._draining.wait()

    async def _finish(self, claiming: asyncio.Task[None]) -> None:
        """Steps 1 to 5."""
        await asyncio.wait({claiming}, timeout=_CLAIM_SECONDS if not self._stopping_now.is_set() else 1.0)
        if self._attempts and not self._stopping_now.is_set():
            logger.info("draining: %d job(s) get %g s to finish", len(self._attempts), self._grace_seconds)
            await self._until_idle(self._grace_seconds, or_stopping=True)
        if self._attempts:
            forced = self._stopping_now.is_set()
            logger.info("stopping %d job(s)", len(self._attempts))
            for attempt in list(self._attempts):
                attempt.stops.request(StopReason.DRAIN, forced=forced)
            if not forced and not await self._until_idle(self._stop_seconds, or_stopping=True):
                for attempt in list(self._attempts):
                    attempt.stops.request(StopReason.DRAIN, forced=True)
            await self._until_idle(self._stop_seconds)
        for attempt in list(self._attempts):
            logger.warning("job %s does not stop: its lease is left to expire", attempt.job.id)
            attempt.abandoned = True
            self._heartbeats.remove(attempt.lease)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settle_seconds):
                await self._settler.drained()
        if self._settler.pending:
            logger.error("%d outcome(s) could not be reported: their leases expire", self._settler.pending)

    async def _until_idle(self, seconds: float, *, or_stopping: bool = False) -> bool:
        """Waits until no handler runs; false when time is up (or, if asked, `stop_now` was called)."""
        end = time.monotonic() + seconds
        while self._attempts:
            left = end - time.monotonic()
            if left <= 0 or (or_stopping and self._stopping_now.is_set()):
                return False
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()
        return True
