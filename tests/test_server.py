"""One service in this process: what it says while it comes and goes, and what it leaves behind."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tenure.errors import ConfigurationError, SchemaMismatch
from tenure.jobs.model import State
from tenure.server import Service
from tenure.settings import Settings, load
from tenure.store.database import Database
from tests import factories
from tests.running import QUICK
from tests.waiting import until

Serve = Callable[..., Awaitable[Service]]
MakeSettings = Callable[..., Settings]


@pytest.fixture
def make_settings(database: Database, tmp_path: Path) -> MakeSettings:
    """Settings on the test's database; keywords are variables without their prefix."""

    def make(**variables: str) -> Settings:
        named = {f"TENURE_{name}": value for name, value in variables.items()}
        url = database.settings.url
        return load({"TENURE_DATABASE_URL": url, "TENURE_DATA_DIR": str(tmp_path), **QUICK, **named})

    return make


@pytest.fixture
async def serve(make_settings: MakeSettings) -> AsyncIterator[Serve]:
    """Starts services; they are stopped after the test."""
    started: list[Service] = []

    async def start(*, workers: bool = True, **variables: str) -> Service:
        service = Service(make_settings(**variables), workers=workers)
        started.append(service)
        await service.start()
        return service

    yield start
    for service in started:
        await service.stop(now=True)


async def get(service: Service, path: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=service.url, timeout=10) as client:
        return await client.get(path)


def leftovers() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("tenure")}


async def test_a_started_service_is_ready_on_a_free_port(serve: Serve) -> None:
    first, second = await serve(), await serve()
    assert first.url != second.url
    for service in (first, second):
        assert (await get(service, "/readyz")).json() == {"status": "ready", "reasons": []}


async def test_before_it_has_started_it_is_not_ready(make_settings: MakeSettings) -> None:
    service = Service(make_settings())
    assert await service.lifecycle.readiness() == ["starting"]
    await service.stop()


async def test_while_it_stops_it_is_not_ready_but_alive(serve: Serve) -> None:
    service = await serve(READINESS_DELAY_SECONDS="600")
    url = service.url
    stopping = asyncio.create_task(service.stop())
    await until(lambda: service.lifecycle.readiness(), what="readiness turns red")
    answer = await get(service, "/readyz")
    assert answer.status_code == 503
    assert ["stopping" in reason for reason in answer.json()["reasons"]] == [True]
    assert (await get(service, "/healthz")).status_code == 200
    service.hurry()
    await stopping
    async with httpx.AsyncClient() as client:
        with pytest.raises(httpx.ConnectError):
            await client.get(f"{url}/healthz")


async def test_a_database_that_is_away_is_waited_for_and_named(make_settings: MakeSettings) -> None:
    service = Service(make_settings(DATABASE_URL="postgresql://nobody@127.0.0.1:1/none"))
    await service.start()
    answer = await get(service, "/readyz")
    assert answer.status_code == 503
    assert "database" in answer.json()["reasons"][0]
    await service.stop()
    assert leftovers() == set()


async def test_to_stop_again_does_nothing(serve: Serve) -> None:
    service = await serve()
    await asyncio.gather(service.stop(), service.stop())
    await service.stop()
    assert leftovers() == set()


async def test_a_service_that_never_started_can_be_stopped(make_settings: MakeSettings) -> None:
    service = Service(make_settings())
    await service.stop()
    await service.stop(now=True)


@pytest.mark.parametrize("auto_migrate", ["true", "false"])
async def test_a_newer_schema_is_refused_and_nothing_is_left_running(
    make_settings: MakeSettings, database: Database, auto_migrate: str
) -> None:
    async with database.transaction() as connection:
        row = await connection.fetchrow("SELECT version_num FROM tenure.alembic_version")
        assert row is not None
        await connection.execute("UPDATE tenure.alembic_version SET version_num = '9999'")
    service = Service(make_settings(AUTO_MIGRATE=auto_migrate))
    try:
        with pytest.raises(SchemaMismatch, match="9999"):
            await service.start()
        assert leftovers() == set()
    finally:
        async with database.transaction() as connection:
            await connection.execute("UPDATE tenure.alembic_version SET version_num = $1", row["version_num"])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "queue.test"])
