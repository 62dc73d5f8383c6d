"""One loop that looks after all jobs somebody waits for: `Prefer: wait`, receipts, event streams.

While anyone waits, a single statement every tenth of a second asks what changed; without waiters nothing runs. An outage
only makes the answers later.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from uuid import UUID

from tenure.errors import DatabaseUnavailable
from tenure.jobs.ids import JobId
from tenure.store.database import Database
from tenure.store.inspect import Mark, marks

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1
"""Short against what a person notices; ten small statements a second whatever the number of waiters."""

_OUTAGE_SECONDS = 1.0


@dataclass(slots=True, eq=False)
class Watch:
    """One waiter's view of one job: ``changed`` is set whenever ``mark`` became another; None: unknown, or gone."""

    job_id: JobId
    mark: Mark | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class JobWatcher:
    """Tells waiters that their job changed."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._watches: dict[JobId, set[Watch]] = {}
        self._nudged = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def watching(self, job_id: JobId) -> Iterator[Watch]:
        """Follows the job while the block runs."""
        watch = Watch(job_id)
        self._watches.setdefault(job_id, set()).add(watch)
        self._nudged.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="tenure job watcher")
        try:
            yield watch
        finally:
            watches = self._watches[job_id]
            watches.discard(watch)
            if not watches:
                del self._watches[job_id]

    def nudge(self, job_ids: Iterable[UUID]) -> None:
        """Looks at once, if any of these jobs is waited for: this process has just changed them."""
        if self._watches and any(job_id in self._watches for job_id in job_ids):
            self._nudged.set()

    async def close(self) -> None:
        """Ends the loop."""
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        away = False
        try:
            while self._watches:
                self._nudged.clear()
                pause = _LOOK_SECONDS
                try:
                    await self._look()
                    away = False
                except DatabaseUnavailable as error:
                    pause = _OUTAGE_SECONDS
                    if not away:
                        logger.warning("cannot see whether awaited jobs changed, trying on: %s", error)
                    away = True
                except Exception:
                    pause = _OUTAGE_SECONDS
                    logger.exception("looking after awaited jobs failed, trying on")
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._nudged.wait()
        finally:
            # Nothing is awaited between the loop's condition and this, so no waiter is left without a loop.
            self._task = None

    async def _look(self) -> None:
        async with self._database.connection() as connection:
            found = await marks(connection, list(self._watches))
        for job_id, watches in self._watches.items():
            for watch in watches:
                mark = found.get(job_id)
                # A watch that came while the statement ran is not in its answer: it is none the wiser, not changed.
                if mark is not None and watch.mark != mark:
                    watch.mark = mark
                    watch.changed.set()
