"""serve, worker, migrate, and what there is to know without a service."""

import json
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import asyncpg
import httpx
import pytest

from tenure import __version__
from tenure.embedded import EmbeddedPostgres
from tenure.settings import fields
from tenure.store.schema import head_revision
from tests.cli.commands import ROOT, Tenure, command, ended, environment, process
from tests.conftest import with_database
from tests.waiting import until

SECRETS = {
    "TENURE_DATABASE_URL": "postgresql://me:geheim-1@127.0.0.1/db",
    "TENURE_S3_SECRET_ACCESS_KEY": "geheim-2",
    "TENURE_S3_ACCESS_KEY_ID": "geheim-3",
    "TENURE_URL": "https://me:geheim-4@queue.test",
}


@pytest.fixture
async def empty_database(server_url: str) -> AsyncIterator[str]:
    """A database without any tables."""
    name = f"tenure_cli_{uuid4().hex[:12]}"
    raw = await asyncpg.connect(server_url)
    await raw.execute(f'CREATE DATABASE "{name}"')
    yield with_database(server_url, name)
    await raw.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    await raw.close()


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A folder that the embedded server's account can enter, also when root runs the tests."""
    folder = Path(tempfile.mkdtemp(prefix="tenure-cli-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_version_is_that_of_the_package(tenure: Tenure) -> None:
    said = tenure("version")
    assert (said.code, said.out) == (0, f"{__version__}\n")


def test_openapi_is_one_document(tenure: Tenure) -> None:
    document = tenure("openapi").json
    assert document["openapi"].startswith("3.1")
    assert "/jobs" in document["paths"]


def test_settings_lists_every_setting_with_its_value(tenure: Tenure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_PORT", "9999")
    items = {item["variable"]: item for item in tenure("settings", "--json").json["items"]}
    assert list(items) == [f"TENURE_{field.alias}" for _, _, field in fields()]
    assert (items["TENURE_PORT"]["value"], items["TENURE_PORT"]["default"]) == (9999, 8080)
    table = tenure("settings").out
    assert all(variable in table for variable in items)
    assert "9999" in table


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_settings_shows_no_secret(tenure: Tenure, monkeypatch: pytest.MonkeyPatch, options: list[str]) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    said = tenure("settings", *options)
    assert (said.code, "geheim" in said.out + said.err, "[hidden]" in said.out) == (0, False, True)


def test_docs_are_in_step_with_the_code(tenure: Tenure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    said = tenure("docs", "--check")
    assert said.code == 0, said.err


def test_a_page_that_is_out_of_step_is_named_and_not_touched(tenure: Tenure, tmp_path: Path) -> None:
    page = tmp_path / "docs" / "lifecycle.md"
    page.parent.mkdir()
    page.write_text("old")
    said = tenure("docs", "--check")
    assert (said.code, "docs/lifecycle.md is out of step" in said.err, page.read_text()) == (1, True, "old")
    assert tenure("docs").code == 0
    assert tenure("docs", "--check").code == 0


async def test_migrate_says_what_it_did_and_does_nothing_twice(empty_database: str, tmp_path: Path) -> None:
    for expected in (f"nothing → {head_revision()}", f"is at {head_revision()} already"):
        said = process("migrate", folder=tmp_path, DATABASE_URL=empty_database)
        assert (said.code, expected in said.out) == (0, True), said


def test_database_url_is_the_given_one(tenure: Tenure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_DATABASE_URL", SECRETS["TENURE_DATABASE_URL"])
    assert tenure("database-url").out == SECRETS["TENURE_DATABASE_URL"] + "\n"


async def test_database_url_of_an_embedded_server_is_one_to_connect_to(
    tenure: Tenure, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_DATA_DIR", str(data_dir))
    with EmbeddedPostgres(data_dir / "postgres", settings={"shared_buffers": "32MB"}) as server:
        said = tenure("database-url")
        assert (said.code, said.err) == (0, "")
        raw = await asyncpg.connect(said.out.strip())
        assert await raw.fetchval("SELECT 1") == 1
        await raw.close()
        assert server.postmaster_pid is not None
    assert tenure("database-url").code == 3
    assert server.postmaster_pid is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_serve_says_where_and_ends_cleanly(migrated_url: str, tmp_path: Path, number: signal.Signals) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    started = begun(["serve", "--port", "0", "--tour"], tmp_path, DATABASE_URL=migrated_url, PROT="1")
    with ended(started):
        await until(lambda: "Ctrl-C stops it" in out.read_text() or started.poll() is not None, timeout_seconds=30)
        url = out.read_text().split("Tenure serves at ")[1].split()[0]
        async with httpx.AsyncClient(base_url=url) as client:
            assert (await client.get("/readyz")).status_code == 200
        assert f"curl -s {url}/jobs" in out.read_text()
        started.send_signal(number)
        await until(lambda: started.poll() is not None, timeout_seconds=30)
    assert started.returncode == 0
    assert "did you mean TENURE_PORT?" in err.read_text()
    for text in (out.read_text(), err.read_text()):
        assert "Traceback" not in text
        assert "\x1b" not in text


async def test_the_log_is_json_lines_when_programs_read_it(migrated_url: str, tmp_path: Path) -> None:
    log = tmp_path / "err"
    started = begun(["worker"], tmp_path, DATABASE_URL=migrated_url, LOG_FORMAT="json")
    with ended(started):
        await until(lambda: "ready" in log.read_text() or started.poll() is not None, timeout_seconds=30)
        started.send_signal(signal.SIGTERM)
        await until(lambda: started.poll() is not None, timeout_seconds=30)
    assert started.returncode == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert "ready" in [line["message"] for line in lines]
    assert all({"at", "level", "logger", "message"} <= line.keys() for line in lines)


def begun(arguments: list[str], folder: Path, **settings: str) -> "subprocess.Popen[bytes]":
    """The command as a process that writes to the files `out` and `err` of the folder."""
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        return subprocess.Popen(command(*arguments), stdout=out, stderr=err, cwd=folder, env=environment(settings))
