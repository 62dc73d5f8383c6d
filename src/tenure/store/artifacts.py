"""What jobs left behind for their submitters: registered in the same commit as the job's success, invisible before."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from tenure.jobs.ids import part_of
from tenure.jobs.model import DEFAULT_TENANT
from tenure.store.database import Connection, Record

_REGISTER = """
INSERT INTO tenure.artifacts (part, job_id, name, location, bytes, rows, sha256, content_type, created_at)
SELECT $1, $2, a.name, a.location, a.bytes, a.rows, a.sha256, a.content_type, now()
FROM unnest($3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::text[])
    AS a (name, location, bytes, rows, sha256, content_type)
ON CONFLICT (part, job_id, name) DO UPDATE SET location = excluded.location, bytes = excluded.bytes,
    rows = excluded.rows, sha256 = excluded.sha256, content_type = excluded.content_type
"""

_FIND = """
SELECT a.name, a.location, a.bytes, a.rows, a.sha256, a.content_type, a.created_at
FROM tenure.artifacts AS a JOIN tenure.jobs AS j ON j.part = a.part AND j.id = a.job_id
WHERE j.part = $1 AND j.id = $2 AND j.tenant = $3 AND ($4::text IS NULL OR a.name = $4)
ORDER BY a.name
"""

_WANTED = """
SELECT q.location FROM unnest($1::smallint[], $2::uuid[], $3::integer[], $4::text[]) AS q (part, id, version, location)
WHERE EXISTS (SELECT FROM tenure.artifacts AS a
        WHERE a.part = q.part AND a.job_id = q.id AND a.location = q.location)
    OR EXISTS (SELECT FROM tenure.jobs AS j
        WHERE j.part = q.part AND j.id = q.id AND j.state = 'running' AND j.version >= q.version
            AND NOT EXISTS (SELECT FROM tenure.events AS e
                WHERE e.part = j.part AND e.job_id = j.id AND e.at >= j.created_at
                    AND e.type = 'leased' AND e.version > q.version))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A finished file. ``location`` is its key in the artifact store; ``rows`` where it has rows; sha256 in hex."""

    name: str
    location: str
    bytes: int
    rows: int | None
    sha256: str
    content_type: str
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """An object found in the artifact store, by what its key says: the job, and the attempt (its `leased` version)."""

    job_id: UUID
    attempt_version: int
    location: str


async def register(connection: Connection, job_id: UUID, artifacts: Sequence[Artifact]) -> None:
    """Makes the artifacts visible once the transaction commits."""
    await connection.execute(
        _REGISTER,
        part_of(job_id, connection.parts),
        job_id,
        [artifact.name for artifact in artifacts],
        [artifact.location for artifact in artifacts],
        [artifact.bytes for artifact in artifacts],
        [artifact.rows for artifact in artifacts],
        [artifact.sha256 for artifact in artifacts],
        [artifact.content_type for artifact in artifacts],
    )


async def find(
    connection: Connection, job_id: UUID, *, name: str | None = None, tenant: str = DEFAULT_TENANT
) -> list[Artifact]:
    """The job's artifacts, or the one of that name; none for another tenant's job."""
    rows = await connection.fetch(_FIND, part_of(job_id, connection.parts), job_id, tenant, name)
    return [_artifact(row) for row in rows]


async def still_wanted(connection: Connection, objects: Sequence[StoredObject]) -> set[str]:
    """Which of these locations are registered, or belong to an attempt that is running now. The rest may be swept."""
    rows = await connection.fetch(
        _WANTED,
        [part_of(item.job_id, connection.parts) for item in objects],
        [item.job_id for item in objects],
        [item.attempt_version for item in objects],
        [item.location for item in objects],
    )
    return {row["location"] for row in rows}


def _artifact(row: Record) -> Artifact:
    return Artifact(**dict(row))
