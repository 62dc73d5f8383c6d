"""What goes wrong gets one sentence and the code that means it, never a trace."""

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.cli import app, inspect
from tests.cli.commands import ESCAPE, Tenure, command, ended, environment, process
from tests.client.cutting import answering, http

ID = "01890a5d-ac96-774b-bcce-b302099a8057"


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Nobody listens there, and nobody else can."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nope"], "No such command 'nope'"),
        (["jobs", "lst"], "No such command 'lst'"),
        (["jobs", "list", "--nope"], "No such option: --nope"),
        (["jobs", "list", "--limit", "0"], "--limit"),
        (["jobs", "list", "--limit", "many"], "--limit"),
        (["jobs", "list", "extra"], "extra"),
        (["jobs", "get"], "Missing argument"),
        (["jobs", "get", "not-an-id"], "'not-an-id' is not a job's id"),
        (["jobs", "follow", "../dead"], "is not a job's id"),
        (["retry", ""], "is not a job's id"),
        (["cancel", ID, "--version", "first"], "--version"),
        (["cancel", ID, "--wait", "61"], "--wait"),
        (["jobs", "enqueue", "demo.sleep", "{bad"], "the payload: this is not JSON"),
        (["jobs", "enqueue", "demo.sleep", "NaN"], "the payload"),
        (["jobs", "enqueue", "demo.sleep", '{"a": 1, "a": 2}'], "the payload"),
        (["jobs", "list", "--url", "ftp://x"], "must be an http:// or https:// URL"),
        (["jobs", "list", "--url", "http://[x"], "TENURE_URL"),
        (["jobs", "list", "--url", "http://127.0.0.1:99999"], "Port out of range"),
        (["worker"], "TENURE_DATABASE_URL"),
        (["worker", "--app", "nothing"], "TENURE_DATABASE_URL"),
        (["serve", "--app", "nothing"], "write it as module:registry"),
        (["serve", "--app", "no.such.module:jobs"], "there is no module 'no.such.module'"),
        (["serve", "--app", "tenure.settings:load"], "not a JobRegistry"),
        (["serve", "--app", "tenure.settings:nothing"], "has no 'nothing'"),
        (["serve", "--host", "0.0.0.0"], "--insecure-no-auth"),
        (["serve", "--host", "no such host"], "no such host"),
        (["serve", "--port", "70000"], "TENURE_PORT"),
        (["demo", "--rows", "1"], "--rows"),
        (["docs"], "there is no docs/ here"),
    ],
)
def test_wrong_usage_is_two_and_says_what_is_wrong(tenure: Tenure, arguments: list[str], says: str) -> None:
    said = tenure(*arguments)
    assert (said.code, said.out) == (2, ""), said
    assert says in said.err


def test_every_wrong_setting_is_named_at_once(tenure: Tenure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_PORT", "http")
    monkeypatch.setenv("TENURE_LEASE_SECONDS", "0")
    monkeypatch.setenv("TENURE_DATABASE_URL", "mysql://me:geheim@here/db")
    for arguments in (["serve"], ["worker"], ["migrate"], ["settings"], ["jobs", "list"], ["database-url"]):
        said = tenure(*arguments)
        assert said.code == 2
        for name in ("TENURE_PORT", "TENURE_LEASE_SECONDS", "TENURE_DATABASE_URL"):
            assert name in said.err
        assert "geheim" not in said.err


def test_an_unknown_variable_is_noted_with_the_nearest(tenure: Tenure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_PROT", "1")
    said = tenure("settings", "--json")
    assert (said.code, said.json["items"] != []) == (0, True)
    assert "TENURE_PROT is not a setting; did you mean TENURE_PORT?" in said.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["jobs", "list"],
        ["jobs", "get", ID],
        ["jobs", "events", ID],
        ["jobs", "follow", ID],
        ["jobs", "artifacts", ID],
        ["jobs", "artifacts", ID, "x.csv"],
        ["jobs", "enqueue", "demo.sleep"],
        ["dead", "list"],
        ["retry", ID],
        ["cancel", ID, "--json"],
    ],
)
def test_a_service_that_is_not_there_is_three(tenure: Tenure, closed_port: int, arguments: list[str]) -> None:
    said = tenure(*arguments, "--url", f"http://127.0.0.1:{closed_port}")
    assert (said.code, said.out) == (3, "")
    assert f"nobody answers at http://127.0.0.1:{closed_port}: start a service with `tenure serve`" in said.err


