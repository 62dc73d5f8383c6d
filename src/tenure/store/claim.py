"""Claiming: due jobs become running under fresh leases, many in one statement, each taken by exactly one claimer.

The claim index holds queued jobs in *lanes*: one lane is one (queue, kind, priority), and within it the due jobs are one
range, in order. So the statement

1. finds the lanes that exist, hopping through the index from one priority to the next (what nobody asked for is never
   looked at, however many of its jobs wait);
2. where there are several, peeks at the best ``limit`` due jobs over all of them, without locking, to learn how many each
   lane should give;
3. takes that many from each lane with SKIP LOCKED: no row is locked that is not claimed, and no claimer waits for another;
4. writes the leases and the `leased` events.

What was peeked at may be locked, by another claimer or by somebody's psql, and its lane may have nothing else. Then other
lanes may still have: the claim looks once more, into all of them.

A claimer may remember where each lane's last claim ended (`frontier.py`), and begin there: what was claimed since somebody
took a snapshot lies dead in front of it, and cannot be removed while the snapshot is held. Lanes that it remembers are not
hopped into, and the others from their far end.

How the rows to update are named is told in `arrays.py`. They come from a materialized CTE: under
``IN (SELECT … LIMIT n FOR UPDATE SKIP LOCKED)`` PostgreSQL may run the subquery again and lock more than n.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from tenure.jobs.model import DEFAULT_TENANT, Claimed
from tenure.jobs.text import MAX_PRIORITY, MIN_PRIORITY
from tenure.jobs.tokens import TOKEN_DIGEST_BYTES, new_tokens, token_digest
from tenure.store.arrays import element_bytes, position_of
from tenure.store.database import Connection, Record
from tenure.store.frontier import Frontier, Lane
from tenure.store.rows import LEASED_COLUMNS, leased_job_from

_DUE = """
    j.part = $1 AND j.tenant = $2 AND j.queue = l.queue AND j.kind = l.kind AND j.priority = l.priority
    AND j.state = 'queued' AND j.available_at <= now() AND (j.available_at, j.id) >= (l.from_at, l.from_id)
    AND (j.deadline_at IS NULL OR j.deadline_at > now())
    AND (l.schema_versions IS NULL OR j.schema_version = ANY (l.schema_versions))
"""

_POSITION = position_of("j.id", "(SELECT ids FROM best)")

_BY_PEEK = """
    SELECT l.*, CASE WHEN single.lane THEN $7::bigint ELSE p.wanted END AS wanted
    FROM lanes AS l
    CROSS JOIN (SELECT count(*) = 1 AS lane FROM lanes) AS single
    LEFT JOIN (SELECT queue, kind, priority, count(*) AS wanted FROM peeked GROUP BY queue, kind, priority) AS p
        USING (queue, kind, priority)
    WHERE single.lane OR p.wanted IS NOT NULL
"""
_ALL_FROM_EACH = "SELECT l.*, $7::bigint AS wanted FROM lanes AS l"


def _statement(shares: str) -> str:
    return f"""
