"""Cancelling, with a receipt that says what is true."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tenure.api import examples
from tenure.api.answers import JsonAnswer
from tenure.api.body import SMALL_BODY_BYTES, read_model
from tenure.api.context import ApiContext
from tenure.api.headers import version_expected, wait_preferred
from tenure.api.jobs import WAIT_HEADER, WAITED_HEADER
from tenure.api.operations import Answer, Body, Header, Operation
from tenure.api.waiting import until_finished
from tenure.errors import (
    BodyTooLarge,
    DatabaseUnavailable,
    NotCancelable,
    NotFound,
    RequestTimeout,
    UnsupportedMediaType,
    VersionMismatch,
)
from tenure.jobs.model import CancelOutcome
from tenure.store import notify
from tenure.store.cancel import Receipt, cancel, receipt_of
from tenure.store.inspect import get
from tenure.wire.cancel import CancelReceipt, CancelRequest
from tenure.wire.render import time


async def cancel_job(context: ApiContext, request: Request) -> Response:
    """Cancels a job that waits, or asks the holder of a running one to stop; the receipt says which.

    202 means only that the holder is being told. Cancel again to read the receipt again, or wait with `Prefer: wait=N`.
    A stale `version` (or If-Match) changes nothing; the version that the first request was accepted against stays good.
    """
    services = context.services
    job_id = request.path_params["job_id"]
    asked = await read_model(request, CancelRequest, limit=SMALL_BODY_BYTES, optional=True)
    version = version_expected(request, asked.version)
    async with services.database.transaction() as connection:
        receipt = await cancel(connection, job_id, version=version, reason=asked.reason)
    if receipt.changed:
        services.bell.ring(notify.CANCEL, str(job_id))
        context.watcher.nudge([job_id])
    wait = wait_preferred(request)
    if wait.seconds and receipt.cancellation.outcome is CancelOutcome.REQUESTED:
        receipt = await _once_known(context, request, receipt, wait.seconds)
    pending = receipt.cancellation.outcome is CancelOutcome.REQUESTED
    return JsonAnswer(rendered(receipt), 202 if pending else 200, wait.applied)


async def _once_known(context: ApiContext, request: Request, receipt: Receipt, seconds: int) -> Receipt:
    """The receipt once more than the request is known: a running job that was asked to stop only ever ends."""
    async with context.services.database.connection() as connection:
        job = await get(connection, receipt.job_id, body=False)
    if job is None:
        return receipt
    waited = await until_finished(context, request, job, seconds=seconds)
    return receipt if waited.job.cancellation is None else receipt_of(waited.job)


def rendered(receipt: Receipt) -> dict[str, Any]:
    """The members of a receipt."""
    cancellation = receipt.cancellation
    return {
        "outcome": cancellation.outcome,
        "job_id": str(receipt.job_id),
        "state": receipt.state,
        "version": receipt.version,
        "requested_at": time(cancellation.requested_at),
        "requested_by": cancellation.requested_by,
        "reason": cancellation.reason,
        "delivered_at": time(cancellation.delivered_at),
        "confirmed_at": time(cancellation.confirmed_at),
        "worker_id": receipt.worker_id,
        "lease_expires_at": time(receipt.worker_lease_expires_at),
    }


OPERATIONS = (
    Operation(
        method="POST",
        path="/jobs/{job_id:uuid}/cancel",
        endpoint=cancel_job,
        summary="Cancel a job",
        tag="cancellation",
        headers=(
            Header(name="If-Match", description="only if the job is at this version", example='"3"'),
            WAIT_HEADER,
        ),
        body=Body(model=CancelRequest, examples=examples.CANCEL, required=False),
        answers=(
            Answer(
                status=200,
                description="`prevented`, `stopped`, `finished_first` or `unconfirmed`: nothing runs any more.",
                model=CancelReceipt,
                example=examples.RECEIPT_PREVENTED,
                headers=(WAITED_HEADER,),
            ),
            Answer(
                status=202,
                description="`requested`: it runs, and its holder is being told.",
                model=CancelReceipt,
                example=examples.RECEIPT_REQUESTED,
                headers=(WAITED_HEADER,),
            ),
        ),
        problems=(
            NotFound,
            NotCancelable,
            VersionMismatch,
            BodyTooLarge,
            UnsupportedMediaType,
            RequestTimeout,
            DatabaseUnavailable,
        ),
    ),
)
