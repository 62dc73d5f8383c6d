"""Enqueue: how fast jobs get in one by one, each durable when its caller hears of it.

Tenure over HTTP, from one service process; the others by their library, in the submitter's own process. So Tenure is
measured with a network protocol between that they do not have. Beside them, what FastAPI answers with nothing stored.
"""

from collections.abc import Sequence
from typing import Any

from benchmarks.modes.mode import Case, Mode, Profile
from benchmarks.results import LOWER, Figure, percentile
from benchmarks.services import noop_endpoint, tenure_service
from benchmarks.stage import Stage
from benchmarks.subjects import NOOP_ENDPOINT, TENURE, Subject

NAME = "enqueue"


def cases(profile: Profile) -> list[Case]:
    callers = {Profile.SMOKE: [2], Profile.QUICK: [1, 32], Profile.FULL: [1, 32, 128]}[profile]
    seconds = {Profile.SMOKE: 0.2, Profile.QUICK: 1.5, Profile.FULL: 4.0}[profile]
    return [Case(name=f"{count} caller{'s' * (count > 1)}", callers=count, seconds=seconds) for count in callers]


async def measure(stage: Stage, subject: Subject, case: Case) -> Sequence[Figure]:
    options = (f"--callers={case.callers}", f"--seconds={case.seconds}")
    async with stage.site(subject, tuned=True) as site:
        if subject.name == TENURE:
            async with tenure_service(site) as service:
                found = await service.load("enqueue", *options)
        elif subject.name == NOOP_ENDPOINT:
            async with noop_endpoint(site.folder) as service:
                found = await service.load("enqueue", *options)
        else:
            found = await site.do("enqueue", *options)
    return figures(NAME, subject, case, found)


def figures(mode: str, subject: Subject, case: Case, found: dict[str, Any]) -> list[Figure]:
    """The rate of calls, and how long one takes."""
    calls = [seconds * 1_000 for seconds in found.pop("calls")]
    details = {"calls": len(calls), **{key: round(value, 3) for key, value in found.items() if key != "jobs"}}
    common: dict[str, Any] = {"mode": mode, "case": case.name, "subject": subject.name}
    return [
        Figure(
            **common, metric="rate", value=len(calls) * case.batch / found["seconds"], unit="jobs/s", details=details
        ),
        Figure(**common, metric="call p50", value=percentile(calls, 0.50), unit="ms", better=LOWER),
        Figure(**common, metric="call p99", value=percentile(calls, 0.99), unit="ms", better=LOWER),
    ]


MODE = Mode(name=NAME, title="Enqueue one by one", cases=cases, measure=measure)
