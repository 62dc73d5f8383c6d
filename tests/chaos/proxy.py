"""A line from one process to PostgreSQL that can be cut, frozen, slowed and refused, and cut at a chosen statement.

It knows as much of PostgreSQL's protocol as that takes: where a message begins, what a prepared statement's text is, and
when the answer to a commit has come. Each connection is two pumps; a fault concerns all connections of the line.
"""

import asyncio
import contextlib
import enum
import re
import struct
from typing import Self
from urllib.parse import parse_qsl, urlsplit, urlunsplit

_CHUNK_BYTES = 65_536
_SSL_REQUEST, _GSS_REQUEST, _CANCEL_REQUEST = 80_877_103, 80_877_104, 80_877_102
_READY = re.compile(rb"Z\x00\x00\x00\x05[ITE]\Z")
"""ReadyForQuery ends every answer: by then what was asked for has been committed, or has failed."""
_WRITES = re.compile(rb"\b(?:INSERT\s+INTO|UPDATE|DELETE\s+FROM)\s+\"?[a-z_]", re.IGNORECASE)


class Cut(enum.Enum):
    """Where a connection is cut: once, at the next statement that fits, on whichever connection it comes.

    BEFORE: it never reaches the server, so it did not happen. UNHEARD: the server gets it, and the connection is cut at
    once: it may happen. AFTER: the server has done it and said so, and the answer is lost.
    """

    BEFORE = "before"
    UNHEARD = "unheard"
    AFTER = "after"


class Statement(enum.Enum):
    """Which statement a cut waits for: a COMMIT, or one that writes and commits by itself."""

    COMMIT = "commit"
    WRITE = "write"


class Line:
    """Carries connections to the server at ``url`` (a TCP address or the folder of a socket), from a port of loopback."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        given = dict(parse_qsl(parts.query))
        self._parts = parts
        self._host = given.get("host") or parts.hostname or "127.0.0.1"
        self._port_there = int(given.get("port") or parts.port or 5432)
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._armed: list[tuple[Cut, Statement, bytes]] = []
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.delay_seconds = 0.0
        self.refusing = False
        self.struck: list[tuple[Cut, Statement]] = []
        """The cuts that happened."""

    async def open(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._flowing.set()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        """The server's URL by way of this line."""
        assert self._server is not None, "not open"
        user, at, _ = self._parts.netloc.rpartition("@")
        port = self._server.sockets[0].getsockname()[1]
        return urlunsplit(self._parts._replace(netloc=f"{user}{at}127.0.0.1:{port}", query=""))

    @property
    def connections(self) -> int:
        """Connections that are open now."""
        return len(self._links)

    def cut(self) -> int:
        """Cuts every connection; returns how many there were. New ones are carried."""
        links = list(self._links)
        for link in links:
            link.abort()
        return len(links)

    def freeze(self) -> None:
        """Half-open: every connection stays, nothing passes, new ones are accepted and get no answer."""
        self._flowing.clear()

    def thaw(self) -> None:
        """What was held back passes again, where both ends still wait for it."""
        self._flowing.set()

    def arm(self, cut: Cut, statement: Statement, *, containing: bytes = b"") -> None:
        """Cuts one connection at the next such statement, with this in its text."""
        self._armed.append((cut, statement, containing))

    def disarm(self) -> None:
        """Forgets the cuts that have not happened."""
        self._armed.clear()

    def take(self, statement: Statement, text: bytes) -> Cut | None:
        """The cut that is armed for this statement, if any, which has then happened."""
        for armed in self._armed:
            cut, wanted, containing = armed
            if wanted is statement and containing in text:
                self._armed.remove(armed)
                self.struck.append((cut, wanted))
                return cut
        return None

    async def flows(self) -> None:
        """Returns when data may pass."""
        if self.delay_seconds:
            await asyncio.sleep(self.delay_seconds)
        await self._flowing.wait()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self.refusing:
            writer.transport.abort()
            return
        try:
            if self._host.startswith("/"):
                path = f"{self._host}/.s.PGSQL.{self._port_there}"
                there, back = await asyncio.open_unix_connection(path)
            else:
                there, back = await asyncio.open_connection(self._host, self._port_there)
        except OSError:
            writer.transport.abort()
            return
        link = _Link(self, writer, back)
        self._links.add(link)
        try:
            await link.carry(reader, there)
        finally:
            link.abort()
            self._links.discard(link)


