"""Every error that Tenure raises on purpose.

::

    TenureError                      code, HTTP status and title live on the class
    ├── Malformed               400  the request cannot be read at all
    ├── Forbidden               403  a scope is missing
    ├── NotFound                404  no such job, artifact, route (or not yours)
    ├── MethodNotAllowed        405
    ├── RequestTimeout          408  the body did not arrive in time
    ├── Conflict                409  the state does not allow it
    │   ├── NotCancelable            finished before any request
    │   ├── NotRetryable             neither dead nor failed
    │   ├── DeadlinePassed           a retry needs a new deadline
    │   └── LeaseLost                the token is not the current one; says why
    ├── VersionMismatch         412  If-Match or `version` is stale
    ├── BodyTooLarge            413  over a limit in bytes
    ├── UnsupportedMediaType    415
    ├── RangeNotSatisfiable     416  the file is shorter
    ├── InvalidInput            422  fields are wrong; each is named
    │   └── IdempotencyKeyReused     one key, two different bodies
    ├── Overloaded              429  capacity or rate; says when to come back
    ├── InternalError           500  a bug; the log has the same request id
    └── Unavailable             503  says when to come back
        ├── Draining                 the service is stopping
        └── DatabaseUnavailable      the database is away, slow or locked

    ConfigurationError               settings, schema or command line are wrong: for the operator
    └── SchemaMismatch               the database's schema is not the one this version knows

    HandlerError                     what a handler raises to say how its failure is meant
    ├── RetryLater                   transient, optionally with a delay in seconds
    ├── PermanentError               will never work: `failed` at once
    ├── PoisonError                  nobody should try this again: `dead` at once
    ├── JobCanceled                  the handler stopped because it was asked to
    └── CompletionUnavailable        `context.completion()` needs Tenure's own database
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

__all__ = [
    "BodyTooLarge",
    "CompletionUnavailable",
    "ConfigurationError",
    "Conflict",
    "DatabaseUnavailable",
    "DeadlinePassed",
    "Draining",
    "FieldError",
    "Forbidden",
    "HandlerError",
    "IdempotencyKeyReused",
    "InternalError",
    "InvalidInput",
    "JobCanceled",
    "LeaseLost",
    "Malformed",
    "MethodNotAllowed",
    "NotCancelable",
    "NotFound",
    "NotRetryable",
    "Overloaded",
    "PermanentError",
    "PoisonError",
    "RangeNotSatisfiable",
    "RequestTimeout",
    "RetryLater",
    "SchemaMismatch",
    "TenureError",
    "Unavailable",
    "UnsupportedMediaType",
    "VersionMismatch",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """One wrong field: where it is (a JSON pointer, or a parameter's name) and how to mend it."""

    pointer: str
    message: str


class TenureError(Exception):
    """The root of all errors a caller of Tenure can be answered with.

    ``detail`` is one sentence for a person; ``extensions`` are further members of the problem document.
    """

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "Error"

    def __init__(self, detail: str, **extensions: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.extensions = extensions


class Malformed(TenureError):
    code, status, title = "malformed", 400, "The request cannot be read"


class Forbidden(TenureError):
    code, status, title = "forbidden", 403, "Not allowed"


class NotFound(TenureError):
    code, status, title = "not-found", 404, "Not found"


class MethodNotAllowed(TenureError):
    code, status, title = "method-not-allowed", 405, "Method not allowed"

    def __init__(self, detail: str, *, allow: str) -> None:
        super().__init__(detail)
        self.allow = allow


class RequestTimeout(TenureError):
    code, status, title = "request-timeout", 408, "The request took too long to arrive"


class Conflict(TenureError):
    code, status, title = "conflict", 409, "The job's state does not allow this"


class NotCancelable(Conflict):
    code, title = "not-cancelable", "The job has already finished"


class NotRetryable(Conflict):
    code, title = "not-retryable", "Only dead and failed jobs can be retried"


class DeadlinePassed(Conflict):
    code, title = "deadline-passed", "The job's deadline has passed"


class LeaseLost(Conflict):
    """The caller does not hold the job. ``reason`` is one of expired, superseded, settled, finished, canceled, unknown;
    ``result_discarded``: what was reported was a result, and it is not kept.
    """

    code, title = "lease-lost", "This lease is not the job's current one"

    def __init__(
        self, detail: str, *, reason: str, current_attempt: int | None, result_discarded: bool = False
    ) -> None:
        super().__init__(detail, reason=reason, current_attempt=current_attempt, result_discarded=result_discarded)
        self.reason = reason
        self.current_attempt = current_attempt
        self.result_discarded = result_discarded


class VersionMismatch(TenureError):
    code, status, title = "version-mismatch", 412, "The job has changed since"

    def __init__(self, detail: str, *, current_version: int) -> None:
        super().__init__(detail, current_version=current_version)
        self.current_version = current_version


class BodyTooLarge(TenureError):
    code, status, title = "body-too-large", 413, "Too large"


class UnsupportedMediaType(TenureError):
    code, status, title = "unsupported-media-type", 415, "Unsupported media type"


class InvalidInput(TenureError):
    """Fields are wrong; nothing was changed. ``errors`` names each."""

    code, status, title = "invalid-input", 422, "The input is not valid"

    def __init__(self, detail: str, *, errors: Sequence[FieldError] = ()) -> None:
        super().__init__(detail)
        self.errors = tuple(errors)

    @classmethod
    def of(cls, pointer: str, message: str) -> "InvalidInput":
        """One wrong field; its message is the detail, too."""
        return cls(f"{pointer.strip('/') or 'body'}: {message}", errors=[FieldError(pointer=pointer, message=message)])


class IdempotencyKeyReused(InvalidInput):
    code, title = "idempotency-key-reused", "The idempotency key belongs to another request"


class Overloaded(TenureError):
    code, status, title = "overloaded", 429, "Too many requests"

    def __init__(self, detail: str, *, retry_after_seconds: float = 1.0) -> None:
        super().__init__(detail)
        self.retry_after_seconds = retry_after_seconds


class RangeNotSatisfiable(TenureError):
    code, status, title = "range-not-satisfiable", 416, "There is nothing in this range"


class InternalError(TenureError):
    code, status, title = "internal-error", 500, "Something is broken here"


class Unavailable(TenureError):
    code, status, title = "unavailable", 503, "Not available now"

    def __init__(self, detail: str, *, retry_after_seconds: float = 1.0) -> None:
        super().__init__(detail)
        self.retry_after_seconds = retry_after_seconds


class Draining(Unavailable):
    code, title = "draining", "The service is stopping"


class DatabaseUnavailable(Unavailable):
    code, title = "database-unavailable", "The database cannot answer now"


class ConfigurationError(Exception):
    """Something only the operator can mend: the message says what and how."""


class SchemaMismatch(ConfigurationError):
    """The database's schema is not one that this version can run on."""


class HandlerError(Exception):
    """The root of what a handler raises to say how its failure is meant."""


class RetryLater(HandlerError):
    """A passing fault. ``after_seconds`` (≥ 0) asks for at least that delay; else the kind's backoff decides."""

    def __init__(self, message: str = "", *, after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.after_seconds = after_seconds


class PermanentError(HandlerError):
    """This input will never work: the job becomes `failed` at once, no attempt is spent on it again."""


class PoisonError(HandlerError):
    """This job is dangerous or unreadable: it becomes `dead` at once, for an operator to look at."""


class JobCanceled(HandlerError):
    """The handler stopped because cancellation was requested. Raised by ``context.raise_if_canceled()``."""


class CompletionUnavailable(HandlerError):
    """``context.completion()`` commits in Tenure's own database, which this worker reaches only over HTTP."""
