"""Wake-ups: hints that reach other processes, coalesced, and never the only signal."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tenure.store.database import Database
from tenure.store.notify import CANCEL, WORK, Bell, Listener, channel_of
from tests.waiting import until


@asynccontextmanager
async def ears(database: Database) -> AsyncIterator[tuple[Listener, list[tuple[str, str]]]]:
    heard: list[tuple[str, str]] = []
    listener = Listener(database)
    listener.subscribe(lambda topic, subject: heard.append((topic, subject)))
    task = asyncio.create_task(listener.run())
    await until(lambda: listener.healthy)
    try:
        yield listener, heard
    finally:
        task.cancel()
        await asyncio.wait({task})


@asynccontextmanager
async def ringing(database: Database) -> AsyncIterator[Bell]:
    bell = Bell(database)
    task = asyncio.create_task(bell.run())
    try:
        yield bell
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_a_ring_reaches_another_process(database: Database) -> None:
    async with ears(database) as (_, heard), ringing(database) as bell:
        bell.ring(WORK, "exports")
        bell.ring(CANCEL, "some-id")
        await until(lambda: {(WORK, "exports"), (CANCEL, "some-id")} <= set(heard))


async def test_a_burst_is_one_notification(database: Database) -> None:
    raw_heard: list[str] = []
    async with database.dedicated("tenure test ear") as connection:
        raw = connection.executor
        await raw.add_listener(channel_of(database.schema), lambda *args: raw_heard.append(args[3]))  # type: ignore[attr-defined]
        async with ringing(database) as bell:
            for _ in range(1_000):
                bell.ring(WORK, "q")
            bell.ring(CANCEL, "x" * 8_000)
            bell.ring(WORK, "last")
            await until(lambda: any("last" in payload for payload in raw_heard))
    assert raw_heard == ["work:q\nwork:last"]


async def test_a_new_listener_looks_at_once_for_what_it_may_have_missed(database: Database) -> None:
    async with ears(database) as (_, heard):
        await until(lambda: (WORK, "*") in heard)


async def test_a_killed_listener_comes_back(database: Database) -> None:
    async with ears(database) as (listener, heard):
        heard.clear()
        async with database.connection() as connection:
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'tenure listener' AND datname = current_database()"
            )
        await until(lambda: (WORK, "*") in heard, timeout_seconds=20)
        assert listener.healthy


async def test_a_failing_subscriber_does_not_silence_the_others(database: Database) -> None:
    listener, heard = Listener(database), []

    def broken(*_: str) -> None:
        raise RuntimeError("no")

    listener.subscribe(broken)
    listener.subscribe(lambda *hint: heard.append(hint))
    listener.deliver(WORK, "q")
    assert heard == [(WORK, "q")]
