"""docs/client.md: every example runs, against a real service."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.docs.reading import ROOT, blocks
from tests.story.conftest import stage as stage
from tests.story.harness import Process, Stage, submitter

pytestmark = pytest.mark.story

DOCUMENTED = "http://127.0.0.1:8080"
ENQUEUE, WAIT, REST, ERRORS, WORKER = blocks(ROOT / "docs" / "client.md", "python")


async def run(code: str, service: Process, folder: Path) -> asyncio.subprocess.Process:
    """The example as a program that is told where the service is."""
    file = folder / "example.py"
    file.write_text(code.replace(DOCUMENTED, service.url))
    assert DOCUMENTED in code
    return await asyncio.create_subprocess_exec(
        *(sys.executable, str(file)),
        cwd=folder,
        env={**os.environ, "PYTHONWARNINGS": "error"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def said(code: str, service: Process, folder: Path) -> list[str]:
    process = await run(code, service, folder)
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, err.decode()) == (0, "")
    return out.decode().splitlines()


async def test_the_examples_do_what_they_say(stage: Stage) -> None:
    service = await stage.serve()
    first, batch = await said(ENQUEUE, service, stage.folder)
    assert first.split()[1] in {"queued", "running", "succeeded"}
    assert batch.count("'") == 6
    *items, last = await said(WAIT, service, stage.folder)
    assert last == "succeeded {'slept_ms': 300, 'attempt': 1}"
    assert any("type='leased'" in item for item in items)
    async with submitter(service.url) as caller:
        payload = {"duration_ms": 1, "fail": True, "fail_times": 1, "error": "poison"}
        dead = await caller.enqueue("demo.sleep", payload)
        await caller.in_state(dead["id"], "dead")
        lines = await said(REST, service, stage.folder)
        assert any(line.startswith(dead["id"]) for line in lines)
        assert lines[-1] == "['enqueued', 'leased', 'succeeded']"
        assert (await caller.in_state(dead["id"], "succeeded"))["attempts"] == 1
    wrong, missing = await said(ERRORS, service, stage.folder)
    assert "/payload/duration_ms" in wrong
    assert "00000000-0000-0000-0000-000000000000" in missing


async def test_the_worker_of_the_page_works_and_ends_in_order(stage: Stage) -> None:
    service = await stage.serve("--no-workers")
    worker = await run(WORKER, service, stage.folder)
    try:
        async with submitter(service.url) as caller:
            job = await caller.enqueue("mail.send", "me@example.org", queue="mail")
            done = await caller.in_state(job["id"], "succeeded", timeout_seconds=30)
            assert done["result"] == "sent to me@example.org"
        worker.send_signal(signal.SIGTERM)
        _, err = await asyncio.wait_for(worker.communicate(), 30)
        assert (worker.returncode, err.decode()) == (0, "")
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()


def test_the_tables_of_the_page_name_methods_that_are() -> None:
    from_page = (ROOT / "docs" / "client.md").read_text()
    for name in (
        "enqueue",
        "enqueue_many",
        "get",
        "wait",
        "list",
        "page",
        "dead",
        "dead_page",
        "follow",
        "cancel",
        "retry",
    ):
        assert f"`{name}" in from_page or f".{name}(" in from_page, name
