"""Connections: one pool, transactions that commit before anything is answered, and errors that say "come back later".

Statements run on asyncpg itself: SQLAlchemy holds the schema (`tables.py`) and the migrations, but a statement that goes
through its engine costs three times the processor time of the same one here.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, cast

import asyncpg

from tenure.errors import ConfigurationError, DatabaseUnavailable
from tenure.settings import DatabaseSettings

Record = Mapping[str, Any]

_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")
_SCHEMA_MARK = re.compile(r"\btenure\.")

TRANSIENT_ERRORS: tuple[type[BaseException], ...] = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.LockNotAvailableError,
    asyncpg.QueryCanceledError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.ObjectInUseError,
    asyncpg.UndefinedTableError,
    asyncpg.InvalidSchemaNameError,
    asyncpg.RaiseError,
)
"""What passes by itself: the network, a restart, a failover (a demoted primary is read-only), a lock, a full server, a
schema that is about to be migrated."""


class Executor(Protocol):
    """What runs a rendered statement: asyncpg's connection, or an adapter over the caller's own."""

    async def fetch(self, query: str, *args: Any) -> Sequence[Record]: ...


@dataclass(slots=True)
class Connection:
    """A connection whose statements name the schema as ``tenure.``. ``parts`` is into how many the tables are split."""

    executor: Executor
    schema: str = "tenure"
    parts: int = 1
    _rendered: dict[str, str] = field(default_factory=dict, repr=False)

    async def fetch(self, statement: str, *args: Any) -> Sequence[Record]:
        return await self.executor.fetch(self.render(statement), *args)

    async def fetchrow(self, statement: str, *args: Any) -> Record | None:
        rows = await self.fetch(statement, *args)
        return rows[0] if rows else None

    async def execute(self, statement: str, *args: Any) -> None:
        await self.fetch(statement, *args)

    def render(self, statement: str) -> str:
        """Puts the configured schema in the place of ``tenure.``; each statement is rendered once."""
        rendered = self._rendered.get(statement)
        if rendered is None:
            rendered = self._rendered[statement] = render(statement, self.schema)
        return rendered


def render(statement: str, schema: str) -> str:
    """The statement for this schema. Raises ConfigurationError for a name that would need more than plain quoting."""
    return _SCHEMA_MARK.sub(f'"{checked_schema(schema)}".', statement)


def checked_schema(schema: str) -> str:
    """The schema's name, if it is one: lower-case letters, digits and underscores, not beginning with a digit."""
    if not _SCHEMA_NAME.match(schema):
        raise ConfigurationError(
            f"schema name {schema!r} cannot be used: take lower-case letters, digits and underscores (TENURE_DATABASE_SCHEMA)"
        )
    return schema


