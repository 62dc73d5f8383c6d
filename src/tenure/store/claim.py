"""Claiming: due jobs become running under fresh leases, many in one statement, each taken by exactly one claimer.

The claim index holds queued jobs in *lanes*: one lane is one (queue, kind, priority), and within it the due jobs are one
range, in order. So the statement

1. finds the lanes that exist, hopping through the index from one to the next (a kind nobody asked for costs one hop,
   however many of its jobs wait);
2. peeks at the best ``limit`` due jobs over all lanes, without locking, to learn how many each lane should give;
3. takes that many from each lane with SKIP LOCKED: no row is locked that is not claimed, and no claimer waits for another;
4. writes the leases and the `leased` events.

What was peeked at may be locked, by another claimer or by somebody's psql, and its lane may have nothing else. Then other
lanes may still have: the claim looks once more, into all of them.

The rows to update come as one array, and without repeating their state (they are locked, so it holds): so every plan
looks them up by key, also one that was made while the table was small. They come from a materialized CTE: under
``IN (SELECT … LIMIT n FOR UPDATE SKIP LOCKED)`` PostgreSQL may run the subquery again and lock more than n.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tenure.jobs.model import DEFAULT_TENANT, Claimed
from tenure.jobs.tokens import new_token, token_digest
from tenure.store.database import Connection
from tenure.store.rows import columns, job_from

_DUE = "j.available_at <= now() AND (j.deadline_at IS NULL OR j.deadline_at > now())"
_SUITABLE = """
    ($4::text[] IS NULL OR EXISTS (
        SELECT FROM kinds AS k
        WHERE k.kind = l.kind AND (k.schema_versions = '' OR
            j.schema_version = ANY (string_to_array(k.schema_versions, ',')::integer[]))))
"""

_BY_PEEK = "SELECT queue, kind, priority, count(*) AS wanted FROM peeked GROUP BY queue, kind, priority"
_ALL_FROM_EACH = "SELECT queue, kind, priority, $7::bigint AS wanted FROM lanes"


def _statement(shares: str) -> str:
    return f"""
