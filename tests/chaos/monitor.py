"""Looks on while a run goes on: leases that nobody takes back. And looks around when it is quiet again."""

import asyncio
import time
from collections import Counter
from typing import Any

import asyncpg

from tests.chaos.evidence import Evidence
from tests.chaos.findings import Findings
from tests.chaos.fleet import REAP_SECONDS, Fleet
from tests.chaos.ledger import Ledger
from tests.chaos.postgres import AWAY, Sessions

STUCK_SECONDS = REAP_SECONDS + 5.0
"""How long after the end of a lease the job may still count as running."""

_LOOK_SECONDS = 0.5

# Rows that a paused process or a half-open connection has locked cannot be taken back by anybody: they are passed over.
_STUCK = """
SELECT id::text AS job, extract(epoch FROM now() - lease_expires_at)::float AS late FROM tenure.jobs
WHERE state = 'running' AND lease_expires_at < now() - interval '1 second' * $1 FOR UPDATE SKIP LOCKED
"""

_LEFT = """
SELECT count(*) FILTER (WHERE state <> 'queued') AS ended, count(*) FILTER (WHERE state IN ('queued', 'running')) AS open
FROM tenure.jobs
"""

_SESSIONS = """
SELECT application_name AS name, count(*) AS count,
    count(*) FILTER (WHERE state LIKE 'idle in transaction%' AND now() - state_change > interval '5 seconds') AS idle
FROM pg_stat_activity WHERE application_name LIKE 'tenure%' AND datname = current_database() GROUP BY 1
"""

_WAITING = """
SELECT count(*) AS count FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
WHERE NOT l.granted AND a.application_name LIKE 'tenure%' AND now() - a.query_start > interval '5 seconds'
"""

POOL_SIZE = 10
"""The product's default, which the runs leave as it is."""


class Monitor:
    """Asks for stuck jobs twice a second, on a session past every line."""

    def __init__(self, postgres: Sessions, fleet: Fleet, ledger: Ledger) -> None:
        self._postgres = postgres
        self._fleet = fleet
        self._ledger = ledger
        self._told: set[str] = set()

    async def run(self) -> None:
        """Until cancelled."""
        connection: Any = None
        try:
            while True:
                began = time.monotonic()
                await asyncio.sleep(_LOOK_SECONDS)
                late = time.monotonic() - began - _LOOK_SECONDS
                try:
                    if connection is None or connection.is_closed():
                        connection = await self._postgres.connect()
                    # What a machine that stood still could not do is nobody's fault.
                    await self._look(connection, STUCK_SECONDS + max(late, 0.0) * 2)
                except AWAY:
                    if connection is not None:
                        connection.terminate()
                    connection = None
        finally:
            if connection is not None:
                connection.terminate()

    async def _look(self, connection: "asyncpg.Connection[asyncpg.Record]", bound_seconds: float) -> None:
        sound = self._fleet.sound_for()
        if sound < bound_seconds:
            return
        rows = await connection.fetch(_STUCK, bound_seconds)
        if self._fleet.sound_for() < bound_seconds:
            return
        for row in rows:
            if row["job"] not in self._told:
                self._told.add(row["job"])
                self._ledger.note("stuck", job=row["job"], late=row["late"], sound=sound)


async def until_ended(postgres: Sessions, *, timeout_seconds: float) -> bool:
    """Waits until no job is queued or running; whether that came in time."""
    try:
        async with asyncio.timeout(timeout_seconds):
            while True:
                (row,) = await postgres.ask(_LEFT)
                if not row["open"]:
                    return True
                await asyncio.sleep(0.2)
    except TimeoutError:
        return False


async def look_around(postgres: Sessions, fleet: Fleet, findings: Findings, *, timeout_seconds: float = 20.0) -> None:
    """Whether the product's sessions are those that its processes should have, once nothing is going on."""
    problems = Findings()
    end = time.monotonic() + timeout_seconds
    while time.monotonic() < end:
        problems = await _around(postgres, fleet)
        if not problems.found:
            return
        await asyncio.sleep(0.3)
    findings.found += problems.found


async def _around(postgres: Sessions, fleet: Fleet) -> Findings:
    problems = Findings()
    members = [member for member in fleet.members if member.line is not None]
    processes, workers = len(members), len(fleet.of("worker"))
    rows = await postgres.ask(_SESSIONS)
    sessions = Counter({row["name"]: row["count"] for row in rows})
    if sessions["tenure listener"] < processes:
        problems.add("deaf", f"{sessions['tenure listener']} of {processes} processes listen")
    most = {
        "tenure listener": processes,
        "tenure heartbeats": workers + sum(1 for it in members if it.arguments == ("serve",)),
        "tenure serve": processes * POOL_SIZE,
    }
    for name, count in sessions.items():
        if count > most.get(name, 0):
            problems.add("connections", f"{count} sessions are called {name!r}, at most {most.get(name, 0)} should be")
    idle = sum(row["idle"] for row in rows)
    if idle:
        problems.add("connections", f"{idle} sessions have been idle in a transaction for over 5 s")
    carried = sum(member.line.connections for member in members if member.line is not None)
    if sum(sessions.values()) > carried:
        problems.add("connections", f"{sum(sessions.values())} sessions, of which {carried} are somebody's")
    (waiting,) = await postgres.ask(_WAITING)
    if waiting["count"]:
        problems.add("connections", f"{waiting['count']} sessions have waited for a lock for over 5 s")
    return problems


def repeated_starts(evidence: Evidence) -> Counter[str]:
    """Attempts after the first, by what had ended the one before."""
    causes: Counter[str] = Counter()
    for story in evidence.stories.values():
        for before, _ in zip(story.leases, story.leases[1:], strict=False):
            causes[before.ended.type if before.ended else "nothing"] += 1
    return causes


def recoveries(evidence: Evidence) -> list[float]:
    """Seconds from the end of each lost lease to its being taken back."""
    found = []
    for events in evidence.events.values():
        for event in events:
            expired_at = event.detail.get("expired_at") if event.type == "lease_expired" else None
            if expired_at is not None:
                found.append((event.at - event.at.fromisoformat(expired_at)).total_seconds())
    return found


def late_starts(evidence: Evidence) -> int:
    """Handlers that began although their lease had been taken back: their process had been paused in between."""
    late = 0
    for fact in evidence.facts_of("start"):
        story = evidence.stories.get(fact["job"])
        lease = story.lease_of(fact["fence"]) if story else None
        if lease is not None and lease.ended is not None and lease.ended.at.timestamp() < fact["at"]:
            late += 1
    return late
