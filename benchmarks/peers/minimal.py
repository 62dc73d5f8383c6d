"""The minimal loop: the smallest durable queue on asyncio and asyncpg, for a bound that a real one can be held against.

It keeps its rows and writes an event for every transition, each transition in one statement for any number of jobs. It has
no leases that end, no retries, no cancel, no history to ask, no HTTP: what a product adds costs time, and this is the
figure to compare it with. It is not the fastest that is possible, only the plainest.
"""

import asyncio
import json
import os
from collections.abc import Sequence
from typing import Any, ClassVar

import asyncpg

from benchmarks.peers.peer import Peer, Record, main

_TABLES = """
CREATE TABLE work (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue text NOT NULL,
    kind text NOT NULL,
    payload jsonb NOT NULL,
    waiting boolean NOT NULL DEFAULT true,
    state text NOT NULL DEFAULT 'queued',
    priority smallint NOT NULL DEFAULT 0,
    attempt integer NOT NULL DEFAULT 0,
    due_at timestamptz NOT NULL DEFAULT now(),
    made_at timestamptz NOT NULL DEFAULT now(),
    holder text,
    held_until timestamptz,
    ended_at timestamptz
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX work_waiting ON work (queue, priority, due_at, id) WHERE waiting;
CREATE TABLE happened (
    work_id bigint NOT NULL,
    what text NOT NULL,
    attempt integer NOT NULL,
    holder text,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX happened_work_id ON happened (work_id);
"""

_PUT = """
WITH put AS (
    INSERT INTO work (queue, kind, payload) SELECT $1, 'noop', payload FROM unnest($2::jsonb[]) AS new (payload)
    RETURNING id
), noted AS (
    INSERT INTO happened (work_id, what, attempt) SELECT id, 'put', 0 FROM put
)
SELECT count(*) FROM put
"""

# The rows are taken in a materialised part: PostgreSQL may run a subquery with LIMIT and FOR UPDATE more than once.
_TAKE = """
WITH due AS MATERIALIZED (
    SELECT id FROM work WHERE queue = $1 AND waiting AND due_at <= now()
    ORDER BY priority, due_at, id LIMIT $2 FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE work SET waiting = false, state = 'running', attempt = attempt + 1, holder = $3,
        held_until = now() + interval '30 seconds'
    FROM due WHERE work.id = due.id RETURNING work.id, work.kind, work.payload, work.attempt
), noted AS (
    INSERT INTO happened (work_id, what, attempt, holder) SELECT id, 'taken', attempt, $3 FROM taken
)
SELECT id, kind, payload, attempt FROM taken
"""

_END = """
WITH ended AS (
    UPDATE work SET state = 'done', holder = NULL, held_until = NULL, ended_at = now()
    FROM unnest($1::bigint[], $2::integer[]) AS done (id, attempt)
    WHERE work.id = done.id AND work.attempt = done.attempt AND work.state = 'running'
    RETURNING work.id, work.attempt
), noted AS (
    INSERT INTO happened (work_id, what, attempt, holder) SELECT id, 'done', attempt, $3 FROM ended
)
SELECT count(*) FROM ended
"""

_QUEUE = "default"
_CHANNEL = "work"
_GROUP = 500
"""Most calls that share one INSERT."""

_DEBOUNCE_SECONDS = 0.005
_POLL_SECONDS = 1.0


