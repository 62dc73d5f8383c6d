"""Every format is read back by a reader that is not ours, and says what the database said."""

import csv
import io
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tenure.artifacts import ArtifactStore
from tenure.errors import PermanentError
from tests.handlers.sources import exported, report_of

EVERYTHING = """
    SELECT 1::smallint AS small, 2147483647 AS whole, 9223372036854775807 AS big, 1.5::real AS real, 0.1::float8 AS double,
           12345678901234567890.123456789::numeric AS exact, 1.50::numeric(10,2) AS price, true AS yes,
           date '2025-12-31' AS day, time '08:30:00.5' AS clock, timestamp '2025-01-02 03:04:05.000006' AS naive,
           timestamptz '2025-01-02 03:04:05+02' AS moment, '3f2504e0-4f89-41d3-9a0c-0305e82c3301'::uuid AS id,
           '{"a": [1, 2.50, "ü"]}'::json AS document, '\\\\xdeadbeef'::bytea AS raw, 'ünïcode, "quoted"' AS words,
           ARRAY[1, NULL, 3] AS numbers, ARRAY[ARRAY[1.50, 2]] AS nested, ARRAY['a,b', 'c"d'] AS texts,
           interval '1 month 2 days' AS span, inet '10.0.0.1/8' AS address, 'ok'::mood AS mood, 5::positive AS above,
           ARRAY['ok', NULL]::mood[] AS moods, ARRAY[interval '1 month'] AS spans
"""
NULLS = """
    SELECT NULL::smallint AS small, NULL::numeric AS exact, NULL::numeric(10,2) AS price, NULL::boolean AS yes,
           NULL::date AS day, NULL::timestamptz AS moment, NULL::uuid AS id, NULL::jsonb AS document, NULL::bytea AS raw,
           NULL::text AS words, NULL::int[] AS numbers, NULL::float8 AS double, NULL::interval AS span
"""
PRICE = '[reports.it.columns]\nprice = "numeric(10,2)"'


async def as_csv(report: Any, store: ArtifactStore, **parameters: Any) -> list[dict[str, str]]:
    data = await exported(report, "csv", store, **parameters)
    return list(csv.DictReader(io.StringIO(data.decode(), newline="")))


async def as_json(report: Any, store: ArtifactStore, **parameters: Any) -> list[dict[str, Any]]:
    data = await exported(report, "jsonl", store, **parameters)
    assert data == b"" or data.endswith(b"\n")
    return [json.loads(line, parse_float=Decimal) for line in data.decode().split("\n")[:-1]]


async def as_parquet(report: Any, store: ArtifactStore, **parameters: Any) -> pa.Table:
    return pq.read_table(pa.BufferReader(await exported(report, "parquet", store, **parameters)))


async def test_csv_says_every_type(tmp_path: Path, source_url: str, local_store: ArtifactStore) -> None:
    (row,) = await as_csv(report_of(tmp_path, source_url, EVERYTHING), local_store)
    assert row == {
        "small": "1",
        "whole": "2147483647",
        "big": "9223372036854775807",
        "real": "1.5",
        "double": "0.1",
        "exact": "12345678901234567890.123456789",
        "price": "1.50",
        "yes": "true",
        "day": "2025-12-31",
        "clock": "08:30:00.500000",
        "naive": "2025-01-02T03:04:05.000006",
        "moment": "2025-01-02T01:04:05Z",
        "id": "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
        "document": '{"a": [1, 2.50, "ü"]}',
        "raw": "\\xdeadbeef",
        "words": 'ünïcode, "quoted"',
        "numbers": "[1,null,3]",
        "nested": "[[1.50,2]]",
        "texts": '["a,b","c\\"d"]',
        "span": "P1M2D",
        "address": "10.0.0.1/8",
        "mood": "ok",
        "above": "5",
        "moods": '["ok",null]',
        "spans": '["P1M"]',
    }


