"""POST /jobs: what is accepted comes back as it was sent; what is not is refused by name and changes nothing."""

import asyncio
from typing import Any

import httpx
import pytest

from tenure.api.services import Services
from tenure.store.database import Database
from tests.api.calling import JSON, claim, enqueue, pointers, problem, read
from tests.api.conftest import MakeServices, client_of

FIELDS_OF_A_JOB = [
    "id",
    "kind",
    "queue",
    "state",
    "version",
    "priority",
    "schema_version",
    "payload",
    "result",
    "progress",
    "tags",
    "metadata",
    "attempts",
    "max_attempts",
    "available_at",
    "timeout_seconds",
    "deadline_at",
    "lease_seconds",
    "lease",
    "cancellation",
    "last_error",
    "idempotency_key",
    "concurrency_key",
    "tenant",
    "submitted_by",
    "created_at",
    "updated_at",
    "started_at",
    "finished_at",
    "traceparent",
]


async def count(database: Database) -> int:
    async with database.connection() as connection:
        row = await connection.fetchrow("SELECT count(*) AS n FROM tenure.jobs")
    assert row is not None
    return int(row["n"])


async def test_accepted_job_is_answered_with_its_place(client: httpx.AsyncClient) -> None:
    response = await client.post("/jobs", json={"kind": "test.noop", "payload": {"a": 1}})
    assert response.status_code == 202
    job = response.json()
    assert list(job) == FIELDS_OF_A_JOB
    assert response.headers["location"] == f"/jobs/{job['id']}"
    assert response.headers["etag"] == '"1.0"'
    assert job["state"] == "queued"
    assert job["max_attempts"] == 3
    assert job["created_at"].endswith("Z")
    assert len(job["created_at"]) == len("2030-01-31T12:00:00.000000Z")


async def test_accepted_job_is_read_listed_and_claimed_at_once(client: httpx.AsyncClient) -> None:
    for number in range(50):
        job = await enqueue(client, queue=f"q{number}", payload=number)
        assert await read(client, job["id"]) == job
        listed = (await client.get("/jobs", params={"queue": f"q{number}"})).json()["items"]
        assert [item["id"] for item in listed] == [job["id"]]
        (lease,) = await claim(client, queues=[f"q{number}"])
        assert lease["job"]["id"] == job["id"]


@pytest.mark.parametrize(
    "payload",
    [
        None,
        0,
        "text",
        [],
        {"a": {"b": [1, 2.5, True, None, "x"]}},
        {"emoji": "😀", "rtl": "\u202eabc", "nfd": "e\u0301", "noncharacter": "\uffff"},
        18446744073709551617,
        -(10**300),
        1.7976931348623157e308,
        {"": ""},
    ],
)
async def test_payload_comes_back_as_it_was_sent(client: httpx.AsyncClient, payload: Any) -> None:
    job = await enqueue(client, payload=payload)
    (lease,) = await claim(client)
    assert job["payload"] == payload
    assert (await read(client, job["id"]))["payload"] == payload
    assert lease["job"]["payload"] == payload


@pytest.mark.parametrize(
    ("payload", "pointer"),
    [
        (r'{"a":"\ud800"}', "/payload/a"),
        (r'{"\udfff":1}', "/payload"),
        (r'{"a":["x","\u0000"]}', "/payload/a/1"),
        ("[1e400]", "/payload/0"),
        ("[-1e400]", "/payload/0"),
        ("[" * 101 + "]" * 101, "/payload" + "/0" * 99),
    ],
)
async def test_payload_that_cannot_be_kept_is_refused_by_its_pointer(
    client: httpx.AsyncClient, database: Database, payload: str, pointer: str
) -> None:
    response = await client.post("/jobs", content=f'{{"kind":"test.noop","payload":{payload}}}', headers=JSON)
    assert pointers(response) == [pointer]
    assert await count(database) == 0


