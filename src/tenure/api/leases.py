"""Workers over HTTP: claim work, keep it."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tenure.api import examples
from tenure.api.answers import JsonAnswer
from tenure.api.body import read_model
from tenure.api.claiming import Claimant, WorkWanted
from tenure.api.context import ApiContext
from tenure.api.operations import Answer, Body, Operation
from tenure.api.presence import following
from tenure.errors import (
    BodyTooLarge,
    DatabaseUnavailable,
    Draining,
    LeaseLost,
    NotFound,
    RequestTimeout,
    TenureError,
    UnsupportedMediaType,
)
from tenure.jobs.model import Claimed
from tenure.store.claim import KindSelector
from tenure.store.heartbeat import Heartbeat, HeartbeatAnswer, heartbeat
from tenure.wire import leases as wire
from tenure.wire import render
from tenure.wire.problems import problem_of

_CLAIM_BODY_BYTES = 1_048_576
"""A thousand queues and a thousand kinds with names of full length."""


async def claim_leases(context: ApiContext, request: Request) -> Response:
    """Leases due jobs to a worker: highest priority first, then the longest due.

    With `wait_seconds` the answer is held back until there is work. A caller who leaves meanwhile gets none: what was
    claimed for it is released at once. While the service stops, waits end with no leases and new claims are refused.
    """
    asked = await read_model(request, wire.ClaimRequest, limit=_CLAIM_BODY_BYTES)
    context.refuse_while_draining("claims")
    wanted = WorkWanted(queues=tuple(dict.fromkeys(asked.queues)), kinds=_selectors(context, asked))
    claimant = Claimant(
        worker_id=asked.worker_id,
        max_jobs=asked.max_jobs,
        lease_seconds=asked.lease_seconds,
        capacity=asked.capacity,
        version=asked.version,
        host=asked.host,
        restarted=asked.restarted,
    )
    directive = await context.claims.directive(wanted, claimant)
    async with following(request) as gone:
        claimed = await context.claims.claim(wanted, claimant, wait_seconds=asked.wait_seconds, gone=gone)
    return JsonAnswer({"leases": [_granted(item) for item in claimed], "directive": directive})


def _selectors(context: ApiContext, asked: wire.ClaimRequest) -> tuple[KindSelector, ...] | None:
    if asked.kinds is None:
        return None
    selectors = {}
    for wanted in asked.kinds:
        spec = context.services.registry.get(wanted.kind)
        selectors[wanted.kind] = KindSelector(
            kind=wanted.kind,
            schema_versions=tuple(wanted.schema_versions or ()),
            lease_seconds=spec.lease_seconds if spec else None,
        )
    return tuple(selectors.values())


def _granted(claimed: Claimed) -> dict[str, Any]:
    lease = claimed.job.lease
    assert lease is not None
    length = (lease.expires_at - lease.acquired_at).total_seconds()
    return {
        "job": render.job(claimed.job),
        "lease_token": claimed.token,
        "lease_expires_at": render.time(lease.expires_at),
        "heartbeat_every_seconds": round(length / 3, 3),
    }


async def heartbeat_job(context: ApiContext, request: Request) -> Response:
    """Keeps a lease: it then ends one lease length from now. Says whether to stop."""
    asked = await read_model(request, wire.HeartbeatRequest, limit=_CLAIM_BODY_BYTES)
    beat = _beat(request.path_params["job_id"], asked)
    async with context.services.database.connection() as connection:
        (answer,) = await heartbeat(connection, [beat])
    if isinstance(answer, TenureError):
        raise answer
    return JsonAnswer(_kept(answer))


async def heartbeat_leases(context: ApiContext, request: Request) -> Response:
    """Keeps all leases that a worker holds, in one statement. A lost one spoils nothing for the others."""
    limits = context.services.settings.limits
    asked = await read_model(request, wire.HeartbeatManyRequest, limit=limits.batch_bytes)
    beats = [_beat(item.job_id, item) for item in asked.leases]
    async with context.services.database.connection() as connection:
        answers = await heartbeat(connection, beats)
    items: list[dict[str, Any]] = []
    for beat, answer in zip(beats, answers, strict=True):
        if isinstance(answer, TenureError):
            items.append({"job_id": str(beat.job_id), "status": answer.status, "problem": problem_of(answer)})
        else:
            items.append({"job_id": str(beat.job_id), "status": 200, **_kept(answer)})
    return JsonAnswer({"items": items})


def _beat(job_id: Any, asked: wire.HeartbeatRequest) -> Heartbeat:
    progress = asked.progress
    return Heartbeat(
        job_id=job_id,
        token=asked.lease_token,
        has_progress=progress is not None,
        fraction=progress.fraction if progress else None,
        message=progress.message if progress else None,
    )


def _kept(answer: HeartbeatAnswer) -> dict[str, Any]:
    return {
        "lease_expires_at": render.time(answer.lease_expires_at),
        "cancel_requested": answer.cancel_requested,
        "deadline_at": render.time(answer.deadline_at),
        "directive": answer.directive,
    }


_BODY_PROBLEMS = (BodyTooLarge, UnsupportedMediaType, RequestTimeout, DatabaseUnavailable)

OPERATIONS = (
    Operation(
        method="POST",
        path="/leases",
        endpoint=claim_leases,
        summary="Claim work",
        tag="leases",
        body=Body(model=wire.ClaimRequest, examples=examples.CLAIM),
        answers=(
            Answer(
                status=200,
                description="The leases; none when there was no work.",
                model=wire.ClaimAnswer,
                example=examples.CLAIMED,
            ),
        ),
        problems=(*_BODY_PROBLEMS, Draining),
    ),
    Operation(
        method="POST",
        path="/jobs/{job_id:uuid}/heartbeat",
        endpoint=heartbeat_job,
        summary="Keep a lease",
        tag="leases",
        body=Body(model=wire.HeartbeatRequest, examples=examples.HEARTBEAT),
        answers=(
            Answer(
                status=200, description="It goes on.", model=wire.HeartbeatAnswer, example=examples.HEARTBEAT_ANSWER
            ),
        ),
        problems=(*_BODY_PROBLEMS, NotFound, LeaseLost),
    ),
    Operation(
        method="POST",
        path="/leases/heartbeat",
        endpoint=heartbeat_leases,
        summary="Keep many leases",
        tag="leases",
        body=Body(model=wire.HeartbeatManyRequest, examples=examples.HEARTBEAT_MANY),
        answers=(
            Answer(
                status=200,
                description="One item a heartbeat, in the order given; a problem where that lease is lost.",
                model=wire.HeartbeatManyAnswer,
                example=examples.HEARTBEAT_MANY_ANSWER,
            ),
        ),
        problems=_BODY_PROBLEMS,
    ),
)
