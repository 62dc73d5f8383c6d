"""WAL: how many bytes of it a job costs, put in and then worked off.

There is no checkpoint before either part, so full page images, which depend on when the last one was, are few. Whatever
else the server writes meanwhile is counted, too: measure on a server of your own.
"""

from collections.abc import Sequence
from typing import Any

from benchmarks.modes import drain
from benchmarks.modes.mode import Case, Mode, Profile
from benchmarks.processes import refuse_dead, running
from benchmarks.results import LOWER, Figure
from benchmarks.stage import Stage
from benchmarks.subjects import Subject

NAME = "wal"


def cases(profile: Profile) -> list[Case]:
    jobs = {Profile.SMOKE: 50, Profile.QUICK: 5_000, Profile.FULL: 20_000}[profile]
    return [Case(name="tuned", jobs=jobs, tuned=True, seconds=60.0)]


async def measure(stage: Stage, subject: Subject, case: Case) -> Sequence[Figure]:
    async with stage.site(subject, tuned=case.tuned) as site:
        unfinished = str((await stage.describe(subject, tuned=case.tuned))["unfinished"])
        # What the first rows of a page and the first use of each index cost is paid here.
        await site.do("fill", f"--jobs={case.jobs}")
        start = await stage.server.wal_bytes()
        await site.do("fill", f"--jobs={case.jobs}")
        filled = await stage.server.wal_bytes()
        worker = subject.worker(site.database_url, site.folder, tuned=case.tuned)
        async with running([worker], site.folder) as processes:
            done = await drain.drained(
                site, unfinished, seconds=case.seconds, check=lambda: refuse_dead(processes, site.folder)
            )
            worked = await stage.server.wal_bytes()
    common: dict[str, Any] = {
        "mode": NAME,
        "case": case.name,
        "subject": subject.name,
        "unit": "B/job",
        "better": LOWER,
        "note": done.note,
    }
    return [
        Figure(**common, metric="put in", value=(filled - start) / case.jobs),
        Figure(**common, metric="claimed and finished", value=(worked - filled) / done.jobs),
    ]


MODE = Mode(name=NAME, title="WAL of a job", cases=cases, measure=measure, rounds=1)
