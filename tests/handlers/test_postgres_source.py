"""How a report's source is read: bound values, nothing written, one moment, and errors that say whose they are."""

import csv
import io
import json
import socket
from pathlib import Path

import asyncpg
import pytest

from tenure.artifacts import ArtifactStore
from tenure.errors import PermanentError, RetryLater
from tenure.handlers.sources.postgres import open_rows
from tests.conftest import with_database
from tests.handlers.sources import exported, report_of

INJECTIONS = [
    "'; DROP TABLE victims; --",
    "' OR '1'='1",
    "\\'; SELECT pg_sleep(10); --",
    "$$; DELETE FROM victims; $$",
    ":text",
    "$1",
    "%s {0}",
    'a"b\nc\\x00',
]


async def victims(url: str) -> list[int]:
    connection = await asyncpg.connect(url)
    try:
        return [row["id"] for row in await connection.fetch("SELECT id FROM victims")]
    finally:
        await connection.close()


@pytest.mark.parametrize("text", INJECTIONS)
async def test_a_parameter_is_data_whatever_it_says(
    tmp_path: Path, source_url: str, local_store: ArtifactStore, text: str
) -> None:
    report = report_of(
        tmp_path,
        source_url,
        "SELECT :text AS said, ':text' AS literal, (SELECT count(*) FROM notes WHERE author = :text) AS found",
        more='[reports.it.parameters.text]\ntype = "text"',
    )
    row = json.loads(await exported(report, "jsonl", local_store, text=text))
    assert row == {"said": text, "literal": ":text", "found": 0}
    assert await victims(source_url) == [1]


async def test_every_type_of_parameter_reaches_the_database_as_itself(
    tmp_path: Path, source_url: str, local_store: ArtifactStore
) -> None:
    types = {
        "a": ("text", "x", "text"),
        "b": ("integer", 2**62, "bigint"),
        "c": ("number", 0.1, "numeric"),
        "d": ("boolean", True, "boolean"),
        "e": ("date", "2025-01-01", "date"),
        "f": ("datetime", "2025-01-01T00:00:00Z", "timestamp with time zone"),
        "g": ("uuid", "3f2504e0-4f89-41d3-9a0c-0305e82c3301", "uuid"),
        "h": ("list of text", ["x", "y"], "text[]"),
        "i": ("list of date", ["2025-01-01"], "date[]"),
        "j": ("list of number", [0.5], "numeric[]"),
    }
    report = report_of(
        tmp_path,
        source_url,
        "SELECT " + ", ".join(f"pg_typeof(:{name})::text AS {name}, :{name} IS NULL AS {name}_null" for name in types),
        more="".join(
            f'[reports.it.parameters.{n}]\ntype = "{t}"\nrequired = false\n' for n, (t, _, _) in types.items()
        ),
    )
    row = json.loads(await exported(report, "jsonl", local_store, **{n: value for n, (_, value, _) in types.items()}))
    assert {name: row[name] for name in types} == {name: spelled for name, (_, _, spelled) in types.items()}
    nothing = json.loads(await exported(report, "jsonl", local_store))
    assert all(nothing[f"{name}_null"] for name in types)


async def test_a_list_parameter_filters_with_any(tmp_path: Path, source_url: str, local_store: ArtifactStore) -> None:
    report = report_of(
        tmp_path,
        source_url,
        "SELECT id FROM notes WHERE author = ANY(:authors) ORDER BY id",
        more='[reports.it.parameters.authors]\ntype = "list of text"',
    )
    data = await exported(report, "csv", local_store, authors=["Ana", "Łukasz 🎁", "'; --"])
    assert [row["id"] for row in csv.DictReader(io.StringIO(data.decode()))] == ["1", "3"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT sneaky()",
        "WITH gone AS (DELETE FROM victims RETURNING id) SELECT * FROM gone",
        "SELECT set_config('transaction_read_only', 'off', false), sneaky()",
        "SELECT set_config('default_transaction_read_only', 'off', false), sneaky()",
        "SELECT id FROM victims FOR UPDATE",
    ],
)
async def test_a_report_that_writes_fails_for_good_and_writes_nothing(
    tmp_path: Path, source_url: str, local_store: ArtifactStore, sql: str
) -> None:
    with pytest.raises(PermanentError):
        await exported(report_of(tmp_path, source_url, sql), "csv", local_store)
    assert await victims(source_url) == [1]


