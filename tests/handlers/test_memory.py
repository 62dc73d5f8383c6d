"""An export of any size fits into the memory of a small process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROWS = 300_000
ALLOWED_GROWTH_BYTES = 60 << 20

# In a process of its own: this one has grown already. Peak is read after every batch, the largest moment there is.
CHILD = """
import asyncio, json, sys
from pathlib import Path
import psutil
from tenure.artifacts.local import LocalArtifactStore
from tenure.artifacts import artifact_key
from tenure.handlers.reports.catalog import ReportCatalog
from tenure.handlers.reports.export import write_rows
from tenure.handlers.reports.formats import FORMATS
from tenure.handlers.sources.postgres import open_rows
from uuid import uuid4

reports, root, file_format = sys.argv[1:]
report = ReportCatalog.load(Path(reports), environment={}).reports["wide"]
process = psutil.Process()
before = process.memory_info().rss
peak = before

async def watch(_):
    global peak
    peak = max(peak, process.memory_info().rss)

async def main():
    store = LocalArtifactStore(Path(root))
    async with open_rows(report, {}) as rows:
        encoder = FORMATS[file_format].encoder(rows.columns, False)
        key = artifact_key(uuid4(), 2, "wide." + file_format)
        return await write_rows(rows, encoder, store, key, after_batch=watch)

written = asyncio.run(main())
print(json.dumps({"rows": written.rows, "growth": peak - before}))
"""
SQL = f"""
    SELECT n AS id, md5(n::text) AS one, md5((n + 1)::text) AS two, n * 1.25 AS price, n % 7 = 0 AS flag,
           timestamptz '2025-01-01' + n * interval '1 second' AS at
    FROM generate_series(1, {ROWS}) AS n
"""


@pytest.mark.parametrize("file_format", ["csv", "jsonl", "parquet"])
def test_an_export_grows_the_process_by_a_bounded_amount(tmp_path: Path, source_url: str, file_format: str) -> None:
    reports = tmp_path / "reports.toml"
    reports.write_text(f'[sources.main]\nurl = "{source_url}"\n[reports.wide]\nsource = "main"\nsql = """{SQL}"""')
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(reports), str(tmp_path / "artifacts"), file_format],
        check=True,
        capture_output=True,
        text=True,
    )
    measured = json.loads(child.stdout)
    assert measured["rows"] == ROWS
    assert measured["growth"] < ALLOWED_GROWTH_BYTES
