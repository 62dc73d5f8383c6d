"""The daily partitions of the events table: made ahead of time, dropped whole when nobody needs them.

A DEFAULT partition takes what no other one does, so a missing day never stops a transition; it also keeps the events of
jobs that outlive their day's partition. Run each function in a transaction of its own: the DDL locks the table briefly.
"""

from collections.abc import Sequence
from datetime import date, timedelta

from tenure.store.database import Connection

DAYS_AHEAD = 14
"""Twice what is needed at least: maintenance can be down for a week before rows go to the DEFAULT partition."""

_PREFIX = "events_d"

_EXISTING = """
SELECT c.relname AS name FROM pg_catalog.pg_inherits AS i
JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid
JOIN pg_catalog.pg_class AS p ON p.oid = i.inhparent
JOIN pg_catalog.pg_namespace AS n ON n.oid = p.relnamespace
WHERE n.nspname = $1 AND p.relname = 'events' AND c.relname ~ '^events_d[0-9]{8}$'
"""

_TODAY = "SELECT (now() AT TIME ZONE 'UTC')::date AS today"


async def partition_days(connection: Connection) -> list[date]:
    """The days that have a partition, oldest first."""
    rows = await connection.fetch(_EXISTING, connection.schema)
    return sorted(_day_of(row["name"]) for row in rows)


async def missing_days(connection: Connection, *, days_ahead: int = DAYS_AHEAD) -> list[date]:
    """The days from today on that have no partition yet."""
    row = await connection.fetchrow(_TODAY)
    assert row is not None
    today: date = row["today"]
    existing = set(await partition_days(connection))
    wanted = [today + timedelta(days=offset) for offset in range(days_ahead + 1)]
    return [day for day in wanted if day not in existing]


async def create_partition(connection: Connection, day: date) -> None:
    """Makes the day's partition, taking over rows that the DEFAULT one holds for it. Harmless when it exists."""
    name, start, end = _PREFIX + f"{day:%Y%m%d}", f"{day} 00:00+00", f"{day + timedelta(days=1)} 00:00+00"
    if day in await partition_days(connection):
        return
    await connection.execute("LOCK TABLE tenure.events IN SHARE ROW EXCLUSIVE MODE")
    if day in await partition_days(connection):
        return
    await connection.execute(f"CREATE TABLE tenure.{name} (LIKE tenure.events INCLUDING ALL)")
    await connection.execute(
        f"WITH taken AS (DELETE FROM tenure.events_default WHERE at >= '{start}' AND at < '{end}' RETURNING *)"
        f" INSERT INTO tenure.{name} SELECT * FROM taken"
    )
    await connection.execute(
        f"ALTER TABLE tenure.events ATTACH PARTITION tenure.{name} FOR VALUES FROM ('{start}') TO ('{end}')"
    )


async def droppable_days(connection: Connection, keep: timedelta) -> list[date]:
    """The days whose partition ended longer ago than ``keep``, the shortest retention of any state."""
    row = await connection.fetchrow(_TODAY)
    assert row is not None
    return [day for day in await partition_days(connection) if day + timedelta(days=1) + keep < row["today"]]


async def drop_partition(connection: Connection, day: date) -> int:
    """Drops the day's partition; events of jobs that are still kept move to the DEFAULT one first. Returns how many."""
    name = _PREFIX + f"{day:%Y%m%d}"
    await connection.execute(f"ALTER TABLE tenure.events DETACH PARTITION tenure.{name}")
    rows: Sequence[object] = await connection.fetch(
        f"INSERT INTO tenure.events_default SELECT e.* FROM tenure.{name} AS e"
        " WHERE EXISTS (SELECT FROM tenure.jobs AS j WHERE j.part = e.part AND j.id = e.job_id) RETURNING 1"
    )
    await connection.execute(f"DROP TABLE tenure.{name}")
    return len(rows)


def _day_of(name: str) -> date:
    digits = name.removeprefix(_PREFIX)
    return date(int(digits[:4]), int(digits[4:6]), int(digits[6:]))
