"""What became of an attempt: complete, fail, release, snooze; for one job or for all that just finished.

Success is the hot path, one statement. Everything else locks its rows, asks `jobs/decisions.py`, and applies the
decisions together. What then has no answer holds no current lease: `refusals.py` says why, or recognises the repeat of an
outcome whose answer got lost.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from tenure.errors import DatabaseUnavailable, InvalidInput, LeaseLost, NotFound, TenureError
from tenure.jobs.decisions import Decision, ReportedError, Standing, decide_failure, decide_release
from tenure.jobs.ids import JobId
from tenure.jobs.model import State
from tenure.jobs.retry import RetryPolicy
from tenure.jobs.tokens import TOKEN_DIGEST_BYTES, token_digest
from tenure.store.apply import Decided, apply, by_part, lock
from tenure.store.arrays import element_bytes, position_of
from tenure.store.database import Connection
from tenure.store.refusals import endings
from tenure.wire.json import canonical, parse

OUTCOME_DIGEST_BYTES = 16

_POSITION = position_of("j.id", "$2")
_DIGEST = element_bytes("$3", _POSITION, TOKEN_DIGEST_BYTES)

_COMPLETE = f"""
WITH changed AS (
    UPDATE tenure.jobs AS j SET
        state = 'succeeded',
        version = j.version + 1,
        result = ($4::json[])[{_POSITION}],
        cancel_outcome = CASE WHEN j.cancel_outcome IS NOT NULL THEN 'finished_first' END,
        lease_token_digest = NULL,
        lease_length_seconds = NULL,
        lease_acquired_at = NULL,
        lease_expires_at = NULL,
        lease_heartbeat_at = NULL,
        lease_heartbeats = NULL,
        finished_at = greatest(now(), j.updated_at),
        updated_at = greatest(now(), j.updated_at)
    WHERE j.part = $1 AND j.id = ANY ($2::uuid[]) AND j.state = 'running' AND j.lease_token_digest = {_DIGEST}
        AND ($6::text IS NULL OR j.tenant = $6)
    RETURNING j.part, j.id, j.version, j.attempts, j.available_at, j.updated_at, j.cancel_outcome, j.lease_worker_id,
        {_POSITION} AS position
), recorded AS (
    INSERT INTO tenure.events
        (part, job_id, version, at, type, state, attempt, worker_id, detail, token_digest, outcome_digest)
    SELECT part, id, version, updated_at, 'succeeded', 'succeeded', attempts, lease_worker_id,
        CASE WHEN cancel_outcome IS NOT NULL THEN json_build_object('outcome', cancel_outcome) END,
        {element_bytes("$3", "position", TOKEN_DIGEST_BYTES)}, {element_bytes("$5", "position", OUTCOME_DIGEST_BYTES)}
    FROM changed
)
SELECT position, version, available_at FROM changed
"""


class OutcomeKind(StrEnum):
    """How a holder can give its lease back."""

    COMPLETE = "complete"
    FAIL = "fail"
    RELEASE = "release"
    SNOOZE = "snooze"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One report: ``result`` (JSON text) with complete, ``error`` with fail, ``delay_seconds`` with snooze."""

    job_id: UUID
    token: str
    kind: OutcomeKind
    result: str | None = None
    error: ReportedError | None = None
    delay_seconds: float | None = None

    def digest(self) -> bytes:
        """The same 16 bytes for the same outcome, whenever it is reported."""
        words: list[str] = [str(self.kind), _canonical(self.result), str(self.delay_seconds)]
        if self.error is not None:
            words += [
                str(self.error.kind),
                self.error.type or "",
                self.error.message,
                str(self.error.retry_after_seconds),
            ]
        return hashlib.sha256("\x00".join(words).encode("utf-8", "replace")).digest()[:OUTCOME_DIGEST_BYTES]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The state that the job went to. ``replayed`` when this outcome had been reported before and nothing changed."""

    job_id: JobId
    state: State
    version: int
    available_at: datetime | None
    replayed: bool = False


def _canonical(result: str | None) -> str:
    """The same text for results that are JSON-equal but for the order of their members."""
    if result is None or "{" not in result:
        return result or ""
    return canonical(parse(result)).decode()


PolicyOf = Callable[[str], RetryPolicy]
"""The retry policy of a kind; the service's default for a kind it does not know."""

Answer = Settled | LeaseLost | NotFound | InvalidInput


