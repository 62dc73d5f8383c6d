"""`report.export`: runs a report and publishes its rows as a file, in the same commit as the job's success.

The order is what keeps the promise: rows are read as of one moment, encoded and written under this attempt's own key;
only then does one transaction register the file and complete the job. Whatever ends it before leaves an object that
nobody can see, which is removed here where that is safe, else by the sweeper.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationInfo, field_validator

from tenure.artifacts import ArtifactStore, artifact_key
from tenure.artifacts.completing import to_its_end
from tenure.errors import CompletionUnavailable, DatabaseUnavailable, LeaseLost, RetryLater, Unavailable
from tenure.handlers.reports.catalog import ReportCatalog
from tenure.handlers.reports.formats import FORMATS, Encoder
from tenure.handlers.reports.request import (
    ExportedArtifact,
    ExportRequest,
    ExportResult,
    check_parameters,
    check_report,
)
from tenure.handlers.reports.rows import Row, RowStream
from tenure.handlers.sources.postgres import open_rows
from tenure.store.artifacts import Artifact
from tenure.worker.context import JobContext
from tenure.worker.registry import JobRegistry

KIND = "report.export"

_FIRST_ROWS = 250
_MOST_ROWS = 5_000
_BATCH_BYTES = 2 << 20
"""Batches grow towards this size and shrink when rows turn out wide: what bounds memory is bytes, not rows."""

_NOTHING_WAS_WRITTEN = (LeaseLost, DatabaseUnavailable, CompletionUnavailable)
"""What `context.completion` raises only when it is certain that its transaction did not commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What was written: size, rows, and the digest in hex."""

    bytes: int
    rows: int
    sha256: str


def register_report_export(registry: JobRegistry, catalog: ReportCatalog, artifacts: ArtifactStore) -> None:
    """Adds `report.export` over these reports: a request that does not fit them is refused when it is enqueued."""

    class CatalogRequest(ExportRequest):
        @field_validator("report")
        @classmethod
        def _known_report(cls, value: str) -> str:
            return check_report(catalog, value)

        @field_validator("parameters")
        @classmethod
        def _fitting_parameters(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
            return check_parameters(catalog, value, info)

    @registry.handler(KIND, queue="exports", max_attempts=5, lease_seconds=30)
    async def export_report(context: JobContext, request: CatalogRequest) -> None:
        await export(context, request, catalog=catalog, artifacts=artifacts)


async def export(
    context: JobContext, request: ExportRequest, *, catalog: ReportCatalog, artifacts: ArtifactStore
) -> None:
    """Runs the report and completes the job. ``request.parameters`` are the values that the catalog has read."""
    report = catalog.reports[request.report]
    file_format = FORMATS[request.format]
    name = f"{report.name}.{file_format.extension}"
    key = artifact_key(context.job.id, context.attempt_version, name)
    await context.progress(None, f"asking {report.source.name}")

    async with open_rows(report, request.parameters) as rows:

        async def report_progress(done: int) -> None:
            context.raise_if_canceled()
            fraction = min(done / rows.total, 1.0) if rows.total else None
            await context.progress(fraction, f"{done:,} rows")

        try:
            encoder = file_format.encoder(rows.columns, report.escape_formulas)
            written = await write_rows(rows, encoder, artifacts, key, after_batch=report_progress)
        except Unavailable as error:
            raise RetryLater(error.detail) from error

    exported = ExportedArtifact(
        name=name,
        bytes=written.bytes,
        rows=written.rows,
        sha256=written.sha256,
        content_type=file_format.content_type,
    )
    await _publish(context, artifacts, key, exported)


async def write_rows(
    rows: RowStream,
    encoder: Encoder,
    artifacts: ArtifactStore,
    key: str,
    *,
    after_batch: Callable[[int], Awaitable[None]],
) -> Written:
    """Writes all rows under the key; ``after_batch`` is told how many are done, and may stop it by raising.

    Memory is bounded by a few batches. On any error nothing is left under the key.
    """
    loop = asyncio.get_running_loop()
    digest = hashlib.sha256()
    size = done = 0
    count = _FIRST_ROWS

    def encode(batch: list[Row]) -> bytes:
        # Nothing fetched: that is the end.
        data = encoder.encode(batch) if batch else encoder.finish()
        digest.update(data)
        return data

    # One thread for the whole file, apart from the event loop, which has heartbeats to send: allocators keep memory for
    # every thread that ever asked for some.
    with ThreadPoolExecutor(1, thread_name_prefix="tenure-export") as thread:
        async with artifacts.writer(key) as writer:
            while True:
                batch = list(await rows.fetch(count))
                data = await to_its_end(loop.run_in_executor(thread, encode, batch))
                if data:
                    await writer.write(data)
                size += len(data)
                done += len(batch)
                await after_batch(done)
                if not batch:
                    break
                count = next_count(len(batch), encoder.weight)
    return Written(bytes=size, rows=done, sha256=digest.hexdigest())


def next_count(rows: int, weight: int) -> int:
    """How many rows to fetch after a batch of so many rows and bytes: at most four times as many, of about 2 MiB."""
    fitting = rows * _BATCH_BYTES // max(weight, 1)
    return max(1, min(fitting, rows * 4, _MOST_ROWS))


async def _publish(context: JobContext, artifacts: ArtifactStore, key: str, exported: ExportedArtifact) -> None:
    artifact = Artifact(
        name=exported.name,
        location=key,
        bytes=exported.bytes,
        rows=exported.rows,
        sha256=exported.sha256,
        content_type=exported.content_type,
    )
    may_be_committed = False
    try:
        context.raise_if_canceled()
        async with context.completion(ExportResult(artifacts=[exported]), artifacts=[artifact]):
            may_be_committed = True
    except BaseException as error:
        # Where it is not certain that nothing was committed, the file stays: it may be registered, and the sweeper asks
        # the database before it takes a file away.
        if not may_be_committed or isinstance(error, _NOTHING_WAS_WRITTEN):
            with suppress(Unavailable):
                await artifacts.delete([key])
        raise
