"""The commands that ask a service: jobs, dead, retry, cancel; for people and, with --json, for programs."""

import hashlib
import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from tests.cli.commands import Tenure, process
from tests.cli.conftest import EVIL
from tests.cli.documents import Client
from tests.running import Running

POISON = {"duration_ms": 1, "fail": True, "error": "poison"}
DIES_ONCE = '{"duration_ms": 1, "fail": true, "fail_times": 1}'
NUMBERS = '{"report": "numbers", "format": "csv", "parameters": {"rows": 300}}'


def waiting(client: Client, **fields: Any) -> dict[str, Any]:
    """A job that stays queued."""
    return client.enqueue("demo.sleep", {}, delay_seconds=3_600, **fields)


def dead(client: Client, **fields: Any) -> dict[str, Any]:
    return client.enqueue("demo.sleep", POISON, wait_seconds=20, **fields)


def test_enqueue_sends_what_it_was_told(asking: Tenure, client: Client) -> None:
    said = asking(
        "jobs", "enqueue", "demo.sleep", '{"duration_ms": 5}', "--queue", "aside", "--priority", "7", "--delay", "3600",
        "--max-attempts", "9", "--key", (key := uuid4().hex), "--json",
    )  # fmt: skip
    assert said.code == 0
    job = client.get(said.json["id"])
    assert (job["payload"], job["queue"], job["priority"]) == ({"duration_ms": 5}, "aside", 7)
    assert (job["max_attempts"], job["idempotency_key"], job["state"]) == (9, key, "queued")


def test_enqueue_takes_the_payload_from_standard_input(asking: Tenure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b'{"duration_ms": 3}')))
    assert asking("jobs", "enqueue", "demo.sleep", "-", "--delay", "3600", "--json").json["payload"] == {
        "duration_ms": 3
    }


def test_enqueue_keeps_numbers_as_they_are_written(asking: Tenure) -> None:
    said = asking("jobs", "enqueue", "elsewhere.kind", "[12345678901234567890123, 1.5]", "--json")
    assert said.json["payload"] == [12345678901234567890123, 1.5]


def test_enqueue_that_waits_says_how_it_ended(asking: Tenure) -> None:
    done = asking("jobs", "enqueue", "demo.sleep", '{"duration_ms": 1}', "--wait", "20")
    assert (done.code, "succeeded" in done.out, "result:" in done.out) == (0, True, True)
    died = asking("jobs", "enqueue", "demo.sleep", DIES_ONCE, "--max-attempts", "1", "--wait", "20")
    assert (died.code, "dead" in died.out, "transient: " in died.out) == (1, True, True)


def test_list_shows_a_line_a_job_and_json_the_page(asking: Tenure, client: Client) -> None:
    tag = uuid4().hex
    jobs = [waiting(client, tags=[tag]) for _ in range(3)]
    page = asking("jobs", "list", "--tag", tag, "--limit", "2", "--json").json
    assert [job["id"] for job in page["items"]] == [jobs[2]["id"], jobs[1]["id"]]
    table = asking("jobs", "list", "--tag", tag, "--limit", "2")
    assert f"--cursor {page['next_cursor']}" in table.out
    rest = asking("jobs", "list", "--tag", tag, "--cursor", page["next_cursor"])
    assert jobs[0]["id"] in rest.out
    assert "demo.sleep" in rest.out
    assert jobs[1]["id"] not in rest.out


def test_list_filters_by_state_queue_and_kind(asking: Tenure, client: Client) -> None:
    tag = uuid4().hex
    job = waiting(client, tags=[tag], queue="aside")
    waiting(client, tags=[tag])
    filters = ["--state", "queued", "--state", "running", "--queue", "aside", "--kind", "demo.sleep"]
    assert [found["id"] for found in asking("jobs", "list", "--tag", tag, *filters, "--json").json["items"]] == [
        job["id"]
    ]
    assert asking("jobs", "list", "--tag", tag, "--state", "dead").out == "none\n"


def test_get_shows_one_job(asking: Tenure, client: Client) -> None:
    job = waiting(client)
    said = asking("jobs", "get", job["id"])
    assert (said.code, job["id"] in said.out, "queued" in said.out) == (0, True, True)
    assert asking("jobs", "get", job["id"], "--json").json == client.get(job["id"])


def test_get_can_wait(asking: Tenure, client: Client) -> None:
    job = client.enqueue("demo.sleep", {"duration_ms": 20})
    assert asking("jobs", "get", job["id"], "--wait", "20", "--json").json["state"] == "succeeded"


def test_events_tell_the_history(asking: Tenure, client: Client) -> None:
    job = dead(client)
    lines = asking("jobs", "events", job["id"]).out.splitlines()
    assert len(lines) == 3
    for line, name in zip(lines, ("enqueued", "leased", "dead"), strict=True):
        assert name in line
    assert asking("jobs", "events", job["id"], "--json").json == {"items": client.events(job["id"])}


def test_follow_ends_with_the_job(asking: Tenure, client: Client) -> None:
    job = client.enqueue("demo.sleep", {"duration_ms": 30})
    said = asking("jobs", "follow", job["id"])
    assert said.code == 0
    history = [line for line in said.out.splitlines() if "progress" not in line]
    assert [line.split()[-3] for line in history] == ["enqueued", "leased", "succeeded"]


