"""Checks of what became of the jobs: none lost, none twice, each history legal, each attempt and effect accounted for."""

from collections import Counter, defaultdict

from tests.chaos.evidence import Evidence, Row
from tests.chaos.findings import Findings
from tests.chaos.history import TERMINAL, Story
from tests.chaos.orders import ENDS


def check_jobs(evidence: Evidence, findings: Findings) -> None:
    """All of them."""
    for check in (accepted_jobs, one_job_a_request, ends, histories, starts, effects):
        check(evidence, findings)


def accepted_jobs(evidence: Evidence, findings: Findings) -> None:
    """What a caller was told exists."""
    for call in evidence.calls_of("enqueue", "batch"):
        if call.ok and call.answer is not None:
            for job in call.answer.get("jobs") or [call.answer["job"]]:
                if job not in evidence.jobs:
                    findings.add("lost", f"accepted by {call.name} with {call.status}", job)
    for job in evidence.events:
        if job not in evidence.jobs:
            findings.add("lost", "has a history and no row", job)


def one_job_a_request(evidence: Evidence, findings: Findings) -> None:
    """However often it was asked for, under whatever key."""
    told: dict[str, set[str]] = defaultdict(set)
    for call in evidence.calls_of("enqueue", "batch"):
        if call.ok and call.answer is not None:
            names = call.what.get("ns") or [call.what["n"]]
            for n, job in zip(names, call.answer.get("jobs") or [call.answer["job"]], strict=True):
                told[n].add(job)
    for n, jobs in told.items():
        if len(jobs) > 1:
            findings.add("duplicate", f"request {n} was answered with {len(jobs)} jobs: {sorted(jobs)}")
    for what, counted in (
        ("request", Counter(row.n for row in evidence.jobs.values() if row.n is not None)),
        ("key", Counter(row.idempotency_key for row in evidence.jobs.values() if row.idempotency_key is not None)),
    ):
        for name, count in counted.items():
            if count > 1:
                findings.add("duplicate", f"{what} {name} has {count} jobs")
    for call in evidence.calls_of("enqueue other"):
        if call.ok:
            findings.add("duplicate", f"another body under the key of request {call.what['n']} was accepted")


def ends(evidence: Evidence, findings: Findings) -> None:
    """Every job has ended, as one of its kind may."""
    for row in evidence.jobs.values():
        if row.state not in TERMINAL:
            findings.add("unfinished", f"{row.kind} is {row.state} after {row.attempts} attempt(s)", row.id)
        elif row.state not in _ends_of(row, evidence.stories.get(row.id)):
            findings.add("wrong end", f"{row.kind} is {row.state} ({row.error})", row.id)
        elif row.state == "succeeded" and row.queue != "chaos-held" and row.result != f'"{row.n}"':
            findings.add("wrong end", f"{row.kind} has the result {row.result}", row.id)


def _ends_of(row: Row, story: Story | None) -> set[str]:
    allowed = set(ENDS.get(row.kind, TERMINAL))
    if row.cancel_outcome is not None:
        allowed |= {"canceled"}
    if row.deadline_at is not None and row.error == "deadline":
        allowed |= {"failed"}
    if row.error == "lease_lost" and row.attempts == row.max_attempts:
        allowed |= {"dead"}
    return allowed


def histories(evidence: Evidence, findings: Findings) -> None:
    """Each is legal, and leads to its row."""
    for row in evidence.jobs.values():
        story = evidence.stories.get(row.id)
        if story is None:
            findings.add("history", "there is none", row.id)
            continue
        for what in story.wrong:
            findings.add("history", what, row.id)
        told = (story.state, story.version, story.attempts)
        if told != (row.state, row.version, row.attempts):
            findings.add("history", f"leads to {told}, the row is {(row.state, row.version, row.attempts)}", row.id)
        if row.leased != (row.state == "running") or (row.finished_at is not None) != (row.state in TERMINAL):
            findings.add("history", f"{row.state}, leased: {row.leased}, finished: {row.finished_at}", row.id)
        if story.successes > 1:
            findings.add("second success", f"succeeded {story.successes} times", row.id)


def starts(evidence: Evidence, findings: Findings) -> None:
    """A handler starts once a lease, and never without one."""
    seen: Counter[tuple[str, int]] = Counter()
    for fact in evidence.facts_of("start"):
        job, fence = fact["job"], fact["fence"]
        seen[job, fence] += 1
        story = evidence.stories.get(job)
        if story is None or story.lease_of(fence) is None:
            findings.add("started twice", f"started under version {fence}, which is no lease", job)
    for (job, fence), count in seen.items():
        if count > 1:
            findings.add("started twice", f"the attempt of version {fence} was started {count} times", job)


def effects(evidence: Evidence, findings: Findings) -> None:
    """What was written in the transaction of a success is there if and only if the job succeeded, under its lease."""
    for row in evidence.jobs.values():
        if row.kind != "chaos.effect":
            continue
        fences = list(evidence.effects.get(row.id, ()))
        story = evidence.stories.get(row.id)
        expected: list[int] = []
        if row.state == "succeeded" and story is not None and story.leases:
            expected = [story.leases[-1].fence]
        if fences != expected:
            findings.add("effect", f"{row.state}; effects under {fences}, not {expected}", row.id)
    for job in evidence.effects:
        if job not in evidence.jobs:
            findings.add("effect", "of a job that does not exist", job)
