"""One loop looks after all that is waited for, survives outages, and ends when nobody waits."""

import asyncio

from tenure.api.watcher import JobWatcher
from tenure.jobs.model import State
from tenure.store.database import Connection, Database
from tests.factories import in_state, outcome, queued, running, settled
from tests.waiting import until


async def test_change_reaches_every_watcher_of_the_job_and_no_other(database: Database) -> None:
    watcher = JobWatcher(database)
    held = await running(database)
    other = await in_state(database, State.QUEUED, queue="other")
    with (
        watcher.watching(held.job.id) as first,
        watcher.watching(held.job.id) as second,
        watcher.watching(other.id) as unmoved,
    ):
        for watch in (first, second, unmoved):
            await until(watch.changed.is_set)
            watch.changed.clear()
        await settled(database, outcome(held))
        watcher.nudge([held.job.id])
        for watch in (first, second):
            await until(watch.changed.is_set)
            assert watch.mark is not None
            assert watch.mark.state is State.SUCCEEDED
        assert not unmoved.changed.is_set()


async def test_loop_runs_only_while_somebody_waits(database: Database) -> None:
    watcher = JobWatcher(database)
    assert watcher._task is None
    for _ in range(2):
        with watcher.watching((await queued(database)).id) as watch:
            await until(watch.changed.is_set)
        await until(lambda: watcher._task is None)
    assert watcher._watches == {}


async def test_outage_delays_what_is_seen_and_stops_nothing(database: Database) -> None:
    watcher = JobWatcher(database)
    held = await running(database)
    with watcher.watching(held.job.id) as watch:
        await until(watch.changed.is_set)
        watch.changed.clear()

        async def cut(connection: Connection) -> None:
            await connection.fetch(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND datname = current_database()"
            )

        async with database.dedicated("tenure test") as connection:
            for _ in range(5):
                await cut(connection)
                watcher.nudge([held.job.id])
                await asyncio.sleep(0)

        async def settle() -> bool:
            try:
                await settled(database, outcome(held))
            except Exception:
                return False
            return True

        await until(settle)
        await until(watch.changed.is_set)
        assert watch.mark is not None
        assert watch.mark.state is State.SUCCEEDED


async def test_close_ends_the_loop(database: Database) -> None:
    watcher = JobWatcher(database)
    with watcher.watching((await queued(database)).id):
        await watcher.close()
        assert watcher._task is None
