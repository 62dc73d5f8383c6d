"""The schema's version: bringing it up to date, once, whoever asks at the same time; and refusing one we do not know."""

import asyncio
import logging
import time
from pathlib import Path

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection as SyncConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from tenure.errors import ConfigurationError, SchemaMismatch
from tenure.settings import DatabaseSettings
from tenure.store.database import (
    TRANSIENT_ERRORS,
    Database,
    checked_schema,
    close_quietly,
    connect,
    translated_errors,
    unavailable_because,
)
from tenure.store.partitions import create_partition, missing_days

logger = logging.getLogger(__name__)

_LOCK_KEY = 7_305_801_947_716_001
"""Any number will do that no other program picks; only migrations take it, and nothing else rests on it."""

LOCK_WAIT_SECONDS = 60.0
"""No migration of ours runs that long; one that seems to has hung."""

_DDL_LOCK_TIMEOUT = "3s"
"""A migration that waits for a table makes everyone behind it wait, too: give up soon and try again."""
_DDL_TRIES = 10

_HOLDER = """
SELECT a.pid, a.application_name, a.state, now() - a.xact_start AS age
FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND (l.classid::bigint << 32 | l.objid::bigint) = $1
    AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
"""


def head_revision() -> str:
    """The revision that this version of Tenure runs on."""
    head = _scripts().get_current_head()
    assert head is not None
    return head


def known_revisions() -> set[str]:
    """All revisions that this version knows."""
    return {script.revision for script in _scripts().walk_revisions()}


async def current_revision(database: Database) -> str | None:
    """The revision of the database's schema; None when there are no tables yet. Raises DatabaseUnavailable."""
    async with database.connection() as connection:
        row = await connection.fetchrow(
            "SELECT to_regclass($1 || '.alembic_version') IS NOT NULL AS known", f'"{connection.schema}"'
        )
        if row is None or not row["known"]:
            return None
        row = await connection.fetchrow("SELECT version_num FROM tenure.alembic_version")
        return str(row["version_num"]) if row else None


async def check(database: Database) -> None:
    """Raises SchemaMismatch, with the command that mends it, unless the schema is the one this version runs on."""
    current, head = await current_revision(database), head_revision()
    if current == head:
        return
    if current is None:
        raise SchemaMismatch(
            f"schema {database.schema!r} has no Tenure tables (this version needs {head}); run `tenure migrate`"
        )
    if current in known_revisions():
        raise SchemaMismatch(
            f"schema {database.schema!r} is at {current}, this version needs {head}; run `tenure migrate`"
        )
    raise SchemaMismatch(
        f"schema {database.schema!r} is at {current}, which this version (it needs {head}) does not know: "
        "a newer Tenure made it; run that one, or a newer version still"
    )


async def migrate(
    settings: DatabaseSettings, *, lock_wait_seconds: float = LOCK_WAIT_SECONDS
) -> tuple[str | None, str]:
    """Brings the schema to this version's revision; safe when many processes do it at once. Returns (before, after).

    Raises ConfigurationError when the lock is held for too long or a table is in use, SchemaMismatch for a newer schema,
    DatabaseUnavailable.
    """
    checked_schema(settings.schema_name)
    async with translated_errors():
        before = await _upgrade(settings, lock_wait_seconds)
    async with await Database.open(settings, application_name="tenure migrate") as database:
        await ensure_partitions(database)
    return before, head_revision()


async def ensure_partitions(database: Database) -> int:
    """Makes the daily event partitions that are missing from today on; returns how many it made."""
    async with database.connection() as connection:
        missing = await missing_days(connection)
    for day in missing:
        async with database.transaction() as connection:
            await create_partition(connection, day)
    return len(missing)


async def _upgrade(settings: DatabaseSettings, lock_wait_seconds: float) -> str | None:
    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=lambda: connect(settings, "tenure migrate"), poolclass=NullPool
    )
    started, told, tries = time.monotonic(), False, 0
    try:
        while True:
            async with engine.connect() as connection, connection.begin():
                await connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_DDL_LOCK_TIMEOUT}'")
                locked = await connection.exec_driver_sql("SELECT pg_try_advisory_xact_lock($1)", (_LOCK_KEY,))
                if locked.scalar():
                    try:
                        return await connection.run_sync(_run_migrations, settings.schema_name)
                    except Exception as error:
                        if not _is_lock_timeout(error):
                            raise
                        tries += 1
                        if tries >= _DDL_TRIES:
                            raise ConfigurationError(
                                "cannot migrate: somebody holds a lock on the tables for long; "
                                "end that session (see pg_stat_activity) and run `tenure migrate` again"
                            ) from error
                        await connection.rollback()
            if not told:
                told = True
                logger.info("waiting for the migration that %s runs", await _holder(settings))
            if time.monotonic() - started > lock_wait_seconds:
                raise ConfigurationError(
                    f"cannot migrate: {await _holder(settings)} has held the migration lock for over "
                    f"{lock_wait_seconds:.0f} s; wait for it or end it, then run `tenure migrate` again"
                )
            await asyncio.sleep(0.1)
    except DBAPIError as error:
        # SQLAlchemy wraps what its driver raises, also while it connects: a server that is only starting passes by itself.
        if (cause := _transient_cause(error)) is not None:
            raise cause from error
        raise
    finally:
        await engine.dispose()


def _run_migrations(connection: SyncConnection, schema: str) -> str | None:
    connection.exec_driver_sql(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
    exists = connection.exec_driver_sql(
        "SELECT to_regclass($1::text) IS NOT NULL", (f'"{schema}".alembic_version',)
    ).scalar()
    before: str | None = None
    if exists:
        before = connection.exec_driver_sql(f'SELECT version_num FROM "{schema}".alembic_version').scalar()
    if before is not None and before not in known_revisions():
        raise SchemaMismatch(
            f"schema {schema!r} is at {before}, which this version does not know: a newer Tenure made it"
        )
    if before != head_revision():
        config = _config()
        config.attributes.update(connection=connection, schema=schema)
        command.upgrade(config, "head")
    return before


async def _holder(settings: DatabaseSettings) -> str:
    try:
        raw = await connect(settings, "tenure migrate")
    except TRANSIENT_ERRORS as error:
        return unavailable_because(error)
    try:
        row = await raw.fetchrow(_HOLDER, _LOCK_KEY)
    finally:
        await close_quietly(raw)
    if row is None:
        return "another process"
    return f"session {row['pid']} ({row['application_name'] or 'unnamed'}, {row['state']}, for {row['age']})"


def _transient_cause(error: BaseException | None) -> BaseException | None:
    while error is not None and not isinstance(error, TRANSIENT_ERRORS):
        error = error.__cause__ or getattr(error, "orig", None)
    return error


def _is_lock_timeout(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, asyncpg.LockNotAvailableError) or getattr(error, "sqlstate", None) == "55P03":
            return True
        error = error.__cause__ or getattr(error, "orig", None)
    return False


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_migrations_directory()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _migrations_directory() -> Path:
    """In the wheel they lie inside the package, in a checkout beside `src`."""
    package = Path(__file__).parents[1]
    installed = package / "migrations"
    return installed if installed.is_dir() else package.parents[1] / "migrations"