def test_something_else_at_the_address_is_three(tenure: Tenure) -> None:
    with answering(http("200 OK", "text/html", b"<html>")) as url:
        said = tenure("jobs", "list", "--url", url)
    assert (said.code, "is --url or TENURE_URL right?" in said.err) == (3, True)


def test_a_database_that_is_not_there_is_three(
    tenure: Tenure, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_DATABASE_URL", f"postgresql://me:geheim@127.0.0.1:{closed_port}/jobs")
    said = tenure("migrate")
    assert said.code == 3
    assert f"127.0.0.1:{closed_port}" in said.err
    assert "TENURE_DATABASE_URL" in said.err
    assert "geheim" not in said.err


def test_an_embedded_database_that_nobody_uses_has_no_url_yet(tenure: Tenure) -> None:
    said = tenure("database-url")
    assert (said.code, said.out) == (3, "")
    assert "start one here with `tenure serve`" in said.err


def test_a_port_in_use_is_named(tenure: Tenure, migrated_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_DATABASE_URL", migrated_url)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = tenure("serve", "--port", str(port))
    assert (said.code, said.out) == (2, "")
    assert f"cannot listen on 127.0.0.1:{port}" in said.err
    assert "TENURE_PORT" in said.err


def test_a_file_that_cannot_be_written_is_named(tenure: Tenure, tmp_path: Path) -> None:
    with answering(http("200 OK", "text/csv", b"1,2")) as url:
        said = tenure("jobs", "artifacts", ID, "x.csv", "--to", "missing/x.csv", "--url", url)
    assert (said.code, "missing/x.csv" in said.err) == (1, True)


def test_a_bug_shows_its_trace_and_says_that_it_is_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError("of ours")

    monkeypatch.setattr(inspect, "print_json", broken)
    assert app.run(["openapi"]) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.rstrip().splitlines()[-1].startswith("error: this is a bug in Tenure")


def test_no_arguments_show_the_commands(tenure: Tenure) -> None:
    assert tenure("--help").code == 0
    for arguments in ([], ["jobs"], ["dead"]):
        said = tenure(*arguments)
        assert (said.code, "Usage" in said.out + said.err) == (2, True)


@pytest.mark.parametrize("arguments", [["nope"], ["jobs", "list"], ["settings"], ["--help"]])
def test_no_colours_where_nobody_sees_them(tmp_path: Path, closed_port: int, arguments: list[str]) -> None:
    said = process(*arguments, folder=tmp_path, URL=f"http://127.0.0.1:{closed_port}")
    assert ESCAPE not in said.out + said.err


def test_no_colour_on_a_terminal_that_wants_none_and_some_on_one_that_does(tmp_path: Path) -> None:
    assert ESCAPE in on_terminal("settings", folder=tmp_path, variables={})
    plain = on_terminal("settings", folder=tmp_path, variables={"NO_COLOR": "1"})
    assert "TENURE_PORT" in plain
    assert ESCAPE + "[3" not in plain


def test_a_reader_that_has_had_enough_is_no_error(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            command("openapi"), stdout=writing, stderr=subprocess.PIPE, env=environment({}), cwd=tmp_path, timeout=60,
            check=False,
        )  # fmt: skip
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_ctrl_c_ends_a_command_that_waits(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        silent.settimeout(30)
        with ended(
            subprocess.Popen(
                command("jobs", "list", "--url", url), env=environment({}), cwd=tmp_path, stderr=subprocess.PIPE
            )
        ) as started:
            connection, _ = silent.accept()  # it asks, and waits
            started.send_signal(signal.SIGINT)
            _, err = started.communicate(timeout=30)
            connection.close()
    assert (started.returncode, b"Traceback" in err) == (130, False)


def on_terminal(*arguments: str, folder: Path, variables: dict[str, str], columns: int = 70) -> str:
    """What the command prints on a terminal of that width."""
    ours, theirs = os.openpty()
    with subprocess.Popen(
        command(*arguments), stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder,
        env={**environment({}), "TERM": "xterm-256color", "COLUMNS": str(columns), **variables},
    ):  # fmt: skip
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the terminal is gone with its last user
            while data := os.read(ours, 65_536):
                shown += data
    os.close(ours)
    return shown.decode()
