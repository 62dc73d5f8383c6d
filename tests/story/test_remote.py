"""A worker that has only the service's address, in a process of its own: what an operator sees of it."""

import signal

import pytest

from tests.story.harness import Process, Stage, answers, free_port, submitter
from tests.waiting import until

pytestmark = pytest.mark.story


def remote(stage: Stage, service: Process, **settings: str) -> Process:
    """``tenure worker --url``, which is not told where the database is."""
    return stage.start("worker", "--url", service.url, **{"DATABASE_URL": "", **settings})


@pytest.fixture
async def service(stage: Stage) -> Process:
    return await stage.serve("--no-workers")


async def test_a_remote_worker_does_the_jobs_that_it_knows_and_ends_in_order(stage: Stage, service: Process) -> None:
    worker = remote(stage, service, WORKER_ID="far-away")
    async with submitter(service.url) as caller:
        export = await caller.enqueue("report.export", {"report": "x", "format": "csv"})
        own = await caller.enqueue("story.quick", stage.payload())
        demo = await caller.enqueue("demo.sleep", {"duration_ms": 20})
        done = await caller.in_state(own["id"], "succeeded")
        assert (done["result"], done["attempts"]) == ("quick", 1)
        assert (await caller.in_state(demo["id"], "succeeded"))["result"]["slept_ms"] == 20
        assert (await caller.events(own["id"]))[1]["worker_id"] == "far-away"
        # What publishes in a transaction of Tenure's own database is not for it.
        assert (await caller.job(export["id"]))["state"] == "queued"
        seen = (await caller.client.get("/workers/far-away")).json()
        assert "demo.sleep" in seen["kinds"]
        assert "report.export" not in seen["kinds"]
    worker.send(signal.SIGTERM)
    assert await worker.exit_code() == 0
    assert "Traceback" not in worker.output()


async def test_it_goes_on_when_the_service_is_replaced_under_it(stage: Stage) -> None:
    port = str(free_port())
    first = stage.start("serve", "--no-workers", PORT=port)
    first.url = f"http://127.0.0.1:{port}"
    await until(lambda: answers(first, "/readyz"), timeout_seconds=30)
    worker = remote(stage, first)
    async with submitter(first.url) as caller:
        job = await caller.enqueue("story.hold", stage.payload(), lease_seconds=30)
        await until(lambda: stage.starts()[job["id"]] == 1, timeout_seconds=30)
    first.send(signal.SIGTERM)
    assert await first.exit_code() == 0
    stage.go()  # it finishes while nobody listens
    await until(lambda: "finished" in stage.ledger())
    second = stage.start("serve", "--no-workers", PORT=port)
    second.url = first.url
    await until(lambda: answers(second, "/readyz"), timeout_seconds=30)
    async with submitter(second.url) as caller:
        done = await caller.in_state(job["id"], "succeeded", timeout_seconds=10)
        assert (done["attempts"], stage.starts()[job["id"]]) == (1, 1)
        again = await caller.enqueue("story.quick", stage.payload())
        await caller.in_state(again["id"], "succeeded", timeout_seconds=10)
    worker.send(signal.SIGTERM)
    assert await worker.exit_code() == 0
    assert "Traceback" not in worker.output()


async def test_a_killed_remote_worker_is_taken_over(stage: Stage, service: Process) -> None:
    doomed = remote(stage, service, WORKER_ID="doomed")
    async with submitter(service.url) as caller:
        job = await caller.enqueue("story.hold", stage.payload())
        await until(lambda: stage.starts()[job["id"]] == 1, timeout_seconds=30)
        doomed.send(signal.SIGKILL)
        remote(stage, service, WORKER_ID="heir")
        stage.go()
        done = await caller.in_state(job["id"], "succeeded", timeout_seconds=30)
        assert done["attempts"] == 2
        workers = [event["worker_id"] for event in await caller.events(job["id"])]
        assert workers == [None, "doomed", "doomed", "heir", "heir"]


