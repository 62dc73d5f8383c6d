"""`Prefer: wait`: the answer is held back until the job has finished, the time is over, or the caller has gone."""

import logging
import time
from dataclasses import dataclass

from starlette.requests import Request

from tenure.api.context import ApiContext
from tenure.api.presence import first_of, following
from tenure.errors import DatabaseUnavailable, TenureError
from tenure.jobs.ids import JobId
from tenure.jobs.model import TERMINAL_STATES, Job
from tenure.store import notify
from tenure.store.cancel import cancel
from tenure.store.inspect import get

logger = logging.getLogger(__name__)

CALLER_LEFT = "caller left"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """The job as it was seen last, and whether anybody is still there to be told."""

    job: Job
    caller_left: bool


async def until_finished(context: ApiContext, request: Request, job: Job, *, seconds: float) -> Waited:
    """Waits until the job is terminal. An outage meanwhile is no error: the job is answered as it was seen last."""
    if seconds <= 0 or job.state in TERMINAL_STATES:
        return Waited(job=job, caller_left=False)
    end = time.monotonic() + seconds
    draining = context.services.lifecycle.draining
    async with following(request) as gone:
        with context.watcher.watching(job.id) as watch:
            while not (watch.mark and watch.mark.state in TERMINAL_STATES):
                left = end - time.monotonic()
                if left <= 0 or gone.is_set() or draining.is_set():
                    break
                await first_of(watch.changed, gone, draining, timeout_seconds=left)
                watch.changed.clear()
        job = await _as_it_is(context, job)
        if gone.is_set():
            logger.info("a caller who waited for job %s (%s) has gone; the job is %s", job.id, job.kind, job.state)
        return Waited(job=job, caller_left=gone.is_set())


async def submitter_left(context: ApiContext, job: Job) -> None:
    """Whoever submitted the job waits no more: a request to cancel where the job's kind says so.

    Only the submitter's leaving counts: one of many who read a job must not end it for the others.
    """
    spec = context.services.registry.get(job.kind)
    if spec is None or not spec.cancel_when_caller_leaves or job.state in TERMINAL_STATES:
        return
    try:
        await request_cancel(context, job.id)
    except TenureError as error:
        logger.warning("job %s could not be canceled for the caller who left: %s", job.id, error)


async def request_cancel(context: ApiContext, job_id: JobId) -> None:
    """Cancels on behalf of a caller who left."""
    services = context.services
    async with services.database.transaction() as connection:
        receipt = await cancel(connection, job_id, reason=CALLER_LEFT)
    if receipt.changed:
        services.bell.ring(notify.CANCEL, str(job_id))
        context.watcher.nudge([job_id])


async def _as_it_is(context: ApiContext, job: Job) -> Job:
    try:
        async with context.services.database.connection() as connection:
            return await get(connection, job.id) or job
    except DatabaseUnavailable as error:
        logger.warning("answering job %s as it was seen last: %s", job.id, error)
        return job
