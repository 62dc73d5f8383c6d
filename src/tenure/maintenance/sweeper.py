"""Removes artifacts that nobody can see: what lost holders, crashes and pruned jobs left in the store.

The database decides what is still wanted: an object that is registered, or whose attempt is running now. The age is only
a margin for clocks that differ and for a commit under way; no other process needs to be asked.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from tenure.artifacts import ArtifactStore, parse_key
from tenure.errors import Unavailable
from tenure.store.artifacts import StoredObject, still_wanted
from tenure.store.database import Database

_ASKED_AT_ONCE = 500
_DELETED_AT_ONCE = 1_000


async def sweep(
    database: Database, artifacts: ArtifactStore, *, older_than_seconds: float = 3_600.0, limit: int = 1_000
) -> int:
    """Deletes up to ``limit`` objects older than that which nobody wants; returns how many.

    Keys that Tenure never made are left alone. Two databases must not share one directory or prefix: each would take the
    other's objects for leftovers. Raises Unavailable.
    """
    newest = datetime.now(UTC) - timedelta(seconds=older_than_seconds)
    deleted = 0
    asked: list[StoredObject] = []
    async for info in artifacts.list():
        key = parse_key(info.key)
        if key is None or info.modified_at > newest:
            continue
        asked.append(StoredObject(job_id=key.job_id, attempt_version=key.attempt_version, location=info.key))
        if len(asked) == _ASKED_AT_ONCE:
            deleted += await _delete_unwanted(database, artifacts, asked, limit - deleted)
            asked.clear()
            if deleted >= limit:
                return deleted
    return deleted + await _delete_unwanted(database, artifacts, asked, limit - deleted)


async def delete_locations(artifacts: ArtifactStore, locations: Iterable[str]) -> None:
    """Deletes the objects of jobs that were pruned. When the store is away, the sweeper finds them later."""
    keys = list(locations)
    try:
        for start in range(0, len(keys), _DELETED_AT_ONCE):
            await artifacts.delete(keys[start : start + _DELETED_AT_ONCE])
    except Unavailable:
        return


async def _delete_unwanted(
    database: Database, artifacts: ArtifactStore, objects: list[StoredObject], limit: int
) -> int:
    if not objects or limit <= 0:
        return 0
    async with database.snapshot() as connection:
        wanted = await still_wanted(connection, objects)
    unwanted = [item.location for item in objects if item.location not in wanted][:limit]
    await artifacts.delete(unwanted)
    return len(unwanted)
