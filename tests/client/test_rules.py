"""What is asked again, and how long: by the table, by a clock that the test turns, and over the wire by both faces."""

import json
from collections.abc import Callable
from typing import Any, cast
from uuid import uuid4

import pytest

from tenure.client import Client, ServiceUnreachable
from tenure.client.rules import Rules, Safety, exchange
from tenure.client.steps import Failure, Heard, Pause, Reply, Send
from tenure.errors import Draining, InternalError, InvalidInput, Overloaded, TenureError
from tests.client.cutting import http
from tests.client.faces import FACES, face
from tests.client.telling import telling

PROBLEM = "application/problem+json"
SOUND = Reply(status=200, headers={"content-type": "application/json"}, body=b"{}")
REQUEST = Send(method="GET", path="/jobs", timeout_seconds=1.0)
REFUSED = Failure(words="nobody answers", sent=False)
BROKEN = Failure(words="broke off", sent=True)


def problem(status: int, code: str, **headers: str) -> Reply:
    body = {"title": "T", "status": status, "detail": "said so", "code": code}
    return Reply(status=status, headers={"content-type": PROBLEM, **headers}, body=json.dumps(body).encode())


def page(status: int, content_type: str = "text/html", body: bytes = b"<html>") -> Reply:
    return Reply(status=status, headers={"content-type": content_type}, body=body)


