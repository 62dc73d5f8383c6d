"""What is ordered: the jobs of a run, drawn from chance, and how each may end when nobody cancels it."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.handlers import HELD_QUEUE

MANY_ATTEMPTS = 1_000
"""So that kills alone do not use the attempts up."""

HELD_KIND = "chaos.held"
UNCANCELED_SECONDS = 600.0
"""Longer than anybody waits: such a job ends by its cancellation only."""

ENDS: dict[str, frozenset[str]] = {
    "chaos.quick": frozenset({"succeeded"}),
    "chaos.thread": frozenset({"succeeded"}),
    "chaos.slow": frozenset({"succeeded"}),
    "chaos.flaky": frozenset({"succeeded"}),
    "chaos.effect": frozenset({"succeeded"}),
    HELD_KIND: frozenset({"succeeded"}),
    "chaos.bug": frozenset({"dead"}),
    "chaos.poison": frozenset({"dead"}),
    "chaos.crash": frozenset({"dead"}),
    "chaos.refused": frozenset({"failed"}),
}
"""Besides `canceled` where it was asked for, and `failed` where there was a deadline."""

_WEIGHTS = {
    "quick": 400,
    "thread": 40,
    "slow": 50,
    "flaky": 80,
    "bug": 25,
    "poison": 20,
    "refused": 25,
    "crash": 1,
    "effect": 120,
    "held": 100,
    "deadline": 40,
    "delayed": 60,
    "doomed": 30,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One job to be asked for. ``to_cancel``: it is to be canceled, or it never ends."""

    n: str
    kind: str
    body: dict[str, Any]
    to_cancel: bool = False


@dataclass(slots=True)
class Orders:
    """Draws requests. ``slow_seconds`` is how long a slow job takes at most."""

    chance: random.Random
    ledger: Path
    prefix: str
    slow_seconds: float = 4.0
    _numbers: "Iterator[int]" = field(default_factory=itertools.count)

    def next(self, what: str | None = None) -> Request:
        """The next request: of this sort, or of any."""
        chance = self.chance
        what = what or chance.choices(list(_WEIGHTS), weights=list(_WEIGHTS.values()))[0]
        match what:
            case "slow":
                return self._request("slow", seconds=round(chance.uniform(0.3, self.slow_seconds), 3))
            case "thread":
                return self._request("thread", seconds=round(chance.uniform(0.0, 0.3), 3))
            case "flaky":
                return self._request("flaky", fails=chance.randint(1, 2))
            case "bug" | "crash":
                return self._request(what, options={"max_attempts": chance.randint(1, 2)})
            case "effect":
                return self._request("effect", seconds=round(chance.uniform(0.0, 0.5), 3))
            case "deadline":
                delay, left = chance.uniform(0.0, 2.0), chance.uniform(-0.5, 2.0)
                times = {"delay_seconds": round(delay, 3), "expires_in_seconds": round(max(delay + left, 0.05), 3)}
                if times["expires_in_seconds"] <= times["delay_seconds"]:
                    times["delay_seconds"] = 0.0
                return self._request("quick", options=times)
            case "delayed":
                return self._request("quick", options={"delay_seconds": round(chance.uniform(0.1, 3.0), 3)})
            case "endless":
                return self._request("slow", seconds=UNCANCELED_SECONDS, to_cancel=True)
            case "doomed":
                if chance.random() < 0.5:
                    return self.next("endless")
                return self._request("quick", options={"delay_seconds": UNCANCELED_SECONDS}, to_cancel=True)
            case _:
                return self._request(what)

    def _request(
        self,
        what: str,
        *,
        seconds: float = 0.0,
        fails: int = 0,
        options: dict[str, Any] | None = None,
        to_cancel: bool = False,
    ) -> Request:
        n = f"{self.prefix}{next(self._numbers)}"
        kind = f"chaos.{what}"
        body: dict[str, Any] = {
            "kind": kind,
            "payload": {"n": n, "ledger": str(self.ledger), "seconds": seconds, "fails": fails},
            "max_attempts": MANY_ATTEMPTS,
            **(options or {}),
        }
        if kind == HELD_KIND:
            body["queue"] = HELD_QUEUE
        return Request(n=n, kind=kind, body=body, to_cancel=to_cancel)
