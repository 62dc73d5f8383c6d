"""examples/shop.py: order and job are there together, or neither is; and the worker confirms the order."""

from collections.abc import AsyncIterator

import httpx
import pytest
from sqlalchemy.exc import IntegrityError

from examples.handlers import jobs
from examples.shop import create_app
from tenure.jobs.model import Job, State
from tenure.store.database import Database
from tenure.store.inspect import JobFilter, list_jobs
from tests.factories import queued
from tests.waiting import until
from tests.worker.running import settled_as, working


@pytest.fixture
async def shop(database: Database) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(database.settings.url)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client,
    ):
        yield client
    async with database.transaction() as connection:
        await connection.execute("DROP TABLE orders")


async def test_an_order_is_confirmed_by_its_job(database: Database, shop: httpx.AsyncClient) -> None:
    async with working(database, jobs):
        answer = await shop.post("/orders", json={"customer": "Ann", "cents": 1200})
        assert answer.status_code == 201
        order = f"/orders/{answer.json()['id']}"

        async def confirmed() -> bool:
            return bool((await shop.get(order)).json()["state"] == "confirmed")

        await until(confirmed)
        (job,) = await all_jobs(database)
        assert (str(job.id), job.kind) == (answer.json()["job"], "order.confirm")
        assert (await settled_as(database, job)).state is State.SUCCEEDED


async def test_an_order_that_is_not_committed_leaves_no_job(database: Database, shop: httpx.AsyncClient) -> None:
    async with database.transaction() as connection:
        # Judged at the commit, after the job was enqueued.
        await connection.execute("ALTER TABLE orders ADD UNIQUE (customer) DEFERRABLE INITIALLY DEFERRED")
    assert (await shop.post("/orders", json={"customer": "Ann", "cents": 1200})).status_code == 201
    with pytest.raises(IntegrityError):
        await shop.post("/orders", json={"customer": "Ann", "cents": 700})
    assert len(await all_jobs(database)) == 1


async def test_a_job_without_its_order_fails_and_says_so(database: Database, shop: httpx.AsyncClient) -> None:
    job = await queued(database, kind="order.confirm", queue="orders", payload='{"order_id": 7}')
    async with working(database, jobs):
        failed = await settled_as(database, job)
    assert failed.state is State.FAILED
    assert failed.last_error is not None
    assert "no order 7" in failed.last_error.message


async def all_jobs(database: Database) -> list[Job]:
    async with database.connection() as connection:
        return list(await list_jobs(connection, JobFilter()))
