"""Retention: terminal jobs go in batches once they are old enough, by state; old events go with their partition."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from tenure.jobs.model import State
from tenure.store.database import Connection

_PRUNE = """
WITH doomed AS MATERIALIZED (
    SELECT j.id FROM tenure.jobs AS j
    WHERE j.part = $1 AND j.state = {state} AND j.finished_at IS NOT NULL AND j.finished_at < now() - $2::interval
        AND (j.idempotency_key IS NULL OR j.finished_at < now() - interval '24 hours')
    ORDER BY j.finished_at LIMIT $3 FOR UPDATE SKIP LOCKED
), pruned AS (
    DELETE FROM tenure.jobs AS j WHERE j.part = $1 AND j.id = ANY (ARRAY(SELECT id FROM doomed)) RETURNING j.id
), moved_events AS (
    DELETE FROM tenure.events_default AS e WHERE e.part = $1 AND e.job_id = ANY (ARRAY(SELECT id FROM doomed))
), artifacts AS (
    DELETE FROM tenure.artifacts AS a WHERE a.part = $1 AND a.job_id = ANY (ARRAY(SELECT id FROM doomed))
    RETURNING a.location
)
SELECT (SELECT count(*) FROM pruned) AS jobs, coalesce((SELECT array_agg(location) FROM artifacts), '{{}}') AS locations
"""
_STATEMENTS = {state: _PRUNE.format(state=repr(str(state))) for state in State}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """How many jobs of a state went, and where their artifacts lie, which nobody can ask for any more."""

    state: State
    jobs: int
    artifact_locations: tuple[str, ...]


async def prune(
    connection: Connection, retention: Mapping[State, timedelta], *, part: int = 0, limit: int = 1_000
) -> list[Pruned]:
    """Deletes up to ``limit`` jobs of each state that ended longer ago than its retention. One statement a state.

    A job with an idempotency key stays at least 24 hours after its end, so that a late repeat still meets it.
    """
    done: list[Pruned] = []
    for state, keep in retention.items():
        row = await connection.fetchrow(_STATEMENTS[state], part, keep, limit)
        if row is not None and row["jobs"]:
            done.append(Pruned(state=state, jobs=row["jobs"], artifact_locations=tuple(row["locations"])))
    return done
