"""The handler's writes and its job's success: both, or neither."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from tenure.errors import DatabaseUnavailable, LeaseLost
from tenure.jobs.model import ErrorKind, State
from tenure.jobs.retry import RetryPolicy
from tenure.store.artifacts import Artifact, find
from tenure.store.database import Database
from tenure.store.reap import reap_expired
from tenure.worker.context import JobContext
from tenure.worker.registry import JobRegistry
from tests.factories import expire_lease, history, queued, read
from tests.worker.running import settled_as, working

ARTIFACT = Artifact(name="a.csv", location="x/2/a.csv", bytes=3, rows=1, sha256="00", content_type="text/csv")


@pytest.fixture
def jobs() -> JobRegistry:
    return JobRegistry(default_policy=RetryPolicy(base_seconds=0.01, cap_seconds=0.01, jitter="none"))


@pytest.fixture
async def ledger(database: Database) -> AsyncIterator[Database]:
    """A table of the handlers' own."""
    async with database.connection() as connection:
        await connection.execute("CREATE TABLE IF NOT EXISTS ledger (job uuid, attempt integer)")
        await connection.execute("TRUNCATE ledger")
    yield database
    async with database.connection() as connection:
        await connection.execute("DROP TABLE ledger")


async def entries(database: Database) -> list[int]:
    async with database.connection() as connection:
        return [row["attempt"] for row in await connection.fetch("SELECT attempt FROM ledger ORDER BY attempt")]


async def write(connection: "asyncpg.Connection[asyncpg.Record]", context: JobContext) -> None:
    await connection.execute("INSERT INTO ledger VALUES ($1, $2)", context.job.id, context.job.attempts)


async def test_both_are_committed_and_the_returned_value_is_ignored(ledger: Database, jobs: JobRegistry) -> None:
    @jobs.handler("pays")
    async def handle(context: JobContext) -> str:
        async with context.completion({"paid": True}, [ARTIFACT]) as connection:
            await write(connection, context)
        await asyncio.sleep(0)
        return "ignored"

    job = await queued(ledger, kind="pays")
    async with working(ledger, jobs):
        ended = await settled_as(ledger, job)
    assert (ended.result, await entries(ledger)) == ('{"paid":true}', [1])
    assert await history(ledger, job) == ["enqueued", "leased", "succeeded"]
    async with ledger.connection() as connection:
        assert [artifact.name for artifact in await find(connection, job.id)] == ["a.csv"]


@pytest.mark.parametrize("error", [OSError("disk"), TimeoutError("mine"), ValueError("no"), asyncio.CancelledError()])
async def test_an_error_in_the_block_undoes_both_and_passes_through_as_it_is(
    ledger: Database, jobs: JobRegistry, error: BaseException
) -> None:
    seen: list[BaseException] = []

    @jobs.handler("pays")
    async def handle(context: JobContext) -> str:
        try:
            async with context.completion("never", [ARTIFACT]) as connection:
                await write(connection, context)
                raise error
        except BaseException as caught:
            seen.append(caught)
        return "went on"

    job = await queued(ledger, kind="pays")
    async with working(ledger, jobs):
        ended = await settled_as(ledger, job)
    assert seen == [error]
    assert (ended.result, await entries(ledger)) == ('"went on"', [])
    async with ledger.connection() as connection:
        assert await find(connection, job.id) == []


async def test_an_error_after_the_block_changes_nothing(ledger: Database, jobs: JobRegistry) -> None:
    @jobs.handler("pays")
    async def handle(context: JobContext) -> None:
        async with context.completion(1) as connection:
            await write(connection, context)
        raise RuntimeError("while tidying up")

    job = await queued(ledger, kind="pays")
    async with working(ledger, jobs):
        ended = await settled_as(ledger, job)
    assert (ended.state, ended.last_error, await entries(ledger)) == (State.SUCCEEDED, None, [1])


async def test_a_lost_lease_undoes_the_handler_s_writes(ledger: Database, jobs: JobRegistry) -> None:
    refused: list[str] = []

    @jobs.handler("pays")
    async def handle(context: JobContext) -> None:
        try:
            async with context.completion(context.job.attempts) as connection:
                await write(connection, context)
                if context.job.attempts == 1:
                    await expire_lease(ledger, context.job)
                    async with ledger.transaction() as other:
                        await reap_expired(other)
        except LeaseLost as lost:
            refused.append(lost.reason)
            raise

    job = await queued(ledger, kind="pays")
    async with working(ledger, jobs):
        ended = await settled_as(ledger, job)
    assert (ended.result, await entries(ledger)) == ("2", [2])
    assert refused[0] in {"expired", "superseded"}
    assert await history(ledger, job) == ["enqueued", "leased", "lease_expired", "leased", "succeeded"]


