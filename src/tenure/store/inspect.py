"""Reading: one job, its events, listings by keyset. Nothing here locks or writes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tenure.jobs.ids import JobId, part_of
from tenure.jobs.model import DEFAULT_TENANT, Event, Job, State
from tenure.store.apply import by_part
from tenure.store.database import Connection
from tenure.store.rows import columns, event_from, job_from

_GET = f"SELECT {columns('j')} FROM tenure.jobs AS j WHERE j.part = $1 AND j.id = $2 AND j.tenant = $3"
_GET_WITHOUT_BODY = (
    f"SELECT {columns('j', body=False)} FROM tenure.jobs AS j WHERE j.part = $1 AND j.id = $2 AND j.tenant = $3"
)

# Events are partitioned by time: the job's own creation bounds which partitions can hold any of them.
_EVENTS = """
SELECT e.version, e.at, e.type, e.state, e.attempt, e.worker_id, e.detail
FROM tenure.jobs AS j JOIN tenure.events AS e ON e.part = j.part AND e.job_id = j.id AND e.at >= j.created_at
WHERE j.part = $1 AND j.id = $2 AND j.tenant = $3 AND e.version > $4
ORDER BY e.version LIMIT $5
"""

_MARKS = """
SELECT j.id, j.state, j.version, coalesce(j.lease_heartbeats, 0) AS heartbeats FROM tenure.jobs AS j
WHERE j.part = $1 AND j.id = ANY ($2::uuid[])
"""

_CLOCK_SLACK = timedelta(days=1)
"""Ids carry their maker's clock, `created_at` the database's: an id range stands in for a time range this wide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """What to list; within one field any value will do, across fields all must hold."""

    states: tuple[State, ...] = ()
    queues: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    worker_ids: tuple[str, ...] = ()
    concurrency_keys: tuple[str, ...] = ()
    fingerprints: tuple[str, ...] = ()
    created_after: datetime | None = None
    created_before: datetime | None = None
    finished_after: datetime | None = None
    finished_before: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What changes whenever something about a job changes."""

    state: State
    version: int
    heartbeats: int


async def get(connection: Connection, job_id: UUID, *, tenant: str = DEFAULT_TENANT, body: bool = True) -> Job | None:
    """The job, or None."""
    statement = _GET if body else _GET_WITHOUT_BODY
    row = await connection.fetchrow(statement, part_of(job_id, connection.parts), job_id, tenant)
    return job_from(row) if row else None


async def events(
    connection: Connection,
    job_id: UUID,
    *,
    tenant: str = DEFAULT_TENANT,
    after_version: int = 0,
    limit: int = 10_000,
) -> list[Event]:
    """The job's history in order, from the event after ``after_version`` on."""
    part = part_of(job_id, connection.parts)
    return [event_from(row) for row in await connection.fetch(_EVENTS, part, job_id, tenant, after_version, limit)]


async def marks(connection: Connection, ids: Sequence[UUID]) -> dict[JobId, Mark]:
    """What to compare to see which of these jobs changed; one statement a part for all that anybody watches."""
    found: dict[JobId, Mark] = {}
    for part, part_ids in by_part(connection, ids).items():
        for row in await connection.fetch(_MARKS, part, part_ids):
            found[JobId(row["id"])] = Mark(
                state=State(row["state"]), version=row["version"], heartbeats=row["heartbeats"]
            )
    return found


async def list_jobs(
    connection: Connection,
    wanted: JobFilter,
    *,
    tenant: str = DEFAULT_TENANT,
    before: UUID | None = None,
    limit: int = 50,
    include_payload: bool = False,
    include_result: bool = False,
) -> list[Job]:
    """Jobs, newest first, from the one after ``before`` on (keyset: stable while rows come and go)."""
    body = [f"j.{name}" for name, asked in (("payload", include_payload), ("result", include_result)) if asked]
    select = ", ".join([columns("j", body=False), *body])
    jobs: list[Job] = []
    for part in range(connection.parts):
        conditions, arguments = _conditions(wanted, part, tenant, before)
        statement = (
            f"SELECT {select} FROM tenure.jobs AS j WHERE {' AND '.join(conditions)}"
            f" ORDER BY j.id DESC LIMIT {int(limit)}"
        )
        jobs += [job_from(row) for row in await connection.fetch(statement, *arguments)]
    jobs.sort(key=lambda job: job.id, reverse=True)
    return jobs[:limit]


def _conditions(wanted: JobFilter, part: int, tenant: str, before: UUID | None) -> tuple[list[str], list[Any]]:
    conditions = ["j.part = $1", "j.tenant = $2"]
    arguments: list[Any] = [part, tenant]

    def add(condition: str, value: Any) -> None:
        arguments.append(value)
        conditions.append(condition.format(f"${len(arguments)}"))

    def among(column: str, values: Sequence[str]) -> None:
        # Only an equality leaves an index's order by id to the page; most filters name one value.
        if len(values) == 1:
            add(f"{column} = {{}}::text", values[0])
        elif values:
            add(f"{column} = ANY ({{}}::text[])", list(values))

    if wanted.states:
        # Literals, not an argument: only so can the planner see that a partial index on the state fits.
        conditions.append(f"j.state IN ({', '.join(repr(str(state)) for state in wanted.states)})")
    among("j.queue", wanted.queues)
    among("j.kind", wanted.kinds)
    if wanted.tags:
        add("j.tags && {}::text[]", list(wanted.tags))
    if wanted.worker_ids:
        conditions.append("j.state = 'running'")
        among("j.lease_worker_id", wanted.worker_ids)
    among("j.concurrency_key", wanted.concurrency_keys)
    among("j.error_fingerprint", wanted.fingerprints)
    if wanted.created_after is not None:
        add("j.created_at > {}", wanted.created_after)
        add("j.id >= {}", _id_at(wanted.created_after, -_CLOCK_SLACK))
    if wanted.created_before is not None:
        add("j.created_at < {}", wanted.created_before)
        add("j.id < {}", _id_at(wanted.created_before, _CLOCK_SLACK))
    if wanted.finished_after is not None:
        add("j.finished_at > {}", wanted.finished_after)
    if wanted.finished_before is not None:
        add("j.finished_at < {}", wanted.finished_before)
    if before is not None:
        add("j.id < {}", before)
    return conditions, arguments


def _id_at(moment: datetime, offset: timedelta) -> UUID:
    """The least UUIDv7 of that millisecond, at the ends of what an id can say for moments beyond."""
    milliseconds = int((moment.timestamp() + offset.total_seconds()) * 1000)
    return UUID(int=min(max(milliseconds, 0), (1 << 48) - 1) << 80)
