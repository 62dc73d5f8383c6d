"""Reading a job and listing many."""

import asyncio
from typing import Any

import httpx
import pytest

from tenure.api.services import Services
from tenure.jobs.model import State
from tenure.store.database import Database
from tests.api.calling import claim, enqueue, pointers, problem, read, running
from tests.factories import in_state, many_queued
from tests.waiting import until

UNKNOWN = "0198f3a0-7c1e-7b5e-9d53-1f0f3f6c0a11"


@pytest.mark.parametrize(
    "path", ["/jobs/1", "/jobs/9223372036854775808", "/jobs/x", f"/jobs/{UNKNOWN}x", f"/jobs/{UNKNOWN}", "/jobs/%7B%7D"]
)
@pytest.mark.parametrize("tail", ["", "/events", "/artifacts", "/artifacts/a.csv"])
async def test_job_that_does_not_exist_is_404(client: httpx.AsyncClient, path: str, tail: str) -> None:
    assert problem(await client.get(path + tail), 404, "not-found")


async def test_etag_changes_with_every_event_and_heartbeat(client: httpx.AsyncClient) -> None:
    job_id = (await enqueue(client))["id"]
    tags = [(await client.get(f"/jobs/{job_id}")).headers["etag"]]
    (lease,) = await claim(client)
    tags.append((await client.get(f"/jobs/{job_id}")).headers["etag"])
    token = {"lease_token": lease["lease_token"]}
    await client.post(f"/jobs/{job_id}/heartbeat", json=token | {"progress": {"fraction": 0.5}})
    tags.append((await client.get(f"/jobs/{job_id}")).headers["etag"])
    await client.post(f"/jobs/{job_id}/complete", json=token)
    tags.append((await client.get(f"/jobs/{job_id}")).headers["etag"])
    assert tags == ['"1.0"', '"2.0"', '"2.1"', '"3.0"']


@pytest.mark.parametrize(
    ("header", "status"),
    [('"1.0"', 304), ('W/"1.0"', 304), ('"7.7", "1.0"', 304), ("*", 304), ('"1.1"', 200), ("1.0", 200), ("", 200)],
)
async def test_unchanged_job_is_not_sent_again(client: httpx.AsyncClient, header: str, status: int) -> None:
    job_id = (await enqueue(client))["id"]
    response = await client.get(f"/jobs/{job_id}", headers={"If-None-Match": header})
    assert response.status_code == status
    assert response.headers["etag"] == '"1.0"'
    assert (response.content == b"") == (status == 304)


async def test_history_comes_with_the_job_when_asked(client: httpx.AsyncClient) -> None:
    job_id, _ = await running(client)
    assert "events" not in await read(client, job_id)
    job = (await client.get(f"/jobs/{job_id}", params={"include": "events"})).json()
    assert [event["type"] for event in job["events"]] == ["enqueued", "leased"]
    assert job["events"][-1]["version"] == job["version"]


async def test_wait_is_answered_when_the_job_ends(client: httpx.AsyncClient) -> None:
    job_id, token = await running(client)
    waiting = asyncio.create_task(client.get(f"/jobs/{job_id}", headers={"Prefer": "wait=60"}))
    enqueued = asyncio.create_task(
        client.post("/jobs", json={"kind": "test.noop", "queue": "other"}, headers={"Prefer": "respond-async, wait=59"})
    )
    (lease,) = await until(lambda: claim(client, queues=["other"]))
    assert not waiting.done()
    await client.post(f"/jobs/{job_id}/complete", json={"lease_token": token, "result": 7})
    await client.post(f"/jobs/{lease['job']['id']}/complete", json={"lease_token": lease["lease_token"], "result": 8})
    response = await waiting
    assert (response.status_code, response.json()["result"]) == (200, 7)
    assert response.headers["preference-applied"] == "wait=60"
    response = await enqueued
    assert (response.status_code, response.json()["state"], response.json()["result"]) == (200, "succeeded", 8)
    assert response.headers["preference-applied"] == "wait=59"


async def test_wait_that_is_over_is_answered_with_the_job_as_it_is(client: httpx.AsyncClient) -> None:
    response = await client.post("/jobs", json={"kind": "test.noop"}, headers={"Prefer": "wait=1"})
    assert (response.status_code, response.json()["state"]) == (202, "queued")
    response = await client.get(response.headers["location"], headers={"Prefer": "wait=1"})
    assert (response.status_code, response.json()["state"]) == (200, "queued")