class Minimal(Peer):
    packages: ClassVar[Sequence[str]] = ("asyncpg",)
    unfinished: ClassVar[str] = "SELECT count(*) FROM work WHERE waiting OR state = 'running'"

    @property
    def settings(self) -> dict[str, Any]:
        if self.tuned:
            return {"slots": 1_000, "claim_batch": 500, "group_commit": True, "event_loop": "uvloop"}
        return {"slots": 100, "claim_batch": 50, "group_commit": False, "event_loop": "asyncio"}

    async def install(self) -> None:
        connection = await asyncpg.connect(self.database_url)
        await connection.execute(_TABLES)
        await connection.close()

    async def open(self) -> None:
        size = 2 if self.tuned else min(self.callers, 32)
        self._pool = await asyncpg.create_pool(self.database_url, min_size=size, max_size=size)
        self._bell = await asyncpg.connect(self.database_url)
        # A hint that a crash loses costs one poll, so its commit need not wait for the disk.
        await self._bell.execute("SET synchronous_commit = off")
        self._rung = asyncio.Event()
        self._arrived = asyncio.Event()
        self._arrivals: list[tuple[dict[str, Any], asyncio.Future[None]]] = []
        self._tasks = [asyncio.create_task(self._ring())]
        if self.tuned:
            self._tasks += [asyncio.create_task(self._write_groups()) for _ in range(2)]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._bell.execute(f"NOTIFY {_CHANNEL}")  # the last one may not have been rung for yet
        await self._bell.close()
        await self._pool.close()

    async def enqueue(self, payload: dict[str, Any]) -> None:
        if not self.tuned:
            await self.enqueue_many([payload])
            return
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrivals.append((payload, written))
        self._arrived.set()
        await written

    async def enqueue_many(self, payloads: Sequence[dict[str, Any]]) -> None:
        await self._pool.execute(_PUT, _QUEUE, [json.dumps(payload) for payload in payloads])
        self._rung.set()

    async def _write_groups(self) -> None:
        """Calls that come while one group is being written are the next group."""
        while True:
            await self._arrived.wait()
            group, self._arrivals = self._arrivals[:_GROUP], self._arrivals[_GROUP:]
            if not group:
                self._arrived.clear()
                continue
            await self.enqueue_many([payload for payload, _ in group])
            for _, written in group:
                written.set_result(None)

    async def _ring(self) -> None:
        while True:
            await self._rung.wait()
            self._rung.clear()
            await self._bell.execute(f"NOTIFY {_CHANNEL}")
            await asyncio.sleep(_DEBOUNCE_SECONDS)

    async def work(self, record: Record) -> None:
        await _Loop(self.settings["slots"], self.settings["claim_batch"], record).run(self.database_url)


class _Loop:
    """Takes jobs into free slots, a task for each, and writes down in one statement whatever ended meanwhile."""

    def __init__(self, slots: int, batch: int, record: Record) -> None:
        self._slots = slots
        self._batch = batch
        self._record = record
        self._name = f"worker-{os.getpid()}"
        self._held = 0
        self._ended: list[tuple[int, int]] = []
        self._some_ended = asyncio.Event()
        self._room = asyncio.Event()
        self._hint = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()

    async def run(self, database_url: str) -> None:
        taker, ender, ear = [await asyncpg.connect(database_url) for _ in range(3)]
        await ear.add_listener(_CHANNEL, lambda *_: self._hint.set())
        async with asyncio.TaskGroup() as group:
            group.create_task(self._take(taker))
            group.create_task(self._end(ender))

    async def _take(self, connection: Any) -> None:
        while True:
            wanted = min(self._batch, self._slots - self._held)
            if wanted < self._batch // 2:
                self._room.clear()
                await self._room.wait()
                continue
            self._hint.clear()
            rows = await connection.fetch(_TAKE, _QUEUE, wanted, self._name)
            self._held += len(rows)
            for row in rows:
                task = asyncio.create_task(self._attempt(row))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
            if not rows:
                try:
                    await asyncio.wait_for(self._hint.wait(), _POLL_SECONDS)
                except TimeoutError:
                    continue

    async def _attempt(self, row: Any) -> None:
        await self._handle(json.loads(row["payload"]))
        self._ended.append((row["id"], row["attempt"]))
        self._some_ended.set()

    async def _handle(self, payload: dict[str, Any]) -> None:
        self._record(payload)

    async def _end(self, connection: Any) -> None:
        while True:
            await self._some_ended.wait()
            self._some_ended.clear()
            ended, self._ended = self._ended, []
            await connection.execute(_END, [one for one, _ in ended], [attempt for _, attempt in ended], self._name)
            self._held -= len(ended)
            self._room.set()


if __name__ == "__main__":
    main(Minimal)
