"""Without its database the service answers fast, says so, and goes on when it is back."""

import asyncio
import time
from typing import Any

import httpx
import pytest

from tenure.api.app import create_app
from tenure.api.services import ServiceLifecycle, Services
from tenure.settings import load
from tenure.store.database import Database
from tenure.store.notify import Bell, Listener
from tenure.worker.registry import JobRegistry
from tests.api.calling import enqueue, problem, read
from tests.api.conftest import MakeServices, client_of
from tests.api.test_read import UNKNOWN
from tests.waiting import until

CALLS: list[tuple[str, str, Any]] = [
    ("POST", "/jobs", {"kind": "test.noop"}),
    ("POST", "/jobs/batch", {"jobs": [{"kind": "test.noop"}]}),
    ("GET", "/jobs", None),
    ("GET", "/dead", None),
    ("GET", f"/jobs/{UNKNOWN}", None),
    ("GET", f"/jobs/{UNKNOWN}/events", None),
    ("GET", f"/jobs/{UNKNOWN}/artifacts", None),
    ("POST", f"/jobs/{UNKNOWN}/cancel", {}),
    ("POST", f"/jobs/{UNKNOWN}/retry", {}),
    ("POST", "/leases", {"worker_id": "w", "queues": ["q"], "wait_seconds": 30}),
    ("POST", f"/jobs/{UNKNOWN}/heartbeat", {"lease_token": "t"}),
    ("POST", f"/jobs/{UNKNOWN}/complete", {"lease_token": "t"}),
    ("POST", "/leases/heartbeat", {"leases": [{"job_id": UNKNOWN, "lease_token": "t"}]}),
    ("POST", "/leases/settle", {"outcomes": [{"job_id": UNKNOWN, "lease_token": "t", "outcome": "release"}]}),
]


async def test_calls_without_a_database_are_503_and_come_back_later() -> None:
    settings = load({"TENURE_DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none"})
    async with await Database.open(settings.database) as database:
        listener = Listener(database)
        services = Services(
            database=database,
            bell=Bell(database, listener),
            listener=listener,
            registry=JobRegistry(),
            settings=settings,
            artifacts=None,
            lifecycle=ServiceLifecycle(),
        )
        async with client_of(services) as client:
            began = time.monotonic()
            responses = await asyncio.gather(
                *(client.request(method, path, json=body) for method, path, body in CALLS for _ in range(10))
            )
            assert time.monotonic() - began < 30  # a bound against hanging, not a measure
            for response in responses:
                document = problem(response, 503, "database-unavailable")
                assert response.headers["retry-after"] == "1"
                assert "127.0.0.1" not in document["detail"]
            assert (await client.get("/healthz")).status_code == 200


async def test_row_that_somebody_locks_delays_only_its_own_verbs(
    make_services: MakeServices, database: Database
) -> None:
    settings = load({"TENURE_DATABASE_URL": database.settings.url, "TENURE_DATABASE_LOCK_TIMEOUT_SECONDS": "0.2"})
    services = make_services()
    async with await Database.open(settings.database) as impatient:
        app = create_app(
            Services(
                database=impatient,
                bell=services.bell,
                listener=services.listener,
                registry=services.registry,
                settings=services.settings,
                artifacts=None,
                lifecycle=services.lifecycle,
            )
        )
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://t") as client:
            job = await enqueue(client)
            other = await enqueue(client)
            async with database.transaction() as connection:
                await connection.execute("SELECT FROM tenure.jobs WHERE id = $1::uuid FOR UPDATE", job["id"])
                response = await client.post(f"/jobs/{job['id']}/cancel")
                assert problem(response, 503, "database-unavailable")
                claimed = await client.post("/leases", json={"worker_id": "w", "queues": ["default"], "max_jobs": 5})
                assert [lease["job"]["id"] for lease in claimed.json()["leases"]] == [other["id"]]
                assert await read(client, job["id"]) == job
            assert (await client.post(f"/jobs/{job['id']}/cancel")).status_code == 200


@pytest.mark.parametrize("seconds", [1])
async def test_job_accepted_before_an_outage_is_answered_although_nobody_can_see_it(
    database: Database, make_services: MakeServices, seconds: int
) -> None:
    services = make_services()
    closing = await Database.open(database.settings)
    app = create_app(
        Services(
            database=closing,
            bell=services.bell,
            listener=services.listener,
            registry=services.registry,
            settings=services.settings,
            artifacts=None,
            lifecycle=services.lifecycle,
        )
    )
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://t") as client:
        waiting = asyncio.create_task(
            client.post("/jobs", json={"kind": "test.noop"}, headers={"Prefer": f"wait={seconds}"})
        )
        watcher = app.state.context.watcher
        await until(lambda: watcher._watches)
        await closing.close()
        response = await waiting
        assert response.status_code == 202
    async with client_of(services) as client:
        assert (await read(client, response.json()["id"]))["state"] == "queued"
