"""Why a lease token is not the current one, and whether the same outcome was reported with it before.

Each attempt leaves its token's digest in two events, the one that began it and the one that ended it. They say all there
is to say to a holder who comes too late, as long as the job exists.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from tenure.errors import LeaseLost
from tenure.jobs.ids import JobId, part_of
from tenure.jobs.lifecycle import EventType
from tenure.jobs.model import LostReason, State
from tenure.store.database import Connection

_ENDINGS = """
SELECT q.position, j.id AS job_id, j.state, j.attempts, j.version, j.available_at,
    begun.version AS begun_version, coalesce(j.lease_token_digest = q.digest, false) AS holds,
    ended.type AS ended_type, ended.state AS ended_state, ended.version AS ended_version, ended.outcome_digest
FROM unnest($1::smallint[], $2::uuid[], $3::bytea[]) WITH ORDINALITY AS q (part, id, digest, position)
LEFT JOIN tenure.jobs AS j ON j.part = q.part AND j.id = q.id AND ($4::text IS NULL OR j.tenant = $4)
LEFT JOIN LATERAL (
    SELECT e.version FROM tenure.events AS e
    WHERE e.part = j.part AND e.job_id = j.id AND e.at >= j.created_at
        AND e.token_digest = q.digest AND e.type = 'leased'
    ORDER BY e.version DESC LIMIT 1
) AS begun ON true
LEFT JOIN LATERAL (
    SELECT e.type, e.state, e.version, e.outcome_digest FROM tenure.events AS e
    WHERE e.part = j.part AND e.job_id = j.id AND e.at >= j.created_at
        AND e.token_digest = q.digest AND e.type <> 'leased'
    ORDER BY e.version DESC LIMIT 1
) AS ended ON true
ORDER BY q.position
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the attempt that this token belonged to ended. ``repeat`` when the very same outcome was reported; ``holds``
    when it has not ended: the row was only passed over because somebody locks it."""

    job_id: JobId
    repeat: bool
    state: State
    version: int
    available_at: datetime | None
    holds: bool
    refusal: LeaseLost | None


async def endings(
    connection: Connection,
    asked: Sequence[tuple[UUID, bytes, bytes | None]],
    *,
    tenant: str | None = None,
) -> list[Ending | None]:
    """For each (job id, token digest, outcome digest or None): how that attempt ended; None for an unknown job."""
    rows = await connection.fetch(
        _ENDINGS,
        [part_of(job_id, connection.parts) for job_id, _, _ in asked],
        [job_id for job_id, _, _ in asked],
        [digest for _, digest, _ in asked],
        tenant,
    )
    answers: list[Ending | None] = []
    for row, (job_id, _, outcome) in zip(rows, asked, strict=True):
        if row["job_id"] is None:
            answers.append(None)
            continue
        state = State(row["state"])
        repeat = outcome is not None and row["outcome_digest"] == outcome
        reason = lost_reason(
            state=state,
            version=row["version"],
            begun_version=row["begun_version"],
            ended_type=row["ended_type"],
            ended_version=row["ended_version"],
            settled_by_holder=row["outcome_digest"] is not None,
        )
        answers.append(
            Ending(
                job_id=JobId(job_id),
                repeat=repeat,
                state=State(row["ended_state"]) if row["ended_state"] else state,
                version=row["ended_version"] or row["version"],
                available_at=row["available_at"],
                holds=row["holds"],
                refusal=None
                if repeat or row["holds"]
                else LeaseLost(_SENTENCES[reason], reason=str(reason), current_attempt=row["attempts"]),
            )
        )
    return answers


def lost_reason(
    *,
    state: State,
    version: int,
    begun_version: int | None,
    ended_type: str | None,
    ended_version: int | None,
    settled_by_holder: bool,
) -> LostReason:
    """Says why this token no longer counts: what its attempt came to, then what became of the job since."""
    if begun_version is None:
        return LostReason.UNKNOWN
    if settled_by_holder:
        return LostReason.SETTLED
    if ended_type != EventType.LEASE_EXPIRED or ended_version is None:
        return LostReason.UNKNOWN
    if state is State.CANCELED:
        return LostReason.CANCELED
    if state is State.RUNNING:
        return LostReason.SUPERSEDED
    if version == ended_version or state is State.QUEUED:
        return LostReason.EXPIRED
    return LostReason.FINISHED


_SENTENCES = {
    LostReason.EXPIRED: "the lease ran out and was taken back; the job is no longer yours: stop, and claim again",
    LostReason.SUPERSEDED: "the lease ran out and another attempt holds the job; what you report is discarded: stop",
    LostReason.SETTLED: "this attempt was already reported with another outcome; the first one stands",
    LostReason.FINISHED: "the lease ran out and a later attempt finished the job; what you report is discarded",
    LostReason.CANCELED: "the lease ran out after cancellation was requested; the job is canceled: stop",
    LostReason.UNKNOWN: "this token was never a lease of this job",
}