async def test_all_rows_and_their_count_are_of_one_moment(tmp_path: Path, source_url: str) -> None:
    report = report_of(
        tmp_path,
        source_url,
        "SELECT id FROM notes ORDER BY id",
        more='count_sql = "SELECT count(*) FROM notes"',
    )
    writer = await asyncpg.connect(source_url)
    try:
        async with open_rows(report, {}) as rows:
            first = await rows.fetch(1)
            await writer.execute("INSERT INTO notes (id) VALUES (1000)")
            rest = await rows.fetch(1_000)
            assert (rows.total, len(first) + len(rest)) == (4, 4)
            assert not await rows.fetch(1)
    finally:
        await writer.execute("DELETE FROM notes WHERE id = 1000")
        await writer.close()


async def test_the_connection_is_gone_after_the_report_also_when_it_failed(tmp_path: Path, source_url: str) -> None:
    async def leave_early() -> None:
        async with open_rows(report_of(tmp_path, source_url, "SELECT n FROM generate_series(1, 100000) n"), {}) as rows:
            await rows.fetch(1)
            raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError):
        await leave_early()
    connection = await asyncpg.connect(source_url)
    try:
        left = await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1"
            " AND state <> 'idle'",
            "tenure report",
        )
        assert left == 0
    finally:
        await connection.close()


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT * FROM there_is_none", 'relation "there_is_none" does not exist'),
        ("SELECT 1/0", "division by zero"),
        ("SELECT 1 AS a, 2 AS a", "two columns are called 'a'"),
        ("SELECT", "yields no columns"),
        ("SELECT int4range(1, 2) AS r", "column 'r' is a int4range, which no format holds: cast it"),
        ("SELECT ROW(1, 2) AS r", "column 'r' is a record, which no format holds: cast it"),
        ("SELECT date '20000-01-01' AS far", "within the years 1 to 9999"),
        ("SELECT date '0001-01-01 BC' AS early", "within the years 1 to 9999"),
    ],
)
async def test_a_fault_of_the_sql_is_permanent_and_told(
    tmp_path: Path, source_url: str, local_store: ArtifactStore, sql: str, said: str
) -> None:
    with pytest.raises(PermanentError) as caught:
        await exported(report_of(tmp_path, source_url, sql), "csv", local_store)
    assert said in str(caught.value)


async def test_an_error_quotes_neither_parameters_nor_rows(
    tmp_path: Path, source_url: str, local_store: ArtifactStore
) -> None:
    report = report_of(
        tmp_path,
        source_url,
        "SELECT (:text)::integer",
        more='[reports.it.parameters.text]\ntype = "text"',
    )
    with pytest.raises(PermanentError) as caught:
        await exported(report, "csv", local_store, text="tell-nobody")
    assert "tell-nobody" not in str(caught.value)
    assert "invalid input syntax" in str(caught.value)


async def test_a_slow_statement_is_stopped_and_may_be_tried_again(
    tmp_path: Path, source_url: str, local_store: ArtifactStore
) -> None:
    report = report_of(tmp_path, source_url, "SELECT pg_sleep(60)", settings="statement_timeout_seconds = 0.05")
    with pytest.raises(RetryLater, match=r"took longer than 0\.05 s"):
        await exported(report, "csv", local_store)


async def test_a_source_that_is_away_may_be_tried_again(tmp_path: Path, local_store: ArtifactStore) -> None:
    with socket.socket() as taken:  # bound and not listening: nobody else can answer there
        taken.bind(("127.0.0.1", 0))
        url = f"postgresql://reader:hush@127.0.0.1:{taken.getsockname()[1]}/x"
        with pytest.raises(RetryLater) as caught:
            await exported(report_of(tmp_path, url, "SELECT 1"), "csv", local_store)
    assert "hush" not in str(caught.value)


async def test_a_database_that_does_not_exist_is_permanent(
    tmp_path: Path, source_url: str, local_store: ArtifactStore
) -> None:
    report = report_of(tmp_path, with_database(source_url, "there_is_none"), "SELECT 1")
    with pytest.raises(PermanentError, match="refuses the connection"):
        await exported(report, "csv", local_store)


async def test_a_source_whose_connection_breaks_may_be_tried_again(
    tmp_path: Path, source_url: str, local_store: ArtifactStore
) -> None:
    report = report_of(
        tmp_path,
        source_url,
        "SELECT n, pg_terminate_backend(CASE WHEN n = 5000 THEN pg_backend_pid() END) AS x"
        " FROM generate_series(1, 10000) AS n",
    )
    with pytest.raises(RetryLater, match="cannot be reached"):
        await exported(report, "csv", local_store)
