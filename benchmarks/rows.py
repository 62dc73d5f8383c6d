"""Large tables, quickly: one job in the state that is wanted, made by the product's own verbs, and copies of its row.

The copies are made in SQL from whatever columns the table has. They have no events: what is measured on them reads none.
"""

from collections.abc import Mapping

from benchmarks.server import Server

_CHUNK = 500_000

_COLUMNS = """
SELECT array_agg(column_name::text ORDER BY ordinal_position) FROM information_schema.columns
WHERE table_schema = 'tenure' AND table_name = 'jobs' AND is_generated = 'NEVER'
"""

# Version 7, a millisecond apart, so that they come in order, as real ones do. `copy` is the copy's number.
_ID = """overlay(overlay(md5(copy::text) placing lpad(to_hex(1700000000000 + copy), 12, '0') from 1 for 12)
    placing '7' from 13 for 1)::uuid"""


async def multiply(server: Server, url: str, *, sample: str, count: int, changes: Mapping[str, str]) -> None:
    """Adds ``count`` copies of the one job that ``sample`` (a WHERE clause) names, then vacuums and analyses.

    ``changes`` are SQL expressions by column; ``copy`` is the copy's number in them.
    """
    columns = list(await server.value(_COLUMNS, url=url))
    values = [{"id": _ID, **changes}.get(column, f'job."{column}"') for column in columns]
    named = ", ".join(f'"{column}"' for column in columns)
    for start in range(0, count, _CHUNK):
        end = min(start + _CHUNK, count)
        await server.execute(
            f"INSERT INTO tenure.jobs ({named}) SELECT {', '.join(values)}"
            f" FROM (SELECT * FROM tenure.jobs WHERE {sample} LIMIT 1) AS job, generate_series({start}, {end - 1}) AS copy",
            url=url,
        )
    await server.execute("VACUUM ANALYZE tenure.jobs", "CHECKPOINT", url=url)