WITH RECURSIVE kinds AS (
    SELECT k.kind, string_to_array(nullif(k.versions, ''), ',')::integer[] AS schema_versions, k.lease_seconds
    FROM unnest($4::text[], $5::text[], $6::double precision[]) AS k (kind, versions, lease_seconds)
), frontier AS (
    SELECT * FROM unnest($12::text[], $13::text[], $14::smallint[], $15::timestamptz[], $16::uuid[])
        AS f (queue, kind, priority, from_at, from_id)
), open_queues AS (
    SELECT q.name FROM unnest($3::text[]) AS q (name)
    WHERE NOT EXISTS (SELECT FROM tenure.queues AS p
        WHERE p.tenant = $2 AND p.name = q.name AND p.paused_at IS NOT NULL)
    AND NOT EXISTS (SELECT FROM tenure.workers AS w
        WHERE w.tenant = $2 AND w.id = $8 AND w.directive IS NOT NULL)
), seen_kinds (queue, kind) AS (
    SELECT q.name, first.kind FROM open_queues AS q, LATERAL (
        SELECT j.kind FROM tenure.jobs AS j
        WHERE j.part = $1 AND j.tenant = $2 AND j.queue = q.name AND j.state = 'queued'
        ORDER BY j.kind DESC LIMIT 1
    ) AS first
    WHERE $4::text[] IS NULL
    UNION ALL
    SELECT s.queue, next.kind FROM seen_kinds AS s, LATERAL (
        SELECT j.kind FROM tenure.jobs AS j
        WHERE j.part = $1 AND j.tenant = $2 AND j.queue = s.queue AND j.state = 'queued' AND j.kind < s.kind
        ORDER BY j.kind DESC LIMIT 1
    ) AS next
), served AS (
    SELECT q.name AS queue, k.kind, k.schema_versions, k.lease_seconds FROM open_queues AS q CROSS JOIN kinds AS k
    UNION ALL
    SELECT queue, kind, NULL, NULL FROM seen_kinds
), edges (queue, kind, priority) AS (
    SELECT queue, kind, {MAX_PRIORITY + 1}::smallint FROM served
    UNION ALL
    SELECT queue, kind, priority FROM frontier
), gaps AS (
    SELECT queue, kind, priority AS below,
        lead(priority, 1, {MIN_PRIORITY - 1}::smallint) OVER (PARTITION BY queue, kind ORDER BY priority DESC) AS above
    FROM edges
), hops (queue, kind, priority, above) AS (
    SELECT queue, kind, below, above FROM gaps
    UNION ALL
    SELECT h.queue, h.kind, next.priority, h.above FROM hops AS h, LATERAL (
        SELECT j.priority FROM tenure.jobs AS j
        WHERE j.part = $1 AND j.tenant = $2 AND j.queue = h.queue AND j.kind = h.kind AND j.state = 'queued'
            AND j.priority < h.priority AND j.priority > h.above
        ORDER BY j.priority DESC LIMIT 1
    ) AS next
), lanes AS MATERIALIZED (
    SELECT s.queue, s.kind, h.priority, s.schema_versions, s.lease_seconds,
        coalesce(f.from_at, '-infinity') AS from_at, coalesce(f.from_id, '{UUID(int=0)}') AS from_id
    FROM served AS s JOIN hops AS h USING (queue, kind) LEFT JOIN frontier AS f USING (queue, kind, priority)
    WHERE h.priority <= {MAX_PRIORITY}
), peeked AS (
    SELECT l.queue, l.kind, l.priority, due.available_at, due.id FROM lanes AS l, LATERAL (
        SELECT j.available_at, j.id FROM tenure.jobs AS j WHERE {_DUE} ORDER BY j.available_at, j.id LIMIT $7
    ) AS due
    WHERE (SELECT count(*) FROM lanes) > 1
    ORDER BY l.priority DESC, due.available_at, due.id LIMIT $7
), shares AS MATERIALIZED (
    {shares}
), taken AS MATERIALIZED (
    SELECT due.id, due.available_at, l.priority,
        coalesce($9::double precision, due.lease_seconds, l.lease_seconds, $10) AS seconds
    FROM shares AS l, LATERAL (
        SELECT j.id, j.available_at, j.lease_seconds FROM tenure.jobs AS j WHERE {_DUE}
        ORDER BY j.available_at, j.id LIMIT l.wanted FOR NO KEY UPDATE SKIP LOCKED
    ) AS due
), best AS MATERIALIZED (
    SELECT array_agg(id ORDER BY id) AS ids, array_agg(seconds ORDER BY id) AS seconds
    FROM (SELECT * FROM taken ORDER BY priority DESC, available_at, id LIMIT $7) AS ordered
), leased AS (
    UPDATE tenure.jobs AS j SET
        state = 'running',
        version = j.version + 1,
        attempts = j.attempts + 1,
        lease_token_digest = {element_bytes("$11", _POSITION, TOKEN_DIGEST_BYTES)},
        lease_worker_id = $8,
        lease_length_seconds = (SELECT seconds FROM best)[{_POSITION}],
        lease_acquired_at = now(),
        lease_expires_at = now() + interval '1 second' * (SELECT seconds FROM best)[{_POSITION}],
        lease_heartbeat_at = now(),
        lease_heartbeats = 0,
        progress_fraction = NULL,
        progress_message = NULL,
        progress_at = NULL,
        started_at = now(),
        updated_at = now()
    WHERE j.part = $1 AND j.id = ANY ((SELECT ids FROM best)::uuid[])
    RETURNING {", ".join(f"j.{name}" for name in LEASED_COLUMNS)}, j.part, j.lease_token_digest, {_POSITION} AS position
), recorded AS (
    INSERT INTO tenure.events (part, job_id, version, at, type, state, attempt, worker_id, token_digest)
    SELECT part, id, version, now(), 'leased', 'running', attempts, $8, lease_token_digest FROM leased
)
SELECT peek.jobs AS peeked, j.position, {", ".join(f"j.{name}" for name in LEASED_COLUMNS)}
FROM (SELECT count(*) AS jobs FROM peeked) AS peek LEFT JOIN leased AS j ON true
"""


_CLAIM = _statement(_BY_PEEK)
_CLAIM_CONTENDED = _statement(_ALL_FROM_EACH)
"""Locks up to ``limit`` jobs of each lane, to find what the others have left; what it does not take is free at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindSelector:
    """A kind that the claimer serves: which schema versions (none: all), and its lease where the job names none."""

    kind: str
    schema_versions: tuple[int, ...] = ()
    lease_seconds: float | None = None


