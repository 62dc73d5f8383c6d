"""Procrastinate: psycopg, one job a claim; a row a job, an event a transition by trigger."""

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

from procrastinate import App, PsycopgConnector

from benchmarks.peers.peer import Peer, Record, main

_TASK = "noop"


class ProcrastinatePeer(Peer):
    packages: ClassVar[Sequence[str]] = ("procrastinate", "psycopg")
    unfinished: ClassVar[str] = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"

    def __init__(self, database_url: str, *, tuned: bool, callers: int) -> None:
        super().__init__(database_url, tuned=tuned, callers=callers)
        most = max(self.settings["concurrency"] + 2, min(callers, 32) + 1, 4)
        self._app = App(connector=PsycopgConnector(conninfo=database_url, min_size=4, max_size=most))
        self._record: Record = lambda _: None
        self._task = self._app.task(name=_TASK)(self._noop)

    @property
    def settings(self) -> dict[str, Any]:
        if self.tuned:
            return {"concurrency": 32, "event_loop": "uvloop"}
        return {"concurrency": 1, "event_loop": "asyncio"}

    async def _noop(self, **payload: Any) -> None:
        self._record(payload)

    async def install(self) -> None:
        async with self._app.open_async():
            await self._app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        await self._app.open_async()

    async def close(self) -> None:
        await self._app.close_async()

    async def enqueue(self, payload: dict[str, Any]) -> None:
        await self._task.defer_async(**payload)

    async def enqueue_many(self, payloads: Sequence[dict[str, Any]]) -> None:
        await self._task.batch_defer_async(*payloads)

    async def work(self, record: Record) -> None:
        self._record = record
        async with self._app.open_async():
            await self._app.run_worker_async(concurrency=self.settings["concurrency"], install_signal_handlers=False)
            await asyncio.Event().wait()


if __name__ == "__main__":
    main(ProcrastinatePeer)
