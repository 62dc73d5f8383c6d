"""Cancel says what is true; retry starts afresh; an old request never hits a new attempt."""

import asyncio
from typing import Any

import httpx
import pytest

from tenure.api.services import Services
from tenure.jobs.model import State
from tenure.store.database import Database
from tenure.store.reap import reap_expired
from tests.api.calling import claim, enqueue, event_types, pointers, problem, read, running
from tests.api.test_read import UNKNOWN
from tests.factories import expire_lease, in_state
from tests.factories import read as read_row
from tests.waiting import until

RECEIPT = [
    "outcome", "job_id", "state", "version", "requested_at", "requested_by", "reason", "delivered_at", "confirmed_at",
    "worker_id", "lease_expires_at",
]  # fmt: skip


async def cancel(client: httpx.AsyncClient, job_id: str, status: int = 200, **body: Any) -> dict[str, Any]:
    response = await client.post(f"/jobs/{job_id}/cancel", json=body)
    assert response.status_code == status, response.text
    return dict(response.json())


async def test_queued_job_is_prevented(client: httpx.AsyncClient) -> None:
    job = await enqueue(client)
    receipt = await cancel(client, job["id"], reason="ordered twice")
    assert list(receipt) == RECEIPT
    assert (receipt["outcome"], receipt["state"], receipt["version"]) == ("prevented", "canceled", 2)
    assert receipt["reason"] == "ordered twice"
    assert receipt["confirmed_at"] == receipt["requested_at"]
    assert await claim(client) == []


async def test_running_job_is_only_requested_until_its_holder_reports(client: httpx.AsyncClient) -> None:
    job_id, token = await running(client)
    receipt = await cancel(client, job_id, 202)
    assert (receipt["outcome"], receipt["state"], receipt["worker_id"]) == ("requested", "running", "worker-1")
    assert receipt["lease_expires_at"] is not None
    assert receipt["delivered_at"] is None
    beat = (await client.post(f"/jobs/{job_id}/heartbeat", json={"lease_token": token})).json()
    assert beat["cancel_requested"] is True
    told = await cancel(client, job_id, 202)
    assert told["delivered_at"] is not None
    failure = {"lease_token": token, "error": {"kind": "canceled", "message": "stopped"}}
    assert (await client.post(f"/jobs/{job_id}/fail", json=failure)).json()["state"] == "canceled"
    receipt = await cancel(client, job_id)
    assert (receipt["outcome"], receipt["state"], receipt["worker_id"]) == ("stopped", "canceled", None)
    assert receipt["confirmed_at"] is not None


async def test_result_that_was_faster_stands(client: httpx.AsyncClient) -> None:
    job_id, token = await running(client)
    await cancel(client, job_id, 202)
    await client.post(f"/jobs/{job_id}/complete", json={"lease_token": token, "result": 42})
    receipt = await cancel(client, job_id)
    assert (receipt["outcome"], receipt["state"]) == ("finished_first", "succeeded")
    assert (await read(client, job_id))["result"] == 42


async def test_vanished_holder_is_unconfirmed(client: httpx.AsyncClient, database: Database) -> None:
    job = await in_state(database, State.RUNNING)
    await cancel(client, str(job.id), 202)
    await expire_lease(database, job)
    async with database.transaction() as connection:
        await reap_expired(connection)
    receipt = await cancel(client, str(job.id))
    assert (receipt["outcome"], receipt["state"], receipt["confirmed_at"]) == ("unconfirmed", "canceled", None)


async def test_cancel_waits_until_the_outcome_is_known(client: httpx.AsyncClient) -> None:
    job_id, token = await running(client)
    waiting = asyncio.create_task(client.post(f"/jobs/{job_id}/cancel", headers={"Prefer": "wait=30"}))

    async def told() -> bool:
        beat = await client.post(f"/jobs/{job_id}/heartbeat", json={"lease_token": token})
        return bool(beat.json()["cancel_requested"])

    await until(told)
    assert not waiting.done()
    await client.post(f"/jobs/{job_id}/release", json={"lease_token": token})
    response = await waiting
    assert (response.status_code, response.json()["outcome"]) == (200, "stopped")
    assert response.headers["preference-applied"] == "wait=30"


async def test_cancel_that_waited_in_vain_says_requested(client: httpx.AsyncClient) -> None:
    job_id, _ = await running(client)
    response = await client.post(f"/jobs/{job_id}/cancel", headers={"Prefer": "wait=1"})
    assert (response.status_code, response.json()["outcome"]) == (202, "requested")


async def test_repeated_cancel_is_the_same_receipt_and_one_event(client: httpx.AsyncClient) -> None:
    job_id, _ = await running(client)
    first = await cancel(client, job_id, 202, version=2, reason="a")
    for body in ({"version": 2, "reason": "b"}, {}, {"version": first["version"]}):
        assert await cancel(client, job_id, 202, **body) == first
    assert (await event_types(client, job_id)).count("cancel_requested") == 1


async def test_stale_version_changes_nothing_and_learns_the_current_one(client: httpx.AsyncClient) -> None:
    job_id, token = await running(client)
    failure = {"lease_token": token, "error": {"kind": "transient", "message": "x"}}
    await client.post(f"/jobs/{job_id}/fail", json=failure)
    before = await read(client, job_id)
    for request in ({"json": {"version": 2}}, {"headers": {"If-Match": '"2.0"'}}, {"headers": {"If-Match": '"2"'}}):
        response = await client.post(f"/jobs/{job_id}/cancel", **request)
        assert problem(response, 412, "version-mismatch")["current_version"] == 3
    assert await read(client, job_id) == before
    response = await client.post(f"/jobs/{job_id}/cancel", headers={"If-Match": '"3.9"'})
    assert response.json()["outcome"] == "prevented"


