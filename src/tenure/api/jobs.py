"""Accepting a job, reading one, listing many."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from tenure.acceptance import accept
from tenure.api import examples
from tenure.api.answers import REVALIDATE, JsonAnswer
from tenure.api.body import read_model_and_value
from tenure.api.context import ApiContext
from tenure.api.headers import (
    entity_tag,
    idempotency_key,
    not_modified,
    traceparent,
    version_expected,
    wait_preferred,
)
from tenure.api.operations import Answer, Body, Header, Operation
from tenure.api.query import job_cursor, read_job_cursor, read_query
from tenure.api.waiting import submitter_left, until_finished
from tenure.errors import (
    BodyTooLarge,
    DatabaseUnavailable,
    Draining,
    IdempotencyKeyReused,
    NotFound,
    RequestTimeout,
    UnsupportedMediaType,
    VersionMismatch,
)
from tenure.jobs.ids import JobId
from tenure.jobs.model import TERMINAL_STATES, Event, Job, State
from tenure.store import inspect, notify
from tenure.store.inspect import JobFilter
from tenure.wire import jobs as wire
from tenure.wire import render

WAIT_HEADER = Header(
    name="Prefer",
    description="`wait=N`: answer once the job has finished, after N (≤ 60) seconds at most",
    example="wait=20",
)
WAITED_HEADER = Header(name="Preference-Applied", description="the wait that was applied", example="wait=20")
TAG_HEADER = Header(name="ETag", description="version and heartbeats of the job", example='"3.2"')

_OVERHEAD_BYTES = 65_536
_ESCAPES = 3
"""Escaped as `\\uXXXX`, text takes up to three times the bytes that it has as plain UTF-8."""

_WITH_BODIES_AT_ONCE = 20
_PAGE_CHARACTERS = 16 * 1_048_576
"""A page with payloads ends early beyond this: five hundred of a megabyte each would fill the memory."""


def body_limit(json_bytes: int) -> int:
    """How large a body may be that carries one JSON value of this many bytes, however it is escaped."""
    return json_bytes * _ESCAPES + _OVERHEAD_BYTES


async def enqueue_job(context: ApiContext, request: Request) -> Response:
    """Accepts a job. It has been committed when the answer leaves.

    With an `Idempotency-Key` header (or `idempotency_key` in the body) a repeat of the same body is answered with the
    first job; another body under the same key is refused. A kind that the service does not know is accepted: its workers
    may live elsewhere.
    """
    services = context.services
    context.refuse_while_draining("jobs")
    limit = body_limit(services.settings.limits.payload_bytes)
    asked, sent = await read_model_and_value(request, wire.EnqueueRequest, limit=limit)
    key = idempotency_key(request, asked.idempotency_key)
    accepted = accept(asked, sent, terms=context.terms, key=key, traceparent=traceparent(request))
    enqueued = await context.intake.enqueue(accepted)
    job, replayed = enqueued.job, enqueued.replayed
    if not replayed and job.available_at <= job.created_at:
        services.bell.ring(notify.WORK, job.queue)
    wait = wait_preferred(request)
    if wait.seconds:
        waited = await until_finished(context, request, job, seconds=wait.seconds)
        job = waited.job
        if waited.caller_left:
            await submitter_left(context, job)
    headers = {"Location": f"/jobs/{job.id}", "ETag": entity_tag(job), **wait.applied}
    if replayed:
        headers["Idempotent-Replayed"] = "true"
    finished = bool(wait.seconds) and job.state in TERMINAL_STATES
    return JsonAnswer(render.job(job), 200 if replayed or finished else 202, headers)


async def get_job(context: ApiContext, request: Request) -> Response:
    """Answers the job as it is now, or, with `Prefer: wait=N`, once it has finished."""
    query = read_query(request, wire.JobQuery)
    job_id = JobId(request.path_params["job_id"])
    job, events = await _read(context, job_id, with_events="events" in query.include)
    wait = wait_preferred(request)
    if wait.seconds and job.state not in TERMINAL_STATES:
        await until_finished(context, request, job, seconds=wait.seconds)
        job, events = await _read(context, job_id, with_events="events" in query.include)
    expected = version_expected(request, None)
    if expected is not None and expected != job.version:
        raise VersionMismatch(f"the job is at version {job.version}, not {expected}", current_version=job.version)
    tag = entity_tag(job)
    headers = {"ETag": tag, **REVALIDATE, **wait.applied}
    if not_modified(request, tag):
        return Response(status_code=304, headers=headers)
    shown = render.job(job)
    if events is not None:
        shown["events"] = [render.event(event) for event in events]
    return JsonAnswer(shown, 200, headers)


async def list_jobs(context: ApiContext, request: Request) -> Response:
    """Lists jobs, newest first. A repeated parameter means "any of these"; different ones must all hold.

    Payloads and results are left out unless `include=payload,result` asks for them. Pages are by keyset: nothing is
    skipped or repeated while jobs come and go.
    """
    query = read_query(request, wire.JobsQuery)
    wanted = JobFilter(
        states=tuple(State(state) for state in query.state),
        queues=tuple(query.queue),
        kinds=tuple(query.kind),
        tags=tuple(query.tag),
        worker_ids=tuple(query.worker_id),
        concurrency_keys=tuple(query.concurrency_key),
        fingerprints=tuple(query.fingerprint),
        created_after=query.created_after,
        created_before=query.created_before,
    )
    return await page_of_jobs(context, wanted, limit=query.limit, cursor=query.cursor, include=query.include)


async def page_of_jobs(
    context: ApiContext, wanted: JobFilter, *, limit: int, cursor: str | None, include: Sequence[str]
) -> Response:
    """One page: asks for one job more than it shows, to know whether there is a next."""
    payload, result = "payload" in include, "result" in include
    before = read_job_cursor(cursor)
    at_once = _WITH_BODIES_AT_ONCE if payload or result else limit + 1
    jobs: list[Job] = []
    characters = 0
    async with context.services.database.connection() as connection:
        while len(jobs) <= limit and characters < _PAGE_CHARACTERS:
            found = await inspect.list_jobs(
                connection,
                wanted,
                before=jobs[-1].id if jobs else before,
                limit=min(at_once, limit + 1 - len(jobs)),
                include_payload=payload,
                include_result=result,
            )
            jobs += found
            if len(found) < at_once:
                break
            characters += sum(len(job.payload or "") + len(job.result or "") for job in found)
    # What a page is cut short by, its size or its limit, the next one begins with.
    more = len(jobs) > limit or characters >= _PAGE_CHARACTERS
    shown = jobs[:limit]
    items = [render.job(job, payload=payload, result=result) for job in shown]
    return JsonAnswer({"items": items, "next_cursor": job_cursor(shown[-1].id) if more else None})


async def _read(context: ApiContext, job_id: JobId, *, with_events: bool) -> tuple[Job, list[Event] | None]:
    database = context.services.database
    if not with_events:
        async with database.connection() as connection:
            job, events = await inspect.get(connection, job_id), None
    else:
        async with database.snapshot() as connection:
            job, events = await inspect.get(connection, job_id), await inspect.events(connection, job_id)
    if job is None:
        raise NotFound(f"there is no job {job_id}")
    return job, events


OPERATIONS = (
    Operation(
        method="POST",
        path="/jobs",
        endpoint=enqueue_job,
        summary="Enqueue a job",
        tag="jobs",
        headers=(
            Header(name="Idempotency-Key", description="makes a repeat harmless", example="order-4711"),
            WAIT_HEADER,
            Header(
                name="traceparent",
                description="W3C trace context, handed on to every attempt",
                example="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            ),
        ),
        body=Body(model=wire.EnqueueRequest, examples=examples.ENQUEUE),
        answers=(
            Answer(
                status=202,
                description="Accepted and committed.",
                model=wire.Job,
                example=examples.QUEUED_JOB,
                headers=(
                    Header(name="Location", description="where the job is", example=f"/jobs/{examples.JOB_ID}"),
                    TAG_HEADER,
                ),
            ),
            Answer(
                status=200,
                description="The job that this key was accepted with before, or (`Prefer: wait`) the finished job.",
                model=wire.Job,
                example=examples.SUCCEEDED_JOB,
                headers=(
                    Header(name="Idempotent-Replayed", description="`true` for a repeat", example="true"),
                    WAITED_HEADER,
                ),
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
    Operation(
        method="GET",
        path="/jobs",
        endpoint=list_jobs,
        summary="List jobs",
        tag="jobs",
        query=wire.JobsQuery,
        answers=(Answer(status=200, description="A page.", model=wire.JobPage, example=examples.JOB_PAGE),),
        problems=(DatabaseUnavailable,),
    ),
    Operation(
        method="GET",
        path="/jobs/{job_id:uuid}",
        endpoint=get_job,
        summary="Read a job",
        tag="jobs",
        query=wire.JobQuery,
        headers=(
            WAIT_HEADER,
            Header(name="If-None-Match", description="the ETag that you have", example='"3.2"'),
            Header(name="If-Match", description="only if the job is at this version", example='"3"'),
        ),
        answers=(
            Answer(
                status=200,
                description="The job.",
                model=wire.Job,
                example=examples.RUNNING_JOB,
                headers=(TAG_HEADER, WAITED_HEADER),
            ),
            Answer(status=304, description="It is as you have it.", headers=(TAG_HEADER,)),
        ),
        problems=(NotFound, VersionMismatch, DatabaseUnavailable),
    ),
)
