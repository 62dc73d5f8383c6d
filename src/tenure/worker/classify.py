"""What an exception means for its job.

Libraries' exceptions are known by the names of their classes, so that none of those libraries needs to be imported, or
even installed.
"""

import errno
import math
import socket
import ssl
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from pydantic import ValidationError

from tenure.errors import (
    CompletionUnavailable,
    ConfigurationError,
    InvalidInput,
    JobCanceled,
    Overloaded,
    PermanentError,
    PoisonError,
    RetryLater,
    Unavailable,
)
from tenure.jobs.decisions import ReportedError
from tenure.jobs.model import ErrorKind
from tenure.jobs.retry import MAX_DELAY_SECONDS
from tenure.worker.spec import UnstorableResult, field_errors

MAX_CHARACTERS = 8_000
"""More than is ever stored; the rest of a message need not travel."""

_RETRIED_STATUSES = frozenset({408, 425, 429})

_NETWORK_ERRNO_NAMES = """
EAGAIN ECONNABORTED ECONNREFUSED ECONNRESET EHOSTDOWN EHOSTUNREACH EINTR EMFILE ENETDOWN ENETRESET ENETUNREACH ENFILE
ENOBUFS ENOTCONN EPIPE ETIMEDOUT
"""

_NETWORK_ERRNOS = frozenset(getattr(errno, name) for name in _NETWORK_ERRNO_NAMES.split() if hasattr(errno, name))

# (top-level package, class name): any class of an exception's ancestry may match.
_PASSING = frozenset(
    (package, name)
    for package, names in {
        "httpx": "TransportError",
        "httpcore": "NetworkError TimeoutException ProtocolError",
        "aiohttp": "ClientConnectionError ClientPayloadError ServerTimeoutError",
        "requests": "ConnectionError Timeout ChunkedEncodingError",
        "urllib3": "TimeoutError ConnectTimeoutError NewConnectionError ProtocolError MaxRetryError",
        "asyncpg": "PostgresConnectionError InterfaceError InternalClientError OperatorInterventionError "
        "InsufficientResourcesError TransactionRollbackError LockNotAvailableError",
        "sqlalchemy": "OperationalError InterfaceError TimeoutError DisconnectionError",
        "psycopg": "OperationalError",
        "psycopg2": "OperationalError",
        "redis": "ConnectionError TimeoutError",
        "grpc": "AioRpcError",
    }.items()
    for name in names.split()
)