async def test_header_and_body_must_mean_one_version(client: httpx.AsyncClient) -> None:
    job_id = (await enqueue(client))["id"]
    response = await client.post(f"/jobs/{job_id}/cancel", json={"version": 1}, headers={"If-Match": '"2"'})
    assert pointers(response) == ["/version"]
    for header in ("1", '"x"', '"1", "2"', '"99999999999"', '"1.x"'):
        response = await client.post(f"/jobs/{job_id}/cancel", headers={"If-Match": header})
        assert pointers(response) == ["If-Match"]
    assert (await read(client, job_id))["version"] == 1
    response = await client.post(f"/jobs/{job_id}/cancel", json={"version": 1}, headers={"If-Match": 'W/"1.0"'})
    assert response.status_code == 200


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED, State.DEAD])
async def test_finished_job_cannot_be_canceled(client: httpx.AsyncClient, database: Database, state: State) -> None:
    job = await in_state(database, state)
    assert problem(await client.post(f"/jobs/{job.id}/cancel"), 409, "not-cancelable")
    assert await read_row(database, job) == job


@pytest.mark.parametrize("verb", ["cancel", "retry"])
@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"reasn": "x"}, "/reasn"),
        ({"version": "2"}, "/version"),
        ({"version": 0}, "/version"),
        ({"version": 2**31}, "/version"),
        ({"reason": "x" * 1_001}, "/reason"),
        ({"reason": "a\nb"}, "/reason"),
        ([], ""),
    ],
)
async def test_wrong_field_of_a_small_body_is_named(
    client: httpx.AsyncClient, database: Database, verb: str, body: Any, pointer: str
) -> None:
    job = await in_state(database, State.DEAD)
    assert pointers(await client.post(f"/jobs/{job.id}/{verb}", json=body)) == [pointer]
    assert await read_row(database, job) == job


@pytest.mark.parametrize("verb", ["cancel", "retry"])
async def test_verb_on_an_unknown_job_is_404(client: httpx.AsyncClient, verb: str) -> None:
    assert problem(await client.post(f"/jobs/{UNKNOWN}/{verb}"), 404, "not-found")
    assert problem(await client.post(f"/jobs/17/{verb}"), 404, "not-found")


@pytest.mark.parametrize("state", [State.DEAD, State.FAILED])
async def test_retry_gives_a_fresh_budget(client: httpx.AsyncClient, database: Database, state: State) -> None:
    job = await in_state(database, state)
    response = await client.post(f"/jobs/{job.id}/retry", json={"reason": "fixed", "version": job.version})
    assert response.status_code == 202
    retried = response.json()
    assert (retried["state"], retried["attempts"], retried["version"]) == ("queued", 0, job.version + 1)
    assert response.headers["etag"] == f'"{job.version + 1}.0"'
    assert (await event_types(client, str(job.id)))[-1] == "manual_retry"
    (lease,) = await claim(client)
    assert lease["job"]["id"] == str(job.id)


@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING, State.SUCCEEDED, State.CANCELED])
async def test_other_states_cannot_be_retried(client: httpx.AsyncClient, database: Database, state: State) -> None:
    job = await in_state(database, state)
    assert problem(await client.post(f"/jobs/{job.id}/retry"), 409, "not-retryable")
    assert await read_row(database, job) == job


async def test_retry_past_the_deadline_needs_a_new_one(client: httpx.AsyncClient, database: Database) -> None:
    job = await in_state(database, State.DEAD, expires_in_seconds=3_600.0)
    async with database.connection() as connection:
        await connection.execute(
            "UPDATE tenure.jobs SET deadline_at = now() - interval '1 second' WHERE id = $1", job.id
        )
    assert problem(await client.post(f"/jobs/{job.id}/retry"), 409, "deadline-passed")
    response = await client.post(f"/jobs/{job.id}/retry", json={"expires_in_seconds": 5, "delay_seconds": 6})
    assert pointers(response) == ["/delay_seconds"]
    response = await client.post(f"/jobs/{job.id}/retry", json={"expires_in_seconds": 60})
    assert response.status_code == 202


async def test_stale_retry_is_refused(client: httpx.AsyncClient, database: Database) -> None:
    job = await in_state(database, State.DEAD)
    response = await client.post(f"/jobs/{job.id}/retry", headers={"If-Match": '"1"'})
    assert problem(response, 412, "version-mismatch")["current_version"] == job.version
    assert await read_row(database, job) == job


async def test_hints_are_given_after_the_commit(client: httpx.AsyncClient, services: Services) -> None:
    hints: list[tuple[str, str]] = []
    services.listener.subscribe(lambda topic, subject: hints.append((topic, subject)))
    job_id, token = await running(client, queue="exports")
    assert hints == [("work", "exports")]
    await cancel(client, job_id, 202)
    await cancel(client, job_id, 202)
    assert hints[1:] == [("cancel", job_id)]
    await client.post(f"/jobs/{job_id}/complete", json={"lease_token": token})
    assert len(hints) == 2
    await enqueue(client, delay_seconds=60)
    assert len(hints) == 2
