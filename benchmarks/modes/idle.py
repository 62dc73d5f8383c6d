"""Idle: what several services and many workers ask of PostgreSQL and of the processors while there is nothing to do.

Statements are counted by pg_stat_statements; on a server without it, transactions are, which are fewer. The processor's
time is that of all processes of Tenure's and of PostgreSQL's backends for them.
"""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import psutil

from benchmarks.modes.mode import Case, Mode, Profile
from benchmarks.results import LOWER, Figure
from benchmarks.services import Service, tenure_service
from benchmarks.stage import Site, Stage
from benchmarks.subjects import TENURE, Subject

NAME = "idle"

_STATEMENTS = """
SELECT sum(calls)::bigint FROM pg_stat_statements AS s JOIN pg_database AS d ON d.oid = s.dbid
WHERE d.datname = current_database() AND query NOT LIKE '%pg_stat_%'
"""
_TRANSACTIONS = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
_BACKENDS = "SELECT array_agg(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


def cases(profile: Profile) -> list[Case]:
    if profile is Profile.SMOKE:
        return [Case(name="1 service, 1 worker", callers=1, workers=1, settle_seconds=0.5, seconds=1.0)]
    # Polling backs off while it finds nothing; what counts is how it is in the long run.
    settle, seconds = (15.0, 15.0) if profile is Profile.QUICK else (60.0, 60.0)
    return [Case(name="4 services, 16 workers", callers=4, workers=4, settle_seconds=settle, seconds=seconds)]


async def measure(stage: Stage, subject: Subject, case: Case) -> Sequence[Figure]:
    async with stage.site(subject) as site, AsyncExitStack() as stack:
        query, counted = await _counter(site)
        services = [
            await stack.enter_async_context(tenure_service(site, workers=case.workers)) for _ in range(case.callers)
        ]
        await asyncio.sleep(case.settle_seconds)
        calls, processor, began = int(await site.value(query)), await _processor(site, services), time.monotonic()
        await asyncio.sleep(case.seconds)
        seconds = time.monotonic() - began
        calls = int(await site.value(query)) - calls
        processor = await _processor(site, services) - processor
        for service in services:
            service.check()
    common: dict[str, Any] = {"mode": NAME, "case": case.name, "subject": subject.name, "better": LOWER}
    return [
        Figure(**common, metric=counted, value=calls / seconds, unit="/s"),
        Figure(**common, metric="processor", value=100 * processor / seconds, unit="% of a core"),
    ]


async def _counter(site: Site) -> tuple[str, str]:
    """The query that counts, and what it counts."""
    try:
        await site.server.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements", url=site.database_url)
        await site.value(_STATEMENTS)
        name = str(await site.value("SELECT current_database()"))
        await site.server.execute(f"ALTER DATABASE \"{name}\" SET pg_stat_statements.track = 'top'")
    except asyncpg.PostgresError:
        return _TRANSACTIONS, "transactions"
    return _STATEMENTS, "statements"


async def _processor(site: Site, services: Sequence[Service]) -> float:
    """Seconds of processor time so far; a backend elsewhere cannot be seen, and one that has ended no longer."""
    backends = await site.value(_BACKENDS) or []
    seconds = 0.0
    for pid in [*backends, *(process.pid for service in services for process in service.processes)]:
        with contextlib.suppress(psutil.Error):
            times = psutil.Process(pid).cpu_times()
            seconds += times.user + times.system
    return seconds


MODE = Mode(name=NAME, title="Nothing to do", cases=cases, measure=measure, subjects=frozenset({TENURE}), rounds=1)
