"""One run, from an empty database to the verdict: load and nemesis together, then quiet, then the checks."""

import asyncio
import contextlib
import random
import shutil
import tempfile
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.builds import make_next
from tests.chaos.caller import Caller, new_client
from tests.chaos.check_calls import check_calls
from tests.chaos.check_jobs import check_jobs
from tests.chaos.check_processes import check_processes
from tests.chaos.evidence import EFFECTS_TABLE, Evidence, collect, logs_in
from tests.chaos.findings import Findings
from tests.chaos.fleet import Fleet
from tests.chaos.holders import Holders
from tests.chaos.launcher import Command, Zygote
from tests.chaos.ledger import Ledger
from tests.chaos.load import Load
from tests.chaos.monitor import Monitor, look_around, until_ended
from tests.chaos.nemesis import Nemesis
from tests.chaos.orders import Orders
from tests.chaos.postgres import OwnPostgres
from tests.chaos.proxy import Line

_CALM_SECONDS = 1.0
_SETTLING_SECONDS = 3.0
"""After the last job has ended and before the calm in which nothing may be refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run consists of. ``faults``: name → how often, spread over ``seconds``."""

    name: str
    seconds: float
    faults: Mapping[str, int]
    per_second: float
    jobs: int = 1_000_000
    batch_jobs: int = 5
    servers: int = 2
    workers: int = 3
    remotes: int = 1
    holders: int = 4
    rolling: bool = True
    end_seconds: float = 90.0
    """How long, after the last fault, the jobs get to end."""
    zygote: bool = True


@dataclass(slots=True)
class Outcome:
    """What a run came to."""

    plan: Plan
    seed: int
    seconds: float
    evidence: Evidence
    findings: Findings
    faults: Mapping[str, int]
    cuts: int
    accepted: int
    folder: Path
    numbers: dict[str, float] = field(default_factory=dict)


async def run(plan: Plan, seed: int, *, keep: Path | None = None) -> Outcome:
    """Runs the plan. The ledger and the logs stay in ``keep``; without it, they stay only when something was found."""
    folder = keep or Path(tempfile.mkdtemp(prefix=f"tenure-chaos-{seed}-"))
    ledger_folder = folder / "ledger"
    ledger_folder.mkdir(parents=True)
    ledger = Ledger(ledger_folder, "harness")
    ledger.note("seed", seed=seed, plan=plan.name)
    began = time.monotonic()
    postgres = OwnPostgres()
    lines: list[Line] = []
    launcher = await Zygote().open() if plan.zygote else Command()
    fleet = Fleet(launcher, ledger, folder, random.Random(f"{seed}:fleet"))
    try:
        await postgres.open()
        await postgres.ask(EFFECTS_TABLE)
        for _ in range(plan.servers):
            lines.append(await Line(postgres.url).open())
            fleet.server(lines[-1])
        for _ in range(plan.workers):
            lines.append(await Line(postgres.url).open())
            fleet.worker(lines[-1])
        for number in range(plan.remotes):
            fleet.remote(fleet.urls[number % plan.servers])
        await fleet.start()
        findings = Findings()
        nemesis, accepted = await _rage(plan, seed, fleet, postgres, ledger, folder, findings)
        await fleet.end()
        connection = await postgres.connect()
        evidence = await collect(connection, ledger_folder, logs_in(folder))
        await connection.close()
        for check in (check_jobs, check_calls, check_processes):
            check(evidence, findings)
    finally:
        await fleet.close()
        await launcher.close()
        for line in lines:
            await line.close()
        await postgres.close()
    if keep is None and not findings.found:
        shutil.rmtree(folder, ignore_errors=True)
    return Outcome(
        plan=plan,
        seed=seed,
        seconds=time.monotonic() - began,
        evidence=evidence,
        findings=findings,
        faults=nemesis.done,
        cuts=nemesis.cuts,
        accepted=accepted,
        folder=folder,
    )


