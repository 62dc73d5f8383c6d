"""One kind's handler and its terms; how its payload is read and its result is written."""

import functools
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python
from pydantic_core.core_schema import ErrorType

from tenure.errors import FieldError, InvalidInput
from tenure.jobs.retry import RetryPolicy

MAX_ERRORS = 20
"""So many wrong fields are named; who sends more has sent the wrong thing altogether."""

MAX_DEPTH = 100
"""As deep as the API takes JSON in: a result must be readable where a payload is."""

_ECHO_CHARACTERS = 3
"""Shorter values occur in any sentence by chance, and give nothing away."""

_PYDANTIC_TYPES = frozenset(get_args(ErrorType))


class Mode(StrEnum):
    """Where a handler runs."""

    ASYNC = "async"
    THREAD = "thread"
    PROCESS = "process"


class UnstorableResult(ValueError):
    """What a handler returned is not JSON, or is too large to be stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerSpec:
    """A kind's handler. What is None is left to the service's settings; no ``schema_versions`` means all."""

    kind: str
    queue: str
    function: Callable[..., Any]
    mode: Mode
    max_attempts: int | None = None
    timeout_seconds: float | None = None
    lease_seconds: float | None = None
    retry: RetryPolicy | None = None
    schema_versions: tuple[int, ...] = ()
    cancel_when_caller_leaves: bool = False
    takes_payload: bool = True
    is_async: bool = True
    payload_adapter: TypeAdapter[Any] = field(repr=False)

    def validate(self, payload_json: str | bytes) -> Any:
        """The payload as the handler wants it. Raises InvalidInput that names each wrong field and quotes no value."""
        return validate_payload(self.payload_adapter, payload_json)

    def dump_result(self, value: Any) -> str:
        """The result as JSON text. Raises UnstorableResult that says why it cannot be one."""
        return dump_result(value)


def validate_payload(adapter: TypeAdapter[Any], payload_json: str | bytes) -> Any:
    """See HandlerSpec.validate."""
    try:
        return adapter.validate_json(payload_json)
    except ValidationError as error:
        # `from None`: the original carries the values that must not be seen.
        raise InvalidInput(
            f"the payload does not fit: {error.error_count()} field(s) are wrong",
            errors=field_errors(error, "/payload"),
        ) from None
    except RecursionError:
        raise InvalidInput.of("/payload", "is nested too deeply") from None


def dump_result(value: Any) -> str:
    """See HandlerSpec.dump_result."""
    if value is None:
        return "null"
    try:
        text = _dumps(value)
        text.encode()
    except UnicodeEncodeError:
        raise UnstorableResult("the result has a lone surrogate in a text, which is not valid Unicode") from None
    except RecursionError:
        raise UnstorableResult("the result is nested too deeply, or contains itself") from None
    except (TypeError, ValueError) as error:
        raise UnstorableResult(f"the result is not JSON: {error}") from None
    if "\\u0000" in text and _has_nul(json.loads(text)):
        raise UnstorableResult("the result has a NUL character in a text, which PostgreSQL cannot store")
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth(json.loads(text)) > MAX_DEPTH:
        raise UnstorableResult(f"the result is nested more than {MAX_DEPTH} levels deep")
    return text


def field_errors(error: ValidationError, prefix: str) -> list[FieldError]:
    """What Pydantic found, by JSON pointer, without the values that were found."""
    return [
        FieldError(pointer=_pointer(prefix, problem["loc"]), message=_message(problem))
        for problem in error.errors(include_url=False)[:MAX_ERRORS]
    ]


def _pointer(prefix: str, location: Iterable[int | str]) -> str:
    steps = (str(step)[:200].replace("~", "~0").replace("/", "~1") for step in location)
    return "/".join((prefix, *steps))


def _message(problem: Any) -> str:
    if problem["type"] == "union_tag_invalid":  # its text quotes the tag that was sent
        return f"must be one of {problem['ctx']['expected_tags']} in {problem['ctx']['discriminator']}"
    message = str(problem["msg"])
    if _is_own_check(problem["type"]) and any(text in message for text in _texts(problem["input"])):
        return "is refused by this kind's own check"
    return message


def _is_own_check(error_type: str) -> bool:
    """Whether a validator that somebody wrote by hand may have put the value into its message."""
    return error_type in {"value_error", "assertion_error"} or error_type not in _PYDANTIC_TYPES


def _texts(value: Any) -> Iterable[str]:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending += item.values()
        elif isinstance(item, list | tuple):
            pending += item
        elif item is not None and not isinstance(item, bool) and len(str(item)) >= _ECHO_CHARACTERS:
            yield str(item)


def _dumps(value: Any) -> str:
    dumps = functools.partial(json.dumps, allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=_jsonable)
    try:
        return dumps(value)
    except TypeError:
        return dumps(_jsonable(value))  # for keys that are no strings: UUIDs, dates, enums


def _jsonable(value: Any) -> Any:
    """For json.dumps: models, dataclasses, dates, UUIDs, enums, sets … as Pydantic writes them."""
    try:
        return to_jsonable_python(value, inf_nan_mode="constants", serialize_as_any=True)
    except PydanticSerializationError as error:
        raise TypeError(str(error)) from None


def _has_nul(value: Any) -> bool:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str) and "\x00" in item:
            return True
        if isinstance(item, dict):
            pending += item.keys()
            pending += item.values()
        elif isinstance(item, list):
            pending += item
    return False


def _depth(value: Any) -> int:
    deepest, pending = 0, [(value, 1)]
    while pending:
        item, depth = pending.pop()
        if isinstance(item, dict | list):
            deepest = max(deepest, depth)
            pending += [(child, depth + 1) for child in (item.values() if isinstance(item, dict) else item)]
    return deepest
