"""The loop: each task of the roster on its own interval, none stopped by its own or another's failure."""

import asyncio
import logging
import random
from collections.abc import Sequence

from tenure.errors import DatabaseUnavailable
from tenure.maintenance.roster import Task

logger = logging.getLogger(__name__)

_MAX_BACKOFF_SECONDS = 30.0


async def run(tasks: Sequence[Task]) -> None:
    """Runs the roster until cancelled."""
    async with asyncio.TaskGroup() as group:
        for task in tasks:
            group.create_task(run_task(task), name=f"maintenance: {task.name}")


async def run_task(task: Task) -> None:
    """Runs one task for ever: at once, then every interval; again at once while batches come back full."""
    failures = 0
    while True:
        again = False
        try:
            again = await task.run_once() >= task.full_batch
            failures = 0
        except DatabaseUnavailable as error:
            failures += 1
            logger.warning("%s: %s; trying again", task.name, error)
        except Exception:
            failures += 1
            logger.exception("%s failed; trying again", task.name)
        if not again:
            await asyncio.sleep(_pause_seconds(task.interval_seconds, failures))


def _pause_seconds(interval: float, failures: int) -> float:
    # A little jitter, so that the processes of a deploy do not all ask at the same moment.
    longest = max(_MAX_BACKOFF_SECONDS, interval)
    return float(min(interval * 2 ** min(failures, 10), longest)) * random.uniform(0.9, 1.1)  # noqa: S311 - spreads load
