"""When a failed attempt is tried again: exponential backoff with full jitter, capped.

Full jitter (a uniform draw between zero and the ceiling) spreads a crowd of simultaneous failures best; the trade-offs
are laid out in the AWS Architecture Blog, "Exponential Backoff And Jitter".
"""

import math
from dataclasses import dataclass
from typing import Literal

from tenure.errors import ConfigurationError

MAX_DELAY_SECONDS = 365 * 86_400.0
"""No retry is planned more than a year ahead: beyond it a delay is a mistake, and dates stay within range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long to wait after attempt n: up to ``base_seconds × factor^(n−1)``, never above ``cap_seconds``.

    ``jitter`` is "full" (uniform between 0 and that) or "none". Nonsense is refused at once, with a ConfigurationError.
    """

    base_seconds: float = 1.0
    factor: float = 2.0
    cap_seconds: float = 600.0
    jitter: Literal["full", "none"] = "full"

    def __post_init__(self) -> None:
        if not 0 < self.base_seconds <= MAX_DELAY_SECONDS:
            raise ConfigurationError(f"base_seconds must be above 0 and at most a year, not {self.base_seconds}")
        if not 1 <= self.factor <= 100:
            raise ConfigurationError(f"factor must be 1 … 100, not {self.factor}")
        if not self.base_seconds <= self.cap_seconds <= MAX_DELAY_SECONDS:
            raise ConfigurationError(
                f"cap_seconds must be at least base_seconds ({self.base_seconds}) and at most a year, not {self.cap_seconds}"
            )

    def ceiling_seconds(self, attempt: int) -> float:
        """The longest wait after this attempt (1 is the first)."""
        exponent = max(attempt - 1, 0)
        # Compared as logarithms: the power itself overflows a float long before the last possible attempt.
        if exponent * math.log(self.factor) >= math.log(self.cap_seconds / self.base_seconds):
            return self.cap_seconds
        return min(self.base_seconds * self.factor**exponent, self.cap_seconds)

    def delay_seconds(self, attempt: int, *, random: float, at_least_seconds: float | None = None) -> float:
        """The wait after this attempt. ``random`` is uniform in [0, 1); a server's Retry-After is ``at_least_seconds``."""
        ceiling = self.ceiling_seconds(attempt)
        delay = ceiling * random if self.jitter == "full" else ceiling
        if at_least_seconds is not None:
            # On top of what was asked for, the jitter of the first step: else all who were told "60" return together.
            delay = at_least_seconds + (self.base_seconds * random if self.jitter == "full" else 0.0)
        return min(delay, MAX_DELAY_SECONDS)
