"""Through nginx as a reverse proxy with its default settings: long polls, live events, kept connections, whole workers."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.story.harness import Process, Stage, free_port, submitter
from tests.waiting import until

NGINX = shutil.which("nginx") or "/usr/sbin/nginx"

pytestmark = [
    pytest.mark.story,
    pytest.mark.skipif(not os.access(NGINX, os.X_OK), reason="nginx is not installed here"),
]

# All that concerns proxying is nginx's default: HTTP/1.0 to the service, buffered answers, sixty seconds of patience.
_CONFIGURATION = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx-error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/nginx-body;
    proxy_temp_path {folder}/nginx-proxy;
    fastcgi_temp_path {folder}/nginx-fastcgi;
    uwsgi_temp_path {folder}/nginx-uwsgi;
    scgi_temp_path {folder}/nginx-scgi;
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass {service}; }}
    }}
}}
"""


@pytest.fixture
async def service(stage: Stage) -> Process:
    return await stage.serve("--no-workers")


@pytest.fixture
async def proxy(stage: Stage, service: Process) -> AsyncIterator[str]:
    """The address of an nginx before the service."""
    port = free_port()
    configuration = stage.folder / "nginx.conf"
    configuration.write_text(_CONFIGURATION.format(folder=stage.folder, port=port, service=service.url))
    log: Path = stage.folder / "nginx.log"
    with log.open("wb") as output:
        popen = subprocess.Popen(  # noqa: ASYNC220 - started at once, waited for with a bound
            [NGINX, "-p", str(stage.folder), "-c", str(configuration)], stdout=output, stderr=output
        )
    nginx = Process(popen=popen, log=log)
    stage.processes.append(nginx)
    url = f"http://127.0.0.1:{port}"

    async def serves() -> bool:
        assert popen.poll() is None, f"nginx ended, see {log}"
        async with httpx.AsyncClient() as client:
            try:
                return (await client.get(f"{url}/readyz")).status_code == 200
            except httpx.TransportError:
                return False

    await until(serves)
    yield url
    popen.terminate()
    await nginx.exit_code()


async def test_a_long_poll_is_answered_as_soon_as_there_is_work(proxy: str) -> None:
    async with submitter(proxy) as caller, httpx.AsyncClient(base_url=proxy, timeout=40) as worker:
        ask = {"worker_id": "w", "queues": ["story"], "wait_seconds": 30}
        waiting = asyncio.create_task(worker.post("/leases", json=ask))
        job = await caller.enqueue("elsewhere.work", {}, queue="story")
        (lease,) = (await waiting).json()["leases"]
        assert lease["job"]["id"] == job["id"]


async def test_events_come_through_one_by_one_as_they_happen(proxy: str) -> None:
    async with submitter(proxy) as caller, httpx.AsyncClient(base_url=proxy, timeout=40) as other:
        job = await caller.enqueue("elsewhere.work", {}, queue="story")
        stream = other.stream("GET", f"/jobs/{job['id']}/events", headers={"Accept": "text/event-stream"})
        async with stream as answer:
            lines = (line async for line in answer.aiter_lines() if line.startswith("event: "))
            assert await anext(lines) == "event: enqueued"
            # Only now does the next one happen: a proxy that held the first back would never have shown it.
            ask = {"worker_id": "w", "queues": ["story"]}
            (lease,) = (await caller.client.post("/leases", json=ask)).json()["leases"]
            assert await anext(lines) == "event: leased"
            token = {"lease_token": lease["lease_token"]}
            await caller.client.post(f"/jobs/{job['id']}/complete", json=token)
            assert await anext(lines) == "event: succeeded"
            assert [line async for line in lines] == []


async def test_a_caller_who_leaves_a_long_poll_is_leased_nothing(proxy: str) -> None:
    async with submitter(proxy) as caller:
        with pytest.raises(httpx.ReadTimeout):
            async with httpx.AsyncClient(base_url=proxy, timeout=0.5) as leaver:
                await leaver.post("/leases", json={"worker_id": "gone", "queues": ["story"], "wait_seconds": 30})
        job = await caller.enqueue("elsewhere.work", {}, queue="story")
        ask = {"worker_id": "here", "queues": ["story"], "wait_seconds": 20}
        (lease,) = (await caller.client.post("/leases", json=ask)).json()["leases"]
        assert lease["job"]["id"] == job["id"]
        assert (await caller.job(job["id"]))["lease"]["worker_id"] == "here"


async def test_kept_connections_carry_many_requests(proxy: str) -> None:
    async with submitter(proxy) as caller:
        for number in range(200):
            await caller.enqueue("elsewhere.work", number, queue="elsewhere")
        listed = await caller.client.get("/jobs", params={"queue": "elsewhere", "limit": 500})
        assert len(listed.json()["items"]) == 200


async def test_a_worker_over_http_works_and_heeds_a_cancel(proxy: str, stage: Stage) -> None:
    stage.start("worker", "--url", proxy, DATABASE_URL="")
    async with submitter(proxy) as caller:
        done = await caller.enqueue("story.quick", stage.payload(), queue="story")
        await caller.in_state(done["id"], "succeeded", timeout_seconds=30)
        held = await caller.enqueue("story.hold", stage.payload(), queue="story")
        await until(lambda: stage.starts()[held["id"]] == 1, timeout_seconds=30)
        receipt = await caller.client.post(f"/jobs/{held['id']}/cancel", headers={"Prefer": "wait=20"})
        assert receipt.json()["outcome"] == "stopped"
