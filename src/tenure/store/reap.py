"""Taking back what nobody holds any more: expired leases, and queued jobs whose deadline has passed.

The rows are locked and judged again under the lock, in bounded batches; a row that somebody else works on is skipped,
so several processes can do this at once and a heartbeat that comes first wins.
"""

from tenure.jobs.decisions import decide_deadline, decide_expiry
from tenure.jobs.ids import JobId
from tenure.store.apply import STANDING_COLUMNS, Applied, Decided, apply, standing_from
from tenure.store.database import Connection

_EXPIRED = f"""
SELECT {STANDING_COLUMNS} FROM tenure.jobs AS j
WHERE j.part = $1 AND j.state = 'running' AND j.lease_expires_at < now()
ORDER BY j.id LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED
"""

_PAST_DEADLINE = f"""
SELECT {STANDING_COLUMNS} FROM tenure.jobs AS j
WHERE j.part = $1 AND j.state = 'queued' AND j.deadline_at <= now()
ORDER BY j.deadline_at LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED
"""


async def reap_expired(connection: Connection, *, part: int = 0, limit: int = 500) -> list[Applied]:
    """Ends up to ``limit`` leases that ran out: requeued, dead, failed or canceled. Needs a transaction."""
    rows = await connection.fetch(_EXPIRED, part, limit)
    decided = [
        Decided(job=job, decision=decide_expiry(job, now=row["now"])) for row in rows for job in [standing_from(row)]
    ]
    return list((await apply(connection, decided)).values()) if decided else []


async def expire_deadlines(connection: Connection, *, part: int = 0, limit: int = 500) -> dict[JobId, Applied]:
    """Fails up to ``limit`` queued jobs whose deadline has passed. Needs a transaction."""
    rows = await connection.fetch(_PAST_DEADLINE, part, limit)
    decided = [
        Decided(job=job, decision=decide_deadline(job, now=row["now"])) for row in rows for job in [standing_from(row)]
    ]
    return await apply(connection, decided) if decided else {}
