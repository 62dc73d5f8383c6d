"""Bulk: how fast jobs get in many at once, from one caller: Tenure over HTTP, the others by their library."""

from collections.abc import Sequence

from benchmarks.modes import enqueue
from benchmarks.modes.mode import Case, Mode, Profile
from benchmarks.results import Figure
from benchmarks.services import tenure_service
from benchmarks.stage import Stage
from benchmarks.subjects import TENURE, Subject

NAME = "bulk"

_LINES = "ndjson"


def cases(profile: Profile) -> list[Case]:
    seconds = {Profile.SMOKE: 0.2, Profile.QUICK: 1.5, Profile.FULL: 4.0}[profile]
    batches = {Profile.SMOKE: [10], Profile.QUICK: [1_000], Profile.FULL: [100, 1_000]}[profile]
    found = [Case(name=f"{batch:,} a call", batch=batch, seconds=seconds) for batch in batches]
    if profile is not Profile.QUICK:
        most = batches[-1]
        found.append(Case(name=f"{most:,} a call, NDJSON", batch=most, seconds=seconds, shape=_LINES))
    return found


async def measure(stage: Stage, subject: Subject, case: Case) -> Sequence[Figure]:
    if case.shape == _LINES and subject.name != TENURE:
        return []
    options = (f"--batch={case.batch}", f"--seconds={case.seconds}")
    async with stage.site(subject, tuned=True) as site:
        if subject.name == TENURE:
            async with tenure_service(site) as service:
                found = await service.load(case.shape or "bulk", *options)
        else:
            found = await site.do("bulk", *options)
    return enqueue.figures(NAME, subject, case, found)


MODE = Mode(name=NAME, title="Enqueue many at once", cases=cases, measure=measure)
