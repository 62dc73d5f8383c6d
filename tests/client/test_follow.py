"""Following a job: every event once and in order, whatever happens to the connection."""

from collections.abc import Iterable
from uuid import UUID

import pytest

from tenure.client import Client, ServiceUnreachable
from tenure.wire.jobs import Event
from tests.client.conftest import AWKWARD
from tests.client.cutting import line_to
from tests.running import Running

DIES_TWICE = {"duration_ms": 1, "fail": True, "fail_times": 2}


def followed(client: Client, job_id: UUID) -> list[Event]:
    return [item for item in client.follow(job_id) if isinstance(item, Event)]


def types(events: Iterable[Event]) -> list[str]:
    return [event.type for event in events]


def test_it_tells_every_event_in_order_and_ends_with_the_job(client: Client) -> None:
    job = client.enqueue("demo.sleep", {"duration_ms": 50})
    events = followed(client, job.id)
    assert types(events) == ["enqueued", "leased", "succeeded"]
    assert events == client.events(job.id)


def test_it_tells_the_history_of_a_finished_job_and_ends(client: Client) -> None:
    job = client.enqueue("demo.sleep", {"duration_ms": 1}, wait_seconds=20)
    assert types(followed(client, job.id)) == ["enqueued", "leased", "succeeded"]


def test_it_ends_with_a_dead_job(client: Client) -> None:
    job = client.enqueue("demo.sleep", DIES_TWICE, max_attempts=1, wait_seconds=20)
    assert types(followed(client, job.id)) == ["enqueued", "leased", "dead"]


def test_it_goes_on_over_an_end_that_was_retried(client: Client) -> None:
    job = client.enqueue("demo.sleep", DIES_TWICE, max_attempts=2, wait_seconds=20)
    client.retry(job.id)
    assert client.get(job.id, wait_seconds=20).state == "succeeded"
    assert types(followed(client, job.id)) == [
        "enqueued", "leased", "retry_scheduled", "leased", "dead", "manual_retry", "leased", "succeeded",
    ]  # fmt: skip


def test_a_retry_while_it_looks_whether_that_was_the_end_is_not_missed(client: Client, service: Running) -> None:
    job = client.enqueue("demo.sleep", DIES_TWICE, max_attempts=2)
    seen = []
    with Client(service.url) as operator:
        for item in client.follow(job.id):
            seen.append(item.type if isinstance(item, Event) else "progress")
            if seen[-1] == "dead":  # before the follower has asked
                operator.retry(job.id)
                assert operator.get(job.id, wait_seconds=20).state == "succeeded"
    assert seen[-4:] == ["dead", "manual_retry", "leased", "succeeded"]


@pytest.mark.parametrize("cut_after", [700, 800, 900, 1_000, 1_200, 1_500])
def test_it_resumes_where_it_was_when_the_connection_breaks(client: Client, service: Running, cut_after: int) -> None:
    job = client.enqueue("demo.sleep", DIES_TWICE, max_attempts=5, wait_seconds=20)
    with line_to(service.url, cut_after=cut_after) as line, Client(line.url) as far:
        assert followed(far, job.id) == client.events(job.id)
        assert line.cut_after is None
        assert line.connections > 1


def test_it_gives_up_on_a_service_that_stays_away(service: Running) -> None:
    with line_to(service.url) as line, Client(line.url, patience_seconds=0.2) as far:
        job = far.enqueue("demo.sleep", {"duration_ms": 600_000})
        events = (item for item in far.follow(job.id) if isinstance(item, Event))
        assert next(events).type == "enqueued"
        line.stop()
        with pytest.raises(ServiceUnreachable, match=line.url):
            list(events)
    with Client(service.url) as near:
        near.cancel(job.id)


def test_texts_with_other_ends_of_lines_come_through_whole(client: Client) -> None:
    job = client.enqueue("test.awkward", max_attempts=1, wait_seconds=20)
    last = followed(client, job.id)[-1]
    assert (last.type, last.detail["error"]["message"]) == ("dead", AWKWARD)
