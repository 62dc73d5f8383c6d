"""The state machine, once: every transition as data.

`store/` builds its guards from this table, the docs page is printed from it, the matrix test walks it, and
`jobs/decisions.py` says which of an event's targets a given job takes.
"""

from dataclasses import dataclass
from enum import StrEnum

from tenure.jobs.model import TERMINAL_STATES, State

__all__ = ["TERMINAL_STATES", "TRANSITIONS", "EventType", "State", "Transition", "sources_of"]


class EventType(StrEnum):
    """The names of what can happen to a job; each is an event row, with one exception: a heartbeat leaves none."""

    ENQUEUED = "enqueued"
    LEASED = "leased"
    SUCCEEDED = "succeeded"
    RETRY_SCHEDULED = "retry_scheduled"
    FAILED = "failed"
    DEAD = "dead"
    CANCELED = "canceled"
    CANCEL_REQUESTED = "cancel_requested"
    LEASE_EXPIRED = "lease_expired"
    RELEASED = "released"
    SNOOZED = "snoozed"
    MANUAL_RETRY = "manual_retry"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One row of the table. ``fenced``: only the holder of the current lease token may cause it."""

    event: EventType
    sources: frozenset[State]
    targets: frozenset[State]
    fenced: bool
    by: str
    guard: str
    effect: str


def _transition(
    event: EventType,
    sources: set[State],
    targets: set[State],
    *,
    by: str,
    guard: str = "",
    effect: str = "",
    fenced: bool = False,
) -> Transition:
    return Transition(
        event=event,
        sources=frozenset(sources),
        targets=frozenset(targets),
        fenced=fenced,
        by=by,
        guard=guard,
        effect=effect,
    )


TRANSITIONS: tuple[Transition, ...] = (
    _transition(
        EventType.ENQUEUED,
        set(),
        {State.QUEUED},
        by="submitter",
        guard="idempotency key, capacity, the kind's payload model",
        effect="version 1",
    ),
    _transition(
        EventType.LEASED,
        {State.QUEUED},
        {State.RUNNING},
        by="worker",
        guard="due, deadline not passed, queue not paused",
        effect="attempts + 1, a fresh token, expiry = now + lease",
    ),
    _transition(
        EventType.SUCCEEDED,
        {State.RUNNING},
        {State.SUCCEEDED},
        by="holder",
        fenced=True,
        effect="result stored; a requested cancellation becomes `finished_first`",
    ),
    _transition(
        EventType.RETRY_SCHEDULED,
        {State.RUNNING},
        {State.QUEUED},
        by="holder",
        fenced=True,
        guard="the error can be retried, attempts are left, the next attempt starts before the deadline",
        effect="available_at = now + backoff",
    ),
    _transition(
        EventType.FAILED,
        {State.RUNNING, State.QUEUED},
        {State.FAILED},
        by="holder; maintenance when a queued job's deadline passes",
        fenced=True,
        guard="permanent error, or the next attempt would start past the deadline",
        effect="`last_error.kind` is `deadline` where the deadline decided",
    ),
    _transition(
        EventType.DEAD,
        {State.RUNNING},
        {State.DEAD},
        by="holder",
        fenced=True,
        guard="attempts used up, or the error says poison",
        effect="waits for an operator",
    ),
    _transition(
        EventType.CANCELED,
        {State.QUEUED, State.RUNNING},
        {State.CANCELED},
        by="submitter (queued); holder after a request (running)",
        fenced=True,
        guard="running: cancellation was requested and the holder reports anything but success",
        effect="`prevented` when queued, `stopped` when the holder reported",
    ),
    _transition(
        EventType.CANCEL_REQUESTED,
        {State.RUNNING},
        {State.RUNNING},
        by="submitter",
        guard="the version given, if any; once",
        effect="the holder is told at once, and again by its next heartbeat",
    ),
    _transition(
        EventType.LEASE_EXPIRED,
        {State.RUNNING},
        {State.QUEUED, State.DEAD, State.FAILED, State.CANCELED},
        by="maintenance",
        guard="the lease's expiry is past by the database's clock",
        effect="available at once; `dead` when attempts are used up, `failed` when the deadline passed, "
        "`canceled` (`unconfirmed`) when cancellation was requested",
    ),
    _transition(
        EventType.RELEASED,
        {State.RUNNING},
        {State.QUEUED},
        by="holder",
        fenced=True,
        effect="attempts − 1 (up to 100 releases and snoozes a job, then they count)",
    ),
    _transition(
        EventType.SNOOZED,
        {State.RUNNING},
        {State.QUEUED},
        by="holder",
        fenced=True,
        guard="not past the deadline",
        effect="as released, available later",
    ),
    _transition(
        EventType.MANUAL_RETRY,
        {State.DEAD, State.FAILED},
        {State.QUEUED},
        by="operator",
        guard="the deadline is not past, or is renewed",
        effect="attempts = 0",
    ),
)

_SOURCES = {transition.event: transition.sources for transition in TRANSITIONS}


def sources_of(event: EventType) -> frozenset[State]:
    """The states in which this event may happen."""
    return _SOURCES[event]
