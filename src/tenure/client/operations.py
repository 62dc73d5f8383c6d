"""Every operation of the API as a talk: what is sent, whether it may be repeated, and how the answer is read."""

import json as standard_json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote
from uuid import UUID, uuid4

from pydantic import BaseModel, ValidationError

from tenure.client.rules import Rules, Safety, document, exchange, not_tenure
from tenure.client.steps import Found, Pause, Reply, Send, Talk, Telling
from tenure.errors import InvalidInput, NotFound
from tenure.jobs.model import TERMINAL_STATES
from tenure.wire.cancel import CancelReceipt
from tenure.wire.jobs import BatchAnswer, BatchItem, Event, EventPage, Job, JobPage
from tenure.wire.leases import (
    ClaimAnswer,
    HeartbeatManyAnswer,
    HeartbeatManyItem,
    SettleManyAnswer,
    SettleManyItem,
)
from tenure.wire.reading import Answer
from tenure.wire.service import ArtifactInfo, ArtifactPage
from tenure.wire.workers import Worker, WorkerPage

AnswerT = TypeVar("AnswerT", bound=Answer)
PageT = TypeVar("PageT", JobPage, EventPage, WorkerPage)

_EARLY_SECONDS = 1.0
"""A wait that ended early and brought nothing is asked for again only after about this: nobody is to be flooded."""


def enqueue(rules: Rules, kind: str, payload: Any, *, wait_seconds: float, fields: Mapping[str, Any]) -> Talk[Job]:
    end = rules.clock() + wait_seconds
    key = fields.get("idempotency_key") or str(uuid4())
    body = {**_given(fields), "kind": kind, "payload": payload}
    body.pop("idempotency_key", None)
    job = yield from _ask(
        rules, Job, "POST", "/jobs", body=body, headers={"Idempotency-Key": key}, wait_seconds=wait_seconds
    )
    return (yield from _until_finished(rules, job, end)) if wait_seconds > 0 else job


def enqueue_many(rules: Rules, jobs: Iterable[Mapping[str, Any]]) -> Talk[Sequence[BatchItem]]:
    keyed = [{**_given(job), "idempotency_key": job.get("idempotency_key") or str(uuid4())} for job in jobs]
    answer = yield from _ask(rules, BatchAnswer, "POST", "/jobs/batch", body={"jobs": keyed})
    return answer.items


def get(rules: Rules, job_id: str | UUID, *, wait_seconds: float) -> Talk[Job]:
    end = rules.clock() + wait_seconds
    job = yield from _get(rules, job_id, wait_seconds)
    return (yield from _until_finished(rules, job, end)) if wait_seconds > 0 else job


def wait(rules: Rules, job_id: str | UUID, *, timeout_seconds: float | None) -> Talk[Job]:
    job = yield from get(rules, job_id, wait_seconds=float("inf") if timeout_seconds is None else timeout_seconds)
    if job.state not in TERMINAL_STATES:
        raise TimeoutError(f"job {job.id} is still {job.state} after {timeout_seconds:g} s")
    return job


def page(rules: Rules, path: str, params: Mapping[str, Any]) -> Talk[JobPage]:
    return (yield from _ask(rules, JobPage, "GET", path, params=params))


def pages(rules: Rules, path: str, params: Mapping[str, Any]) -> Telling[Job]:
    yield from _items(rules, JobPage, path, params)


def workers(rules: Rules) -> Telling[Worker]:
    yield from _items(rules, WorkerPage, "/workers", {})


def events(rules: Rules, job_id: str | UUID) -> Talk[Sequence[Event]]:
    found: list[Event] = []
    cursor = None
    while True:
        part = yield from _ask(rules, EventPage, "GET", f"{job_path(job_id)}/events", params={"cursor": cursor})
        found += part.items
        cursor = part.next_cursor
        if cursor is None:
            return found


def cancel(rules: Rules, job_id: str | UUID, *, wait_seconds: float, fields: Mapping[str, Any]) -> Talk[CancelReceipt]:
    end = rules.clock() + wait_seconds
    while True:
        asked_at = rules.clock()
        left = end - asked_at
        path = f"{job_path(job_id)}/cancel"
        receipt = yield from _ask(rules, CancelReceipt, "POST", path, body=_given(fields), wait_seconds=left)
        if receipt.outcome != "requested" or rules.clock() >= end:
            return receipt
        yield from _not_too_soon(rules, asked_at, left, end)


def retry(rules: Rules, job_id: str | UUID, fields: Mapping[str, Any]) -> Talk[Job]:
    path = f"{job_path(job_id)}/retry"
    return (yield from _ask(rules, Job, "POST", path, body=_given(fields), safety=Safety.ONCE))


def artifacts(rules: Rules, job_id: str | UUID) -> Talk[Sequence[ArtifactInfo]]:
    answer = yield from _ask(rules, ArtifactPage, "GET", f"{job_path(job_id)}/artifacts")
    return answer.items


