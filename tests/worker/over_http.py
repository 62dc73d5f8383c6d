"""A worker that reaches its service over HTTP alone, and a line to the service that can be frozen."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from tenure.client import AsyncClient
from tenure.jobs.model import TERMINAL_STATES
from tenure.wire.jobs import Job
from tenure.worker.http_broker import HttpBroker
from tenure.worker.registry import JobRegistry
from tenure.worker.runtime import Worker
from tests.waiting import until


@asynccontextmanager
async def working(
    url: str, registry: JobRegistry, *, worker_id: str = "remote", wait_seconds: float = 1.0, **options: Any
) -> AsyncIterator[tuple[Worker, "asyncio.Task[None]"]]:
    """Runs a worker while the block runs; yields it and its `run`."""
    async with HttpBroker(url, worker_id=worker_id, capacity=4, wait_seconds=wait_seconds) as broker:
        worker = Worker(
            broker,
            registry,
            worker_id=worker_id,
            **{"poll_seconds": 0.05, "shutdown_grace_seconds": 10.0, "slots": 4, **options},
        )
        finished = asyncio.create_task(worker.run())
        try:
            yield worker, finished
        finally:
            worker.stop_now()
            _, late = await asyncio.wait({finished}, timeout=20)
            assert not late, "the worker does not end"


async def ended(client: AsyncClient, job: Job, *, timeout_seconds: float = 20.0) -> Job:
    """The job, once it has finished."""

    async def look() -> Job | None:
        found = await client.get(job.id)
        return found if found.state in TERMINAL_STATES else None

    found: Job = await until(look, timeout_seconds=timeout_seconds, what=f"the end of job {job.id}")
    return found


async def types(client: AsyncClient, job: Job) -> list[str]:
    return [event.type for event in await client.events(job.id)]


class Freezer:
    """A TCP proxy whose open connections can stop to carry anything, without being closed: their other end is gone."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._there = (parts.hostname, parts.port)
        self._links: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._thaw: list[asyncio.Event] = []
        self.url = ""

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def freeze(self) -> int:
        """Freezes every connection that is open now; how many."""
        frozen = [event for event in self._thaw if event.is_set()]
        for event in frozen:
            event.clear()
        return len(frozen)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for link in self._links:
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        flowing = asyncio.Event()
        flowing.set()
        self._thaw.append(flowing)
        there, back = await asyncio.open_connection(*self._there)
        ways = [
            asyncio.create_task(self._carry(reader, back, flowing)),
            asyncio.create_task(self._carry(there, writer, flowing)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            pass  # start_server would take this task's cancellation for an error
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for end in (writer, back):
                end.transport.abort()
            self._thaw.remove(flowing)
            self._links.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flowing: asyncio.Event) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                await flowing.wait()
                writer.write(data)
                await writer.drain()
            await flowing.wait()
