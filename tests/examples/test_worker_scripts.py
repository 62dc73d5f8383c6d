"""The workers in shell and in Node, as an operator starts them, against a service in a process of its own."""

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.conftest import with_database
from tests.story.harness import Process, Stage, Submitter, submitter
from tests.waiting import until

EXAMPLES = Path(__file__).parents[2] / "examples"
KIND = "test.script"

SHELL_JOB = """#!/usr/bin/env bash
payload=$(cat)
of() { jq -r "$1" <<<"$payload"; }
case $(of .do) in
  fail-once) mkdir "$(of .mark)" 2>/dev/null && { echo "not yet" >&2; exit 75; } ;;
  refuse) echo "cannot be done" >&2; exit 65 ;;
  break) exit 3 ;;
  hold) echo $$ >"$(of .mark)"; sleep 600 ;;
esac
jq -c .result <<<"$payload"
"""
NODE_JOB = """
import { mkdirSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
const fail = (message, kind) => { throw Object.assign(new Error(message), { kind }); };
export default {
  "test.script": async (payload, { signal, progress }) => {
    if (payload.do === "fail-once") {
      let first = true;
      try { mkdirSync(payload.mark); } catch { first = false; }
      if (first) fail("not yet", "transient");
    }
    if (payload.do === "refuse") fail("cannot be done", "permanent");
    if (payload.do === "break") fail("exit code 3");
    if (payload.do === "hold") {
      writeFileSync(payload.mark, `${process.pid}`);
      progress(0.5, "half");
      await sleep(600_000, undefined, { signal });
    }
    return payload.result;
  },
};
"""
WORKERS = [
    pytest.param(
        "shell",
        marks=pytest.mark.skipif(
            not all(shutil.which(name) for name in ("bash", "curl", "jq", "timeout")),
            reason="needs bash, curl, jq, coreutils",
        ),
    ),
    pytest.param("node", marks=pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")),
]


@dataclass(slots=True)
class Scene:
    """A service without workers of its own, its caller, and the script."""

    stage: Stage
    caller: Submitter
    folder: Path
    queue: str
    command: Sequence[str]
    workers: list[Process] = field(default_factory=list)

    def start(self, *options: str) -> Process:
        log = self.folder / f"worker-{len(self.workers)}.log"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
        script, job = self.command[:-1], self.command[-1]
        with log.open("wb") as output:
            popen = subprocess.Popen(
                [*script, *options, job],
                env={
                    **environment,
                    "TENURE_URL": self.stage.processes[0].url,
                    "TENURE_QUEUE": self.queue,
                    "TENURE_KIND": KIND,
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.workers.append(Process(popen=popen, log=log))
        return self.workers[-1]

    async def enqueue(self, do: str, **fields: Any) -> dict[str, Any]:
        payload = {"do": do, "result": fields.pop("result", None), "mark": str(self.mark(do))}
        return await self.caller.enqueue(KIND, payload, queue=self.queue, **fields)

    def mark(self, do: str) -> Path:
        return self.folder / f"{do}.mark"

    async def held(self, **fields: Any) -> dict[str, Any]:
        """A job that a worker works on, and will not finish by itself."""
        job = await self.enqueue("hold", **fields)
        await until(lambda: self.mark("hold").exists() and self.mark("hold").read_text(), what="the job's start")
        return job

    async def works(self) -> None:
        """A further job comes to its end."""
        await self.caller.in_state((await self.enqueue("echo", result=1))["id"], "succeeded")

    def end(self) -> None:
        for worker in self.workers:
            if worker.popen.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
                worker.popen.wait()


@pytest.fixture(scope="module")
async def stage(server_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """One service for all tests, which meet in no queue."""
    name = f"tenure_scripts_{uuid4().hex[:12]}"
    raw = await asyncpg.connect(server_url)
    await raw.execute(f'CREATE DATABASE "{name}"')
    opened = Stage(database_url=with_database(server_url, name), folder=tmp_path_factory.mktemp("scripts"))
    await opened.serve("--no-workers", BACKOFF_BASE_SECONDS="0.01", BACKOFF_CAP_SECONDS="0.02", MAX_RESULT_BYTES="1000")
    yield opened
    await opened.end()
    await raw.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    await raw.close()


@pytest.fixture(params=WORKERS)
async def scene(request: pytest.FixtureRequest, stage: Stage, tmp_path: Path) -> AsyncIterator[Scene]:
    if request.param == "shell":
        job = tmp_path / "job.sh"
        job.write_text(SHELL_JOB)
        job.chmod(0o755)
        command = [str(EXAMPLES / "worker.sh"), str(job)]
    else:
        job = tmp_path / "job.mjs"
        job.write_text(NODE_JOB)
        command = ["node", str(EXAMPLES / "worker.mjs"), str(job)]
    async with submitter(stage.processes[0].url) as caller:
        made = Scene(stage=stage, caller=caller, folder=tmp_path, queue=f"scripts-{uuid4().hex}", command=command)
        yield made
        made.end()


async def test_jobs_are_done_retried_and_refused_as_their_command_says(scene: Scene) -> None:
    result = {"text": "snow ☃ 'quoted' \"twice\"\n$HOME", "list": [1, None, True]}
    echo = await scene.enqueue("echo", result=result)
    retried = await scene.enqueue("fail-once", result="at last")
    refused = await scene.enqueue("refuse")
    broken = await scene.enqueue("break", max_attempts=1)
    worker = scene.start()
    done = await scene.caller.in_state(echo["id"], "succeeded")
    assert (done["result"], done["attempts"]) == (result, 1)
    done = await scene.caller.in_state(retried["id"], "succeeded")
    assert (done["result"], done["attempts"]) == ("at last", 2)
    failure = (await scene.caller.events(retried["id"]))[2]["detail"]["error"]
    assert (failure["kind"], failure["message"].strip()) == ("transient", "not yet")
    error = (await scene.caller.in_state(refused["id"], "failed"))["last_error"]
    assert (error["kind"], error["message"].strip()) == ("permanent", "cannot be done")
    error = (await scene.caller.in_state(broken["id"], "dead"))["last_error"]
    assert (error["kind"], error["message"]) == ("unknown", "exit code 3")
    assert worker.output() == ""


async def test_a_result_that_the_service_does_not_take_is_reported_as_a_failure(scene: Scene) -> None:
    job = await scene.enqueue("echo", result="x" * 2_000)
    scene.start()
    failed = await scene.caller.in_state(job["id"], "failed")
    assert failed["last_error"]["kind"] == "permanent"
    assert "at most 1,000" in failed["last_error"]["message"]


async def test_other_kinds_in_its_queue_are_left_alone(scene: Scene) -> None:
    other = await scene.caller.enqueue("test.other", None, queue=scene.queue, priority=100)
    scene.start()
    await scene.works()
    assert (await scene.caller.job(other["id"]))["attempts"] == 0


async def test_a_lease_is_kept_beyond_its_length(scene: Scene) -> None:
    scene.start()
    job = await scene.held(lease_seconds=1)

    async def kept() -> bool:
        return int((await scene.caller.job(job["id"]))["lease"]["heartbeats"]) >= 4

    await until(kept, timeout_seconds=20)
    assert await scene.caller.types(job["id"]) == ["enqueued", "leased"]


async def test_a_cancel_ends_the_work_and_is_confirmed(scene: Scene) -> None:
    scene.start()
    job = await scene.held()
    pid = int(scene.mark("hold").read_text())
    receipt = await scene.caller.client.post(f"/jobs/{job['id']}/cancel", headers={"Prefer": "wait=20"})
    assert receipt.json()["outcome"] == "stopped"
    if scene.command[0] != "node":
        await until(lambda: not Path(f"/proc/{pid}").exists(), what="end of the command")
    await scene.works()


async def test_the_time_limit_of_an_attempt_is_reported_as_such(scene: Scene) -> None:
    scene.start()
    job = await scene.held(timeout_seconds=0.5, max_attempts=1)
    assert (await scene.caller.in_state(job["id"], "dead"))["last_error"]["kind"] == "timeout"


async def test_a_lost_lease_ends_the_work_reports_nothing_and_the_worker_goes_on(scene: Scene) -> None:
    worker = scene.start()
    job = await scene.held(max_attempts=1)
    await expire(scene, job)
    await scene.works()
    dead = await scene.caller.job(job["id"])
    assert (dead["state"], dead["last_error"]["kind"]) == ("dead", "lease_lost")
    await until(lambda: "the lease is lost" in worker.output(), what="the worker's complaint")


async def expire(scene: Scene, job: dict[str, Any]) -> None:
    """Until the reaper was faster than the worker's next heartbeat."""
    raw = await asyncpg.connect(scene.stage.database_url)

    async def expired() -> bool:
        await raw.execute(
            "UPDATE tenure.jobs SET lease_expires_at = now() - interval '1 second' WHERE id = $1 AND state = 'running'",
            UUID(job["id"]),
        )
        return str((await scene.caller.job(job["id"]))["state"]) != "running"

    await until(expired, what="the end of the lease")
    await raw.close()


async def test_sigterm_gives_the_job_back_without_spending_an_attempt(scene: Scene) -> None:
    worker = scene.start()
    job = await scene.held()
    worker.send(signal.SIGTERM)
    assert await worker.exit_code() == 0
    back = await scene.caller.job(job["id"])
    assert (back["state"], back["attempts"]) == ("queued", 0)
    assert await scene.caller.types(job["id"]) == ["enqueued", "leased", "released"]


async def test_sigterm_ends_a_worker_that_waits_for_work(scene: Scene) -> None:
    worker = scene.start()
    await until(lambda: workers(scene), what="the worker's first claim")
    worker.send(signal.SIGTERM)
    assert await worker.exit_code() == 0


async def test_an_operator_can_end_it_from_afar(scene: Scene) -> None:
    worker = scene.start()
    job = await scene.held()
    (known,) = await workers(scene)
    assert (await scene.caller.client.post(f"/workers/{known['id']}/terminate")).is_success
    assert await worker.exit_code() == 0
    assert (await scene.caller.job(job["id"]))["attempts"] == 0


async def workers(scene: Scene) -> list[dict[str, Any]]:
    known = (await scene.caller.client.get("/workers", params={"limit": 500})).json()["items"]
    return [worker for worker in known if worker["queues"] == [scene.queue]]


@pytest.mark.parametrize("scene", WORKERS[1:], indirect=True)
async def test_the_node_worker_holds_several_jobs_and_keeps_all_of_them(scene: Scene) -> None:
    scene.start("--concurrency", "2")
    jobs = [await scene.held(lease_seconds=1), await scene.held(lease_seconds=1)]
    third = await scene.enqueue("echo")

    async def kept() -> bool:
        held = [await scene.caller.job(job["id"]) for job in jobs]
        return all(job["lease"] and job["lease"]["heartbeats"] >= 4 for job in held)

    await until(kept, timeout_seconds=20)
    assert (await scene.caller.job(jobs[0]["id"]))["progress"]["message"] == "half"
    assert (await scene.caller.job(third["id"]))["state"] == "queued"
    assert [await scene.caller.types(job["id"]) for job in jobs] == [["enqueued", "leased"]] * 2


@pytest.mark.parametrize("scene", WORKERS[:1], indirect=True)
async def test_the_shell_worker_shows_no_token_among_its_arguments(scene: Scene) -> None:
    worker = scene.start()
    await scene.held(lease_seconds=1)
    seen: set[str] = set()

    async def enough() -> bool:
        seen.update(arguments(worker.pid))
        await asyncio.sleep(0)
        return any("/heartbeat" in line for line in seen)

    await until(enough, timeout_seconds=30, what="a heartbeat among the processes")
    assert not [line for line in seen if "lease_token" in line and "env.TOKEN" not in line]


def arguments(session: int) -> list[str]:
    """The command lines of all processes of the session, as anybody on the machine sees them."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(folder.name)) == session:
                found.append((folder / "cmdline").read_text(errors="replace").replace("\0", " "))
        except OSError:
            continue
    return found
