"""Tenure as a library, by the same script as its peers: tables, and jobs put in by a program of the user's own.

Its workers are not started from here: what is measured of them is `tenure worker`.
"""

import json
from collections.abc import Sequence
from typing import Any, ClassVar

import asyncpg

from benchmarks.application import NOOP, QUEUE
from benchmarks.peers.peer import Peer, main
from tenure import enqueue
from tenure.jobs.ids import new_job_id
from tenure.jobs.model import DEFAULT_TENANT, NewJob
from tenure.settings import load
from tenure.store.database import Database
from tenure.store.enqueue import enqueue as enqueue_all
from tenure.store.schema import migrate

_POOL = 32
_TIMEOUT_SECONDS = 300.0


class TenureLibrary(Peer):
    packages: ClassVar[Sequence[str]] = ("tenure", "asyncpg")
    unfinished: ClassVar[str] = "SELECT count(*) FROM tenure.jobs WHERE state IN ('queued', 'running')"

    async def install(self) -> None:
        await migrate(load({"TENURE_DATABASE_URL": self.database_url}).database)

    async def open(self) -> None:
        size = min(self.callers, _POOL)
        self._pool = await asyncpg.create_pool(self.database_url, min_size=size, max_size=size)
        self._database = await Database.open(load({"TENURE_DATABASE_URL": self.database_url}).database)

    async def close(self) -> None:
        await self._database.close()
        await self._pool.close()

    async def enqueue(self, payload: dict[str, Any]) -> None:
        """In a transaction of the caller's own, which has committed on return."""
        async with self._pool.acquire() as connection:
            async with connection.transaction():
                job = await enqueue(connection, NOOP, payload, queue=QUEUE, timeout_seconds=_TIMEOUT_SECONDS)
            await job.wake()

    async def enqueue_many(self, payloads: Sequence[dict[str, Any]]) -> None:
        """By the store's own verb, to fill a queue: the call for many that users have is over HTTP."""
        jobs = [
            NewJob(
                id=new_job_id(tenant=DEFAULT_TENANT, queue=QUEUE),
                kind=NOOP,
                queue=QUEUE,
                payload=json.dumps(payload),
                timeout_seconds=_TIMEOUT_SECONDS,
            )
            for payload in payloads
        ]
        async with self._database.transaction() as connection:
            await enqueue_all(connection, jobs)


if __name__ == "__main__":
    main(TenureLibrary)
