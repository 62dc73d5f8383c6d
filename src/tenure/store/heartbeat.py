"""Keeping leases: one statement for all that a process holds. Cancel requests come back with the answer."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import asyncpg

from tenure.errors import DatabaseUnavailable, LeaseLost, NotFound
from tenure.jobs.ids import JobId
from tenure.jobs.redact import redact
from tenure.jobs.tokens import TOKEN_DIGEST_BYTES, token_digest
from tenure.store.apply import by_part
from tenure.store.arrays import element_bytes, position_of
from tenure.store.database import Connection, unavailable_because
from tenure.store.refusals import endings
from tenure.store.workers import Directive

logger = logging.getLogger(__name__)

_POSITION = position_of("j.id", "$2")
_HELD = f"""
    j.part = $1 AND j.id = ANY ($2::uuid[]) AND j.state = 'running' AND ($7::text IS NULL OR j.tenant = $7)
    AND j.lease_token_digest = {element_bytes("$3", _POSITION, TOKEN_DIGEST_BYTES)}
"""


# Touches no indexed column, so it stays a HOT update. The cap is on the attempt's age, not on the heartbeats: a handler
# that hangs while its process lives cannot hold a job past its timeout and one more lease.
def _renew_where(condition: str) -> str:
    return f"""
UPDATE tenure.jobs AS j SET
    lease_expires_at = greatest(j.lease_expires_at, least(
        now() + interval '1 second' * j.lease_length_seconds,
        j.lease_acquired_at + interval '1 second' * (j.timeout_seconds + j.lease_length_seconds))),
    lease_heartbeat_at = now(),
    lease_heartbeats = j.lease_heartbeats + 1,
    cancel_delivered_at = CASE WHEN j.cancel_outcome IS NOT NULL THEN coalesce(j.cancel_delivered_at, now()) END,
    progress_fraction =
        CASE WHEN ($4::boolean[])[{_POSITION}] THEN ($5::double precision[])[{_POSITION}] ELSE j.progress_fraction END,
    progress_message = CASE WHEN ($4::boolean[])[{_POSITION}] THEN ($6::text[])[{_POSITION}] ELSE j.progress_message END,
    progress_at = CASE WHEN ($4::boolean[])[{_POSITION}] THEN now() ELSE j.progress_at END
WHERE {condition}
RETURNING j.id, {_POSITION} AS position, j.lease_expires_at, j.deadline_at, j.cancel_outcome IS NOT NULL AS cancel_requested,
    (SELECT w.directive FROM tenure.workers AS w WHERE w.tenant = j.tenant AND w.id = j.lease_worker_id) AS directive
"""


_HEARTBEAT = _renew_where(_HELD)
_HEARTBEAT_UNLOCKED = f"""
WITH unlocked AS MATERIALIZED (
    SELECT j.id FROM tenure.jobs AS j WHERE {_HELD} FOR NO KEY UPDATE SKIP LOCKED
)
{_renew_where("j.part = $1 AND j.id = ANY (ARRAY(SELECT id FROM unlocked))")}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A holder's sign of life; with ``has_progress`` its fraction and message replace what was known."""

    job_id: UUID
    token: str
    has_progress: bool = False
    fraction: float | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    """The lease goes on until ``lease_expires_at``. ``directive``: what an operator told its worker."""

    job_id: JobId
    lease_expires_at: datetime
    cancel_requested: bool
    deadline_at: datetime | None
    directive: Directive | None = None


BeatAnswer = HeartbeatAnswer | LeaseLost | NotFound | DatabaseUnavailable
"""DatabaseUnavailable: this one lease could not be renewed now, for somebody locks its row; the others were."""

_Key = tuple[UUID, bytes]


async def heartbeat(
    connection: Connection, beats: Sequence[Heartbeat], *, tenant: str | None = None
) -> list[BeatAnswer]:
    """Renews the leases; one answer a beat, in the order given. A lost lease, or a locked one, spoils nothing else.

    Run it outside a transaction: what is not locked is renewed first, and has committed, before it waits for the rest.
    A holder whose lease ran out but was not taken back is still the holder. Several beats for one job count once, the
    last one's progress.
    """
    latest = {(beat.job_id, token_digest(beat.token)): beat for beat in beats}
    answers: dict[_Key, BeatAnswer] = {**await _renew(connection, _HEARTBEAT_UNLOCKED, latest, tenant)}
    rest = {key: beat for key, beat in latest.items() if key not in answers}
    answers |= await _refused(connection, rest, tenant)
    locked = {key: beat for key, beat in rest.items() if isinstance(answers[key], DatabaseUnavailable)}
    if locked:
        try:
            answers |= await _renew(connection, _HEARTBEAT, locked, tenant)
        except asyncpg.LockNotAvailableError as error:
            logger.info("%d lease(s) could not be renewed now: %s", len(locked), unavailable_because(error))
        else:
            still = {key: beat for key, beat in locked.items() if isinstance(answers[key], DatabaseUnavailable)}
            answers |= await _refused(connection, still, tenant)
    return [answers[beat.job_id, token_digest(beat.token)] for beat in beats]


async def _renew(
    connection: Connection, statement: str, beats: Mapping[_Key, Heartbeat], tenant: str | None
) -> dict[_Key, HeartbeatAnswer]:
    """A job under several tokens is asked about once for each, for a statement knows one token a job."""
    renewed: dict[_Key, HeartbeatAnswer] = {}
    rounds: list[dict[UUID, bytes]] = []
    for job_id, digest in beats:
        for asked in rounds:
            if asked.setdefault(job_id, digest) == digest:
                break
        else:
            rounds.append({job_id: digest})
    for asked in rounds:
        for part, ids in sorted(by_part(connection, asked).items()):
            ids.sort()
            keys = [(job_id, asked[job_id]) for job_id in ids]
            mine = [beats[key] for key in keys]
            rows = await connection.fetch(
                statement,
                part,
                ids,
                b"".join(digest for _, digest in keys),
                [beat.has_progress for beat in mine],
                [beat.fraction for beat in mine],
                [_storable(beat) for beat in mine],
                tenant,
            )
            for row in rows:
                renewed[keys[row["position"] - 1]] = HeartbeatAnswer(
                    job_id=JobId(row["id"]),
                    lease_expires_at=row["lease_expires_at"],
                    cancel_requested=row["cancel_requested"],
                    deadline_at=row["deadline_at"],
                    directive=Directive(row["directive"]) if row["directive"] else None,
                )
    return renewed


async def _refused(
    connection: Connection, beats: Mapping[_Key, Heartbeat], tenant: str | None
) -> dict[_Key, BeatAnswer]:
    """Why these leases were not renewed."""
    refused: dict[_Key, BeatAnswer] = {}
    if not beats:
        return refused
    asked = [(job_id, digest, None) for job_id, digest in beats]
    for key, ending in zip(beats, await endings(connection, asked, tenant=tenant), strict=True):
        if ending is None:
            refused[key] = NotFound(f"there is no job {key[0]}")
        elif ending.holds or ending.refusal is None:
            refused[key] = DatabaseUnavailable("somebody else holds a lock on this job")
        else:
            refused[key] = ending.refusal
    return refused


def _storable(beat: Heartbeat) -> str | None:
    """A progress message as everyone may read it: without secrets, and without the token that it came with."""
    return redact(beat.message.replace(beat.token, "[redacted]")) if beat.message else beat.message