class Time:
    """A clock that only pauses turn."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.pauses: list[float] = []
        self.tries = 0

    def run(self, *heard: Heard, safety: Safety = Safety.REPEATABLE, chance: float = 0.5, **rules: float) -> Reply:
        """The exchange, which hears these in order, the last one again and again."""
        talk = exchange(
            REQUEST,
            safety,
            Rules(url="http://there", clock=lambda: self.now, random=lambda: chance, **rules),
        )
        step = next(talk)
        while True:
            try:
                if isinstance(step, Pause):
                    self.pauses.append(step.seconds)
                    self.now += step.seconds
                    step = talk.send(None)
                else:
                    self.tries += 1
                    step = talk.send(heard[min(self.tries, len(heard)) - 1])
            except StopIteration as end:
                return cast(Reply, end.value)


ALWAYS, CERTAIN, NEVER = "whatever is asked", "only when nothing happened", "never"
TABLE: list[tuple[str, Heard, str]] = [
    ("400", problem(400, "malformed"), NEVER),
    ("401 of a proxy", page(401), NEVER),
    ("403", problem(403, "forbidden"), NEVER),
    ("404", problem(404, "not-found"), NEVER),
    ("404 of somebody else", page(404), NEVER),
    ("405", problem(405, "method-not-allowed"), NEVER),
    ("408", problem(408, "request-timeout"), CERTAIN),
    ("409", problem(409, "lease-lost"), NEVER),
    ("412", problem(412, "version-mismatch"), NEVER),
    ("413", problem(413, "body-too-large"), NEVER),
    ("415", problem(415, "unsupported-media-type"), NEVER),
    ("422", problem(422, "invalid-input"), NEVER),
    ("429", problem(429, "overloaded"), ALWAYS),
    ("429 of a proxy", page(429), CERTAIN),
    ("500", problem(500, "internal-error"), CERTAIN),
    ("501", page(501), NEVER),
    ("502 of a proxy", page(502), CERTAIN),
    ("503 draining", problem(503, "draining"), ALWAYS),
    ("503 unavailable", problem(503, "unavailable"), ALWAYS),
    ("503 of the database", problem(503, "database-unavailable"), CERTAIN),
    ("503 of a proxy", page(503), CERTAIN),
    ("504 of a proxy", page(504), CERTAIN),
    ("302", page(302), NEVER),
    ("a page of somebody else", page(200), NEVER),
    ("half an answer", page(200, "application/json", b'{"id": '), CERTAIN),
    ("a list for an answer", page(200, "application/json", b"[1]"), CERTAIN),
    ("connection refused", REFUSED, ALWAYS),
    ("connection broken", BROKEN, CERTAIN),
    ("no address", Failure(words="no", sent=False, passing=False), NEVER),
]
"""CERTAIN: an operation that is the same when repeated is asked again; one that is not, is not."""


@pytest.mark.parametrize("safety", Safety)
@pytest.mark.parametrize(("heard", "repeated"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_the_table_says_what_is_asked_again(heard: Heard, repeated: str, safety: Safety) -> None:
    again = repeated == ALWAYS or (repeated == CERTAIN and safety is Safety.REPEATABLE)
    time = Time()
    if again:
        assert time.run(heard, heard, SOUND, safety=safety) is SOUND
        assert time.tries == 3
    else:
        with pytest.raises(TenureError):
            time.run(heard, SOUND, safety=safety)
        assert (time.tries, time.pauses) == (1, [])


@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999])
def test_pauses_are_jittered_grow_and_end_within_the_bound(chance: float) -> None:
    time = Time()
    with pytest.raises(ServiceUnreachable, match="broke off"):
        time.run(*[BROKEN] * 200, SOUND, chance=max(chance, 0.05))
    assert 3 <= time.tries <= 200
    assert sum(time.pauses) <= 30
    longest = [min(5.0, 0.2 * 2**tries) for tries in range(1, len(time.pauses) + 1)]
    assert all(0 <= pause <= bound for pause, bound in zip(time.pauses, longest, strict=True))


def test_nothing_is_asked_again_when_that_was_forbidden() -> None:
    time = Time()
    with pytest.raises(ServiceUnreachable):
        time.run(REFUSED, SOUND, retry_for_seconds=0.0)
    assert time.tries == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"retry-after": "7"},
        {"retry-after": "Wed, 21 Oct 2026 07:28:07 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"},
    ],
)
def test_retry_after_is_honoured(headers: dict[str, str]) -> None:
    time = Time()
    assert time.run(problem(429, "overloaded", **headers), SOUND) is SOUND
    (pause,) = time.pauses
    assert 7 <= pause <= 7.4


@pytest.mark.parametrize("headers", [{"retry-after": "soon"}, {"retry-after": "-3"}, {"retry-after": "Wed, 99"}, {}])
def test_a_retry_after_that_says_nothing_is_none(headers: dict[str, str]) -> None:
    time = Time()
    assert time.run(problem(429, "overloaded", **headers), SOUND) is SOUND
    assert time.pauses[0] <= 0.4


def test_a_retry_after_beyond_the_bound_is_told_at_once() -> None:
    time = Time()
    with pytest.raises(Overloaded) as caught:
        time.run(problem(429, "overloaded", **{"retry-after": "31"}), SOUND)
    assert (time.tries, caught.value.retry_after_seconds) == (1, 31)


def test_waits_stay_below_the_own_timeout() -> None:
    assert Rules(url="", timeout_seconds=10.0).wait_at_a_time(20) < 10
    assert Rules(url="").wait_at_a_time(600) == 20
    assert Rules(url="").wait_at_a_time(3) == 3


def answer(status: str, document: Any, *headers: str) -> bytes:
    kind = "application/json" if status.startswith("2") else PROBLEM
    return http(status, kind, json.dumps(document).encode(), *headers)


DRAINING = answer("503 Draining", {"code": "draining", "detail": "stopping", "status": 503}, "Retry-After: 0")
BROKEN_DATABASE = answer(
    "503 Away", {"code": "database-unavailable", "detail": "away", "status": 503}, "Retry-After: 0"
)
BUG = answer("500 Bug", {"code": "internal-error", "detail": "bug", "status": 500})
EMPTY_PAGE = answer("200 OK", {"items": [], "next_cursor": None})
NO_LEASES = answer("200 OK", {"leases": [], "directive": None})
REFUSAL = answer("422 No", {"code": "invalid-input", "detail": "no", "status": 422, "errors": []})
ID = str(uuid4())

OPERATIONS: list[tuple[str, Callable[[Client], Any], bytes, bool]] = [
    ("page", lambda client: client.page(), EMPTY_PAGE, True),
    ("list", lambda client: list(client.list()), EMPTY_PAGE, True),
    ("events", lambda client: client.events(ID), EMPTY_PAGE, True),
    ("artifacts", lambda client: client.artifacts(ID), EMPTY_PAGE, True),
    ("workers", lambda client: list(client.workers()), EMPTY_PAGE, True),
    ("enqueue_many", lambda client: client.enqueue_many([{"kind": "k"}]), EMPTY_PAGE, True),
    ("heartbeat", lambda client: client.heartbeat([{"job_id": ID, "lease_token": "t"}]), EMPTY_PAGE, True),
    ("settle", lambda client: client.settle([]), EMPTY_PAGE, True),
    ("claim", lambda client: client.claim("w", ["q"]), NO_LEASES, False),
]


@pytest.mark.parametrize("name", FACES)
@pytest.mark.parametrize(("ask", "good", "safe"), [row[1:] for row in OPERATIONS], ids=[row[0] for row in OPERATIONS])
def test_each_operation_repeats_what_is_safe(name: str, ask: Callable[[Client], Any], good: bytes, safe: bool) -> None:
    with telling(DRAINING, good) as told, face(name, told.url) as client:
        ask(client)
        assert len(told.asked) == 2
        assert told.asked[0].partition(b"\r\n\r\n")[2] == told.asked[1].partition(b"\r\n\r\n")[2]
    for lost in (b"", BROKEN_DATABASE):
        with telling(lost, good) as told, face(name, told.url) as client:
            if safe:
                ask(client)
                assert len(told.asked) == 2
            else:
                with pytest.raises((ServiceUnreachable, TenureError)):
                    ask(client)
                assert len(told.asked) == 1
    with telling(REFUSAL, good) as told, face(name, told.url) as client:
        with pytest.raises(InvalidInput):
            ask(client)
        assert len(told.asked) == 1


@pytest.mark.parametrize("name", FACES)
def test_a_retry_is_not_sent_again_when_it_may_have_happened(name: str) -> None:
    for lost in (b"", BUG, BROKEN_DATABASE):
        with telling(lost) as told, face(name, told.url) as client:
            with pytest.raises((ServiceUnreachable, InternalError, TenureError)):
                client.retry(ID)
            assert len(told.asked) == 1
    with telling(DRAINING) as told, face(name, told.url, retry_for_seconds=0.5) as client:
        with pytest.raises(Draining):
            client.retry(ID)
        assert len(told.asked) > 1


@pytest.mark.parametrize("name", FACES)
def test_one_enqueue_has_one_key_however_often_it_is_sent_and_the_next_has_another(name: str) -> None:
    with telling(b"", BUG, DRAINING, REFUSAL) as told, face(name, told.url) as client:
        for _ in range(2):
            with pytest.raises(InvalidInput):
                client.enqueue("k")
        keys = [headers["idempotency-key"] for headers in told.headers]
        assert len(set(keys[:4])) == 1
        assert keys[4] not in keys[:4]


@pytest.mark.parametrize("name", FACES)
def test_a_wait_asks_for_less_than_the_client_bears(name: str) -> None:
    with telling(REFUSAL) as told, face(name, told.url, timeout_seconds=6) as client:
        with pytest.raises(InvalidInput):
            client.enqueue("k", wait_seconds=60)
        assert told.headers[0]["prefer"] == "wait=4"


@pytest.mark.parametrize("name", FACES)
def test_headers_go_along(name: str) -> None:
    with telling(EMPTY_PAGE) as told, face(name, told.url, headers={"Authorization": "Bearer x"}) as client:
        client.page()
        assert told.headers[0]["authorization"] == "Bearer x"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object(), "\ud800"])
def test_what_json_cannot_say_is_refused_and_not_sent(value: Any) -> None:
    with telling(REFUSAL) as told, Client(told.url) as client:
        with pytest.raises(InvalidInput, match="cannot be sent as JSON"):
            client.enqueue("k", {"x": value})
        assert told.asked == []
