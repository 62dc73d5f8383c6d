"""Drain: how fast workers get through a queue that was filled before.

The clock runs from the first handler's start until the store says that nothing is unfinished: outcomes that are written in
batches count in full, and the start of processes does not count. A subject that does not get through in its time is
measured by what it did until then, and marked.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.modes.mode import Case, Mode, Profile
from benchmarks.processes import refuse_dead, running
from benchmarks.results import Figure
from benchmarks.stage import Site, Stage, until
from benchmarks.subjects import Subject

NAME = "drain"

_POLL_SECONDS = 0.01
_FIRST_HANDLER_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What workers got through, and in how long."""

    jobs: int
    seconds: float
    complete: bool

    @property
    def rate(self) -> float:
        return self.jobs / self.seconds

    @property
    def note(self) -> str:
        return "" if self.complete else "stopped by its time limit"


async def drained(site: Site, unfinished: str, *, seconds: float, check: Callable[[], None]) -> Drained:
    """Waits for workers that have been started; ``check`` raises when one of them has died."""
    total = int(await site.value(unfinished))
    tally = site.tally()

    async def begun() -> bool:
        check()
        return tally.look() > 0

    await until(begun, seconds=_FIRST_HANDLER_SECONDS, what="the first handler", every=_POLL_SECONDS)
    end = tally.first + seconds
    while tally.look() < total and time.time() < end:
        check()
        await asyncio.sleep(_POLL_SECONDS)
    left = total
    while tally.count >= total and time.time() < end and (left := int(await site.value(unfinished))):
        await asyncio.sleep(_POLL_SECONDS)
    now = time.time()
    done = total if not left else total - int(await site.value(unfinished))
    return Drained(jobs=done, seconds=now - tally.first, complete=not left)


def cases(profile: Profile) -> list[Case]:
    jobs = {Profile.SMOKE: 60, Profile.QUICK: 20_000, Profile.FULL: 60_000}[profile]
    seconds = {Profile.SMOKE: 20.0, Profile.QUICK: 5.0, Profile.FULL: 15.0}[profile]
    both = [
        Case(name="defaults", jobs=jobs, seconds=seconds),
        Case(name="tuned", jobs=jobs, tuned=True, seconds=seconds),
    ]
    if profile is Profile.QUICK:
        return both
    return [*both, Case(name="tuned, 2 processes", jobs=jobs, workers=2, tuned=True, seconds=seconds)]


async def measure(stage: Stage, subject: Subject, case: Case) -> Sequence[Figure]:
    async with stage.site(subject, tuned=case.tuned) as site:
        await site.fill(case.jobs)
        unfinished = str((await stage.describe(subject, tuned=case.tuned))["unfinished"])
        worker = subject.worker(site.database_url, site.folder, tuned=case.tuned)
        async with running([worker] * case.workers, site.folder) as processes:
            done = await drained(
                site, unfinished, seconds=case.seconds, check=lambda: refuse_dead(processes, site.folder)
            )
    return [figure(NAME, subject, case, done)]


def figure(mode: str, subject: Subject, case: Case, done: Drained) -> Figure:
    """The rate at which a queue was drained."""
    return Figure(
        mode=mode,
        case=case.name,
        subject=subject.name,
        metric="rate",
        value=done.rate,
        unit="jobs/s",
        note=done.note,
        details={"jobs": done.jobs, "seconds": round(done.seconds, 3)},
    )


MODE = Mode(name=NAME, title="Drain a filled queue", cases=cases, measure=measure)
