"""`report.export`, run by a real worker: what is published, and what is not."""

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tenure.artifacts import ArtifactStore, artifact_key
from tenure.errors import InvalidInput
from tenure.handlers import ReportCatalog, builtin_registry
from tenure.handlers.reports.export import next_count
from tenure.jobs.model import CancelOutcome, ErrorKind, Job, State
from tenure.maintenance.sweeper import sweep
from tenure.store.cancel import cancel
from tenure.store.database import Database
from tenure.store.reap import reap_expired
from tenure.worker.registry import JobRegistry
from tests.artifacts.stores import contents_of, keys_of
from tests.factories import history, read
from tests.handlers.sources import catalog_of
from tests.handlers.workers import artifacts_of, at_work, ended, enqueued
from tests.waiting import until

REPORTS = """
[reports.notes]
source = "main"
sql = "SELECT id, author, price FROM notes WHERE id >= :least ORDER BY id"
count_sql = "SELECT count(*) FROM notes WHERE id >= :least"
[reports.notes.parameters]
least = { type = "integer", min = 0, default = 0 }
status = { type = "enum", choices = ["paid"], required = false }

[reports.held]
# Stops at its 3,000th row until the lock is free: a report that a test can catch at work.
source = "main"
sql = "SELECT n, CASE WHEN n = 3000 THEN pg_advisory_xact_lock_shared(4711)::text END AS lock FROM generate_series(1, 6000) n"

[reports.broken]
source = "main"
sql = "SELECT 1 / (n - 3000) AS x FROM generate_series(1, 6000) AS n"

[reports.severed]
source = "main"
sql = "SELECT pg_terminate_backend(CASE WHEN n = 3000 THEN pg_backend_pid() END) AS x FROM generate_series(1, 6000) AS n"

[reports.sneaky]
source = "main"
sql = "SELECT sneaky()"
"""
REPORTS = REPORTS.replace(
    "WHERE id >= :least ORDER", "WHERE id >= :least AND (:status IS NULL OR author = :status) ORDER"
)


@pytest.fixture
def catalog(tmp_path: Path, source_url: str) -> ReportCatalog:
    return catalog_of(tmp_path, source_url, REPORTS)


@pytest.fixture
def registry(catalog: ReportCatalog, store: ArtifactStore) -> JobRegistry:
    return builtin_registry(reports=catalog, artifacts=store)


@pytest.fixture
def local_registry(catalog: ReportCatalog, local_store: ArtifactStore) -> JobRegistry:
    return builtin_registry(reports=catalog, artifacts=local_store)


async def run(database: Database, registry: JobRegistry, **payload: Any) -> Job:
    job = await enqueued(database, registry, "report.export", **payload)
    async with at_work(database, registry):
        return await ended(database, job)


@pytest.mark.parametrize(
    ("file_format", "content_type"),
    [
        ("csv", "text/csv; charset=utf-8"),
        ("jsonl", "application/x-ndjson"),
        ("parquet", "application/vnd.apache.parquet"),
    ],
)
async def test_an_export_publishes_its_file_with_its_success(
    database: Database, registry: JobRegistry, store: ArtifactStore, file_format: str, content_type: str
) -> None:
    job = await run(database, registry, report="notes", format=file_format, parameters={"least": 2})
    assert job.state is State.SUCCEEDED, job.last_error
    (artifact,) = await artifacts_of(database, job)
    data = await contents_of(store, artifact.location)
    expected = {
        "name": f"notes.{file_format}",
        "bytes": len(data),
        "rows": 3,
        "sha256": hashlib.sha256(data).hexdigest(),
        "content_type": content_type,
    }
    assert json.loads(job.result or "") == {"artifacts": [expected]}
    assert {name: getattr(artifact, name) for name in expected} == expected


