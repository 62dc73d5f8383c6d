"""The everyday stories, over HTTP, with real processes."""

import asyncio
import signal

import pytest

from tests.story.harness import Stage, submitter
from tests.waiting import until

pytestmark = pytest.mark.story


async def test_one_service_does_its_jobs_fails_what_fails_and_cancels_what_is_canceled(stage: Stage) -> None:
    service = await stage.serve(BACKOFF_BASE_SECONDS="0.01", BACKOFF_CAP_SECONDS="0.02")
    async with submitter(service.url) as caller:
        happy = await caller.enqueue("demo.sleep", {"duration_ms": 10})
        assert (await caller.in_state(happy["id"], "succeeded"))["attempts"] == 1
        assert await caller.types(happy["id"]) == ["enqueued", "leased", "succeeded"]

        failing = await caller.enqueue(
            "demo.sleep", {"duration_ms": 1, "fail": True, "error": "transient"}, max_attempts=3
        )
        dead = await caller.in_state(failing["id"], "dead")
        assert dead["attempts"] == 3
        assert await caller.types(failing["id"]) == [
            "enqueued", "leased", "retry_scheduled", "leased", "retry_scheduled", "leased", "dead",
        ]  # fmt: skip
        listed = (await caller.client.get("/dead")).json()["items"]
        assert [job["id"] for job in listed] == [failing["id"]]

        retried = await caller.client.post(f"/jobs/{failing['id']}/retry", json={"reason": "once more"})
        assert retried.status_code == 202
        assert (await caller.in_state(failing["id"], "dead"))["attempts"] == 3

        refused = await caller.enqueue("demo.sleep", {"duration_ms": 1, "fail": True, "error": "permanent"})
        assert (await caller.in_state(refused["id"], "failed"))["last_error"]["kind"] == "permanent"

        waiting = await caller.enqueue("demo.sleep", {"duration_ms": 10}, delay_seconds=3_600)
        receipt = await caller.client.post(f"/jobs/{waiting['id']}/cancel", json={"version": 1})
        assert (receipt.status_code, receipt.json()["outcome"]) == (200, "prevented")

        running = await caller.enqueue("demo.sleep", {"duration_ms": 600_000})
        await caller.in_state(running["id"], "running")
        receipt = await caller.client.post(f"/jobs/{running['id']}/cancel", headers={"Prefer": "wait=10"})
        assert (receipt.status_code, receipt.json()["outcome"]) == (200, "stopped")
        assert (await caller.job(running["id"]))["state"] == "canceled"

        late = await caller.enqueue("demo.sleep", {"duration_ms": 10}, delay_seconds=3_600, expires_in_seconds=0.05)
        assert (await caller.in_state(late["id"], "failed"))["last_error"]["kind"] == "deadline"

    service.send(signal.SIGTERM)
    assert await service.exit_code() == 0
    assert "Traceback" not in service.output()


async def test_a_cancel_that_is_not_heeded_stays_requested_until_it_finished_first(stage: Stage) -> None:
    service = await stage.serve()
    async with submitter(service.url) as caller:
        job = await caller.enqueue("story.stubborn", stage.payload())
        await until(lambda: stage.starts()[job["id"]] == 1)
        receipt = await caller.client.post(f"/jobs/{job['id']}/cancel")
        assert (receipt.status_code, receipt.json()["outcome"]) == (202, "requested")
        await until(lambda: "cancelled" in stage.ledger())
        stage.go()
        done = await caller.in_state(job["id"], "succeeded")
        assert (done["cancellation"]["outcome"], done["result"]) == ("finished_first", "done all the same")


async def test_sigterm_releases_a_running_job_without_spending_an_attempt(stage: Stage) -> None:
    service = await stage.serve("--no-workers")
    worker = stage.start("worker", WORKER_ID="first", SHUTDOWN_GRACE_SECONDS="0.2")
    async with submitter(service.url) as caller:
        job = await caller.enqueue("story.hold", stage.payload(), max_attempts=1)
        await until(lambda: stage.starts()[job["id"]] == 1, timeout_seconds=30)
        worker.send(signal.SIGTERM)
        assert await worker.exit_code() == 0
        back = await caller.job(job["id"])
        assert (back["state"], back["attempts"]) == ("queued", 0)
        stage.go()
        stage.start("worker", WORKER_ID="second")
        assert (await caller.in_state(job["id"], "succeeded"))["attempts"] == 1
        assert await caller.types(job["id"]) == ["enqueued", "leased", "released", "leased", "succeeded"]


async def test_a_job_that_ends_within_the_grace_is_finished_and_keeps_its_lease_meanwhile(stage: Stage) -> None:
    service = await stage.serve("--no-workers")
    worker = stage.start("worker", SHUTDOWN_GRACE_SECONDS="60", LEASE_SECONDS="1")
    async with submitter(service.url) as caller:
        job = await caller.enqueue("story.hold", stage.payload(), lease_seconds=1)
        await until(lambda: stage.starts()[job["id"]] == 1, timeout_seconds=30)
        worker.send(signal.SIGTERM)

        async def kept() -> bool:
            lease = (await caller.job(job["id"]))["lease"]
            return bool(lease and lease["heartbeats"] >= 6)

        await until(kept, timeout_seconds=20)
        unclaimed = await caller.enqueue("story.quick", stage.payload())
        stage.go()
        assert await worker.exit_code() == 0
        done = await caller.job(job["id"])
        assert (done["state"], done["attempts"], stage.starts()[job["id"]]) == ("succeeded", 1, 1)
        assert (await caller.job(unclaimed["id"]))["state"] == "queued"


