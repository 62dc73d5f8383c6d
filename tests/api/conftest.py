"""The API over a real database: by ASGI for most tests, over a real socket where bytes on the wire matter."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from tenure.api.app import create_app
from tenure.api.services import ServiceLifecycle, Services
from tenure.artifacts import open_artifact_store
from tenure.settings import Settings, load
from tenure.store.database import Database
from tenure.store.notify import Bell, Listener
from tenure.worker.registry import JobRegistry
from tests.waiting import until

MakeServices = Callable[..., Services]
Serve = Callable[[FastAPI], AbstractAsyncContextManager[str]]


class Greeting(BaseModel):
    """The payload of a kind that the service knows."""

    name: str
    times: int = 1


def registry_for_tests() -> JobRegistry:
    registry = JobRegistry()

    @registry.handler("test.greet", queue="greetings", max_attempts=7, timeout_seconds=12.0, lease_seconds=21.0)
    async def greet(context: Any, payload: Greeting) -> None:
        """Never run: the API only asks about its terms."""

    @registry.handler("test.versions", schema_versions=[2])
    async def versions(context: Any, payload: Greeting) -> None:
        """Knows one version of its payload."""

    @registry.handler("test.waited", cancel_when_caller_leaves=True)
    async def waited(context: Any) -> None:
        """Pointless once nobody waits for it."""

    return registry


@pytest.fixture
def settings(database: Database, tmp_path: Path) -> Settings:
    return load({"TENURE_DATABASE_URL": database.settings.url, "TENURE_DATA_DIR": str(tmp_path)})


@pytest.fixture
def make_services(database: Database, tmp_path: Path) -> MakeServices:
    """Services over the test's database; keywords are settings without their prefix."""

    def make(**variables: Any) -> Services:
        settings = load({"TENURE_DATABASE_URL": database.settings.url, "TENURE_DATA_DIR": str(tmp_path)}, **variables)
        listener = Listener(database)
        return Services(
            database=database,
            bell=Bell(database, listener),
            listener=listener,
            registry=registry_for_tests(),
            settings=settings,
            artifacts=open_artifact_store(settings.reports, tmp_path),
            lifecycle=ServiceLifecycle(),
        )

    return make


@pytest.fixture
def services(make_services: MakeServices) -> Services:
    return make_services()


@asynccontextmanager
async def client_of(services: Services) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(services)
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://tenure.test") as client:
            yield client
    finally:
        await app.state.context.close()


@pytest.fixture
async def client(services: Services) -> AsyncIterator[httpx.AsyncClient]:
    """Requests without a network in between."""
    async with client_of(services) as client:
        yield client


@asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[str]:
    """A real server on a free loopback port; yields its URL."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=5))
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        await until(lambda: server.started or task.done(), what="the server listens")
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listening.close()


@pytest.fixture
async def url(services: Services) -> AsyncIterator[str]:
    """The URL of a real server over the same services."""
    async with serving(create_app(services)) as address:
        yield address