async def test_a_result_that_cannot_be_stored_fails_before_anything_is_written(
    ledger: Database, jobs: JobRegistry
) -> None:
    @jobs.handler("pays")
    async def handle(context: JobContext) -> None:
        async with context.completion(object()) as connection:
            await write(connection, context)

    job = await queued(ledger, kind="pays")
    async with working(ledger, jobs):
        ended = await settled_as(ledger, job)
    assert (ended.state, await entries(ledger)) == (State.FAILED, [])
    assert ended.last_error is not None
    assert ended.last_error.kind is ErrorKind.PERMANENT


async def test_a_transaction_ended_inside_the_block_is_refused(ledger: Database, jobs: JobRegistry) -> None:
    @jobs.handler("pays")
    async def handle(context: JobContext) -> None:
        async with context.completion(1) as connection:
            await connection.execute("ROLLBACK")

    job = await queued(ledger, kind="pays", max_attempts=1)
    async with working(ledger, jobs):
        ended = await settled_as(ledger, job)
    assert ended.state is State.DEAD
    assert ended.last_error is not None
    assert "ended the transaction itself" in ended.last_error.message


CUT = "SELECT pg_terminate_backend($1)"


async def test_a_connection_cut_before_the_commit_writes_nothing_and_says_so(
    ledger: Database, jobs: JobRegistry
) -> None:
    raised: list[str] = []

    @jobs.handler("pays")
    async def handle(context: JobContext) -> None:
        try:
            async with context.completion(context.job.attempts) as connection:
                await write(connection, context)
                if context.job.attempts == 1:
                    async with ledger.connection() as other:
                        await other.execute(CUT, connection.get_server_pid())
        except DatabaseUnavailable as error:
            raised.append(error.code)
            raise

    job = await queued(ledger, kind="pays")
    async with working(ledger, jobs):
        ended = await settled_as(ledger, job)
    assert (ended.result, await entries(ledger), raised) == ("2", [2], ["database-unavailable"])
    assert ended.last_error is not None
    assert ended.last_error.kind is ErrorKind.TRANSIENT


COMMIT_IS_CUT = """
CREATE FUNCTION cut_at_commit() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$
"""


async def test_a_connection_cut_at_commit_is_looked_up_and_not_guessed(ledger: Database, jobs: JobRegistry) -> None:
    raised: list[str] = []

    @jobs.handler("pays")
    async def handle(context: JobContext) -> None:
        try:
            async with context.completion(context.job.attempts) as connection:
                await write(connection, context)
        except DatabaseUnavailable as error:
            raised.append(error.detail)
            async with ledger.connection() as other:
                await other.execute("DROP TRIGGER cut ON ledger")
            raise

    async with ledger.connection() as connection:
        await connection.execute(COMMIT_IS_CUT)
        await connection.execute(
            "CREATE CONSTRAINT TRIGGER cut AFTER INSERT ON ledger DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION cut_at_commit()"
        )
    job = await queued(ledger, kind="pays")
    try:
        async with working(ledger, jobs):
            ended = await settled_as(ledger, job)
    finally:
        async with ledger.connection() as connection:
            await connection.execute("DROP FUNCTION cut_at_commit() CASCADE")
    assert raised == ["the commit did not happen: the connection broke; nothing was written"]
    assert (ended.state, ended.result, await entries(ledger)) == (State.SUCCEEDED, "2", [2])


async def test_two_completions_of_one_attempt_are_refused(ledger: Database, jobs: JobRegistry) -> None:
    refused: list[str] = []

    @jobs.handler("pays")
    async def handle(context: JobContext) -> None:
        async with context.completion(1) as connection:
            await write(connection, context)
        try:
            async with context.completion(2) as connection:
                await write(connection, context)
        except RuntimeError as error:
            refused.append(str(error))

    job = await queued(ledger, kind="pays")
    async with working(ledger, jobs):
        await settled_as(ledger, job)
    assert (refused, await entries(ledger)) == (["this attempt has completed its job already"], [1])
    assert (await read(ledger, job)).result == "1"
