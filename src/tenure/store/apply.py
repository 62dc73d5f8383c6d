"""Applying decisions: lock rows, let a pure function decide, write all transitions and their events in one statement.

Every transition but the three on the hot path (enqueue, claim, complete) is written here.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NewType
from uuid import UUID

from tenure.jobs.decisions import Decision, Standing
from tenure.jobs.ids import JobId, part_of
from tenure.jobs.model import CancelOutcome, State
from tenure.store.database import Connection, Record
from tenure.store.rows import error_to_json, to_json

DatabaseNow = NewType("DatabaseNow", datetime)
"""The transaction's `now()`: the same for the lock, the decision and the write."""

STANDING_COLUMNS = """
    j.id, j.kind, j.state, j.version, j.attempts, j.max_attempts, j.releases, j.deadline_at, j.lease_worker_id,
    j.lease_token_digest, j.lease_expires_at, j.cancel_outcome, j.cancel_accepted_version, now() AS now
"""

_LOCK = f"""
SELECT {STANDING_COLUMNS} FROM tenure.jobs AS j
WHERE j.part = $1 AND j.id = ANY($2::uuid[]) AND ($3::text IS NULL OR j.tenant = $3)
ORDER BY j.id FOR NO KEY UPDATE
"""

_CHANGES = {
    "state": "d.state",
    "version": "j.version + 1",
    "attempts": "d.attempts",
    "releases": "d.releases",
    "available_at": "coalesce(d.available_at, j.available_at)",
    "deadline_at": "coalesce(d.deadline_at, j.deadline_at)",
    "last_error": "coalesce(d.error, j.last_error)",
    "error_fingerprint": "coalesce(d.fingerprint, j.error_fingerprint)",
    "cancel_outcome": "coalesce(d.cancel_outcome, j.cancel_outcome)",
    "cancel_reason": "coalesce(j.cancel_reason, d.cancel_reason)",
    "cancel_requested_by": "coalesce(j.cancel_requested_by, d.cancel_requested_by)",
    "cancel_requested_at": "coalesce(j.cancel_requested_at,"
    " CASE WHEN d.cancel_outcome IS NOT NULL THEN greatest(now(), j.updated_at) END)",
    "cancel_accepted_version": "coalesce(j.cancel_accepted_version,"
    " CASE WHEN d.cancel_outcome IS NOT NULL THEN j.version END)",
    "cancel_confirmed_at": "CASE WHEN d.cancel_outcome IN ('stopped', 'prevented') THEN greatest(now(), j.updated_at)"
    " ELSE j.cancel_confirmed_at END",
    "lease_token_digest": "CASE d.state WHEN 'running' THEN j.lease_token_digest END",
    "lease_length_seconds": "CASE d.state WHEN 'running' THEN j.lease_length_seconds END",
    "lease_acquired_at": "CASE d.state WHEN 'running' THEN j.lease_acquired_at END",
    "lease_expires_at": "CASE d.state WHEN 'running' THEN j.lease_expires_at END",
    "lease_heartbeat_at": "CASE d.state WHEN 'running' THEN j.lease_heartbeat_at END",
    "lease_heartbeats": "CASE d.state WHEN 'running' THEN j.lease_heartbeats END",
    "finished_at": "CASE WHEN d.state IN ('failed', 'canceled', 'dead') THEN greatest(now(), j.updated_at) END",
    "updated_at": "greatest(now(), j.updated_at)",
}
"""What each column becomes: ``j`` is the row as it was, ``d`` what was decided for it."""