@pytest.mark.parametrize(
    ("fields", "pointer", "words"),
    [
        ({"prioritty": 1}, "/prioritty", "`priority`"),
        ({"maxAttempts": 3}, "/maxAttempts", "`max_attempts`"),
        ({"max_attempts": "3"}, "/max_attempts", "integer"),
        ({"max_attempts": True}, "/max_attempts", "integer"),
        ({"max_attempts": 3.0}, "/max_attempts", "integer"),
        ({"delay_seconds": "5"}, "/delay_seconds", "number"),
        ({"delay_seconds": True}, "/delay_seconds", "number"),
        ({"kind": ""}, "/kind", "at least 1 character"),
        ({"kind": "a b"}, "/kind", "letters"),
        ({"kind": "a\n"}, "/kind", "letters"),
        ({"kind": "x" * 201}, "/kind", "at most 200"),
        ({"queue": "-q"}, "/queue", "begins with"),
        ({"tags": ["a"] * 21}, "/tags", "at most 20"),
        ({"tags": ["a\x1fb"]}, "/tags/0", "control"),
        ({"tags": [""]}, "/tags/0", "at least 1"),
        ({"tags": ["x" * 101]}, "/tags/0", "at most 100"),
        ({"metadata": []}, "/metadata", "object"),
        ({"metadata": {"a": "x" * 16_400}}, "/metadata", "16,384"),
        ({"concurrency_key": "a\tb"}, "/concurrency_key", "printable"),
        ({"idempotency_key": "x" * 256}, "/idempotency_key", "255"),
        ({"available_at": "2030-01-31T12:00:00"}, "/available_at", "offset"),
        ({"available_at": "2030-02-31T12:00:00Z"}, "/available_at", "calendar"),
        ({"available_at": "1969-12-31T23:59:59Z"}, "/available_at", "1970"),
        ({"available_at": "9999-12-31T23:59:59-01:00"}, "/available_at", "9999"),
        ({"available_at": 1_900_000_000}, "/available_at", "RFC 3339"),
        ({"delay_seconds": -5}, "/delay_seconds", "greater than or equal to 0"),
        ({"delay_seconds": 1, "available_at": "2030-01-31T12:00:00Z"}, "/delay_seconds", "not both"),
        ({"deadline_at": "2130-01-31T12:00:00Z", "expires_in_seconds": 1}, "/deadline_at", "not both"),
        ({"deadline_at": "2001-01-01T00:00:00Z"}, "/deadline_at", "passed"),
    ],
)
async def test_wrong_field_is_named_with_the_way_to_mend_it(
    client: httpx.AsyncClient, database: Database, fields: dict[str, Any], pointer: str, words: str
) -> None:
    response = await client.post("/jobs", json={"kind": "test.noop", **fields})
    assert pointers(response) == [pointer]
    assert words in response.json()["errors"][0]["message"]
    assert await count(database) == 0


@pytest.mark.parametrize(
    "name",
    ["priority", "max_attempts", "delay_seconds", "lease_seconds", "timeout_seconds", "expires_in_seconds",
     "schema_version"],
)  # fmt: skip
async def test_number_is_kept_unchanged_or_refused_by_name(client: httpx.AsyncClient, name: str) -> None:
    for value in (-1, 0, 32_768, 2_147_483_648, 9_223_372_036_854_775_808, 10**30, 10**400, 1e30):
        response = await client.post("/jobs", json={"kind": "test.noop", name: value})
        if response.status_code == 202:
            assert response.json().get(name, value) == value
        else:
            assert pointers(response) == [f"/{name}"]


async def test_null_for_a_field_that_may_be_left_out_is_as_if_left_out(client: httpx.AsyncClient) -> None:
    nulls = dict.fromkeys(
        ["queue", "priority", "delay_seconds", "available_at", "max_attempts", "tags", "metadata", "deadline_at"]
    )
    job = await enqueue(client, **nulls)
    assert (job["queue"], job["priority"], job["max_attempts"], job["tags"], job["metadata"]) == (
        "default",
        0,
        3,
        [],
        {},
    )


