"""Every error survives the way over HTTP."""

import inspect
import json
from typing import Any

import pytest

from tenure import errors
from tenure.errors import (
    BodyTooLarge,
    DatabaseUnavailable,
    FieldError,
    IdempotencyKeyReused,
    InvalidInput,
    LeaseLost,
    MethodNotAllowed,
    NotFound,
    Overloaded,
    TenureError,
    Unavailable,
    VersionMismatch,
)
from tenure.wire.problems import error_from, problem_of

SPECIAL: dict[type[TenureError], TenureError] = {
    LeaseLost: LeaseLost("lost", reason="superseded", current_attempt=4),
    VersionMismatch: VersionMismatch("stale", current_version=7),
    MethodNotAllowed: MethodNotAllowed("no", allow="GET"),
    InvalidInput: InvalidInput.of("/a", "is wrong"),
    IdempotencyKeyReused: IdempotencyKeyReused("again", errors=[FieldError(pointer="/k", message="used")]),
    Overloaded: Overloaded("later", retry_after_seconds=4.5),
    DatabaseUnavailable: DatabaseUnavailable("away", retry_after_seconds=2.5),
    BodyTooLarge: BodyTooLarge("large", limit_bytes=10),
}
CLASSES = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, TenureError)]


@pytest.mark.parametrize("cls", [cls for cls in CLASSES if cls is not TenureError])
def test_error_comes_back_as_its_own_class(cls: type[TenureError]) -> None:
    error = SPECIAL.get(cls) or cls("what happened")
    problem = json.loads(json.dumps(problem_of(error, instance="/jobs", request_id="r1")))
    back = error_from(problem)
    assert type(back) is cls
    assert back.detail == error.detail
    assert back.extensions == error.extensions
    for name in ("reason", "current_attempt", "current_version", "errors", "retry_after_seconds"):
        assert getattr(back, name, None) == getattr(error, name, None)


def test_codes_are_unique() -> None:
    codes = [cls.code for cls in CLASSES]
    assert len(codes) == len(set(codes))


def test_members_stand_in_the_order_of_the_standard() -> None:
    problem = problem_of(SPECIAL[LeaseLost], instance="/jobs/1", request_id="r1")
    assert list(problem) == [
        "type", "title", "status", "detail", "instance", "code", "request_id", "reason", "current_attempt",
        "result_discarded",
    ]  # fmt: skip
    assert problem["type"] == "urn:tenure:problem:lease-lost"


@pytest.mark.parametrize(
    ("problem", "cls"),
    [
        ({"code": "from-the-future", "status": 404, "detail": "x"}, NotFound),
        ({"status": 503}, Unavailable),
        ({"status": 422, "errors": "nonsense"}, InvalidInput),
        ({"status": 418}, TenureError),
        ({}, TenureError),
        ({"code": ["lease-lost"], "status": "409"}, TenureError),
        ({"code": "lease-lost"}, LeaseLost),
    ],
)
def test_document_of_another_version_is_still_an_error(problem: dict[str, Any], cls: type[TenureError]) -> None:
    assert type(error_from(problem)) is cls
