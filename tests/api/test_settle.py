"""Giving leases back: once, by their holder, and the repeat of a lost answer is no error."""

import asyncio
from datetime import datetime
from typing import Any

import httpx
import pytest

from tenure.store.database import Database
from tenure.store.reap import reap_expired
from tests.api.calling import claim, enqueue, event_types, pointers, problem, read, running
from tests.api.conftest import MakeServices, client_of
from tests.api.test_read import UNKNOWN
from tests.factories import many_queued


async def expire(database: Database, job_id: str, *, reap: bool = True) -> None:
    async with database.transaction() as connection:
        await connection.execute(
            "UPDATE tenure.jobs SET lease_expires_at = now() - interval '1 second' WHERE id = $1::uuid", job_id
        )
        if reap:
            await reap_expired(connection)


def seconds_between(earlier: str, later: str) -> float:
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


async def test_complete_twice_is_answered_the_same_and_once_another_result_is_refused(
    client: httpx.AsyncClient,
) -> None:
    job_id, token = await running(client)
    body = {"lease_token": token, "result": {"rows": 3}}
    first = await client.post(f"/jobs/{job_id}/complete", json=body)
    assert first.status_code == 200
    assert (first.json()["state"], first.json()["version"]) == ("succeeded", 3)
    again = await client.post(f"/jobs/{job_id}/complete", json=body)
    assert (again.status_code, again.content) == (200, first.content)
    other = await client.post(f"/jobs/{job_id}/complete", json={"lease_token": token, "result": {"rows": 4}})
    assert problem(other, 409, "lease-lost")["reason"] == "settled"
    assert (await read(client, job_id))["result"] == {"rows": 3}
    assert await event_types(client, job_id) == ["enqueued", "leased", "succeeded"]


async def test_result_comes_back_as_it_was_sent(client: httpx.AsyncClient) -> None:
    results: list[Any] = [None, 0, "😀", [1.5, {"a": 10**30}], {}]
    for result in results:
        job_id, token = await running(client)
        await client.post(f"/jobs/{job_id}/complete", json={"lease_token": token, "result": result})
        assert (await read(client, job_id))["result"] == result


async def test_result_that_cannot_be_kept_is_refused_and_the_lease_stays(client: httpx.AsyncClient) -> None:
    job_id, token = await running(client)
    for result, pointer in (
        (rf'{{"a":"{chr(92)}u0000"}}', "/result/a"),
        ("1e999", "/result"),
        (r'"\ud800"', "/result"),
    ):
        response = await client.post(
            f"/jobs/{job_id}/complete",
            content=f'{{"lease_token":"{token}","result":{result}}}',
            headers={"content-type": "application/json"},
        )
        assert pointers(response) == [pointer]
    assert (await client.post(f"/jobs/{job_id}/complete", json={"lease_token": token})).status_code == 200


async def test_result_over_the_limit_is_413_and_the_lease_stays(make_services: MakeServices) -> None:
    async with client_of(make_services(MAX_RESULT_BYTES="1024")) as client:
        job_id, token = await running(client)
        large, fits = "x" * 1_023, "x" * 1_022
        response = await client.post(f"/jobs/{job_id}/complete", json={"lease_token": token, "result": large})
        assert "1,024" in problem(response, 413, "body-too-large")["detail"]
        assert (await read(client, job_id))["state"] == "running"
        response = await client.post(f"/jobs/{job_id}/complete", json={"lease_token": token, "result": fits})
        assert response.status_code == 200


async def test_token_of_a_lease_that_was_taken_back_is_refused(client: httpx.AsyncClient, database: Database) -> None:
    job_id, token = await running(client)
    await expire(database, job_id)
    before = await read(client, job_id)
    assert before["state"] == "queued"
    for verb, extra in (
        ("heartbeat", {}),
        ("complete", {}),
        ("fail", {"error": {"kind": "unknown", "message": "x"}}),
        ("release", {}),
        ("snooze", {"delay_seconds": 1}),
    ):
        response = await client.post(f"/jobs/{job_id}/{verb}", json={"lease_token": token, **extra})
        document = problem(response, 409, "lease-lost")
        assert (document["reason"], document["current_attempt"]) == ("expired", 1)
    assert await read(client, job_id) == before


async def test_holder_whose_lease_ran_out_but_was_not_taken_is_still_the_holder(
    client: httpx.AsyncClient, database: Database
) -> None:
    job_id, token = await running(client)
    await expire(database, job_id, reap=False)
    assert (await client.post(f"/jobs/{job_id}/heartbeat", json={"lease_token": token})).status_code == 200
    assert (await client.post(f"/jobs/{job_id}/complete", json={"lease_token": token})).status_code == 200


