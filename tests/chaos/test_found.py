"""Faults that chaos has found, each by itself."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from threading import Thread

import pytest
import uvloop

from tenure.client import AsyncClient, ServiceUnreachable
from tenure.errors import DatabaseUnavailable
from tenure.settings import load
from tenure.store.schema import migrate

_STARTING = b"SFATAL\x00VFATAL\x00C57P03\x00Mthe database system is starting up\x00\x00"


@contextlib.asynccontextmanager
async def listening(accept: Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]) -> AsyncIterator[int]:
    """A server on loopback that does this with each connection; its port."""
    server = await asyncio.start_server(accept, "127.0.0.1", 0)  # type: ignore[arg-type]
    async with server:
        yield int(server.sockets[0].getsockname()[1])


async def test_a_migration_waits_for_a_database_that_is_starting_up() -> None:
    async def starting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)  # whether it encrypts
        writer.write(b"N")
        await reader.read(1_024)
        writer.write(b"E" + struct.pack("!I", len(_STARTING) + 4) + _STARTING)
        writer.close()

    async with listening(starting) as port:
        settings = load({"TENURE_DATABASE_URL": f"postgresql://nobody@127.0.0.1:{port}/x"}).database
        with pytest.raises(DatabaseUnavailable):
            await migrate(settings)


def test_a_connection_that_breaks_while_it_opens_is_a_service_that_cannot_be_reached() -> None:
    """Whatever the moment: on uvloop, where workers run, some of these are no error that httpx knows."""

    async def call(port: int) -> None:
        async with AsyncClient(f"http://127.0.0.1:{port}", retry_for_seconds=0) as client:
            with pytest.raises(ServiceUnreachable):
                await client.get("01990000-0000-7000-8000-000000000000")

    async def many(port: int) -> None:
        for _ in range(20):
            await asyncio.gather(*(call(port) for _ in range(10)))

    with resetting() as port:
        uvloop.run(many(port))


@contextlib.contextmanager
def resetting() -> Iterator[int]:
    """A server, in a thread, that resets each connection as soon as it is there; its port."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:

        def reset() -> None:
            with contextlib.suppress(OSError):  # closed: that is the end
                while True:
                    accepted, _ = listener.accept()
                    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    accepted.close()

        thread = Thread(target=reset)
        thread.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
