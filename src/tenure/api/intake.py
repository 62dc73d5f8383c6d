"""Group commit: enqueues that arrive while one is being written are written together, next.

No timer: an enqueue that comes alone is written alone, at once. Under load a commit, which is what an enqueue waits for,
is shared by all that came meanwhile. What is refused is refused alone.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence

from tenure.errors import InvalidInput, TenureError, Unavailable
from tenure.jobs.model import NewJob
from tenure.store.database import Database
from tenure.store.enqueue import Enqueued, enqueue

logger = logging.getLogger(__name__)

_GROUP_JOBS = 500
_GROUP_CHARACTERS = 4 * 1_048_576
"""A group's payloads stay within what one statement and this process's memory carry easily."""

_Waiting = tuple[NewJob, "asyncio.Future[Enqueued]"]


class Intake:
    """Accepts single jobs; the caller hears only after the commit."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: deque[_Waiting] = deque()
        self._writer: asyncio.Task[None] | None = None

    async def enqueue(self, job: NewJob) -> Enqueued:
        """The job, committed. Raises as `store.enqueue` does for this job alone."""
        future: asyncio.Future[Enqueued] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, future))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write(), name="tenure intake")
        return await future

    async def close(self) -> None:
        """Writes what waits, then ends."""
        while self._writer is not None and not self._writer.done():
            await asyncio.wait([self._writer])

    async def _write(self) -> None:
        group: list[_Waiting] = []
        try:
            while self._waiting:
                group = self._next_group()
                await self._write_group(group)
        except asyncio.CancelledError:
            self._refuse([*group, *self._waiting], Unavailable("the service stopped before this was accepted"))
            self._waiting.clear()
            raise
        finally:
            self._writer = None

    def _next_group(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        characters = 0
        while self._waiting and len(group) < _GROUP_JOBS and characters < _GROUP_CHARACTERS:
            waiting = self._waiting.popleft()
            if not waiting[1].done():  # nobody waits for it any more, and nothing was promised
                group.append(waiting)
                characters += len(waiting[0].payload)
        return group

    async def _write_group(self, group: Sequence[_Waiting]) -> None:
        if not group:
            return
        try:
            if len(group) == 1:
                async with self._database.connection() as connection:
                    enqueued = await enqueue(connection, [group[0][0]])
            else:
                async with self._database.transaction() as connection:
                    enqueued = await enqueue(connection, [job for job, _ in group])
        except InvalidInput as refusal:
            if len(group) == 1:
                self._refuse(group, refusal)
                return
            # One of them is refused, and with it the whole statement: each alone, so that only that one hears of it.
            for waiting in group:
                await self._write_group([waiting])
        except TenureError as error:
            self._refuse(group, error)
        except Exception as error:
            if len(group) == 1:
                self._refuse(group, error)
                return
            logger.exception("a group of %d enqueues failed, writing each alone", len(group))
            for waiting in group:
                await self._write_group([waiting])
        else:
            for (_, future), item in zip(group, enqueued, strict=True):
                if not future.done():
                    future.set_result(item)

    def _refuse(self, group: Sequence[_Waiting], error: Exception) -> None:
        for _, future in group:
            if not future.done():
                future.set_exception(error)