async def test_the_key_names_the_attempt_by_its_fence(
    database: Database, local_registry: JobRegistry, local_store: ArtifactStore
) -> None:
    job = await run(database, local_registry, report="notes")
    (artifact,) = await artifacts_of(database, job)
    # enqueued is version 1, so the first attempt's `leased` event is version 2.
    assert artifact.location == artifact_key(job.id, 2, "notes.csv")
    assert await keys_of(local_store) == [artifact.location]


async def test_a_cancel_in_the_middle_leaves_no_artifact_and_no_file(
    database: Database, registry: JobRegistry, store: ArtifactStore, source_url: str
) -> None:
    holder = await asyncpg.connect(source_url)
    try:
        await holder.execute("SELECT pg_advisory_lock(4711)")
        job = await enqueued(database, registry, "report.export", report="held")
        async with at_work(database, registry):
            await until(lambda: _waits_for_lock(holder))
            async with database.transaction() as connection:
                await cancel(connection, job.id)
            job = await ended(database, job)
    finally:
        await holder.close()
    assert job.state is State.CANCELED
    assert job.cancellation is not None
    assert job.cancellation.outcome is CancelOutcome.STOPPED
    assert await artifacts_of(database, job) == []
    assert await keys_of(store) == []


async def test_a_worker_that_stops_gives_the_attempt_back_and_leaves_nothing(
    database: Database, registry: JobRegistry, store: ArtifactStore, source_url: str
) -> None:
    holder = await asyncpg.connect(source_url)
    try:
        await holder.execute("SELECT pg_advisory_lock(4711)")
        job = await enqueued(database, registry, "report.export", report="held")
        async with at_work(database, registry):
            await until(lambda: _waits_for_lock(holder))
    finally:
        await holder.close()
    job = await read(database, job)
    assert (job.state, job.attempts) == (State.QUEUED, 0)
    assert await artifacts_of(database, job) == []
    assert await keys_of(store) == []


async def test_a_source_that_fails_midway_fails_the_job_and_leaves_nothing(
    database: Database, registry: JobRegistry, store: ArtifactStore
) -> None:
    job = await run(database, registry, report="broken")
    assert job.state is State.FAILED
    assert job.last_error is not None
    assert job.last_error.kind is ErrorKind.PERMANENT
    assert "division by zero" in job.last_error.message
    assert await artifacts_of(database, job) == []
    assert await keys_of(store) == []


async def test_a_source_that_breaks_off_is_tried_again_and_leaves_nothing(
    database: Database, local_registry: JobRegistry, local_store: ArtifactStore
) -> None:
    job = await run(database, local_registry, report="severed")
    assert (job.state, job.attempts) == (State.DEAD, 5)
    assert job.last_error is not None
    assert job.last_error.kind is ErrorKind.TRANSIENT
    assert await keys_of(local_store) == []


async def test_a_report_that_writes_fails_for_good(database: Database, local_registry: JobRegistry) -> None:
    job = await run(database, local_registry, report="sneaky")
    assert (job.state, job.attempts) == (State.FAILED, 1)
    assert job.last_error is not None
    assert "may not" in job.last_error.message


async def test_a_holder_that_lost_its_lease_publishes_nothing_and_its_successor_does(
    database: Database, registry: JobRegistry, store: ArtifactStore, source_url: str
) -> None:
    holder = await asyncpg.connect(source_url)
    try:
        await holder.execute("SELECT pg_advisory_lock(4711)")
        job = await enqueued(database, registry, "report.export", report="held")
        async with at_work(database, registry):
            await until(lambda: _waits_for_lock(holder))
            async with database.transaction() as connection:  # in one, else a heartbeat may renew it in between
                await connection.execute("UPDATE tenure.jobs SET lease_expires_at = now() - interval '1 second'")
                assert len(await reap_expired(connection)) == 1
            # The successor runs into the same lock, beside or after the one that lost.
            await until(lambda: _attempts(database, job, 2))
            await holder.execute("SELECT pg_advisory_unlock(4711)")
            job = await ended(database, job)
    finally:
        await holder.close()
    assert (job.state, job.attempts) == (State.SUCCEEDED, 2)
    (artifact,) = await artifacts_of(database, job)
    versions = [index for index, event in enumerate(await history(database, job), 1) if event == "leased"]
    assert artifact.location == artifact_key(job.id, versions[1], "held.csv")
    assert (await contents_of(store, artifact.location)).count(b"\r\n") == 6_001
    # The loser removes its file, unless it was stopped in the middle of its completion: only the sweeper can tell then.
    await sweep(database, store, older_than_seconds=-60)
    assert await keys_of(store) == [artifact.location]


