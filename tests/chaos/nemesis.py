"""The nemesis: what goes wrong in a run, in an order and at times that one seed decides."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from tests.chaos.fleet import LEASE_SECONDS, Fleet, Member
from tests.chaos.ledger import Ledger
from tests.chaos.postgres import OwnPostgres
from tests.chaos.proxy import Cut, Statement
from tests.waiting import until

PAUSES = {"worker": (1.2 * LEASE_SECONDS, 3.0 * LEASE_SECONDS), "server": (0.5, 3.0)}
"""Seconds for which a process stands still: a worker long enough that its leases end."""

_PATIENCE_SECONDS = 30.0


@dataclass(slots=True)
class Nemesis:
    """Does each fault of the ``plan`` (name → how often), in an order of chance, over about ``seconds``."""

    fleet: Fleet
    postgres: OwnPostgres
    ledger: Ledger
    chance: random.Random
    seconds: float
    plan: Mapping[str, int]
    away_seconds: tuple[float, float] = (0.0, 2.5)
    """How long PostgreSQL stays away when it was killed."""
    done: Counter[str] = field(default_factory=Counter)
    cuts: int = 0
    _one_database_fault: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self) -> None:
        """All of it; several faults may be at work at the same time. Everything is well again when it returns."""
        names = [name for name, count in self.plan.items() for _ in range(count)]
        self.chance.shuffle(names)
        gap = self.seconds / max(len(names), 1)
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number, name in enumerate(names):
                group.create_task(self.strike(name), name=f"fault {name}")
                next_at = began + gap * (number + self.chance.uniform(0.6, 1.4))
                await asyncio.sleep(max(next_at - time.monotonic(), 0.0))

    async def strike(self, name: str) -> None:
        """One fault, from its begin to its end."""
        fault: Callable[[], Awaitable[None]] = getattr(self, f"_{name}")
        begin = self.ledger.note("fault", what=name, phase="begin")
        await fault()
        self.ledger.note("fault", what=name, phase="end", begin=begin)
        self.done[name] += 1

    async def _worker_kill(self) -> None:
        self.fleet.kill(await self._some("worker", "remote"))

    async def _server_kill(self) -> None:
        self.fleet.kill(await self._some("server"))

    async def _worker_end(self) -> None:
        self.fleet.terminate(await self._some("worker", "remote"))

    async def _server_end(self) -> None:
        self.fleet.terminate(await self._some("server"))

    async def _worker_pause(self) -> None:
        member = await self._some("worker", "remote")
        await self.fleet.pause(member, self.chance.uniform(*PAUSES["worker"]))

    async def _server_pause(self) -> None:
        await self.fleet.pause(await self._some("server"), self.chance.uniform(*PAUSES["server"]))

    async def _postgres_kill(self) -> None:
        async with self._outage("killed"):
            await self.postgres.kill()
            await asyncio.sleep(self.chance.uniform(*self.away_seconds))
            await self.postgres.start()

    async def _postgres_immediate(self) -> None:
        async with self._outage("stopped at once"):
            await self.postgres.stop_at_once()

    async def _postgres_restart(self) -> None:
        async with self._outage("restarted"):
            await self.postgres.restart()

    async def _postgres_read_only(self) -> None:
        async with self._outage("read-only"):
            await self.postgres.read_only(True)
            if self.chance.random() < 0.5:
                await self.postgres.end_sessions()
            await asyncio.sleep(self.chance.uniform(0.5, 2.0))
            await self.postgres.read_only(False)

    async def _sessions_end(self) -> None:
        async with self._one_database_fault:
            with self.fleet.disturbed():
                await self.postgres.end_sessions(self.chance.choice((0.3, 0.6, 1.0)))

    async def _rows_locked(self) -> None:
        """An operator's open transaction on jobs that wait or run."""
        async with self._one_database_fault:
            state = self.chance.choice(("queued", "running"))
            async with self.postgres.locked(f"state = '{state}'", self.chance.randint(1, 20)):
                await asyncio.sleep(self.chance.uniform(0.3, 2.0))

    async def _line_cut(self) -> None:
        for member in self._lined(at_once=True):
            assert member.line is not None
            self.cuts += member.line.cut()

    async def _line_refused(self) -> None:
        (member,) = self._lined()
        assert member.line is not None
        with self.fleet.disturbed(member):
            member.line.refusing = True
            self.cuts += member.line.cut()
            await asyncio.sleep(self.chance.uniform(0.5, 3.0))
            member.line.refusing = False

    async def _line_frozen(self) -> None:
        (member,) = self._lined()
        assert member.line is not None
        with self.fleet.disturbed(member):
            member.line.freeze()
            await asyncio.sleep(self.chance.uniform(0.5, 5.0))
            if self.chance.random() < 0.5:
                self.cuts += member.line.cut()
            member.line.thaw()

    async def _line_slow(self) -> None:
        (member,) = self._lined()
        assert member.line is not None
        with self.fleet.disturbed(member):
            member.line.delay_seconds = self.chance.uniform(0.02, 0.2)
            await asyncio.sleep(self.chance.uniform(1.0, 3.0))
            member.line.delay_seconds = 0.0

    async def _commit_cut(self) -> None:
        """A connection is cut at a COMMIT, or at a statement that writes: before it, in it, or before its answer."""
        (member,) = self._lined()
        line = member.line
        assert line is not None
        seen = len(line.struck)
        line.arm(self.chance.choice(list(Cut)), self.chance.choice(list(Statement)))
        with contextlib.suppress(AssertionError):  # it waits for a statement that may not come
            await until(lambda: len(line.struck) > seen, timeout_seconds=_PATIENCE_SECONDS)
        self.cuts += len(line.struck) - seen

    def _lined(self, *, at_once: bool = False) -> list[Member]:
        members = [member for member in self.fleet.members if member.line is not None]
        return members if at_once and self.chance.random() < 0.3 else [self.chance.choice(members)]

    @contextlib.asynccontextmanager
    async def _outage(self, what: str) -> AsyncIterator[None]:
        async with self._one_database_fault:
            begin = time.time()
            with self.fleet.disturbed():
                yield
            self.ledger.note("outage", what=what, begin=begin)

    async def _some(self, *roles: str) -> Member:
        """One that does its work: killing what is only starting would prove little."""

        def ready() -> list[Member]:
            return [member for member in self.fleet.of(*roles) if member.ready]

        found: list[Member] = await until(ready, timeout_seconds=_PATIENCE_SECONDS * 2, what=f"one of {roles}")
        return self.chance.choice(found)
