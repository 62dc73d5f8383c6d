"""What may be asked again, how often, and how long: one place for all operations and both faces.

An answer or its absence is judged first: may it pass, and did the service do anything? Then the operation's `Safety`
decides. Between tries lies a random time (full jitter), and at least what ``Retry-After`` asks for. Nothing is waited for
beyond ``retry_for_seconds``: a ``Retry-After`` that ends later is told at once.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Any

from tenure.client.steps import Failure, Heard, Pause, Reply, Send, Talk
from tenure.errors import TenureError, Unavailable
from tenure.wire import json
from tenure.wire.problems import error_from

TIMEOUT_SECONDS = 30.0
RETRY_FOR_SECONDS = 30.0
"""Longer than a service takes to be replaced by its next version."""
_LONGEST_WAIT_SECONDS = 20.0
"""Of one request: below the idle timeouts that proxies are delivered with (60 s, some 30 s)."""
_WAIT_SHARE = 2 / 3
"""Of the client's own timeout, the most that the service is asked to wait: else each quiet wait would be an error."""
_BACKOFF_SECONDS = (0.2, 5.0)
_PASSING_STATUSES = frozenset({408, 429, *range(500, 600)}) - {501, 505}
_DID_NOTHING = frozenset({"draining", "unavailable", "overloaded"})
"""Problems by which the service says that it refused before it did anything. `database-unavailable` does not say so."""


class ServiceUnreachable(Unavailable):
    """Nobody answers at this address, or what answers is not Tenure."""

    code, title = "service-unreachable", "The service cannot be reached"


class Safety(Enum):
    """What asking again does when nobody knows whether the service heard the first time."""

    REPEATABLE = "the same as asking once"
    ONCE = "something else: ask again only when the service certainly did nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The caller's choices. All in seconds: ``timeout_seconds`` of silence end a request, ``retry_for_seconds`` bound
    the repeating of one call (0: never), ``patience_seconds`` that of a stream which had begun."""

    url: str
    timeout_seconds: float = TIMEOUT_SECONDS
    retry_for_seconds: float = RETRY_FOR_SECONDS
    patience_seconds: float = RETRY_FOR_SECONDS
    clock: Callable[[], float] = time.monotonic
    random: Callable[[], float] = random.random

    def wait_at_a_time(self, wanted_seconds: float) -> float:
        """How long one request may ask the service to wait."""
        return max(0.0, min(wanted_seconds, _LONGEST_WAIT_SECONDS, self.timeout_seconds * _WAIT_SHARE))

    def pause(self, tries: int, trouble: "Trouble", *, until: float) -> float | None:
        """Seconds before the next try, after ``tries``; None when that would be after ``until``."""
        first, longest = _BACKOFF_SECONDS
        seconds = self.random() * min(longest, first * 2 ** min(tries, 20))
        seconds += trouble.retry_after_seconds
        return seconds if self.clock() + seconds < until else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Something that is no answer to what was asked."""

    error: TenureError
    passing: bool = False
    nothing_happened: bool = False
    retry_after_seconds: float = 0.0

    def may_be_repeated(self, safety: Safety) -> bool:
        return self.passing and (self.nothing_happened or safety is Safety.REPEATABLE)


def exchange(send: Send, safety: Safety, rules: Rules) -> Talk[Reply]:
    """The successful answer, after as many tries as the rules allow. Raises the service's error, or ServiceUnreachable."""
    until = rules.clock() + rules.retry_for_seconds
    tries = 0
    while True:
        heard = yield send
        judged = judge(heard, rules, streamed=send.stream)
        if isinstance(judged, Reply):
            return judged
        tries += 1
        seconds = rules.pause(tries, judged, until=until) if judged.may_be_repeated(safety) else None
        if seconds is None:
            raise judged.error
        yield Pause(seconds)


def judge(heard: Heard, rules: Rules, *, streamed: bool = False) -> Reply | Trouble:
    """The answer if it is one, else what is wrong."""
    if isinstance(heard, Failure):
        unreachable = ServiceUnreachable(heard.words)
        return Trouble(error=unreachable, passing=heard.passing, nothing_happened=not heard.sent)
    assert isinstance(heard, Reply)
    if heard.is_success:
        return heard if streamed or heard.status == 204 else _sound(heard, rules)
    passing = heard.status in _PASSING_STATUSES
    after = _retry_after(heard)
    problem = _document(heard)
    if problem is None or not isinstance(problem.get("code"), str):
        return Trouble(error=not_tenure(heard, rules), passing=passing, retry_after_seconds=after or 0.0)
    told = problem.get("retry_after_seconds", after)
    if after is not None:
        problem["retry_after_seconds"] = after
    elif isinstance(told, int | float) and 0 <= told < float("inf"):
        after = float(told)
    if "allow" in heard.headers:
        problem.setdefault("allow", heard.headers["allow"])
    error = error_from(problem, status=heard.status)
    return Trouble(
        error=error,
        passing=passing,
        nothing_happened=error.code in _DID_NOTHING,
        retry_after_seconds=after or 0.0,
    )


def not_tenure(reply: Reply, rules: Rules) -> ServiceUnreachable:
    """Somebody answers, but not as Tenure does."""
    return ServiceUnreachable(
        f"{rules.url} answered {reply.status} in a form that is not Tenure's: is --url or TENURE_URL right?"
    )


def document(reply: Reply, rules: Rules) -> dict[str, Any]:
    """The JSON object of a successful answer. Raises ServiceUnreachable."""
    found = _document(reply)
    if found is None:
        raise not_tenure(reply, rules)
    return found


def _sound(reply: Reply, rules: Rules) -> Reply | Trouble:
    if _document(reply) is not None:
        return reply
    # What calls itself JSON and is none was cut or garbled on the way; a page of HTML comes from somebody else.
    garbled = "json" in reply.headers.get("content-type", "")
    return Trouble(error=not_tenure(reply, rules), passing=garbled)


def _document(reply: Reply) -> dict[str, Any] | None:
    try:
        value = json.parse(reply.body)
    except TenureError:
        return None
    return value if isinstance(value, dict) else None


def _retry_after(reply: Reply) -> float | None:
    """Seconds; a proxy may send a date, which is measured by the answer's own."""
    text = reply.headers.get("retry-after", "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        until = parsedate_to_datetime(text)
        since = parsedate_to_datetime(reply.headers["date"]) if "date" in reply.headers else datetime.now(UTC)
        return max(0.0, (until - since).total_seconds())
    except (ValueError, TypeError):
        return None
