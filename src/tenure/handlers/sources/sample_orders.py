"""A table of orders to try reports on: made up, the same for the same seed, awkward where real data is awkward."""

import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import asyncpg

from tenure.errors import ConfigurationError

SCHEMA = "sample"
"""A schema of its own: nobody's `orders` is touched."""

_NEWEST = datetime(2026, 1, 1, tzinfo=UTC)
_SPAN_SECONDS = 365 * 86_400
_COLUMNS = (
    "id",
    "order_number",
    "customer",
    "country",
    "status",
    "items",
    "amount",
    "currency",
    "created_at",
    "shipped_on",
    "note",
)
_CREATE = f"""
CREATE SCHEMA IF NOT EXISTS {SCHEMA};
DROP TABLE IF EXISTS {SCHEMA}.orders;
CREATE TABLE {SCHEMA}.orders (
    id bigint PRIMARY KEY,
    order_number text NOT NULL,
    customer text NOT NULL,
    country text NOT NULL,
    status text NOT NULL,
    items integer NOT NULL,
    amount numeric(12,2) NOT NULL,
    currency text NOT NULL,
    created_at timestamptz NOT NULL,
    shipped_on date,
    note text
);
CREATE INDEX orders_created_at ON {SCHEMA}.orders (created_at)
"""
_MARK = "SELECT obj_description(to_regclass($1), 'pg_class'), to_regclass($1) IS NOT NULL"
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('tenure sample orders'))"

_GIVEN_NAMES = (
    "Ana", "Björn", "Chloé", "Dmitri", "Émile", "Fatima", "Grace", "Hugo", "İpek", "Jana", "Kwame", "Łukasz", "Mei",
    "Noor", "Oskar", "Priya", "Quentin", "Rosa", "Søren", "Tomás", "Uma", "Víctor", "Wanda", "Xin", "Yuki", "Zoë",
)  # fmt: skip
_FAMILY_NAMES = (
    "Almeida", "Bianchi", "Červenka", "Dubois", "Eriksen", "Fernández", "García", "Hansen", "Ito", "Jovanović",
    "Kowalska", "Lindqvist", "Müller", "Nguyen", "O'Brien", "Popescu", "Quist", "Rossi", "Schäfer", "Tanaka",
)  # fmt: skip
_COMPANIES = (
    '"Blue Door" Books',
    "Nord & Süd, GmbH",
    "東京商店",
    "Café «Ñandú», S.L.",
    "Smith, Jones & Co.",
    "Όμηρος και Υιοί",
)
_MARKETS = (
    ("DE", "EUR", 24), ("US", "USD", 20), ("FR", "EUR", 14), ("GB", "GBP", 12), ("NL", "EUR", 8), ("ES", "EUR", 8),
    ("JP", "JPY", 6), ("PL", "PLN", 5), ("SE", "SEK", 3),
)  # fmt: skip
_STATUSES = (("delivered", 68), ("shipped", 14), ("paid", 9), ("canceled", 6), ("refunded", 3))
_NOTES = (
    None, None, None, None, None, None, None, None, None, None, "Leave at the door", 'Ring twice, ask for "Ana"',
    "Gift wrap, please\nNo invoice in the parcel", "=SUM(A1:A9)", "Größe tauschen → L", "🎁",
)  # fmt: skip


async def load_sample_orders(url: str, rows: int = 200_000, seed: int = 1) -> None:
    """Makes the table ``sample.orders`` with so many rows; nothing happens when it already holds just those.

    Raises ConfigurationError where a table of that name was made by somebody else.
    """
    connection = await asyncpg.connect(url)
    mark = f"tenure sample orders: rows={rows} seed={seed}"
    try:
        async with connection.transaction():
            await connection.execute(_LOCK)  # two that begin at once load it once
            found, exists = await connection.fetchrow(_MARK, f"{SCHEMA}.orders") or (None, False)
            if found == mark:
                return
            if exists and not str(found).startswith("tenure sample orders"):
                raise ConfigurationError(
                    f"the database has a table {SCHEMA}.orders that is not ours: rename it, or use another database"
                )
            await connection.execute(_CREATE)
            await connection.copy_records_to_table(
                "orders", schema_name=SCHEMA, columns=list(_COLUMNS), records=sample_orders(rows, seed)
            )
            await connection.execute(f"COMMENT ON TABLE {SCHEMA}.orders IS '{mark}'")
        await connection.execute(f"ANALYZE {SCHEMA}.orders")
    finally:
        await connection.close()


def sample_orders(rows: int, seed: int) -> Iterator[tuple[Any, ...]]:
    """The rows, oldest first; the same for the same arguments, on every machine."""
    choose = random.Random(seed)  # noqa: S311 - made-up data, no secret
    draw = choose.random
    markets = [market for market in _MARKETS for _ in range(market[2])]
    statuses = [status for status, weight in _STATUSES for _ in range(weight)]
    step = _SPAN_SECONDS / max(rows, 1)
    begin = _NEWEST - timedelta(seconds=_SPAN_SECONDS)
    for number in range(rows):
        country, currency, _ = markets[int(draw() * len(markets))]
        status = statuses[int(draw() * len(statuses))]
        created = begin + timedelta(microseconds=int((number + draw()) * step * 1_000_000))
        items = 1 + int(draw() ** 2 * 8)
        amount = Decimal(int((4 + draw() ** 3 * 900) * 100 * items)).scaleb(-2)
        shipped: date | None = None
        if status in {"delivered", "shipped", "refunded"}:
            shipped = (created + timedelta(days=1 + int(draw() * 4))).date()
        yield (
            number + 1,
            f"SO-{created.year}-{number + 1:07}",
            _customer(draw(), draw()),
            country,
            status,
            items,
            amount,
            currency,
            created,
            shipped,
            _NOTES[int(draw() * len(_NOTES))],
        )


def _customer(first: float, second: float) -> str:
    if first < 0.08:
        return _COMPANIES[int(second * len(_COMPANIES))]
    return f"{_GIVEN_NAMES[int(first * len(_GIVEN_NAMES))]} {_FAMILY_NAMES[int(second * len(_FAMILY_NAMES))]}"