async def test_a_remote_worker_that_slept_through_its_lease_is_refused_and_goes_on(
    stage: Stage, service: Process
) -> None:
    sleeper = remote(stage, service, WORKER_ID="sleeper")
    async with submitter(service.url) as caller:
        job = await caller.enqueue("story.hold", stage.payload())
        await until(lambda: stage.starts()[job["id"]] == 1, timeout_seconds=30)
        sleeper.send(signal.SIGSTOP)
        heir = remote(stage, service, WORKER_ID="heir")
        await until(lambda: stage.starts()[job["id"]] == 2, timeout_seconds=30)
        stage.go()
        done = await caller.in_state(job["id"], "succeeded")
        heir.send(signal.SIGTERM)
        assert await heir.exit_code() == 0
        sleeper.send(signal.SIGCONT)
        other = await caller.enqueue("story.quick", stage.payload())
        await caller.in_state(other["id"], "succeeded")
        after = await caller.job(job["id"])
        assert (after["result"], after["version"]) == (str(heir.pid), done["version"])
        sleeper.send(signal.SIGTERM)
        assert await sleeper.exit_code() == 0
    assert "Traceback" not in sleeper.output()


async def test_a_cancel_reaches_it_within_seconds(stage: Stage, service: Process) -> None:
    remote(stage, service)
    async with submitter(service.url) as caller:
        job = await caller.enqueue("story.hold", stage.payload(), lease_seconds=60)
        await until(lambda: stage.starts()[job["id"]] == 1, timeout_seconds=30)
        receipt = await caller.client.post(f"/jobs/{job['id']}/cancel", headers={"Prefer": "wait=10"})
        assert (receipt.status_code, receipt.json()["outcome"]) == (200, "stopped")


async def test_sigterm_releases_its_job_without_spending_an_attempt(stage: Stage, service: Process) -> None:
    worker = remote(stage, service, SHUTDOWN_GRACE_SECONDS="0.2")
    async with submitter(service.url) as caller:
        job = await caller.enqueue("story.hold", stage.payload(), max_attempts=1)
        await until(lambda: stage.starts()[job["id"]] == 1, timeout_seconds=30)
        worker.send(signal.SIGTERM)
        assert await worker.exit_code() == 0
        back = await caller.job(job["id"])
        assert (back["state"], back["attempts"]) == ("queued", 0)
        assert await caller.types(job["id"]) == ["enqueued", "leased", "released"]


async def test_a_second_signal_ends_it_at_once_and_loses_nothing(stage: Stage, service: Process) -> None:
    worker = remote(stage, service, SHUTDOWN_GRACE_SECONDS="600")
    async with submitter(service.url) as caller:
        job = await caller.enqueue("story.hold", stage.payload())
        await until(lambda: stage.starts()[job["id"]] == 1, timeout_seconds=30)
        worker.send(signal.SIGTERM)
        await until(lambda: "stopping" in worker.output())
        worker.send(signal.SIGTERM)
        assert await worker.exit_code() == 0
        assert (await caller.in_state(job["id"], "queued"))["attempts"] == 0


async def test_it_waits_for_a_service_that_is_not_there_yet(stage: Stage) -> None:
    port = str(free_port())
    worker = stage.start("worker", "--url", f"http://127.0.0.1:{port}", DATABASE_URL="")
    await until(lambda: "cannot claim" in worker.output(), timeout_seconds=30)
    service = stage.start("serve", "--no-workers", PORT=port)
    service.url = f"http://127.0.0.1:{port}"
    await until(lambda: answers(service, "/readyz"), timeout_seconds=30)
    async with submitter(service.url) as caller:
        job = await caller.enqueue("story.quick", stage.payload())
        await caller.in_state(job["id"], "succeeded", timeout_seconds=10)
    worker.send(signal.SIGTERM)
    assert await worker.exit_code() == 0
    assert "Traceback" not in worker.output()
