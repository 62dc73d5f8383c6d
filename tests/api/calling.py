"""What the API's tests say over and over: enqueue, claim, settle, and the form of every error."""

from typing import Any

import httpx

PROBLEM_MEMBERS = {"type", "title", "status", "detail", "instance", "code", "request_id"}
JSON = {"content-type": "application/json"}


async def enqueue(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    response = await client.post("/jobs", json={"kind": "test.noop", **fields})
    assert response.status_code == 202, response.text
    return dict(response.json())


async def claim(client: httpx.AsyncClient, **fields: Any) -> list[dict[str, Any]]:
    response = await client.post("/leases", json={"worker_id": "worker-1", "queues": ["default"], **fields})
    assert response.status_code == 200, response.text
    return list(response.json()["leases"])


async def running(client: httpx.AsyncClient, **fields: Any) -> tuple[str, str]:
    """A job that is held: its id and its lease token."""
    job = await enqueue(client, **fields)
    (lease,) = await claim(client, queues=[job["queue"]])
    assert lease["job"]["id"] == job["id"]
    return job["id"], lease["lease_token"]


async def read(client: httpx.AsyncClient, job_id: str) -> dict[str, Any]:
    response = await client.get(f"/jobs/{job_id}")
    assert response.status_code == 200, response.text
    return dict(response.json())


async def event_types(client: httpx.AsyncClient, job_id: str) -> list[str]:
    response = await client.get(f"/jobs/{job_id}/events")
    return [event["type"] for event in response.json()["items"]]


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem document, whose form is checked."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document = dict(response.json())
    assert document.keys() >= PROBLEM_MEMBERS
    assert document["status"] == status
    assert document["code"] == code
    assert document["request_id"] == response.headers["x-request-id"]
    return document


def pointers(response: httpx.Response) -> list[str]:
    return [error["pointer"] for error in problem(response, 422, "invalid-input")["errors"]]
