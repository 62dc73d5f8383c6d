"""Who works here, what each holds, and telling one to be quiet or to end."""

import base64
import binascii
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tenure.api import examples
from tenure.api.answers import JsonAnswer
from tenure.api.body import SMALL_BODY_BYTES, read_model
from tenure.api.context import ApiContext
from tenure.api.operations import Answer, Body, Operation
from tenure.api.query import read_query
from tenure.errors import (
    BodyTooLarge,
    DatabaseUnavailable,
    InvalidInput,
    NotFound,
    RequestTimeout,
    UnsupportedMediaType,
)
from tenure.store import notify
from tenure.store.workers import Directive, HeldJob, Worker, direct, held_by, list_workers
from tenure.wire import render
from tenure.wire import workers as wire


async def list_all_workers(context: ApiContext, request: Request) -> Response:
    """Lists workers by name: those that were seen within a day, and all that hold a job."""
    query = read_query(request, wire.WorkersQuery)
    async with context.services.database.connection() as connection:
        found = await list_workers(connection, after=_read_cursor(query.cursor), limit=query.limit + 1)
    shown = found[: query.limit]
    cursor = _cursor(shown[-1].id) if len(found) > query.limit else None
    return JsonAnswer({"items": [_worker(worker) for worker in shown], "next_cursor": cursor})


async def get_worker(context: ApiContext, request: Request) -> Response:
    """Reads a worker and all that it holds, longest first."""
    return await _answer(context, request.path_params["worker_id"])


async def quiet_worker(context: ApiContext, request: Request) -> Response:
    """Tells a worker to claim nothing more; what it holds it finishes. It gets no lease from now on."""
    return await _direct(context, request, Directive.QUIET)


async def terminate_worker(context: ApiContext, request: Request) -> Response:
    """Tells a worker to finish or release what it holds, and to end. It gets no lease from now on."""
    return await _direct(context, request, Directive.TERMINATE)


async def resume_worker(context: ApiContext, request: Request) -> Response:
    """Takes back what a worker was told, for one that has not ended yet."""
    return await _direct(context, request, None)


async def _direct(context: ApiContext, request: Request, directive: Directive | None) -> Response:
    worker_id = request.path_params["worker_id"]
    asked = await read_model(request, wire.DirectRequest, limit=SMALL_BODY_BYTES, optional=True)
    async with context.services.database.connection() as connection:
        await direct(connection, worker_id, directive, reason=asked.reason)
    context.services.bell.ring(notify.WORKER, worker_id)
    return await _answer(context, worker_id)


async def _answer(context: ApiContext, worker_id: str) -> Response:
    async with context.services.database.snapshot() as connection:
        found = await list_workers(connection, worker_id=worker_id)
        held = await held_by(connection, worker_id)
    if not found:
        raise NotFound(f"there is no worker {worker_id!r}")
    return JsonAnswer(_worker(found[0]) | {"holds": [_held(job) for job in held]})


def _worker(worker: Worker) -> dict[str, Any]:
    times = ("directed_at", "first_seen_at", "last_seen_at")
    return asdict(worker) | {name: render.time(getattr(worker, name)) for name in times}


def _held(job: HeldJob) -> dict[str, Any]:
    return {
        "job_id": str(job.id),
        "kind": job.kind,
        "queue": job.queue,
        "attempts": job.attempts,
        "acquired_at": render.time(job.lease_acquired_at),
        "expires_at": render.time(job.lease_expires_at),
        "heartbeat_at": render.time(job.lease_heartbeat_at),
    }


def _cursor(worker_id: str) -> str:
    return base64.urlsafe_b64encode(worker_id.encode()).decode().rstrip("=")


def _read_cursor(cursor: str | None) -> str | None:
    if cursor is None:
        return None
    try:
        return base64.b64decode(cursor.encode("ascii") + b"==", altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        raise InvalidInput.of("cursor", "is none that an answer has given; begin without one") from None


def _directing(name: str, endpoint: Any, summary: str) -> Operation:
    return Operation(
        method="POST",
        path=f"/workers/{{worker_id}}/{name}",
        endpoint=endpoint,
        summary=summary,
        tag="workers",
        body=Body(model=wire.DirectRequest, examples=examples.DIRECT, required=False),
        answers=(
            Answer(status=200, description="The worker.", model=wire.WorkerDetail, example=examples.WORKER_DETAIL),
        ),
        problems=(NotFound, BodyTooLarge, UnsupportedMediaType, RequestTimeout, DatabaseUnavailable),
    )


OPERATIONS = (
    Operation(
        method="GET",
        path="/workers",
        endpoint=list_all_workers,
        summary="List workers",
        tag="workers",
        query=wire.WorkersQuery,
        answers=(Answer(status=200, description="A page.", model=wire.WorkerPage, example=examples.WORKER_PAGE),),
        problems=(DatabaseUnavailable,),
    ),
    Operation(
        method="GET",
        path="/workers/{worker_id}",
        endpoint=get_worker,
        summary="Read a worker",
        tag="workers",
        answers=(
            Answer(status=200, description="The worker.", model=wire.WorkerDetail, example=examples.WORKER_DETAIL),
        ),
        problems=(NotFound, DatabaseUnavailable),
    ),
    _directing("quiet", quiet_worker, "Tell a worker to claim no more"),
    _directing("terminate", terminate_worker, "Tell a worker to end"),
    _directing("resume", resume_worker, "Take back what a worker was told"),
)