WITH RECURSIVE kinds AS (
    SELECT * FROM unnest($4::text[], $5::text[], $6::double precision[]) AS k (kind, schema_versions, lease_seconds)
), open_queues AS (
    SELECT q.name FROM unnest($3::text[]) AS q (name)
    WHERE NOT EXISTS (SELECT FROM tenure.queues AS p
        WHERE p.tenant = $2 AND p.name = q.name AND p.paused_at IS NOT NULL)
    AND NOT EXISTS (SELECT FROM tenure.workers AS w
        WHERE w.tenant = $2 AND w.id = $8 AND w.directive IS NOT NULL)
), hops (queue, kind, priority) AS (
    SELECT first.* FROM open_queues AS q, LATERAL (
        SELECT j.queue, j.kind, j.priority FROM tenure.jobs AS j
        WHERE j.part = $1 AND j.tenant = $2 AND j.queue = q.name AND j.state = 'queued'
        ORDER BY j.kind, j.priority LIMIT 1
    ) AS first
    UNION ALL
    SELECT next.* FROM hops AS h, LATERAL (
        SELECT j.queue, j.kind, j.priority FROM tenure.jobs AS j
        WHERE j.part = $1 AND j.tenant = $2 AND j.queue = h.queue AND j.state = 'queued'
            AND (j.kind, j.priority) > (h.kind, h.priority)
        ORDER BY j.kind, j.priority LIMIT 1
    ) AS next
), lanes AS MATERIALIZED (
    SELECT h.queue, h.kind, h.priority FROM hops AS h
    WHERE $4::text[] IS NULL OR h.kind = ANY ($4::text[])
), peeked AS (
    SELECT l.queue, l.kind, l.priority, due.available_at, due.id FROM lanes AS l, LATERAL (
        SELECT j.available_at, j.id FROM tenure.jobs AS j
        WHERE j.part = $1 AND j.tenant = $2 AND j.queue = l.queue AND j.kind = l.kind AND j.priority = l.priority
            AND j.state = 'queued' AND {_DUE} AND {_SUITABLE}
        ORDER BY j.available_at, j.id LIMIT $7
    ) AS due
    ORDER BY l.priority DESC, due.available_at, due.id LIMIT $7
), shares AS MATERIALIZED (
    {shares}
), taken AS MATERIALIZED (
    SELECT due.id, due.priority, due.available_at FROM shares AS l, LATERAL (
        SELECT j.id, j.priority, j.available_at FROM tenure.jobs AS j
        WHERE j.part = $1 AND j.tenant = $2 AND j.queue = l.queue AND j.kind = l.kind AND j.priority = l.priority
            AND j.state = 'queued' AND {_DUE} AND {_SUITABLE}
        ORDER BY j.available_at, j.id LIMIT l.wanted FOR NO KEY UPDATE SKIP LOCKED
    ) AS due
), ordered AS MATERIALIZED (
    SELECT array_agg(id ORDER BY priority DESC, available_at, id) AS ids
    FROM (SELECT * FROM taken ORDER BY priority DESC, available_at, id LIMIT $7) AS best
), leased AS (
    UPDATE tenure.jobs AS j SET
        state = 'running',
        version = j.version + 1,
        attempts = j.attempts + 1,
        lease_token_digest = ($11::bytea[])[t.position],
        lease_worker_id = $8,
        lease_length_seconds = coalesce(
            $9::double precision, j.lease_seconds, (SELECT k.lease_seconds FROM kinds AS k WHERE k.kind = j.kind), $10),
        lease_acquired_at = now(),
        lease_expires_at = now() + interval '1 second' * coalesce(
            $9::double precision, j.lease_seconds, (SELECT k.lease_seconds FROM kinds AS k WHERE k.kind = j.kind), $10),
        lease_heartbeat_at = now(),
        lease_heartbeats = 0,
        progress_fraction = NULL,
        progress_message = NULL,
        progress_at = NULL,
        started_at = now(),
        updated_at = now()
    FROM unnest((SELECT ids FROM ordered)) WITH ORDINALITY AS t (id, position)
    WHERE j.part = $1 AND j.id = t.id
    RETURNING j.*, t.position
), recorded AS (
    INSERT INTO tenure.events (part, job_id, version, at, type, state, attempt, worker_id, token_digest)
    SELECT j.part, j.id, j.version, now(), 'leased', 'running', j.attempts, $8, j.lease_token_digest FROM leased AS j
)
SELECT peek.jobs AS peeked, {columns("j")}, j.position
FROM (SELECT count(*) AS jobs FROM peeked) AS peek LEFT JOIN leased AS j ON true
ORDER BY j.position
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
) -> list[Claimed]:
    """Leases up to ``limit`` due jobs of these queues to the worker: highest priority first, then longest due.

    ``kinds`` None means any kind. The lease's length is ``lease_seconds``, else the job's, else the kind's, else the
    default. Jobs past their deadline and paused queues are passed over; a worker that was told to be quiet gets nothing.
    """
    if limit < 1 or not queues or (kinds is not None and not kinds):
        return []
    selectors = kinds or ()

    def arguments(most: int) -> tuple[Any, ...]:
        return (
            most,
            part,
            tenant,
            list(dict.fromkeys(queues)),
            None if kinds is None else [kind.kind for kind in selectors],
            [",".join(map(str, kind.schema_versions)) for kind in selectors],
            [kind.lease_seconds for kind in selectors],
            most,
            worker_id,
            lease_seconds,
            default_lease_seconds,
        )

    claimed, peeked = await _take(connection, _CLAIM, *arguments(limit))
    if len(claimed) < peeked:
        rest, _ = await _take(connection, _CLAIM_CONTENDED, *arguments(limit - len(claimed)))
        claimed += rest
    return claimed


async def _take(connection: Connection, statement: str, limit: int, *arguments: Any) -> tuple[list[Claimed], int]:
    """The jobs taken, and how many had been peeked at."""
    tokens = [new_token() for _ in range(limit)]
    rows = await connection.fetch(statement, *arguments, [token_digest(token) for token in tokens])
    peeked: int = rows[0]["peeked"]
    taken = [row for row in rows if row["id"] is not None]
    if len(taken) > limit:
        raise AssertionError(f"a claim for {limit} jobs took {len(taken)}")
    return [Claimed(job=job_from(row), token=tokens[row["position"] - 1]) for row in taken], peeked
