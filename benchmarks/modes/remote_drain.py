"""Remote drain: workers that reach the service over HTTP alone (`tenure worker --url`) get through a filled queue.

The others work on the database, as in the mode "drain": there is nothing else that they could do.
"""

from collections.abc import Sequence

from benchmarks.modes import drain
from benchmarks.modes.mode import Case, Mode, Profile
from benchmarks.processes import refuse_dead, running
from benchmarks.results import Figure
from benchmarks.services import tenure_service
from benchmarks.stage import Stage
from benchmarks.subjects import TENURE, TUNED_SLOTS, Subject

NAME = "remote-drain"


def cases(profile: Profile) -> list[Case]:
    return [case for case in drain.cases(profile) if case.tuned and (case.workers == 1 or profile is Profile.FULL)]


async def measure(stage: Stage, subject: Subject, case: Case) -> Sequence[Figure]:
    async with stage.site(subject, tuned=case.tuned) as site:
        await site.fill(case.jobs)
        unfinished = str((await stage.describe(subject, tuned=case.tuned))["unfinished"])
        if subject.name == TENURE:
            async with tenure_service(site, workers=case.workers, remote=True, WORKER_SLOTS=TUNED_SLOTS) as service:
                done = await drain.drained(site, unfinished, seconds=case.seconds, check=service.check)
        else:
            worker = subject.worker(site.database_url, site.folder, tuned=case.tuned)
            async with running([worker] * case.workers, site.folder) as processes:
                done = await drain.drained(
                    site, unfinished, seconds=case.seconds, check=lambda: refuse_dead(processes, site.folder)
                )
    return [drain.figure(NAME, subject, case, done)]


MODE = Mode(name=NAME, title="Drain by workers over HTTP", cases=cases, measure=measure)
