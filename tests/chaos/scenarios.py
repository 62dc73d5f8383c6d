"""One scenario for each fault that is seeded: what a caller, a holder or a cut line does so that the fault would show.

Each plays on a stand of its own, or all one after another on one. On a product without faults each leaves everything in
order, and no check finds anything.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from tests.chaos.caller import Caller, job_of, new_client
from tests.chaos.check_calls import check_calls
from tests.chaos.check_jobs import check_jobs
from tests.chaos.check_processes import check_processes
from tests.chaos.evidence import EFFECTS_TABLE, collect, logs_in
from tests.chaos.findings import Findings
from tests.chaos.fleet import Fleet, Member
from tests.chaos.holders import claim, heartbeat, settle, try_everything, until_taken_back
from tests.chaos.launcher import Launcher
from tests.chaos.ledger import Ledger
from tests.chaos.load import Load
from tests.chaos.monitor import STUCK_SECONDS, Monitor, look_around, until_ended
from tests.chaos.orders import Orders
from tests.chaos.postgres import Sessions
from tests.chaos.proxy import Cut, Line, Statement

_PATIENCE_SECONDS = 30.0
_LOCK_TIMEOUT_SECONDS = 0.5


@dataclass(slots=True)
class Stand:
    """One service with workers in it on a database of its own, a line between them, and a caller."""

    folder: Path
    sessions: Sessions
    line: Line
    fleet: Fleet
    service: Member
    ledger: Ledger
    caller: Caller
    load: Load

    async def enqueue(self, what: str) -> str:
        """One accepted job of this sort."""
        answer = await self.load.enqueue(self.caller, self.load.orders.next(what))
        return str(answer.body["id"])

    async def until_state(self, job: str, *states: str) -> int:
        """Waits until the job is in one of these states; its version then."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while True:
                answer = await self.caller.once("read", "GET", f"/jobs/{job}", pick=job_of, job=job)
                if answer is not None and answer.ok and answer.body["state"] in states:
                    return int(answer.body["version"])
                await asyncio.sleep(0.05)

    async def finish_held(self, *jobs: str) -> None:
        """Completes what of these is not ended yet, as an honest worker over HTTP does."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while await self.sessions.ask(
                "SELECT FROM tenure.jobs WHERE id = ANY($1::uuid[]) AND state IN ('queued', 'running')", list(jobs)
            ):
                for hold in await claim(self.caller, "finisher", limit=10):
                    await settle(self.caller, hold, "complete", result=hold.fence)
                await asyncio.sleep(0.1)


async def stale_holder(stand: Stand) -> None:
    """A holder sleeps through its lease, and tries everything while another one holds the job."""
    job = await stand.enqueue("held")
    (first,) = await claim(stand.caller, "sleeper", lease_seconds=1.0)
    await until_taken_back(stand.caller, first)
    (second,) = await claim(stand.caller, "heir", lease_seconds=_PATIENCE_SECONDS)
    await try_everything(stand.caller, first)
    await settle(stand.caller, second, "complete", result="heir's")
    await stand.finish_held(job)


async def locked_row(stand: Stand) -> None:
    """An operator's session holds the best job; whoever claims gets the others, at once."""
    jobs = [await stand.enqueue("held") for _ in range(4)]
    async with stand.sessions.locked(f"id = '{jobs[0]}'", 1):
        begin = time.time()
        for _ in range(2):
            for hold in await claim(stand.caller, "claimer", limit=2):
                await settle(stand.caller, hold, "complete", result="done")
        stand.ledger.note("calm", begin=begin, until=time.time())
    await stand.finish_held(*jobs)


async def enqueue_without_database(stand: Stand) -> None:
    """The database is away: nothing is accepted, or what is accepted is there afterwards."""
    with stand.fleet.disturbed():
        stand.line.refusing = True
        stand.line.cut()
        for _ in range(3):
            request = stand.load.orders.next("quick")
            await stand.caller.once(
                "enqueue", "POST", "/jobs", json=request.body, pick=job_of, n=request.n, kind=request.kind
            )
        stand.line.refusing = False
    await stand.enqueue("quick")


async def at_the_end_of_the_lease(stand: Stand) -> None:
    """Holders report just when their leases end: each is the holder until it has been taken back, and not after."""
    jobs = [await stand.enqueue("held") for _ in range(10)]
    holds = await claim(stand.caller, "late", limit=10, lease_seconds=1.0)
    for hold in holds:
        await settle(stand.caller, hold, "complete", result=hold.fence)
        await asyncio.sleep(0.08)
    await asyncio.sleep(0.5)
    more = [await stand.enqueue("held") for _ in range(10)]
    holds = await claim(stand.caller, "later", limit=10, lease_seconds=1.0)
    await asyncio.sleep(0.9)
    for hold in holds:
        await settle(stand.caller, hold, "complete", result=hold.fence)
        await asyncio.sleep(0.06)
    await stand.finish_held(*jobs, *more)


async def some_attempts(stand: Stand) -> None:
    """A job fails twice and then succeeds."""
    job = await stand.enqueue("flaky")
    await stand.until_state(job, "succeeded")


async def cancels(stand: Stand) -> None:
    """A running job is canceled at a stale version, then at none; a finished one, too."""
    doomed, done = await stand.enqueue("endless"), await stand.enqueue("quick")
    version = await stand.until_state(doomed, "running")
    await stand.load.cancel(stand.caller, doomed, version=version - 1)
    await stand.load.cancel(stand.caller, doomed, version=None)
    await stand.until_state(doomed, "canceled")
    version = await stand.until_state(done, "succeeded")
    await stand.load.cancel(stand.caller, done, version=version - 1)
    await stand.load.cancel(stand.caller, done, version=None)


