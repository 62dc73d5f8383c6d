"""Accepting jobs: rows and their first events in one statement, for one job or ten thousand."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tenure.errors import DatabaseUnavailable, FieldError, IdempotencyKeyReused, InvalidInput
from tenure.jobs.ids import JobId, part_of
from tenure.jobs.model import Job, NewJob, State
from tenure.store.database import Connection
from tenure.store.rows import columns, job_from

# Rows come in the order of their keys, so that two batches that share keys wait for each other in one order only.
# A job whose deadline has passed by the database's clock is not inserted, and is told apart from a replay by that.
_INSERT = """
WITH input AS (
    SELECT * FROM unnest(
        $1::smallint[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::smallint[], $7::integer[], $8::json[],
        $9::text[], $10::json[], $11::smallint[], $12::timestamptz[], $13::double precision[], $14::double precision[],
        $15::timestamptz[], $16::double precision[], $17::double precision[], $18::text[], $19::bytea[], $20::text[],
        $21::text[], $22::text[]
    ) WITH ORDINALITY AS t (
        part, id, tenant, kind, queue, priority, schema_version, payload,
        tags, metadata, max_attempts, available_at, delay_seconds, timeout_seconds,
        deadline_at, expires_in_seconds, lease_seconds, idempotency_key, request_digest, concurrency_key,
        submitted_by, traceparent, position
    )
), resolved AS (
    SELECT *, coalesce(deadline_at, now() + expires_in_seconds * interval '1 second') AS deadline FROM input
), inserted AS (
    INSERT INTO tenure.jobs (
        part, id, tenant, kind, queue, state, version, priority, schema_version, payload, tags, metadata, attempts,
        max_attempts, releases, available_at, timeout_seconds, deadline_at, lease_seconds, idempotency_key,
        request_digest, concurrency_key, submitted_by, traceparent, created_at, updated_at
    )
    SELECT part, id, tenant, kind, queue, 'queued', 1, priority, schema_version, payload,
        CASE tags WHEN '' THEN '{}'::text[] ELSE string_to_array(tags, chr(31)) END, metadata, 0, max_attempts, 0,
        greatest(coalesce(available_at, now() + delay_seconds * interval '1 second', now()), now()),
        timeout_seconds, deadline, lease_seconds, idempotency_key, request_digest, concurrency_key, submitted_by,
        traceparent, now(), now()
    FROM resolved
    WHERE deadline IS NULL OR deadline > now()
    ORDER BY position
    ON CONFLICT (part, tenant, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
    RETURNING part, id, available_at, deadline_at, created_at
), recorded AS (
    INSERT INTO tenure.events (part, job_id, version, at, type, state, attempt)
    SELECT part, id, 1, now(), 'enqueued', 'queued', 0 FROM inserted
)
SELECT id, available_at, deadline_at, created_at FROM inserted
"""

_EXISTING = f"""
SELECT {columns("j")}, j.request_digest
FROM unnest($1::smallint[], $2::text[], $3::text[]) AS k (part, tenant, idempotency_key)
JOIN tenure.jobs AS j USING (part, tenant, idempotency_key)
"""

_TAG_SEPARATOR = "\x1f"
"""Tags travel as one text a job, for an array of arrays must be rectangular. No tag may contain it."""

_ATTEMPTS = 3
"""A key's first job can vanish (pruned, or its transaction rolled back) between the insert and the look-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """What became of one request: the job, and whether it had been accepted before."""

    job: Job
    replayed: bool


async def enqueue(connection: Connection, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """Accepts all jobs, or raises and must be rolled back: run it in a transaction for more than one.

    Returns one Enqueued a job, in the order given. Raises IdempotencyKeyReused (a key with another body), InvalidInput
    (a deadline that has passed); both name the position as ``/jobs/<n>/…`` when there are several.
    """
    firsts = _first_of_each_key(jobs)
    pending = {position: job for position, job in enumerate(jobs) if position not in firsts}
    accepted: dict[int, Enqueued] = {}
    for _ in range(_ATTEMPTS):
        await _insert(connection, pending, accepted)
        pending = {position: job for position, job in pending.items() if position not in accepted}
        if pending:
            await _find_existing(connection, pending, accepted, many=len(jobs) > 1)
            pending = {position: job for position, job in pending.items() if position not in accepted}
        if not pending:
            break
    else:
        raise DatabaseUnavailable("other requests with the same idempotency key come and go; try again")
    for position, first in firsts.items():
        accepted[position] = Enqueued(job=accepted[first].job, replayed=True)
    return [accepted[position] for position in range(len(jobs))]


def _first_of_each_key(jobs: Sequence[NewJob]) -> dict[int, int]:
    """Positions that repeat an earlier key of the same call, with that earlier position."""
    seen: dict[tuple[str, str], int] = {}
    repeats: dict[int, int] = {}
    for position, job in enumerate(jobs):
        if job.idempotency_key is None:
            continue
        first = seen.setdefault((job.tenant, job.idempotency_key), position)
        if first != position:
            if jobs[first].request_digest != job.request_digest:
                raise _key_reused(position, many=True)
            repeats[position] = first
    return repeats


async def _insert(connection: Connection, pending: dict[int, NewJob], accepted: dict[int, Enqueued]) -> None:
    ordered = sorted(pending.items(), key=lambda item: (item[1].tenant, item[1].idempotency_key or "", item[0]))
    jobs = [job for _, job in ordered]
    parts = [part_of(job.id, connection.parts) for job in jobs]
    rows = await connection.fetch(_INSERT, parts, *_arrays(jobs))
    inserted = {row["id"]: row for row in rows}
    for position, job in ordered:
        row = inserted.get(job.id)
        if row is not None:
            accepted[position] = Enqueued(
                job=_as_job(job, row["created_at"], row["available_at"], row["deadline_at"]), replayed=False
            )


async def _find_existing(
    connection: Connection, pending: dict[int, NewJob], accepted: dict[int, Enqueued], *, many: bool
) -> None:
    for position, job in pending.items():
        if job.idempotency_key is None:
            raise _deadline_passed(position, many=many)
    rows = await connection.fetch(
        _EXISTING,
        [part_of(job.id, connection.parts) for job in pending.values()],
        [job.tenant for job in pending.values()],
        [job.idempotency_key for job in pending.values()],
    )
    existing = {(row["tenant"], row["idempotency_key"]): row for row in rows}
    for position, job in pending.items():
        row = existing.get((job.tenant, str(job.idempotency_key)))
        if row is None:
            if job.deadline_at is not None:
                raise _deadline_passed(position, many=many)
            continue
        if row["request_digest"] != job.request_digest:
            raise _key_reused(position, many=many)
        accepted[position] = Enqueued(job=job_from(row), replayed=True)


def _arrays(jobs: Sequence[NewJob]) -> list[list[Any]]:
    """The columns of the input after `part`, in the statement's order."""
    return [
        [job.id for job in jobs],
        [job.tenant for job in jobs],
        [job.kind for job in jobs],
        [job.queue for job in jobs],
        [job.priority for job in jobs],
        [job.schema_version for job in jobs],
        [job.payload for job in jobs],
        [_TAG_SEPARATOR.join(job.tags) for job in jobs],
        [job.metadata for job in jobs],
        [job.max_attempts for job in jobs],
        [job.available_at for job in jobs],
        [job.delay_seconds for job in jobs],
        [job.timeout_seconds for job in jobs],
        [job.deadline_at for job in jobs],
        [job.expires_in_seconds for job in jobs],
        [job.lease_seconds for job in jobs],
        [job.idempotency_key for job in jobs],
        [job.request_digest for job in jobs],
        [job.concurrency_key for job in jobs],
        [job.submitted_by for job in jobs],
        [job.traceparent for job in jobs],
    ]


def _as_job(job: NewJob, created_at: datetime, available_at: datetime, deadline_at: datetime | None) -> Job:
    """The job as the row now is, without reading it again."""
    return Job(
        id=JobId(job.id),
        tenant=job.tenant,
        kind=job.kind,
        queue=job.queue,
        state=State.QUEUED,
        version=1,
        priority=job.priority,
        schema_version=job.schema_version,
        payload=job.payload,
        result=None,
        progress=None,
        tags=job.tags,
        metadata=job.metadata,
        attempts=0,
        max_attempts=job.max_attempts,
        releases=0,
        available_at=available_at,
        timeout_seconds=job.timeout_seconds,
        deadline_at=deadline_at,
        lease_seconds=job.lease_seconds,
        lease=None,
        cancellation=None,
        last_error=None,
        idempotency_key=job.idempotency_key,
        concurrency_key=job.concurrency_key,
        submitted_by=job.submitted_by,
        traceparent=job.traceparent,
        created_at=created_at,
        updated_at=created_at,
        started_at=None,
        finished_at=None,
    )


def _pointer(position: int, name: str, *, many: bool) -> str:
    return f"/jobs/{position}/{name}" if many else f"/{name}"


def _key_reused(position: int, *, many: bool) -> IdempotencyKeyReused:
    pointer = _pointer(position, "idempotency_key", many=many)
    message = "was used with another body; send the same body again, or a new key for a new job"
    return IdempotencyKeyReused(f"the idempotency key {message}", errors=[FieldError(pointer=pointer, message=message)])


def _deadline_passed(position: int, *, many: bool) -> InvalidInput:
    return InvalidInput.of(_pointer(position, "deadline_at", many=many), "has passed already, by the database's clock")
