"""Workers that crash, hang and come back."""

import os
import signal

import pytest

from tests.story.harness import Stage, submitter
from tests.waiting import until

pytestmark = pytest.mark.story


async def test_a_killed_worker_is_taken_over_after_its_lease(stage: Stage) -> None:
    service = await stage.serve("--no-workers")
    doomed = stage.start("worker", WORKER_ID="doomed")
    async with submitter(service.url) as caller:
        job = await caller.enqueue("story.hold", stage.payload())
        await until(lambda: stage.starts()[job["id"]] == 1, timeout_seconds=30)
        assert (await caller.job(job["id"]))["lease"]["worker_id"] == "doomed"
        doomed.send(signal.SIGKILL)
        stage.start("worker", WORKER_ID="heir")
        stage.go()
        done = await caller.in_state(job["id"], "succeeded", timeout_seconds=30)
        assert done["attempts"] == 2
        types = await caller.types(job["id"])
        assert types == ["enqueued", "leased", "lease_expired", "leased", "succeeded"]
        workers = [event["worker_id"] for event in await caller.events(job["id"])]
        assert workers == [None, "doomed", "doomed", "heir", "heir"]


async def test_a_holder_that_slept_through_its_lease_is_refused_and_the_other_result_stands(stage: Stage) -> None:
    service = await stage.serve("--no-workers")
    sleeper = stage.start("worker", WORKER_ID="sleeper")
    async with submitter(service.url) as caller:
        job = await caller.enqueue("story.hold", stage.payload())
        await until(lambda: stage.starts()[job["id"]] == 1, timeout_seconds=30)
        sleeper.send(signal.SIGSTOP)
        heir = stage.start("worker", WORKER_ID="heir")
        await until(lambda: stage.starts()[job["id"]] == 2, timeout_seconds=30)
        stage.go()
        done = await caller.in_state(job["id"], "succeeded")
        sleeper.send(signal.SIGCONT)
        # It wakes, tries to go on, is told that it lost the job, and stays a good worker.
        other = await caller.enqueue("story.quick", stage.payload())
        await caller.in_state(other["id"], "succeeded")
        heir.send(signal.SIGTERM)
        assert await heir.exit_code() == 0
        third = await caller.enqueue("story.quick", stage.payload())
        await caller.in_state(third["id"], "succeeded")
        after = await caller.job(job["id"])
        assert (after["result"], after["version"], after["attempts"]) == (str(heir.pid), done["version"], 2)
        assert (await caller.types(job["id"])).count("succeeded") == 1


async def test_a_job_that_kills_its_worker_is_dead_after_its_attempts_and_others_finish(stage: Stage) -> None:
    service = await stage.serve("--no-workers")
    async with submitter(service.url) as caller:
        poison = await caller.enqueue("story.exit", stage.payload(), max_attempts=3, lease_seconds=1)
        sibling = await caller.enqueue("story.quick", stage.payload(), max_attempts=10)
        for attempt in (1, 2, 3):
            worker = stage.start("worker", WORKER_ID=f"w{attempt}")
            assert await worker.exit_code() == 137
            await caller.in_state(poison["id"], "queued", "dead")
        job = await caller.in_state(poison["id"], "dead")
        assert (stage.starts()[poison["id"]], job["attempts"]) == (3, 3)
        assert job["last_error"]["kind"] == "lease_lost"
        stage.start("worker", WORKER_ID="w4")
        await caller.in_state(sibling["id"], "succeeded")


async def test_a_handler_that_blocks_its_loop_keeps_its_lease(stage: Stage) -> None:
    service = await stage.serve("--no-workers")
    stage.start("worker", WORKER_ID="blocked")
    stage.start("worker", WORKER_ID="idle")
    async with submitter(service.url) as caller:
        job = await caller.enqueue("story.block", stage.payload(), lease_seconds=1)
        await caller.in_state(job["id"], "running")

        async def renewed() -> bool:
            lease = (await caller.job(job["id"]))["lease"]
            return lease is not None and lease["heartbeats"] >= 6

        await until(renewed, timeout_seconds=20)
        stage.go()
        done = await caller.in_state(job["id"], "succeeded")
        assert (done["attempts"], stage.starts()[job["id"]]) == (1, 1)


async def test_a_second_instance_takes_nothing_from_a_live_one(stage: Stage) -> None:
    service = await stage.serve(WORKER_SLOTS="20")
    async with submitter(service.url) as caller:
        made = [await caller.enqueue("story.hold", stage.payload()) for _ in range(20)]
        await until(lambda: len(stage.starts()) == 20, timeout_seconds=30)
        second = await stage.serve(WORKER_SLOTS="20")
        third = stage.start("worker")
        quick = await caller.enqueue("story.quick", stage.payload())
        await caller.in_state(quick["id"], "succeeded")
        await until(lambda: "ready" in third.output())
        stage.go()
        for job in made:
            assert (await caller.in_state(job["id"], "succeeded"))["attempts"] == 1
        assert set(stage.starts().values()) == {1}
        for process in (second, third):
            process.send(signal.SIGTERM)
            assert await process.exit_code() == 0


async def test_the_parent_of_an_embedded_database_can_be_killed_and_started_again(stage: Stage) -> None:
    stage.database_url = ""
    first = await stage.serve()
    async with submitter(first.url) as caller:
        job = await caller.enqueue("story.hold", stage.payload(), max_attempts=5)
        await until(lambda: stage.starts()[job["id"]] == 1, timeout_seconds=30)
    os.kill(first.pid, signal.SIGKILL)
    await first.exit_code()
    second = await stage.serve()
    stage.go()
    async with submitter(second.url) as caller:
        done = await caller.in_state(job["id"], "succeeded", timeout_seconds=30)
        assert done["attempts"] == 2
    second.send(signal.SIGTERM)
    assert await second.exit_code() == 0
