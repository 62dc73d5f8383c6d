"""Errors as problem documents (RFC 9457), and back into the same classes on the client's side."""

import inspect
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from tenure import errors
from tenure.errors import FieldError, InvalidInput, LeaseLost, MethodNotAllowed, Overloaded, TenureError, Unavailable
from tenure.errors import VersionMismatch as _VersionMismatch
from tenure.wire.reading import Answer

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:tenure:problem:"

_CLASSES: dict[str, type[TenureError]] = {
    cls.code: cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, TenureError) and cls is not TenureError
}
_STANDARD = frozenset({"type", "title", "status", "detail", "instance", "code", "request_id", "errors"})


class ProblemField(Answer):
    """One wrong field."""

    pointer: str = Field(description="JSON pointer into the body, or the name of a query parameter or header")
    message: str = Field(description="what is wrong and how to mend it")


class Problem(Answer):
    """What went wrong (RFC 9457). `code` never changes its meaning; further members depend on it."""

    type: str = Field(description="a URN that ends in `code`")
    title: str = Field(description="the kind of problem, for people")
    status: int = Field(description="the HTTP status")
    detail: str = Field(description="what happened this time, for people")
    instance: str | None = Field(None, description="the path that was asked for")
    code: str = Field(description="the kind of problem, for programs")
    request_id: str | None = Field(None, description="as in the X-Request-Id header, and in the service's log")
    errors: list[ProblemField] | None = Field(None, description="the wrong fields, where there are any")
    retry_after_seconds: float | None = Field(None, description="come back after this many seconds (429, 503)")
    reason: str | None = Field(
        None, description="of lease-lost: expired, superseded, settled, finished, canceled or unknown"
    )
    current_attempt: int | None = Field(None, description="of lease-lost: the attempt that the job is at")
    result_discarded: bool | None = Field(None, description="of lease-lost: a result was reported, and is not kept")
    current_version: int | None = Field(None, description="of version-mismatch: the version that the job is at")


def problem_of(error: TenureError, *, instance: str | None = None, request_id: str | None = None) -> dict[str, Any]:
    """The members of the problem document, in order."""
    problem: dict[str, Any] = {
        "type": TYPE_PREFIX + error.code,
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
    }
    if instance is not None:
        problem["instance"] = instance
    problem["code"] = error.code
    if request_id is not None:
        problem["request_id"] = request_id
    if isinstance(error, InvalidInput):
        problem["errors"] = [{"pointer": field.pointer, "message": field.message} for field in error.errors]
    if isinstance(error, Overloaded | Unavailable):
        problem["retry_after_seconds"] = error.retry_after_seconds
    return problem | error.extensions


def error_from(problem: Mapping[str, Any], *, status: int | None = None) -> TenureError:
    """The exception that a problem document stands for; an unknown code becomes the class of its status.

    Never raises by itself: what is missing or mistyped in the document is filled in.
    """
    cls = _class_of(problem.get("code"), problem.get("status", status))
    detail = str(problem.get("detail") or problem.get("title") or cls.title)
    if issubclass(cls, LeaseLost):
        return cls(
            detail,
            reason=str(problem.get("reason", "unknown")),
            current_attempt=problem.get("current_attempt"),
            result_discarded=problem.get("result_discarded") is True,
        )
    if issubclass(cls, _VersionMismatch):
        return cls(detail, current_version=int(problem.get("current_version") or 0))
    if issubclass(cls, MethodNotAllowed):
        return cls(detail, allow=str(problem.get("allow", "")))
    if issubclass(cls, InvalidInput):
        return cls(detail, errors=_fields(problem.get("errors")))
    if issubclass(cls, Overloaded | Unavailable):
        return cls(detail, retry_after_seconds=_seconds(problem.get("retry_after_seconds")))
    error = cls(detail)
    error.extensions = {name: value for name, value in problem.items() if name not in _STANDARD}
    return error


def _class_of(code: Any, status: Any) -> type[TenureError]:
    if isinstance(code, str) and code in _CLASSES:
        return _CLASSES[code]
    same_status = [cls for cls in _CLASSES.values() if cls.status == status]
    # The one nearest the root: a class that says no more than its status does.
    return min(same_status, key=lambda cls: len(cls.__mro__), default=TenureError)


def _fields(value: Any) -> list[FieldError]:
    fields = value if isinstance(value, list) else []
    return [
        FieldError(pointer=str(field.get("pointer", "")), message=str(field.get("message", "")))
        for field in fields
        if isinstance(field, Mapping)
    ]


def _seconds(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 1.0
