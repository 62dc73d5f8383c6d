"""Transactional: jobs put in by a program itself, each in a transaction of its own that has committed on return.

For Tenure that is `tenure.enqueue` on a connection of the program's pool, and the wake-up after the commit.
"""

from collections.abc import Sequence

from benchmarks.modes import enqueue
from benchmarks.modes.mode import Case, Mode, Profile
from benchmarks.results import Figure
from benchmarks.stage import Stage
from benchmarks.subjects import Subject

NAME = "transactional"


def cases(profile: Profile) -> list[Case]:
    return [case for case in enqueue.cases(profile) if case.callers <= 32]


async def measure(stage: Stage, subject: Subject, case: Case) -> Sequence[Figure]:
    async with stage.site(subject, tuned=True) as site:
        found = await site.do("enqueue", f"--callers={case.callers}", f"--seconds={case.seconds}")
    return enqueue.figures(NAME, subject, case, found)


MODE = Mode(name=NAME, title="Enqueue in the caller's own transaction", cases=cases, measure=measure)