async def test_earlier_holder_cannot_touch_the_later_one(client: httpx.AsyncClient, database: Database) -> None:
    job_id, old = await running(client)
    await expire(database, job_id)
    (lease,) = await claim(client, worker_id="worker-2")
    before = await read(client, job_id)
    response = await client.post(f"/jobs/{job_id}/complete", json={"lease_token": old, "result": 1})
    assert problem(response, 409, "lease-lost")["reason"] == "superseded"
    assert await read(client, job_id) == before
    await client.post(f"/jobs/{job_id}/complete", json={"lease_token": lease["lease_token"], "result": 2})
    response = await client.post(f"/jobs/{job_id}/complete", json={"lease_token": old, "result": 1})
    assert problem(response, 409, "lease-lost")["reason"] == "finished"
    assert (await read(client, job_id))["result"] == 2


async def test_only_the_very_token_of_the_very_job_counts(client: httpx.AsyncClient) -> None:
    job_id, token = await running(client)
    other_id, other = await running(client)
    for wrong in (
        "",
        token[:-1],
        token.upper() if token != token.upper() else "X",
        token + " ",
        "😀",
        other,
        "x" * 1_000,
    ):
        response = await client.post(f"/jobs/{job_id}/complete", json={"lease_token": wrong})
        assert problem(response, 409, "lease-lost")["reason"] == "unknown"
    response = await client.post(f"/jobs/{UNKNOWN}/complete", json={"lease_token": token})
    assert problem(response, 404, "not-found")
    not_tokens: list[Any] = [None, 3, True, ["x"], {}, "x" * 1_001]
    for malformed in not_tokens:
        response = await client.post(f"/jobs/{job_id}/complete", json={"lease_token": malformed})
        assert pointers(response) == ["/lease_token"]
    assert (await read(client, job_id))["state"] == (await read(client, other_id))["state"] == "running"


@pytest.mark.parametrize(
    ("kind", "state"),
    [("transient", "queued"), ("timeout", "queued"), ("unknown", "queued"), ("permanent", "failed"), ("poison", "dead"),
     ("deadline", "failed")],
)  # fmt: skip
async def test_kind_of_the_error_decides_what_follows(client: httpx.AsyncClient, kind: str, state: str) -> None:
    job_id, token = await running(client, expires_in_seconds=3_600)
    body = {"lease_token": token, "error": {"kind": kind, "type": "OSError", "message": "password=hunter2"}}
    response = await client.post(f"/jobs/{job_id}/fail", json=body)
    assert response.json()["state"] == state
    error = (await read(client, job_id))["last_error"]
    assert (error["kind"], error["type"], error["message"]) == (kind, "OSError", "password=[redacted]")


@pytest.mark.parametrize("kind", ["lease_lost", "oops", "", None, 3])
async def test_kind_that_no_worker_may_report_is_refused(client: httpx.AsyncClient, kind: Any) -> None:
    job_id, token = await running(client)
    body = {"lease_token": token, "error": {"kind": kind, "message": "x"}}
    assert pointers(await client.post(f"/jobs/{job_id}/fail", json=body)) == ["/error/kind"]
    assert (await read(client, job_id))["state"] == "running"


async def test_canceled_needs_a_request_and_the_lease_stays(client: httpx.AsyncClient) -> None:
    job_id, token = await running(client)
    body = {"lease_token": token, "error": {"kind": "canceled", "message": "x"}}
    assert pointers(await client.post(f"/jobs/{job_id}/fail", json=body)) == ["/error/kind"]
    assert (await client.post(f"/jobs/{job_id}/heartbeat", json={"lease_token": token})).status_code == 200


async def test_delay_asked_for_is_honoured_within_bounds(client: httpx.AsyncClient) -> None:
    for seconds in (0, 5, 86_400):
        job_id, token = await running(client, queue=f"of-{seconds}")  # the first one is due again soon
        body = {"lease_token": token, "error": {"kind": "transient", "message": "x"}, "retry_after_seconds": seconds}
        answer = (await client.post(f"/jobs/{job_id}/fail", json=body)).json()
        job = await read(client, job_id)
        assert job["available_at"] == answer["available_at"]
        # On top of it, the jitter of the first step: up to one second.
        assert seconds <= seconds_between(job["updated_at"], job["available_at"]) <= seconds + 1


@pytest.mark.parametrize("seconds", [1e9, -1, "5", True, 86_400.5])
async def test_delay_out_of_bounds_is_refused_and_the_lease_stays(client: httpx.AsyncClient, seconds: Any) -> None:
    job_id, token = await running(client)
    body = {"lease_token": token, "error": {"kind": "transient", "message": "x"}, "retry_after_seconds": seconds}
    assert pointers(await client.post(f"/jobs/{job_id}/fail", json=body)) == ["/retry_after_seconds"]
    assert (await client.post(f"/jobs/{job_id}/heartbeat", json={"lease_token": token})).status_code == 200


async def test_release_gives_the_attempt_back_and_is_due_at_once(client: httpx.AsyncClient) -> None:
    job_id, token = await running(client)
    waiting = asyncio.create_task(claim(client, wait_seconds=30, worker_id="worker-2"))
    answer = (await client.post(f"/jobs/{job_id}/release", json={"lease_token": token})).json()
    assert list(answer) == ["job_id", "state", "version", "available_at"]
    assert answer["state"] == "queued"
    (lease,) = await waiting
    assert (lease["job"]["id"], lease["job"]["attempts"]) == (job_id, 1)


