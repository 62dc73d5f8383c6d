"""A cable to PostgreSQL that can be pulled: a TCP proxy on loopback."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from tenure.settings import DatabaseSettings


class Cable:
    """Carries bytes until it is pulled; ``cut_after`` a word cuts a connection once the answer to it has come."""

    def __init__(self, host: str, port: int) -> None:
        """``host`` is an address, or the directory of a Unix socket."""
        self._host, self._port_there = host, port
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()
        self.port = 0
        self.cut_after: bytes | None = None
        self.cuts = 0

    async def plug(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def pull(self) -> None:
        """Connections are cut, new ones refused."""
        if self._server is not None:
            self._server.close()
        links = list(self._links)
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        try:
            if self._host.startswith("/"):
                there, back = await asyncio.open_unix_connection(f"{self._host}/.s.PGSQL.{self._port_there}")
            else:
                there, back = await asyncio.open_connection(self._host, self._port_there)
        except OSError:
            writer.close()
            self._links.discard(task)
            return
        asked = asyncio.Event()
        ways = [
            asyncio.create_task(self._carry(reader, back, asked, True)),
            asyncio.create_task(self._carry(there, writer, asked, False)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            pass  # pulled; start_server would take this task's cancellation for an error
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for end in (writer, back):
                end.transport.abort()
            self._links.discard(task)

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: asyncio.Event, forth: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                if not forth and asked.is_set():
                    self.cuts += 1
                    return
                if forth and self.cut_after is not None and self.cut_after in data:
                    self.cut_after = None
                    asked.set()
                writer.write(data)
                await writer.drain()


@asynccontextmanager
async def cabled(settings: DatabaseSettings) -> AsyncIterator[tuple[DatabaseSettings, Cable]]:
    """Settings that lead through a cable to the same database."""
    parts = urlsplit(settings.url)
    given = dict(parse_qsl(parts.query))
    host = given.get("host") or parts.hostname or "127.0.0.1"
    cable = await Cable(host, int(given.get("port") or parts.port or 5432)).plug()
    user, at, _ = parts.netloc.rpartition("@")
    url = urlunsplit(parts._replace(netloc=f"{user}{at}127.0.0.1:{cable.port}", query=""))
    try:
        yield settings.model_copy(update={"url": url, "acquire_timeout_seconds": 1.0}), cable
    finally:
        await cable.pull()
