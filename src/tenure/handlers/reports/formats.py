"""Rows into bytes: CSV, JSON Lines, Parquet. Encoders keep no more than a row group; they run in a thread.

What every format holds to: nothing is rounded, times are ISO 8601 and in UTC where they have an offset, NULL is NULL
where the format has one.
"""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import orjson

from tenure.handlers.reports.parquet import ParquetEncoder
from tenure.handlers.reports.rows import Column, Row, ValueKind
from tenure.handlers.reports.values import CSV_CONVERTERS, JSON_CONVERTERS, Converter, converted, json_array

_FORMULA_BEGINS = ("=", "+", "-", "@", "\t", "\r")


class Encoder(Protocol):
    """Turns the rows of one file into bytes, in order."""

    weight: int
    """Roughly how many bytes the rows of the last call came to: what decides how many are fetched next."""

    def encode(self, rows: Sequence[Row]) -> bytes:
        """The bytes that are ready; the rest comes with a later call. Raises PermanentError for what it cannot hold."""

    def finish(self) -> bytes:
        """The end of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFormat:
    """A format: how its files are called and served, and what writes them."""

    extension: str
    content_type: str
    encoder: Callable[[Sequence[Column], bool], Encoder]


class CsvEncoder:
    """RFC 4180: commas, quotes doubled, CRLF, a header; UTF-8. NULL is an empty field, as an empty text is.

    ``escape_formulas`` puts an apostrophe before a text that a spreadsheet would run as a formula.
    """

    def __init__(self, columns: Sequence[Column], escape_formulas: bool) -> None:
        self.weight = 0
        self._converters = {index: found for index, column in enumerate(columns) if (found := _csv_converter(column))}
        if escape_formulas:
            texts = [
                index for index, column in enumerate(columns) if column.kind is ValueKind.TEXT and not column.is_array
            ]
            self._converters |= dict.fromkeys(texts, _escaped)
        self._buffer = io.StringIO(newline="")
        self._writer = csv.writer(self._buffer, dialect="excel")
        self._writer.writerow([_escaped(column.name) if escape_formulas else column.name for column in columns])

    def encode(self, rows: Sequence[Row]) -> bytes:
        if rows:
            self._writer.writerows(zip(*converted(rows, self._converters), strict=True) if self._converters else rows)
        data = self._taken()
        self.weight = len(data)
        return data

    def finish(self) -> bytes:
        return self._taken()

    def _taken(self) -> bytes:
        text = self._buffer.getvalue()
        self._buffer.seek(0)
        self._buffer.truncate()
        return text.encode()


class JsonLinesEncoder:
    """One JSON object a line. A decimal is a number with all its digits; NaN and infinities are texts."""

    def __init__(self, columns: Sequence[Column], _: bool) -> None:
        self.weight = 0
        self._names = [column.name for column in columns]
        self._converters = {index: found for index, column in enumerate(columns) if (found := _json_converter(column))}

    def encode(self, rows: Sequence[Row]) -> bytes:
        if not rows:
            return b""
        names, options = self._names, orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z
        if self._converters:
            rows = list(zip(*converted(rows, self._converters), strict=True))
        data = b"".join([orjson.dumps(dict(zip(names, row, strict=True)), option=options) for row in rows])
        self.weight = len(data)
        return data

    def finish(self) -> bytes:
        return b""


FORMATS: Mapping[str, FileFormat] = MappingProxyType(
    {
        "csv": FileFormat(extension="csv", content_type="text/csv; charset=utf-8", encoder=CsvEncoder),
        "jsonl": FileFormat(extension="jsonl", content_type="application/x-ndjson", encoder=JsonLinesEncoder),
        "parquet": FileFormat(
            extension="parquet", content_type="application/vnd.apache.parquet", encoder=ParquetEncoder
        ),
    }
)


def _csv_converter(column: Column) -> Converter | None:
    return json_array(column.kind) if column.is_array else CSV_CONVERTERS.get(column.kind)


def _json_converter(column: Column) -> Converter | None:
    if column.is_array:
        as_text = json_array(column.kind)
        return lambda value: orjson.Fragment(as_text(value))
    return JSON_CONVERTERS.get(column.kind)


def _escaped(text: str) -> str:
    return "'" + text if text.startswith(_FORMULA_BEGINS) else text
