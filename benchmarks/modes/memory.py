"""Memory: how much a service grows while a million jobs wait and it works on them, and while it exports a million rows.

One process that does everything (`tenure serve`). What grows is its resident memory, looked at often, against what it
was when the service was ready and had done a little of the same.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import psutil

from benchmarks.application import NOOP, QUEUE
from benchmarks.claimer import claimer
from benchmarks.modes.mode import Case, Mode, Profile
from benchmarks.results import LOWER, Figure
from benchmarks.rows import multiply
from benchmarks.services import Service, tenure_service
from benchmarks.stage import Site, Stage, until
from benchmarks.subjects import TENURE, Subject

NAME = "memory"

_MEGABYTE = 1_048_576
_WAITING = "waiting"
_EXPORT = "export"
_EXPORT_SECONDS = 900.0
_LOOK_SECONDS = 0.05
_FEW = 1_000

_SAMPLE = f"kind = '{NOOP}' AND queue = '{QUEUE}' AND state = 'queued'"
_CHANGES = {"available_at": "now() - interval '1 day' + copy * interval '1 millisecond'"}

_REPORTS = """
[sources.here]
url_env = "TENURE_DATABASE_URL"

[reports.numbers]
source = "here"
sql = '''SELECT n, 'row ' || n AS name, n * 1.5 AS amount, now() AS at
    FROM generate_series(1, CAST(:rows AS integer)) AS n'''

[reports.numbers.parameters.rows]
type = "integer"
"""


def cases(profile: Profile) -> list[Case]:
    rows = {Profile.SMOKE: 2_000, Profile.QUICK: 100_000, Profile.FULL: 1_000_000}[profile]
    seconds = {Profile.SMOKE: 0.5, Profile.QUICK: 5.0, Profile.FULL: 20.0}[profile]
    return [
        Case(name=f"{rows:,} jobs wait", rows=rows, seconds=seconds, shape=_WAITING),
        Case(name=f"export of {rows:,} rows", rows=rows, shape=_EXPORT),
    ]


@dataclass(slots=True)
class Growth:
    """Resident memory in bytes: at first, and the most since."""

    first: int
    most: int


async def measure(stage: Stage, subject: Subject, case: Case) -> Sequence[Figure]:
    async with stage.site(subject) as site:
        growth = await (_waiting(stage, site, case) if case.shape == _WAITING else _export(site, case))
    common: dict[str, Any] = {"mode": NAME, "case": case.name, "subject": subject.name, "unit": "MB", "better": LOWER}
    return [
        Figure(**common, metric="at first", value=growth.first / _MEGABYTE),
        Figure(**common, metric="growth", value=max(growth.most - growth.first, 0) / _MEGABYTE),
    ]


async def _waiting(stage: Stage, site: Site, case: Case) -> Growth:
    async with tenure_service(site, in_process_workers=True) as service, httpx.AsyncClient(timeout=30) as client:
        await service.load("enqueue", "--seconds=0.2")
        # The sample waits for the copies to be made: its own time has not come.
        async with claimer(site.database_url) as maker:
            await maker.put(1, delay_seconds=86_400.0)
        async with _watched(service) as growth:
            await multiply(stage.server, site.database_url, sample=_SAMPLE, count=case.rows, changes=_CHANGES)
            end = asyncio.get_running_loop().time() + case.seconds
            while asyncio.get_running_loop().time() < end:
                (await client.get(f"{service.url}/jobs", params={"limit": 500})).raise_for_status()
            service.check()
    return growth


async def _export(site: Site, case: Case) -> Growth:
    reports = site.folder / "reports.toml"
    reports.write_text(_REPORTS)
    async with tenure_service(site, in_process_workers=True, REPORTS=str(reports)) as service:
        await _exported(service, _FEW)
        async with _watched(service) as growth:
            await _exported(service, case.rows)
    return growth


async def _exported(service: Service, rows: int) -> None:
    body = {"kind": "report.export", "payload": {"report": "numbers", "parameters": {"rows": rows}, "format": "csv"}}
    async with httpx.AsyncClient(base_url=service.url, timeout=30) as client:
        job = (await client.post("/jobs", json=body)).raise_for_status().json()

        async def succeeded() -> bool:
            state = (await client.get(f"/jobs/{job['id']}")).raise_for_status().json()["state"]
            if state not in {"queued", "running", "succeeded"}:
                raise AssertionError(f"the export is {state}")
            return bool(state == "succeeded")

        await until(succeeded, seconds=_EXPORT_SECONDS, what=f"an export of {rows:,} rows", every=0.1)


@asynccontextmanager
async def _watched(service: Service) -> AsyncIterator[Growth]:
    process = psutil.Process(service.processes[0].pid)
    resident = process.memory_info().rss
    growth = Growth(resident, resident)

    async def watch() -> None:
        while True:
            growth.most = max(growth.most, process.memory_info().rss)
            await asyncio.sleep(_LOOK_SECONDS)

    watching = asyncio.create_task(watch())
    try:
        yield growth
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


MODE = Mode(
    name=NAME,
    title="Memory",
    cases=cases,
    measure=measure,
    subjects=frozenset({TENURE}),
    rounds=1,
)
