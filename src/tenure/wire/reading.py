"""From parsed JSON to a wire model: every wrong field is named by its pointer, every unknown one by its nearest."""

import typing
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails
from rapidfuzz import fuzz, process, utils

from tenure.errors import FieldError, InvalidInput
from tenure.wire.json import pointer

MAX_ERRORS = 100
"""Enough to mend a batch by; ten thousand times the same mistake need not be told ten thousand times."""


class Request(BaseModel):
    """A body or query as sent: strict, closed, and with rules that concern several fields."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    def rules(self) -> Iterator[FieldError]:
        """What is wrong between the fields; pointers are relative to this object."""
        return iter(())


class Answer(BaseModel):
    """A body as answered. Unknown members are skipped: a newer service may say more."""

    model_config = ConfigDict(extra="ignore", frozen=True)


RequestT = TypeVar("RequestT", bound=Request)


def read(model: type[RequestT], value: Any, *, at: str = "", in_query: bool = False) -> RequestT:
    """The model of a parsed body. ``at`` is the pointer of the value within the body; in a query, names stand alone.

    Raises InvalidInput that names every wrong field (up to a hundred).
    """
    try:
        read_model = model.model_validate(value)
    except ValidationError as error:
        found = [
            _field_error(model, detail, at, in_query)
            for detail in error.errors(include_url=False, include_input=False)[:MAX_ERRORS]
        ]
        raise invalid(found) from None
    if found := [FieldError(pointer=at + rule.pointer, message=rule.message) for rule in read_model.rules()]:
        raise invalid(found)
    return read_model


def invalid(errors: Sequence[FieldError]) -> InvalidInput:
    """One refusal for these fields; its detail says what a person needs to see first."""
    first = errors[0]
    detail = f"{first.pointer.strip('/') or 'the body'}: {first.message}"
    if len(errors) > 1:
        detail += f" (and {len(errors) - 1} more)"
    return InvalidInput(detail, errors=errors)


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """A clause that points at the nearest known name, or lists them all when none is near."""
    near = process.extractOne(
        name.replace("_", ""),
        {other: other.replace("_", "") for other in known},
        scorer=fuzz.ratio,
        processor=utils.default_process,
        score_cutoff=60,
    )
    return f"did you mean `{near[2]}`?" if near else f"known are: {', '.join(sorted(known))}"


def _field_error(model: type[BaseModel], detail: ErrorDetails, at: str, in_query: bool) -> FieldError:
    parts = detail["loc"]
    where = (str(parts[0]) if parts else "query") if in_query else at + pointer(*parts)
    return FieldError(pointer=where, message=_message(model, detail))


def _message(model: type[BaseModel], detail: ErrorDetails) -> str:
    match detail["type"]:
        case "extra_forbidden":
            return (
                f"there is no such field; {did_you_mean(str(detail['loc'][-1]), _names_at(model, detail['loc'][:-1]))}"
            )
        case "missing":
            return "is required"
        case "value_error":
            return str(detail["ctx"]["error"])
        case "model_type" | "model_attributes_type" | "dict_type":
            return "should be a JSON object"
        case "list_type":
            return "should be a list"
        case _:
            return detail["msg"].removeprefix("Input ").removeprefix("Value error, ")


def _names_at(model: type[BaseModel], parts: Sequence[str | int]) -> list[str]:
    """The field names of the model that stands at this place inside another."""
    for part in parts:
        field = model.model_fields.get(part) if isinstance(part, str) else None
        inner = _model_in(field.annotation) if field is not None else None
        if inner is not None:
            model = inner
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for inner in typing.get_args(annotation) if (found := _model_in(inner))), None)
