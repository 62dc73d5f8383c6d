"""A job's history, as pages and as a live stream that resumes where it broke off."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import httpx
import pytest

from tenure.api import events as module
from tenure.api.app import create_app
from tenure.api.services import Services
from tenure.jobs.model import State
from tenure.store.database import Database
from tests.api.calling import enqueue, pointers, running
from tests.api.conftest import serving
from tests.factories import in_state
from tests.waiting import until

STREAM = {"accept": "text/event-stream"}


@dataclass
class Received:
    """What came over a stream so far."""

    events: list[dict[str, str]] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    ended: bool = False

    @property
    def types(self) -> list[str]:
        return [event.get("event", "") for event in self.events]


@asynccontextmanager
async def following(url: str, job_id: str, **headers: str) -> AsyncIterator[Received]:
    """Reads a stream in the background."""
    received = Received()

    async def read() -> None:
        async with (
            httpx.AsyncClient(timeout=60) as client,
            client.stream("GET", f"{url}/jobs/{job_id}/events", headers=STREAM | headers) as response,
        ):
            assert response.headers["content-type"].startswith("text/event-stream")
            event: dict[str, str] = {}
            async for line in response.aiter_lines():
                name, _, value = line.partition(": ")
                if line.startswith(":"):
                    received.comments.append(line)
                elif line:
                    event[name] = value
                elif event:
                    if "event" in event:
                        received.events.append(event)
                    event = {}
        received.ended = True

    task = asyncio.create_task(read())
    try:
        yield received
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_history_is_listed_in_order_and_by_pages(client: httpx.AsyncClient) -> None:
    job_id, token = await running(client)
    await client.post(f"/jobs/{job_id}/complete", json={"lease_token": token})
    whole = (await client.get(f"/jobs/{job_id}/events")).json()
    assert [event["type"] for event in whole["items"]] == ["enqueued", "leased", "succeeded"]
    assert list(whole["items"][1]) == ["version", "at", "type", "state", "attempt", "worker_id", "detail"]
    assert whole["next_cursor"] is None
    first = (await client.get(f"/jobs/{job_id}/events?limit=2")).json()
    assert first["items"] == whole["items"][:2]
    second = (await client.get(f"/jobs/{job_id}/events?limit=2&cursor={first['next_cursor']}")).json()
    assert (second["items"], second["next_cursor"]) == (whole["items"][2:], None)


@pytest.mark.parametrize("cursor", ["", "x", "AAAA", "_____w", "A" * 5_000])
async def test_cursor_that_no_page_gave_is_refused(client: httpx.AsyncClient, cursor: str) -> None:
    job_id = (await enqueue(client))["id"]
    assert pointers(await client.get(f"/jobs/{job_id}/events", params={"cursor": cursor})) == ["cursor"]


async def test_stream_follows_the_job_to_its_end(client: httpx.AsyncClient, url: str) -> None:
    job_id, token = await running(client)
    async with following(url, job_id) as received:
        await until(lambda: received.types == ["enqueued", "leased"])
        progress = {"fraction": 0.5, "message": "half"}
        await client.post(f"/jobs/{job_id}/heartbeat", json={"lease_token": token, "progress": progress})
        await until(lambda: received.types == ["enqueued", "leased", "progress"])
        await client.post(f"/jobs/{job_id}/cancel", json={"reason": "enough"})
        await until(lambda: received.types[-1] == "cancel_requested")
        await client.post(f"/jobs/{job_id}/release", json={"lease_token": token})
        await until(lambda: received.ended)
    assert received.types == ["enqueued", "leased", "progress", "cancel_requested", "canceled"]
    assert [event.get("id") for event in received.events] == ["1", "2", None, "3", "4"]
    assert json.loads(received.events[2]["data"])["fraction"] == 0.5
    listed = (await client.get(f"/jobs/{job_id}/events")).json()["items"]
    assert [json.loads(event["data"]) for event in received.events if "id" in event] == listed


async def test_stream_resumes_after_the_last_event_seen(client: httpx.AsyncClient, url: str) -> None:
    job_id, token = await running(client)
    async with following(url, job_id, **{"last-event-id": "1"}) as received:
        await until(lambda: received.types == ["leased"])
        await client.post(f"/jobs/{job_id}/complete", json={"lease_token": token})
        await until(lambda: received.ended)
    assert received.types == ["leased", "succeeded"]


async def test_nothing_more_will_come_is_204(client: httpx.AsyncClient, database: Database) -> None:
    job = await in_state(database, State.SUCCEEDED)
    response = await client.get(f"/jobs/{job.id}/events", headers=STREAM | {"last-event-id": str(job.version)})
    assert (response.status_code, response.content) == (204, b"")
    response = await client.get(f"/jobs/{job.id}/events", headers=STREAM)
    assert response.text.count("event: ") == job.version


async def test_retried_job_is_followed_past_its_earlier_end(
    client: httpx.AsyncClient, database: Database, url: str
) -> None:
    job = await in_state(database, State.DEAD)
    await client.post(f"/jobs/{job.id}/retry")
    async with following(url, str(job.id)) as received:
        await until(lambda: received.types == ["enqueued", "leased", "dead", "manual_retry"])
        assert not received.ended


async def test_history_longer_than_a_read_is_streamed_whole(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, database: Database
) -> None:
    monkeypatch.setattr(module, "_STREAMED_AT_ONCE", 2)
    job = await in_state(database, State.DEAD)
    await client.post(f"/jobs/{job.id}/retry")
    await client.post(f"/jobs/{job.id}/cancel")
    response = await client.get(f"/jobs/{job.id}/events", headers=STREAM)
    assert [line for line in response.text.splitlines() if line.startswith("id")] == [f"id: {n}" for n in range(1, 6)]


@pytest.mark.parametrize("header", ["x", "-1", "1.5", "99999999999", "3000000000"])
async def test_last_event_id_that_is_none_is_refused(client: httpx.AsyncClient, header: str) -> None:
    job_id = (await enqueue(client))["id"]
    response = await client.get(f"/jobs/{job_id}/events", headers=STREAM | {"last-event-id": header})
    assert pointers(response) == ["Last-Event-ID"]


async def test_quiet_stream_is_kept_alive(client: httpx.AsyncClient, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEEP_ALIVE_SECONDS", 0.02)
    job_id = (await enqueue(client))["id"]
    async with following(url, job_id) as received:
        await until(lambda: len(received.comments) >= 2)
    assert received.comments[0] == ": keep-alive"


async def test_stream_ends_when_the_service_stops(client: httpx.AsyncClient, services: Services, url: str) -> None:
    job_id = (await enqueue(client))["id"]
    async with following(url, job_id) as received:
        await until(lambda: received.types)
        services.lifecycle.draining.set()
        await until(lambda: received.ended)


async def test_reader_who_leaves_leaves_nothing_behind(client: httpx.AsyncClient, services: Services) -> None:
    job_id = (await enqueue(client))["id"]
    app = create_app(services)
    watcher = app.state.context.watcher
    async with serving(app) as url:
        async with following(url, job_id) as received:
            await until(lambda: received.types)
            assert len(watcher._watches) == 1
        await until(lambda: not watcher._watches)
        await until(lambda: watcher._task is None)


async def test_head_of_a_stream_ends_at_once(client: httpx.AsyncClient) -> None:
    job_id = (await enqueue(client))["id"]
    response = await client.head(f"/jobs/{job_id}/events", headers=STREAM)
    assert (response.status_code, response.content) == (200, b"")