async def test_json_lines_says_every_type(tmp_path: Path, source_url: str, local_store: ArtifactStore) -> None:
    (row,) = await as_json(report_of(tmp_path, source_url, EVERYTHING), local_store)
    assert row == {
        "small": 1,
        "whole": 2147483647,
        "big": 9223372036854775807,
        "real": Decimal("1.5"),
        "double": Decimal("0.1"),
        "exact": Decimal("12345678901234567890.123456789"),
        "price": Decimal("1.50"),
        "yes": True,
        "day": "2025-12-31",
        "clock": "08:30:00.500000",
        "naive": "2025-01-02T03:04:05.000006",
        "moment": "2025-01-02T01:04:05Z",
        "id": "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
        "document": {"a": [1, Decimal("2.50"), "ü"]},
        "raw": "\\xdeadbeef",
        "words": 'ünïcode, "quoted"',
        "numbers": [1, None, 3],
        "nested": [[Decimal("1.50"), 2]],
        "texts": ["a,b", 'c"d'],
        "span": "P1M2D",
        "address": "10.0.0.1/8",
        "mood": "ok",
        "above": 5,
        "moods": ["ok", None],
        "spans": ["P1M"],
    }


async def test_parquet_says_every_type_with_its_own(
    tmp_path: Path, source_url: str, local_store: ArtifactStore
) -> None:
    table = await as_parquet(report_of(tmp_path, source_url, EVERYTHING, more=PRICE), local_store)
    assert {field.name: str(field.type) for field in table.schema} == {
        "small": "int16",
        "whole": "int32",
        "big": "int64",
        "real": "float",
        "double": "double",
        "exact": "string",
        "price": "decimal128(10, 2)",
        "yes": "bool",
        "day": "date32[day]",
        "clock": "time64[us]",
        "naive": "timestamp[us]",
        "moment": "timestamp[us, tz=UTC]",
        "id": "string",
        "document": "string",
        "raw": "binary",
        "words": "string",
        "numbers": "string",
        "nested": "string",
        "texts": "string",
        "span": "string",
        "address": "string",
        "mood": "string",
        "above": "int32",
        "moods": "string",
        "spans": "string",
    }
    (row,) = table.to_pylist()
    assert row["exact"] == "12345678901234567890.123456789"
    assert row["price"] == Decimal("1.50")
    assert (row["day"], row["clock"]) == (date(2025, 12, 31), time(8, 30, 0, 500_000))
    assert row["naive"] == datetime(2025, 1, 2, 3, 4, 5, 6)  # noqa: DTZ001 - without an offset, as the column is
    assert row["moment"] == datetime(2025, 1, 2, 1, 4, 5, tzinfo=UTC)
    assert (row["raw"], row["words"]) == (b"\xde\xad\xbe\xef", 'ünïcode, "quoted"')
    assert (row["numbers"], row["nested"]) == ("[1,null,3]", "[[1.50,2]]")
    assert json.loads(row["document"]) == {"a": [1, 2.5, "ü"]}


async def test_null_is_empty_in_csv_and_null_elsewhere(
    tmp_path: Path, source_url: str, local_store: ArtifactStore
) -> None:
    report = report_of(tmp_path, source_url, NULLS, more=PRICE)
    assert set((await as_csv(report, local_store))[0].values()) == {""}
    assert set((await as_json(report, local_store))[0].values()) == {None}
    assert set((await as_parquet(report, local_store)).to_pylist()[0].values()) == {None}


async def test_texts_survive_quotes_commas_line_breaks_and_unicode(
    tmp_path: Path, source_url: str, local_store: ArtifactStore
) -> None:
    report = report_of(tmp_path, source_url, "SELECT author, body FROM notes ORDER BY id")
    expected = [
        ("Ana", "plain"),
        ("Bo, Jr.", 'two\nlines and "quotes"'),
        ("Łukasz 🎁", ""),
        (None, "=1+1"),
    ]
    assert [(row["author"] or None, row["body"]) for row in await as_csv(report, local_store)] == expected
    assert [tuple(row.values()) for row in await as_json(report, local_store)] == expected
    assert [tuple(row.values()) for row in (await as_parquet(report, local_store)).to_pylist()] == expected


