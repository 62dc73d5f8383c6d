"""What a check found, and what the checks are called."""

from collections import Counter
from dataclasses import dataclass, field

CHECKS: dict[str, str] = {
    "lost": "an accepted job does not exist",
    "unfinished": "a job has not ended although everything was well again",
    "wrong end": "a job ended as one of its kind cannot",
    "history": "a history that is not legal, or does not lead to its row",
    "second success": "more than one success was accepted",
    "stale token": "a token that was not the current one was accepted",
    "repeat": "the same outcome, reported again, was not answered as the first time",
    "stuck": "nobody took a lease back in time",
    "early expiry": "a lease was taken back before the end that its holder had been promised",
    "lease length": "a lease was promised for longer than it may be",
    "duplicate": "two jobs came from one request, or from one key",
    "started twice": "one attempt was started twice, or without a lease",
    "start after prevented": "an attempt started after a cancel had been answered `prevented`",
    "stale version": "a cancel was accepted at another version than it was meant for",
    "receipt": "a cancellation came to something else than its receipts said",
    "effect": "an effect that belongs to a success happened without it, twice, or not at all",
    "unread": "what was accepted could not be read at once",
    "http 500": "a request was answered 5xx, save 503 with Retry-After",
    "unexpected": "a request was answered in a way that it should not be",
    "refused": "a request was refused, or not answered, while nothing was broken",
    "unavailable": "nothing was accepted for too long after PostgreSQL was back",
    "connections": "connections, transactions or locks were left over",
    "deaf": "a process is not listening for wake-ups any more",
    "ended": "a process ended by itself",
    "log": "a process logged an exception that it did not expect",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that must not be. ``job`` where it concerns one."""

    check: str
    what: str
    job: str | None = None

    def __str__(self) -> str:
        return f"{self.check}: {self.what}" + (f" (job {self.job})" if self.job else "")


@dataclass(slots=True)
class Findings:
    """What was found, in order."""

    found: list[Finding] = field(default_factory=list)

    def add(self, check: str, what: str, job: str | None = None) -> None:
        assert check in CHECKS, check
        self.found.append(Finding(check=check, what=what, job=job))

    @property
    def counts(self) -> Counter[str]:
        return Counter(finding.check for finding in self.found)

    def shown(self, limit: int = 30) -> str:
        """The first of them, a line each."""
        lines = [str(finding) for finding in self.found[:limit]]
        if len(self.found) > limit:
            lines.append(f"… and {len(self.found) - limit} more: {dict(self.counts)}")
        return "\n".join(lines)
