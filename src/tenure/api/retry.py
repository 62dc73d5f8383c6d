"""An operator's retry."""

from starlette.requests import Request
from starlette.responses import Response

from tenure.api import examples
from tenure.api.answers import JsonAnswer
from tenure.api.body import SMALL_BODY_BYTES, read_model
from tenure.api.context import ApiContext
from tenure.api.headers import entity_tag, version_expected
from tenure.api.jobs import TAG_HEADER
from tenure.api.operations import Answer, Body, Header, Operation
from tenure.errors import (
    BodyTooLarge,
    DatabaseUnavailable,
    DeadlinePassed,
    NotFound,
    NotRetryable,
    RequestTimeout,
    UnsupportedMediaType,
    VersionMismatch,
)
from tenure.store import notify
from tenure.store.retry import retry
from tenure.wire import render
from tenure.wire.cancel import RetryRequest
from tenure.wire.jobs import Job


async def retry_job(context: ApiContext, request: Request) -> Response:
    """Puts a dead or failed job back into its queue, with a fresh budget of attempts and its history kept."""
    services = context.services
    job_id = request.path_params["job_id"]
    asked = await read_model(request, RetryRequest, limit=SMALL_BODY_BYTES, optional=True)
    version = version_expected(request, asked.version)
    async with services.database.transaction() as connection:
        job = await retry(
            connection,
            job_id,
            version=version,
            deadline_at=asked.deadline_at,
            expires_in_seconds=asked.expires_in_seconds,
            delay_seconds=asked.delay_seconds,
            reason=asked.reason,
        )
    if not asked.delay_seconds:
        services.bell.ring(notify.WORK, job.queue)
    context.watcher.nudge([job.id])
    return JsonAnswer(render.job(job), 202, {"Location": f"/jobs/{job.id}", "ETag": entity_tag(job)})


OPERATIONS = (
    Operation(
        method="POST",
        path="/jobs/{job_id:uuid}/retry",
        endpoint=retry_job,
        summary="Retry a dead or failed job",
        tag="dead letters",
        headers=(Header(name="If-Match", description="only if the job is at this version", example='"7"'),),
        body=Body(model=RetryRequest, examples=examples.RETRY, required=False),
        answers=(
            Answer(
                status=202,
                description="It waits again, with no attempt used.",
                model=Job,
                example=examples.RETRIED_JOB,
                headers=(TAG_HEADER,),
            ),
        ),
        problems=(
            NotFound,
            NotRetryable,
            DeadlinePassed,
            VersionMismatch,
            BodyTooLarge,
            UnsupportedMediaType,
            RequestTimeout,
            DatabaseUnavailable,
        ),
    ),
)
