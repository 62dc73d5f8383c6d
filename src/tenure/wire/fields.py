"""The types of single fields: what a name, a time, a number of seconds may be, and the sentence when it is not."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from tenure.jobs.text import MAX_ATTEMPTS, MAX_PRIORITY, MIN_PRIORITY, NAME_PATTERN, NAME_RULE, is_name
from tenure.wire.json import dumps

MAX_METADATA_BYTES = 16_384
MAX_SECONDS = 31_536_000.0
"""A year: beyond it a delay or a timeout is a mistake, and dates stay within range."""

_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:[Zz]|[+-]\d{2}:\d{2})")
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)
"""The database's driver takes this one for infinity, which is no moment that can be compared."""

_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")


def _name(value: str) -> str:
    # Not `pattern=`: its `$` lets a final newline pass in one engine, and its message is a regular expression.
    if not is_name(value):
        raise ValueError(NAME_RULE)
    return value


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError("takes printable characters only (no line breaks, no control characters)")
    return value


def _free_of_controls(value: str) -> str:
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in value):
        raise ValueError("takes no control characters")
    return value


def parse_time(value: Any) -> datetime:
    """An RFC 3339 time with an offset, between 1970 and 9999. Raises ValueError with how to mend it."""
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str):
        raise ValueError("should be an RFC 3339 time like 2030-01-31T12:00:00Z")
    if not _TIME.fullmatch(value):
        raise ValueError("should be an RFC 3339 time with an offset, like 2030-01-31T12:00:00Z")
    try:
        moment = datetime.fromisoformat(value.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("is no moment of the calendar between the years 1970 and 9999") from None
    if not 1970 <= moment.year <= 9999:
        raise ValueError("must lie between the years 1970 and 9999")
    if moment == _END_OF_TIME:
        raise ValueError("must be earlier than 9999-12-31T23:59:59.999999Z")
    return moment


def _time_in_query(value: Any) -> Any:
    # A plus sign in a query is a space to every form decoder; nobody means a space before an offset.
    return value.replace(" ", "+") if isinstance(value, str) and "T" in value.upper() else value


def _uuid(value: Any) -> UUID:
    if isinstance(value, UUID):
        return value
    if not isinstance(value, str) or not _UUID.fullmatch(value):
        raise ValueError("should be a UUID, like 0198f3a0-7c1e-7b5e-9d53-1f0f3f6c0a11")
    return UUID(value)


def _whole_number(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not _INTEGER.fullmatch(value):
        raise ValueError("should be a whole number")
    return int(value)


def _metadata(value: dict[str, Any]) -> dict[str, Any]:
    if len(dumps(value)) > MAX_METADATA_BYTES:
        raise ValueError(f"takes at most {MAX_METADATA_BYTES:,} bytes as JSON; put what is larger into the payload")
    return value


def valid_traceparent(value: str) -> str | None:
    """The W3C trace context header, if it is one: a broken one is ignored, as its standard demands."""
    return value if len(value) <= 255 and value.isascii() and _TRACEPARENT.fullmatch(value) else None


_TIME_SCHEMA = WithJsonSchema({"type": "string", "format": "date-time"})

Name = Annotated[
    str,
    Field(min_length=1, max_length=200),
    AfterValidator(_name),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 200, "pattern": f"^{NAME_PATTERN}$"}),
]
Key = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(_printable)]
WorkerId = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]
Reason = Annotated[str, Field(max_length=1_000), AfterValidator(_free_of_controls)]
Tag = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_free_of_controls)]
Tags = Annotated[list[Tag], Field(max_length=20)]
Metadata = Annotated[dict[str, Any], AfterValidator(_metadata)]
Time = Annotated[datetime, BeforeValidator(parse_time), _TIME_SCHEMA]
TimeInQuery = Annotated[datetime, BeforeValidator(parse_time), BeforeValidator(_time_in_query), _TIME_SCHEMA]
Id = Annotated[UUID, BeforeValidator(_uuid), WithJsonSchema({"type": "string", "format": "uuid"})]
Token = Annotated[str, Field(max_length=1_000)]
Version = Annotated[int, Field(ge=1, le=2_147_483_647)]
Priority = Annotated[int, Field(ge=MIN_PRIORITY, le=MAX_PRIORITY)]
MaxAttempts = Annotated[int, Field(ge=1, le=MAX_ATTEMPTS)]
LeaseSeconds = Annotated[float, Field(ge=1, le=86_400)]
TimeoutSeconds = Annotated[float, Field(gt=0, le=MAX_SECONDS)]
DelaySeconds = Annotated[float, Field(ge=0, le=MAX_SECONDS)]
ExpiresInSeconds = Annotated[float, Field(gt=0, le=MAX_SECONDS)]
RetryAfterSeconds = Annotated[float, Field(ge=0, le=86_400)]
WholeNumber = Annotated[int, BeforeValidator(_whole_number)]
