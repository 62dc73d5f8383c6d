"""A whole service in this process, in a thread with a loop of its own: for tests of what blocks while it asks."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from tenure.server import Service
from tenure.settings import load
from tenure.store.database import Database
from tenure.worker.registry import JobRegistry

T = TypeVar("T")

QUICK = {
    "TENURE_PORT": "0",
    "TENURE_REAP_SECONDS": "0.1",
    "TENURE_WORKER_POLL_SECONDS": "0.1",
    "TENURE_BACKOFF_BASE_SECONDS": "0.01",
    "TENURE_BACKOFF_CAP_SECONDS": "0.02",
    "TENURE_SHUTDOWN_GRACE_SECONDS": "0",
}
"""Times at which nobody has to wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A service that runs, and the loop it runs on."""

    service: Service
    loop: asyncio.AbstractEventLoop

    @property
    def url(self) -> str:
        return self.service.url

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the service's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout=30)


@contextmanager
def running(
    database_url: str, data_dir: Path, *, registry: JobRegistry | None = None, workers: bool = True, **variables: str
) -> Iterator[Running]:
    """A service over the database, whose tables are empty when it begins. ``variables`` are without their prefix."""
    environment = {
        "TENURE_DATABASE_URL": database_url,
        "TENURE_DATA_DIR": str(data_dir),
        **QUICK,
        **{f"TENURE_{name}": value for name, value in variables.items()},
    }
    settings = load(environment)
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="service of a test")
    thread.start()

    async def start() -> Service:
        async with await Database.open(settings.database, application_name="tenure test") as database:
            await empty(database)
        service = Service(settings, registry=registry, workers=workers)
        await service.start()
        return service

    def call(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result(timeout=30)

    try:
        service = call(start())
        try:
            yield Running(service=service, loop=loop)
        finally:
            call(service.stop(now=True))
    finally:
        call(loop.shutdown_default_executor())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def empty(database: Database) -> None:
    """Removes what earlier tests committed."""
    async with database.transaction() as connection:
        for table in ("artifacts", "events", "jobs", "queues"):
            await connection.execute(f"DELETE FROM tenure.{table}")