async def test_csv_is_rfc_4180(tmp_path: Path, source_url: str, local_store: ArtifactStore) -> None:
    report = report_of(tmp_path, source_url, "SELECT id, body FROM notes WHERE id <= 2 ORDER BY id")
    data = await exported(report, "csv", local_store)
    assert data == b'id,body\r\n1,plain\r\n2,"two\nlines and ""quotes"""\r\n'


async def test_no_rows_make_a_valid_file(tmp_path: Path, source_url: str, local_store: ArtifactStore) -> None:
    report = report_of(tmp_path, source_url, "SELECT id, body FROM notes WHERE false")
    assert await exported(report, "csv", local_store) == b"id,body\r\n"
    assert await exported(report, "jsonl", local_store) == b""
    table = await as_parquet(report, local_store)
    assert (table.num_rows, table.column_names) == (0, ["id", "body"])


async def test_what_is_no_number_is_spelled_out(tmp_path: Path, source_url: str, local_store: ArtifactStore) -> None:
    report = report_of(tmp_path, source_url, "SELECT 'NaN'::float8 AS a, '-Infinity'::float8 AS b, 'NaN'::numeric AS c")
    assert await as_csv(report, local_store) == [{"a": "NaN", "b": "-Infinity", "c": "NaN"}]
    assert await as_json(report, local_store) == [{"a": "NaN", "b": "-Infinity", "c": "NaN"}]
    (row,) = (await as_parquet(report, local_store)).to_pylist()
    assert (row["a"] != row["a"], row["b"], row["c"]) == (True, float("-inf"), "NaN")


async def test_json_with_line_breaks_stays_on_its_line(
    tmp_path: Path, source_url: str, local_store: ArtifactStore
) -> None:
    report = report_of(tmp_path, source_url, "SELECT E'{\\\\n\"a\":\\\\r\\\\n1}'::json AS document")
    assert await as_json(report, local_store) == [{"document": {"a": 1}}]


async def test_formulas_are_left_alone_unless_the_report_says_otherwise(
    tmp_path: Path, source_url: str, local_store: ArtifactStore
) -> None:
    sql = "SELECT '=1+1' AS a, '@x' AS b, '-1' AS c, -1 AS d, 'a=b' AS e"
    plain = report_of(tmp_path, source_url, sql)
    assert await as_csv(plain, local_store) == [{"a": "=1+1", "b": "@x", "c": "-1", "d": "-1", "e": "a=b"}]
    escaped = report_of(tmp_path, source_url, sql, more="escape_formulas = true")
    assert await as_csv(escaped, local_store) == [{"a": "'=1+1", "b": "'@x", "c": "'-1", "d": "-1", "e": "a=b"}]
    assert (await as_json(escaped, local_store))[0]["a"] == "=1+1"


@pytest.mark.parametrize("value", ["1.234", "123456789.00", "'NaN'"])
async def test_a_decimal_that_breaks_its_declaration_is_refused_by_name(
    tmp_path: Path, source_url: str, local_store: ArtifactStore, value: str
) -> None:
    report = report_of(tmp_path, source_url, f"SELECT {value}::numeric AS price", more=PRICE)
    with pytest.raises(PermanentError, match=r"column 'price' has a value that is no numeric\(10,2\)"):
        await exported(report, "parquet", local_store)


@pytest.mark.parametrize("file_format", ["csv", "jsonl", "parquet"])
async def test_many_batches_and_row_groups_keep_order_and_count(
    tmp_path: Path, source_url: str, local_store: ArtifactStore, file_format: str
) -> None:
    report = report_of(tmp_path, source_url, "SELECT n FROM generate_series(1, 140000) AS n")
    read = {"csv": as_csv, "jsonl": as_json, "parquet": as_parquet}[file_format]
    found: Any = await read(report, local_store)
    rows = found.to_pylist() if file_format == "parquet" else found
    assert [int(row["n"]) for row in rows] == list(range(1, 140_001))
