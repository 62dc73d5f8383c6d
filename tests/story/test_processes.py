"""Several processes under one parent: one port, and nobody missed when one of them goes."""

import os
import re
import signal
from collections.abc import AsyncIterator

import psutil
import pytest

from tenure.embedded import EmbeddedPostgres
from tests.story.harness import Process, Stage, answers, submitter
from tests.waiting import until

pytestmark = pytest.mark.story


@pytest.fixture(autouse=True)
async def nobody_stays(stage: Stage) -> AsyncIterator[None]:
    """What a killed parent left behind goes with the story."""
    yield
    for process in stage.processes:
        for pid in pids(process):
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)


def pids(process: Process) -> list[int]:
    """Those that have come up, in that order."""
    return [int(pid) for pid in re.findall(r"process \d+ \(pid (\d+)\) is up", process.output())]


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


async def up(process: Process, count: int) -> list[int]:
    """Waits until so many have come up, all told."""
    await until(lambda: len(pids(process)) >= count, timeout_seconds=40, what=f"{count} processes: {process.output()}")
    return pids(process)


async def test_all_serve_one_port_under_names_of_their_own_and_are_announced_once(stage: Stage) -> None:
    service = await stage.serve("--processes", "3", WORKER_ID="w")
    await up(service, 3)
    await until(lambda: "Tenure serves at" in service.output(), what="the announcement")
    async with submitter(service.url) as caller:

        async def names() -> bool:
            items = (await caller.client.get("/workers")).json()["items"]
            return {worker["id"] for worker in items} == {"w-1", "w-2", "w-3"}

        await until(names, what="three workers")
    assert service.output().count("Tenure serves at") == 1


async def test_a_killed_process_comes_back_and_the_others_answer_meanwhile(stage: Stage) -> None:
    service = await stage.serve("--processes", "2", "--no-workers")
    first, second = await up(service, 2)
    os.kill(first, signal.SIGKILL)
    await until(lambda: gone(first))
    assert await answers(service, "/readyz")
    third = (await up(service, 3))[2]
    assert "was ended by SIGKILL; starting it again" in service.output()
    os.kill(second, signal.SIGKILL)
    await until(lambda: gone(second))
    assert await answers(service, "/readyz")
    assert not gone(third)


async def test_what_a_killed_process_held_is_run_by_another(stage: Stage) -> None:
    service = await stage.serve("--processes", "2")
    await up(service, 2)
    async with submitter(service.url) as caller:
        job = await caller.enqueue("story.hold", stage.payload())
        await until(lambda: stage.starts()[job["id"]] == 1, timeout_seconds=30)
        ((_, _, holder),) = stage.ledger()["started"]
        os.kill(int(holder), signal.SIGKILL)
        await until(lambda: gone(int(holder)))
        stage.go()
    # It may have been the one that answered: whoever asks connects again.
    async with submitter(service.url) as caller:
        done = await caller.in_state(job["id"], "succeeded", timeout_seconds=30)
        assert done["attempts"] == 2


async def test_at_sigterm_all_finish_what_they_hold_and_end(stage: Stage) -> None:
    service = await stage.serve("--no-workers")
    workers = stage.start("worker", "--processes", "2", WORKER_SLOTS="2")
    children = await up(workers, 2)
    async with submitter(service.url) as caller:
        made = [await caller.enqueue("story.hold", stage.payload()) for _ in range(4)]
        await until(lambda: len(stage.starts()) == 4, timeout_seconds=30)
        assert {pid for _, _, pid in stage.ledger()["started"]} == {str(pid) for pid in children}
        workers.send(signal.SIGTERM)
        await until(lambda: workers.output().count("draining: 2 job(s)") == 2)
        stage.go()
        assert await workers.exit_code() == 0
        assert all(gone(pid) for pid in children)
        for job in made:
            assert (await caller.in_state(job["id"], "succeeded"))["attempts"] == 1


async def test_a_second_signal_ends_all_at_once_and_attempts_are_given_back(stage: Stage) -> None:
    service = await stage.serve("--no-workers")
    workers = stage.start("worker", "--processes", "2", SHUTDOWN_GRACE_SECONDS="600")
    children = await up(workers, 2)
    async with submitter(service.url) as caller:
        job = await caller.enqueue("story.hold", stage.payload(), lease_seconds=600)
        await until(lambda: stage.starts()[job["id"]] == 1, timeout_seconds=30)
        workers.send(signal.SIGINT)
        await until(lambda: "draining: 1 job(s)" in workers.output())
        workers.send(signal.SIGINT)
        assert await workers.exit_code() == 0
        assert all(gone(pid) for pid in children)
        assert (await caller.in_state(job["id"], "queued"))["attempts"] == 0


async def test_a_signal_that_reaches_parent_and_children_is_one_order_to_stop(stage: Stage) -> None:
    """As systemd sends it: to every process of the unit."""
    service = await stage.serve("--no-workers")
    workers = stage.start("worker", "--processes", "2")
    children = await up(workers, 2)
    async with submitter(service.url) as caller:
        job = await caller.enqueue("story.hold", stage.payload())
        await until(lambda: stage.starts()[job["id"]] == 1, timeout_seconds=30)
        workers.send(signal.SIGTERM)
        for pid in children:
            if not gone(pid):
                os.kill(pid, signal.SIGTERM)
        await until(lambda: "draining: 1 job(s)" in workers.output())
        stage.go()
        assert await workers.exit_code() == 0
        assert (await caller.in_state(job["id"], "succeeded"))["attempts"] == 1


async def test_those_that_are_told_alone_stay_away_and_with_the_last_one_ends_the_parent(stage: Stage) -> None:
    workers = stage.start("worker", "--processes", "2")
    for pid in await up(workers, 2):
        os.kill(pid, signal.SIGTERM)
    assert await workers.exit_code() == 0
    assert workers.output().count("ended in order and stays away") == 2
    assert len(pids(workers)) == 2


async def test_without_their_parent_they_end_in_order(stage: Stage) -> None:
    service = await stage.serve("--processes", "2")
    children = await up(service, 2)
    service.send(signal.SIGKILL)
    await until(lambda: all(gone(pid) for pid in children), timeout_seconds=30)
    assert service.output().count("stopping on SIGTERM") == 2


async def test_one_embedded_postgresql_serves_them_all_and_ends_with_them(stage: Stage) -> None:
    stage.database_url = ""
    service = await stage.serve("--processes", "2")
    await up(service, 2)
    pid = EmbeddedPostgres(stage.folder / "data" / "postgres").postmaster_pid
    assert pid is not None
    async with submitter(service.url) as caller:
        job = await caller.enqueue("story.quick", stage.payload())
        await caller.in_state(job["id"], "succeeded")
    service.send(signal.SIGTERM)
    assert await service.exit_code() == 0
    await until(lambda: gone(pid))


async def test_workers_over_http_are_several_too(stage: Stage) -> None:
    service = await stage.serve("--no-workers")
    workers = stage.start("worker", "--url", service.url, "--processes", "2", WORKER_ID="far", DATABASE_URL="")
    await up(workers, 2)
    async with submitter(service.url) as caller:
        job = await caller.enqueue("story.quick", stage.payload())
        await caller.in_state(job["id"], "succeeded")
    workers.send(signal.SIGTERM)
    assert await workers.exit_code() == 0


async def test_a_wrong_setting_is_said_once_and_nothing_is_tried_again(stage: Stage) -> None:
    service = stage.start("serve", "--processes", "3", PORT="0", APP="nowhere:jobs")
    assert await service.exit_code() == 2
    assert service.output().count("error:") == 1
    assert pids(service) == []
