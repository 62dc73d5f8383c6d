"""Claim cost: what a claim takes beside rows of all sorts, against the same claim on a nearly empty queue.

Both are measured in the same database, one after the other, by the broker that the workers use. What is put in and claimed
is due, and of the kind that the claimer serves; the shape is what else there is.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.application import HOLD, NOOP, QUEUE
from benchmarks.claimer import Claimer, claimer
from benchmarks.modes.mode import Case, Mode, Profile
from benchmarks.results import LOWER, Figure
from benchmarks.rows import multiply
from benchmarks.stage import Stage
from benchmarks.subjects import TENURE, Subject

NAME = "claim-cost"

_DUE = "now() - interval '1 day' + copy * interval '1 millisecond'"
_LATER = "now() + interval '30 days' + copy * interval '1 millisecond'"
_MONTH_SECONDS = 30 * 86_400.0
_WARM = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Rows beside those that are claimed: copies of one job, with these changes. ``size``: how many at each profile."""

    kind: str = NOOP
    delay_seconds: float | None = None
    finished: bool = False
    changes: Mapping[str, str] = field(default_factory=dict)
    quick: bool = False
    size: int
    large: int | None = None


WAITING = "waiting"

SHAPES = {
    "besides": Shape(size=0, quick=True),
    WAITING: Shape(changes={"available_at": _DUE}, size=100_000, large=10_000_000, quick=True),
    "finished": Shape(finished=True, size=1_000_000, large=10_000_000),
    "in the far future": Shape(delay_seconds=_MONTH_SECONDS, changes={"available_at": _LATER}, size=2_000_000),
    "of another kind": Shape(kind=HOLD, changes={"available_at": _DUE}, size=100_000),
}

_SMOKE_ROWS = 400


def cases(profile: Profile) -> list[Case]:
    if profile is Profile.SMOKE:
        return [_case(name, _SMOKE_ROWS, repeats=2) for name in SHAPES]
    if profile is Profile.QUICK:
        return [_case(name, shape.size, repeats=30) for name, shape in SHAPES.items() if shape.quick]
    usual = [_case(name, shape.size, repeats=60) for name, shape in SHAPES.items()]
    large = [_case(name, shape.large, repeats=60, large=True) for name, shape in SHAPES.items() if shape.large]
    return usual + large


def _case(shape: str, rows: int, *, repeats: int, large: bool = False) -> Case:
    return Case(name=f"{rows:,} {shape}" if rows else shape, shape=shape, rows=rows, jobs=repeats, large=large)


async def measure(stage: Stage, subject: Subject, case: Case) -> Sequence[Figure]:
    shape = SHAPES[case.shape]
    waiting = case.shape == WAITING
    async with stage.site(subject) as site:
        async with claimer(site.database_url) as one:
            await one.timed(100, repeats=_WARM)
            alone = await _times(one, repeats=case.jobs, put=True, empty=not waiting)
        async with claimer(site.database_url, kind=shape.kind) as maker:
            await maker.put(1, delay_seconds=shape.delay_seconds)
            if shape.finished:
                await maker.settle((await maker.claim(1))[1])
        state = "succeeded" if shape.finished else "queued"
        sample = f"kind = '{shape.kind}' AND queue = '{QUEUE}' AND state = '{state}'"
        await multiply(stage.server, site.database_url, sample=sample, count=case.rows, changes=shape.changes)
        async with claimer(site.database_url) as one:
            await one.timed(1, repeats=_WARM, put=not waiting)
            beside = await _times(one, repeats=case.jobs, put=not waiting, empty=not waiting)
    return [figure for what in beside for figure in _figures(subject, case, what, beside[what], alone[what])]


async def _times(one: Claimer, *, repeats: int, put: bool, empty: bool) -> dict[str, list[float]]:
    """Milliseconds of claims, by what is claimed."""
    return {
        "claim of 1": await one.timed(1, repeats=repeats, put=put),
        "claim of 100": await one.timed(100, repeats=repeats, put=put),
        **({"claim of none": await one.empty_handed(repeats=repeats)} if empty else {}),
    }


def _figures(subject: Subject, case: Case, what: str, beside: Sequence[float], alone: Sequence[float]) -> list[Figure]:
    common: dict[str, Any] = {"mode": NAME, "case": case.name, "subject": subject.name, "better": LOWER}
    before, after = statistics.median(alone), statistics.median(beside)
    return [
        Figure(**common, metric=what, value=after, unit="ms"),
        Figure(**common, metric=f"{what}, to a small queue's", value=after / before, unit="×"),
    ]


MODE = Mode(
    name=NAME, title="A claim beside many rows", cases=cases, measure=measure, subjects=frozenset({TENURE}), rounds=1
)
