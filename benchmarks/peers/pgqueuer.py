"""PgQueuer: LISTEN/NOTIFY by trigger, asyncpg; finished jobs are deleted and logged."""

import json
from collections.abc import Sequence
from typing import Any, ClassVar

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

from benchmarks.peers.peer import Peer, Record, main

_ENTRYPOINT = "noop"


class PgQueuerPeer(Peer):
    packages: ClassVar[Sequence[str]] = ("pgqueuer", "asyncpg")
    unfinished: ClassVar[str] = "SELECT count(*) FROM pgqueuer"

    @property
    def settings(self) -> dict[str, Any]:
        if self.tuned:
            return {"batch_size": 1_000, "event_loop": "uvloop"}
        return {"batch_size": 10, "event_loop": "asyncio"}

    async def install(self) -> None:
        connection = await asyncpg.connect(self.database_url)
        await Queries(AsyncpgDriver(connection)).install()
        await connection.close()

    async def open(self) -> None:
        size = min(self.callers, 32)
        self._pool = await asyncpg.create_pool(self.database_url, min_size=size, max_size=size)
        self._queries = Queries(AsyncpgPoolDriver(self._pool))

    async def close(self) -> None:
        await self._pool.close()

    async def enqueue(self, payload: dict[str, Any]) -> None:
        await self._queries.enqueue(_ENTRYPOINT, json.dumps(payload).encode())

    async def enqueue_many(self, payloads: Sequence[dict[str, Any]]) -> None:
        count = len(payloads)
        bodies: list[bytes | None] = [json.dumps(payload).encode() for payload in payloads]
        await self._queries.enqueue([_ENTRYPOINT] * count, bodies, [0] * count)

    async def work(self, record: Record) -> None:
        connection = await asyncpg.connect(self.database_url)
        queue = PgQueuer(AsyncpgDriver(connection))

        async def noop(job: Any) -> None:
            record(json.loads(job.payload))

        queue.entrypoint(_ENTRYPOINT)(noop)
        await queue.run(batch_size=self.settings["batch_size"])


if __name__ == "__main__":
    main(PgQueuerPeer)
