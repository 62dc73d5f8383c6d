"""Workers that claim, keep and settle through the client; and the operations that take or give many at once."""

from uuid import uuid4

import pytest

from tenure.client import Client
from tenure.errors import InvalidInput
from tenure.jobs.model import TERMINAL_STATES
from tests.client.cutting import line_to
from tests.client.faces import FACES, face
from tests.running import Running


def queue() -> str:
    return f"q-{uuid4().hex}"


def test_a_batch_is_answered_in_order_and_each_job_has_a_key_of_its_own(client: Client) -> None:
    name = queue()
    items = client.enqueue_many([{"kind": "k", "queue": name, "payload": number} for number in range(30)])
    assert [item.job.payload for item in items] == list(range(30))
    assert len({item.job.idempotency_key for item in items}) == 30
    assert not any(item.replayed for item in items)


def test_a_batch_is_all_or_none_and_says_which_is_wrong(client: Client) -> None:
    name = queue()
    with pytest.raises(InvalidInput) as caught:
        client.enqueue_many([{"kind": "k", "queue": name}, {"kind": "k", "queue": name, "priority": 999}])
    assert [field.pointer for field in caught.value.errors] == ["/jobs/1/priority"]
    assert list(client.list(queue=name)) == []


@pytest.mark.parametrize("name", FACES)
def test_a_batch_whose_answer_is_lost_is_accepted_once(service: Running, name: str) -> None:
    jobs = queue()
    with line_to(service.url, lose_answers=1) as line, face(name, line.url) as far:
        items = far.enqueue_many([{"kind": "k", "queue": jobs}, {"kind": "k", "queue": jobs}])
        assert [item.replayed for item in items] == [True, True]
        assert len(list(far.list(queue=jobs))) == 2


def test_a_list_goes_over_all_pages(client: Client) -> None:
    name = queue()
    made = client.enqueue_many([{"kind": "k", "queue": name} for _ in range(7)])
    assert [job.id for job in client.list(queue=name, limit=3)] == sorted((item.job.id for item in made), reverse=True)


def test_a_lease_is_claimed_kept_and_settled(client: Client) -> None:
    name = queue()
    made = client.enqueue("k", {"n": 2**70, "s": "ä\u2028"}, queue=name)
    claimed = client.claim("by-hand", [name], kinds=["k"], max_jobs=5, wait_seconds=1)
    (lease,) = claimed.leases
    assert (lease.job.id, lease.job.payload) == (made.id, {"n": 2**70, "s": "ä\u2028"})
    kept, lost = client.heartbeat(
        [
            {"job_id": made.id, "lease_token": lease.lease_token, "progress": {"fraction": 0.5}},
            {"job_id": made.id, "lease_token": "stale"},
        ]
    )
    assert (kept.status, kept.cancel_requested, kept.problem) == (200, False, None)
    assert lost.problem is not None
    assert lost.problem.code == "lease-lost"
    assert "by-hand" in {worker.id for worker in client.workers()}
    outcome = {"job_id": made.id, "lease_token": lease.lease_token, "outcome": "complete", "result": {"ok": True}}
    for _ in range(2):
        (settled,) = client.settle([outcome])  # type: ignore[list-item]
        assert (settled.status, settled.state) == (200, "succeeded")
    assert client.get(made.id).result == {"ok": True}


def test_a_claim_without_work_comes_back_empty(client: Client) -> None:
    assert client.claim("by-hand", [queue()], wait_seconds=0.1).leases == []


@pytest.mark.parametrize("name", FACES)
def test_an_outcome_whose_answer_is_lost_is_reported_again(service: Running, name: str) -> None:
    jobs = queue()
    with line_to(service.url) as line, face(name, line.url) as far:
        made = far.enqueue("k", queue=jobs)
        (lease,) = far.claim("by-hand", [jobs]).leases
        line.lose_answers = 1
        (item,) = far.settle([{"job_id": made.id, "lease_token": lease.lease_token, "outcome": "complete"}])
        assert (item.status, len(line.lost)) == (200, 1)
        assert [event.type for event in far.events(made.id)] == ["enqueued", "leased", "succeeded"]


def test_wait_returns_the_job_once_it_has_finished_however_it_did(client: Client) -> None:
    for payload in ({"duration_ms": 20}, {"duration_ms": 1, "fail": True, "error": "permanent"}):
        job = client.wait(client.enqueue("demo.sleep", payload).id)
        assert job.state in TERMINAL_STATES


def test_wait_gives_up_after_its_time_and_the_job_runs_on(client: Client) -> None:
    job = client.enqueue("k", queue=queue())
    with pytest.raises(TimeoutError, match=str(job.id)):
        client.wait(job.id, timeout_seconds=0.2)
    assert client.get(job.id).state == "queued"


@pytest.mark.parametrize("name", FACES)
def test_a_wait_goes_on_over_a_lost_answer(service: Running, name: str) -> None:
    with line_to(service.url) as line, face(name, line.url) as far:
        job = far.enqueue("demo.sleep", {"duration_ms": 50})
        line.lose_answers = 2
        assert far.wait(job.id, timeout_seconds=30).state == "succeeded"
        assert len(line.lost) == 2


@pytest.mark.parametrize("name", FACES)
def test_a_download_that_breaks_goes_on_where_it_was(service: Running, name: str) -> None:
    payload = {"report": "numbers", "format": "csv", "parameters": {"rows": 60_000}}
    with line_to(service.url) as line, face(name, line.url) as far:
        job = far.enqueue("report.export", payload, wait_seconds=30)
        (artifact,) = far.artifacts(job.id)
        before = line.connections
        line.cut_after = artifact.bytes // 2
        data = b"".join(far.download(job.id, artifact.name))
        assert line.connections > before
        assert len(data) == artifact.bytes
        assert data.splitlines()[-1] == b"60000,row 60000"