async def test_wait_ends_when_the_service_stops(client: httpx.AsyncClient, services: Services) -> None:
    job_id = (await enqueue(client))["id"]
    waiting = asyncio.create_task(client.get(f"/jobs/{job_id}", headers={"Prefer": "wait=60"}))
    await asyncio.sleep(0)
    services.lifecycle.draining.set()
    assert (await waiting).status_code == 200


@pytest.mark.parametrize("prefer", ["wait=x", "wait=-1", "wait", "waiting=20", "await=20", "wait=1.5", ""])
async def test_preference_that_is_not_understood_is_ignored(client: httpx.AsyncClient, prefer: str) -> None:
    job_id = (await enqueue(client))["id"]
    response = await client.get(f"/jobs/{job_id}", headers={"Prefer": prefer})
    assert response.status_code == 200
    assert "preference-applied" not in response.headers


async def test_list_goes_on_where_the_page_ended(client: httpx.AsyncClient, database: Database) -> None:
    ids = [str(job.id) for job in await many_queued(database, 25)]
    pages: list[list[str]] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await client.get("/jobs", params={"limit": 10, **cursor})).json()
        pages.append([job["id"] for job in page["items"]])
        await many_queued(database, 1)  # what comes meanwhile moves nothing
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert [len(page) for page in pages] == [10, 10, 5]
    assert [job_id for page in pages for job_id in page] == sorted(ids, reverse=True)


async def test_page_that_is_just_full_is_the_last(client: httpx.AsyncClient, database: Database) -> None:
    await many_queued(database, 10)
    page = (await client.get("/jobs", params={"limit": 10})).json()
    assert (len(page["items"]), page["next_cursor"]) == (10, None)


async def test_filters_within_one_field_are_alternatives_and_across_fields_all_hold(
    client: httpx.AsyncClient, database: Database
) -> None:
    a = await in_state(database, State.QUEUED, queue="a", kind="k1", tags=("x", "y"), concurrency_key="c")
    b = await in_state(database, State.DEAD, queue="b", kind="k1", tags=("y",))
    c = await in_state(database, State.RUNNING, queue="c", kind="k2")
    dead = (await client.get(f"/jobs/{b.id}")).json()
    for params, wanted in [
        ([("queue", "a"), ("queue", "b")], {a.id, b.id}),
        ([("queue", "a"), ("kind", "k1")], {a.id}),
        ([("queue", "a"), ("kind", "k2")], set()),
        ([("state", "dead"), ("state", "running")], {b.id, c.id}),
        ([("tag", "x")], {a.id}),
        ([("worker_id", "worker-1")], {c.id}),
        ([("concurrency_key", "c")], {a.id}),
        ([("fingerprint", dead["last_error"]["fingerprint"])], {b.id}),
        ([("created_after", dead["created_at"])], {c.id}),
        ([("created_before", dead["created_at"])], {a.id}),
        ([("created_after", "2001-01-01T00:00:00+00:00")], {a.id, b.id, c.id}),
    ]:
        response = await client.get("/jobs", params=params)
        assert {job["id"] for job in response.json()["items"]} == {str(job_id) for job_id in wanted}, params


async def test_plus_of_an_offset_may_stand_unescaped(client: httpx.AsyncClient) -> None:
    await enqueue(client)
    response = await client.get("/jobs?created_after=2001-01-01T00:00:00+02:00")
    assert len(response.json()["items"]) == 1


async def test_lists_carry_payload_and_result_only_when_asked(client: httpx.AsyncClient, database: Database) -> None:
    await many_queued(database, 3, payload='"' + "x" * 200_000 + '"')
    response = await client.get("/jobs")
    assert len(response.content) < 5_000
    assert not {"payload", "result"} & set(response.json()["items"][0])
    both = (await client.get("/jobs?limit=1&include=payload,result")).json()["items"][0]
    assert len(both["payload"]) == 200_000
    assert both["result"] is None
    one = (await client.get("/jobs?limit=1&include=payload")).json()["items"][0]
    assert "payload" in one
    assert "result" not in one


