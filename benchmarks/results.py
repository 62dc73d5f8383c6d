"""What was measured: one figure of one subject in one round, and the medians of many."""

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HIGHER = "higher"
LOWER = "lower"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure. ``better`` says which way it should go; ``note`` marks what the number alone does not say."""

    mode: str
    case: str
    subject: str
    metric: str
    value: float
    unit: str
    better: str = HIGHER
    round: int = 0
    note: str = ""
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of all rounds of one metric of one subject."""

    mode: str
    case: str
    metric: str
    subject: str
    unit: str
    better: str
    median: float
    low: float
    high: float
    rounds: int
    note: str


Row = tuple[str, str, str]
"""Mode, case and metric: what can be compared."""


def summaries(figures: Iterable[Figure]) -> dict[Row, dict[str, Summary]]:
    """By row and by subject, in the order in which they were measured."""
    groups: dict[Row, dict[str, list[Figure]]] = {}
    for figure in figures:
        row = groups.setdefault((figure.mode, figure.case, figure.metric), {})
        row.setdefault(figure.subject, []).append(figure)
    return {
        row: {subject: _summary(rounds) for subject, rounds in by_subject.items()} for row, by_subject in groups.items()
    }


def _summary(rounds: Sequence[Figure]) -> Summary:
    values = [figure.value for figure in rounds]
    last = rounds[-1]
    return Summary(
        mode=last.mode,
        case=last.case,
        metric=last.metric,
        subject=last.subject,
        unit=last.unit,
        better=last.better,
        median=statistics.median(values),
        low=min(values),
        high=max(values),
        rounds=len(values),
        note=next((figure.note for figure in rounds if figure.note), ""),
    )


def advantage(one: Summary, other: Summary) -> float | None:
    """How many times better ``one`` is than ``other``: 2.0 is twice the rate, or half the delay."""
    if not one.median or not other.median:
        return None
    return one.median / other.median if one.better == HIGHER else other.median / one.median


def percentile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` (0 … 1) of the values do not exceed. Raises ValueError when there are none."""
    if not values:
        raise ValueError("no values were measured")
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def append(path: Path, figure: Figure) -> None:
    """Writes the figure at once: a run that is broken off has lost nothing."""
    with path.open("a") as file:
        file.write(json.dumps(asdict(figure)) + "\n")


def load(path: Path) -> list[Figure]:
    return [Figure(**json.loads(line)) for line in path.read_text().splitlines()]
