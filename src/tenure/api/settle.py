"""Workers over HTTP: the four ways to give a lease back, for one job or for many."""

import random
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from tenure.api import examples
from tenure.api.answers import JsonAnswer
from tenure.api.body import read_model
from tenure.api.context import ApiContext, Endpoint
from tenure.api.jobs import body_limit
from tenure.api.operations import Answer, Body, Operation
from tenure.errors import (
    BodyTooLarge,
    DatabaseUnavailable,
    LeaseLost,
    NotFound,
    RequestTimeout,
    TenureError,
    UnsupportedMediaType,
)
from tenure.jobs.decisions import ReportedError
from tenure.jobs.model import ErrorKind, State
from tenure.store import notify
from tenure.store.settle import Answer as StoreAnswer
from tenure.store.settle import Outcome, OutcomeKind, Settled, settle
from tenure.wire import json, render
from tenure.wire import leases as wire
from tenure.wire.problems import problem_of
from tenure.wire.reading import Request as WireRequest

_RELEASED = frozenset({OutcomeKind.RELEASE, OutcomeKind.SNOOZE})
_ANY_QUEUE = "*"


async def complete_job(context: ApiContext, request: Request) -> Response:
    """Reports success. The same result again, under the same token, is answered as the first time."""
    limit = body_limit(context.services.settings.limits.result_bytes)
    asked = await read_model(request, wire.CompleteRequest, limit=limit)
    return await _settle_one(
        context, _outcome(context, request.path_params["job_id"], asked.lease_token, "complete", result=asked.result)
    )


async def fail_job(context: ApiContext, request: Request) -> Response:
    """Reports a failure. Its kind decides what follows: a retry with backoff, `failed`, `dead` or `canceled`."""
    limit = body_limit(context.services.settings.limits.result_bytes)
    asked = await read_model(request, wire.FailRequest, limit=limit)
    outcome = _outcome(
        context,
        request.path_params["job_id"],
        asked.lease_token,
        "fail",
        error=asked.error,
        retry_after_seconds=asked.retry_after_seconds,
    )
    return await _settle_one(context, outcome)


async def release_job(context: ApiContext, request: Request) -> Response:
    """Gives the job back, to be claimed again at once. The attempt does not count (100 times a job)."""
    limit = body_limit(context.services.settings.limits.result_bytes)
    asked = await read_model(request, wire.ReleaseRequest, limit=limit)
    return await _settle_one(context, _outcome(context, request.path_params["job_id"], asked.lease_token, "release"))


async def snooze_job(context: ApiContext, request: Request) -> Response:
    """Gives the job back, to be claimed again after `delay_seconds`. The attempt does not count (100 times a job)."""
    limit = body_limit(context.services.settings.limits.result_bytes)
    asked = await read_model(request, wire.SnoozeRequest, limit=limit)
    outcome = _outcome(
        context, request.path_params["job_id"], asked.lease_token, "snooze", delay_seconds=asked.delay_seconds
    )
    return await _settle_one(context, outcome)


async def settle_leases(context: ApiContext, request: Request) -> Response:
    """Reports many outcomes at once; each is answered by itself, in the order given."""
    limits = context.services.settings.limits
    asked = await read_model(request, wire.SettleManyRequest, limit=limits.batch_bytes)
    reports: list[Outcome | TenureError] = []
    for item in asked.outcomes:
        try:
            reports.append(
                _outcome(
                    context,
                    item.job_id,
                    item.lease_token,
                    item.outcome,
                    result=item.result,
                    error=item.error,
                    retry_after_seconds=item.retry_after_seconds,
                    delay_seconds=item.delay_seconds,
                )
            )
        except BodyTooLarge as refusal:
            reports.append(refusal)
    answers = iter(await _settle(context, [report for report in reports if isinstance(report, Outcome)]))
    items: list[dict[str, Any]] = []
    for item, report in zip(asked.outcomes, reports, strict=True):
        answer = report if isinstance(report, TenureError) else next(answers)
        if isinstance(answer, TenureError):
            items.append({"job_id": str(item.job_id), "status": answer.status, "problem": problem_of(answer)})
        else:
            items.append({"status": 200, **_rendered(answer)})
    return JsonAnswer({"items": items})


