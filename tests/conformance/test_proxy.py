"""The line between a worker and the service: it carries what is said, writes it down, and spoils what it is told to."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tenure.conformance.messages import Exchange, statements
from tenure.conformance.proxy import Proxy
from tenure.conformance.service import TestService
from tenure.settings import DatabaseSettings
from tenure.store.database import Database
from tests.waiting import until


@pytest.fixture
async def service(
    database: Database, database_settings: DatabaseSettings, tmp_path: Path
) -> AsyncIterator[TestService]:
    made = TestService({"TENURE_DATABASE_URL": database_settings.url, "TENURE_DATA_DIR": str(tmp_path)})
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def proxy(service: TestService) -> AsyncIterator[Proxy]:
    async with Proxy(service.url) as made:
        yield made


@pytest.fixture
async def caller(proxy: Proxy) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=proxy.url, timeout=10.0) as client:
        yield client


async def kinds(service: TestService) -> list[str]:
    async with httpx.AsyncClient(base_url=service.url) as client:
        return [job["kind"] for job in (await client.get("/jobs")).json()["items"]]


async def test_it_carries_requests_and_answers_on_one_connection_and_writes_them_down(
    proxy: Proxy, caller: httpx.AsyncClient
) -> None:
    made = await caller.post("/jobs", json={"kind": "test.a", "payload": "x" * 300_000})
    read = await caller.get(made.headers["location"])
    assert (made.status_code, read.status_code, read.json()["payload"]) == (202, 200, "x" * 300_000)
    assert [(one.method, one.path, one.status, one.heard) for one in proxy.exchanges] == [
        ("POST", "/jobs", 202, True),
        ("GET", made.headers["location"], 200, True),
    ]


async def test_it_carries_a_body_in_chunks(caller: httpx.AsyncClient) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b'{"kind": '
        yield b'"test.chunks"}'

    answer = await caller.post("/jobs", content=chunks(), headers={"content-type": "application/json"})
    assert answer.json()["kind"] == "test.chunks"


async def test_a_lost_answer_was_given_by_the_service_and_the_next_one_arrives(
    proxy: Proxy, caller: httpx.AsyncClient, service: TestService
) -> None:
    proxy.lose("answer", lambda exchange: exchange.path == "/jobs")
    assert (await caller.get("/healthz")).status_code == 200
    with pytest.raises(httpx.RemoteProtocolError):
        await caller.post("/jobs", json={"kind": "test.first"})
    assert await kinds(service) == ["test.first"]
    assert (await caller.post("/jobs", json={"kind": "test.second"})).status_code == 202
    assert [(one.status, one.heard) for one in proxy.struck] == [(202, False)]


async def test_a_lost_request_never_reached_the_service(
    proxy: Proxy, caller: httpx.AsyncClient, service: TestService
) -> None:
    proxy.lose("request", lambda exchange: exchange.path == "/jobs")
    with pytest.raises(httpx.RemoteProtocolError):
        await caller.post("/jobs", json={"kind": "test.first"})
    assert await kinds(service) == []


async def test_a_caller_who_leaves_is_seen_to_leave_by_the_service(
    proxy: Proxy, caller: httpx.AsyncClient, service: TestService
) -> None:
    claim = {"worker_id": "w", "queues": ["default"], "wait_seconds": 30}
    waiting = asyncio.create_task(caller.post("/leases", json=claim))
    await until(lambda: proxy.exchanges)
    waiting.cancel()
    await asyncio.wait([waiting])
    async with httpx.AsyncClient(base_url=service.url) as other:
        job = (await other.post("/jobs", json={"kind": "test.a"})).json()
        taken = (await other.post("/leases", json={**claim, "worker_id": "v", "wait_seconds": 5})).json()["leases"]
        assert [lease["job"]["id"] for lease in taken] == [job["id"]]
    assert not proxy.exchanges[0].heard


async def test_a_service_that_is_away_is_a_connection_that_closes_until_it_is_back(
    proxy: Proxy, caller: httpx.AsyncClient, service: TestService
) -> None:
    await service.stop()
    with pytest.raises(httpx.RemoteProtocolError):
        await caller.get("/healthz")
    assert len(proxy.refused_at) == 1
    await service.start()
    assert (await caller.get("/healthz")).status_code == 200


async def test_what_is_no_http_ends_the_connection(proxy: Proxy) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.url.rpartition(":")[2]))
    writer.write(b"hello\r\n\r\n")
    assert await reader.read() == b""
    writer.close()


def exchange(path: str, asked: object, status: int, answer: object) -> Exchange:
    return Exchange(method="POST", path=path, asked=asked, sent_at=1.0, status=status, answer=answer)


def test_what_is_said_of_leases_is_the_same_alone_and_in_a_batch() -> None:
    alone = exchange(
        "/jobs/A/complete", {"lease_token": "t", "result": 1}, 409, {"code": "lease-lost", "reason": "settled"}
    )
    batch = exchange(
        "/leases/settle",
        {"outcomes": [{"job_id": "a", "lease_token": "t", "outcome": "complete", "result": 1, "error": None}]},
        200,
        {"items": [{"job_id": "a", "status": 409, "problem": {"code": "lease-lost", "reason": "settled"}}]},
    )
    (one,), (other,) = statements(alone), statements(batch)
    assert one == other
    assert (one.job_id, one.verb, one.outcome, one.status, one.reason) == (
        "a",
        "complete",
        {"result": 1},
        409,
        "settled",
    )


def test_a_batch_of_heartbeats_says_who_was_asked_to_stop() -> None:
    beats = exchange(
        "/leases/heartbeat",
        {"leases": [{"job_id": "a", "lease_token": "t"}, {"job_id": "b", "lease_token": "u"}]},
        200,
        {"items": [{"status": 200, "cancel_requested": False}, {"status": 200, "cancel_requested": True}]},
    )
    assert [(one.job_id, one.settles, one.cancel_requested) for one in statements(beats)] == [
        ("a", False, False),
        ("b", False, True),
    ]


def test_a_claim_and_other_requests_say_nothing_of_leases() -> None:
    assert list(statements(exchange("/leases", {"worker_id": "w"}, 200, {"leases": []}))) == []
    assert list(statements(exchange("/jobs/a/cancel", {}, 202, {}))) == []