async def test_past_start_is_now(client: httpx.AsyncClient) -> None:
    job = await enqueue(client, available_at="2001-01-01T00:00:00+02:00")
    assert job["available_at"] == job["created_at"]


async def test_every_field_that_is_set_is_answered_as_set(client: httpx.AsyncClient) -> None:
    fields = {
        "queue": "exports",
        "priority": -7,
        "max_attempts": 10_000,
        "timeout_seconds": 1.5,
        "deadline_at": "9999-12-31T23:59:59.999998Z",
        "lease_seconds": 86_400,
        "schema_version": 2_147_483_647,
        "concurrency_key": "Kunde 17 · ü",
        "tags": ["a", "ü b", "😀"],
        "metadata": {"ticket": ["FIN", 12]},
        "available_at": "2040-06-01T10:00:00.000001Z",
    }
    job = await enqueue(client, **fields)
    assert {name: job[name] for name in fields} == fields
    assert await read(client, job["id"]) == job


@pytest.mark.parametrize("character", ["x", "😀"])
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("escaped", [False, True])
async def test_payload_limit_counts_bytes_and_is_exact(
    make_services: MakeServices, character: str, chunked: bool, escaped: bool
) -> None:
    limit = 4_096
    text = character * ((limit - 2) // len(character.encode()))
    text += "x" * (limit - 2 - len(text.encode()))
    async with client_of(make_services(MAX_PAYLOAD_BYTES=str(limit))) as client:
        for payload, status in ((text, 202), (text + "x", 413)):
            assert len(payload.encode()) + 2 == limit + (status == 413)
            sent = payload.replace("😀", r"\ud83d\ude00") if escaped else payload
            body = f'{{"kind":"test.noop","payload":"{sent}"}}'.encode()

            async def stream(body: bytes = body) -> Any:
                for start in range(0, len(body), 1_000):
                    yield body[start : start + 1_000]

            response = await client.post("/jobs", content=stream() if chunked else body, headers=JSON)
            assert response.status_code == status, response.text
            if status == 413:
                assert "4,096" in problem(response, 413, "body-too-large")["detail"]


async def test_kind_decides_what_the_job_does_not_say(client: httpx.AsyncClient) -> None:
    job = await enqueue(client, kind="test.greet", payload={"name": "Ada"})
    assert (job["queue"], job["max_attempts"], job["timeout_seconds"], job["lease_seconds"]) == ("greetings", 7, 12, 21)
    own = await enqueue(
        client,
        kind="test.greet",
        payload={"name": "Ada"},
        queue="mine",
        max_attempts=1,
        timeout_seconds=5,
        lease_seconds=6,
    )
    assert (own["queue"], own["max_attempts"], own["timeout_seconds"], own["lease_seconds"]) == ("mine", 1, 5, 6)


async def test_known_kind_refuses_a_payload_that_does_not_fit(client: httpx.AsyncClient, database: Database) -> None:
    response = await client.post("/jobs", json={"kind": "test.greet", "payload": {"name": 7}})
    assert pointers(response) == ["/payload/name"]
    assert await count(database) == 0


async def test_payload_of_a_version_that_is_not_known_here_waits_for_who_knows_it(client: httpx.AsyncClient) -> None:
    assert (await enqueue(client, kind="test.versions", payload={"new": 1}, schema_version=3))["schema_version"] == 3
    response = await client.post("/jobs", json={"kind": "test.versions", "payload": {"new": 1}, "schema_version": 2})
    assert pointers(response) == ["/payload/name"]


async def test_repeat_under_one_key_is_answered_with_the_first_job(client: httpx.AsyncClient) -> None:
    body = {"kind": "test.noop", "payload": {"a": 1, "b": [2, 3]}}
    first = await client.post("/jobs", json=body, headers={"Idempotency-Key": "order-4711"})
    assert first.status_code == 202
    assert "idempotent-replayed" not in first.headers
    again = await client.post(
        "/jobs",
        content=b'{ "payload": {"b":[2,3], "a":1}, "idempotency_key":"order-4711", "kind":"test.noop" }',
        headers=JSON,
    )
    assert again.status_code == 200
    assert again.headers["idempotent-replayed"] == "true"
    assert again.json() == first.json()
    assert again.headers["location"] == first.headers["location"]


async def test_another_body_under_a_used_key_is_refused(client: httpx.AsyncClient, database: Database) -> None:
    await enqueue(client, payload=1, idempotency_key="k")
    response = await client.post("/jobs", json={"kind": "test.noop", "payload": 2, "idempotency_key": "k"})
    document = problem(response, 422, "idempotency-key-reused")
    assert document["errors"][0]["pointer"] == "/idempotency_key"
    assert await count(database) == 1


async def test_header_and_field_must_name_one_key(client: httpx.AsyncClient) -> None:
    body = {"kind": "test.noop", "idempotency_key": "a"}
    assert pointers(await client.post("/jobs", json=body, headers={"Idempotency-Key": "b"})) == ["/idempotency_key"]
    assert (await client.post("/jobs", json=body, headers={"Idempotency-Key": "a"})).status_code == 202


@pytest.mark.parametrize("key", [b"", b"x" * 256, b"\xff\xfe", b"a\x01b"])
async def test_key_that_cannot_be_one_is_refused(client: httpx.AsyncClient, key: bytes) -> None:
    response = await client.post("/jobs", json={"kind": "test.noop"}, headers=[(b"idempotency-key", key)])
    assert pointers(response) == ["Idempotency-Key"]


async def test_fifty_identical_posts_at_once_are_one_job(client: httpx.AsyncClient, database: Database) -> None:
    async def post(key: int) -> httpx.Response:
        return await client.post("/jobs", json={"kind": "test.noop", "payload": key, "idempotency_key": f"k{key}"})

    for key in range(5):
        responses = await asyncio.gather(*(post(key) for _ in range(50)))
        assert {response.json()["id"] for response in responses} == {responses[0].json()["id"]}
        assert sorted(response.status_code for response in responses) == [200] * 49 + [202]
        replayed = [response for response in responses if "idempotent-replayed" in response.headers]
        assert {response.status_code for response in replayed} == {200}
    assert await count(database) == 5


async def test_one_refused_enqueue_spoils_none_of_those_written_with_it(client: httpx.AsyncClient) -> None:
    await enqueue(client, payload=1, idempotency_key="taken")
    bodies = [{"kind": "test.noop", "payload": number} for number in range(20)]
    bodies[3]["idempotency_key"] = "taken"
    bodies[7]["deadline_at"] = "2001-01-01T00:00:00Z"
    responses = await asyncio.gather(*(client.post("/jobs", json=body) for body in bodies))
    statuses = [response.status_code for response in responses]
    assert statuses == [422 if number in {3, 7} else 202 for number in range(20)]
    assert responses[3].json()["errors"][0]["pointer"] == "/idempotency_key"
    assert responses[7].json()["errors"][0]["pointer"] == "/deadline_at"


async def test_trace_context_is_taken_over_when_valid(client: httpx.AsyncClient) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    for header, kept in ((trace, trace), ("00-" + "0" * 32 + "-00f067aa0ba902b7-01", None), ("nonsense", None)):
        response = await client.post("/jobs", json={"kind": "test.noop"}, headers={"traceparent": header})
        assert response.json()["traceparent"] == kept


async def test_service_that_stops_takes_no_jobs(client: httpx.AsyncClient, services: Services) -> None:
    services.lifecycle.draining.set()
    response = await client.post("/jobs", json={"kind": "test.noop"})
    assert problem(response, 503, "draining")
    assert response.headers["retry-after"] == "1"
