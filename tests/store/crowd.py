"""A database with a hundred thousand jobs of each sort that could stand in a statement's way."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID, uuid4

import asyncpg

from tenure.settings import DatabaseSettings, load
from tenure.store.schema import migrate
from tests.conftest import with_database

MANY = 100_000
RUNNING = 1_000
DEAD = 20_000
ROUND = 10
"""How many jobs a statement is asked about at once."""

_COLUMNS = """
    part, tenant, version, schema_version, payload, tags, metadata, max_attempts, releases, created_at, updated_at,
    id, kind, queue, state, priority, attempts, available_at, deadline_at, idempotency_key, concurrency_key,
    lease_token_digest, lease_worker_id, lease_length_seconds, lease_acquired_at, lease_expires_at, lease_heartbeat_at,
    lease_heartbeats, last_error, error_fingerprint, finished_at
"""
_SAME = "0, 'default', 1, 1, '{}', '{}', '{}', 3, 0, now() - interval '2 hours', now() - interval '1 hour'"


def job_id(sort: int, number: int) -> UUID:
    """The number's job of its sort; the sorts' ids are ranges, one after the other."""
    return UUID(f"0190{sort:04x}-0000-7000-8000-{number:012x}")


def _id(sort: int) -> str:
    return f"('0190{sort:04x}-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid"


def _insert(
    sort: int,
    count: int,
    *,
    queue: str,
    kind: str = "'crowd.plain'",
    state: str = "queued",
    priority: str = "0",
    attempts: int = 0,
    available_at: str = "now() - interval '1 hour' + n * interval '1 millisecond'",
    deadline_at: str = "NULL::timestamptz",
    idempotency_key: str = "NULL",
    concurrency_key: str = "NULL",
    lease: str = "NULL::bytea, NULL, NULL::float8, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, NULL::int",
    error: str = "NULL::json, NULL",
    finished_at: str = "NULL::timestamptz",
) -> str:
    return f"""
INSERT INTO tenure.jobs ({_COLUMNS})
SELECT {_SAME}, {_id(sort)}, {kind}, '{queue}', '{state}', {priority}, {attempts}, {available_at}, {deadline_at},
    {idempotency_key}, {concurrency_key}, {lease}, {error}, {finished_at}
FROM generate_series(1, {count}) AS n
"""


WAITING, FINISHED, FUTURE, OTHER, RUNS, ENDED, FAILED, LATE, EXPIRED, FEW = range(1, 11)

_EVERY_TENTH_FIRST = "CASE WHEN n % 10 = 0 THEN 5 ELSE 0 END"
_LEASE = (
    "substring(sha256(convert_to(n::text, 'UTF8')) FOR 16), 'holder-' || n % 20, 30.0, now() - interval '1 minute',"
    " {expires}, now(), 3"
)
"""The token is the number itself."""

_ERROR = (
    """'{"kind": "unknown", "type": null, "message": "it broke", "fingerprint": "print", "attempt": 3,"""
    """ "at": "2026-01-01T00:00:00+00:00"}'::json"""
)

_FILL = (
    _insert(WAITING, MANY, queue="waiting", priority=_EVERY_TENTH_FIRST, concurrency_key="'account-' || n % 1000"),
    _insert(
        FINISHED,
        MANY,
        queue="finished",
        state="succeeded",
        attempts=1,
        idempotency_key="'key-' || n",
        finished_at="now() - interval '2 days' + n * interval '1 millisecond'",
    ),
    _insert(
        FUTURE,
        MANY,
        queue="future",
        available_at="now() + interval '1 day' + n * interval '1 second'",
        deadline_at="now() + interval '9 days' + n * interval '1 second'",
    ),
    _insert(OTHER, MANY, queue="mixed", kind="'crowd.other'"),
    _insert(
        RUNS,
        RUNNING,
        queue="busy",
        state="running",
        attempts=1,
        lease=_LEASE.format(expires="now() + interval '1 day'"),
    ),
    _insert(
        ENDED,
        DEAD,
        queue="dead",
        state="dead",
        attempts=3,
        error=_ERROR + ", 'print-' || n / 20",
        finished_at="now() - interval '2 days'",
    ),
    _insert(
        FAILED,
        DEAD,
        queue="failed",
        state="failed",
        attempts=3,
        error=_ERROR + ", 'print-' || n / 20",
        finished_at="now() - interval '2 days'",
    ),
    _insert(LATE, 5 * ROUND, queue="late", deadline_at="now() - interval '1 minute'"),
    _insert(
        EXPIRED,
        5 * ROUND,
        queue="lost",
        state="running",
        attempts=1,
        lease=_LEASE.format(expires="now() - interval '1 second'"),
    ),
    _insert(FEW, ROUND, queue="few", priority="CASE WHEN n % 2 = 0 THEN 5 ELSE 0 END"),
    """
INSERT INTO tenure.events (part, job_id, version, at, type, state, attempt, token_digest)
SELECT j.part, j.id, v, j.created_at + v * interval '1 second', CASE v WHEN 1 THEN 'enqueued' ELSE 'leased' END, 'queued', 0,
    substring(sha256(convert_to(v || j.id::text, 'UTF8')) FOR 16)
FROM tenure.jobs AS j, generate_series(1, 2) AS v WHERE j.queue IN ('finished', 'busy', 'lost')
""",
    f"""
INSERT INTO tenure.events (part, job_id, version, at, type, state, attempt)
SELECT 0, {_id(ENDED)}, v, now() - interval '60 days', 'enqueued', 'queued', 0
FROM generate_series(1, {DEAD}) AS n, generate_series(1, 3) AS v
""",
    f"""
INSERT INTO tenure.artifacts (part, job_id, name, location, bytes, sha256, content_type, created_at)
SELECT 0, {_id(FINISHED)}, 'a', 'a/' || n, 1, '00', 'text/plain', now() FROM generate_series(1, {MANY}, 3) AS n
""",
    """
INSERT INTO tenure.workers (tenant, id, queues, first_seen_at, last_seen_at)
SELECT 'default', 'holder-' || n, '{busy}', now(), now() FROM generate_series(0, 19) AS n
""",
)


@contextmanager
def crowded(server_url: str) -> Iterator[DatabaseSettings]:
    """Settings of a full and analyzed database, which is dropped in the end."""
    name = f"tenure_crowd_{uuid4().hex[:12]}"
    settings = load({"TENURE_DATABASE_URL": with_database(server_url, name)}).database

    async def fill() -> None:
        await _execute(server_url, f'CREATE DATABASE "{name}"')
        await migrate(settings)
        await _execute(settings.url, "SET synchronous_commit = off", *_FILL, "VACUUM (ANALYZE)")

    try:
        asyncio.run(fill())
        yield settings
    finally:
        asyncio.run(_execute(server_url, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'))


async def _execute(url: str, *statements: str) -> None:
    raw = await asyncpg.connect(url)
    try:
        for statement in statements:
            await raw.execute(statement)
    finally:
        await raw.close()
