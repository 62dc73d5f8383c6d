"""Query parameters: known, given once unless they are lists, and cursors that nobody needs to understand."""

import base64
import binascii
import typing
from typing import Any, TypeVar
from uuid import UUID

from starlette.requests import Request

from tenure.errors import FieldError, InvalidInput
from tenure.wire.reading import MAX_ERRORS, did_you_mean, invalid, read
from tenure.wire.reading import Request as WireRequest

ModelT = TypeVar("ModelT", bound=WireRequest)

_COMMA_SEPARATED = frozenset({"include"})


def read_query(request: Request, model: type[ModelT]) -> ModelT:
    """The query as this model. Raises InvalidInput that names unknown, repeated and wrong parameters."""
    if not request.scope["query_string"]:
        return read(model, {}, in_query=True)
    values: dict[str, Any] = {}
    problems: list[FieldError] = []
    for name, value in request.query_params.multi_items():
        field = model.model_fields.get(name)
        if field is None:
            hint = did_you_mean(name, list(model.model_fields)) if model.model_fields else "none is taken here"
            problems.append(FieldError(pointer=name, message=f"there is no such parameter; {hint}"))
        elif typing.get_origin(field.annotation) is list:
            parts = value.split(",") if name in _COMMA_SEPARATED else [value]
            values.setdefault(name, []).extend(parts)
        elif name in values:
            problems.append(FieldError(pointer=name, message="is given more than once"))
        else:
            values[name] = value
        if len(problems) == MAX_ERRORS:
            break
    if problems:
        raise invalid(problems)
    return read(model, values, in_query=True)


def job_cursor(job_id: UUID) -> str:
    """The cursor after this job."""
    return base64.urlsafe_b64encode(job_id.bytes).decode().rstrip("=")


def read_job_cursor(cursor: str | None) -> UUID | None:
    """The job that the page before ended with. Raises InvalidInput for what no page has given."""
    return None if cursor is None else UUID(bytes=_decoded(cursor, length=16))


def version_cursor(version: int) -> str:
    """The cursor after the event of this version."""
    return base64.urlsafe_b64encode(version.to_bytes(4)).decode().rstrip("=")


def read_version_cursor(cursor: str | None) -> int:
    """The version that the page before ended with; 0 at the beginning. Raises InvalidInput."""
    version = 0 if cursor is None else int.from_bytes(_decoded(cursor, length=4))
    if version > 2_147_483_647:
        raise _bad_cursor()
    return version


def _decoded(cursor: str, *, length: int) -> bytes:
    try:
        decoded = base64.b64decode(cursor.encode("ascii") + b"==", altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        raise _bad_cursor() from None
    if len(decoded) != length:
        raise _bad_cursor()
    return decoded


def _bad_cursor() -> InvalidInput:
    return InvalidInput.of("cursor", "is none that an answer has given; begin without one")
