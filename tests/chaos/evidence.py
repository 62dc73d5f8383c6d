"""The evidence: the ledger's facts put together as calls, and the tables as plain SQL reads them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import asyncpg
import orjson

from tests.chaos.history import Event, Story, replay
from tests.chaos.ledger import Fact, read_facts

_JOBS = """
SELECT id::text, kind, queue, state, version, attempts, max_attempts, deadline_at, idempotency_key,
    payload ->> 'n' AS n, result::text AS result, last_error ->> 'kind' AS error, cancel_outcome, cancel_accepted_version,
    lease_token_digest IS NOT NULL AS leased, finished_at
FROM tenure.jobs
"""

_EVENTS = """
SELECT job_id::text, version, at, type, state, attempt, worker_id, encode(token_digest, 'hex') AS token, detail
FROM tenure.events ORDER BY job_id, version, at
"""

_EFFECTS = "SELECT job_id::text, n, fence FROM chaos_effects"

EFFECTS_TABLE = (
    "CREATE TABLE IF NOT EXISTS chaos_effects (job_id uuid NOT NULL, n text NOT NULL, fence integer NOT NULL)"
)
"""Without any constraint: what must happen once has to do so by itself."""

_FETCHED_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request: what was asked, and what came back, if anything did."""

    name: str
    verb: str
    asked_at: float
    what: Fact
    answer: Fact | None
    """None when no answer came, or the run ended first."""

    @property
    def status(self) -> int | None:
        return None if self.answer is None or self.answer["fact"] != "answered" else int(self.answer["status"])

    @property
    def ok(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def answered_at(self) -> float | None:
        return None if self.answer is None else float(self.answer["at"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A job as its row tells it."""

    id: str
    kind: str
    queue: str
    state: str
    version: int
    attempts: int
    max_attempts: int
    deadline_at: datetime | None
    idempotency_key: str | None
    n: str | None
    result: str | None
    error: str | None
    cancel_outcome: str | None
    cancel_accepted_version: int | None
    leased: bool
    finished_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that the checks look at. ``effects``: job → the fences under which its effect happened."""

    facts: Sequence[Fact]
    calls: Sequence[Call]
    jobs: Mapping[str, Row]
    events: Mapping[str, Sequence[Event]]
    stories: Mapping[str, Story]
    effects: Mapping[str, Sequence[int]]
    logs: Sequence[Path] = ()

    def calls_of(self, *verbs: str) -> Iterator[Call]:
        """The calls of these verbs, in the order in which they were asked."""
        return (call for call in self.calls if call.verb in verbs)

    def facts_of(self, *names: str) -> Iterator[Fact]:
        """The facts of these names, in order."""
        return (fact for fact in self.facts if fact["fact"] in names)


def logs_in(folder: Path) -> list[Path]:
    """What the processes of a run logged."""
    return sorted(folder.glob("*.log"))


async def collect(
    connection: "asyncpg.Connection[asyncpg.Record]", ledger: Path, logs: Sequence[Path] = ()
) -> Evidence:
    """Reads the ledger and, in one snapshot, the tables."""
    facts = read_facts(ledger)
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        jobs = {row["id"]: Row(**dict(row)) async for row in connection.cursor(_JOBS, prefetch=_FETCHED_AT_ONCE)}
        rows = [row async for row in connection.cursor(_EVENTS, prefetch=_FETCHED_AT_ONCE)]
        effects: dict[str, list[int]] = defaultdict(list)
        for row in await connection.fetch(_EFFECTS):
            effects[row["job_id"]].append(row["fence"])
    events = {job: [_event(row) for row in group] for job, group in groupby(rows, key=lambda row: row["job_id"])}
    stories = {
        job: replay(
            history,
            deadline_at=jobs[job].deadline_at if job in jobs else None,
            max_attempts=jobs[job].max_attempts if job in jobs else 1_000_000,
        )
        for job, history in events.items()
    }
    return Evidence(
        facts=facts, calls=calls_from(facts), jobs=jobs, events=events, stories=stories, effects=effects, logs=logs
    )


def calls_from(facts: Sequence[Fact]) -> list[Call]:
    """Questions and answers put together."""
    answers = {fact["call"]: fact for fact in facts if fact["fact"] in ("answered", "unknown")}
    return [
        Call(
            name=fact["call"],
            verb=fact["verb"],
            asked_at=fact["at"],
            what=fact,
            answer=answers.get(fact["call"]),
        )
        for fact in facts
        if fact["fact"] == "asked"
    ]


def _event(row: Any) -> Event:
    return Event(
        version=row["version"],
        at=row["at"],
        type=row["type"],
        state=row["state"],
        attempt=row["attempt"],
        worker=row["worker_id"],
        token=row["token"],
        detail=orjson.loads(row["detail"]) if row["detail"] else {},
    )
