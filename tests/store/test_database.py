"""Connections, and errors that say "come back later"."""

import asyncio

import pytest

from tenure.errors import ConfigurationError, DatabaseUnavailable
from tenure.settings import load
from tenure.store.database import Database, render
from tests.factories import queued
from tests.waiting import until


def test_the_schema_takes_its_place_and_nothing_else_does() -> None:
    assert render("SELECT 1 FROM tenure.jobs AS j", "abc") == 'SELECT 1 FROM "abc".jobs AS j'
    with pytest.raises(ConfigurationError):
        render("SELECT 1", 'x"y')


async def test_an_unreachable_database_is_unavailable_and_the_pool_opens_all_the_same() -> None:
    settings = load({"TENURE_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"}).database
    async with await Database.open(settings) as database:
        with pytest.raises(DatabaseUnavailable, match="cannot be reached"):
            async with database.connection() as connection:
                await connection.fetch("SELECT 1")


async def test_a_locked_row_is_unavailable_within_the_lock_timeout(database: Database) -> None:
    job = await queued(database)
    settings = database.settings.model_copy(update={"lock_timeout_seconds": 0.05})
    async with database.transaction() as other, await Database.open(settings) as impatient:
        await other.execute("SELECT 1 FROM tenure.jobs WHERE id = $1 FOR UPDATE", job.id)
        with pytest.raises(DatabaseUnavailable, match="lock"):
            async with impatient.transaction() as connection:
                await connection.execute("SELECT 1 FROM tenure.jobs WHERE id = $1 FOR UPDATE", job.id)


async def test_the_pool_recovers_by_itself_when_its_connections_are_cut(database: Database) -> None:
    async with database.connection() as connection:
        (row,) = await connection.fetch("SELECT pg_backend_pid() AS pid")
    async with database.dedicated("tenure test killer") as killer:
        await killer.execute("SELECT pg_terminate_backend($1)", row["pid"])

    async def works() -> bool:
        try:
            async with database.connection() as connection:
                await connection.fetch("SELECT 1")
        except DatabaseUnavailable:
            return False
        return True

    await until(works)


async def test_a_snapshot_refuses_to_write(database: Database) -> None:
    with pytest.raises(DatabaseUnavailable, match="read-only"):
        async with database.snapshot() as connection:
            await connection.execute("DELETE FROM tenure.jobs")


async def test_a_bug_is_not_taken_for_an_outage(database: Database) -> None:
    with pytest.raises(Exception, match="invalid input") as caught:
        async with database.connection() as connection:
            await connection.fetch("SELECT $1::integer", "not a number")
    assert not isinstance(caught.value, DatabaseUnavailable)


async def test_a_cancelled_caller_gives_its_connection_back(database: Database) -> None:
    small = database.settings.model_copy(update={"pool_size": 1})
    async with await Database.open(small) as one:
        for _ in range(5):
            task = asyncio.create_task(_wait_in_transaction(one))
            await asyncio.wait({task}, timeout=0.02)
            task.cancel()
            await asyncio.wait({task})
        async with one.connection() as connection:
            assert await connection.fetchrow("SELECT 1 AS one") is not None


async def _wait_in_transaction(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute("SELECT pg_sleep(30)")


async def test_the_sessions_keep_the_promise_of_durability(database: Database) -> None:
    async with database.connection() as connection:
        row = await connection.fetchrow(
            "SELECT current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS commit"
        )
    assert row is not None
    assert (row["fsync"], row["commit"]) == ("on", "on")
