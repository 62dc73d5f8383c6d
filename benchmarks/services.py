"""Services that are measured over HTTP, as an operator starts them, and what is asked of them."""

import socket
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.processes import Command, answer, refuse_dead, running
from benchmarks.stage import Site, until
from benchmarks.subjects import tenure

_READY_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service that is ready, and its processes (the first is the one that listens)."""

    url: str
    processes: list[Process]
    folder: Path

    def check(self) -> None:
        """Raises ChildFailed when one of its processes has died."""
        refuse_dead(self.processes, self.folder)

    async def load(self, action: str, *options: str) -> dict[str, Any]:
        """Submits to it from a process of its own, see `benchmarks.load`."""
        command = Command(arguments=[sys.executable, "-m", "benchmarks.load", action, f"--url={self.url}", *options])
        return await answer(command, self.folder)


@asynccontextmanager
async def tenure_service(
    site: Site, *, in_process_workers: bool = False, workers: int = 0, remote: bool = False, **settings: str
) -> AsyncIterator[Service]:
    """`tenure serve`, and so many processes of `tenure worker` beside it: over the database, or (remote) over HTTP.

    ``settings`` are Tenure's variables without their prefix, for all of these processes.
    """
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    serve = ["serve", "--workers" if in_process_workers else "--no-workers"]
    service = tenure(serve, database_url=site.database_url, records=site.folder, PORT=str(port), **settings)
    async with running([service], site.folder) as processes:
        await _ready(f"{url}/readyz", processes, site.folder)
        if remote:
            worker = tenure(["worker", "--url", url], records=site.folder, **settings)
        else:
            worker = tenure(["worker"], database_url=site.database_url, records=site.folder, **settings)
        async with running([worker] * workers, site.folder) as more:
            yield Service(url=url, processes=[*processes, *more], folder=site.folder)


@asynccontextmanager
async def noop_endpoint(folder: Path) -> AsyncIterator[Service]:
    """A FastAPI application that stores nothing, on the server and event loop that Tenure uses."""
    port = _free_port()
    options = ["--port", str(port), "--loop", "uvloop", "--http", "httptools", "--no-access-log"]
    command = Command(arguments=[sys.executable, "-m", "uvicorn", "benchmarks.peers.fastapi_noop:app", *options])
    async with running([command], folder) as processes:
        url = f"http://127.0.0.1:{port}"
        await _ready(f"{url}/readyz", processes, folder)
        yield Service(url=url, processes=processes, folder=folder)


async def _ready(url: str, processes: list[Process], folder: Path) -> None:
    async with httpx.AsyncClient() as client:

        async def is_ready() -> bool:
            refuse_dead(processes, folder)
            try:
                return (await client.get(url, timeout=5)).status_code == 200
            except httpx.TransportError:
                return False

        await until(is_ready, seconds=_READY_SECONDS, what=f"200 from {url}")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
