"""POST /jobs/batch: all or none, errors by position."""

import json
from typing import Any

import httpx
import pytest

from tenure.api.services import Services
from tenure.store.database import Database
from tests.api.calling import JSON, enqueue, pointers, problem, read
from tests.api.conftest import MakeServices, client_of
from tests.api.test_enqueue import count

NDJSON = {"content-type": "application/x-ndjson"}


def batch(number: int, **special: dict[str, Any]) -> dict[str, Any]:
    """Jobs numbered by their payload; ``_57={…}`` changes one of them."""
    jobs = [{"kind": "test.noop", "payload": position} for position in range(number)]
    for name, fields in special.items():
        jobs[int(name.strip("_"))] |= fields
    return {"jobs": jobs}


async def test_batch_is_answered_in_the_order_given(client: httpx.AsyncClient, database: Database) -> None:
    response = await client.post("/jobs/batch", json=batch(300, _5={"priority": 100}))
    assert response.status_code == 202
    items = response.json()["items"]
    assert [item["job"]["payload"] for item in items] == list(range(300))
    assert not any(item["replayed"] for item in items)
    assert items[5]["job"]["priority"] == 100
    assert await count(database) == 300
    assert await read(client, items[299]["job"]["id"]) == items[299]["job"]


async def test_large_batch_is_as_a_small_one(client: httpx.AsyncClient, database: Database) -> None:
    response = await client.post("/jobs/batch", json=batch(10_000))
    assert response.status_code == 202
    assert [item["job"]["payload"] for item in response.json()["items"]] == list(range(10_000))
    assert await count(database) == 10_000


@pytest.mark.parametrize("number", [100, 5_000])
async def test_one_bad_job_keeps_all_out_and_is_named(
    client: httpx.AsyncClient, database: Database, number: int
) -> None:
    response = await client.post("/jobs/batch", json=batch(number, _57={"max_attempts": "3"}))
    assert pointers(response) == ["/jobs/57/max_attempts"]
    assert await count(database) == 0


async def test_job_that_the_database_refuses_keeps_all_out(client: httpx.AsyncClient, database: Database) -> None:
    response = await client.post("/jobs/batch", json=batch(100, _57={"deadline_at": "2001-01-01T00:00:00Z"}))
    assert pointers(response) == ["/jobs/57/deadline_at"]
    assert await count(database) == 0


async def test_payload_that_a_known_kind_does_not_take_is_named(client: httpx.AsyncClient, database: Database) -> None:
    response = await client.post(
        "/jobs/batch", json=batch(10, _4={"kind": "test.greet", "payload": {}}, _6={"kind": "test.greet"})
    )
    assert pointers(response)[0] == "/jobs/4/payload/name"
    assert pointers(response)[1].startswith("/jobs/6/payload")
    assert await count(database) == 0


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"jobs": []}, "/jobs"),
        ({"jobs": batch(10_001)["jobs"]}, "/jobs"),
        ({}, "/jobs"),
        ({"jobs": None}, "/jobs"),
        ({"jobs": [1]}, "/jobs/0"),
        ({"job": []}, "/job"),
        ([], ""),
        (3, ""),
    ],
)
async def test_batch_of_another_form_is_refused(
    client: httpx.AsyncClient, database: Database, body: Any, pointer: str
) -> None:
    assert pointers(await client.post("/jobs/batch", json=body)) == [pointer]
    assert await count(database) == 0


async def test_batch_over_its_bytes_is_413(make_services: MakeServices) -> None:
    async with client_of(make_services(MAX_BATCH_BYTES="2048")) as client:
        body = json.dumps(batch(10)).encode()
        for padding, status in ((2_048 - len(body), 202), (2_049 - len(body), 413)):
            response = await client.post("/jobs/batch", content=body + b" " * padding, headers=JSON)
            assert response.status_code == status


async def test_batch_with_one_payload_over_its_limit_keeps_all_out(
    make_services: MakeServices, database: Database
) -> None:
    async with client_of(make_services(MAX_PAYLOAD_BYTES="64")) as client:
        response = await client.post("/jobs/batch", json=batch(10, _3={"payload": "x" * 63}))
        assert "/jobs/3/payload" in problem(response, 413, "body-too-large")["detail"]
    assert await count(database) == 0


async def test_lines_of_json_are_a_batch_too(client: httpx.AsyncClient) -> None:
    lines = b'{"kind":"test.noop","payload":0}\n\n  \r\n{"kind":"test.noop","payload":1}\r\n'
    response = await client.post("/jobs/batch", content=lines, headers=NDJSON)
    assert response.status_code == 202
    assert [item["job"]["payload"] for item in response.json()["items"]] == [0, 1]


async def test_bad_line_is_named(client: httpx.AsyncClient, database: Database) -> None:
    good = b'{"kind":"test.noop"}\n'
    response = await client.post("/jobs/batch", content=good + b'\n{"kind":"a b"}\n', headers=NDJSON)
    assert pointers(response) == ["/jobs/1/kind"]
    response = await client.post("/jobs/batch", content=good + b"\n{oops}\n", headers=NDJSON)
    assert "line 3" in problem(response, 400, "malformed")["detail"]
    response = await client.post("/jobs/batch", content=b"\n\n", headers=NDJSON)
    assert pointers(response) == ["/jobs"]
    assert await count(database) == 0


async def test_repeated_batch_is_answered_with_the_first_jobs(client: httpx.AsyncClient, database: Database) -> None:
    body = batch(3, _0={"idempotency_key": "a"}, _1={"idempotency_key": "b"})
    first = (await client.post("/jobs/batch", json=body)).json()["items"]
    again = (await client.post("/jobs/batch", json=body)).json()["items"]
    assert [item["replayed"] for item in again] == [True, True, False]
    assert [item["job"]["id"] for item in again[:2]] == [item["job"]["id"] for item in first[:2]]
    assert await count(database) == 4


async def test_one_key_with_two_bodies_is_refused(client: httpx.AsyncClient, database: Database) -> None:
    twice = batch(3, _0={"idempotency_key": "a"}, _2={"idempotency_key": "a"})
    response = await client.post("/jobs/batch", json=twice)
    assert problem(response, 422, "idempotency-key-reused")["errors"][0]["pointer"] == "/jobs/2/idempotency_key"
    assert await count(database) == 0
    await enqueue(client, payload="other", idempotency_key="a")
    response = await client.post("/jobs/batch", json=batch(1, _0={"idempotency_key": "a"}))
    assert problem(response, 422, "idempotency-key-reused")["errors"][0]["pointer"] == "/jobs/0/idempotency_key"
    assert await count(database) == 1


async def test_key_of_the_whole_is_not_ignored(client: httpx.AsyncClient) -> None:
    response = await client.post("/jobs/batch", json=batch(1), headers={"Idempotency-Key": "a"})
    assert pointers(response) == ["Idempotency-Key"]


async def test_service_that_stops_takes_no_batches(client: httpx.AsyncClient, services: Services) -> None:
    services.lifecycle.draining.set()
    assert problem(await client.post("/jobs/batch", json=batch(1)), 503, "draining")
