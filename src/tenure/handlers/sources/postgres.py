"""Reads a report's rows from PostgreSQL: read-only, of one moment, a batch at a time.

Read-only is held by the server: the session's default and the transaction itself are READ ONLY, and once the statement
has taken its snapshot PostgreSQL lets nothing in it turn that off. A role that may only SELECT is still the right one
to connect as: functions that reach outside of the database are its matter, not the transaction's.
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import asyncpg
from asyncpg.cursor import Cursor
from asyncpg.prepared_stmt import PreparedStatement

from tenure.artifacts.completing import to_its_end
from tenure.errors import PermanentError, RetryLater
from tenure.handlers.reports.catalog import Report, Source
from tenure.handlers.reports.rows import Column, Precision, Row, RowStream, ValueKind
from tenure.jobs.redact import redact
from tenure.store.database import TRANSIENT_ERRORS

_KINDS: Mapping[str, ValueKind] = MappingProxyType(
    {
        "int2": ValueKind.INT16,
        "int4": ValueKind.INT32,
        "int8": ValueKind.INT64,
        "oid": ValueKind.INT64,
        "float4": ValueKind.FLOAT32,
        "float8": ValueKind.FLOAT64,
        "numeric": ValueKind.DECIMAL,
        "bool": ValueKind.BOOLEAN,
        "date": ValueKind.DATE,
        "time": ValueKind.TIME,
        "timestamp": ValueKind.TIMESTAMP,
        "timestamptz": ValueKind.TIMESTAMPTZ,
        "uuid": ValueKind.UUID,
        "bytea": ValueKind.BYTES,
        "json": ValueKind.JSON,
        "jsonb": ValueKind.JSON,
    }
)
_TEXTS = frozenset({"text", "varchar", "bpchar", "name", "interval"})
_READ_AS_TEXT = ("numeric", "uuid", "interval")
_UNREADABLE = frozenset({"record", "composite", "range", "multirange"})
_MIN_REDACTED_CHARACTERS = 3
"""A shorter value occurs in any sentence, and taking it out would leave nothing to read."""


@asynccontextmanager
async def open_rows(report: Report, parameters: Mapping[str, Any]) -> AsyncIterator[RowStream]:
    """The report's rows, on a connection of their own that is closed afterwards.

    Raises RetryLater for what passes by itself (network, restart, lock, timeout), PermanentError for what the SQL or
    the source's settings are to blame for.
    """
    with _translated(report.source, parameters):
        connection = await _connect(report.source)
    try:
        with _translated(report.source, parameters):
            rows = await _begin(connection, report, parameters)
        yield rows
    finally:
        # Never committed: there is nothing to keep.
        await to_its_end(_close(connection))


@dataclass(slots=True)
class _Rows:
    """See RowStream."""

    columns: Sequence[Column]
    total: int | None
    source: Source
    parameters: Mapping[str, Any]
    cursor: "Cursor[asyncpg.Record]"

    async def fetch(self, count: int) -> Sequence[Row]:
        with _translated(self.source, self.parameters):
            try:
                return await self.cursor.fetch(count)
            except (ValueError, OverflowError) as error:
                raise PermanentError(
                    "a value cannot be represented: dates and times must lie within the years 1 to 9999, texts must be "
                    "UTF-8; cast the column in the report's SQL to export it in another way"
                ) from error


async def _connect(source: Source) -> "asyncpg.Connection[asyncpg.Record]":
    return await asyncpg.connect(
        source.url,
        timeout=source.connect_timeout_seconds,
        # The server's own timeout comes first, with a better message; this one is for a server that went silent.
        command_timeout=source.statement_timeout_seconds + 10,
        statement_cache_size=0,
        server_settings={
            "application_name": "tenure report",
            "default_transaction_read_only": "on",
            "timezone": "UTC",
            "intervalstyle": "iso_8601",
            "statement_timeout": f"{round(source.statement_timeout_seconds * 1000)}",
        },
    )


async def _begin(
    connection: "asyncpg.Connection[asyncpg.Record]", report: Report, parameters: Mapping[str, Any]
) -> _Rows:
    await connection.transaction(isolation="repeatable_read", readonly=True).start()
    # As PostgreSQL writes them: a Decimal would spell its digits in its own way, and a timedelta knows no months.
    for name in _READ_AS_TEXT:
        await _read_as_text(connection, name, "pg_catalog")
    statement = await _prepare(connection, report.query.sql)
    columns = [_column(attribute, report.precisions) for attribute in statement.get_attributes()]
    _check_names(columns)
    total = None
    if report.count_query is not None:
        count = await connection.fetchval(
            report.count_query.sql, *(parameters[name] for name in report.count_query.names)
        )
        total = count if isinstance(count, int) else None
    cursor = await statement.cursor(*(parameters[name] for name in report.query.names))
    return _Rows(columns=columns, total=total, source=report.source, parameters=parameters, cursor=cursor)


async def _prepare(connection: "asyncpg.Connection[asyncpg.Record]", sql: str) -> "PreparedStatement[asyncpg.Record]":
    """Prepares the statement so that each of its columns can be read."""
    statement = await connection.prepare(sql)
    attributes = statement.get_attributes()
    for attribute in attributes:
        if attribute.type.kind in _UNREADABLE or _base(attribute) in _UNREADABLE:
            raise PermanentError(
                f"column {attribute.name!r} is a {attribute.type.name}, which no format holds: "
                "cast it to text or jsonb in the report's SQL"
            )
    odd = {
        (attribute.type.name.removesuffix("[]"), attribute.type.schema)
        for attribute in attributes
        if _base(attribute) not in _KINDS and _base(attribute) not in _TEXTS
    }
    for name, schema in odd:
        await _read_as_text(connection, name, schema)
    return await connection.prepare(sql) if odd else statement


async def _read_as_text(connection: "asyncpg.Connection[asyncpg.Record]", name: str, schema: str) -> None:
    await connection.set_type_codec(name, schema=schema, encoder=str, decoder=str, format="text")


def _column(attribute: asyncpg.Attribute, precisions: Mapping[str, Precision]) -> Column:
    return Column(
        name=attribute.name,
        kind=_KINDS.get(_base(attribute), ValueKind.TEXT),
        is_array=attribute.type.kind == "array",
        precision=precisions.get(attribute.name),
    )


def _base(attribute: asyncpg.Attribute) -> str:
    """The name of the type, of its elements for an array. Another schema's types are never taken for PostgreSQL's."""
    name = attribute.type.name.removesuffix("[]") if attribute.type.kind == "array" else attribute.type.name
    return name if attribute.type.schema == "pg_catalog" else f"{attribute.type.schema}.{name}"


def _check_names(columns: Sequence[Column]) -> None:
    names = [column.name for column in columns]
    if not names:
        raise PermanentError("the report's SQL yields no columns")
    for name in names:
        if names.count(name) > 1:
            raise PermanentError(f"two columns are called {name!r}: give one of them another name in the report's SQL")


async def _close(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    try:
        await connection.close(timeout=2.0)
    except TRANSIENT_ERRORS:
        connection.terminate()


@contextmanager
def _translated(source: Source, parameters: Mapping[str, Any]) -> Iterator[None]:
    try:
        yield
    except asyncpg.ReadOnlySQLTransactionError as error:
        raise PermanentError(
            f"the report writes, which a report may not: {_said(error, source, parameters)}"
        ) from error
    except asyncpg.QueryCanceledError as error:
        raise RetryLater(
            f"source {source.name!r} took longer than {source.statement_timeout_seconds:g} s for one statement"
        ) from error
    except (
        asyncpg.InvalidAuthorizationSpecificationError,
        asyncpg.InvalidCatalogNameError,
        asyncpg.ClientConfigurationError,
    ) as error:
        raise PermanentError(f"source {source.name!r} refuses the connection that its settings describe") from error
    except (asyncpg.DataError, asyncpg.SyntaxOrAccessError, asyncpg.InvalidSchemaNameError) as error:
        raise PermanentError(f"source {source.name!r}: {_said(error, source, parameters)}") from error
    except TRANSIENT_ERRORS as error:
        raise RetryLater(f"source {source.name!r} cannot be reached, or is out of resources, now") from error
    except asyncpg.PostgresError as error:
        raise PermanentError(f"source {source.name!r}: {_said(error, source, parameters)}") from error


def _said(error: BaseException, source: Source, parameters: Mapping[str, Any]) -> str:
    """PostgreSQL's sentence without details (which quote rows), the URL and what the submitter sent."""
    text = str(getattr(error, "message", None) or error).replace(source.url, "[the source]")
    for value in parameters.values():
        for item in value if isinstance(value, list) else [value]:
            if len(str(item)) >= _MIN_REDACTED_CHARACTERS and not isinstance(item, bool):
                text = text.replace(str(item), "[parameter]")
    return redact(text)
