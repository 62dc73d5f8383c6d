"""Who works here: workers are known by claiming, and forgotten a day after they were last seen.

The record is for people, and for what an operator tells a worker. No job depends on it: whoever deletes a row hides
nothing and disturbs nobody.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from tenure.errors import NotFound
from tenure.jobs.ids import JobId
from tenure.jobs.model import DEFAULT_TENANT
from tenure.store.database import Connection, Record


class Directive(StrEnum):
    """What an operator can tell a worker."""

    QUIET = "quiet"
    """Claim nothing more; finish what you hold."""
    TERMINATE = "terminate"
    """Finish or release what you hold within your grace, then end."""


_SEEN_AGAIN = """
UPDATE tenure.workers AS w SET
    queues = $3, kinds = $4, capacity = coalesce($5, w.capacity), version = coalesce($6, w.version),
    host = coalesce($7, w.host), last_seen_at = now(),
    directive = CASE WHEN $8 THEN NULL ELSE w.directive END,
    directed_at = CASE WHEN $8 THEN NULL ELSE w.directed_at END,
    directed_by = CASE WHEN $8 THEN NULL ELSE w.directed_by END,
    directive_reason = CASE WHEN $8 THEN NULL ELSE w.directive_reason END
WHERE w.tenant = $1 AND w.id = $2
RETURNING w.directive
"""

_FIRST_SEEN = """
INSERT INTO tenure.workers (tenant, id, queues, kinds, capacity, version, host, first_seen_at, last_seen_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, now(), now())
ON CONFLICT (tenant, id) DO NOTHING
"""

_DIRECT = """
UPDATE tenure.workers AS w SET directive = $3,
    directed_at = CASE WHEN $3::text IS NOT NULL THEN now() END, directed_by = $4, directive_reason = $5
WHERE w.tenant = $1 AND w.id = $2
RETURNING w.id
"""

# Also a holder without a record (somebody deleted it, or it never claimed here) is shown: its jobs are what matters.
_LIST = """
WITH held AS (
    SELECT j.lease_worker_id AS id, count(*) AS running, max(j.lease_heartbeat_at) AS heard_at
    FROM tenure.jobs AS j
    WHERE j.part = $1 AND j.state = 'running' AND j.tenant = $2
    GROUP BY j.lease_worker_id
)
SELECT coalesce(w.id, h.id) AS id, w.queues, w.kinds, w.capacity, w.version, w.host, w.directive, w.directed_at,
    w.directed_by, w.directive_reason, w.first_seen_at, greatest(w.last_seen_at, h.heard_at) AS last_seen_at,
    coalesce(h.running, 0) AS running
FROM (SELECT * FROM tenure.workers AS w WHERE w.tenant = $2) AS w FULL JOIN held AS h ON h.id = w.id
WHERE ($3::text IS NULL OR coalesce(w.id, h.id) = $3) AND ($4::text IS NULL OR coalesce(w.id, h.id) > $4)
ORDER BY 1 LIMIT $5
"""

_HOLDS = """
SELECT j.id, j.kind, j.queue, j.attempts, j.lease_acquired_at, j.lease_expires_at, j.lease_heartbeat_at
FROM tenure.jobs AS j
WHERE j.part = $1 AND j.state = 'running' AND j.tenant = $2 AND j.lease_worker_id = $3
ORDER BY j.lease_acquired_at, j.id LIMIT $4
"""

_FORGET = "DELETE FROM tenure.workers AS w WHERE w.last_seen_at < now() - interval '1 day'"

MAX_HELD_SHOWN = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSeen:
    """What a worker says of itself when it claims. ``kinds`` None: any. ``restarted``: forget what it was told before."""

    id: str
    queues: Sequence[str]
    kinds: Sequence[str] | None
    capacity: int | None = None
    version: str | None = None
    host: str | None = None
    restarted: bool = False
    tenant: str = DEFAULT_TENANT


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A worker as it is known. What it never said is None."""

    id: str
    queues: tuple[str, ...] | None
    kinds: tuple[str, ...] | None
    capacity: int | None
    version: str | None
    host: str | None
    directive: Directive | None
    directed_at: datetime | None
    directed_by: str | None
    directive_reason: str | None
    first_seen_at: datetime | None
    last_seen_at: datetime | None
    running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldJob:
    """A job in a worker's hands."""

    id: JobId
    kind: str
    queue: str
    attempts: int
    lease_acquired_at: datetime
    lease_expires_at: datetime
    lease_heartbeat_at: datetime