async def heartbeats(stand: Stand) -> None:
    """A holder lives on its heartbeats for longer than its lease."""
    job = await stand.enqueue("held")
    (hold,) = await claim(stand.caller, "alive", lease_seconds=2.0)
    for _ in range(6):
        await heartbeat(stand.caller, hold)
        await asyncio.sleep(0.5)
    await settle(stand.caller, hold, "complete", result="alive")
    await stand.finish_held(job)


async def holder_vanishes_after_an_outage(stand: Stand) -> None:
    """The database was away for a moment; then a holder vanishes."""
    with stand.fleet.disturbed():
        stand.line.refusing = True
        stand.line.cut()
        await asyncio.sleep(1.0)
        stand.line.refusing = False
    job = await stand.enqueue("held")
    await claim(stand.caller, "vanishing", lease_seconds=1.0)
    end = time.monotonic() + 1.0 + STUCK_SECONDS + 3.0
    while time.monotonic() < end:
        (row,) = await stand.sessions.ask("SELECT state FROM tenure.jobs WHERE id = $1::uuid", job)
        if row["state"] != "running":
            break
        await asyncio.sleep(0.1)
    await stand.finish_held(job)


async def lost_answer(stand: Stand) -> None:
    """The connection breaks when the enqueue has been committed and its answer is on the way; the caller asks again."""
    stand.line.arm(Cut.AFTER, Statement.WRITE, containing=b"'enqueued'")
    await stand.enqueue("quick")


async def lost_listener(stand: Stand) -> None:
    """All connections of the process break; it must be heard listening again."""
    with stand.fleet.disturbed():
        stand.line.cut()
    await stand.enqueue("quick")


Scenario = Callable[[Stand], Awaitable[None]]

SCENARIOS: Mapping[str, Scenario] = {
    "token-predicate-dropped": stale_holder,
    "skip-locked-dropped": locked_row,
    "commit-after-the-answer": enqueue_without_database,
    "reaper-without-re-check": at_the_end_of_the_lease,
    "attempts-counted-twice": some_attempts,
    "cancel-as-blind-write": cancels,
    "heartbeat-by-the-applications-clock": heartbeats,
    "reaper-error-swallowed": holder_vanishes_after_an_outage,
    "key-in-its-own-transaction": lost_answer,
    "lost-listen-ignored": lost_listener,
}
"""By the fault that each would show."""

WRONG_CLOCK = "clock=-3600"
"""All of them run with a clock that is an hour slow: no clock but the database's may matter."""


async def play(
    scenarios: Mapping[str, Scenario],
    *,
    build: str,
    launcher: Launcher,
    server_url: str,
    database: str,
    folder: Path,
    patience_seconds: float = _PATIENCE_SECONDS,
) -> Findings:
    """Plays the scenarios on one stand and checks what became of it. ``build`` is the fault, or nothing."""
    findings = Findings()
    builds = ",".join(filter(None, (WRONG_CLOCK, build)))
    async with standing(builds, launcher=launcher, server_url=server_url, database=database, folder=folder) as stand:
        for scenario in scenarios.values():
            with contextlib.suppress(*(() if not build else (TimeoutError, ValueError))):  # a fault may hinder it
                await asyncio.wait_for(scenario(stand), patience_seconds)
        await until_ended(stand.sessions, timeout_seconds=patience_seconds)
        await look_around(stand.sessions, stand.fleet, findings, timeout_seconds=patience_seconds)
        with contextlib.suppress(*(() if not build else (TimeoutError,))):
            await stand.fleet.end()
        connection = await stand.sessions.connect()
        evidence = await collect(connection, stand.ledger.folder, logs_in(folder))
        await connection.close()
    for check in (check_jobs, check_calls, check_processes):
        check(evidence, findings)
    return findings


@contextlib.asynccontextmanager
async def standing(
    build: str, *, launcher: Launcher, server_url: str, database: str, folder: Path
) -> AsyncIterator[Stand]:
    """A stand on a new database of the server, which is dropped at the end."""
    (folder / "ledger").mkdir(parents=True)
    ledger = Ledger(folder / "ledger", "harness")
    server = Sessions(server_url)
    await server.ask(f'CREATE DATABASE "{database}"')
    sessions = server.at(database)
    await sessions.ask(EFFECTS_TABLE)
    line = await Line(sessions.url).open()
    chance = random.Random(database)
    fleet = Fleet(launcher, ledger, folder, chance)
    service = fleet.server(
        line,
        workers=True,
        build=build,
        DATABASE_LOCK_TIMEOUT_SECONDS=str(_LOCK_TIMEOUT_SECONDS),
        WORKER_POLL_SECONDS="0.1",
    )
    monitoring = asyncio.create_task(Monitor(sessions, fleet, ledger).run())
    try:
        async with new_client() as client:
            await fleet.start()
            caller = Caller(name="c", ledger=ledger, servers=fleet.urls, client=client, chance=chance)
            orders = Orders(chance=chance, ledger=ledger.folder, prefix="n")
            load = Load(caller=caller, orders=orders, per_second=1, jobs=0, chance=chance)
            yield Stand(
                folder=folder,
                sessions=sessions,
                line=line,
                fleet=fleet,
                service=service,
                ledger=ledger,
                caller=caller,
                load=load,
            )
    finally:
        monitoring.cancel()
        await asyncio.gather(monitoring, return_exceptions=True)
        await fleet.close()
        await line.close()
        with contextlib.suppress(asyncpg.PostgresError):
            await server.ask_once(f'DROP DATABASE "{database}" WITH (FORCE)')
