"""Rows on their way from a source into a file: what their columns are, and how they are fetched."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

Row = Iterable[Any]


class ValueKind(StrEnum):
    """What a column's values are in Python, when a source hands them over; None is always possible."""

    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    DECIMAL = "decimal"
    """A str with all its digits; also NaN, Infinity, -Infinity."""
    BOOLEAN = "boolean"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    """A datetime without offset."""
    TIMESTAMPTZ = "timestamptz"
    """A datetime in UTC."""
    UUID = "uuid"
    """A str."""
    BYTES = "bytes"
    JSON = "json"
    """A str that is JSON text."""
    TEXT = "text"
    """A str; also everything that has no kind of its own, as PostgreSQL writes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """How many digits a decimal has, and how many of them after the point."""

    digits: int
    scale: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column. ``is_array``: its values are (nested) lists of the kind. ``precision``: as declared for a decimal."""

    name: str
    kind: ValueKind
    is_array: bool = False
    precision: Precision | None = None


class RowStream(Protocol):
    """Rows of one query, all as of one moment."""

    @property
    def columns(self) -> Sequence[Column]: ...

    @property
    def total(self) -> int | None:
        """How many rows there are, where that is known."""

    async def fetch(self, count: int) -> Sequence[Row]:
        """The next rows, at most ``count``; none at the end. Raises RetryLater or PermanentError."""
