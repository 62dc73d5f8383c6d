"""Databases for the tests: a real PostgreSQL, migrated once, cloned for each test process.

``TENURE_TEST_DATABASE_URL`` chooses another server (its role must be allowed to create databases); by default an embedded
one is started for the run and removed after it.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest

from tenure.embedded import EmbeddedPostgres
from tenure.settings import DatabaseSettings, load
from tenure.store.database import Database
from tenure.store.schema import migrate

_EMBEDDED = pytest.StashKey[tuple[EmbeddedPostgres, Path]]()
_SERVER_URL = pytest.StashKey[str]()

# fsync stays on (it is the product's promise), the rest is made small: many servers may run beside each other.
_SERVER_SETTINGS = {"shared_buffers": "128MB", "max_connections": "300", "max_wal_size": "1GB"}


def pytest_configure(config: pytest.Config) -> None:
    """One server a run: the first process starts it, those that xdist starts are told where it is."""
    given = os.environ.get("TENURE_TEST_DATABASE_URL")
    if hasattr(config, "workerinput"):
        config.stash[_SERVER_URL] = config.workerinput["tenure_server_url"]
    elif given:
        config.stash[_SERVER_URL] = given
    else:
        root = Path(tempfile.mkdtemp(prefix="tenure-tests-"))
        server = EmbeddedPostgres(root, settings=_SERVER_SETTINGS)
        config.stash[_SERVER_URL] = server.start()
        config.stash[_EMBEDDED] = (server, root)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leaves nothing running and nothing lying about."""
    if _EMBEDDED in config.stash:
        server, root = config.stash[_EMBEDDED]
        server.stop()
        shutil.rmtree(root, ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """xdist's hook: hands the server's URL to a test process."""
    node.workerinput["tenure_server_url"] = node.config.stash[_SERVER_URL]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def server_url(request: pytest.FixtureRequest) -> str:
    """The server's maintenance database: for tests that make databases of their own."""
    return request.config.stash[_SERVER_URL]


def with_database(url: str, name: str) -> str:
    """The URL of another database on the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@pytest.fixture(scope="session")
def migrated_url(server_url: str) -> Iterator[str]:
    """A database of this test process, with the schema in it."""
    name = f"tenure_test_{uuid4().hex[:12]}"

    async def make() -> None:
        raw = await asyncpg.connect(server_url)
        await raw.execute(f'CREATE DATABASE "{name}"')
        await raw.close()
        await migrate(load({"TENURE_DATABASE_URL": with_database(server_url, name)}).database)

    async def drop() -> None:
        raw = await asyncpg.connect(server_url)
        await raw.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        await raw.close()

    asyncio.run(make())
    yield with_database(server_url, name)
    asyncio.run(drop())


@pytest.fixture
def database_settings(migrated_url: str) -> DatabaseSettings:
    """Settings of a database whose tables are empty when the test begins (through `database`)."""
    return load({"TENURE_DATABASE_URL": migrated_url}).database


@pytest.fixture
async def database(database_settings: DatabaseSettings) -> AsyncIterator[Database]:
    """An open database with empty tables; what the test commits is gone after it."""
    async with await Database.open(database_settings, application_name="tenure test") as opened:
        await _empty(opened)
        yield opened
        await _empty(opened)


async def _empty(database: Database) -> None:
    async with database.transaction() as connection:
        for table in ("artifacts", "events", "jobs", "queues", "workers"):
            await connection.execute(f"DELETE FROM tenure.{table}")