_WITH_STATUS = frozenset(
    {
        ("httpx", "HTTPStatusError"),
        ("requests", "HTTPError"),
        ("aiohttp", "ClientResponseError"),
        ("urllib", "HTTPError"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Classified:
    """``meant``: the exception's class says what is to happen. ``stopping``: it says that the handler stops as told."""

    error: ReportedError
    meant: bool = False
    stopping: bool = False


def classify(error: BaseException, *, now: datetime | None = None) -> Classified:
    """What to report for it. ``now`` is for a Retry-After that is a date."""
    match error:
        case BaseExceptionGroup():
            return _of_group(error, now)
        case RetryLater():
            delay = _bounded(error.after_seconds)
            return Classified(error=_reported(ErrorKind.TRANSIENT, error, retry_after_seconds=delay), meant=True)
        case PermanentError() | UnstorableResult():
            return Classified(error=_reported(ErrorKind.PERMANENT, error), meant=True)
        case PoisonError():
            return Classified(error=_reported(ErrorKind.POISON, error), meant=True)
        case JobCanceled():
            return Classified(error=_reported(ErrorKind.UNKNOWN, error), stopping=True)
        case Overloaded() | Unavailable():
            return Classified(
                error=_reported(ErrorKind.TRANSIENT, error, retry_after_seconds=error.retry_after_seconds)
            )
        case CompletionUnavailable() | ConfigurationError():
            return Classified(error=_reported(ErrorKind.PERMANENT, error))
        case InvalidInput():
            return Classified(error=_reported(ErrorKind.UNKNOWN, error, message=_of_fields(error)))
        case ValidationError():
            fields = "; ".join(f"{item.pointer or '/'}: {item.message}" for item in field_errors(error, ""))
            return Classified(error=_reported(ErrorKind.UNKNOWN, error, message=f"{error.title}: {fields}"))
    ancestry = _ancestry(error)
    if ancestry & _WITH_STATUS:
        return _of_status(error, now)
    if ancestry & _PASSING or _is_network(error):
        return Classified(error=_reported(ErrorKind.TRANSIENT, error))
    if isinstance(error, PermissionError | FileNotFoundError | NotADirectoryError | IsADirectoryError):
        return Classified(error=_reported(ErrorKind.PERMANENT, error))
    return Classified(error=_reported(ErrorKind.UNKNOWN, error))


def payload_refused(refusal: InvalidInput) -> ReportedError:
    """A payload that does not fit its kind: no attempt at it can ever succeed."""
    return ReportedError(kind=ErrorKind.PERMANENT, type="InvalidPayload", message=_of_fields(refusal)[:MAX_CHARACTERS])


def type_name(error: BaseException) -> str:
    """The qualified name of its class; builtins without their module."""
    cls = type(error)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def text_of(error: BaseException) -> str:
    """Its message, bounded; the class's name where it has none, or cannot say it."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return text[:MAX_CHARACTERS] or type_name(error)


def frames_of(error: BaseException) -> str:
    """Where it was raised: files, lines and their source, but no value, for a log is no place for payloads."""
    return "".join(traceback.format_tb(error.__traceback__))


def _reported(
    kind: ErrorKind, error: BaseException, *, message: str | None = None, retry_after_seconds: float | None = None
) -> ReportedError:
    return ReportedError(
        kind=kind,
        type=type_name(error),
        message=(message or text_of(error))[:MAX_CHARACTERS],
        retry_after_seconds=retry_after_seconds,
    )


def _of_fields(refusal: InvalidInput) -> str:
    if not refusal.errors:
        return text_of(refusal)
    return "; ".join(f"{item.pointer}: {item.message}" for item in refusal.errors)


_FINALITY = (ErrorKind.POISON, ErrorKind.PERMANENT, ErrorKind.UNKNOWN, ErrorKind.TRANSIENT)


def _of_group(group: BaseExceptionGroup[Any], now: datetime | None) -> Classified:
    """A task group's errors: the most final one decides, all are told."""
    members = [classify(error, now=now) for error in group.exceptions]
    first = min(members, key=lambda member: _FINALITY.index(member.error.kind))
    delays = [delay for member in members if (delay := member.error.retry_after_seconds) is not None]
    told = "; ".join(f"{member.error.type}: {member.error.message}" for member in members)
    return replace(
        first,
        error=replace(first.error, message=told[:MAX_CHARACTERS], retry_after_seconds=max(delays) if delays else None),
        stopping=all(member.stopping for member in members),
    )


def _ancestry(error: BaseException) -> frozenset[tuple[str, str]]:
    return frozenset((cls.__module__.partition(".")[0], cls.__name__) for cls in type(error).__mro__)


def _is_network(error: BaseException) -> bool:
    if isinstance(error, TimeoutError | ConnectionError | socket.gaierror):
        return True
    if isinstance(error, ssl.SSLError):
        # A certificate that is not trusted now will not be trusted in a second either; that is for a person to see.
        return not isinstance(error, ssl.SSLCertVerificationError)
    return isinstance(error, OSError) and error.errno in _NETWORK_ERRNOS


def _of_status(error: BaseException, now: datetime | None) -> Classified:
    response = getattr(error, "response", None)
    status = next(
        (
            value
            for holder, name in ((response, "status_code"), (error, "status"), (error, "code"))
            if isinstance(value := getattr(holder, name, None), int)
        ),
        None,
    )
    headers = getattr(response, "headers", None) or getattr(error, "headers", None) or {}
    if status is None:
        return Classified(error=_reported(ErrorKind.UNKNOWN, error))
    if status in _RETRIED_STATUSES or status >= 500:
        delay = _retry_after(headers, now or datetime.now(UTC))
        return Classified(error=_reported(ErrorKind.TRANSIENT, error, retry_after_seconds=delay))
    return Classified(error=_reported(ErrorKind.PERMANENT if status >= 400 else ErrorKind.UNKNOWN, error))


def _retry_after(headers: Any, now: datetime) -> float | None:
    """Seconds from now, out of a Retry-After in seconds or as a date; None when there is none that can be read."""
    value = _header(headers, "retry-after")
    if value is None:
        return None
    if value.isdecimal():
        return _bounded(float(value))
    try:
        moment = parsedate_to_datetime(value)
        # Against the server's own clock where it tells the time: ours may be off.
        told = _header(headers, "date")
        reference = parsedate_to_datetime(told) if told else now
        return _bounded((_aware(moment) - _aware(reference)).total_seconds())
    except (TypeError, ValueError, OverflowError):
        return None


def _header(headers: Any, name: str) -> str | None:
    if not isinstance(headers, Mapping) and not hasattr(headers, "get"):
        return None
    value = headers.get(name) or headers.get(name.title())
    return value.strip() if isinstance(value, str) else None


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _bounded(seconds: Any) -> float | None:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or math.isnan(seconds):
        return None
    return float(min(max(seconds, 0.0), MAX_DELAY_SECONDS))
