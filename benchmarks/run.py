"""One run: every mode, every case, every round, every subject in turn, on one server."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.modes.mode import Case, Mode, Profile
from benchmarks.processes import ChildFailed
from benchmarks.results import Figure, append
from benchmarks.server import postgres
from benchmarks.stage import Stage, TookTooLong
from benchmarks.subjects import Subject

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to measure. ``only``: a word that a case's name must hold. ``jobs``: instead of the case's own number."""

    modes: Sequence[Mode]
    subjects: Sequence[Subject]
    profile: Profile
    rounds: int
    only: str = ""
    jobs: int = 0
    large: bool = False

    def cases(self, mode: Mode) -> list[Case]:
        chosen = [case for case in mode.cases(self.profile) if self.only in case.name and self.large >= case.large]
        return [replace(case, jobs=self.jobs) for case in chosen] if self.jobs else chosen

    def subjects_of(self, mode: Mode) -> list[Subject]:
        return [
            one
            for one in self.subjects
            if (mode.subjects is None or one.name in mode.subjects) and (one.modes is None or mode.name in one.modes)
        ]


async def carry_out(
    plan: Plan, *, choice: str, database_url: str, lines: Path, say: Say
) -> tuple[list[Figure], dict[str, Any]]:
    """Measures; returns the figures and the facts about server and subjects. Each figure is in ``lines`` at once.

    Within a case the subjects take turns, A B C A B C, so that a drift of the machine meets them all. One that fails is
    told of, and the others go on.
    """
    figures: list[Figure] = []
    async with postgres(choice, database_url=database_url) as server:
        stage = Stage(server=server)
        for mode in plan.modes:
            for case in plan.cases(mode):
                for number in range(mode.rounds or plan.rounds):
                    for subject in plan.subjects_of(mode):
                        for figure in await _measured(stage, mode, case, subject, say):
                            numbered = replace(figure, round=number)
                            figures.append(numbered)
                            append(lines, numbered)
        return figures, stage.facts


async def _measured(stage: Stage, mode: Mode, case: Case, subject: Subject, say: Say) -> Sequence[Figure]:
    try:
        figures = await mode.measure(stage, subject, case)
    except (ChildFailed, TookTooLong) as error:
        say(f"{mode.name}, {case.name}: {subject.name} failed: {error}")
        return []
    for figure in figures:
        say(
            f"{mode.name}, {case.name}: {subject.name} {figure.metric} {figure.value:,.4g} {figure.unit}"
            + (f" ({figure.note})" if figure.note else "")
            + (f" {json.dumps(figure.details)}" if figure.details else "")
        )
    return figures
