"""README.md: every line of its tour, as a newcomer pastes it, against a real service."""

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from tests.conftest import with_database
from tests.docs.reading import README, ROOT, blocks, one_liners
from tests.story.harness import Stage

pytestmark = pytest.mark.story

DOCUMENTED = "http://127.0.0.1:8080"
MARK = "\x1e"
TOUR, REPORTS, APP = blocks(README, "sh")


@pytest.fixture
async def newcomer(server_url: str) -> AsyncIterator[Stage]:
    """An empty database, and a folder with the files that the README says to save."""
    name = f"tenure_docs_{uuid4().hex[:12]}"
    raw = await asyncpg.connect(server_url)
    await raw.execute(f'CREATE DATABASE "{name}"')
    folder = Path(tempfile.mkdtemp(prefix="tenure-docs-"))
    (folder / "reports.toml").write_text(blocks(README, "toml")[0])
    (folder / "app.py").write_text(blocks(README, "python")[0])
    stage = Stage(database_url=with_database(server_url, name), folder=folder)
    yield stage
    await stage.end()
    await raw.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    await raw.close()
    shutil.rmtree(folder)


async def paste(lines: list[str], url: str, folder: Path) -> list[str]:
    """Runs the lines in one strict shell; the output of each. Fails when one of them does."""
    script = "".join(f"printf '{MARK}'\n{line}\n" for line in lines).replace(DOCUMENTED, url)
    shell = await asyncio.create_subprocess_exec(
        *("bash", "-euo", "pipefail", "-c", script),
        cwd=folder,
        env={**os.environ, "no_proxy": "127.0.0.1"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(shell.communicate(), 90)
    said = [part.strip() for part in out.decode().split(MARK)[1:]]
    assert shell.returncode == 0, f"{lines[len(said) - 1]}\nended with {shell.returncode}: {said[-1:]} {err.decode()}"
    assert len(said) == len(lines)
    return said


async def test_every_line_of_the_readme_does_what_it_says(newcomer: Stage) -> None:
    service = await newcomer.serve(APP="app:jobs", REPORTS=str(newcomer.folder / "reports.toml"))
    lines = [line for block in (TOUR, REPORTS, APP) for line in one_liners(block)]
    said = await paste(lines, service.url, newcomer.folder)
    spoken = [text for line, text in zip(lines, said, strict=True) if line.startswith("curl")]
    live, read, waited, first, second, listed, letters, retried, mended, history, receipt, again = spoken[:12]
    artifacts, file, thumbnails, refused = spoken[12:]
    assert [line for line in live.splitlines() if line.startswith("event: ")][-1] == "event: succeeded"
    assert json.loads(read)["state"] == "succeeded"
    assert json.loads(waited)["result"] == {"slept_ms": 200, "attempt": 1}
    assert first.startswith("HTTP/1.1 202")
    assert second.startswith("HTTP/1.1 200")
    assert "idempotent-replayed: true" in second.lower()
    assert states(json.loads(listed)) <= {"running", "succeeded"}
    assert json.loads(read)["id"] in {item["id"] for item in json.loads(listed)["items"]}
    assert states(json.loads(letters)) == {"dead"}
    assert json.loads(retried)["state"] in {"queued", "running", "succeeded"}
    assert json.loads(mended)["state"] == "succeeded"
    types = [event["type"] for event in json.loads(history)["items"]]
    assert types == ["enqueued", "leased", "dead", "manual_retry", "leased", "succeeded"]
    assert json.loads(receipt)["outcome"] == "stopped"
    assert json.loads(again) == json.loads(receipt)
    (artifact,) = json.loads(artifacts)["items"]
    assert (artifact["name"], artifact["rows"]) == ("jobs.csv", len(file.splitlines()) - 1)
    assert file.startswith("id,kind,state")
    assert json.loads(thumbnails)["result"] == {"made": ["cat-64.webp"]}
    assert json.loads(refused)["errors"][0]["pointer"] == "/payload/widths/0"


def states(page: dict[str, Any]) -> set[str]:
    return {item["state"] for item in page["items"]}


def test_the_tour_is_made_of_one_liners_for_the_default_address() -> None:
    for block in (TOUR, REPORTS, APP):
        for line in one_liners(block):
            assert not line.endswith("\\")
            assert line.startswith(("curl -s", "ID=$(", "LONG=$(", "DEAD=$(", "REPORT=$(")), line
            assert DOCUMENTED in line


def test_the_transaction_that_the_readme_shows_is_the_examples() -> None:
    shown = blocks(README, "python")[1].strip()
    example = (ROOT / "examples" / "shop.py").read_text()
    assert "\n".join(line.strip() for line in shown.splitlines()) in "\n".join(
        line.strip() for line in example.splitlines()
    )