async def test_a_cancel_during_the_drain_is_heeded(stage: Stage) -> None:
    service = await stage.serve("--no-workers")
    worker = stage.start("worker", SHUTDOWN_GRACE_SECONDS="120")
    async with submitter(service.url) as caller:
        job = await caller.enqueue("story.hold", stage.payload())
        await until(lambda: stage.starts()[job["id"]] == 1, timeout_seconds=30)
        worker.send(signal.SIGTERM)
        receipt = await caller.client.post(f"/jobs/{job['id']}/cancel", headers={"Prefer": "wait=20"})
        assert receipt.json()["outcome"] == "stopped"
        assert await worker.exit_code() == 0


async def test_a_second_signal_ends_at_once_and_loses_nothing(stage: Stage) -> None:
    service = await stage.serve("--no-workers")
    worker = stage.start("worker", SHUTDOWN_GRACE_SECONDS="600")
    async with submitter(service.url) as caller:
        job = await caller.enqueue("story.hold", stage.payload())
        await until(lambda: stage.starts()[job["id"]] == 1, timeout_seconds=30)
        worker.send(signal.SIGTERM)
        await until(lambda: "stopping" in worker.output())
        worker.send(signal.SIGTERM)
        assert await worker.exit_code() == 0
        assert (await caller.in_state(job["id"], "queued"))["attempts"] == 0


async def test_a_crash_of_the_service_loses_no_accepted_job(stage: Stage) -> None:
    service = await stage.serve("--no-workers")
    accepted: list[str] = []

    async def submit() -> None:
        async with submitter(service.url) as caller:
            while True:
                accepted.append((await caller.enqueue("story.quick", stage.payload()))["id"])

    callers = [asyncio.create_task(submit()) for _ in range(4)]
    await until(lambda: len(accepted) > 50)
    service.send(signal.SIGKILL)
    await asyncio.wait(callers)
    assert all(caller.exception() is not None for caller in callers)
    again = await stage.serve(WORKER_SLOTS="50")
    async with submitter(again.url) as caller:
        for job_id in accepted:
            await caller.in_state(job_id, "succeeded", timeout_seconds=60)
    assert all(stage.starts()[job_id] == 1 for job_id in accepted)


async def test_a_handler_that_never_stops_does_not_keep_the_process_and_its_job_comes_back(stage: Stage) -> None:
    service = await stage.serve("--no-workers")
    worker = stage.start("worker", SHUTDOWN_GRACE_SECONDS="0.1")
    async with submitter(service.url) as caller:
        job = await caller.enqueue("story.stubborn", stage.payload(), lease_seconds=1)
        await until(lambda: stage.starts()[job["id"]] == 1, timeout_seconds=30)
        worker.send(signal.SIGTERM)
        assert await worker.exit_code(timeout_seconds=60) == 0
        assert "does not stop" in worker.output()
        await caller.in_state(job["id"], "queued")
        assert await caller.types(job["id"]) == ["enqueued", "leased", "lease_expired"]


async def test_an_operator_quiets_and_ends_a_worker(stage: Stage) -> None:
    service = await stage.serve("--no-workers")
    worker = stage.start("worker", WORKER_ID="old")
    async with submitter(service.url) as caller:
        job = await caller.enqueue("story.hold", stage.payload())
        await until(lambda: stage.starts()[job["id"]] == 1, timeout_seconds=30)
        assert (await caller.client.post("/workers/old/quiet")).status_code == 200
        waiting = await caller.enqueue("story.quick", stage.payload())
        shown = (await caller.client.get("/workers/old")).json()
        assert (shown["running"], shown["holds"][0]["job_id"]) == (1, job["id"])
        stage.go()
        await caller.in_state(job["id"], "succeeded")
        assert (await caller.job(waiting["id"]))["state"] == "queued"
        assert (await caller.client.post("/workers/old/terminate")).status_code == 200
        assert await worker.exit_code() == 0
        stage.start("worker", WORKER_ID="old")
        await caller.in_state(waiting["id"], "succeeded")


async def test_while_load_balancers_notice_new_work_is_refused_and_holders_are_served(stage: Stage) -> None:
    service = await stage.serve("--no-workers", READINESS_DELAY_SECONDS="600")
    async with submitter(service.url) as caller:
        job = await caller.enqueue("story.quick", stage.payload())
        ask = {"worker_id": "w", "queues": ["story"]}
        (lease,) = (await caller.client.post("/leases", json=ask)).json()["leases"]
        wait = ask | {"worker_id": "waiter", "wait_seconds": 30}
        waiting = asyncio.create_task(caller.client.post("/leases", json=wait))

        async def waits() -> bool:
            return (await caller.client.get("/workers/waiter")).status_code == 200

        await until(waits)
        service.send(signal.SIGTERM)
        assert (await waiting).json()["leases"] == []
        assert (await caller.client.get("/readyz")).status_code == 503
        for refused in (
            await caller.client.post("/jobs", json={"kind": "demo.sleep"}),
            await caller.client.post("/leases", json=ask),
        ):
            assert (refused.status_code, refused.json()["code"]) == (503, "draining")
            assert "Retry-After" in refused.headers
        token = {"lease_token": lease["lease_token"]}
        assert (await caller.client.post(f"/jobs/{job['id']}/heartbeat", json=token)).status_code == 200
        assert (await caller.client.post(f"/jobs/{job['id']}/complete", json=token)).json()["state"] == "succeeded"
        service.send(signal.SIGTERM)
        assert await service.exit_code() == 0
