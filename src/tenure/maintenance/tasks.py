"""The single steps of maintenance. Each returns how much it did; a step that found a full batch is run again at once."""

import logging
from collections.abc import Mapping
from datetime import timedelta

from tenure.artifacts import ArtifactStore
from tenure.jobs.model import State
from tenure.maintenance.sweeper import delete_locations, sweep
from tenure.settings import MaintenanceSettings
from tenure.store.database import Database
from tenure.store.notify import WORK, Bell
from tenure.store.partitions import create_partition, drop_partition, droppable_days, missing_days
from tenure.store.prune import prune
from tenure.store.reap import expire_deadlines, reap_expired
from tenure.store.workers import forget_absent

logger = logging.getLogger(__name__)

REAP_BATCH = 500
"""Large enough that 50,000 leases which end at once are back in a minute, small enough to hold its locks for milliseconds."""

PRUNE_BATCH = 1_000


async def reap(database: Database, bell: Bell) -> int:
    """Ends leases that ran out, part by part. Wakes workers for what can be claimed again."""
    done = 0
    for part in range(database.parts):
        async with database.transaction() as connection:
            ended = await reap_expired(connection, part=part, limit=REAP_BATCH)
        for job in ended:
            logger.info("lease expired: job %s is %s after attempt %s", job.id, job.state, job.attempts)
        if any(job.state is State.QUEUED for job in ended):
            bell.ring(WORK, "*")
        done += len(ended)
    return done


async def expire(database: Database) -> int:
    """Fails queued jobs whose deadline has passed."""
    done = 0
    for part in range(database.parts):
        async with database.transaction() as connection:
            done += len(await expire_deadlines(connection, part=part, limit=REAP_BATCH))
    return done


async def prune_finished(database: Database, artifacts: ArtifactStore | None, settings: MaintenanceSettings) -> int:
    """Deletes jobs past their retention, then the files that they left."""
    done = 0
    for part in range(database.parts):
        async with database.transaction() as connection:
            pruned = await prune(connection, retention_of(settings), part=part, limit=PRUNE_BATCH)
        for state in pruned:
            logger.info("pruned %s %s jobs past their retention", state.jobs, state.state)
            if artifacts is not None and state.artifact_locations:
                await delete_locations(artifacts, state.artifact_locations)
        done = max(done, *(state.jobs for state in pruned), 0)
    return done


async def make_partitions(database: Database) -> int:
    """Makes the event partitions of the coming days."""
    async with database.connection() as connection:
        missing = await missing_days(connection)
    for day in missing:
        async with database.transaction() as connection:
            await create_partition(connection, day)
    return 0


async def drop_partitions(database: Database, settings: MaintenanceSettings) -> int:
    """Drops event partitions that only jobs long gone could need."""
    async with database.connection() as connection:
        days = await droppable_days(connection, settings.shortest_retention)
    for day in days:
        async with database.transaction() as connection:
            moved = await drop_partition(connection, day)
        logger.info("dropped the events of %s; %s of jobs still kept were moved", day, moved)
    return 0


async def forget_absent_workers(database: Database) -> int:
    """Drops the records of workers that were not seen for a day."""
    async with database.connection() as connection:
        await forget_absent(connection)
    return 0


async def sweep_artifacts(database: Database, artifacts: ArtifactStore | None) -> int:
    """Deletes files of attempts that never came to a success."""
    return 0 if artifacts is None else await sweep(database, artifacts)


def retention_of(settings: MaintenanceSettings) -> Mapping[State, timedelta]:
    """How long each terminal state is kept."""
    return {
        State.SUCCEEDED: timedelta(seconds=settings.keep_succeeded_seconds),
        State.CANCELED: timedelta(seconds=settings.keep_canceled_seconds),
        State.FAILED: timedelta(seconds=settings.keep_failed_seconds),
        State.DEAD: timedelta(seconds=settings.keep_dead_seconds),
    }
