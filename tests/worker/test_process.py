"""Handlers in child processes: ended whatever they do, and never taking the worker with them."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

from tenure.jobs.model import CancelOutcome, ErrorKind, Job, State
from tenure.jobs.retry import RetryPolicy
from tenure.store.database import Database
from tenure.worker.attempt import AttemptLimits
from tenure.worker.registry import JobRegistry
from tests.factories import history, queued, read
from tests.waiting import until
from tests.worker import process_handlers
from tests.worker.running import request_cancel, settled_as, working

QUICK: dict[str, Any] = {"limits": AttemptLimits(process_grace_seconds=0.1)}
PATIENT: dict[str, Any] = {"limits": AttemptLimits(process_grace_seconds=60.0)}


def registry_of(function: Callable[..., Any], **options: Any) -> JobRegistry:
    jobs = JobRegistry(default_policy=RetryPolicy(base_seconds=0.01, cap_seconds=0.01, jitter="none"))
    jobs.handler("process", process=True, **options)(function)
    return jobs


async def queued_for(database: Database, folder: Path, **fields: Any) -> Job:
    payload = orjson.dumps({"folder": str(folder), "say": fields.pop("say", "")}).decode()
    return await queued(database, kind="process", payload=payload, **fields)


async def started(folder: Path) -> int:
    await until((folder / "started").exists)
    return int((folder / "started").read_text())


async def test_payload_progress_and_result_cross_and_stdout_stays_the_handler_s(
    database: Database, tmp_path: Path
) -> None:
    job = await queued_for(database, tmp_path, say="héllo \U0001f680")
    async with working(database, registry_of(process_handlers.plain)):
        ended = await settled_as(database, job)
    result = orjson.loads(ended.result or "")
    assert result.pop("pid") != os.getpid()
    assert result == {"say": "héllo \U0001f680", "elsewhere": True, "attempt": 2, "key": str(job.id)}


async def test_an_async_handler_runs_there_too_and_one_without_payload(database: Database, tmp_path: Path) -> None:
    job = await queued_for(database, tmp_path, say="ab")
    async with working(database, registry_of(process_handlers.asynchronous)):
        assert (await settled_as(database, job)).result == '"abab"'
    job = await queued_for(database, tmp_path)
    async with working(database, registry_of(process_handlers.only_context)):
        assert (await settled_as(database, job)).result == '"process"'


@pytest.mark.parametrize(
    ("function", "state", "kind", "told"),
    [
        (process_handlers.refuses, State.FAILED, ErrorKind.PERMANENT, "not this one"),
        (process_handlers.unstorable, State.FAILED, ErrorKind.PERMANENT, "the result is not JSON"),
        (process_handlers.completes, State.FAILED, ErrorKind.PERMANENT, "context.completion()"),
        (process_handlers.leaves, State.DEAD, ErrorKind.UNKNOWN, "3"),
        (process_handlers.exits, State.DEAD, ErrorKind.UNKNOWN, "exit code 137"),
        (process_handlers.aborts, State.DEAD, ErrorKind.UNKNOWN, "killed by SIGSEGV"),
    ],
)
async def test_however_it_fails_that_job_fails_and_says_how(
    database: Database, tmp_path: Path, function: Callable[..., Any], state: State, kind: ErrorKind, told: str
) -> None:
    job = await queued_for(database, tmp_path, say="not this one", max_attempts=1)
    async with working(database, registry_of(function)) as running:
        ended = await settled_as(database, job)
        assert not running.finished.done()
    assert ended.last_error is not None
    assert (ended.state, ended.last_error.kind) == (state, kind)
    assert told in ended.last_error.message


async def test_a_poison_pill_starts_exactly_max_attempts_times_and_siblings_finish(
    database: Database, tmp_path: Path
) -> None:
    jobs = registry_of(process_handlers.exits)
    jobs.handler("sibling", process=True)(process_handlers.only_context)
    pill = await queued_for(database, tmp_path, max_attempts=3)
    sibling = await queued(database, kind="sibling")
    async with working(database, jobs):
        assert (await settled_as(database, pill)).state is State.DEAD
        assert (await settled_as(database, sibling)).state is State.SUCCEEDED
    assert (await history(database, pill)).count("leased") == 3


async def test_a_cancel_request_cancels_the_task_in_the_child(database: Database, tmp_path: Path) -> None:
    job = await queued_for(database, tmp_path)
    async with working(database, registry_of(process_handlers.waits), **PATIENT) as running:
        pid = await started(tmp_path)
        await request_cancel(database, job, running.bell)
        ended = await settled_as(database, job)
        assert ended.cancellation is not None
        assert (ended.state, ended.cancellation.outcome, ended.last_error) == (
            State.CANCELED,
            CancelOutcome.STOPPED,
            None,
        )
        assert (tmp_path / "cleaned").read_text() == "True"
        assert not psutil.pid_exists(pid)


async def test_a_plain_handler_there_hears_of_it_from_its_context(database: Database, tmp_path: Path) -> None:
    job = await queued_for(database, tmp_path)
    async with working(database, registry_of(process_handlers.polls), **PATIENT) as running:
        await started(tmp_path)
        await request_cancel(database, job, running.bell)
        assert (await settled_as(database, job)).state is State.CANCELED


async def test_one_that_does_not_hear_is_terminated_and_cleans_up(database: Database, tmp_path: Path) -> None:
    job = await queued_for(database, tmp_path)
    jobs = registry_of(process_handlers.deaf)
    async with working(database, jobs, limits=AttemptLimits(process_grace_seconds=1.0)) as running:
        await started(tmp_path)
        await request_cancel(database, job, running.bell)
        ended = await settled_as(database, job)
    assert (ended.state, ended.last_error) == (State.CANCELED, None)
    assert (tmp_path / "terminated").exists()


async def test_its_timeout_ends_it(database: Database, tmp_path: Path) -> None:
    job = await queued_for(database, tmp_path, max_attempts=1)
    async with working(database, registry_of(process_handlers.deaf, timeout_seconds=0.5), **QUICK):
        ended = await settled_as(database, job)
    assert ended.last_error is not None
    assert (ended.state, ended.last_error.kind) == (State.DEAD, ErrorKind.TIMEOUT)


async def test_one_that_will_not_end_is_killed_with_all_that_it_started(database: Database, tmp_path: Path) -> None:
    job = await queued_for(database, tmp_path)
    async with working(database, registry_of(process_handlers.immortal), **QUICK) as running:
        pid = await started(tmp_path)
        grandchild = int((tmp_path / "grandchild").read_text())
        await request_cancel(database, job, running.bell)
        ended = await settled_as(database, job)
    assert ended.state is State.CANCELED
    await until(lambda: not _alive(pid) and not _alive(grandchild))


async def test_no_signal_comes_inside_an_uninterruptible_block(database: Database, tmp_path: Path) -> None:
    job = await queued_for(database, tmp_path)
    async with working(database, registry_of(process_handlers.pays), **QUICK) as running:
        await started(tmp_path)
        await request_cancel(database, job, running.bell)

        async def delivered() -> bool:
            cancellation = (await read(database, job)).cancellation
            return cancellation is not None and cancellation.delivered_at is not None

        await until(delivered)
        before = asyncio.get_running_loop().time()
        await until(lambda: asyncio.get_running_loop().time() > before + 0.5)  # longer than both graces
        assert (await read(database, job)).state is State.RUNNING
        (tmp_path / "go").touch()
        ended = await settled_as(database, job)
    assert ended.state is State.CANCELED
    assert (tmp_path / "paid").exists()


async def test_a_thread_that_it_left_does_not_keep_its_slot(database: Database, tmp_path: Path) -> None:
    job = await queued_for(database, tmp_path)
    async with working(database, registry_of(process_handlers.with_thread), **QUICK):
        assert (await settled_as(database, job)).result == '"returned"'


async def test_draining_ends_it_and_gives_the_attempt_back(database: Database, tmp_path: Path) -> None:
    job = await queued_for(database, tmp_path)
    jobs = registry_of(process_handlers.immortal)
    async with working(database, jobs, shutdown_grace_seconds=0.0, **QUICK) as running:
        pid = await started(tmp_path)
        running.worker.drain()
        await running.finished
    left = await read(database, job)
    assert (left.state, left.attempts) == (State.QUEUED, 0)
    assert not _alive(pid)


PARENT = """
import asyncio, sys
from tenure.settings import load
from tenure.store.database import Database
from tests.worker.running import working
from tests.worker import process_handlers
from tests.worker.test_process import registry_of

async def main():
    async with await Database.open(load({"TENURE_DATABASE_URL": sys.argv[1]}).database) as database:
        async with working(database, registry_of(process_handlers.deaf)) as running:
            await running.finished

asyncio.run(main())
"""


async def test_it_dies_with_its_worker(database: Database, tmp_path: Path) -> None:
    await queued_for(database, tmp_path)
    root = Path(__file__).parents[2]
    parent = subprocess.Popen(  # noqa: ASYNC220 - started at once, waited for with a bound
        [sys.executable, "-c", PARENT, database.settings.url],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    try:
        pid = await started(tmp_path)
        assert _alive(pid)
    finally:
        parent.send_signal(signal.SIGKILL)
        await asyncio.to_thread(parent.wait)
    await until(lambda: not _alive(pid))


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
