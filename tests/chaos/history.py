"""What a job's history may be: written from the contract, and from nothing of the product's code.

`replay` walks the events of one job and says where they lead; what is not legal it tells as it goes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

TERMINAL = frozenset({"succeeded", "failed", "canceled", "dead"})

_LEGAL: dict[str, tuple[frozenset[str | None], frozenset[str]]] = {
    "enqueued": (frozenset({None}), frozenset({"queued"})),
    "leased": (frozenset({"queued"}), frozenset({"running"})),
    "succeeded": (frozenset({"running"}), frozenset({"succeeded"})),
    "retry_scheduled": (frozenset({"running"}), frozenset({"queued"})),
    "failed": (frozenset({"running", "queued"}), frozenset({"failed"})),
    "dead": (frozenset({"running"}), frozenset({"dead"})),
    "canceled": (frozenset({"running", "queued"}), frozenset({"canceled"})),
    "cancel_requested": (frozenset({"running"}), frozenset({"running"})),
    "lease_expired": (frozenset({"running"}), frozenset({"queued", "dead", "failed", "canceled"})),
    "released": (frozenset({"running"}), frozenset({"queued"})),
    "snoozed": (frozenset({"running"}), frozenset({"queued"})),
    "manual_retry": (frozenset({"dead", "failed"}), frozenset({"queued"})),
}
_AFTER_REQUEST = frozenset({"succeeded", "canceled", "lease_expired"})
"""What may end a running job that was asked to stop."""
_BY_HOLDER = frozenset({"succeeded", "retry_scheduled", "dead", "released", "snoozed"})
_OUTCOMES = {"queued": "prevented", "running": "stopped"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A row of the events, as plain values. Digests in hex."""

    version: int
    at: datetime
    type: str
    state: str
    attempt: int
    worker: str | None
    token: str | None
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One attempt: from its `leased` event to the event that ended it, if it has ended."""

    fence: int
    attempt: int
    token: str | None
    worker: str | None
    began: datetime
    ended: Event | None = None


@dataclass(slots=True)
class Story:
    """Where a history leads, the leases in it, and what is wrong with it."""

    state: str | None = None
    version: int = 0
    attempts: int = 0
    cancel_requested: bool = False
    successes: int = 0
    leases: list[Lease] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def lease_of(self, fence: int) -> Lease | None:
        """The attempt with this number."""
        return next((lease for lease in self.leases if lease.fence == fence), None)


def replay(events: Sequence[Event], *, deadline_at: datetime | None, max_attempts: int) -> Story:
    """Walks a job's events, in the order of their versions."""
    story = Story()
    held: Lease | None = None
    not_before: datetime | None = None
    last: datetime | None = None
    for event in events:
        where = f"{event.type} (version {event.version})"
        if event.version != story.version + 1:
            story.wrong.append(f"{where} follows version {story.version}")
        if last is not None and event.at < last:
            story.wrong.append(f"{where} is earlier than what it follows")
        legal = _LEGAL.get(event.type)
        if legal is None:
            story.wrong.append(f"{where} is no event that exists")
        elif story.state not in legal[0] or event.state not in legal[1]:
            story.wrong.append(f"{where} goes from {story.state} to {event.state}")
        if story.state == "running" and story.cancel_requested and event.type not in _AFTER_REQUEST:
            story.wrong.append(f"{where} follows a request to cancel")
        expected = _attempts_after(event, story.attempts)
        if event.attempt not in expected:
            story.wrong.append(f"{where} has attempt {event.attempt} after {story.attempts}")
        if event.attempt > max_attempts:
            story.wrong.append(f"{where} has attempt {event.attempt} of {max_attempts}")
        if event.type == "leased":
            if deadline_at is not None and event.at >= deadline_at:
                story.wrong.append(f"{where} is past the deadline")
            if not_before is not None and event.at < not_before:
                story.wrong.append(f"{where} is before the job was due")
            held = Lease(
                fence=event.version, attempt=event.attempt, token=event.token, worker=event.worker, began=event.at
            )
            story.leases.append(held)
        elif held is not None and event.state != "running":
            _end(story, held, event, where)
            held = None
        if event.type == "canceled" and event.detail.get("outcome") != _OUTCOMES.get(str(story.state)):
            story.wrong.append(f"{where} calls it {event.detail.get('outcome')} from {story.state}")
        if event.type == "cancel_requested":
            story.cancel_requested = True
        if event.type == "manual_retry":
            story.successes = 0
        if event.type == "succeeded":
            story.successes += 1
        not_before = _due(event)
        last = event.at
        story.state, story.version, story.attempts = event.state, event.version, event.attempt
    return story


def _attempts_after(event: Event, attempts: int) -> set[int]:
    match event.type:
        case "enqueued" | "manual_retry":
            return {0}
        case "leased":
            return {attempts + 1}
        case "released" | "snoozed":
            return {attempts - 1} if event.detail.get("attempt_returned", True) else {attempts}
        case _:
            return {attempts}


def _end(story: Story, held: Lease, event: Event, where: str) -> None:
    by_holder = event.type in _BY_HOLDER or (event.type in ("failed", "canceled") and event.token is not None)
    if by_holder and event.token != held.token:
        story.wrong.append(f"{where} was accepted under a token that is not that of the lease (version {held.fence})")
    if event.worker != held.worker:
        story.wrong.append(f"{where} is {event.worker}'s, the lease {held.worker}'s")
    if event.type == "lease_expired":
        expired_at = moment(event.detail.get("expired_at"))
        if expired_at is None or expired_at >= event.at:
            story.wrong.append(f"{where} came before the lease ended ({expired_at})")
    story.leases[-1] = Lease(
        fence=held.fence, attempt=held.attempt, token=held.token, worker=held.worker, began=held.began, ended=event
    )


def _due(event: Event) -> datetime | None:
    return moment(event.detail.get("available_at")) if event.state == "queued" else None


def moment(text: Any) -> datetime | None:
    """A time as the product writes it."""
    return None if text is None else datetime.fromisoformat(text)