async def _rage(
    plan: Plan, seed: int, fleet: Fleet, postgres: OwnPostgres, ledger: Ledger, folder: Path, findings: Findings
) -> tuple[Nemesis, int]:
    """Load, holders and nemesis until the nemesis has done all it was to do; then until all is quiet."""
    async with new_client() as client:
        caller = Caller(
            name="c", ledger=ledger, servers=fleet.urls, client=client, chance=random.Random(f"{seed}:callers")
        )
        orders = Orders(chance=random.Random(f"{seed}:orders"), ledger=folder / "ledger", prefix=f"{seed}-")
        load = Load(
            caller=caller,
            orders=orders,
            per_second=plan.per_second,
            jobs=plan.jobs,
            batch_jobs=plan.batch_jobs,
            chance=random.Random(f"{seed}:load"),
        )
        holders = Holders(caller=caller.another("holders"), count=plan.holders)
        nemesis = Nemesis(
            fleet=fleet,
            postgres=postgres,
            ledger=ledger,
            chance=random.Random(f"{seed}:nemesis"),
            seconds=plan.seconds,
            plan=plan.faults,
        )
        monitoring = asyncio.create_task(Monitor(postgres, fleet, ledger).run(), name="monitor")
        working = [asyncio.create_task(load.run(), name="load"), asyncio.create_task(holders.run(), name="holders")]
        try:
            await _while_all_run(nemesis.run(), working)
            if plan.rolling:
                await _while_all_run(roll(fleet, ledger, folder), working)
            load.stop()
            async with asyncio.timeout(plan.end_seconds):
                await working[0]
            holders.honest = True
            await until_ended(postgres, timeout_seconds=plan.end_seconds)
            holders.stopping.set()
            await working[1]
            await asyncio.sleep(_SETTLING_SECONDS)
            await _calm(caller.another("calm"), ledger)
            await look_around(postgres, fleet, findings)
        finally:
            for task in (*working, monitoring):
                task.cancel()
            await asyncio.gather(*working, monitoring, return_exceptions=True)
    return nemesis, load.accepted


async def roll(fleet: Fleet, ledger: Ledger, folder: Path) -> None:
    """A deploy of the next version: its migration first, while the old one works; then each process, one by one."""
    build = make_next(folder / "next")
    begin = ledger.note("fault", what="rolling_deploy", phase="begin")
    server = fleet.of("server")[0]
    assert server.line is not None
    # One of this version that were still starting would be refused by the next one's schema: a deploy begins in peace.
    while not all(member.ready for member in fleet.members):
        for member in fleet.members:
            await fleet.until_ready(member)
    for member in fleet.members:
        member.build = build  # whoever is started again from now on is of the next version
    await fleet.run_command("migrate", "migrate", line=server.line, build=build)
    for member in fleet.members:
        await fleet.until_ready(member)
        fleet.terminate(member)
        await fleet.until_ready(member)
    ledger.note("fault", what="rolling_deploy", phase="end", begin=begin)


async def _while_all_run(work: Coroutine[Any, Any, None], others: list["asyncio.Task[None]"]) -> None:
    """Awaits the work; what the others raise meanwhile is raised."""
    task = asyncio.create_task(work)
    watched: set[asyncio.Task[None]] = {task, *others}
    try:
        while not task.done():
            done, watched = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                await one
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(task, return_exceptions=True)


async def _calm(caller: Caller, ledger: Ledger) -> None:
    """Nothing is broken: every request has to be answered, by every server."""
    begin = time.time()
    while time.time() - begin < _CALM_SECONDS:
        for server in range(len(caller.servers)):
            await caller.once("list", "GET", "/jobs?limit=1", server=server)
            await caller.once(
                "claim",
                "POST",
                "/leases",
                json={"worker_id": "calm", "queues": ["calm"]},
                server=server,
                lease_seconds=1.0,
            )
        await asyncio.sleep(0.05)
    ledger.note("calm", begin=begin, until=time.time())
