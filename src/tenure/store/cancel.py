"""Cancelling says what is true: prevented, or only requested; the receipt shows what came of it."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from tenure.errors import NotFound
from tenure.jobs.decisions import decide_cancel
from tenure.jobs.model import DEFAULT_TENANT, Cancellation, Job, State
from tenure.store.apply import Decided, apply, lock
from tenure.store.database import Connection
from tenure.store.inspect import get


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A cancellation as it stands now."""

    job_id: UUID
    state: State
    version: int
    cancellation: Cancellation
    changed: bool
    worker_id: str | None
    worker_lease_expires_at: datetime | None


async def cancel(
    connection: Connection,
    job_id: UUID,
    *,
    tenant: str = DEFAULT_TENANT,
    version: int | None = None,
    reason: str | None = None,
    requested_by: str | None = None,
) -> Receipt:
    """Cancels a queued job, or asks the holder of a running one to stop. Needs a transaction.

    Raises NotFound, VersionMismatch (nothing changed) and NotCancelable (finished before any request).
    """
    standings, _ = await lock(connection, [job_id], tenant=tenant)
    if not standings:
        raise NotFound(f"there is no job {job_id}")
    (job,) = standings.values()
    decision = decide_cancel(job, version=version, reason=reason, requested_by=requested_by)
    if decision is not None:
        await apply(connection, [Decided(job=job, decision=decision)])
    current = await get(connection, job_id, tenant=tenant, body=False)
    if current is None:
        raise NotFound(f"there is no job {job_id}")
    return receipt_of(current, changed=decision is not None)


def receipt_of(job: Job, *, changed: bool = False) -> Receipt:
    """The receipt of a job whose cancellation was asked for."""
    if job.cancellation is None:
        raise NotFound(f"nobody asked to cancel job {job.id}")
    return Receipt(
        job_id=job.id,
        state=job.state,
        version=job.version,
        cancellation=job.cancellation,
        changed=changed,
        worker_id=job.lease.worker_id if job.lease else None,
        worker_lease_expires_at=job.lease.expires_at if job.lease else None,
    )