def claim(rules: Rules, body: Mapping[str, Any], *, wait_seconds: float) -> Talk[ClaimAnswer]:
    # Not repeated once it was sent: what the first one was granted would be held by nobody until it expires.
    asked = {**_given(body), "wait_seconds": rules.wait_at_a_time(wait_seconds)}
    return (yield from _ask(rules, ClaimAnswer, "POST", "/leases", body=asked, safety=Safety.ONCE))


def heartbeat(rules: Rules, leases: Iterable[Mapping[str, Any]]) -> Talk[Sequence[HeartbeatManyItem]]:
    body = {"leases": [_given(item) for item in leases]}
    return (yield from _ask(rules, HeartbeatManyAnswer, "POST", "/leases/heartbeat", body=body)).items


def settle(rules: Rules, outcomes: Iterable[Mapping[str, Any]]) -> Talk[Sequence[SettleManyItem]]:
    body = {"outcomes": [_given(item) for item in outcomes]}
    return (yield from _ask(rules, SettleManyAnswer, "POST", "/leases/settle", body=body)).items


def job_path(job_id: str | UUID) -> str:
    """The job's path. What is no id at all is not asked for: it could name another path."""
    try:
        return f"/jobs/{UUID(str(job_id))}"
    except ValueError:
        raise NotFound(f"there is no job {job_id!r}: a job's id is a UUID") from None


def artifact_path(job_id: str | UUID, name: str) -> str:
    """The artifact's path; a name that would lead elsewhere is none."""
    if name in {"", ".", ".."}:
        raise NotFound(f"{name!r} is no name of an artifact")
    return f"{job_path(job_id)}/artifacts/{quote(name, safe='')}"


def read(model: type[AnswerT], reply: Reply, rules: Rules) -> AnswerT:
    """The answer as its model. Raises ServiceUnreachable for one that is not Tenure's."""
    try:
        return model.model_validate(document(reply, rules))
    except ValidationError:
        raise not_tenure(reply, rules) from None


def _ask(
    rules: Rules,
    model: type[AnswerT],
    method: str,
    path: str,
    *,
    params: Mapping[str, Any] | None = None,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    wait_seconds: float = 0.0,
    safety: Safety = Safety.REPEATABLE,
) -> Talk[AnswerT]:
    sent = dict(headers or {})
    if body is not None:
        sent["Content-Type"] = "application/json"
    if wait := int(rules.wait_at_a_time(wait_seconds)):
        sent["Prefer"] = f"wait={wait}"
    send = Send(
        method=method,
        path=path,
        params=_params(params or {}),
        headers=sent,
        content=_encoded(body) if body is not None else None,
        timeout_seconds=rules.timeout_seconds,
    )
    reply = yield from exchange(send, safety, rules)
    return read(model, reply, rules)


def _get(rules: Rules, job_id: str | UUID, wait_seconds: float) -> Talk[Job]:
    return (yield from _ask(rules, Job, "GET", job_path(job_id), wait_seconds=wait_seconds))


def _until_finished(rules: Rules, job: Job, end: float) -> Talk[Job]:
    """One wait after the other: each stays below what proxies and our own timeout bear."""
    while job.state not in TERMINAL_STATES and (left := end - rules.clock()) > 0:
        asked_at = rules.clock()
        job = yield from _get(rules, job.id, left)
        if job.state not in TERMINAL_STATES:
            yield from _not_too_soon(rules, asked_at, left, end)
    return job


def _not_too_soon(rules: Rules, asked_at: float, wanted_seconds: float, end: float) -> Talk[None]:
    """Pauses when a wait ended long before its time: its service stops, or something on the way drops `Prefer`."""
    now = rules.clock()
    if now - asked_at < int(rules.wait_at_a_time(wanted_seconds)) / 2 or wanted_seconds < 1:
        pause = min(_EARLY_SECONDS * (0.5 + rules.random()), max(end - now, 0.0))
        yield Pause(pause)


def _items(rules: Rules, model: type[PageT], path: str, params: Mapping[str, Any]) -> Telling[Any]:
    cursor = params.get("cursor")
    while True:
        part = yield from _ask(rules, model, "GET", path, params={**params, "cursor": cursor})
        for item in part.items:
            yield Found(item)
        cursor = part.next_cursor
        if cursor is None:
            return


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _params(params: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """A filter takes one value, or several as "any of these"."""
    found: list[tuple[str, str]] = []
    for name, value in params.items():
        values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        found += [
            (name, item.isoformat() if isinstance(item, datetime) else str(item)) for item in values if item is not None
        ]
    return found


def _encoded(body: Any) -> bytes:
    """JSON that says exactly what was given; what JSON cannot say is refused, not changed."""
    try:
        text = standard_json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_as_json)
        return text.encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidInput.of("", f"cannot be sent as JSON: {error}") from error


def _as_json(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")
