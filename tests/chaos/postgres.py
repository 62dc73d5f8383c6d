"""A PostgreSQL of the harness's own, to be killed, restarted, made read-only; and a session of an operator's in it."""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from tenure.embedded import EmbeddedPostgres

ADMIN = "chaos"
"""The application name of the harness's own sessions; the product's all begin with "tenure"."""

_SETTINGS = {"shared_buffers": "128MB", "max_connections": "200", "max_wal_size": "2GB"}
"""fsync and synchronous_commit stay on: that acknowledged means written is a part of what is tested."""

AWAY = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError)


class Sessions:
    """An operator's way into one database: sessions past every line."""

    def __init__(self, url: str) -> None:
        self.url = url

    def at(self, database: str) -> "Sessions":
        """The same of another database of this server."""
        return Sessions(urlunsplit(urlsplit(self.url)._replace(path=f"/{database}")))

    async def connect(self) -> "asyncpg.Connection[asyncpg.Record]":
        """One session."""
        return await asyncpg.connect(
            self.url, server_settings={"application_name": ADMIN, "timezone": "UTC"}, timeout=10, command_timeout=60
        )

    async def ask(self, query: str, *arguments: Any, timeout_seconds: float = 60.0) -> Sequence[Any]:
        """One query on a session of its own; asked again while the server is away."""
        async with asyncio.timeout(timeout_seconds):
            while True:
                try:
                    return await self.ask_once(query, *arguments)
                except AWAY:
                    await asyncio.sleep(0.1)

    async def ask_once(self, query: str, *arguments: Any) -> Sequence[Any]:
        """One query on a session of its own."""
        connection = await self.connect()
        try:
            return await connection.fetch(query, *arguments)
        finally:
            with contextlib.suppress(*AWAY):
                await connection.close(timeout=2)

    @contextlib.asynccontextmanager
    async def locked(self, condition: str, limit: int) -> AsyncIterator[int]:
        """An operator's session holds row locks on up to ``limit`` jobs of this condition; how many it got."""
        connection = await self.connect()
        try:
            async with connection.transaction():
                rows = await connection.fetch(
                    f"SELECT id FROM tenure.jobs WHERE {condition} LIMIT {limit} FOR UPDATE SKIP LOCKED"
                )
                yield len(rows)
        finally:
            connection.terminate()


class OwnPostgres(Sessions):
    """A server in a folder of its own, and what can be done to it. All that blocks is done in a thread."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        super().__init__("")
        self.folder = Path(tempfile.mkdtemp(prefix="tenure-chaos-pg-"))
        self._server = EmbeddedPostgres(self.folder, settings={**_SETTINGS, **(settings or {})})

    async def open(self) -> Self:
        """Makes and starts it."""
        self.url = await asyncio.to_thread(self._server.start)
        return self

    async def close(self) -> None:
        """Stops it, and removes the folder."""
        await asyncio.to_thread(self._server.stop)
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)

    async def kill(self) -> None:
        """SIGKILL to the postmaster; its backends end by themselves."""
        await asyncio.to_thread(self._server.kill)

    async def start(self) -> None:
        """Starts it again, with whatever recovery that takes; returns when it takes connections."""
        await asyncio.to_thread(self._server.start)

    async def stop_at_once(self) -> None:
        """Immediate shutdown and start."""
        await asyncio.to_thread(self._server.restart, "immediate")

    async def restart(self) -> None:
        """Fast shutdown and start, as a package update does."""
        await asyncio.to_thread(self._server.restart, "fast")

    async def end_sessions(self, share: float = 1.0) -> int:
        """Terminates that share of the product's sessions, at random; returns how many."""
        rows = await self.ask(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'tenure%' AND random() < $1",
            share,
        )
        return len(rows)

    async def read_only(self, whether: bool) -> None:
        """As a demoted primary: sessions go on, but none can write."""
        await self.ask(f"ALTER SYSTEM SET default_transaction_read_only = {'on' if whether else 'off'}")
        await self.ask("SELECT pg_reload_conf()")
