"""Plans of what is really executed: every statement is explained, run and undone just before it runs for good.

The statement is prepared and executed under the session's own settings, so that the plan is the one a service gets, be it
generic or made for the arguments.
"""

import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import asyncpg

from tenure.store.database import Executor, Record

Node = dict[str, Any]

SORTS = ("Sort", "Incremental Sort")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A statement as it was sent, and the tree that PostgreSQL made of it, with what each node really did."""

    query: str
    root: Node

    def nodes(self) -> Iterator[Node]:
        yield from _walk(self.root)

    def scans(self, table: str) -> list[Node]:
        """The nodes that read the table, or a partition of it."""
        return [node for node in self.nodes() if "Scan" in node["Node Type"] and _table_of(node) == table]

    def indexes(self, table: str) -> set[str]:
        return {node["Index Name"] for node in self.scans(table) if "Index Name" in node}

    def sorts(self) -> list[Node]:
        return [node for node in self.nodes() if node["Node Type"] in SORTS]

    @property
    def buffers(self) -> int:
        """Pages touched, over the whole statement."""
        return int(self.root["Shared Hit Blocks"] + self.root["Shared Read Blocks"])

    def __str__(self) -> str:
        return "\n".join(_lines(self.root, 0))


@dataclass(slots=True)
class Explaining:
    """An executor that keeps the plan of each statement. It needs a transaction that somebody else ends."""

    raw: "asyncpg.Connection[asyncpg.Record]"
    plans: list[Plan] = field(default_factory=list)
    before: Callable[[str], Awaitable[None]] | None = None
    """Called with each statement before it is explained."""

    async def fetch(self, query: str, *args: Any) -> Sequence[Record]:
        if self.before is not None:
            await self.before(query)
        self.plans.append(Plan(query=query, root=await self._explain(query, args)))
        return await cast(Executor, self.raw).fetch(query, *args)

    async def _explain(self, query: str, args: Sequence[Any]) -> Node:
        types = [kind.name for kind in (await self.raw.prepare(query)).get_parameters()]
        literals = await self.raw.fetchrow(
            "SELECT " + ", ".join(f"quote_nullable((${n}::{kind})::text)" for n, kind in enumerate(types, 1)), *args
        )
        assert literals is not None
        values = ", ".join(f"{literal}::{kind}" for literal, kind in zip(literals, types, strict=True))
        undone = self.raw.transaction()
        await undone.start()
        try:
            await self.raw.execute(f"PREPARE explained AS {query}")
            answer = await self.raw.fetchval(
                f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE explained ({values})"
            )
        finally:
            await undone.rollback()
            await self.raw.execute("DEALLOCATE explained")
        root: Node = json.loads(answer)[0]["Plan"]
        return root


def rows_read(node: Node) -> float:
    """Rows that a scan met, kept or not, over all its loops."""
    removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return float((node["Actual Rows"] + removed) * node["Actual Loops"])


def rows_sorted(node: Node) -> float:
    """Rows that went into a sort, over all its loops."""
    (below,) = [child for child in node["Plans"] if child["Parent Relationship"] == "Outer"]
    return float(below["Actual Rows"] * below["Actual Loops"])


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.get("Plans", ()):
        yield from _walk(child)


def _table_of(node: Node) -> str | None:
    name: str | None = node.get("Relation Name")
    return "events" if name is not None and name.startswith("events") else name


def _lines(node: Node, depth: int) -> Iterator[str]:
    what = [node.get(key) for key in ("Relation Name", "Index Name", "Index Cond", "Filter") if node.get(key)]
    pages = node["Shared Hit Blocks"] + node["Shared Read Blocks"]
    yield f"{'  ' * depth}{node['Node Type']} {what} {node['Actual Rows']} rows × {node['Actual Loops']}, {pages} pages"
    for child in node.get("Plans", ()):
        yield from _lines(child, depth + 1)