async def test_progress_is_told_in_rows(database: Database, local_registry: JobRegistry, source_url: str) -> None:
    holder = await asyncpg.connect(source_url)
    try:
        await holder.execute("SELECT pg_advisory_lock(4711)")
        job = await enqueued(database, local_registry, "report.export", report="held")

        async def told() -> bool:
            progress = (await read(database, job)).progress
            return progress is not None and "1,250 rows" in (progress.message or "")

        async with at_work(database, local_registry):
            await until(told, timeout_seconds=30)
            await holder.execute("SELECT pg_advisory_unlock(4711)")
            await ended(database, job)
    finally:
        await holder.close()


@pytest.mark.parametrize(
    ("payload", "problems"),
    [
        ({"report": "note"}, {"/payload/report": "did you mean 'notes'"}),
        ({"report": "zzz"}, {"/payload/report": "there are broken, held, notes"}),
        ({}, {"/payload/report": "required"}),
        ({"report": "notes", "format": "xlsx"}, {"/payload/format": "'csv', 'jsonl' or 'parquet'"}),
        ({"report": "notes", "sql": "SELECT 1"}, {"/payload/sql": "not permitted"}),
        ({"report": "notes", "parameters": {"leest": 1}}, {"/payload/parameters/leest": "did you mean 'least'"}),
        ({"report": "notes", "parameters": {"least": "1"}}, {"/payload/parameters/least": "must be an integer"}),
        (
            {"report": "notes", "parameters": {"least": -1, "status": "payed"}},
            {"/payload/parameters/least": "at least 0", "/payload/parameters/status": "did you mean 'paid'"},
        ),
        ({"report": "notes", "parameters": []}, {"/payload/parameters": "should be an object"}),
    ],
)
def test_a_request_that_does_not_fit_is_refused_where_it_is_enqueued(
    local_registry: JobRegistry, payload: dict[str, Any], problems: dict[str, str]
) -> None:
    spec = local_registry.get("report.export")
    assert spec is not None
    with pytest.raises(InvalidInput) as caught:
        spec.validate(json.dumps(payload))
    found = {error.pointer: error.message for error in caught.value.errors}
    assert found.keys() == problems.keys()
    for pointer, message in problems.items():
        assert message in found[pointer]


def test_the_kind_is_as_documented(local_registry: JobRegistry) -> None:
    spec = local_registry.get("report.export")
    assert spec is not None
    assert (spec.queue, spec.max_attempts, spec.lease_seconds) == ("exports", 5, 30)


def test_without_reports_the_kind_is_left_to_other_workers(local_store: ArtifactStore) -> None:
    registry = builtin_registry(reports=None, artifacts=local_store)
    assert [spec.kind for spec in registry.kinds()] == ["demo.sleep"]


@pytest.mark.parametrize(
    ("rows", "weight", "expected"),
    [(250, 25_000, 1_000), (5_000, 500_000, 5_000), (1_000, 100 << 20, 20), (1, 100 << 20, 1), (250, 0, 1_000)],
)
def test_batches_are_bounded_in_bytes(rows: int, weight: int, expected: int) -> None:
    assert next_count(rows, weight) == expected


async def _waits_for_lock(connection: "asyncpg.Connection[Any]") -> bool:
    await asyncio.sleep(0)
    return bool(
        await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'"
        )
    )


async def _attempts(database: Database, job: Job, count: int) -> bool:
    return (await read(database, job)).attempts == count
