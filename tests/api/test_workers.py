"""Workers over HTTP."""

from typing import Any

import httpx

from tests.api.calling import enqueue, problem


async def claim(client: httpx.AsyncClient, worker_id: str, **fields: object) -> dict[str, Any]:
    body = {"worker_id": worker_id, "queues": ["default"], **fields}
    answer = await client.post("/leases", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_a_worker_is_registered_by_claiming_and_shows_what_it_holds(client: httpx.AsyncClient) -> None:
    job = await enqueue(client)
    await claim(client, "w1", kinds=["test.noop"], capacity=4, version="9.9", host="here")
    listed = (await client.get("/workers")).json()["items"]
    shown = (await client.get("/workers/w1")).json()
    assert [worker["id"] for worker in listed] == ["w1"]
    assert (shown["kinds"], shown["capacity"], shown["version"], shown["host"]) == (["test.noop"], 4, "9.9", "here")
    assert (shown["running"], [held["job_id"] for held in shown["holds"]]) == (1, [job["id"]])


async def test_quiet_is_heard_and_ends_claims_until_it_is_taken_back(client: httpx.AsyncClient) -> None:
    await claim(client, "w1")
    told = await client.post("/workers/w1/quiet", json={"reason": "deploy"})
    assert (told.status_code, told.json()["directive"], told.json()["directive_reason"]) == (200, "quiet", "deploy")
    await enqueue(client)
    again = await claim(client, "w1")
    assert (again["directive"], again["leases"]) == ("quiet", [])
    assert (await client.post("/workers/w1/resume")).json()["directive"] is None
    after = await claim(client, "w1")
    assert (after["directive"], len(after["leases"])) == (None, 1)


async def test_terminate_is_heard_with_the_next_heartbeat_of_what_it_holds(client: httpx.AsyncClient) -> None:
    await enqueue(client)
    (lease,) = (await claim(client, "w1"))["leases"]
    await client.post("/workers/w1/terminate")
    token = {"lease_token": lease["lease_token"]}
    one = await client.post(f"/jobs/{lease['job']['id']}/heartbeat", json=token)
    many = await client.post("/leases/heartbeat", json={"leases": [{"job_id": lease["job"]["id"], **token}]})
    assert one.json()["directive"] == "terminate"
    assert many.json()["items"][0]["directive"] == "terminate"


async def test_pages_by_cursor_and_unknown_workers_are_not_found(client: httpx.AsyncClient) -> None:
    for name in ("a", "b", "ü c"):
        await claim(client, name)
    first = (await client.get("/workers?limit=2")).json()
    rest = (await client.get("/workers", params={"limit": 2, "cursor": first["next_cursor"]})).json()
    assert [worker["id"] for worker in first["items"] + rest["items"]] == ["a", "b", "ü c"]
    assert rest["next_cursor"] is None
    assert (await client.get("/workers/ü c")).json()["id"] == "ü c"
    problem(await client.get("/workers/nobody"), 404, "not-found")
    problem(await client.post("/workers/nobody/quiet"), 404, "not-found")
    problem(await client.get("/workers?cursor=%25"), 422, "invalid-input")


async def test_a_worker_that_started_again_under_its_name_is_free_of_what_it_was_told(
    client: httpx.AsyncClient,
) -> None:
    await claim(client, "w1")
    await client.post("/workers/w1/terminate")
    assert (await claim(client, "w1"))["directive"] == "terminate"
    await enqueue(client)
    again = await claim(client, "w1", restarted=True)
    assert (again["directive"], len(again["leases"])) == (None, 1)