async def settle(
    connection: Connection,
    outcomes: Sequence[Outcome],
    *,
    policy_of: PolicyOf,
    random: Callable[[], float],
    tenant: str | None = None,
) -> list[Answer]:
    """Reports outcomes; one answer an outcome, in the order given. A lost lease or a bad item spoils nothing else.

    Needs a transaction unless all outcomes are `complete`. ``random`` draws from [0, 1) for the jitter.
    """
    answers: dict[int, Answer] = {}
    completes = {i: outcome for i, outcome in enumerate(outcomes) if outcome.kind is OutcomeKind.COMPLETE}
    others = {i: outcome for i, outcome in enumerate(outcomes) if outcome.kind is not OutcomeKind.COMPLETE}
    if completes:
        await _complete(connection, completes, answers, tenant)
    if others:
        await _decide_and_apply(connection, others, answers, policy_of, random, tenant)
    lost = [i for i in range(len(outcomes)) if i not in answers]
    if lost:
        asked = [(outcomes[i].job_id, token_digest(outcomes[i].token), outcomes[i].digest()) for i in lost]
        for i, ending in zip(lost, await endings(connection, asked, tenant=tenant), strict=True):
            if ending is None:
                answers[i] = NotFound(f"there is no job {outcomes[i].job_id}")
            elif ending.holds:
                raise DatabaseUnavailable("this job is being changed by somebody else right now")
            elif ending.refusal is not None:
                refusal = ending.refusal
                answers[i] = LeaseLost(
                    refusal.detail,
                    reason=refusal.reason,
                    current_attempt=refusal.current_attempt,
                    result_discarded=outcomes[i].kind is OutcomeKind.COMPLETE,
                )
            else:
                answers[i] = Settled(
                    job_id=ending.job_id,
                    state=ending.state,
                    version=ending.version,
                    available_at=ending.available_at,
                    replayed=True,
                )
    return [answers[i] for i in range(len(outcomes))]


async def settle_one(
    connection: Connection,
    outcome: Outcome,
    *,
    policy_of: PolicyOf,
    random: Callable[[], float],
    tenant: str | None = None,
) -> Settled:
    """Reports one outcome. Raises LeaseLost, NotFound or InvalidInput (the lease then stays)."""
    (answer,) = await settle(connection, [outcome], policy_of=policy_of, random=random, tenant=tenant)
    if isinstance(answer, TenureError):
        raise answer
    return answer


async def _complete(
    connection: Connection, completes: dict[int, Outcome], answers: dict[int, Answer], tenant: str | None
) -> None:
    # The same outcome twice in one call: the first takes effect, the second is recognised as its repeat afterwards. A job
    # under two tokens is asked about twice, for a statement knows one token a job.
    rounds: list[dict[UUID, tuple[bytes, int]]] = []
    for i, outcome in completes.items():
        digest = token_digest(outcome.token)
        for asked in rounds:
            if asked.setdefault(outcome.job_id, (digest, i))[0] == digest:
                break
        else:
            rounds.append({outcome.job_id: (digest, i)})
    for asked in rounds:
        for part, ids in sorted(by_part(connection, asked).items()):
            ids.sort()
            mine = [asked[job_id] for job_id in ids]
            rows = await connection.fetch(
                _COMPLETE,
                part,
                ids,
                b"".join(digest for digest, _ in mine),
                [completes[i].result for _, i in mine],
                b"".join(completes[i].digest() for _, i in mine),
                tenant,
            )
            for row in rows:
                position, version, available_at = row.values()
                answers[mine[position - 1][1]] = Settled(
                    job_id=JobId(ids[position - 1]),
                    state=State.SUCCEEDED,
                    version=version,
                    available_at=available_at,
                )


async def _decide_and_apply(
    connection: Connection,
    others: dict[int, Outcome],
    answers: dict[int, Answer],
    policy_of: PolicyOf,
    random: Callable[[], float],
    tenant: str | None,
) -> None:
    standings, now = await lock(connection, {outcome.job_id for outcome in others.values()}, tenant=tenant)
    decided: dict[JobId, tuple[int, Decided]] = {}
    for i, outcome in others.items():
        job = standings.get(JobId(outcome.job_id))
        if job is None or now is None or job.id in decided or not _holds(job, outcome):
            continue
        try:
            decision = _decide(job, outcome, policy_of(job.kind), now, random())
        except InvalidInput as refusal:
            answers[i] = refusal
            continue
        decided[job.id] = (i, Decided(job=job, decision=decision, outcome_digest=outcome.digest()))
    applied = await apply(connection, [item for _, item in decided.values()])
    for job_id, (i, _) in decided.items():
        row = applied[job_id]
        answers[i] = Settled(job_id=job_id, state=row.state, version=row.version, available_at=row.available_at)


def _holds(job: Standing, outcome: Outcome) -> bool:
    return job.state is State.RUNNING and job.token_digest == token_digest(outcome.token)


def _decide(job: Standing, outcome: Outcome, policy: RetryPolicy, now: datetime, random: float) -> Decision:
    match outcome.kind:
        case OutcomeKind.FAIL:
            assert outcome.error is not None
            # Whoever reads the error must not find the key to the job in it.
            message = outcome.error.message.replace(outcome.token, "[redacted]")
            error = replace(outcome.error, message=message)
            return decide_failure(job, error, policy=policy, now=now, random=random)
        case OutcomeKind.SNOOZE:
            return decide_release(job, now=now, delay_seconds=outcome.delay_seconds or 0.0)
        case _:
            return decide_release(job, now=now)
