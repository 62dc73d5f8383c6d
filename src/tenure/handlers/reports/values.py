"""Single values as texts: what the formats share."""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from types import MappingProxyType
from typing import Any

import orjson

from tenure.handlers.reports.rows import Row, ValueKind

Converter = Callable[[Any], Any]

_NOT_NUMBERS = frozenset({"NaN", "Infinity", "-Infinity"})


def converted(rows: Sequence[Row], converters: Mapping[int, Converter]) -> list[Sequence[Any]]:
    """The rows by column, each column that has a converter put through it; None stays None."""
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
    for index, convert in converters.items():
        columns[index] = [None if value is None else convert(value) for value in columns[index]]
    return columns


def time_text(value: date | datetime | time) -> str:
    """ISO 8601, with Z for UTC."""
    text = value.isoformat()
    return text[:-6] + "Z" if text.endswith("+00:00") else text


def bytes_text(value: bytes) -> str:
    """As PostgreSQL writes a bytea."""
    return "\\x" + value.hex()


def boolean_text(value: bool) -> str:
    return "true" if value else "false"


def float_text(value: float) -> float | str:
    """The float itself; texts for what JSON has no number for, spelled as PostgreSQL does."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def json_decimal(text: str) -> orjson.Fragment | str:
    """A number with all its digits: how many of them a reader keeps is the reader's choice."""
    return text if text in _NOT_NUMBERS else orjson.Fragment(text)


def json_text(text: str) -> orjson.Fragment:
    """JSON within JSON. A line break can only stand between its tokens, and would end a line of JSON Lines."""
    return orjson.Fragment(text.replace("\r", " ").replace("\n", " "))


JSON_CONVERTERS: Mapping[ValueKind, Converter] = MappingProxyType(
    {
        ValueKind.FLOAT32: float_text,
        ValueKind.FLOAT64: float_text,
        ValueKind.DECIMAL: json_decimal,
        ValueKind.BYTES: bytes_text,
        ValueKind.JSON: json_text,
    }
)
"""What orjson does not write by itself as we want it."""

CSV_CONVERTERS: Mapping[ValueKind, Converter] = MappingProxyType(
    {
        ValueKind.FLOAT32: float_text,
        ValueKind.FLOAT64: float_text,
        ValueKind.BOOLEAN: boolean_text,
        ValueKind.DATE: time_text,
        ValueKind.TIME: time_text,
        ValueKind.TIMESTAMP: time_text,
        ValueKind.TIMESTAMPTZ: time_text,
        ValueKind.BYTES: bytes_text,
    }
)


def json_array(kind: ValueKind) -> Callable[[Any], str]:
    """Writes a (nested) list of such values as a JSON array."""
    convert = JSON_CONVERTERS.get(kind)

    def walk(value: Any) -> Any:
        if isinstance(value, list):
            return [walk(item) for item in value]
        return value if convert is None or value is None else convert(value)

    return lambda value: orjson.dumps(walk(value), option=orjson.OPT_UTC_Z).decode()
