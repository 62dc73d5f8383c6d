"""An operator's retry: dead and failed jobs start afresh, with their history kept."""

from datetime import datetime
from uuid import UUID

from tenure.errors import NotFound
from tenure.jobs.decisions import decide_retry
from tenure.jobs.model import DEFAULT_TENANT, Job
from tenure.store.apply import Decided, apply, lock
from tenure.store.database import Connection
from tenure.store.inspect import get


async def retry(
    connection: Connection,
    job_id: UUID,
    *,
    tenant: str = DEFAULT_TENANT,
    version: int | None = None,
    deadline_at: datetime | None = None,
    expires_in_seconds: float | None = None,
    delay_seconds: float | None = None,
    reason: str | None = None,
    requested_by: str | None = None,
) -> Job:
    """Puts a dead or failed job back in its queue with a fresh budget of attempts. Needs a transaction.

    Raises NotFound, NotRetryable, VersionMismatch, DeadlinePassed (it needs a new deadline), InvalidInput.
    """
    standings, now = await lock(connection, [job_id], tenant=tenant)
    if not standings or now is None:
        raise NotFound(f"there is no job {job_id}")
    (job,) = standings.values()
    decision = decide_retry(
        job,
        now=now,
        version=version,
        deadline_at=deadline_at,
        expires_in_seconds=expires_in_seconds,
        delay_seconds=delay_seconds,
        reason=reason,
        requested_by=requested_by,
    )
    await apply(connection, [Decided(job=job, decision=decision)])
    current = await get(connection, job_id, tenant=tenant)
    if current is None:
        raise NotFound(f"there is no job {job_id}")
    return current