def _outcome(
    context: ApiContext,
    job_id: UUID,
    token: str,
    kind: str,
    *,
    result: Any = None,
    error: wire.ReportedFailure | None = None,
    retry_after_seconds: float | None = None,
    delay_seconds: float | None = None,
) -> Outcome:
    """The outcome as the store takes it. Raises BodyTooLarge for a result over the limit: the lease then stays."""
    text = json.dumps(result) if result is not None else None
    limit = context.services.settings.limits.result_bytes
    if text is not None and len(text) > limit:
        raise BodyTooLarge(f"/result is {len(text):,} bytes as JSON; at most {limit:,} are taken", limit_bytes=limit)
    reported = None
    if error is not None:
        reported = ReportedError(
            kind=ErrorKind(error.kind),
            type=error.type,
            message=error.message,
            retry_after_seconds=retry_after_seconds,
        )
    return Outcome(
        job_id=job_id,
        token=token,
        kind=OutcomeKind(kind),
        result=text.decode() if text is not None else None,
        error=reported,
        delay_seconds=delay_seconds,
    )


async def _settle_one(context: ApiContext, outcome: Outcome) -> Response:
    (answer,) = await _settle(context, [outcome])
    if isinstance(answer, TenureError):
        raise answer
    return JsonAnswer(_rendered(answer))


async def _settle(context: ApiContext, outcomes: Sequence[Outcome]) -> list[StoreAnswer]:
    if not outcomes:
        return []
    services = context.services
    # Completions alone are one statement, which needs no transaction around it.
    alone = all(outcome.kind is OutcomeKind.COMPLETE for outcome in outcomes)
    opened = services.database.connection() if alone else services.database.transaction()
    async with opened as connection:
        answers = await settle(connection, outcomes, policy_of=services.registry.policy_of, random=random.random)
    context.watcher.nudge(outcome.job_id for outcome in outcomes)
    if any(_is_due_again(outcome, answer) for outcome, answer in zip(outcomes, answers, strict=True)):
        services.bell.ring(notify.WORK, _ANY_QUEUE)
    return answers


def _is_due_again(outcome: Outcome, answer: StoreAnswer) -> bool:
    return (
        isinstance(answer, Settled)
        and answer.state is State.QUEUED
        and not answer.replayed
        and outcome.kind in _RELEASED
        and not outcome.delay_seconds
    )


def _rendered(settled: Settled) -> dict[str, Any]:
    return {
        "job_id": str(settled.job_id),
        "state": settled.state,
        "version": settled.version,
        "available_at": render.time(settled.available_at),
    }


_BODY_PROBLEMS = (BodyTooLarge, UnsupportedMediaType, RequestTimeout, DatabaseUnavailable)


def _one(verb: str, endpoint: Endpoint, summary: str, model: type[WireRequest], body: Any, answer: Any) -> Operation:
    return Operation(
        method="POST",
        path=f"/jobs/{{job_id:uuid}}/{verb}",
        endpoint=endpoint,
        summary=summary,
        tag="leases",
        body=Body(model=model, examples=body),
        answers=(Answer(status=200, description="Where the job went.", model=wire.SettleAnswer, example=answer),),
        problems=(*_BODY_PROBLEMS, NotFound, LeaseLost),
    )


OPERATIONS = (
    _one(
        "complete", complete_job, "Report success", wire.CompleteRequest, examples.COMPLETE, examples.SETTLED_SUCCEEDED
    ),
    _one("fail", fail_job, "Report a failure", wire.FailRequest, examples.FAIL, examples.SETTLED_QUEUED),
    _one("release", release_job, "Give a job back", wire.ReleaseRequest, examples.RELEASE, examples.SETTLED_QUEUED),
    _one("snooze", snooze_job, "Put a job off", wire.SnoozeRequest, examples.SNOOZE, examples.SETTLED_QUEUED),
    Operation(
        method="POST",
        path="/leases/settle",
        endpoint=settle_leases,
        summary="Report many outcomes",
        tag="leases",
        body=Body(model=wire.SettleManyRequest, examples=examples.SETTLE_MANY),
        answers=(
            Answer(
                status=200,
                description="One item an outcome, in the order given; a problem where it was refused.",
                model=wire.SettleManyAnswer,
                example=examples.SETTLE_MANY_ANSWER,
            ),
        ),
        problems=_BODY_PROBLEMS,
    ),
)
