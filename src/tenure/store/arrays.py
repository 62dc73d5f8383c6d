"""Statements that change many rows: which rows, and what each gets.

The rows are named by ``j.id = ANY (ids)`` alone, never by a join. A plan is kept for as long as its connection lives, and
one that was made while the table was nearly empty may begin a join from the wrong side: every batch then costs the table's
rows times its own. One table and an array leave no such choice: at the worst, until autovacuum's next ANALYZE, a batch
passes over the rows once. And the rows are met, and locked, in the order of their ids.

What a row gets is looked up by its position among the ids, which must come sorted and without repeats: `width_bucket` is
PostgreSQL's binary search.
"""


def position_of(column: str, sorted_ids: str) -> str:
    """SQL: the one-based position of the column's value in a sorted ``uuid[]`` that has it."""
    return f"width_bucket({column}, {sorted_ids}::uuid[])"


def element_bytes(parameter: str, position: str, length: int) -> str:
    """SQL: the ``length`` bytes of the element at ``position`` in one `bytea` that holds them all, end to end."""
    return f"substring({parameter}::bytea FROM ({position} - 1) * {length} + 1 FOR {length})"
