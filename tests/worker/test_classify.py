"""What an exception means: the table, and what may not be said."""

import asyncio
import errno
import socket
import ssl
import urllib.error
from datetime import UTC, datetime, timedelta
from email.message import Message
from email.utils import format_datetime
from typing import Any

import asyncpg
import httpx
import pytest
import sqlalchemy.exc
from pydantic import BaseModel, TypeAdapter, ValidationError

from tenure.errors import (
    CompletionUnavailable,
    DatabaseUnavailable,
    InvalidInput,
    JobCanceled,
    Overloaded,
    PermanentError,
    PoisonError,
    RetryLater,
)
from tenure.jobs.model import ErrorKind
from tenure.worker.classify import MAX_CHARACTERS, classify
from tenure.worker.spec import UnstorableResult

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def answered(status: int, **headers: str) -> httpx.HTTPStatusError:
    request = httpx.Request("GET", "https://api.example/things")
    response = httpx.Response(status, request=request, headers={k.replace("_", "-"): v for k, v in headers.items()})
    try:
        response.raise_for_status()
    except httpx.HTTPStatusError as error:
        return error
    raise AssertionError(status)


def refused_by_urllib(status: int) -> urllib.error.HTTPError:
    headers = Message()
    headers["Retry-After"] = "7"
    return urllib.error.HTTPError("https://api.example", status, "no", headers, None)


TRANSIENT: list[BaseException] = [
    RetryLater("busy"),
    TimeoutError(),
    ConnectionError("refused"),
    ConnectionResetError(errno.ECONNRESET, "reset"),
    BrokenPipeError(errno.EPIPE, "pipe"),
    OSError(errno.EHOSTUNREACH, "no route"),
    OSError(errno.EMFILE, "too many files"),
    socket.gaierror(socket.EAI_AGAIN, "try again"),
    ssl.SSLError("handshake"),
    httpx.ConnectError("x"),
    httpx.ReadTimeout("x"),
    httpx.RemoteProtocolError("x"),
    *[answered(status) for status in (408, 425, 429, 500, 502, 503, 504, 599)],
    refused_by_urllib(503),
    asyncpg.ConnectionDoesNotExistError("gone"),
    asyncpg.AdminShutdownError("restart"),
    asyncpg.CannotConnectNowError("starting"),
    asyncpg.TooManyConnectionsError("full"),
    asyncpg.DeadlockDetectedError("deadlock"),
    asyncpg.SerializationError("again"),
    asyncpg.LockNotAvailableError("locked"),
    asyncpg.InterfaceError("closed"),
    sqlalchemy.exc.OperationalError("SELECT 1", {}, Exception("x")),
    sqlalchemy.exc.TimeoutError("pool"),
    DatabaseUnavailable("away"),
    Overloaded("full"),
]

PERMANENT: list[BaseException] = [
    PermanentError("never"),
    UnstorableResult("too large"),
    CompletionUnavailable("over HTTP"),
    PermissionError(errno.EACCES, "no"),
    FileNotFoundError(errno.ENOENT, "no"),
    IsADirectoryError(errno.EISDIR, "no"),
    *[answered(status) for status in (400, 401, 403, 404, 409, 410, 422, 451)],
    refused_by_urllib(404),
]

UNKNOWN: list[BaseException] = [
    ValueError("bug"),
    KeyError("bug"),
    RecursionError(),
    MemoryError(),
    SystemExit(1),
    KeyboardInterrupt(),
    asyncio.CancelledError(),
    JobCanceled("without a request"),
    OSError(errno.ENOSPC, "disk full"),
    ssl.SSLCertVerificationError("self-signed"),
    answered(304),
    asyncpg.UniqueViolationError("twice"),
    asyncpg.UndefinedTableError("bug"),
    sqlalchemy.exc.IntegrityError("INSERT", {}, Exception("x")),
    InvalidInput.of("/x", "wrong"),
]

CASES = [
    *[(error, ErrorKind.TRANSIENT) for error in TRANSIENT],
    *[(error, ErrorKind.PERMANENT) for error in PERMANENT],
    *[(error, ErrorKind.UNKNOWN) for error in UNKNOWN],
    (PoisonError("kills"), ErrorKind.POISON),
]


