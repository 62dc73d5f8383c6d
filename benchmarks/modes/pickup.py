"""Pickup: how long from just before a job is submitted to the first line of its handler, at a steady rate.

Submitter, service and worker are processes of their own (Tenure's jobs come over HTTP). The rate does not wait: jobs are
sent on time whether or not earlier ones are through, so a queue that falls behind shows it.
"""

from collections.abc import Sequence
from typing import Any

from benchmarks.modes.mode import Case, Mode, Profile
from benchmarks.processes import refuse_dead, running
from benchmarks.recording import Tally
from benchmarks.results import LOWER, Figure, percentile
from benchmarks.services import tenure_service
from benchmarks.stage import Site, Stage, until
from benchmarks.subjects import TENURE, Subject

NAME = "pickup"

_SETTLED_SECONDS = 30.0
_CALLERS = 8

# What is stored is when the outcome was written, by the database's clock, which is this machine's.
_TO_FINISH = """
SELECT coalesce(array_agg(extract(epoch FROM finished_at)::float8 - (payload->>'sent_at')::float8), '{}')
FROM tenure.jobs WHERE payload->>'sent_at' IS NOT NULL
"""


def cases(profile: Profile) -> list[Case]:
    jobs = {Profile.SMOKE: 10, Profile.QUICK: 100, Profile.FULL: 400}[profile]
    low = Case(name="20 jobs/s", rate=20.0, jobs=jobs)
    if profile is Profile.QUICK:
        return [low]
    return [low, Case(name="200 jobs/s", rate=200.0, jobs=jobs * 5)]


async def measure(stage: Stage, subject: Subject, case: Case) -> Sequence[Figure]:
    async with stage.site(subject) as site:
        unfinished = str((await stage.describe(subject, tuned=False))["unfinished"])
        options = (f"--rate={case.rate}", f"--jobs={case.jobs}")
        tally = site.tally()
        to_finish: list[float] = []
        if subject.name == TENURE:
            async with tenure_service(site, workers=1) as service:
                await service.load("enqueue", "--seconds=0.1")
                await _nothing_left(site, unfinished)
                await service.load("pace", *options)
                await _all_picked_up(tally, case)
                await _nothing_left(site, unfinished)
            to_finish = await site.value(_TO_FINISH)
        else:
            async with running([subject.worker(site.database_url, site.folder, tuned=False)], site.folder) as processes:
                await site.do("enqueue", "--seconds=0.1")
                await _nothing_left(site, unfinished)
                await site.do("pace", *options, f"--callers={_CALLERS}")
                await _all_picked_up(tally, case)
                refuse_dead(processes, site.folder)
    return [
        *_figures(subject, case, "to handler", tally.delays),
        *(_figures(subject, case, "to finish", to_finish) if to_finish else []),
    ]


async def _nothing_left(site: Site, unfinished: str) -> None:
    async def idle() -> bool:
        return not await site.value(unfinished)

    await until(idle, seconds=_SETTLED_SECONDS, what="an idle queue", every=0.1)


async def _all_picked_up(tally: Tally, case: Case) -> None:
    async def all_there() -> bool:
        tally.look()
        return len(tally.delays) >= case.jobs

    await until(all_there, seconds=_SETTLED_SECONDS, what=f"{case.jobs} jobs in their handlers")


def _figures(subject: Subject, case: Case, what: str, delays: Sequence[float]) -> list[Figure]:
    common: dict[str, Any] = {"mode": NAME, "case": case.name, "subject": subject.name, "unit": "ms", "better": LOWER}
    return [
        Figure(**common, metric=f"{what} p{share}", value=percentile(delays, share / 100) * 1_000) for share in (50, 99)
    ]


MODE = Mode(name=NAME, title="From submission to handler", cases=cases, measure=measure)
