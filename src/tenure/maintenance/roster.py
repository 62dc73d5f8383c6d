"""The roster: every periodic task, a line each, with its interval in seconds and its full batch."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tenure.artifacts import ArtifactStore
from tenure.maintenance import tasks
from tenure.settings import MaintenanceSettings
from tenure.store.database import Database
from tenure.store.notify import Bell


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A periodic task. ``run_once`` returns how much it did; at ``full_batch`` there is probably more."""

    name: str
    interval_seconds: float
    run_once: Callable[[], Awaitable[int]]
    full_batch: int = 1_000_000_000


def roster(
    *, database: Database, bell: Bell, artifacts: ArtifactStore | None, settings: MaintenanceSettings
) -> tuple[Task, ...]:
    """All that a service does by itself."""
    reap, prune = settings.reap_seconds, settings.prune_seconds
    return (
        Task(
            name="reap expired leases",
            interval_seconds=reap,
            run_once=lambda: tasks.reap(database, bell),
            full_batch=tasks.REAP_BATCH,
        ),
        Task(
            name="fail jobs past their deadline",
            interval_seconds=reap,
            run_once=lambda: tasks.expire(database),
            full_batch=tasks.REAP_BATCH,
        ),
        Task(
            name="prune finished jobs",
            interval_seconds=prune,
            run_once=lambda: tasks.prune_finished(database, artifacts, settings),
            full_batch=tasks.PRUNE_BATCH,
        ),
        Task(name="make event partitions", interval_seconds=3_600.0, run_once=lambda: tasks.make_partitions(database)),
        Task(
            name="drop event partitions",
            interval_seconds=3_600.0,
            run_once=lambda: tasks.drop_partitions(database, settings),
        ),
        Task(
            name="forget absent workers",
            interval_seconds=3_600.0,
            run_once=lambda: tasks.forget_absent_workers(database),
        ),
        Task(
            name="sweep unpublished artifacts",
            interval_seconds=3_600.0,
            run_once=lambda: tasks.sweep_artifacts(database, artifacts),
        ),
    )
