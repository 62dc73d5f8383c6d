"""Cancel and retry, on rows."""

import pytest

from tenure.errors import NotCancelable, NotFound, VersionMismatch
from tenure.jobs.ids import new_job_id
from tenure.jobs.model import CancelOutcome, State
from tenure.store.cancel import Receipt, cancel
from tenure.store.database import Database
from tests.factories import claimed, failure, history, in_state, queued, read, running, settled


async def cancel_now(database: Database, job_id: object, **fields: object) -> Receipt:
    async with database.transaction() as connection:
        return await cancel(connection, job_id, **fields)  # type: ignore[arg-type]


async def test_a_queued_job_is_prevented_and_never_starts(database: Database) -> None:
    job = await queued(database)
    receipt = await cancel_now(database, job.id, reason="not needed", requested_by="me", version=1)
    assert (receipt.cancellation.outcome, receipt.state, receipt.version) == (
        CancelOutcome.PREVENTED,
        State.CANCELED,
        2,
    )
    assert (receipt.cancellation.reason, receipt.cancellation.requested_by) == ("not needed", "me")
    assert await claimed(database) == []
    assert await history(database, job) == ["enqueued", "canceled"]


async def test_a_running_job_is_only_requested(database: Database) -> None:
    held = await running(database)
    receipt = await cancel_now(database, held.job.id)
    assert (receipt.cancellation.outcome, receipt.state) == (CancelOutcome.REQUESTED, State.RUNNING)
    assert receipt.worker_id == "worker-1"
    assert (await read(database, held.job)).lease is not None


async def test_canceling_again_returns_the_same_receipt_with_one_event(database: Database) -> None:
    held = await running(database)
    first = await cancel_now(database, held.job.id, reason="a", version=2)
    again = await cancel_now(database, held.job.id, reason="b", version=2)
    assert again.cancellation == first.cancellation
    assert not again.changed
    assert await history(database, held.job) == ["enqueued", "leased", "cancel_requested"]


async def test_a_stale_version_changes_nothing(database: Database) -> None:
    held = await running(database)
    await settled(database, failure(held), random=0.0)
    before = await read(database, held.job)
    with pytest.raises(VersionMismatch) as caught:
        await cancel_now(database, held.job.id, version=2)
    assert caught.value.current_version == 3
    assert await read(database, held.job) == before


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED, State.DEAD])
async def test_a_finished_job_is_refused_unchanged(database: Database, state: State) -> None:
    job = await in_state(database, state)
    with pytest.raises(NotCancelable):
        await cancel_now(database, job.id)
    assert await read(database, job) == job


async def test_a_job_of_another_tenant_is_not_there(database: Database) -> None:
    job = await queued(database, tenant="t1")
    with pytest.raises(NotFound):
        await cancel_now(database, job.id, tenant="t2")
    with pytest.raises(NotFound):
        await cancel_now(database, new_job_id(tenant="t1", queue="q"), tenant="t1")
    assert (await read(database, job)).state is State.QUEUED
