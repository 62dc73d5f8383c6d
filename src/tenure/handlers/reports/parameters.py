"""Typed parameters of a report: what the operator declares, and what a submitter's values become.

A value is checked and turned into a Python value of its type; it is bound to the statement, never written into it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, field_validator
from rapidfuzz import fuzz, process

MAX_TEXT_CHARACTERS = 10_000
MAX_ITEMS = 1_000
"""Defaults of `max_length` and `max_items`: far beyond what a person types, far below what makes a statement slow."""

_LARGEST_INTEGER = 2**63 - 1
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}\Z")
_DATETIME = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?([Zz]|[+-]\d{2}:\d{2})\Z")
_LIST = "list of "

POSTGRES_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "text": "text",
        "integer": "bigint",
        "number": "numeric",
        "boolean": "boolean",
        "date": "date",
        "datetime": "timestamptz",
        "uuid": "uuid",
        "enum": "text",
    }
)
_BOUNDED = frozenset({"integer", "number", "date", "datetime"})


class ParameterSpec(BaseModel):
    """A parameter as the TOML file declares it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: str
    required: bool | None = Field(None, description="true, unless there is a default; false: NULL when it is left out")
    default: Any = None
    min: Any = None
    max: Any = None
    max_length: int | None = Field(None, ge=1, le=1_000_000)
    max_items: int | None = Field(None, ge=1, le=100_000)
    choices: tuple[str, ...] | None = Field(None, min_length=1)
    description: str = ""

    @field_validator("type")
    @classmethod
    def _known(cls, value: str) -> str:
        if value.removeprefix(_LIST) not in POSTGRES_TYPES:
            known = [*POSTGRES_TYPES, *(_LIST + name for name in POSTGRES_TYPES)]
            raise ValueError(
                f"{value!r} is no type{did_you_mean(value, known)} (they are {', '.join(POSTGRES_TYPES)}, list of …)"
            )
        return value


