"""Parquet, by pyarrow: typed columns, compressed, written row group by row group."""

import io
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tenure.errors import PermanentError
from tenure.handlers.reports.rows import Column, Row, ValueKind
from tenure.handlers.reports.values import json_array

_GROUP_ROWS = 65_536
_GROUP_BYTES = 16 << 20
"""A row group is full at either: large enough for readers to scan well, small enough to hold in memory."""

_TYPES: dict[ValueKind, pa.DataType] = {
    ValueKind.INT16: pa.int16(),
    ValueKind.INT32: pa.int32(),
    ValueKind.INT64: pa.int64(),
    ValueKind.FLOAT32: pa.float32(),
    ValueKind.FLOAT64: pa.float64(),
    ValueKind.BOOLEAN: pa.bool_(),
    ValueKind.DATE: pa.date32(),
    ValueKind.TIME: pa.time64("us"),
    ValueKind.TIMESTAMP: pa.timestamp("us"),
    ValueKind.TIMESTAMPTZ: pa.timestamp("us", tz="UTC"),
    ValueKind.BYTES: pa.binary(),
}
"""What is not here is a string: UUIDs, JSON, texts, and decimals whose precision nobody declared."""


class ParquetEncoder:
    """A decimal is a decimal128 where its precision is declared, else a string: nothing is rounded. Arrays are JSON."""

    def __init__(self, columns: Sequence[Column], _: bool) -> None:
        self.weight = 0
        self._columns = columns
        self._arrays: list[Callable[[Any], str] | None] = [
            json_array(column.kind) if column.is_array else None for column in columns
        ]
        self._schema = pa.schema([pa.field(column.name, _type(column)) for column in columns])
        self._sink = _Sink()
        self._writer = pq.ParquetWriter(self._sink, self._schema, compression="zstd")
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_rows = 0
        self._gathered_bytes = 0

    def encode(self, rows: Sequence[Row]) -> bytes:
        if not rows:
            return b""
        values = list(zip(*rows, strict=True))
        batch = pa.record_batch(
            [self._array(index, column, values[index]) for index, column in enumerate(self._columns)],
            schema=self._schema,
        )
        self.weight = batch.nbytes
        self._gathered.append(batch)
        self._gathered_rows += batch.num_rows
        self._gathered_bytes += batch.nbytes
        if self._gathered_rows >= _GROUP_ROWS or self._gathered_bytes >= _GROUP_BYTES:
            self._write_group()
        return self._sink.taken()

    def finish(self) -> bytes:
        self._write_group()
        self._writer.close()
        return self._sink.taken()

    def _write_group(self) -> None:
        if self._gathered:
            table = pa.Table.from_batches(self._gathered, self._schema)
            self._gathered, self._gathered_rows, self._gathered_bytes = [], 0, 0
            self._writer.write_table(table, row_group_size=table.num_rows)
            del table
            # Else the allocator keeps what every group so far needed: twice as much as the writing itself.
            pa.default_memory_pool().release_unused()

    def _array(self, index: int, column: Column, values: Sequence[Any]) -> pa.Array:
        as_json = self._arrays[index]
        if as_json is not None:
            return pa.array([None if value is None else as_json(value) for value in values], pa.string())
        if column.kind is ValueKind.DECIMAL and column.precision is not None:
            try:
                return pc.cast(pa.array(values, pa.string()), _type(column))
            except pa.ArrowInvalid as error:
                declared = f"numeric({column.precision.digits},{column.precision.scale})"
                raise PermanentError(
                    f"column {column.name!r} has a value that is no {declared}, as the report declares it: "
                    "declare more digits, or none"
                ) from error
        return pa.array(values, _type(column))


class _Sink(io.RawIOBase):
    """Takes what pyarrow writes and hands it on; nothing of it is kept."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        return len(piece)

    def taken(self) -> bytes:
        data = b"".join(self._pieces)
        self._pieces.clear()
        return data


def _type(column: Column) -> pa.DataType:
    if column.is_array:
        return pa.string()
    if column.kind is ValueKind.DECIMAL and column.precision is not None:
        return pa.decimal128(column.precision.digits, column.precision.scale)
    return _TYPES.get(column.kind, pa.string())