class _Link:
    """One connection."""

    def __init__(self, line: Line, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._line = line
        self._client = client
        self._server = server
        self._texts: dict[bytes, bytes] = {}
        """Prepared statements, by name."""
        self._in_block = False
        self._cut_at_answer = False
        self._introduced = asyncio.Event()

    def abort(self) -> None:
        self._client.transport.abort()
        self._server.transport.abort()

    async def carry(self, client: asyncio.StreamReader, server: asyncio.StreamReader) -> None:
        """Until either end is closed."""
        ways = [asyncio.create_task(self._forth(client, server)), asyncio.create_task(self._back(server))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _forth(self, client: asyncio.StreamReader, server: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            if not await self._introduce(client, server):
                return
            self._introduced.set()
            buffer = bytearray()
            while data := await client.read(_CHUNK_BYTES):
                await self._line.flows()
                buffer += data
                if not await self._pass_on(buffer):
                    return

    async def _pass_on(self, buffer: bytearray) -> bool:
        """Sends whole messages; false when the connection is to be cut."""
        end = 0
        while len(buffer) - end >= 5:
            length = 1 + struct.unpack_from("!I", buffer, end + 1)[0]
            if len(buffer) - end < length:
                break
            statement = self._read_message(buffer[end : end + 1], bytes(buffer[end + 5 : end + length]))
            end += length
            cut = self._line.take(*statement) if statement is not None else None
            if cut is Cut.BEFORE:
                return False
            if cut is not None:
                # The rest of what the client sent belongs to it: Execute and Sync come with the Bind.
                self._cut_at_answer = cut is Cut.AFTER
                self._server.write(bytes(buffer))
                await self._server.drain()
                buffer.clear()
                return cut is Cut.AFTER
        if end:
            self._server.write(bytes(buffer[:end]))
            del buffer[:end]
            await self._server.drain()
        return True

    def _read_message(self, kind: bytes | bytearray, body: bytes) -> tuple[Statement, bytes] | None:
        """Notes what the message prepares; says what it does, and by which text."""
        match bytes(kind):
            case b"Q":
                word = body.lstrip()[:8].upper()
                if word.startswith(b"BEGIN"):
                    self._in_block = True
                elif word.startswith((b"COMMIT", b"ROLLBACK")):
                    self._in_block = False
                    return (Statement.COMMIT, body) if word.startswith(b"COMMIT") else None
                return self._write(body)
            case b"P":
                name, _, rest = body.partition(b"\x00")
                self._texts[name] = rest.partition(b"\x00")[0]
            case b"B":
                return self._write(self._texts.get(body.split(b"\x00", 2)[1], b""))
            case _:
                pass
        return None

    def _write(self, text: bytes) -> tuple[Statement, bytes] | None:
        return (Statement.WRITE, text) if not self._in_block and _WRITES.search(text) else None

    async def _introduce(self, client: asyncio.StreamReader, server: asyncio.StreamReader) -> bool:
        """The messages before the first typed one: requests for encryption, then the start-up or a cancel request."""
        while True:
            head = await client.readexactly(8)
            length, code = struct.unpack("!II", head)
            body = await client.readexactly(length - 8)
            await self._line.flows()
            self._server.write(head + body)
            await self._server.drain()
            if code not in (_SSL_REQUEST, _GSS_REQUEST):
                return bool(code != _CANCEL_REQUEST)
            self._client.write(await server.readexactly(1))

    async def _back(self, server: asyncio.StreamReader) -> None:
        """What the server says, from the end of the introduction on: until then the other pump reads from it."""
        await self._introduced.wait()
        with contextlib.suppress(OSError):
            while data := await server.read(_CHUNK_BYTES):
                if self._cut_at_answer:
                    if _READY.search(data):
                        return
                    continue
                await self._line.flows()
                self._client.write(data)
                await self._client.drain()
