"""Working as a guest in somebody else's transaction: asyncpg's or SQLAlchemy's connection as one of ours.

SQLAlchemy is recognised by what its objects can do, not imported: who works with asyncpg alone does not load it.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, runtime_checkable

import asyncpg
import asyncpg.pool

from tenure.errors import ConfigurationError
from tenure.store.database import Connection, Executor, Record, checked_schema
from tenure.store.notify import WORK, channel_of


@runtime_checkable
class SqlAlchemyConnection(Protocol):
    """What is used of SQLAlchemy's ``AsyncConnection``."""

    @property
    def dialect(self) -> Any: ...

    async def exec_driver_sql(self, statement: str, parameters: Any = None) -> Any: ...

    def in_transaction(self) -> bool: ...

    def begin(self) -> AbstractAsyncContextManager[Any]: ...


@runtime_checkable
class SqlAlchemySession(Protocol):
    """What is used of SQLAlchemy's ``AsyncSession``."""

    async def connection(self) -> Any: ...

    def in_transaction(self) -> bool: ...

    def begin(self) -> AbstractAsyncContextManager[Any]: ...


GuestOf = asyncpg.Connection | asyncpg.pool.PoolConnectionProxy | SqlAlchemyConnection | SqlAlchemySession
"""What a caller may hand in: the connection (or session) that its transaction is open on."""


class _SqlAlchemyExecutor:
    """Runs a statement in SQLAlchemy's transaction, beginning it if nothing has yet."""

    def __init__(self, connection: SqlAlchemyConnection) -> None:
        self._connection = connection

    async def fetch(self, query: str, *args: Any) -> Sequence[Record]:
        result = await self._connection.exec_driver_sql(query, args)
        return [dict(row) for row in result.mappings()] if result.returns_rows else []


async def guest(connection: Any, schema: str) -> Connection:
    """The caller's connection as one of ours. Raises ConfigurationError for anything else than GuestOf."""
    return Connection(executor=await _executor(connection), schema=checked_schema(schema))


async def wake(connection: Any, schema: str, queue: str) -> None:
    """Tells idle workers at once. Call it after the commit; a transaction still open delays it until its commit."""
    statement, arguments = "SELECT pg_notify($1, $2)", (channel_of(schema), f"{WORK}:{queue}")
    if _is_asyncpg(connection) or connection.in_transaction():
        await (await _executor(connection)).fetch(statement, *arguments)
    else:
        async with connection.begin():
            await (await _executor(connection)).fetch(statement, *arguments)


def _is_asyncpg(connection: Any) -> bool:
    return isinstance(connection, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy)


async def _executor(connection: Any) -> Executor:
    if _is_asyncpg(connection):
        executor: Executor = connection
        return executor
    if not isinstance(connection, SqlAlchemyConnection) and isinstance(connection, SqlAlchemySession):
        connection = await connection.connection()
    if not isinstance(connection, SqlAlchemyConnection):
        raise ConfigurationError(
            "enqueue() takes an asyncpg connection or SQLAlchemy's AsyncConnection or AsyncSession, "
            f"not {type(connection).__name__}"
        )
    if connection.dialect.driver != "asyncpg":
        raise ConfigurationError(
            f"enqueue() needs SQLAlchemy's asyncpg driver, not {connection.dialect.driver}: "
            "create the engine with a postgresql+asyncpg:// URL"
        )
    return _SqlAlchemyExecutor(connection)
