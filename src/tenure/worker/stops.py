"""Why an attempt should stop, and when it may be told."""

import contextlib
from collections.abc import Callable, Iterator
from enum import StrEnum


class StopReason(StrEnum):
    """In order of weight: the first that holds decides what is reported."""

    LOST = "lost"
    """Somebody else may hold the job: nothing that this attempt reports counts any more."""
    CANCEL = "cancel"
    DEADLINE = "deadline"
    TIMEOUT = "timeout"
    DRAIN = "drain"
    """The worker stops; the job goes back, its attempt is given back."""


class Stops:
    """Collects the reasons, and interrupts the handler once for each new one, as soon as it may be interrupted.

    ``interrupt`` is set by whoever runs the handler: it cancels a task, or begins to end a process. It stays a no-op
    for a thread, which nothing can stop. Reasons come from the worker's event loop; any thread may read them.
    """

    def __init__(self) -> None:
        self.reasons: set[StopReason] = set()
        self.forced = False
        self.interrupt: Callable[[], object] = _nothing
        self._told: set[StopReason] = set()
        self._held = 0
        self._sealed = 0

    def __contains__(self, reason: StopReason) -> bool:
        return reason in self.reasons

    @property
    def requested(self) -> bool:
        """Whether there is any reason to stop."""
        return bool(self.reasons)

    @property
    def weightiest(self) -> StopReason | None:
        """The reason that decides."""
        return next((reason for reason in StopReason if reason in self.reasons), None) if self.reasons else None

    @property
    def may_interrupt(self) -> bool:
        """Whether the handler may be interrupted now."""
        if self.forced:
            return True
        return not self._sealed and (not self._held or StopReason.LOST in self.reasons)

    def request(self, reason: StopReason, *, forced: bool = False) -> None:
        """Adds a reason. ``forced`` (the second signal) waits for nothing and interrupts again."""
        self.reasons.add(reason)
        if forced:
            self.forced = True
            self._told.discard(reason)
        self.deliver()

    def deliver(self) -> None:
        """Interrupts the handler if there is a reason it was not interrupted for, and it may be."""
        news = self.reasons - self._told
        if not news or not self.may_interrupt:
            return
        self._told |= news
        self.interrupt()

    def hold(self) -> None:
        """From here on only a lost lease interrupts, until as many `unhold`."""
        self._held += 1

    def unhold(self) -> None:
        """Ends a hold, and tells what came meanwhile."""
        self._held -= 1
        self.deliver()

    @contextlib.contextmanager
    def sealed(self) -> Iterator[None]:
        """While a commit is under way not even a lost lease interrupts: the commit itself finds out."""
        self._sealed += 1
        try:
            yield
        finally:
            self._sealed -= 1
            self.deliver()


def _nothing() -> None:
    pass
