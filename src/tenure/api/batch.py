"""Many jobs in one request: all of them, or none."""

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tenure.acceptance import Terms, accept
from tenure.api import examples
from tenure.api.answers import JsonAnswer
from tenure.api.body import NDJSON, media_type, read_bytes
from tenure.api.context import ApiContext
from tenure.api.headers import traceparent
from tenure.api.operations import Answer, Body, Operation
from tenure.errors import (
    BodyTooLarge,
    DatabaseUnavailable,
    Draining,
    FieldError,
    IdempotencyKeyReused,
    InvalidInput,
    Malformed,
    RequestTimeout,
    UnsupportedMediaType,
)
from tenure.jobs.model import NewJob
from tenure.store import notify
from tenure.store.enqueue import Enqueued, enqueue
from tenure.wire import json, render
from tenure.wire.jobs import BatchAnswer, BatchRequest, EnqueueRequest
from tenure.wire.reading import MAX_ERRORS, did_you_mean, invalid, read

_IN_A_THREAD_BYTES = 65_536
_RENDER_IN_A_THREAD_JOBS = 500
"""Above these, other requests should not wait for one batch."""


async def enqueue_batch(context: ApiContext, request: Request) -> Response:
    """Accepts up to 10,000 jobs (64 MiB), all in one transaction, or none of them.

    Also takes `application/x-ndjson`, one job a line. Each job may carry its own `idempotency_key`. Errors point at
    `/jobs/57/…`, counted from zero.
    """
    services = context.services
    context.refuse_while_draining("jobs")
    if "idempotency-key" in request.headers:
        raise InvalidInput.of("Idempotency-Key", "is not taken here; give each job its own `idempotency_key`")
    limits = services.settings.limits
    data = await read_bytes(request, limit=limits.batch_bytes, ndjson=True)
    lines = media_type(request) == NDJSON
    arguments = (context.terms, data, lines, traceparent(request))
    if len(data) > _IN_A_THREAD_BYTES:
        jobs = await asyncio.to_thread(jobs_of, *arguments)
    else:
        jobs = jobs_of(*arguments)
    async with services.database.transaction() as connection:
        accepted = await _enqueue(connection, jobs)
    for queue in {item.job.queue for item in accepted if not item.replayed}:
        services.bell.ring(notify.WORK, queue)
    if len(accepted) > _RENDER_IN_A_THREAD_JOBS:
        return JsonAnswer(await asyncio.to_thread(_rendered, accepted), 202)
    return JsonAnswer(_rendered(accepted), 202)


def jobs_of(terms: Terms, data: bytes, lines: bool, trace: str | None) -> list[NewJob]:
    """The jobs of a batch's body. Raises Malformed, InvalidInput, BodyTooLarge with pointers like ``/jobs/57/kind``."""
    values = _lines(data) if lines else _members(json.parse(data))
    most = terms.limits.batch_jobs
    if not values:
        raise InvalidInput.of("/jobs", "is empty; send at least one job")
    if len(values) > most:
        raise InvalidInput.of("/jobs", f"has {len(values):,} jobs; at most {most:,} are taken at once")
    jobs: list[NewJob] = []
    wrong: list[FieldError] = []
    for position, value in enumerate(values):
        at = f"/jobs/{position}"
        try:
            asked = read(EnqueueRequest, value, at=at)
            jobs.append(accept(asked, value, terms=terms, key=asked.idempotency_key, traceparent=trace, at=at))
        except InvalidInput as refusal:
            wrong += refusal.errors
            if len(wrong) >= MAX_ERRORS:
                break
    if wrong:
        raise invalid(wrong)
    return jobs


async def _enqueue(connection: Any, jobs: list[NewJob]) -> list[Enqueued]:
    try:
        return await enqueue(connection, jobs)
    except InvalidInput as refusal:
        if len(jobs) > 1:
            raise
        # A single job is reported as such by the store; in a batch it is the first of one.
        refusal.errors = tuple(
            FieldError(pointer=f"/jobs/0{error.pointer}", message=error.message) for error in refusal.errors
        )
        raise


def _members(value: Any) -> list[Any]:
    if not isinstance(value, dict):
        raise InvalidInput.of("", 'should be a JSON object like {"jobs": [...]}')
    unknown = [name for name in value if name != "jobs"]
    if unknown:
        hint = did_you_mean(unknown[0], ["jobs"])
        raise InvalidInput.of(json.pointer(unknown[0]), f"there is no such field; {hint}")
    jobs = value.get("jobs")
    if not isinstance(jobs, list):
        raise InvalidInput.of("/jobs", "should be a list of jobs" if "jobs" in value else "is required")
    return jobs


def _lines(data: bytes) -> list[Any]:
    values: list[Any] = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            values.append(json.parse(line, at=f"/jobs/{len(values)}"))
        except Malformed as error:
            raise Malformed(f"line {number}: {error.detail}") from None
    return values


def _rendered(accepted: list[Enqueued]) -> bytes:
    return json.dumps({"items": [{"job": render.job(item.job), "replayed": item.replayed} for item in accepted]})


OPERATIONS = (
    Operation(
        method="POST",
        path="/jobs/batch",
        endpoint=enqueue_batch,
        summary="Enqueue many jobs, all or none",
        tag="jobs",
        body=Body(model=BatchRequest, examples=examples.BATCH, ndjson=examples.BATCH_LINES),
        answers=(
            Answer(
                status=202,
                description="All accepted and committed, in the order given.",
                model=BatchAnswer,
                example=examples.BATCH_ANSWER,
            ),
        ),
        problems=(
            BodyTooLarge,
            UnsupportedMediaType,
            RequestTimeout,
            IdempotencyKeyReused,
            Draining,
            DatabaseUnavailable,
        ),
    ),
)
