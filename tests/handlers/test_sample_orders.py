"""The sample data: the same everywhere, awkward enough, and in nobody's way."""

from pathlib import Path

import asyncpg
import pytest

from tenure.artifacts import ArtifactStore
from tenure.errors import ConfigurationError
from tenure.handlers import ReportCatalog
from tenure.handlers.sources.sample_orders import load_sample_orders, sample_orders
from tests.handlers.sources import exported

EXAMPLES = Path(__file__).parents[2] / "examples" / "reports.toml"


def test_the_same_seed_makes_the_same_rows() -> None:
    assert list(sample_orders(50, 1)) == list(sample_orders(50, 1))
    assert list(sample_orders(50, 1)) != list(sample_orders(50, 2))


def test_the_rows_are_awkward_where_real_ones_are() -> None:
    rows = list(sample_orders(2_000, 1))
    customers = {str(row[2]) for row in rows}
    assert any("," in name for name in customers)
    assert any('"' in name for name in customers)
    assert any(not name.isascii() for name in customers)
    assert {row[9] is None for row in rows} == {True, False}
    assert any("\n" in (row[10] or "") for row in rows)


@pytest.mark.parametrize(
    ("name", "parameters", "least_lines"),
    [
        ("orders", {}, 1_000),
        ("orders", {"since": "2025-07-01", "until": "2025-08-01", "status": "paid"}, 1),
        ("revenue-by-month", {"countries": ["DE", "FR"]}, 10),
        ("customer-orders", {"customer": "Smith, Jones & Co.", "at_least": 10.5}, 1),
    ],
)
async def test_the_example_reports_run_on_it(
    source_url: str, local_store: ArtifactStore, name: str, parameters: dict[str, object], least_lines: int
) -> None:
    await load_sample_orders(source_url, rows=3_000)
    report = ReportCatalog.load(EXAMPLES, environment={"ORDERS_DATABASE_URL": source_url}).reports[name]
    for file_format in ("csv", "parquet"):
        data = await exported(report, file_format, local_store, **parameters)
        if file_format == "csv":
            assert data.count(b"\r\n") > least_lines


async def test_loading_again_changes_nothing_and_another_size_replaces_it(source_url: str) -> None:
    connection = await asyncpg.connect(source_url)

    async def state() -> tuple[int, int]:
        row = await connection.fetchrow("SELECT count(*), max(xmin::text::bigint) FROM sample.orders")
        assert row is not None
        return row[0], row[1]

    try:
        await load_sample_orders(source_url, rows=10)
        first = await state()
        await load_sample_orders(source_url, rows=10)
        assert await state() == first
        await load_sample_orders(source_url, rows=20)
        assert (await state())[0] == 20
    finally:
        await connection.close()


async def test_a_table_of_somebody_else_is_left_alone(source_url: str) -> None:
    connection = await asyncpg.connect(source_url)
    try:
        await connection.execute("DROP SCHEMA IF EXISTS sample CASCADE; CREATE SCHEMA sample")
        await connection.execute("CREATE TABLE sample.orders (mine text); INSERT INTO sample.orders VALUES ('mine')")
        with pytest.raises(ConfigurationError, match="not ours"):
            await load_sample_orders(source_url, rows=10)
        assert await connection.fetchval("SELECT mine FROM sample.orders") == "mine"
    finally:
        await connection.execute("DROP SCHEMA sample CASCADE")
        await connection.close()
