"""Checks of the processes: none ended by itself, none met what it did not expect, none kept others waiting."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.evidence import Evidence
from tests.chaos.findings import Findings

UNAVAILABLE_SECONDS = 10.0
"""So long after PostgreSQL is back, at most, nothing is accepted."""

CRASHED = 137
"""What `chaos.crash` ends its process with."""

_KILLED, _TERMINATED = -9, 0
_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):$")
_RAISED = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Warning|Group|Exit|Interrupt|Unavailable)\b.*$")


def check_processes(evidence: Evidence, findings: Findings) -> None:
    """All of them."""
    for check in (ends, logs, stuck, availability):
        check(evidence, findings)


def ends(evidence: Evidence, findings: Findings) -> None:
    """A process ends because it was told to, or because a handler took it along."""
    sent: dict[int, set[str]] = defaultdict(set)
    for fact in evidence.facts_of("sent"):
        sent[fact["pid"]].add(fact["signal"])
    for fact in evidence.facts_of("ended"):
        told, code = sent[fact["pid"]], fact["code"]
        meant = (
            ("SIGKILL" in told and code == _KILLED)
            or ("SIGTERM" in told and code in (_TERMINATED, -15))
            or code == CRASHED
        )
        if not meant:
            findings.add("ended", f"{fact['member']} ended with {code}, told {sorted(told) or 'nothing'}")
    for fact in evidence.facts_of("ran"):
        if fact["code"] != 0:
            findings.add("ended", f"{fact['command']} ended with {fact['code']}")


def logs(evidence: Evidence, findings: Findings) -> None:
    """What is logged with a traceback was not expected."""
    for path in evidence.logs:
        for said in tracebacks(path):
            findings.add("log", f"{path.name}: {said}")


def tracebacks(path: Path) -> Iterator[str]:
    """The last line of each traceback, with the line that was logged before it."""
    before, inside, first = "", False, ""
    for line in path.read_text(errors="replace").splitlines():
        if _TRACEBACK.match(line):
            inside, first = True, first if inside else before
        elif inside and _RAISED.match(line):
            yield f"{first.strip()} → {line.strip()[:300]}"
            inside = False
        before = line if line.strip() else before


def stuck(evidence: Evidence, findings: Findings) -> None:
    """The monitor writes down what it finds while the run goes on."""
    for fact in evidence.facts_of("stuck"):
        findings.add("stuck", f"its lease ended {fact['late']:.1f} s ago, and nobody took it back", fact["job"])


def availability(evidence: Evidence, findings: Findings) -> None:
    """After an outage of the database, something is accepted again soon."""
    for outage in outages(evidence):
        if outage[2] > UNAVAILABLE_SECONDS:
            findings.add("unavailable", f"{outage[0]}: nothing was accepted until {outage[2]:.1f} s after it was back")


def outages(evidence: Evidence) -> list[tuple[str, float, float]]:
    """Each outage of PostgreSQL: what it was, and the seconds to the first acceptance from its begin and from its end."""
    accepted = sorted(
        (call.asked_at, float(call.answer["at"]))
        for call in evidence.calls_of("enqueue", "batch")
        if call.ok and call.answer is not None
    )
    found = []
    for fact in evidence.facts_of("outage"):
        begin, end = fact["begin"], fact["at"]
        first = min((at for asked, at in accepted if at > begin and asked >= begin), default=None)
        if first is not None:
            found.append((fact["what"], first - begin, max(first - end, 0.0)))
    return found
