"""The processes of a run: servers, workers by database, workers over HTTP; each is started again when it ends."""

import asyncio
import contextlib
import os
import random
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM, Signals

from tests.chaos.builds import BUILD
from tests.chaos.caller import UNANSWERED, new_client
from tests.chaos.handlers import DATABASE_QUEUE, QUEUE
from tests.chaos.launcher import ROOT, Child, Launcher
from tests.chaos.ledger import Ledger
from tests.chaos.proxy import Line

LEASE_SECONDS = 2.0
REAP_SECONDS = 0.2

SETTINGS = {
    "LEASE_SECONDS": f"{LEASE_SECONDS}",
    "REAP_SECONDS": f"{REAP_SECONDS}",
    "WORKER_POLL_SECONDS": "0.5",
    "WORKER_SLOTS": "8",
    "BACKOFF_BASE_SECONDS": "0.05",
    "BACKOFF_CAP_SECONDS": "0.5",
    "SHUTDOWN_GRACE_SECONDS": "1",
    "DATABASE_COMMAND_TIMEOUT_SECONDS": "10",
}
"""Times at which a run sees much in little time; everything else is as the product comes."""

_LOOK_SECONDS = 0.05
START_SECONDS = 60.0
"""A start may take that long on a machine that is busy elsewhere."""


@dataclass(slots=True)
class Member:
    """One place in the fleet, and the process that is in it now. ``role``: server, worker, or remote (over HTTP)."""

    name: str
    role: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    line: Line | None = None
    url: str = ""
    build: str = ""
    child: Child | None = None
    generation: int = 0
    log: Path = Path()
    ready: bool = False
    wanted: bool = True
    disturbances: int = 0
    """Things that are being done to it now."""
    sound_since: float | None = None
    """Since when it works and nothing is done to it, by this process's `time.monotonic()`; else None."""

    @property
    def maintains(self) -> bool:
        """Whether it takes back leases."""
        return self.role != "remote"


