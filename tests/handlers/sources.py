"""A database that reports read, and short ways to run a report on it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from tenure.artifacts import ArtifactStore, artifact_key
from tenure.handlers.reports.catalog import Report, ReportCatalog
from tenure.handlers.reports.export import write_rows
from tenure.handlers.reports.formats import FORMATS
from tenure.handlers.sources.postgres import open_rows
from tests.artifacts.stores import contents_of
from tests.conftest import with_database

_TABLES = """
CREATE TABLE notes (id integer PRIMARY KEY, author text, body text, price numeric(10,2), at timestamptz);
INSERT INTO notes VALUES
    (1, 'Ana', 'plain', 1.50, '2025-01-01T00:00:00Z'),
    (2, 'Bo, Jr.', E'two\\nlines and "quotes"', NULL, NULL),
    (3, 'Łukasz 🎁', '', 10000000.01, '2025-06-30T23:59:59.123456+02:00'),
    (4, NULL, '=1+1', 0, '2026-01-01T00:00:00Z');
CREATE TABLE victims (id integer);
INSERT INTO victims VALUES (1);
CREATE FUNCTION sneaky() RETURNS integer LANGUAGE plpgsql AS $$
BEGIN INSERT INTO victims VALUES (2); RETURN 1; END $$;
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE DOMAIN positive AS integer CHECK (VALUE > 0);
"""


@pytest.fixture(scope="session")
def source_url(server_url: str) -> Iterator[str]:
    """A database of this test process that is nobody's queue."""
    name = f"tenure_source_{uuid4().hex[:12]}"

    async def run(url: str, sql: str) -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(sql)
        finally:
            await connection.close()

    asyncio.run(run(server_url, f'CREATE DATABASE "{name}"'))
    asyncio.run(run(with_database(server_url, name), _TABLES))
    yield with_database(server_url, name)
    asyncio.run(run(server_url, f'DROP DATABASE "{name}" WITH (FORCE)'))


def catalog_of(directory: Path, url: str, reports: str, *, settings: str = "") -> ReportCatalog:
    """A catalog with the source `main` and the reports of this TOML."""
    path = directory / f"reports-{uuid4().hex[:8]}.toml"
    path.write_text(f'[sources.main]\nurl = "{url}"\n{settings}\n{reports}', encoding="utf-8")
    return ReportCatalog.load(path, environment={})


def report_of(directory: Path, url: str, sql: str, *, more: str = "", settings: str = "") -> Report:
    """One report, called `it`."""
    reports = f'[reports.it]\nsource = "main"\nsql = """\n{sql}\n"""\n{more}'
    return catalog_of(directory, url, reports, settings=settings).reports["it"]


async def exported(report: Report, file_format: str, store: ArtifactStore, **parameters: Any) -> bytes:
    """The file that the report becomes."""
    key = artifact_key(uuid4(), 2, f"it.{file_format}")

    async def go_on(_: int) -> None:
        pass

    async with open_rows(report, report.read_parameters(parameters)) as rows:
        encoder = FORMATS[file_format].encoder(rows.columns, report.escape_formulas)
        written = await write_rows(rows, encoder, store, key, after_batch=go_on)
    data = await contents_of(store, key)
    assert written.bytes == len(data)
    return data