async def claim(
    connection: Connection,
    *,
    worker_id: str,
    queues: Sequence[str],
    limit: int,
    default_lease_seconds: float,
    kinds: Sequence[KindSelector] | None = None,
    lease_seconds: float | None = None,
    tenant: str = DEFAULT_TENANT,
    part: int = 0,
    frontier: Frontier | None = None,
) -> list[Claimed]:
    """Leases up to ``limit`` due jobs of these queues to the worker: highest priority first, then longest due.

    ``kinds`` None means any kind. The lease's length is ``lease_seconds``, else the job's, else the kind's, else the
    default. Jobs past their deadline and paused queues are passed over; a worker that was told to be quiet gets nothing.
    ``frontier`` (of this claimer, and of this tenant and part alone) lets it begin where its last claims ended.
    """
    if limit < 1 or not queues or (kinds is not None and not kinds):
        return []
    names = list(dict.fromkeys(queues))
    selectors = None if kinds is None else _merged(kinds)

    async def take(statement: str, most: int, lanes: Sequence[Lane]) -> tuple[list[Claimed], int]:
        tokens = new_tokens(most)
        rows = await connection.fetch(
            statement,
            part,
            tenant,
            names,
            None if selectors is None else [kind.kind for kind in selectors],
            [",".join(map(str, kind.schema_versions)) for kind in selectors or ()],
            [kind.lease_seconds for kind in selectors or ()],
            most,
            worker_id,
            lease_seconds,
            default_lease_seconds,
            b"".join(map(token_digest, tokens)),
            [lane.queue for lane in lanes],
            [lane.kind for lane in lanes],
            [lane.priority for lane in lanes],
            [lane.from_at for lane in lanes],
            [lane.from_id for lane in lanes],
        )
        peeked: int = rows[0]["peeked"]
        if rows[0]["position"] is None:
            return [], peeked
        if len(rows) > most:
            raise AssertionError(f"a claim for {most} jobs took {len(rows)}")
        claimed = [_claimed(row, tenant, worker_id, tokens) for row in rows]
        claimed.sort(key=lambda item: (-item.job.priority, item.job.available_at, item.job.id))
        return claimed, peeked

    async def look(lanes: Sequence[Lane], most: int) -> list[Claimed]:
        claimed, peeked = await take(_CLAIM, most, lanes)
        if len(claimed) < peeked:
            rest, _ = await take(_CLAIM_CONTENDED, most - len(claimed), lanes)
            claimed += rest
        return claimed

    return await look((), limit) if frontier is None else await frontier.claim(look, limit)


def _claimed(row: Record, tenant: str, worker_id: str, tokens: Sequence[str]) -> Claimed:
    _, position, *values = row.values()
    return Claimed(job=leased_job_from(values, tenant=tenant, worker_id=worker_id), token=tokens[position - 1])


def _merged(kinds: Sequence[KindSelector]) -> list[KindSelector]:
    """One selector a kind: of several, all schema versions, and the first lease."""
    merged: dict[str, KindSelector] = {}
    for selector in kinds:
        first = merged.setdefault(selector.kind, selector)
        if first is not selector:
            every = not first.schema_versions or not selector.schema_versions
            versions = () if every else (*first.schema_versions, *selector.schema_versions)
            merged[selector.kind] = replace(first, schema_versions=versions)
    return list(merged.values())
