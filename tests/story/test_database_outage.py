"""A database that comes late, goes away, and comes back."""

import asyncio
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import httpx
import pytest

from tenure.embedded import EmbeddedPostgres
from tests.story.harness import Stage, answers, submitter
from tests.waiting import until

pytestmark = pytest.mark.story


@pytest.fixture
def own_server() -> Iterator[EmbeddedPostgres]:
    """A running server of the story's own, in a folder that the server's account can reach when root runs the tests."""
    with (
        tempfile.TemporaryDirectory(prefix="tenure-story-") as folder,
        EmbeddedPostgres(Path(folder) / "pg", settings={"shared_buffers": "32MB"}) as server,
    ):
        yield server


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_restart_under_load_loses_nothing_and_needs_no_restart_of_ours(
    stage: Stage, own_server: EmbeddedPostgres, mode: Literal["fast", "immediate"]
) -> None:
    stage.database_url = own_server.url()
    service = await stage.serve(WORKER_SLOTS="20", LEASE_SECONDS="20")
    accepted: list[str] = []
    stop = asyncio.Event()

    async def submit(number: int) -> None:
        async with httpx.AsyncClient(base_url=service.url, timeout=30) as client:
            n = 0
            while not stop.is_set():
                n += 1
                headers = {"Idempotency-Key": f"{number}-{n}"}
                body = {"kind": "story.quick", "payload": stage.payload()}
                while True:  # as a good client does: the same key until it is answered
                    answer = await client.post("/jobs", json=body, headers=headers)
                    assert answer.status_code in {200, 202, 503}, answer.text
                    if answer.status_code != 503:
                        break
                    assert "Retry-After" in answer.headers
                    await asyncio.sleep(0.05)
                accepted.append(answer.json()["id"])

    callers = [asyncio.create_task(submit(number)) for number in range(4)]
    await until(lambda: len(accepted) > 50, timeout_seconds=30)
    for _ in range(2):
        before = len(accepted)
        await asyncio.to_thread(own_server.restart, mode)
        await until(lambda before=before: len(accepted) > before + 50, timeout_seconds=20)
    stop.set()
    await asyncio.gather(*callers)
    assert len(accepted) == len(set(accepted))
    async with submitter(service.url) as caller:
        for job_id in accepted:
            await caller.in_state(job_id, "succeeded", timeout_seconds=60)
    assert service.popen.poll() is None


async def test_running_jobs_survive_terminated_backends_with_one_start(
    stage: Stage, own_server: EmbeddedPostgres
) -> None:
    stage.database_url = own_server.url()
    service = await stage.serve(LEASE_SECONDS="30")
    async with submitter(service.url) as caller:
        made = [await caller.enqueue("story.hold", stage.payload()) for _ in range(5)]
        await until(lambda: len(stage.starts()) == 5)
        await asyncio.to_thread(own_server.restart, "immediate")
        stage.go()

        async def back() -> bool:
            return await answers(service, "/readyz")

        await until(back, timeout_seconds=20)
        for job in made:
            assert (await caller.in_state(job["id"], "succeeded"))["attempts"] == 1
    assert set(stage.starts().values()) == {1}


async def test_a_service_waits_for_its_database_and_says_so(stage: Stage, own_server: EmbeddedPostgres) -> None:
    stage.database_url = own_server.url()
    await asyncio.to_thread(own_server.stop)
    service = await stage.serve(ready=False)
    async with httpx.AsyncClient(base_url=service.url) as client:
        not_ready = await client.get("/readyz")
        assert not_ready.status_code == 503
        assert "database" in not_ready.text
        refused = await client.post("/jobs", json={"kind": "demo.sleep", "payload": {}}, timeout=10)
        assert refused.status_code == 503
        assert "Retry-After" in refused.headers
        assert (await client.get("/healthz")).status_code == 200
    await asyncio.to_thread(own_server.start)
    await until(lambda: answers(service, "/readyz"), timeout_seconds=20)
    async with submitter(service.url) as caller:
        job = await caller.enqueue("story.quick", stage.payload())
        await caller.in_state(job["id"], "succeeded")
    service.send(signal.SIGTERM)
    assert await service.exit_code() == 0


async def test_five_services_start_at_once_on_an_empty_database(stage: Stage) -> None:
    services = await asyncio.gather(*[stage.serve() for _ in range(5)])
    async with submitter(services[0].url) as caller:
        job = await caller.enqueue("story.quick", stage.payload())
        await caller.in_state(job["id"], "succeeded")
    for service in services:
        service.send(signal.SIGTERM)
    for service in services:
        assert await service.exit_code() == 0
    assert stage.starts()[job["id"]] == 1


async def test_an_embedded_server_that_dies_is_started_again(stage: Stage) -> None:
    stage.database_url = ""
    service = await stage.serve()
    async with submitter(service.url) as caller:
        job = await caller.enqueue("story.hold", stage.payload())
        await until(lambda: stage.starts()[job["id"]] == 1, timeout_seconds=30)
        EmbeddedPostgres(stage.folder / "data" / "postgres").kill()
        await until(lambda: "starting it again" in service.output(), timeout_seconds=20)
        await until(lambda: answers(service, "/readyz"), timeout_seconds=30)
        stage.go()
        assert (await caller.in_state(job["id"], "succeeded"))["attempts"] == 1
    service.send(signal.SIGTERM)
    assert await service.exit_code() == 0
