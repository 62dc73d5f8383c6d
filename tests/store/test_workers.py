"""Who works here, and what an operator tells them."""

from datetime import timedelta

import pytest

from tenure.errors import NotFound
from tenure.jobs.model import State
from tenure.store.database import Database
from tenure.store.heartbeat import Heartbeat, HeartbeatAnswer, heartbeat
from tenure.store.reap import reap_expired
from tenure.store.workers import Directive, WorkerSeen, direct, forget_absent, held_by, list_workers, seen
from tests.factories import claimed, expire_lease, queued, read, running


def worker(name: str = "worker-1", **fields: object) -> WorkerSeen:
    return WorkerSeen(**{"id": name, "queues": ["default"], "kinds": ["a"], **fields})  # type: ignore[arg-type]


async def test_a_worker_is_known_from_its_first_claim_and_its_record_kept_up_to_date(database: Database) -> None:
    async with database.connection() as connection:
        await seen(connection, worker(capacity=10, version="1", host="h"))
        await seen(connection, worker(queues=["default", "more"], kinds=None))
        (known,) = await list_workers(connection)
    assert (known.queues, known.kinds, known.capacity, known.version) == (("default", "more"), None, 10, "1")
    assert known.first_seen_at is not None
    assert known.last_seen_at is not None
    assert known.first_seen_at < known.last_seen_at


async def test_what_it_holds_is_told_longest_first_also_without_a_record(database: Database) -> None:
    first = await running(database, worker_id="ghost", queue="a")
    second = await running(database, worker_id="ghost", queue="b")
    await running(database, worker_id="other", queue="c")
    async with database.connection() as connection:
        held = await held_by(connection, "ghost")
        (ghost,) = await list_workers(connection, worker_id="ghost")
    assert [job.id for job in held] == [first.job.id, second.job.id]
    assert (ghost.running, ghost.queues) == (2, None)


async def test_deleting_a_record_hides_no_job_from_recovery_and_disturbs_no_live_worker(database: Database) -> None:
    alive = await running(database, worker_id="alive", queue="a")
    gone = await running(database, worker_id="gone", queue="b")
    async with database.connection() as connection:
        for name in ("alive", "gone"):
            await seen(connection, worker(name))
        await connection.execute("DELETE FROM tenure.workers")
    await expire_lease(database, gone.job)
    async with database.transaction() as connection:
        assert [job.id for job in await reap_expired(connection)] == [gone.job.id]
    assert (await read(database, alive.job)).state is State.RUNNING


@pytest.mark.parametrize("directive", list(Directive))
async def test_a_told_worker_gets_no_lease_and_hears_it_with_its_next_heartbeat(
    database: Database, directive: Directive
) -> None:
    held = await running(database)
    await queued(database)
    async with database.connection() as connection:
        await seen(connection, worker())
        await direct(connection, "worker-1", directive, by="ops", reason="moving")
        (answer,) = await heartbeat(connection, [Heartbeat(job_id=held.job.id, token=held.token)])
        assert await seen(connection, worker()) is directive
    assert isinstance(answer, HeartbeatAnswer)
    assert answer.directive is directive
    assert await claimed(database) == []
    assert len(await claimed(database, worker_id="worker-2")) == 1


async def test_taking_it_back_or_starting_again_makes_it_claim_again(database: Database) -> None:
    await queued(database)
    await queued(database)
    async with database.connection() as connection:
        await seen(connection, worker())
        await direct(connection, "worker-1", Directive.QUIET)
        await direct(connection, "worker-1", None)
        assert len(await claimed(database)) == 1
        await direct(connection, "worker-1", Directive.TERMINATE)
        assert await seen(connection, worker(restarted=True)) is None
    assert len(await claimed(database)) == 1


async def test_telling_a_worker_that_nobody_knows_is_refused(database: Database) -> None:
    async with database.connection() as connection:
        with pytest.raises(NotFound):
            await direct(connection, "nobody", Directive.QUIET)


async def test_pages_by_name_and_absent_workers_are_forgotten_after_a_day(database: Database) -> None:
    async with database.connection() as connection:
        for name in ("c", "a", "b"):
            await seen(connection, worker(name))
        assert [known.id for known in await list_workers(connection, limit=2)] == ["a", "b"]
        assert [known.id for known in await list_workers(connection, after="b")] == ["c"]
        await connection.execute(
            "UPDATE tenure.workers SET last_seen_at = now() - $1::interval WHERE id = 'a'", timedelta(hours=25)
        )
        await forget_absent(connection)
        assert [known.id for known in await list_workers(connection)] == ["b", "c"]