class Fleet:
    """Starts members, keeps them running, and does to them what the nemesis asks for."""

    def __init__(self, launcher: Launcher, ledger: Ledger, folder: Path, chance: random.Random) -> None:
        self.members: list[Member] = []
        self.restart_after: tuple[float, float] = (0.0, 1.0)
        self._launcher = launcher
        self._ledger = ledger
        self._folder = folder
        self._chance = chance
        self._keeping: list[asyncio.Task[None]] = []
        self._client = new_client()

    def server(self, line: Line, *, workers: bool = False, build: str = "", **settings: str) -> Member:
        """A server on a port of its own, without workers in it unless asked for."""
        number = self._next("server")
        port = free_port()
        return self._add(
            Member(
                name=f"server-{number}",
                role="server",
                arguments=("serve",) if workers else ("serve", "--no-workers"),
                environment=self._environment(line, PORT=str(port), WORKER_ID=f"server-{number}", **settings),
                line=line,
                url=f"http://127.0.0.1:{port}",
                build=build,
            )
        )

    def worker(self, line: Line, *, build: str = "", **settings: str) -> Member:
        """A worker by database."""
        name = f"worker-{self._next('worker')}"
        environment = self._environment(line, WORKER_ID=name, **settings)
        return self._add(
            Member(name=name, role="worker", arguments=("worker",), environment=environment, line=line, build=build)
        )

    def remote(self, url: str, *, build: str = "", **settings: str) -> Member:
        """A worker over HTTP."""
        name = f"remote-{self._next('remote')}"
        environment = self._environment(
            None, WORKER_ID=name, APP="tests.chaos.handlers:remote_jobs", WORKER_QUEUES=QUEUE, **settings
        )
        arguments = ("worker", "--url", url)
        return self._add(Member(name=name, role="remote", arguments=arguments, environment=environment, build=build))

    def of(self, *roles: str) -> list[Member]:
        """The members of these roles."""
        return [member for member in self.members if member.role in roles]

    @property
    def urls(self) -> Sequence[str]:
        """Where the servers are."""
        return [member.url for member in self.of("server")]

    async def start(self) -> None:
        """Starts every member and keeps each running from then on; returns when all are ready."""
        for member in self.members:
            self._keeping.append(asyncio.create_task(self._keep(member), name=f"keeps {member.name}"))
        for member in self.members:
            await self.until_ready(member)

    async def until_ready(self, member: Member) -> None:
        """Waits until it does its work. Raises what ended the task that keeps it."""
        async with asyncio.timeout(START_SECONDS):
            while not member.ready:
                for keeping in self._keeping:
                    if keeping.done():
                        await keeping
                await asyncio.sleep(0.02)

    def kill(self, member: Member) -> None:
        """SIGKILL."""
        self._send(member, SIGKILL)

    def terminate(self, member: Member) -> None:
        """SIGTERM: it is to end in order."""
        self._send(member, SIGTERM)

    async def pause(self, member: Member, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after that time."""
        with self.disturbed(member):
            child = member.child
            self._send(member, SIGSTOP)
            await asyncio.sleep(seconds)
            if member.child is child:
                self._send(member, SIGCONT)

    @contextlib.contextmanager
    def disturbed(self, *members: Member) -> Iterator[None]:
        """While the block runs, something is being done to these; to all when none is named."""
        concerned = members or tuple(self.members)
        for member in concerned:
            member.disturbances += 1
            member.sound_since = None
        try:
            yield
        finally:
            for member in concerned:
                member.disturbances -= 1
                self._note_sound(member)

    def sound_for(self) -> float:
        """For how many seconds some member that takes back leases has had nothing done to it."""
        since = [it.sound_since for it in self.members if it.maintains and it.sound_since is not None]
        return time.monotonic() - min(since) if since else 0.0

    async def end(self) -> None:
        """SIGTERM to all, and their end awaited; none is started again."""
        for member in self.members:
            member.wanted = False
            self.terminate(member)
        async with asyncio.timeout(START_SECONDS):
            await asyncio.gather(*self._keeping)

    async def close(self) -> None:
        """Ends everything at once."""
        for keeping in self._keeping:
            keeping.cancel()
        await asyncio.gather(*self._keeping, return_exceptions=True)
        for member in self.members:
            if member.child is not None and member.child.alive:
                self._launcher.signal(member.child, SIGKILL)
                await member.child.ended.wait()
        await self._client.aclose()

    async def run_command(self, name: str, *arguments: str, line: Line, build: str = "") -> int:
        """Runs one ``tenure`` command to its end; its exit code."""
        environment = {**self._environment(line), BUILD: build}
        child = await self._launcher.start(arguments, environment, self._folder / f"{name}.log")
        await child.ended.wait()
        assert child.code is not None
        self._ledger.note("ran", command=name, pid=child.pid, code=child.code)
        return child.code

    async def _keep(self, member: Member) -> None:
        while member.wanted:
            child = await self._begin(member)
            readying = asyncio.create_task(self._note_ready(member, child))
            await child.ended.wait()
            readying.cancel()
            await asyncio.gather(readying, return_exceptions=True)
            member.ready = False
            self._note_sound(member)
            self._ledger.note("ended", member=member.name, generation=member.generation, pid=child.pid, code=child.code)
            await asyncio.sleep(self._chance.uniform(*self.restart_after))

    async def _begin(self, member: Member) -> Child:
        member.generation += 1
        member.log = self._folder / f"{member.name}.{member.generation}.log"
        member.log.touch()
        environment = {**member.environment, BUILD: member.build}
        member.child = await self._launcher.start(member.arguments, environment, member.log)
        self._ledger.note("started", member=member.name, generation=member.generation, pid=member.child.pid)
        return member.child

    async def _note_ready(self, member: Member, child: Child) -> None:
        works = False
        while child.alive and not works:
            await asyncio.sleep(_LOOK_SECONDS)
            works = await self._does_its_work(member)
        if child.alive:
            member.ready = True
            self._note_sound(member)
            self._ledger.note("ready", member=member.name, generation=member.generation, pid=child.pid)

    async def _does_its_work(self, member: Member) -> bool:
        if member.role != "server":
            said = member.log.read_text(errors="replace")
            return ": ready" in said or "works for" in said
        try:
            return (await self._client.get(f"{member.url}/readyz", timeout=2)).status_code == 200
        except UNANSWERED:
            return False

    def _note_sound(self, member: Member) -> None:
        if not member.ready or member.disturbances:
            member.sound_since = None
        elif member.sound_since is None:
            member.sound_since = time.monotonic()

    def _send(self, member: Member, number: Signals) -> None:
        if number in (SIGKILL, SIGTERM):
            member.ready = False
            self._note_sound(member)
        if member.child is not None and member.child.alive:
            self._ledger.note("sent", member=member.name, pid=member.child.pid, signal=number.name)
            self._launcher.signal(member.child, number)

    def _environment(self, line: Line | None, **settings: str) -> dict[str, str]:
        ours = {**SETTINGS, "APP": "tests.chaos.handlers:jobs", **settings}
        if line is not None:
            ours.setdefault("WORKER_QUEUES", f"{QUEUE},{DATABASE_QUEUE}")
            ours["DATABASE_URL"] = line.url
            ours["DATA_DIR"] = str(self._folder / "data")
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("TENURE_")},
            **{f"TENURE_{name}": value for name, value in ours.items()},
            "PYTHONPATH": str(ROOT),
            "NO_COLOR": "1",
        }

    def _next(self, role: str) -> int:
        return len(self.of(role)) + 1

    def _add(self, member: Member) -> Member:
        self.members.append(member)
        return member


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