class BadValue(ValueError):
    """A value that its parameter does not take: where within the value, and what it should be."""

    def __init__(self, message: str, *where: int) -> None:
        super().__init__(message)
        self.message = message
        self.where = where


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter, ready to read values. ``base`` is its type, that of one element for a list."""

    name: str
    base: str
    is_list: bool
    required: bool
    default: Any
    least: Any
    greatest: Any
    max_length: int
    max_items: int
    choices: tuple[str, ...]
    description: str

    @classmethod
    def of(cls, name: str, spec: ParameterSpec) -> "Parameter":
        """Builds it from its declaration. Raises ValueError for settings that do not fit its type, or each other."""
        base = spec.type.removeprefix(_LIST)
        is_list = spec.type.startswith(_LIST)
        for setting, given, fits in (
            ("choices", spec.choices, base == "enum"),
            ("max_length", spec.max_length, base == "text"),
            ("max_items", spec.max_items, is_list),
            ("min", spec.min, base in _BOUNDED),
            ("max", spec.max, base in _BOUNDED),
        ):
            if given is not None and not fits:
                raise ValueError(f"{setting} does not go with type {spec.type!r}")
        if base == "enum" and not spec.choices:
            raise ValueError("type 'enum' needs choices")
        if spec.required and spec.default is not None:
            raise ValueError("it is required and has a default: say one of the two")
        bounds = {}
        for setting, bound in (("min", spec.min), ("max", spec.max)):
            try:
                bounds[setting] = None if bound is None else _READERS[base](bound)
            except BadValue as error:
                raise ValueError(f"{setting} {error.message}") from None
        if bounds["min"] is not None and bounds["max"] is not None and bounds["min"] > bounds["max"]:
            raise ValueError("min is above max")
        made = cls(
            name=name,
            base=base,
            is_list=is_list,
            required=spec.required if spec.required is not None else spec.default is None,
            default=None,
            least=bounds["min"],
            greatest=bounds["max"],
            max_length=spec.max_length or MAX_TEXT_CHARACTERS,
            max_items=spec.max_items or MAX_ITEMS,
            choices=spec.choices or (),
            description=spec.description,
        )
        if spec.default is None:
            return made
        try:
            default = made.read(spec.default)
        except BadValue as error:
            raise ValueError(f"default {error.message}") from None
        return cls(**{field: getattr(made, field) for field in cls.__dataclass_fields__} | {"default": default})

    @property
    def postgres_type(self) -> str:
        return POSTGRES_TYPES[self.base] + ("[]" if self.is_list else "")

    @property
    def summary(self) -> str:
        """Its type in words, for whoever left it out."""
        return f"a list of {self.base}" if self.is_list else f"of type {self.base}"

    def read(self, value: Any) -> Any:
        """The value to bind. Raises BadValue."""
        if not self.is_list:
            return self._read_one(value)
        if not isinstance(value, list):
            raise BadValue(f"must be a list of {self.base}")
        if len(value) > self.max_items:
            raise BadValue(f"must have at most {self.max_items} items, not {len(value)}")
        items = []
        for index, item in enumerate(value):
            try:
                items.append(self._read_one(item))
            except BadValue as error:
                raise BadValue(error.message, index) from None
        return items

    def _read_one(self, value: Any) -> Any:
        found = _READERS[self.base](value)
        if self.choices and found not in self.choices:
            raise BadValue(f"must be one of {', '.join(self.choices)}{did_you_mean(found, self.choices)}")
        if self.base == "text" and len(found) > self.max_length:
            raise BadValue(f"must have at most {self.max_length} characters, not {len(found)}")
        if self.least is not None and found < self.least:
            raise BadValue(f"must be at least {_shown(self.least)}")
        if self.greatest is not None and found > self.greatest:
            raise BadValue(f"must be at most {_shown(self.greatest)}")
        return found


def did_you_mean(given: str, known: "Mapping[str, Any] | list[str] | tuple[str, ...]") -> str:
    """``; did you mean 'x'?`` where something known is near, else nothing."""
    near = process.extractOne(given[:200], list(known), scorer=fuzz.ratio, score_cutoff=60)
    return f"; did you mean {near[0]!r}?" if near else ""


def _shown(value: Any) -> str:
    return value.isoformat() if isinstance(value, date) else str(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise BadValue("must be a text")
    if "\x00" in value:
        raise BadValue("must not contain NUL")
    return value


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadValue("must be an integer")
    if not -_LARGEST_INTEGER - 1 <= value <= _LARGEST_INTEGER:
        raise BadValue("must fit into 64 bits")
    return value


def _number(value: Any) -> Decimal:
    if isinstance(value, Decimal):
        found = value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        # repr of a float is the shortest text that means it: 0.1 stays 0.1. An int of any size is exact.
        found = Decimal(value) if isinstance(value, int) else Decimal(repr(value))
    else:
        raise BadValue("must be a number")
    if not found.is_finite() or len(found.as_tuple().digits) > 1_000:
        raise BadValue("must be a finite number of at most 1,000 digits")
    return found


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise BadValue("must be true or false")
    return value


def _date(value: Any) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    if isinstance(value, str) and _DATE.match(value):
        try:
            return date.fromisoformat(value)
        except ValueError:
            raise BadValue("is a day that no calendar has") from None
    raise BadValue("must be a date like 2026-01-31")


def _datetime(value: Any) -> datetime:
    found = value
    if isinstance(value, str) and _DATETIME.match(value):
        try:
            found = datetime.fromisoformat(value.upper())
        except ValueError:
            raise BadValue("is a time that no calendar has") from None
    if not isinstance(found, datetime) or found.tzinfo is None:
        raise BadValue("must be a time with its offset, like 2026-01-31T08:00:00Z")
    try:
        return found.astimezone(UTC)
    except OverflowError:
        raise BadValue("must lie within the years 1 to 9999") from None


def _uuid(value: Any) -> UUID:
    if isinstance(value, UUID):
        return value
    if isinstance(value, str) and len(value) == 36:
        try:
            return UUID(value)
        except ValueError:
            pass
    raise BadValue("must be a UUID")


_READERS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "text": _text,
        "integer": _integer,
        "number": _number,
        "boolean": _boolean,
        "date": _date,
        "datetime": _datetime,
        "uuid": _uuid,
        "enum": _text,
    }
)