@pytest.mark.parametrize(("error", "kind"), CASES, ids=[f"{type(error).__name__}-{kind}" for error, kind in CASES])
def test_each_exception_has_its_kind(error: BaseException, kind: ErrorKind) -> None:
    told = classify(error).error
    assert told.kind is kind
    assert told.message
    assert told.type is not None
    assert told.type.rpartition(".")[2] == type(error).__qualname__


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (RetryLater("x", after_seconds=12), 12.0),
        (RetryLater("x", after_seconds=-5), 0.0),
        (RetryLater("x", after_seconds=float("inf")), 31_536_000.0),
        (RetryLater("x", after_seconds=float("nan")), None),
        (RetryLater("x", after_seconds="5"), None),  # type: ignore[arg-type]
        (RetryLater("x"), None),
        (answered(429, Retry_After="30"), 30.0),
        (answered(503, Retry_After=" 0 "), 0.0),
        (answered(503, Retry_After="1" * 400), 31_536_000.0),
        (answered(503, Retry_After=format_datetime(NOW + timedelta(seconds=90), usegmt=True)), 90.0),
        (answered(503, Retry_After=format_datetime(NOW - timedelta(seconds=90), usegmt=True)), 0.0),
        (
            answered(
                503,
                Retry_After=format_datetime(NOW + timedelta(hours=1, seconds=20), usegmt=True),
                Date=format_datetime(NOW + timedelta(hours=1), usegmt=True),
            ),
            20.0,
        ),
        (answered(503, Retry_After="soon"), None),
        (answered(503, Retry_After="Wed, 99 Foo 2026"), None),
        (answered(503, Retry_After="-3"), None),
        (answered(404, Retry_After="30"), None),
        (refused_by_urllib(503), 7.0),
        (Overloaded("x", retry_after_seconds=3), 3.0),
    ],
)
def test_a_delay_that_was_asked_for_is_honoured_within_bounds(error: BaseException, seconds: float | None) -> None:
    assert classify(error, now=NOW).error.retry_after_seconds == seconds


def test_libraries_that_are_not_installed_are_known_by_name() -> None:
    for package, name, kind in [
        ("aiohttp.client_exceptions", "ClientConnectionError", ErrorKind.TRANSIENT),
        ("redis.exceptions", "ConnectionError", ErrorKind.TRANSIENT),
        ("requests.exceptions", "Timeout", ErrorKind.TRANSIENT),
        ("mylib.redis.exceptions", "ConnectionError", ErrorKind.UNKNOWN),
        ("redis.exceptions", "DataError", ErrorKind.UNKNOWN),
    ]:
        base = type(name, (Exception,), {"__module__": package})
        error = type("Special", (base,), {"__module__": "mine"})("x")
        assert classify(error).error.kind is kind, (package, name)


@pytest.mark.parametrize(
    ("errors", "kind"),
    [
        ([TimeoutError(), ConnectionError()], ErrorKind.TRANSIENT),
        ([TimeoutError(), ValueError("bug")], ErrorKind.UNKNOWN),
        ([ValueError("bug"), PermanentError("no")], ErrorKind.PERMANENT),
        ([PermanentError("no"), PoisonError("kills")], ErrorKind.POISON),
    ],
)
def test_of_a_task_group_s_errors_the_most_final_decides_and_all_are_told(
    errors: list[Exception], kind: ErrorKind
) -> None:
    told = classify(ExceptionGroup("outer", [ExceptionGroup("inner", errors)])).error
    assert told.kind is kind
    for error in errors:
        assert type(error).__name__ in told.message


def test_a_group_s_longest_delay_holds() -> None:
    group = ExceptionGroup("x", [RetryLater("a", after_seconds=3), RetryLater("b", after_seconds=9), TimeoutError()])
    assert classify(group).error.retry_after_seconds == 9.0


class Inner(BaseModel):
    age: int


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("cannot even say it")


def test_a_validation_error_tells_where_and_why_but_not_what() -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(list[Inner]).validate_python([{"age": "hunter2-secret"}])
    told = classify(caught.value).error
    assert "/0/age" in told.message
    assert "hunter2" not in told.message


def test_a_message_is_bounded_and_never_empty() -> None:
    assert len(classify(ValueError("x" * 100_000)).error.message) == MAX_CHARACTERS
    assert classify(ValueError()).error.message == "ValueError"
    assert classify(Mute()).error.message.endswith("Mute")


def test_only_what_a_handler_raises_on_purpose_is_meant() -> None:
    meant: list[Any] = [RetryLater("x"), PermanentError("x"), PoisonError("x"), UnstorableResult("x")]
    assert all(classify(error).meant for error in meant)
    assert not any(
        classify(error).meant for error in [ValueError("x"), TimeoutError(), answered(404), JobCanceled("x")]
    )
    assert classify(JobCanceled("x")).stopping
    assert classify(ExceptionGroup("x", [JobCanceled("x")])).stopping