async def test_snooze_puts_the_job_off(client: httpx.AsyncClient) -> None:
    job_id, token = await running(client)
    body = {"lease_token": token, "delay_seconds": 60}
    assert (await client.post(f"/jobs/{job_id}/snooze", json=body)).json()["state"] == "queued"
    job = await read(client, job_id)
    assert job["attempts"] == 0
    assert seconds_between(job["updated_at"], job["available_at"]) == 60
    assert await claim(client) == []
    assert pointers(await client.post(f"/jobs/{job_id}/snooze", json={"lease_token": token})) == ["/delay_seconds"]


async def test_snooze_past_the_deadline_is_refused_and_the_lease_stays(client: httpx.AsyncClient) -> None:
    job_id, token = await running(client, expires_in_seconds=30)
    body = {"lease_token": token, "delay_seconds": 60}
    assert pointers(await client.post(f"/jobs/{job_id}/snooze", json=body)) == ["/delay_seconds"]
    assert (await client.post(f"/jobs/{job_id}/heartbeat", json={"lease_token": token})).status_code == 200


async def test_many_outcomes_are_answered_one_by_one(client: httpx.AsyncClient, database: Database) -> None:
    await many_queued(database, 99)
    leases = await claim(client, max_jobs=99)
    outcomes = [
        {"job_id": lease["job"]["id"], "lease_token": lease["lease_token"], "outcome": "complete", "result": position}
        for position, lease in enumerate(leases)
    ]
    for stale in (3, 50, 98):
        outcomes[stale]["lease_token"] = "0" * 32
    outcomes.insert(10, {"job_id": UNKNOWN, "lease_token": "0" * 32, "outcome": "release"})
    response = await client.post("/leases/settle", json={"outcomes": outcomes})
    items = response.json()["items"]
    assert [item["job_id"] for item in items] == [outcome["job_id"] for outcome in outcomes]
    assert [item["status"] for item in items].count(200) == 96
    assert {position for position, item in enumerate(items) if item["status"] == 409} == {3, 51, 99}
    assert items[10]["problem"]["code"] == "not-found"
    assert items[0] == {
        "status": 200,
        "job_id": outcomes[0]["job_id"],
        "state": "succeeded",
        "version": 3,
        "available_at": items[0]["available_at"],
    }
    again = await client.post("/leases/settle", json={"outcomes": outcomes})
    assert again.content == response.content


async def test_many_outcomes_of_all_kinds_and_one_over_the_limit(make_services: MakeServices) -> None:
    async with client_of(make_services(MAX_RESULT_BYTES="64")) as client:
        for _ in range(5):
            await enqueue(client)
        leases = await claim(client, max_jobs=5)
        fields: list[dict[str, Any]] = [
            {"outcome": "complete", "result": "x" * 100},
            {"outcome": "complete", "result": None},
            {"outcome": "fail", "error": {"kind": "poison", "message": "x"}},
            {"outcome": "release"},
            {"outcome": "snooze", "delay_seconds": 5},
        ]
        outcomes = [
            {"job_id": lease["job"]["id"], "lease_token": lease["lease_token"], **extra}
            for lease, extra in zip(leases, fields, strict=True)
        ]
        items = (await client.post("/leases/settle", json={"outcomes": outcomes})).json()["items"]
        assert [item["status"] for item in items] == [413, 200, 200, 200, 200]
        assert items[0]["problem"]["code"] == "body-too-large"
        assert [item["state"] for item in items[1:]] == ["succeeded", "dead", "queued", "queued"]
        assert (await read(client, leases[0]["job"]["id"]))["state"] == "running"


async def test_malformed_item_settles_nothing(client: httpx.AsyncClient) -> None:
    job_id, token = await running(client)
    good = {"job_id": job_id, "lease_token": token, "outcome": "complete"}
    response = await client.post("/leases/settle", json={"outcomes": [good, good | {"outcome": "fail"}]})
    assert pointers(response) == ["/outcomes/1/error"]
    assert (await read(client, job_id))["state"] == "running"


async def test_five_hundred_calls_at_once_are_all_answered(client: httpx.AsyncClient, database: Database) -> None:
    await many_queued(database, 250)
    leases = await claim(client, max_jobs=250)

    async def call(verb: str, lease: dict[str, Any]) -> int:
        body = {"lease_token": lease["lease_token"]}
        return (await client.post(f"/jobs/{lease['job']['id']}/{verb}", json=body)).status_code

    statuses = await asyncio.gather(*(call("heartbeat", lease) for lease in leases))
    assert set(statuses) == {200}
    statuses = await asyncio.gather(*(call("complete", lease) for lease in leases))
    assert set(statuses) == {200}
