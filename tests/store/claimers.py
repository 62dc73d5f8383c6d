"""Claimers, each with its frontier, in a world where jobs come late, come back, are locked and change their times.

After every claim the world compares what was taken with what could have been.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self, cast
from uuid import UUID

import asyncpg

from tenure.jobs.decisions import ReportedError
from tenure.jobs.model import Claimed, ErrorKind
from tenure.jobs.retry import RetryPolicy
from tenure.settings import DatabaseSettings
from tenure.store.claim import KindSelector, claim
from tenure.store.database import Connection, Executor, close_quietly, connect
from tenure.store.enqueue import enqueue
from tenure.store.frontier import _WHOLE_SECONDS, Frontier, Lane, Look
from tenure.store.reap import reap_expired
from tenure.store.settle import Outcome, OutcomeKind, settle
from tests.factories import half, new_job

QUEUES = ("left", "right")
KINDS = ("a", "b")
PRIORITIES = (0, 9)
LONG = RetryPolicy(base_seconds=3_600.0, cap_seconds=7_200.0)


@dataclass(slots=True)
class Clock:
    """The claimers' clock: it stands still until it is moved."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A job that could be claimed."""

    id: UUID
    queue: str
    kind: str
    priority: int
    available_at: datetime

    @property
    def rank(self) -> tuple[int, datetime, UUID]:
        return (-self.priority, self.available_at, self.id)


@dataclass(frozen=True, slots=True)
class Looked:
    """One look: whether at everything, for how many, and what it took."""

    whole: bool
    limit: int
    taken: tuple[UUID, ...]


class WatchedFrontier(Frontier):
    """A frontier that tells how it looked, and whose looks take their time."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.time = clock
        self.cost_seconds = 0.0
        self.looks: list[Looked] = []

    async def claim(self, look: Look, limit: int) -> list[Claimed]:
        async def watched(lanes: Sequence[Lane], most: int) -> list[Claimed]:
            taken = await look(lanes, most)
            self.time.seconds += self.cost_seconds
            self.looks.append(Looked(whole=not lanes, limit=most, taken=tuple(item.job.id for item in taken)))
            return taken

        self.looks = []
        return await super().claim(watched, limit)


@dataclass(slots=True, kw_only=True)
class Claimer:
    """One node's worker: what it serves, and since when it has passed over which job without need."""

    name: str
    queues: tuple[str, ...]
    kinds: tuple[str, ...] | None
    connection: Connection
    frontier: WatchedFrontier
    passed_since: dict[UUID, float] = field(default_factory=dict)

    def serves(self, job: Due) -> bool:
        return job.queue in self.queues and (self.kinds is None or job.kind in self.kinds)

    async def claim(self, limit: int) -> list[Claimed]:
        return await claim(
            self.connection,
            worker_id=self.name,
            queues=self.queues,
            kinds=None if self.kinds is None else [KindSelector(kind=kind) for kind in self.kinds],
            limit=limit,
            default_lease_seconds=3_600.0,
            frontier=self.frontier,
        )


SERVED: tuple[tuple[tuple[str, ...], tuple[str, ...] | None], ...] = (
    (QUEUES, None),
    (QUEUES, ("a", "b")),
    (("left",), ("b",)),
)


