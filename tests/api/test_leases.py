"""Claiming over HTTP: leases for callers who are there, and for nobody else."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from tenure.api.app import create_app
from tenure.api.claiming import Claimant, ClaimDesk, WorkWanted
from tenure.api.services import Services
from tenure.jobs.model import State
from tenure.store.database import Database
from tests.api.calling import claim, enqueue, event_types, pointers, problem, read, running
from tests.api.conftest import serving
from tests.api.test_read import UNKNOWN
from tests.factories import many_queued
from tests.waiting import until


def desk_of(client: httpx.AsyncClient) -> ClaimDesk:
    desk = client._transport.app.state.context.claims  # type: ignore[attr-defined]
    assert isinstance(desk, ClaimDesk)
    return desk


async def test_claim_carries_the_job_and_its_token(client: httpx.AsyncClient) -> None:
    job = await enqueue(client, payload={"a": 1}, priority=3)
    (lease,) = await claim(client, lease_seconds=60)
    assert list(lease) == ["job", "lease_token", "lease_expires_at", "heartbeat_every_seconds"]
    assert lease["job"]["payload"] == job["payload"]
    assert (lease["job"]["state"], lease["job"]["attempts"]) == ("running", 1)
    assert lease["job"]["lease"]["expires_at"] == lease["lease_expires_at"]
    assert lease["heartbeat_every_seconds"] == 20.0
    assert len(lease["lease_token"]) == 32


async def test_token_is_shown_nowhere_else(client: httpx.AsyncClient) -> None:
    job_id, token = await running(client)
    await client.post(f"/jobs/{job_id}/cancel")
    paths = [f"/jobs/{job_id}?include=events", "/jobs?include=payload,result", f"/jobs/{job_id}/events"]
    for path in paths:
        assert token not in (await client.get(path)).text
    assert token not in (await client.post(f"/jobs/{job_id}/heartbeat", json={"lease_token": token})).text
    assert token not in (await client.post(f"/jobs/{job_id}/release", json={"lease_token": token})).text
    assert token not in (await client.post(f"/jobs/{job_id}/complete", json={"lease_token": token})).text


async def test_claim_takes_the_most_urgent_of_what_the_worker_serves(client: httpx.AsyncClient) -> None:
    await enqueue(client, kind="other", priority=100)
    low = await enqueue(client, kind="mine")
    high = await enqueue(client, kind="mine", priority=1)
    new = await enqueue(client, kind="mine", schema_version=2, priority=50)
    leases = await claim(client, kinds=[{"kind": "mine", "schema_versions": [1]}], max_jobs=10)
    assert [lease["job"]["id"] for lease in leases] == [high["id"], low["id"]]
    leases = await claim(client, kinds=["mine"], max_jobs=10)
    assert [lease["job"]["id"] for lease in leases] == [new["id"]]


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"max_jobs": 0}, "/max_jobs"),
        ({"max_jobs": -1}, "/max_jobs"),
        ({"max_jobs": 1_001}, "/max_jobs"),
        ({"max_jobs": 10**6}, "/max_jobs"),
        ({"max_jobs": True}, "/max_jobs"),
        ({"lease_seconds": 0}, "/lease_seconds"),
        ({"lease_seconds": -1}, "/lease_seconds"),
        ({"lease_seconds": 86_401}, "/lease_seconds"),
        ({"lease_seconds": 1e9}, "/lease_seconds"),
        ({"queues": []}, "/queues"),
        ({"queues": "default"}, "/queues"),
        ({"queues": ["q"] * 1_001}, "/queues"),
        ({"wait_seconds": 30.001}, "/wait_seconds"),
        ({"wait_seconds": 1e6}, "/wait_seconds"),
        ({"wait_seconds": -1}, "/wait_seconds"),
        ({"worker_id": ""}, "/worker_id"),
        ({"worker_id": "a\nb"}, "/worker_id"),
        ({"kinds": []}, "/kinds"),
        ({"kinds": [{"kind": "a", "versions": [1]}]}, "/kinds/0/versions"),
        ({"limit": 3}, "/limit"),
    ],
)
async def test_wrong_claim_leases_nothing(client: httpx.AsyncClient, fields: dict[str, Any], pointer: str) -> None:
    job = await enqueue(client)
    response = await client.post("/leases", json={"worker_id": "w", "queues": ["default"], **fields})
    assert pointers(response) == [pointer]
    assert await read(client, job["id"]) == job


async def test_a_thousand_queues_and_unknown_ones_are_taken(client: httpx.AsyncClient) -> None:
    await enqueue(client, queue="q500")
    assert len(await claim(client, queues=[f"q{number}" for number in range(1_000)])) == 1
    assert await claim(client, queues=["nobody-named-it"]) == []


async def test_long_poll_gets_the_job_that_comes(client: httpx.AsyncClient, services: Services) -> None:
    waiting = asyncio.create_task(claim(client, wait_seconds=30))
    desk = desk_of(client)
    await until(lambda: desk._lines)
    job = await enqueue(client)
    (lease,) = await waiting
    assert lease["job"]["id"] == job["id"]
    assert desk._lines == {}


async def test_long_poll_finds_a_job_that_becomes_due_without_a_hint(client: httpx.AsyncClient) -> None:
    await enqueue(client, delay_seconds=0.5)
    assert len(await claim(client, wait_seconds=20)) == 1


async def test_long_poll_ends_with_nothing(client: httpx.AsyncClient) -> None:
    assert await claim(client, wait_seconds=0.05) == []


async def test_many_waiters_get_one_job_each(client: httpx.AsyncClient) -> None:
    waiting = [asyncio.create_task(claim(client, wait_seconds=30, worker_id=f"w{number}")) for number in range(50)]
    desk = desk_of(client)
    await until(lambda: desk._lines and len(next(iter(desk._lines.values()))) == 50)
    ids = {(await enqueue(client))["id"] for _ in range(20)}
    response = await client.post("/jobs/batch", json={"jobs": [{"kind": "test.noop"}] * 30})
    ids |= {item["job"]["id"] for item in response.json()["items"]}
    leases = [lease for found in await asyncio.gather(*waiting) for lease in found]
    assert len(leases) == 50
    assert {lease["job"]["id"] for lease in leases} == ids


async def test_waiters_for_another_kind_do_not_stand_in_the_way(client: httpx.AsyncClient) -> None:
    other = asyncio.create_task(claim(client, wait_seconds=30, kinds=["other"]))
    mine = asyncio.create_task(claim(client, wait_seconds=30, kinds=["mine"]))
    desk = desk_of(client)
    await until(lambda: len(desk._lines) == 2)
    await enqueue(client, kind="mine")
    assert len(await mine) == 1
    assert not other.done()
    await enqueue(client, kind="other")
    assert len(await other) == 1


async def test_stop_ends_waits_with_nothing_and_refuses_new_claims(
    client: httpx.AsyncClient, services: Services
) -> None:
    job_id, token = await running(client)
    waiting = asyncio.create_task(claim(client, wait_seconds=30))
    desk = desk_of(client)
    await until(lambda: desk._lines)
    services.lifecycle.draining.set()
    assert await waiting == []
    response = await client.post("/leases", json={"worker_id": "w", "queues": ["default"]})
    assert problem(response, 503, "draining")
    assert response.headers["retry-after"] == "1"
    assert (await client.post(f"/jobs/{job_id}/heartbeat", json={"lease_token": token})).status_code == 200
    assert (await client.post(f"/jobs/{job_id}/complete", json={"lease_token": token})).status_code == 200


async def test_caller_who_left_is_claimed_nothing(services: Services, database: Database) -> None:
    app = create_app(services)
    desk = app.state.context.claims
    body = json.dumps({"worker_id": "gone", "queues": ["default"], "wait_seconds": 30}).encode()
    async with serving(app) as url:
        port = int(url.rpartition(":")[2])
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        head = (
            f"POST /leases HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await until(lambda: desk._lines)
        writer.close()
        await until(lambda: not desk._lines, timeout_seconds=5)
        async with httpx.AsyncClient(base_url=url) as client:
            job = await enqueue(client)
            assert (await read(client, job["id"]))["state"] == "queued"


async def test_what_was_claimed_for_a_caller_who_left_meanwhile_is_released(
    client: httpx.AsyncClient, services: Services
) -> None:
    job = await enqueue(client)
    desk = desk_of(client)
    gone = asyncio.Event()
    gone.set()
    claimed = await desk.claim(
        WorkWanted(queues=("default",), kinds=None),
        Claimant(worker_id="gone", max_jobs=5, lease_seconds=None),
        wait_seconds=0,
        gone=gone,
    )
    assert claimed == []
    after = await read(client, job["id"])
    assert (after["state"], after["attempts"], after["lease"]) == ("queued", 0, None)
    assert await event_types(client, job["id"]) == ["enqueued", "leased", "released"]


async def test_heartbeat_moves_the_end_and_keeps_progress(client: httpx.AsyncClient) -> None:
    job_id, token = await running(client)
    before = await read(client, job_id)
    progress = {"fraction": 0.25, "message": "one of four"}
    answer = await client.post(f"/jobs/{job_id}/heartbeat", json={"lease_token": token, "progress": progress})
    assert answer.json()["lease_expires_at"] > before["lease"]["expires_at"]
    assert (answer.json()["cancel_requested"], answer.json()["deadline_at"]) == (False, None)
    after = await read(client, job_id)
    assert {name: after["progress"][name] for name in progress} == progress
    assert after["version"] == before["version"]
    await client.post(f"/jobs/{job_id}/heartbeat", json={"lease_token": token})
    assert (await read(client, job_id))["progress"] == after["progress"]


@pytest.mark.parametrize("fraction", [-0.1, 1.1, "0.5", True])
async def test_progress_is_a_fraction(client: httpx.AsyncClient, fraction: Any) -> None:
    job_id, token = await running(client)
    body = {"lease_token": token, "progress": {"fraction": fraction}}
    assert pointers(await client.post(f"/jobs/{job_id}/heartbeat", json=body)) == ["/progress/fraction"]


async def test_many_heartbeats_are_answered_one_by_one(client: httpx.AsyncClient, database: Database) -> None:
    await many_queued(database, 3)
    leases = await claim(client, max_jobs=3)
    items = [{"job_id": lease["job"]["id"], "lease_token": lease["lease_token"]} for lease in leases]
    items[1]["lease_token"] = "0" * 32
    items.append({"job_id": UNKNOWN, "lease_token": "0" * 32})
    response = await client.post("/leases/heartbeat", json={"leases": items})
    answers = response.json()["items"]
    assert [answer["job_id"] for answer in answers] == [item["job_id"] for item in items]
    assert [answer["status"] for answer in answers] == [200, 409, 200, 404]
    assert answers[0]["lease_expires_at"] > leases[0]["lease_expires_at"]
    assert (answers[1]["problem"]["code"], answers[1]["problem"]["reason"]) == ("lease-lost", "unknown")
    assert answers[3]["problem"]["code"] == "not-found"


async def test_many_heartbeats_need_at_least_one(client: httpx.AsyncClient) -> None:
    assert pointers(await client.post("/leases/heartbeat", json={"leases": []})) == ["/leases"]


async def test_left_wait_for_a_job_cancels_it_only_where_its_kind_says_so(
    services: Services, client: httpx.AsyncClient
) -> None:
    ids = {}
    app = create_app(services)
    async with serving(app) as url:
        port = int(url.rpartition(":")[2])
        for kind in ("test.waited", "test.noop"):
            body = json.dumps({"kind": kind}).encode()
            head = (
                "POST /jobs HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nprefer: wait=60\r\n"
                f"content-length: {len(body)}\r\n\r\n"
            )
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head.encode() + body)

            async def accepted(kind: str = kind) -> Any:
                return (await client.get("/jobs", params={"kind": kind})).json()["items"]

            (job,) = await until(accepted)
            ids[kind] = job["id"]
            await until(lambda: app.state.context.watcher._watches)
            writer.close()
            await until(lambda: not app.state.context.watcher._watches)
    left = await read(client, ids["test.waited"])
    assert (left["state"], left["cancellation"]["reason"]) == (State.CANCELED, "caller left")
    stays = await read(client, ids["test.noop"])
    assert (stays["state"], stays["cancellation"]) == (State.QUEUED, None)
