"""Taking back what nobody holds any more: expired leases, and queued jobs whose deadline has passed.

The rows are locked and judged again under the lock, in bounded batches; a row that somebody else works on is skipped,
so several processes can do this at once and a heartbeat that comes first wins.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime

from tenure.jobs.decisions import Decision, Standing, decide_deadline, decide_expiry
from tenure.jobs.ids import JobId
from tenure.store.apply import STANDING_COLUMNS, Applied, Decided, apply, standing_from
from tenure.store.database import Connection, Record

logger = logging.getLogger(__name__)

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
    decided = _decided(rows, lambda job, now: decide_expiry(job, now=now))
    return list((await apply(connection, decided)).values()) if decided else []


async def expire_deadlines(connection: Connection, *, part: int = 0, limit: int = 500) -> dict[JobId, Applied]:
    """Fails up to ``limit`` queued jobs whose deadline has passed. Needs a transaction."""
    rows = await connection.fetch(_PAST_DEADLINE, part, limit)
    decided = _decided(rows, lambda job, now: decide_deadline(job, now=now))
    return await apply(connection, decided) if decided else {}


def _decided(rows: Sequence[Record], decide: Callable[[Standing, datetime], Decision]) -> list[Decided]:
    """The decisions on these rows; one that cannot be judged is left for a person, and stops nobody else's recovery."""
    decided: list[Decided] = []
    for row in rows:
        try:
            job = standing_from(row)
            decided.append(Decided(job=job, decision=decide(job, row["now"])))
        except Exception:
            logger.exception(
                "job %s cannot be judged and is passed over: its row is not one that Tenure writes", row["id"]
            )
    return decided
