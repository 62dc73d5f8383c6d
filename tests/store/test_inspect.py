"""Reading."""

from datetime import timedelta

import pytest

from tenure.jobs.model import State
from tenure.store.database import Database
from tenure.store.inspect import JobFilter, events, get, list_jobs, marks
from tests.factories import age, in_state, many_queued, outcome, queued, read, running, settled


async def ids(database: Database, wanted: JobFilter, **options: object) -> list[object]:
    async with database.connection() as connection:
        return [job.id for job in await list_jobs(connection, wanted, **options)]  # type: ignore[arg-type]


@pytest.mark.parametrize("state", list(State))
async def test_each_state_lists_its_own_and_no_other(database: Database, state: State) -> None:
    made = {each: await in_state(database, each, queue=f"q-{each}") for each in State}
    assert await ids(database, JobFilter(states=(state,))) == [made[state].id]


async def test_pages_are_complete_and_stable_while_rows_come(database: Database) -> None:
    made = await many_queued(database, 25)
    wanted = sorted((job.id for job in made), reverse=True)
    seen: list[object] = []
    before = None
    while page := await ids(database, JobFilter(), limit=7, before=before):
        seen += page
        before = page[-1]
        await queued(database)
    assert seen == wanted


async def test_filters_hold_together_and_repeats_are_alternatives(database: Database) -> None:
    a = await queued(database, kind="a", queue="x", tags=("red", "big"))
    b = await queued(database, kind="b", queue="x", tags=("blue",), concurrency_key="acct-7")
    c = await queued(database, kind="a", queue="y")
    assert await ids(database, JobFilter(kinds=("a",))) == [c.id, a.id]
    assert await ids(database, JobFilter(kinds=("a", "b"), queues=("x",))) == [b.id, a.id]
    assert await ids(database, JobFilter(tags=("red", "blue"))) == [b.id, a.id]
    assert await ids(database, JobFilter(concurrency_keys=("acct-7",))) == [b.id]
    assert await ids(database, JobFilter(kinds=("a",), tags=("blue",))) == []


async def test_worker_and_time_filters(database: Database) -> None:
    held = await running(database, worker_id="w9", queue="w")
    old = await queued(database)
    async with database.connection() as connection:
        await age(connection, old, "created_at", timedelta(hours=5))
    cut = held.job.created_at - timedelta(hours=1)
    assert await ids(database, JobFilter(worker_ids=("w9",))) == [held.job.id]
    assert await ids(database, JobFilter(created_before=cut)) == [old.id]
    assert await ids(database, JobFilter(created_after=cut)) == [held.job.id]


async def test_dead_letters_by_fingerprint_and_time_of_death(database: Database) -> None:
    dead = await in_state(database, State.DEAD)
    await in_state(database, State.FAILED, queue="other")
    assert dead.last_error is not None
    assert dead.finished_at is not None
    wanted = JobFilter(states=(State.DEAD,), fingerprints=(dead.last_error.fingerprint,))
    assert await ids(database, wanted) == [dead.id]
    assert await ids(database, JobFilter(states=(State.DEAD,), finished_before=dead.finished_at)) == []
    just_before = dead.finished_at - timedelta(microseconds=1)
    assert await ids(database, JobFilter(states=(State.DEAD,), finished_after=just_before)) == [dead.id]


async def test_a_listing_carries_payload_and_result_only_when_asked(database: Database) -> None:
    held = await running(database)
    await settled(database, outcome(held))
    async with database.connection() as connection:
        (bare,) = await list_jobs(connection, JobFilter())
        (full,) = await list_jobs(connection, JobFilter(), include_payload=True, include_result=True)
    assert (bare.payload, bare.result) == (None, None)
    assert (full.payload, full.result) == ('{"n": 1}', '{"ok": true}')


async def test_a_tenant_sees_its_own_only(database: Database) -> None:
    job = await queued(database, tenant="t1")
    async with database.connection() as connection:
        assert await get(connection, job.id, tenant="t2") is None
        assert await events(connection, job.id, tenant="t2") == []
    assert await ids(database, JobFilter(), tenant="t2") == []
    assert await ids(database, JobFilter(), tenant="t1") == [job.id]


async def test_events_replay_to_the_row(database: Database) -> None:
    for state in State:
        job = await in_state(database, state, queue=f"q-{state}")
        async with database.connection() as connection:
            told = await events(connection, job.id)
            later = await events(connection, job.id, after_version=1)
        assert [event.version for event in told] == list(range(1, job.version + 1))
        assert (told[-1].state, told[-1].attempt) == (job.state, job.attempts)
        assert later == told[1:]


async def test_marks_change_with_state_and_progress(database: Database) -> None:
    held = await running(database)
    async with database.connection() as connection:
        before = await marks(connection, [held.job.id])
        await settled(database, outcome(held))
        after = await marks(connection, [held.job.id])
    assert before[held.job.id] != after[held.job.id]
    assert after[held.job.id].state is State.SUCCEEDED
    assert (await read(database, held.job)).version == after[held.job.id].version
