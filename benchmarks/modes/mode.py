"""What every mode is made of."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.results import Figure
from benchmarks.stage import Stage
from benchmarks.subjects import Subject


class Profile(StrEnum):
    """How much time there is: seconds in all, three minutes, or as long as it takes."""

    SMOKE = "smoke"
    QUICK = "quick"
    FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One line of the table: what is varied within a mode. What a mode does not use stays at its default."""

    name: str
    jobs: int = 0
    callers: int = 1
    batch: int = 1
    workers: int = 1
    tuned: bool = False
    rows: int = 0
    """Rows in the table beside those that matter."""
    shape: str = ""
    seconds: float = 10.0
    """The most that one measurement may take, or how long it lasts."""
    settle_seconds: float = 0.0
    """What comes before, and is not measured."""
    large: bool = False
    """Takes minutes and gigabytes: measured only when it is asked for."""
    rate: float = 0.0
    """Jobs a second that are submitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """``measure`` gives the figures of one case for one subject, once. ``subjects``: whom it is for; None means all."""

    name: str
    title: str
    cases: Callable[[Profile], list[Case]]
    measure: Callable[[Stage, Subject, Case], Awaitable[Sequence[Figure]]]
    subjects: frozenset[str] | None = None
    rounds: int | None = None
    """How often it is repeated, where that is not the run's to say."""
