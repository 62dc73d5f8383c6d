"""Keeping the leases of a worker, in a thread of its own.

The thread has its own event loop and its own connection, so that neither a handler that blocks the worker's loop nor an
exhausted pool can starve it. One statement renews all leases that are due. What a heartbeat learns (cancellation was
requested, the lease is lost) is handed to the attempt on the worker's event loop.

An outage ends no handler: a lease that could not be renewed may still be ours, for its holder stays the holder until
somebody takes it over. Only an answer says that it is lost.
"""

import asyncio
import contextlib
import functools
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from tenure.errors import LeaseLost, NotFound, Unavailable
from tenure.store.heartbeat import HeartbeatAnswer
from tenure.store.workers import Directive
from tenure.worker.broker import Beat, BeatAnswer, Broker, HeartbeatChannel

logger = logging.getLogger(__name__)

_BEATS_PER_LEASE = 3
_COALESCE = 0.25
"""Leases due within this part of their interval go along with those that are due: few statements, not one a job."""

_LOOK_SECONDS = 1.0
"""Whether hints arrive can change without anybody waking the thread: it looks this often."""

_PROGRESS_SECONDS = 1.0
_LOCKED_RETRY_SECONDS = 0.25
_RECONNECT_SECONDS = (0.05, 1.0)
_IDLE_SECONDS = 30.0
"""An unused connection is closed: by the time it is needed, a firewall may have forgotten it."""

_HINT_SECONDS = 10.0
"""A cancel hint may overtake the claim's answer: it is remembered so long for a lease that is not yet known."""

_MIN_ANSWER_SECONDS, _MAX_ANSWER_SECONDS = 3.0, 10.0
"""A connection that does not answer is given up after a third of the shortest lease, within these bounds."""


class HeldLease:
    """One lease that is kept. All but the callbacks belongs to the heartbeats, under their lock."""

    __slots__ = (
        "cancel_told",
        "ended_told",
        "job_id",
        "last_beat_at",
        "length_seconds",
        "next_beat_at",
        "on_cancel_requested",
        "on_lost",
        "progress",
        "token",
        "valid_until",
    )

    def __init__(
        self,
        *,
        job_id: UUID,
        token: str,
        length_seconds: float,
        asked_at: float,
        on_cancel_requested: Callable[[], None],
        on_lost: Callable[[], None],
    ) -> None:
        """``asked_at`` is `time.monotonic()` before the claim was sent: the lease began no earlier."""
        self.job_id = job_id
        self.token = token
        self.length_seconds = length_seconds
        self.on_cancel_requested = on_cancel_requested
        self.on_lost = on_lost
        self.cancel_told = False
        self.ended_told = False
        self.progress: tuple[float | None, str | None] | None = None
        self.last_beat_at = asked_at
        self.valid_until = asked_at + length_seconds
        self.next_beat_at = asked_at + length_seconds / _BEATS_PER_LEASE


