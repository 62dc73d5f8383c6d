"""Held snapshot: what claims take while somebody's open transaction keeps every dead row from being removed.

A dump, a stuck client, a replica with feedback do that. Jobs are put in, claimed and settled a hundred at a time by the
broker that the workers use, and its claims are timed as the dead rows gather. Then a claimer that has just started, and
knows nothing of what came before, claims once.
"""

import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from benchmarks.claimer import claimer
from benchmarks.modes.mode import Case, Mode, Profile
from benchmarks.results import LOWER, Figure
from benchmarks.stage import Stage
from benchmarks.subjects import TENURE, Subject

NAME = "held-snapshot"

_HELD = "held"
_BATCH = 100


def cases(profile: Profile) -> list[Case]:
    jobs = {Profile.SMOKE: 400, Profile.QUICK: 20_000, Profile.FULL: 200_000}[profile]
    return [
        Case(name=f"{jobs:,} jobs, snapshot held", jobs=jobs, shape=_HELD),
        Case(name=f"{jobs:,} jobs, none held", jobs=jobs),
    ]


async def measure(stage: Stage, subject: Subject, case: Case) -> Sequence[Figure]:
    claims: list[float] = []
    async with stage.site(subject) as site, claimer(site.database_url) as one:
        await one.timed(_BATCH, repeats=5)
        async with _snapshot(site.database_url, held=case.shape == _HELD):
            began = time.perf_counter()
            while len(claims) < case.jobs // _BATCH:
                claims += await one.timed(_BATCH, repeats=10)
            rate = case.jobs / (time.perf_counter() - began)
            async with claimer(site.database_url) as newcomer:
                await newcomer.put(_BATCH)
                newcomers, _ = await newcomer.claim(_BATCH)
    few = max(len(claims) // 20, 2)
    first, last = statistics.median(claims[:few]), statistics.median(claims[-few:])
    common: dict[str, Any] = {"mode": NAME, "case": case.name, "subject": subject.name}
    return [
        Figure(**common, metric="claim of 100, at first", value=first, unit="ms", better=LOWER),
        Figure(**common, metric="claim of 100, at last", value=last, unit="ms", better=LOWER),
        Figure(**common, metric="first claim of a newcomer", value=newcomers * 1_000, unit="ms", better=LOWER),
        Figure(**common, metric="put, claimed and settled", value=rate, unit="jobs/s"),
    ]


@asynccontextmanager
async def _snapshot(database_url: str, *, held: bool) -> AsyncIterator[None]:
    if not held:
        yield
        return
    connection = await asyncpg.connect(database_url)
    try:
        # The embedded server ends transactions that are left open; this one is meant to be.
        await connection.execute("SET idle_in_transaction_session_timeout = 0")
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.fetchval("SELECT count(*) FROM tenure.jobs")
            yield
    finally:
        await connection.close()


MODE = Mode(
    name=NAME,
    title="Claims while a snapshot is held",
    cases=cases,
    measure=measure,
    subjects=frozenset({TENURE}),
    rounds=1,
)