async def seen(connection: Connection, worker: WorkerSeen) -> Directive | None:
    """Notes that the worker is there; returns what it was told to do. Two statements at most, each by itself."""
    arguments = (
        worker.tenant,
        worker.id,
        list(worker.queues),
        None if worker.kinds is None else list(worker.kinds),
        worker.capacity,
        worker.version,
        worker.host,
    )
    row = await connection.fetchrow(_SEEN_AGAIN, *arguments, worker.restarted)
    if row is None:
        await connection.execute(_FIRST_SEEN, *arguments)
        return None
    return Directive(row["directive"]) if row["directive"] else None


async def direct(
    connection: Connection,
    worker_id: str,
    directive: Directive | None,
    *,
    by: str | None = None,
    reason: str | None = None,
    tenant: str = DEFAULT_TENANT,
) -> None:
    """Tells the worker, or (None) takes back what it was told. Raises NotFound for one that is not known."""
    told = str(directive) if directive else None
    if await connection.fetchrow(_DIRECT, tenant, worker_id, told, by, reason) is None:
        raise NotFound(f"there is no worker {worker_id!r}")


async def list_workers(
    connection: Connection,
    *,
    worker_id: str | None = None,
    after: str | None = None,
    limit: int = 50,
    tenant: str = DEFAULT_TENANT,
) -> list[Worker]:
    """Workers by name, from the one after ``after`` on: those that were seen within a day, and all that hold a job."""
    found: dict[str, Worker] = {}
    for part in range(connection.parts):
        for row in await connection.fetch(_LIST, part, tenant, worker_id, after, limit):
            known = found.get(row["id"])
            found[row["id"]] = _worker(row, running=row["running"] + (known.running if known else 0))
    return sorted(found.values(), key=lambda worker: worker.id)[:limit]


async def held_by(connection: Connection, worker_id: str, *, tenant: str = DEFAULT_TENANT) -> list[HeldJob]:
    """What the worker holds, longest first, up to a thousand."""
    held: list[HeldJob] = []
    for part in range(connection.parts):
        rows = await connection.fetch(_HOLDS, part, tenant, worker_id, MAX_HELD_SHOWN)
        held += [
            HeldJob(
                id=JobId(row["id"]),
                kind=row["kind"],
                queue=row["queue"],
                attempts=row["attempts"],
                lease_acquired_at=row["lease_acquired_at"],
                lease_expires_at=row["lease_expires_at"],
                lease_heartbeat_at=row["lease_heartbeat_at"],
            )
            for row in rows
        ]
    return held


async def forget_absent(connection: Connection) -> None:
    """Drops the records of workers that were not seen for a day."""
    await connection.execute(_FORGET)


def _worker(row: Record, *, running: int) -> Worker:
    return Worker(
        id=row["id"],
        queues=None if row["queues"] is None else tuple(row["queues"]),
        kinds=None if row["kinds"] is None else tuple(row["kinds"]),
        capacity=row["capacity"],
        version=row["version"],
        host=row["host"],
        directive=Directive(row["directive"]) if row["directive"] else None,
        directed_at=row["directed_at"],
        directed_by=row["directed_by"],
        directive_reason=row["directive_reason"],
        first_seen_at=row["first_seen_at"],
        last_seen_at=row["last_seen_at"],
        running=running,
    )
