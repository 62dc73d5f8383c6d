"""The PostgreSQL that everybody is measured on: one server for a whole run, durable, with a fresh database each time."""

import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from tenure.embedded import EmbeddedPostgres, PostgresBinaries, binaries_at

WHEEL = "wheel"
SYSTEM = "system"

_SYSTEM_FOLDERS = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "opt/homebrew/opt/postgresql@*/bin")

# Statistics of statements are kept for the one mode that asks for them: it turns them on for its own database.
_SETTINGS = {"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track": "none"}

_NEEDED_ON = ("fsync", "synchronous_commit", "full_page_writes")
_SHOWN = (
    "server_version",
    "shared_buffers",
    "max_wal_size",
    "wal_compression",
    "checkpoint_timeout",
    "autovacuum_naptime",
    *_NEEDED_ON,
)


class NotDurable(Exception):
    """The server would acknowledge what a crash could undo; its figures would be of no worth."""


@dataclass(slots=True, kw_only=True)
class Server:
    """A PostgreSQL server on which databases may be made; ``url`` is that of a database that is always there."""

    url: str
    settings: dict[str, str] = field(default_factory=dict)
    _prefix: str = field(default_factory=lambda: f"tenure_bench_{uuid4().hex[:6]}")
    _made: set[str] = field(default_factory=set)

    async def check(self) -> None:
        """Reads the settings that matter. Raises NotDurable, naming what is off."""
        self.settings = {name: str(await self.value(f"SHOW {name}")) for name in _SHOWN}
        off = [name for name in _NEEDED_ON if self.settings[name] != "on"]
        if off:
            raise NotDurable(f"{', '.join(off)} must be on for figures that mean something, on the server measured")

    async def database(self, name: str, *, template: str | None = None) -> str:
        """Makes a database, as a copy of ``template`` if given; returns its URL. ``name`` is unique within this run."""
        full = f"{self._prefix}_{name}"
        await self.execute(f'DROP DATABASE IF EXISTS "{full}" WITH (FORCE)')
        source = f' TEMPLATE "{self._prefix}_{template}"' if template else ""
        await self.execute(f'CREATE DATABASE "{full}"{source}')
        self._made.add(full)
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{full}"))

    async def drop(self, name: str) -> None:
        """Removes a database that was made here, and cuts whoever still uses it."""
        full = f"{self._prefix}_{name}"
        await self.execute(f'DROP DATABASE IF EXISTS "{full}" WITH (FORCE)')
        self._made.discard(full)

    async def drop_all(self) -> None:
        for full in list(self._made):
            await self.drop(full.removeprefix(f"{self._prefix}_"))

    async def execute(self, *statements: str, url: str | None = None) -> None:
        """Runs statements one by one, each in a transaction of its own."""
        connection = await asyncpg.connect(url or self.url, command_timeout=1800)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    async def value(self, query: str, *, url: str | None = None) -> Any:
        """The one value that the query gives."""
        connection = await asyncpg.connect(url or self.url, command_timeout=600)
        try:
            return await connection.fetchval(query)
        finally:
            await connection.close()

    async def wal_bytes(self) -> int:
        """How much WAL the server has written in its life."""
        return int(await self.value("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"))


@asynccontextmanager
async def postgres(choice: str, *, database_url: str = "") -> AsyncIterator[Server]:
    """A server: ``database_url`` if given, else an own one on a new cluster, removed in the end.

    ``choice``: "wheel" (the programs that come with Tenure), "system" (the newest of this machine), or a folder of them.
    Raises NotDurable, EmbeddedPostgresError.
    """
    if database_url:
        given = Server(url=database_url)
        await given.check()
        try:
            yield given
        finally:
            await given.drop_all()
        return
    folder = Path(tempfile.mkdtemp(prefix="tenure-benchmarks-"))
    embedded = EmbeddedPostgres(folder, settings=_SETTINGS, binaries=_binaries(choice))
    try:
        server = Server(url=embedded.start())
        await server.check()
        yield server
    finally:
        embedded.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _binaries(choice: str) -> PostgresBinaries | None:
    if choice == WHEEL:
        return None
    if choice != SYSTEM:
        return binaries_at(Path(choice))
    folders = [path for pattern in _SYSTEM_FOLDERS for path in Path("/").glob(pattern)]
    newest = max((binaries_at(path) for path in folders), key=lambda one: one.major, default=None)
    if newest is None:
        raise SystemExit(
            "no PostgreSQL of this machine's was found: use --postgres wheel, or name a folder of programs"
        )
    return newest