class World:
    """A database, three claimers, a session that locks rows, and one that commits late."""

    def __init__(self, raws: "Sequence[asyncpg.Connection[asyncpg.Record]]") -> None:
        self._raws = raws
        self.clock = Clock()
        self.admin, self._locker, self._late, *self._own = raws
        self.connection = Connection(executor=cast(Executor, self.admin))
        self.claimers: list[Claimer] = []
        self.held: list[Claimed] = []
        self._locked: list[UUID] = []
        self._lock: Any = None
        self._pending: Any = None

    @classmethod
    async def open(cls, settings: DatabaseSettings) -> Self:
        return cls([await connect(settings, "tenure test") for _ in range(3 + len(SERVED))])

    async def close(self) -> None:
        for raw in self._raws:
            await close_quietly(raw)

    async def begin(self) -> None:
        """An empty world, and claimers that remember nothing."""
        await self.unlock()
        await self.commit_late()
        for table in ("events", "jobs"):
            await self.connection.execute(f"DELETE FROM tenure.{table}")
        self.held.clear()
        self.clock.seconds = 0.0
        self.claimers = [
            Claimer(
                name=f"node-{number}",
                queues=queues,
                kinds=kinds,
                connection=Connection(executor=cast(Executor, self._own[number])),
                frontier=WatchedFrontier(self.clock),
            )
            for number, (queues, kinds) in enumerate(SERVED)
        ]

    async def enqueue(self, count: int, queue: str, kind: str, priority: int, delay_seconds: float = 0.0) -> None:
        """Jobs that are due then; a negative delay is what a long transaction leaves when it commits at last."""
        fields = {"queue": queue, "kind": kind, "priority": priority, "max_attempts": 1_000}
        jobs = [new_job(delay_seconds=max(delay_seconds, 0.0), **fields) for _ in range(count)]
        await enqueue(self.connection, jobs)
        if delay_seconds < 0:
            await self.connection.execute(
                "UPDATE tenure.jobs AS j SET available_at = j.available_at + $2 * interval '1 second'"
                " WHERE j.part = 0 AND j.id = ANY ($1::uuid[])",
                [job.id for job in jobs],
                delay_seconds,
            )

    async def enqueue_late(self, queue: str, kind: str, priority: int) -> None:
        """Jobs whose transaction stays open for a while: their times are long past once they can be seen."""
        if self._pending is None:
            self._pending = self._late.transaction()
            await self._pending.start()
        job = new_job(queue=queue, kind=kind, priority=priority, max_attempts=1_000)
        await enqueue(Connection(executor=cast(Executor, self._late)), [job])

    async def commit_late(self) -> None:
        if self._pending is not None:
            await self._pending.commit()
            self._pending = None

    async def make_due(self, seconds_ago: float) -> None:
        """What waits for its time is due, and has been for so long."""
        await self._move("available_at = now() - $2 * interval '1 second'", "j.available_at > now()", seconds_ago)

    async def set_clock_back(self, seconds: float) -> None:
        """As if the database's clock had been behind when one of two jobs came."""
        await self._move(
            "available_at = j.available_at - $2 * interval '1 second'",
            "j.available_at <= now() AND get_byte(uuid_send(j.id), 15) % 2 = 0",
            seconds,
        )

    async def _move(self, change: str, condition: str, seconds: float) -> None:
        await self.connection.execute(
            f"UPDATE tenure.jobs AS j SET {change}"
            f" WHERE j.part = 0 AND j.state = 'queued' AND {condition} AND j.id <> ALL ($1::uuid[])",
            self._locked,
            seconds,
        )

    async def lock(self, count: int) -> None:
        """Somebody's psql holds the rows of the next jobs."""
        if self._lock is not None:
            return
        ranked = sorted(await self.due(), key=lambda job: job.rank)[:count]
        self._locked = [job.id for job in ranked]
        self._lock = self._locker.transaction()
        await self._lock.start()
        await self._locker.execute(
            "SELECT 1 FROM tenure.jobs AS j WHERE j.part = 0 AND j.id = ANY ($1::uuid[]) FOR UPDATE", self._locked
        )

    async def unlock(self) -> None:
        if self._lock is not None:
            await self._lock.rollback()
            self._lock, self._locked = None, []

    async def settle(self, kind: OutcomeKind) -> None:
        """The job that was held longest ends, or comes back."""
        if not self.held:
            return
        item = self.held.pop(0)
        error = ReportedError(kind=ErrorKind.TRANSIENT, message="it broke") if kind is OutcomeKind.FAIL else None
        outcome = Outcome(job_id=item.job.id, token=item.token, kind=kind, error=error)
        async with self.admin.transaction():
            await settle(self.connection, [outcome], policy_of=lambda _: LONG, random=half)

    async def lose_all(self) -> None:
        """Every holder is gone: what it held is taken back."""
        self.held.clear()
        await self.connection.execute(
            "UPDATE tenure.jobs AS j SET lease_expires_at = now() - interval '1 second'"
            " WHERE j.part = 0 AND j.state = 'running'"
        )
        async with self.admin.transaction():
            await reap_expired(self.connection)

    async def claim(self, number: int, limit: int, cost_seconds: float) -> list[Claimed]:
        """One claim, and whether it left anything that it should not have left."""
        claimer = self.claimers[number]
        claimer.frontier.cost_seconds = cost_seconds
        free = {job.id: job for job in await self.due() if claimer.serves(job) and job.id not in self._locked}
        began = self.clock()
        self._forget(claimer, free)
        for job in free:
            claimer.passed_since.setdefault(job, began)
        taken = await claimer.claim(limit)
        ids = [item.job.id for item in taken]
        assert len(set(ids)) == len(ids) <= limit
        assert set(ids) <= set(free), f"{claimer.name} took what was not to be had"
        self.held += taken
        left = {job: free[job] for job in free if job not in ids}
        for job in self._rightly_left(claimer, left, free):
            claimer.passed_since[job] = self.clock()
        for job in left:
            waited = began - claimer.passed_since[job]
            assert waited < _WHOLE_SECONDS, f"{claimer.name} has passed over a job for {waited:.2f} seconds"
        if len(ids) < limit and not cost_seconds:
            assert not left, f"{claimer.name} had room for {len(left)} more"
        return taken

    def _rightly_left(self, claimer: Claimer, left: dict[UUID, Due], free: dict[UUID, Due]) -> list[UUID]:
        """What a look at everything left, for it was full of better ones."""
        rightly: list[UUID] = []
        for look in claimer.frontier.looks:
            if look.whole and len(look.taken) == look.limit:
                worst = max(free[job].rank for job in look.taken)
                rightly += [job for job, it in left.items() if self._locked or it.rank > worst]
        return rightly

    async def claim_together(self, limit: int) -> None:
        """All at once: each may meet the others' locks, but nobody what another one takes."""
        before = {job.id for job in await self.due()} - set(self._locked)
        for claimer in self.claimers:
            claimer.frontier.cost_seconds = 0.0
        taken = await asyncio.gather(*(claimer.claim(limit) for claimer in self.claimers))
        ids = [item.job.id for items in taken for item in items]
        assert len(set(ids)) == len(ids)
        assert set(ids) <= before
        self.held += [item for items in taken for item in items]
        for claimer in self.claimers:
            claimer.passed_since = {}

    async def drain(self) -> None:
        """Nobody stands in the way any more, a period passes: whoever serves everything finds everything."""
        await self.unlock()
        await self.commit_late()
        await self.make_due(5.0)
        self.clock.seconds += _WHOLE_SECONDS
        due = len(await self.due())
        for _ in range(due):
            if not await self.due():
                break
            assert await self.claim(0, 3, 0.0)
        assert not await self.due()

    async def due(self) -> list[Due]:
        rows = await self.connection.fetch(
            "SELECT j.id, j.queue, j.kind, j.priority, j.available_at FROM tenure.jobs AS j"
            " WHERE j.part = 0 AND j.state = 'queued' AND j.available_at <= now()"
        )
        return [Due(**dict(row)) for row in rows]

    @staticmethod
    def _forget(claimer: Claimer, free: dict[UUID, Due]) -> None:
        for job in set(claimer.passed_since) - set(free):
            del claimer.passed_since[job]