async def test_an_address_that_others_reach_is_refused(make_settings: MakeSettings, host: str) -> None:
    with pytest.raises(ConfigurationError, match="--insecure-no-auth"):
        await Service(make_settings(HOST=host)).start()


async def test_an_address_that_others_reach_can_be_accepted(make_settings: MakeSettings) -> None:
    # 192.0.2.1 is no machine's: it gets past the refusal, and no further.
    with pytest.raises(ConfigurationError, match=r"cannot listen on 192\.0\.2\.1"):
        await Service(make_settings(HOST="192.0.2.1", INSECURE_NO_AUTH="true")).start()


async def test_a_port_in_use_is_refused_by_name(serve: Serve, make_settings: MakeSettings) -> None:
    port = (await serve()).url.rpartition(":")[2]
    second = Service(make_settings(PORT=port))
    with pytest.raises(ConfigurationError, match=f"cannot listen on 127.0.0.1:{port}"):
        await second.start()


async def test_without_workers_jobs_stay_queued(serve: Serve, database: Database) -> None:
    service = await serve(workers=False)
    assert service.worker is None
    job = await factories.queued(database, kind="demo.sleep", payload='{"duration_ms": 1}')
    with_workers = await serve()
    assert with_workers.worker is not None
    other = await factories.queued(database, kind="demo.sleep", payload='{"duration_ms": 1}')

    async def done() -> bool:
        return {(await factories.read(database, one)).state for one in (job, other)} == {State.SUCCEEDED}

    await until(done)


async def test_a_service_alone_without_workers_never_claims(serve: Serve, database: Database) -> None:
    service = await serve(workers=False)
    job = await factories.queued(database, kind="demo.sleep", payload='{"duration_ms": 1}')
    expired = await factories.running(database, queue="aside")
    await factories.expire_lease(database, expired.job)

    async def reaped() -> bool:
        return (await factories.read(database, expired.job)).state is State.QUEUED

    await until(reaped, what="maintenance has been round at least once")
    await service.stop()
    assert await factories.history(database, job) == ["enqueued"]


async def test_without_maintenance_expired_leases_are_left_alone(serve: Serve, database: Database) -> None:
    service = await serve(workers=False, MAINTENANCE="false")
    held = await factories.running(database)
    await factories.expire_lease(database, held.job)
    assert not [name for name in leftovers() if "maintenance" in name]
    await service.stop()
    assert (await factories.read(database, held.job)).state is State.RUNNING


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_it_with_zero(make_settings: MakeSettings, number: signal.Signals) -> None:
    service = Service(make_settings())
    assert await service.run_until_signalled(started=lambda: os.kill(os.getpid(), number)) == 0
    assert leftovers() == set()


async def test_a_signal_in_the_middle_of_the_start_ends_it_in_order(
    make_settings: MakeSettings, caplog: pytest.LogCaptureFixture
) -> None:
    service, begun = Service(make_settings()), []
    asyncio.get_running_loop().call_soon(lambda: asyncio.get_running_loop().call_soon(_terminate))
    with caplog.at_level(logging.INFO):
        assert await service.run_until_signalled(started=lambda: begun.append(1)) == 0
    assert leftovers() == set()
    assert begun == [] or "stopping on SIGTERM; " in caplog.text


async def test_a_start_that_fails_says_why_and_does_not_wait_for_a_signal(make_settings: MakeSettings) -> None:
    with pytest.raises(ConfigurationError):
        await Service(make_settings(HOST="0.0.0.0")).run_until_signalled()
    assert leftovers() == set()


def _terminate(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