# The transaction may have begun before the event that it waited for: a history's times never run backwards. Each row looks
# for its decision among all of them (see arrays.py for why it is no join), so they come in bounded numbers.
_AT_ONCE = 250
_APPLY = f"""
WITH decided AS MATERIALIZED (
    SELECT * FROM unnest(
        $2::uuid[], $3::text[], $4::integer[], $5::text[], $6::text[], $7::smallint[], $8::smallint[],
        $9::timestamptz[], $10::timestamptz[], $11::json[], $12::text[], $13::text[], $14::text[], $15::text[],
        $16::json[], $17::bytea[], $18::bytea[], $19::text[]
    ) AS t (
        id, from_state, from_version, event, state, attempts, releases,
        available_at, deadline_at, error, fingerprint, cancel_outcome, cancel_reason, cancel_requested_by,
        detail, token_digest, outcome_digest, worker_id
    )
), changed AS (
    UPDATE tenure.jobs AS j SET ({", ".join(_CHANGES)}) = (
        SELECT {", ".join(_CHANGES.values())} FROM decided AS d WHERE d.id = j.id
    )
    WHERE j.part = $1 AND j.id = ANY ($2::uuid[])
        AND (j.state, j.version) = (SELECT d.from_state, d.from_version FROM decided AS d WHERE d.id = j.id)
    RETURNING j.part, j.id, j.version, j.state, j.attempts, j.available_at, j.updated_at
), recorded AS (
    INSERT INTO tenure.events
        (part, job_id, version, at, type, state, attempt, worker_id, detail, token_digest, outcome_digest)
    SELECT c.part, c.id, c.version, c.updated_at, d.event, c.state, c.attempts, d.worker_id, d.detail, d.token_digest,
        d.outcome_digest
    FROM changed AS c JOIN decided AS d USING (id)
)
SELECT id, version, state, attempts, available_at FROM changed
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A job and what happens to it; ``outcome_digest`` when its holder reported the outcome."""

    job: Standing
    decision: Decision
    outcome_digest: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A transition that was written."""

    id: JobId
    version: int
    state: State
    attempts: int
    available_at: datetime


async def lock(
    connection: Connection, ids: Iterable[UUID], *, tenant: str | None = None
) -> tuple[dict[JobId, Standing], DatabaseNow | None]:
    """Locks the jobs (in the order of part and id) and says where each stands, and what time it is.

    Jobs that do not exist are missing from the answer; the time is None when there is none at all.
    """
    standings: dict[JobId, Standing] = {}
    now: DatabaseNow | None = None
    for part, part_ids in sorted(by_part(connection, ids).items()):
        for row in await connection.fetch(_LOCK, part, part_ids, tenant):
            standings[JobId(row["id"])] = standing_from(row)
            now = DatabaseNow(row["now"])
    return standings, now


async def apply(connection: Connection, decided: Sequence[Decided]) -> dict[JobId, Applied]:
    """Writes the transitions of jobs that this transaction has locked. What was not locked and changed is left out."""
    applied: dict[JobId, Applied] = {}
    grouped: dict[int, list[Decided]] = defaultdict(list)
    for item in decided:
        grouped[part_of(item.job.id, connection.parts)].append(item)
    batches = [
        (part, items[start : start + _AT_ONCE])
        for part, items in sorted(grouped.items())
        for start in range(0, len(items), _AT_ONCE)
    ]
    for part, items in batches:
        rows = await connection.fetch(
            _APPLY,
            part,
            [item.job.id for item in items],
            [str(item.job.state) for item in items],
            [item.job.version for item in items],
            [str(item.decision.event) for item in items],
            [str(item.decision.state) for item in items],
            [item.decision.attempts for item in items],
            [item.decision.releases for item in items],
            [item.decision.available_at for item in items],
            [item.decision.deadline_at for item in items],
            [error_to_json(item.decision.error) for item in items],
            [item.decision.error.fingerprint if item.decision.error else None for item in items],
            [str(item.decision.cancel_outcome) if item.decision.cancel_outcome else None for item in items],
            [item.decision.cancel_reason for item in items],
            [item.decision.cancel_requested_by for item in items],
            [to_json(item.decision.detail) for item in items],
            [None if item.decision.state is State.RUNNING else item.job.token_digest for item in items],
            [item.outcome_digest for item in items],
            [item.job.worker_id for item in items],
        )
        for row in rows:
            applied[JobId(row["id"])] = Applied(
                id=JobId(row["id"]),
                version=row["version"],
                state=State(row["state"]),
                attempts=row["attempts"],
                available_at=row["available_at"],
            )
    return applied


def standing_from(row: Record) -> Standing:
    """A Standing from a row that has STANDING_COLUMNS."""
    outcome, state = row["cancel_outcome"], State(row["state"])
    return Standing(
        id=JobId(row["id"]),
        kind=row["kind"],
        state=state,
        version=row["version"],
        attempts=row["attempts"],
        max_attempts=row["max_attempts"],
        releases=row["releases"],
        deadline_at=row["deadline_at"],
        worker_id=row["lease_worker_id"] if state is State.RUNNING else None,
        token_digest=row["lease_token_digest"],
        lease_expires_at=row["lease_expires_at"],
        cancel_outcome=CancelOutcome(outcome) if outcome else None,
        cancel_accepted_version=row["cancel_accepted_version"],
    )


def by_part(connection: Connection, ids: Iterable[UUID]) -> dict[int, list[UUID]]:
    """The ids, grouped by the part in which each lies."""
    grouped: dict[int, list[UUID]] = defaultdict(list)
    for job_id in ids:
        grouped[part_of(job_id, connection.parts)].append(job_id)
    return grouped