def test_artifacts_are_listed_and_fetched(asking: Tenure, tmp_path: Path) -> None:
    job = asking("jobs", "enqueue", "report.export", NUMBERS, "--wait", "20", "--json").json
    (artifact,) = asking("jobs", "artifacts", job["id"], "--json").json["items"]
    assert artifact["name"] in asking("jobs", "artifacts", job["id"]).out
    places = {(): tmp_path / artifact["name"], ("--to", "other.csv"): tmp_path / "other.csv"}
    (tmp_path / "folder").mkdir()
    places[("--to", "folder")] = tmp_path / "folder" / artifact["name"]
    for options, place in places.items():
        said = asking("jobs", "artifacts", job["id"], artifact["name"], *options)
        assert (said.code, said.out.startswith("wrote ")) == (0, True)
        assert hashlib.sha256(place.read_bytes()).hexdigest() == artifact["sha256"]


def test_an_artifact_that_is_not_there_leaves_no_file(asking: Tenure, client: Client, tmp_path: Path) -> None:
    job = waiting(client)
    said = asking("jobs", "artifacts", job["id"], "none.csv")
    assert (said.code, "artifact" in said.err) == (4, True)
    assert list(tmp_path.iterdir()) == []


def test_an_artifact_is_never_written_outside_the_folder(asking: Tenure, client: Client, tmp_path: Path) -> None:
    job = waiting(client)
    (tmp_path / "inside").mkdir()
    assert asking("jobs", "artifacts", job["id"], "../outside.csv", "--to", "inside").code == 4
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]


def test_dead_letters_are_listed_with_what_killed_them(asking: Tenure, client: Client) -> None:
    job, other = dead(client), waiting(client)
    said = asking("dead", "list")
    assert (job["id"] in said.out, other["id"] in said.out, "poison: " in said.out) == (True, False, True)
    print_ = job["last_error"]["fingerprint"]
    found = asking("dead", "list", "--fingerprint", print_, "--kind", "demo.sleep", "--json").json["items"]
    assert job["id"] in [letter["id"] for letter in found]
    assert asking("dead", "list", "--fingerprint", "0" * len(print_), "--json").json["items"] == []


def test_retry_puts_a_dead_job_back(asking: Tenure, client: Client) -> None:
    job = dead(client)
    said = asking(
        "retry", job["id"], "--delay", "3600", "--reason", "mended", "--version", str(job["version"]), "--json"
    )
    assert (said.code, said.json["state"]) == (0, "queued")
    assert client.events(job["id"])[-1]["detail"]["reason"] == "mended"


@pytest.mark.parametrize("as_json", [True, False])
def test_cancel_says_prevented(asking: Tenure, client: Client, as_json: bool) -> None:
    job = waiting(client)
    said = asking("cancel", job["id"], "--reason", "no longer", *(["--json"] if as_json else []))
    assert said.code == 0
    assert said.json["outcome"] == "prevented" if as_json else said.out.startswith("prevented: it was not running")


def test_cancel_says_requested_and_then_stopped(asking: Tenure, client: Client) -> None:
    job = client.enqueue("demo.sleep", {"duration_ms": 600_000})
    events = client.follow(job["id"])
    while next(events).get("type") != "leased":
        pass
    first = asking("cancel", job["id"])
    assert (first.code, first.out.partition(":")[0] in {"requested", "stopped"}) == (0, True)
    second = asking("cancel", job["id"], "--wait", "20")
    assert (second.code, second.out.startswith("stopped: its holder confirmed")) == (0, True)


def test_control_sequences_of_others_do_not_reach_the_terminal(asking: Tenure, client: Client) -> None:
    job = client.enqueue("test.evil", wait_seconds=20)
    assert job["result"] == EVIL
    # `asking` itself sees to it that what they print steers nothing.
    assert "[red]" in asking("jobs", "get", job["id"]).out
    assert asking("jobs", "get", job["id"], "--json").json["result"] == EVIL
    assert asking("jobs", "follow", job["id"]).code == 0
    plainly = waiting(client)
    client.cancel(plainly["id"], reason="[red]as it is[/] \\[/red]")
    for view in (["jobs", "events"], ["jobs", "follow"]):
        said = asking(*view, plainly["id"])
        assert (said.code, said.err) == (0, "")
    assert "[red]as it is[/] \\[/red]" in asking("jobs", "events", plainly["id"]).out


def test_refusals_have_their_codes(asking: Tenure, client: Client) -> None:
    job, unknown = waiting(client), str(uuid4())
    refused = asking("jobs", "enqueue", "demo.sleep", '{"duration_ms": "long"}')
    assert (refused.code, "/payload/duration_ms" in refused.err) == (1, True)
    for view in (["jobs", "get"], ["jobs", "events"], ["jobs", "follow"], ["jobs", "artifacts"], ["retry"], ["cancel"]):
        said = asking(*view, unknown)
        assert (said.code, unknown in said.err, said.out) == (4, True, "")
    assert asking("retry", job["id"]).code == 5
    assert asking("cancel", job["id"], "--version", "9").code == 5
    assert client.get(job["id"])["version"] == 1


def test_json_is_one_document_and_nothing_else_in_a_real_process(service: Running, tmp_path: Path) -> None:
    said = process(
        "jobs", "enqueue", "demo.sleep", "-", "--wait", "20", "--json",
        folder=tmp_path, stdin='{"duration_ms": 1}', URL=service.url,
    )  # fmt: skip
    assert (said.code, said.err, said.json["state"]) == (0, "", "succeeded")


def test_a_terminal_that_knows_only_ascii_gets_it_spelled_out(service: Running, client: Client, tmp_path: Path) -> None:
    job = waiting(client)
    client.cancel(job["id"], reason="żółw")
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    table = process("jobs", "events", job["id"], folder=tmp_path, URL=service.url, variables=ascii_only)
    assert (table.code, table.err) == (0, "")
    document = process("jobs", "events", job["id"], "--json", folder=tmp_path, URL=service.url, variables=ascii_only)
    assert document.json["items"][-1]["detail"]["reason"] == "żółw"
