"""Every method against a real service."""

import hashlib
from typing import Any
from uuid import uuid4

import pytest

from tenure.client import Client
from tenure.errors import (
    IdempotencyKeyReused,
    InvalidInput,
    NotCancelable,
    NotFound,
    NotRetryable,
    VersionMismatch,
)
from tests.running import Running

LATER: Any = {"delay_seconds": 3_600}
_MANY_EVENTS = """
INSERT INTO tenure.events (part, job_id, version, at, type, state, attempt)
SELECT part, job_id, version + n, at, type, state, attempt FROM tenure.events, generate_series(1, 2500) AS n
WHERE job_id = $1
"""
DIES = {"duration_ms": 1, "fail": True, "error": "poison"}


def test_enqueue_answers_the_job_and_sends_every_field(client: Client) -> None:
    job = client.enqueue("demo.sleep", {"duration_ms": 7}, queue="aside", priority=3, tags=["a", "b"], **LATER)
    assert (job.state, job.queue, job.priority, job.tags) == ("queued", "aside", 3, ["a", "b"])
    assert client.get(job.id).payload == {"duration_ms": 7}


def test_enqueue_can_wait_for_the_end(client: Client) -> None:
    job = client.enqueue("demo.sleep", {"duration_ms": 1}, wait_seconds=20)
    assert job.state == "succeeded"


def test_each_enqueue_without_a_key_makes_a_job_of_its_own(client: Client) -> None:
    first, second = (client.enqueue("demo.sleep", {}, **LATER) for _ in range(2))
    assert first.id != second.id
    assert first.idempotency_key


def test_an_enqueue_with_the_same_key_answers_the_first_job(client: Client) -> None:
    key = str(uuid4())
    first, second = (client.enqueue("demo.sleep", {}, idempotency_key=key, **LATER) for _ in range(2))
    assert first.id == second.id


def test_get_can_wait_for_the_end(client: Client) -> None:
    job = client.enqueue("demo.sleep", {"duration_ms": 1})
    assert client.get(job.id, wait_seconds=20).state == "succeeded"


def test_list_pages_and_filters(client: Client) -> None:
    tag = uuid4().hex
    made = [client.enqueue("demo.sleep", {}, tags=[tag], **LATER).id for _ in range(3)]
    first = client.page(tag=[tag], limit=2)
    rest = client.page(tag=[tag], limit=2, cursor=first.next_cursor)
    assert [job.id for job in [*first.items, *rest.items]] == made[::-1]
    assert rest.next_cursor is None
    assert list(client.list(tag=tag, state=["dead", "failed"])) == []


def test_dead_lists_only_the_dead(client: Client) -> None:
    queue = uuid4().hex
    dead = client.enqueue("demo.sleep", DIES, queue="default", tags=[queue], wait_seconds=20)
    client.enqueue("demo.sleep", {}, tags=[queue], **LATER)
    assert [job.id for job in client.dead(tag=queue)] == [dead.id]


def test_events_are_all_of_them_however_many_pages_they_fill(client: Client, service: Running) -> None:
    job = client.enqueue("demo.sleep", {}, **LATER)

    async def add_history() -> None:
        async with service.service.database.transaction() as connection:
            await connection.execute(_MANY_EVENTS, job.id)

    service.call(add_history())
    assert [event.version for event in client.events(job.id)] == list(range(1, 2_502))


def test_cancel_answers_the_receipt(client: Client) -> None:
    job = client.enqueue("demo.sleep", {}, **LATER)
    receipt = client.cancel(job.id, reason="no longer", version=1)
    assert (receipt.outcome, receipt.state) == ("prevented", "canceled")
    cancellation = client.get(job.id).cancellation
    assert cancellation is not None
    assert cancellation.reason == "no longer"


def test_cancel_can_wait_for_the_holder(client: Client) -> None:
    job = client.enqueue("demo.sleep", {"duration_ms": 600_000})
    assert client.cancel(job.id, wait_seconds=20).outcome in {"stopped", "prevented"}


def test_retry_answers_the_job(client: Client) -> None:
    job = client.enqueue("demo.sleep", DIES, wait_seconds=20)
    assert job.state == "dead"
    back = client.retry(job.id, delay_seconds=3_600, version=job.version, reason="mended")
    assert (back.state, back.attempts) == ("queued", 0)


def test_artifacts_are_listed_and_downloaded_whole(client: Client) -> None:
    payload = {"report": "numbers", "format": "csv", "parameters": {"rows": 20_000}}
    job = client.enqueue("report.export", payload, wait_seconds=30)
    assert job.state == "succeeded", job.last_error
    (artifact,) = client.artifacts(job.id)
    data = b"".join(client.download(job.id, artifact.name))
    assert len(data) == artifact.bytes
    assert hashlib.sha256(data).hexdigest() == artifact.sha256
    assert data.splitlines()[-1] == b"20000,row 20000"


def test_an_unknown_job_is_not_found_by_every_method(client: Client) -> None:
    unknown = str(uuid4())
    for ask in (client.get, client.events, client.cancel, client.retry, client.artifacts):
        with pytest.raises(NotFound, match=unknown):
            ask(unknown)
    with pytest.raises(NotFound):
        next(client.follow(unknown))
    with pytest.raises(NotFound):
        next(client.download(unknown, "x.csv"))


def test_an_odd_id_cannot_name_another_path(client: Client) -> None:
    job = client.enqueue("demo.sleep", {}, **LATER)
    for odd in ("../dead", "..", "", "?state=dead", f"{job.id}/events", "a b#c"):
        with pytest.raises(NotFound):
            client.get(odd)
    assert client.get(str(job.id).upper()).id == job.id


def test_an_unknown_artifact_is_not_found(client: Client) -> None:
    job = client.enqueue("demo.sleep", {"duration_ms": 1}, wait_seconds=20)
    for name in ("none.csv", "../../dead", "a b?c", "..", ".", ""):
        with pytest.raises(NotFound):
            next(client.download(job.id, name))


def test_a_stale_version_is_refused_with_the_current_one(client: Client) -> None:
    job = client.enqueue("demo.sleep", {}, **LATER)
    with pytest.raises(VersionMismatch) as caught:
        client.cancel(job.id, version=9)
    assert caught.value.current_version == 1
    assert client.get(job.id).state == "queued"


def test_wrong_fields_are_each_named(client: Client) -> None:
    with pytest.raises(InvalidInput) as caught:
        client.enqueue("demo.sleep", {"duration_ms": "long"}, priority=101, colour="red")  # type: ignore[call-arg]
    assert {"/priority", "/colour"} <= {field.pointer for field in caught.value.errors}


def test_a_payload_that_its_kind_refuses_is_named_below_payload(client: Client) -> None:
    with pytest.raises(InvalidInput) as caught:
        client.enqueue("demo.sleep", {"duration_ms": "long"})
    assert [field.pointer for field in caught.value.errors] == ["/payload/duration_ms"]


def test_a_key_with_another_body_is_refused(client: Client) -> None:
    key = str(uuid4())
    client.enqueue("demo.sleep", {}, idempotency_key=key, **LATER)
    with pytest.raises(IdempotencyKeyReused):
        client.enqueue("demo.sleep", {"duration_ms": 9}, idempotency_key=key, **LATER)


def test_a_finished_job_is_neither_cancelable_nor_retryable(client: Client) -> None:
    job = client.enqueue("demo.sleep", {"duration_ms": 1}, wait_seconds=20)
    with pytest.raises(NotCancelable):
        client.cancel(job.id)
    with pytest.raises(NotRetryable):
        client.retry(job.id)
    assert client.get(job.id).version == job.version
