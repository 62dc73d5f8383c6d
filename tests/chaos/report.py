"""The report of a run, in Markdown: what was done, what was broken, what was found, how long recoveries took."""

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median

from tests.chaos.check_processes import outages
from tests.chaos.findings import CHECKS
from tests.chaos.fleet import LEASE_SECONDS, REAP_SECONDS
from tests.chaos.monitor import STUCK_SECONDS, late_starts, recoveries, repeated_starts
from tests.chaos.run import Outcome

_BOUNDS = (0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, float("inf"))
_BAR = 40


def report(outcome: Outcome) -> str:
    """The whole report."""
    return "\n".join([*_head(outcome), *_done(outcome), *_broken(outcome), *_found(outcome), *_times(outcome)]) + "\n"


def _head(outcome: Outcome) -> list[str]:
    verdict = "nothing that must not be" if not outcome.findings.found else f"{len(outcome.findings.found)} FINDINGS"
    return [
        f"Seed {outcome.seed}, plan {outcome.plan.name}: {verdict}, in {outcome.seconds:.0f} s.",
        "",
        f"{outcome.plan.servers} servers, {outcome.plan.workers} workers by database, {outcome.plan.remotes} over HTTP; "
        f"leases of {LEASE_SECONDS:g} s, reaped every {REAP_SECONDS:g} s.",
        "",
    ]


def _done(outcome: Outcome) -> list[str]:
    evidence = outcome.evidence
    states = Counter(row.state for row in evidence.jobs.values())
    statuses = Counter(str(call.status or "no answer") for call in evidence.calls)
    starts = sum(1 for _ in evidence.facts_of("start"))
    return [
        "| done | |",
        "|---|---|",
        f"| jobs in the tables | {len(evidence.jobs):,} |",
        *(f"| … {state} | {count:,} |" for state, count in states.most_common()),
        f"| requests | {len(evidence.calls):,} |",
        *(f"| … answered {status} | {count:,} |" for status, count in statuses.most_common()),
        f"| handlers started | {starts:,} |",
        f"| effects in transactions of completions | {sum(map(len, evidence.effects.values())):,} |",
        f"| events | {sum(map(len, evidence.events.values())):,} |",
        "",
    ]


def _broken(outcome: Outcome) -> list[str]:
    evidence = outcome.evidence
    crashed = sum(1 for fact in evidence.facts_of("ended") if fact["code"] == 137)
    return [
        "| broken | times |",
        "|---|---|",
        *(f"| {name.replace('_', ' ')} | {count:,} |" for name, count in sorted(outcome.faults.items())),
        f"| connections cut | {outcome.cuts:,} |",
        f"| workers taken along by a handler | {crashed:,} |",
        f"| processes started | {sum(1 for _ in evidence.facts_of('started')):,} |",
        "",
    ]


def _found(outcome: Outcome) -> list[str]:
    counts = outcome.findings.counts
    lines = [
        "| must not be | found |",
        "|---|---|",
        *(f"| {what} | {counts[check]} |" for check, what in CHECKS.items()),
    ]
    if outcome.findings.found:
        lines += ["", "```", outcome.findings.shown(60), "```", "", f"Ledger and logs: {outcome.folder}"]
    return [*lines, ""]


def _times(outcome: Outcome) -> list[str]:
    evidence = outcome.evidence
    causes = repeated_starts(evidence)
    lines = ["| attempts after the first, by what ended the one before | |", "|---|---|"]
    lines += [f"| {cause} | {count:,} |" for cause, count in causes.most_common()]
    lines += [f"| (begun by a paused process after its lease had been taken back: {late_starts(evidence):,}) | |", ""]
    times = recoveries(evidence)
    lines += [
        f"From the end of a lost lease to its being taken back ({len(times):,} of them; the bound is {STUCK_SECONDS:g} s"
        " while anything works):",
        "",
        "```",
        *histogram(times),
        "```",
        "",
    ]
    away = outages(evidence)
    if away:
        back = [after for _, _, after in away]
        lines += [
            f"PostgreSQL was away {len(away)} times. The first job was accepted "
            f"{_spread(back)} after it was back, {_spread([total for _, total, _ in away])} after it went away.",
            "",
        ]
    return lines


def _spread(seconds: Sequence[float]) -> str:
    return f"{median(seconds):.2f} s (median; longest {max(seconds):.2f} s)"


def histogram(seconds: Iterable[float]) -> list[str]:
    """A bar for each range of seconds."""
    counts: Counter[float] = Counter()
    for value in seconds:
        counts[next(bound for bound in _BOUNDS if value <= bound)] += 1
    most = max(counts.values(), default=1)
    lines = []
    lower = 0.0
    for bound in _BOUNDS:
        name = f"{lower:>4g} – {bound:g} s" if bound != float("inf") else f"{lower:>4g} s –"
        bar = "█" * round(counts[bound] / most * _BAR) or ("▏" if counts[bound] else "")
        lines.append(f"{name:<14} {counts[bound]:>7,} {bar}".rstrip())
        lower = bound
    return lines