class Heartbeats:
    """The thread. `start` and `stop` belong to the worker's event loop, the rest may be called from any thread."""

    def __init__(self, broker: Broker, *, on_directive: Callable[[Directive | None], None]) -> None:
        self._broker = broker
        self._on_directive = on_directive
        self._directive: Directive | None = None
        self._lock = threading.Lock()
        self._leases: dict[tuple[UUID, str], HeldLease] = {}
        self._hints: dict[UUID, float] = {}
        self._stopping = False
        self._worker_loop: asyncio.AbstractEventLoop | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self._looks_at = 0.0
        """When the thread looks again by itself: what is due no earlier need not wake it."""
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread; callbacks are made on the event loop that runs now."""
        self._worker_loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._supervise, name="tenure-heartbeats", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Ends the thread, within a few seconds even when the database does not answer."""
        self._stopping = True
        self._wake()
        if self._thread is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join, 5.0)

    def add(self, leases: Sequence[HeldLease]) -> None:
        """Keeps these leases from now on."""
        with self._lock:
            for lease in leases:
                if self._hints and self._hints.pop(lease.job_id, None) is not None:
                    lease.next_beat_at = 0.0
                self._leases[lease.job_id, lease.token] = lease
            first_at = min((lease.next_beat_at for lease in leases), default=self._looks_at)
        if first_at < self._looks_at:
            self._wake()

    def remove(self, lease: HeldLease) -> None:
        """Lets it go: it was settled, or is left to expire."""
        with self._lock:
            self._leases.pop((lease.job_id, lease.token), None)

    def report_progress(self, lease: HeldLease, fraction: float | None, message: str | None) -> None:
        """Sends it with the next heartbeat, which comes within about a second."""
        with self._lock:
            lease.progress = (fraction, message)
            wanted_at = lease.last_beat_at + _PROGRESS_SECONDS
            if wanted_at >= lease.next_beat_at:
                return
            lease.next_beat_at = wanted_at
        self._wake()

    def beat_now(self, job_id: UUID | None) -> None:
        """Renews this job's lease (None: all) at once, to hear whether cancellation was requested."""
        now = time.monotonic()
        with self._lock:
            known = [lease for lease in self._leases.values() if job_id is None or lease.job_id == job_id]
            for lease in known:
                lease.next_beat_at = 0.0
            if job_id is not None and not known:
                self._hints = {key: at for key, at in self._hints.items() if now - at < _HINT_SECONDS}
                self._hints[job_id] = now
        if known:
            self._wake()

    def _wake(self) -> None:
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # closed just now: the thread is ending, or starting again
                loop.call_soon_threadsafe(self._changed.set)

    def _supervise(self) -> None:
        """The thread's body: whatever ends the loop in it, it starts again."""
        while not self._stopping:
            try:
                asyncio.run(self._run())
            except BaseException:
                logger.exception("heartbeats failed, starting them again")
                time.sleep(_RECONNECT_SECONDS[1])

    async def _run(self) -> None:
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        wait, longest = _RECONNECT_SECONDS
        while not self._stopping:
            await self._until_due(None)
            try:
                async with self._broker.heartbeat_channel() as channel:
                    while not self._stopping:
                        await self._beat(channel)
                        wait = _RECONNECT_SECONDS[0]
                        if not await self._until_due(_IDLE_SECONDS):
                            break
            except Exception as error:
                if not isinstance(error, Unavailable | TimeoutError):
                    logger.exception("a heartbeat failed, trying again")
                elif self._holding():
                    logger.warning("heartbeats cannot be sent, trying again: %s", error or "no answer in time")
                self._look_for_ended()
                await self._pause(wait)
                wait = min(wait * 2, longest)

    def _holding(self) -> int:
        with self._lock:
            return len(self._leases)

    async def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._stopping and (left := end - time.monotonic()) > 0:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()

    async def _until_due(self, idle_seconds: float | None) -> bool:
        """Waits until a lease is due; false when stopping, or when none was held for ``idle_seconds``."""
        idle_until = None if idle_seconds is None else time.monotonic() + idle_seconds
        while not self._stopping:
            self._changed.clear()
            now = time.monotonic()
            with self._lock:
                due_at = min((self._due_at(lease) for lease in self._leases.values()), default=None)
                until = due_at if due_at is not None else idle_until
                self._looks_at = math.inf if until is None else min(until, now + _LOOK_SECONDS)
            if until is not None and until <= now:
                return due_at is not None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if until is None else self._looks_at - now):
                    await self._changed.wait()
        return False

    def _due_at(self, lease: HeldLease) -> float:
        ask_every_seconds = self._broker.ask_every_seconds
        if ask_every_seconds is None:
            return lease.next_beat_at
        return min(lease.next_beat_at, lease.last_beat_at + ask_every_seconds)

    async def _beat(self, channel: HeartbeatChannel) -> None:
        now = time.monotonic()
        with self._lock:
            due = [
                lease
                for lease in self._leases.values()
                if self._due_at(lease) <= now + _COALESCE * lease.length_seconds / _BEATS_PER_LEASE
            ]
            sent = [lease.progress for lease in due]
            for lease in due:
                lease.progress = None
        beats = [
            Beat(
                job_id=lease.job_id,
                token=lease.token,
                has_progress=progress is not None,
                fraction=progress[0] if progress else None,
                message=progress[1] if progress else None,
            )
            for lease, progress in zip(due, sent, strict=True)
        ]
        if not beats:
            return
        shortest = min(lease.length_seconds for lease in due) / _BEATS_PER_LEASE
        answered = False
        try:
            async with asyncio.timeout(min(max(shortest, _MIN_ANSWER_SECONDS), _MAX_ANSWER_SECONDS)):
                answers = await channel.heartbeat(beats)
            answered = True
        finally:
            if not answered:
                self._unsent(due, sent)
        self._take(due, sent, answers, now)

    def _unsent(self, due: Sequence[HeldLease], sent: Sequence[Any]) -> None:
        """Puts back what was not heard, unless something newer is there."""
        with self._lock:
            for lease, progress in zip(due, sent, strict=True):
                lease.progress = lease.progress or progress

    def _take(self, due: Sequence[HeldLease], sent: Sequence[Any], answers: Sequence[BeatAnswer], now: float) -> None:
        for lease, progress, answer in zip(due, sent, answers, strict=True):
            if isinstance(answer, HeartbeatAnswer) and answer.directive is not self._directive:
                self._directive = answer.directive
                self._tell(functools.partial(self._on_directive, answer.directive))
            with self._lock:
                if (lease.job_id, lease.token) not in self._leases:
                    continue  # settled meanwhile
                match answer:
                    case HeartbeatAnswer():
                        lease.last_beat_at = now
                        lease.valid_until = now + lease.length_seconds
                        lease.ended_told = False
                        lease.next_beat_at = now + (
                            _PROGRESS_SECONDS if lease.progress else lease.length_seconds / _BEATS_PER_LEASE
                        )
                        tell = answer.cancel_requested and not lease.cancel_told
                        lease.cancel_told |= answer.cancel_requested
                        callback = lease.on_cancel_requested if tell else None
                    case LeaseLost() | NotFound():
                        del self._leases[lease.job_id, lease.token]
                        callback = lease.on_lost
                    case _:
                        lease.next_beat_at = now + _LOCKED_RETRY_SECONDS
                        lease.progress = lease.progress or progress
                        callback = None
            if callback is not None:
                self._tell(callback)

    def _tell(self, callback: Callable[[], None]) -> None:
        if self._worker_loop is not None:
            with contextlib.suppress(RuntimeError):  # the worker's loop is closed: nobody is left to be told
                self._worker_loop.call_soon_threadsafe(callback)

    def _look_for_ended(self) -> None:
        now = time.monotonic()
        with self._lock:
            ended = [lease for lease in self._leases.values() if lease.valid_until < now and not lease.ended_told]
            for lease in ended:
                lease.ended_told = True
        for lease in ended:
            logger.warning(
                "job %s: its lease could not be renewed in time; it runs on, and whether it is still ours will be seen"
                " when the database answers",
                lease.job_id,
            )
