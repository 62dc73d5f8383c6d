"""Trouble on the way: lost answers, nobody there, somebody else there, problems of every class."""

import json
import socket
from uuid import uuid4

import pytest

from tenure import errors
from tenure.client import Client, ServiceUnreachable
from tenure.errors import ConfigurationError, LeaseLost, Overloaded, TenureError, Unavailable
from tests.client.cutting import answering, http, line_to
from tests.running import Running

PROBLEM = "application/problem+json"


def problem(status: int, code: str, **members: object) -> bytes:
    body = {"type": "about:blank", "title": "T", "status": status, "detail": "said so", "code": code, **members}
    return json.dumps(body).encode()


def test_an_enqueue_whose_answer_is_lost_makes_one_job(service: Running, client: Client) -> None:
    tag = uuid4().hex
    with line_to(service.url, lose_answers=2) as line, Client(line.url) as far:
        job = far.enqueue("demo.sleep", {}, tags=[tag], delay_seconds=3_600)
        assert all(b" 202 " in answer or b" 200 " in answer for answer in line.lost)
        assert len(line.lost) == 2
    assert [found.id for found in client.list(tag=tag)] == [job.id]


def test_an_enqueue_gives_up_after_a_few_tries(service: Running) -> None:
    with line_to(service.url, lose_answers=100) as line, Client(line.url, retry_for_seconds=1) as far:
        with pytest.raises(ServiceUnreachable, match="broke off"):
            far.enqueue("demo.sleep", {}, delay_seconds=3_600)
        assert 1 < line.connections < 10


def test_nobody_there_is_said_with_what_to_do() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # never listens: connections are refused, and nobody else can take it
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with Client(url, retry_for_seconds=0) as client:
            for ask in (lambda: client.get(str(uuid4())), lambda: next(client.follow(str(uuid4())))):
                with pytest.raises(ServiceUnreachable, match=f"nobody answers at {url}.*tenure serve"):
                    ask()
            with pytest.raises(ServiceUnreachable):
                client.enqueue("demo.sleep", {})


@pytest.mark.parametrize(
    "answer",
    [
        http("200 OK", "text/html", b"<html>hello</html>"),
        http("404 Not Found", "text/html", b"<html>who?</html>"),
        http("200 OK", "application/json", b"[1, 2]"),
        http("200 OK", "application/json", b'{"hello": "world"}'),
        http("500 Oh", "application/json", b'{"message": "else"}'),
        http("302 Found", "text/html", b"", "Location: /login"),
        http("200 OK", "application/json", b"\xff\xfe"),
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"",
    ],
)
def test_somebody_else_is_not_taken_for_tenure(answer: bytes) -> None:
    with answering(answer) as url, Client(url, retry_for_seconds=0) as client:
        for ask in (
            client.page,
            lambda: client.artifacts(str(uuid4())),
            lambda: client.events(str(uuid4())),
            lambda: next(client.follow(str(uuid4()))),
        ):
            with pytest.raises(ServiceUnreachable) as caught:
                ask()
            assert url in str(caught.value)


@pytest.mark.parametrize("address", ["http://[x", "http://127.0.0.1:99999", "http://host:port"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises((ConfigurationError, ServiceUnreachable)), Client(address) as client:
        client.page()


@pytest.mark.parametrize(
    "kind",
    sorted(
        {v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, TenureError)} - {TenureError},
        key=str,
    ),
)
def test_a_problem_becomes_the_class_of_its_code(kind: type[TenureError]) -> None:
    body = problem(kind.status, kind.code, reason="expired", current_attempt=2, current_version=7, errors=[])
    with (
        answering(http(f"{kind.status} X", PROBLEM, body, "Retry-After: 3", "Allow: GET")) as url,
        Client(url, retry_for_seconds=0) as client,
        pytest.raises(kind) as caught,
    ):
        client.page()
    assert type(caught.value) is kind
    assert str(caught.value) == "said so"
    if isinstance(caught.value, LeaseLost):
        assert (caught.value.reason, caught.value.current_attempt) == ("expired", 2)
    if isinstance(caught.value, Unavailable | Overloaded):
        assert caught.value.retry_after_seconds == 3


def test_a_code_of_a_later_version_is_an_error_all_the_same() -> None:
    body = problem(409, "not-invented-yet", colour="blue")
    with (
        answering(http("409 X", PROBLEM, body)) as url,
        Client(url, retry_for_seconds=0) as client,
        pytest.raises(TenureError, match="said so") as caught,
    ):
        client.page()
    assert caught.value.extensions == {"colour": "blue"}


def test_a_date_as_retry_after_is_no_stumbling_block() -> None:
    body = problem(503, "unavailable")
    with (
        answering(http("503 X", PROBLEM, body, "Retry-After: Wed, 21 Oct 2026 07:28:00 GMT")) as url,
        Client(url, retry_for_seconds=0) as client,
        pytest.raises(Unavailable) as caught,
    ):
        client.page()
    assert caught.value.retry_after_seconds >= 0
