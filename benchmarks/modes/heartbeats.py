"""Heartbeats: thousands of jobs run long in one worker, and each of their leases is renewed every third of its length.

First the updates are counted that PostgreSQL could do without touching an index (HOT), with nothing else going on. Then
claims of other work are timed beside, against the same claims before.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.application import HOLD, QUEUE
from benchmarks.claimer import Claimer, claimer
from benchmarks.modes.mode import Case, Mode, Profile
from benchmarks.processes import refuse_dead, running
from benchmarks.results import LOWER, Figure, percentile
from benchmarks.stage import Site, Stage, until
from benchmarks.subjects import TENURE, Subject, tenure

NAME = "heartbeats"

_LEASE_SECONDS = 9
_OTHER_QUEUE = "benchmark-other"
_BATCH = 10
_START_SECONDS = 60.0
_FLUSH_SECONDS = 1.5
"""A backend keeps its counts to itself for up to a second."""

_RUNNING = f"SELECT count(*) FROM tenure.jobs WHERE state = 'running' AND queue = '{QUEUE}'"
_COUNTS = f"""
SELECT json_build_object('updates', n_tup_upd, 'hot', n_tup_hot_upd, 'beats', (
    SELECT coalesce(sum(lease_heartbeats), 0) FROM tenure.jobs WHERE state = 'running' AND queue = '{QUEUE}'
))::text FROM pg_stat_user_tables WHERE schemaname = 'tenure' AND relname = 'jobs'
"""


def cases(profile: Profile) -> list[Case]:
    leases = {Profile.SMOKE: 20, Profile.QUICK: 1_000, Profile.FULL: 5_000}[profile]
    seconds = {Profile.SMOKE: 3.2, Profile.QUICK: 6.0, Profile.FULL: 15.0}[profile]
    return [Case(name=f"{leases:,} leases", jobs=leases, seconds=seconds)]


async def measure(stage: Stage, subject: Subject, case: Case) -> Sequence[Figure]:
    settings = {
        "WORKER_SLOTS": str(case.jobs),
        "LEASE_SECONDS": str(_LEASE_SECONDS),
        "SHUTDOWN_GRACE_SECONDS": "0",
    }
    async with stage.site(subject) as site, claimer(site.database_url, queue=_OTHER_QUEUE) as other:
        await other.timed(_BATCH, repeats=5)
        before = await _claims(other, seconds=case.seconds / 2)
        async with claimer(site.database_url, kind=HOLD) as maker:
            await maker.put(case.jobs, payload='{"seconds": 3600}')
        worker = tenure(["worker"], database_url=site.database_url, records=site.folder, **settings)
        async with running([worker], site.folder) as processes:

            async def all_run() -> bool:
                refuse_dead(processes, site.folder)
                return int(await site.value(_RUNNING)) >= case.jobs

            await until(all_run, seconds=_START_SECONDS, what=f"{case.jobs:,} running jobs")
            await asyncio.sleep(_FLUSH_SECONDS)
            counted = await _counted(site)
            await asyncio.sleep(case.seconds)
            after = await _counted(site)
            beside = await _claims(other, seconds=case.seconds)
    updates, hot, beats = (after[key] - counted[key] for key in ("updates", "hot", "beats"))
    common: dict[str, Any] = {"mode": NAME, "case": case.name, "subject": subject.name}
    quiet, busy = percentile(before, 0.95), percentile(beside, 0.95)
    return [
        Figure(**common, metric="renewed", value=beats / case.seconds, unit="leases/s"),
        Figure(**common, metric="HOT", value=100 * hot / max(updates, 1), unit="% of updates"),
        Figure(**common, metric="claim p95 before", value=quiet, unit="ms", better=LOWER),
        Figure(**common, metric="claim p95 beside", value=busy, unit="ms", better=LOWER),
    ]


async def _counted(site: Site) -> dict[str, int]:
    counts: dict[str, int] = json.loads(await site.value(_COUNTS))
    return counts


async def _claims(other: Claimer, *, seconds: float) -> list[float]:
    end = time.monotonic() + seconds
    took: list[float] = []
    while time.monotonic() < end:
        took += await other.timed(_BATCH, repeats=1)
        await asyncio.sleep(0.01)
    return took


MODE = Mode(
    name=NAME,
    title="Heartbeats of many leases",
    cases=cases,
    measure=measure,
    subjects=frozenset({TENURE}),
    rounds=1,
)
