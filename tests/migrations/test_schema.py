"""Migrations: they add up to the tables, run once however many ask, and refuse what they do not know."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, inspect
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from tenure.errors import ConfigurationError, SchemaMismatch
from tenure.settings import DatabaseSettings, load
from tenure.store.database import Database, connect
from tenure.store.schema import check, current_revision, head_revision, migrate
from tenure.store.tables import metadata
from tests.conftest import with_database
from tests.factories import claimed, outcome, queued, read, settled


@pytest.fixture
async def empty_settings(server_url: str) -> AsyncIterator[DatabaseSettings]:
    """A new database with nothing in it, and a schema of an unusual name."""
    name = f"tenure_empty_{uuid4().hex[:12]}"
    raw = await asyncpg.connect(server_url)
    await raw.execute(f'CREATE DATABASE "{name}"')
    yield load(
        {"TENURE_DATABASE_URL": with_database(server_url, name), "TENURE_DATABASE_SCHEMA": "other_name_1"}
    ).database
    await raw.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    await raw.close()


async def _reflect(settings: DatabaseSettings, look: Any) -> Any:
    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=lambda: connect(settings, "tenure test"), poolclass=NullPool
    )
    async with engine.connect() as connection:
        await connection.exec_driver_sql(f"SET search_path TO {settings.schema_name}")
        found = await connection.run_sync(look)
    await engine.dispose()
    return found


def _differences(connection: Connection) -> list[Any]:
    def ours(_object: Any, name: str | None, kind: str, _reflected: bool, _to: Any) -> bool:
        # The daily partitions and their indexes are maintenance's, and alike.
        return not (name or "").startswith(("events_d", "alembic_version"))

    context = MigrationContext.configure(
        connection,
        opts={"include_object": ours, "compare_type": True, "compare_server_default": True},
    )
    return list(compare_metadata(context, metadata))


def _details(connection: Connection) -> dict[str, Any]:
    found = inspect(connection)
    return {
        table: {
            "checks": {check["name"] for check in found.get_check_constraints(table)},
            "indexes": {
                (
                    index["name"],
                    tuple(index["column_names"]),
                    index.get("dialect_options", {}).get("postgresql_where") is not None,
                )
                for index in found.get_indexes(table)
            },
            "comments": {column["name"]: column["comment"] for column in found.get_columns(table)},
        }
        for table in metadata.tables
    }


async def test_the_migrations_add_up_to_the_tables(empty_settings: DatabaseSettings) -> None:
    await migrate(empty_settings)
    assert await _reflect(empty_settings, _differences) == []
    details = await _reflect(empty_settings, _details)
    for name, table in metadata.tables.items():
        assert details[name]["checks"] == {
            constraint.name for constraint in table.constraints if type(constraint).__name__ == "CheckConstraint"
        }
        assert details[name]["indexes"] == {
            (
                index.name,
                tuple(column.name for column in index.columns),
                index.dialect_options["postgresql"]["where"] is not None,
            )
            for index in table.indexes
        }
        assert details[name]["comments"] == {column.name: column.comment for column in table.columns}


async def test_part_leads_every_key_and_index_of_what_hangs_on_a_job() -> None:
    for name in ("jobs", "events", "artifacts"):
        table = metadata.tables[name]
        assert next(iter(table.primary_key.columns)).name == "part"
        assert all(index.columns[0].name == "part" for index in table.indexes)


async def test_ten_processes_at_once_migrate_once(empty_settings: DatabaseSettings) -> None:
    results = await asyncio.gather(*[migrate(empty_settings) for _ in range(10)])
    assert sorted(before is None for before, _ in results) == [False] * 9 + [True]
    async with await Database.open(empty_settings) as database:
        assert await current_revision(database) == head_revision()
        await check(database)


async def test_any_schema_name_works_end_to_end(empty_settings: DatabaseSettings) -> None:
    await migrate(empty_settings)
    async with await Database.open(empty_settings) as database:
        job = await queued(database)
        (held,) = await claimed(database)
        await settled(database, outcome(held))
        assert (await read(database, job)).state == "succeeded"


async def test_an_empty_database_is_refused_with_the_command_that_mends_it(empty_settings: DatabaseSettings) -> None:
    async with await Database.open(empty_settings) as database:
        with pytest.raises(SchemaMismatch, match="tenure migrate"):
            await check(database)


async def test_a_newer_schema_is_refused_and_left_alone(empty_settings: DatabaseSettings) -> None:
    await migrate(empty_settings)
    async with await Database.open(empty_settings) as database:
        async with database.connection() as connection:
            await connection.execute("UPDATE tenure.alembic_version SET version_num = '9999'")
        with pytest.raises(SchemaMismatch, match="9999"):
            await check(database)
        with pytest.raises(SchemaMismatch, match="newer"):
            await migrate(empty_settings)
        assert await current_revision(database) == "9999"


async def test_a_migration_lock_that_is_never_given_back_is_named_and_waiting_ends(
    empty_settings: DatabaseSettings,
) -> None:
    raw = await connect(empty_settings, "stuck deploy")
    try:
        async with raw.transaction():
            await raw.execute("SELECT pg_advisory_xact_lock(7305801947716001)")
            with pytest.raises(ConfigurationError, match="stuck deploy"):
                await migrate(empty_settings, lock_wait_seconds=0.3)
    finally:
        await raw.close()
    assert await migrate(empty_settings) == (None, head_revision())


@pytest.mark.parametrize("name", ['x"; DROP TABLE jobs; --', "Upper", "1st", "a" * 64])
def test_a_schema_name_that_would_need_quoting_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="TENURE_DATABASE_SCHEMA"):
        load({"TENURE_DATABASE_SCHEMA": name})