async def test_page_with_large_payloads_ends_early_and_loses_none(
    client: httpx.AsyncClient, database: Database
) -> None:
    ids = [str(job.id) for job in await many_queued(database, 50, payload='"' + "x" * 1_000_000 + '"')]
    pages: list[list[str]] = []
    cursor: dict[str, str] = {}
    while not pages or cursor:
        page = (await client.get("/jobs", params={"limit": 500, "include": "payload", **cursor})).json()
        pages.append([job["id"] for job in page["items"]])
        cursor = {"cursor": page["next_cursor"]} if page["next_cursor"] else {}
    assert [len(page) for page in pages] == [20, 20, 10]
    assert [job_id for page in pages for job_id in page] == sorted(ids, reverse=True)


async def test_dead_jobs_are_listed_by_when_they_died(client: httpx.AsyncClient, database: Database) -> None:
    first = await in_state(database, State.DEAD)
    second = await in_state(database, State.DEAD)
    await in_state(database, State.FAILED)
    assert first.finished_at is not None
    died = first.finished_at.isoformat()

    async def listed(**params: str) -> list[str]:
        return [job["id"] for job in (await client.get("/dead", params=params)).json()["items"]]

    assert await listed() == [str(second.id), str(first.id)]
    assert await listed(died_after=died) == [str(second.id)]
    assert await listed(died_before=second.finished_at.isoformat() if second.finished_at else "") == [str(first.id)]
    assert await listed(kind="another") == []


@pytest.mark.parametrize(
    ("query", "pointer", "words"),
    [
        ("statee=dead", "statee", "`state`"),
        ("state=dying", "state", "'dead'"),
        ("limit=0", "limit", "1"),
        ("limit=501", "limit", "500"),
        ("limit=-1", "limit", "1"),
        ("limit=1e2", "limit", "whole number"),
        ("limit=9223372036854775808", "limit", "500"),
        ("limit=" + "9" * 5_000, "limit", "whole number"),
        ("limit=5&limit=6", "limit", "more than once"),
        ("cursor=", "cursor", "none that an answer has given"),
        ("cursor=x", "cursor", "none that an answer has given"),
        ("cursor=" + "A" * 10_000, "cursor", "none that an answer has given"),
        ("cursor=%F0%9F%98%80", "cursor", "none that an answer has given"),
        ("created_after=yesterday", "created_after", "RFC 3339"),
        ("include=events", "include", "'payload'"),
        ("queue=a%20b", "queue", "letters"),
    ],
)
async def test_wrong_query_parameter_is_named(client: httpx.AsyncClient, query: str, pointer: str, words: str) -> None:
    response = await client.get(f"/jobs?{query}")
    assert pointers(response) == [pointer]
    assert words in response.json()["errors"][0]["message"]


@pytest.mark.parametrize(
    "path", ["/healthz", "/readyz", "/openapi.json", f"/jobs/{UNKNOWN}/artifacts", f"/jobs/{UNKNOWN}/artifacts/x"]
)
async def test_operation_without_parameters_takes_none(client: httpx.AsyncClient, path: str) -> None:
    assert pointers(await client.get(path, params={"verbose": "1"})) == ["verbose"]


async def test_readiness_says_why_not(client: httpx.AsyncClient, services: Services) -> None:
    assert (await client.get("/readyz")).json() == {"status": "ready", "reasons": []}

    async def schema_is_old() -> list[str]:
        return ["the database's schema is older than this version"]

    services.lifecycle.why_not_ready = schema_is_old
    response = await client.get("/readyz")
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert response.json() == {"status": "not_ready", "reasons": ["the database's schema is older than this version"]}
    services.lifecycle.draining.set()
    assert (await client.get("/readyz")).json()["reasons"] == ["the service is stopping"]
    assert (await client.get("/healthz")).json() == {"status": "ok"}


async def test_odd_row_does_not_stop_a_listing(client: httpx.AsyncClient) -> None:
    odd: list[Any] = [10**400 // 10**101, {"a" * 10_000: []}, "\u2028\u0085", [[[[]]]] * 10]
    for payload in odd:
        await enqueue(client, payload=payload)
    items = (await client.get("/jobs?include=payload")).json()["items"]
    assert [item["payload"] for item in items] == odd[::-1]