class Database:
    """The pool. It opens without connecting, so that a service can start before its database and say so."""

    def __init__(self, settings: DatabaseSettings, pool: "asyncpg.Pool[asyncpg.Record]") -> None:
        self.settings = settings
        self.schema = checked_schema(settings.schema_name)
        self.parts = 1
        self._pool = pool
        self._rendered: dict[str, str] = {}

    @classmethod
    async def open(cls, settings: DatabaseSettings, *, application_name: str = "tenure") -> Self:
        """Prepares the pool; no connection is made until one is needed."""
        pool = await asyncpg.create_pool(
            **connect_arguments(settings, application_name),
            min_size=0,
            max_size=settings.pool_size,
            max_inactive_connection_lifetime=300.0,
            reset=_leave_as_is,
        )
        return cls(settings, pool)

    async def close(self) -> None:
        """Waits for connections in use, then closes; after ten seconds it cuts them."""
        try:
            async with asyncio.timeout(10):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection on which each statement commits by itself. Raises DatabaseUnavailable."""
        async with translated_errors():
            raw = await self._pool.acquire(timeout=self.settings.acquire_timeout_seconds)
            try:
                yield self._wrap(raw)
            finally:
                await self._release(raw)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """One read-write transaction; it has committed when the block is left. Raises DatabaseUnavailable."""
        async with translated_errors():
            raw = await self._pool.acquire(timeout=self.settings.acquire_timeout_seconds)
            try:
                async with raw.transaction():
                    yield self._wrap(raw)
            finally:
                await self._release(raw)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Connection]:
        """A read-only transaction in which every read sees the same moment. Raises DatabaseUnavailable."""
        async with translated_errors():
            raw = await self._pool.acquire(timeout=self.settings.acquire_timeout_seconds)
            try:
                async with raw.transaction(isolation="repeatable_read", readonly=True):
                    yield self._wrap(raw)
            finally:
                await self._release(raw)

    @asynccontextmanager
    async def dedicated(self, application_name: str) -> AsyncIterator[Connection]:
        """A connection of its own, outside the pool (heartbeats, LISTEN): an exhausted pool cannot starve it."""
        async with translated_errors():
            raw = await connect(self.settings, application_name)
            try:
                yield self._wrap(raw)
            finally:
                await close_quietly(raw)

    def _wrap(self, raw: Any) -> Connection:
        return Connection(executor=cast(Executor, raw), schema=self.schema, parts=self.parts, _rendered=self._rendered)

    async def _release(self, raw: Any) -> None:
        await self._pool.release(raw, timeout=2.0)


async def connect(settings: DatabaseSettings, application_name: str) -> "asyncpg.Connection[asyncpg.Record]":
    """One connection outside any pool."""
    return await asyncpg.connect(**connect_arguments(settings, application_name))


async def close_quietly(raw: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Closes, or cuts when the other end no longer answers."""
    try:
        await raw.close(timeout=2.0)
    except TRANSIENT_ERRORS:
        raw.terminate()


def connect_arguments(settings: DatabaseSettings, application_name: str) -> dict[str, Any]:
    """What asyncpg needs to connect as the settings say."""
    arguments: dict[str, Any] = {
        "dsn": settings.url,
        "timeout": settings.connect_timeout_seconds,
        "command_timeout": settings.command_timeout_seconds,
        "statement_cache_size": settings.statement_cache_size,
    }
    if settings.session_settings:
        arguments["server_settings"] = {
            "application_name": application_name,
            "timezone": "UTC",
            "lock_timeout": f"{round(settings.lock_timeout_seconds * 1000)}",
            "idle_in_transaction_session_timeout": "60000",
            # Compiling a plan costs more than any of these statements runs for.
            "jit": "off",
            # Planning a claim anew costs more than the claim; no statement here gains by knowing its values.
            "plan_cache_mode": "force_generic_plan",
            # So a plan is kept while its connection lives. Made while a table is nearly empty, it would read all of it (or
            # lock its rows in another order than that of their ids) for as long.
            "enable_seqscan": "off",
            "enable_bitmapscan": "off",
        }
    return arguments


@asynccontextmanager
async def translated_errors() -> AsyncIterator[None]:
    """Turns what passes by itself into DatabaseUnavailable; everything else is a bug and stays what it is."""
    try:
        yield
    except TRANSIENT_ERRORS as error:
        if isinstance(error, ValueError):  # asyncpg's word for an argument that does not fit: a bug, not an outage
            raise
        raise DatabaseUnavailable(unavailable_because(error)) from error


def unavailable_because(error: BaseException) -> str:
    """A sentence for the caller, without host names, SQL or library names."""
    match error:
        case asyncpg.ReadOnlySQLTransactionError():
            return "the database is read-only: it was demoted, a failover is under way"
        case asyncpg.LockNotAvailableError() | asyncpg.DeadlockDetectedError():
            return "somebody else holds a lock on this for too long"
        case asyncpg.TooManyConnectionsError() | asyncpg.InsufficientResourcesError():
            return "the database is out of resources"
        case asyncpg.UndefinedTableError() | asyncpg.InvalidSchemaNameError():
            return "the schema is not there (yet): `tenure migrate` makes it"
        case asyncpg.RaiseError():
            return "the database refused to write this: a trigger of its owner's raised an error"
        case TimeoutError() | asyncpg.QueryCanceledError():
            return "the database did not answer in time"
        case _:
            return "the database cannot be reached"


async def _leave_as_is(_: Any) -> None:
    """No session state is ever changed outside a transaction, so a connection goes back without a round trip."""
