"""Enqueue in the caller's own transaction."""

from collections.abc import AsyncIterator

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from tenure import ConfigurationError, EnqueuedJob, IdempotencyKeyReused, InvalidInput, JobRegistry, enqueue
from tenure.settings import DatabaseSettings
from tenure.store.database import Database, connect
from tenure.store.inspect import JobFilter, list_jobs
from tenure.store.notify import channel_of
from tests.factories import claimed
from tests.waiting import until

registry = JobRegistry()


@registry.handler("mail.send", queue="mails", max_attempts=7, lease_seconds=11)
async def send(_: object, request: dict[str, int]) -> None:
    """Never run here."""


@pytest.fixture
async def engine(database_settings: DatabaseSettings) -> AsyncIterator[AsyncEngine]:
    made = create_async_engine(database_settings.url.replace("postgresql://", "postgresql+asyncpg://"))
    yield made
    await made.dispose()


async def count(database: Database) -> int:
    async with database.connection() as connection:
        return len(await list_jobs(connection, JobFilter()))


async def test_with_asyncpg_the_job_is_there_exactly_if_the_callers_writes_are(database: Database) -> None:
    raw = await connect(database.settings, "a caller")
    await raw.execute("CREATE TEMP TABLE orders (id int)")

    async def order(fail: bool) -> EnqueuedJob:
        async with raw.transaction():
            await raw.execute("INSERT INTO orders VALUES (1)")
            job = await enqueue(raw, "mail.send", {"order": 1})
            if fail:
                raise RuntimeError("changed my mind")
        return job

    with pytest.raises(RuntimeError):
        await order(fail=True)
    assert (await count(database), await raw.fetchval("SELECT count(*) FROM orders")) == (0, 0)
    job = await order(fail=False)
    assert (await count(database), await raw.fetchval("SELECT count(*) FROM orders")) == (1, 1)
    (held,) = await claimed(database)
    assert (held.job.id, held.job.payload) == (job.job.id, '{"order":1}')
    await raw.close()


@pytest.mark.parametrize("kind", ["connection", "session"])
async def test_with_sqlalchemy_too_also_as_the_first_statement(
    database: Database, engine: AsyncEngine, kind: str
) -> None:
    opened = engine.connect() if kind == "connection" else AsyncSession(engine)
    async with opened as caller:
        job = await enqueue(caller, "mail.send", {"order": 1}, queue="mails", tags=["a", "b"])
        assert await count(database) == 0
        await caller.rollback()
        assert await count(database) == 0
        await caller.execute(text("SELECT 1"))
        job = await enqueue(caller, "mail.send", {"order": 2}, queue="mails", tags=["a", "b"])
        await caller.commit()
        await job.wake()
        assert not caller.in_transaction()
    (held,) = await claimed(database, queues=["mails"])
    assert (held.job.id, held.job.tags) == (job.job.id, ("a", "b"))


async def test_wake_after_the_commit_tells_workers_at_once(database: Database, engine: AsyncEngine) -> None:
    heard: list[str] = []
    ear = await asyncpg.connect(database.settings.url)
    await ear.add_listener(channel_of("tenure"), lambda *args: heard.append(str(args[3])))
    async with engine.connect() as caller:
        job = await enqueue(caller, "mail.send", queue="mails")
        await caller.commit()
        await job.wake()
    await until(lambda: heard == ["work:mails"])
    await ear.close()


async def test_a_registry_gives_the_kinds_defaults_and_checks_the_payload(
    database: Database, engine: AsyncEngine
) -> None:
    async with engine.begin() as caller:
        job = (await enqueue(caller, "mail.send", {"order": 1}, registry=registry)).job
        assert (job.queue, job.max_attempts, job.lease_seconds) == ("mails", 7, 11)
        with pytest.raises(InvalidInput) as caught:
            await enqueue(caller, "mail.send", {"order": "one"}, registry=registry)
        assert caught.value.errors[0].pointer.startswith("/payload")
    assert await count(database) == 1


async def test_wrong_fields_are_named_and_the_transaction_goes_on(database: Database, engine: AsyncEngine) -> None:
    async with engine.begin() as caller:
        with pytest.raises(InvalidInput, match="max_attempts"):
            await enqueue(caller, "mail.send", maxattempts=3)
        await enqueue(caller, "mail.send", idempotency_key="k")
        again = await enqueue(caller, "mail.send", idempotency_key="k")
        assert again.replayed
        with pytest.raises(IdempotencyKeyReused):
            await enqueue(caller, "mail.send", {"other": 1}, idempotency_key="k")
    assert await count(database) == 1


async def test_a_connection_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="AsyncSession"):
        await enqueue(object(), "mail.send")  # type: ignore[arg-type]
