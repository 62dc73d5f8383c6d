"""`jobs wait` and `jobs follow --json`: for scripts that go on when a job has finished."""

import json
from uuid import uuid4

import pytest

from tests.cli.commands import Tenure
from tests.cli.conftest import EVIL
from tests.cli.documents import Client

ENDS = [
    ({"duration_ms": 20}, "succeeded", 0),
    ({"duration_ms": 1, "fail": True, "error": "permanent"}, "failed", 1),
    ({"duration_ms": 1, "fail": True, "error": "poison"}, "dead", 1),
]


@pytest.mark.parametrize(("payload", "state", "code"), ENDS)
def test_wait_ends_with_the_job_and_tells_its_end_by_its_code(
    asking: Tenure, client: Client, payload: dict[str, object], state: str, code: int
) -> None:
    job = client.enqueue("demo.sleep", payload)
    said = asking("jobs", "wait", job["id"], "--json")
    assert (said.code, said.json["state"], said.err) == (code, state, "")
    assert state in asking("jobs", "wait", job["id"]).out


def test_wait_for_a_canceled_job_is_no_success(asking: Tenure, client: Client) -> None:
    job = client.enqueue("demo.sleep", {}, delay_seconds=3_600)
    client.cancel(job["id"])
    said = asking("jobs", "wait", job["id"])
    assert (said.code, "canceled: prevented" in said.out) == (1, True)


def test_wait_for_a_job_that_is_not_there_does_not_wait(asking: Tenure) -> None:
    assert asking("jobs", "wait", str(uuid4())).code == 4
    assert asking("jobs", "wait", "not-an-id").code == 2


def test_follow_in_json_is_a_document_a_line(asking: Tenure, client: Client) -> None:
    job = client.enqueue("test.evil")
    said = asking("jobs", "follow", job["id"], "--json")
    assert (said.code, said.err) == (0, "")
    told = [json.loads(line) for line in said.out.splitlines()]
    history = [event for event in told if event["type"] != "progress"]
    assert history == [{**event} for event in client.events(job["id"])]
    assert all(event["message"] == EVIL for event in told if event["type"] == "progress")
