"""Checks of what callers and holders were told: that it was true then, and stayed so."""

from collections import defaultdict
from datetime import UTC, datetime

import orjson

from tests.chaos.evidence import Call, Evidence
from tests.chaos.findings import Findings
from tests.chaos.history import Lease, moment

_SETTLES = ("complete", "fail", "release")
_ENDED_AS = {
    "complete": frozenset({"succeeded"}),
    "fail": frozenset({"retry_scheduled", "failed", "dead", "canceled"}),
    "release": frozenset({"released", "canceled"}),
}

_EXPECTED: dict[str, frozenset[int]] = {
    "enqueue": frozenset({200, 202}),
    "enqueue other": frozenset({422}),
    "batch": frozenset({202}),
    "read": frozenset({200, 404}),
    "list": frozenset({200}),
    "cancel": frozenset({200, 202, 409, 412}),
    "retry": frozenset({202, 409, 412}),
    "claim": frozenset({200}),
    "heartbeat": frozenset({200, 409}),
    **dict.fromkeys(_SETTLES, frozenset({200, 409})),
}

_CLOCKS_SECONDS = 1.0
"""The times of ledger and database come from one machine; between them lies how long a request may take to be served."""


def check_calls(evidence: Evidence, findings: Findings) -> None:
    """All of them."""
    for check in (answers, reads, refusals, tokens, leases, cancellations, prevented):
        check(evidence, findings)


def answers(evidence: Evidence, findings: Findings) -> None:
    """No 5xx but 503 with Retry-After, and nothing that the request did not deserve."""
    for call in evidence.calls:
        status = call.status
        if status is None or call.answer is None:
            continue
        said = f"{call.verb} ({call.name}): {status} {call.answer.get('code')} {call.answer.get('detail')}"
        if status == 503 and call.answer.get("retry_after"):
            continue
        if status >= 500:
            findings.add("http 500", said)
        elif status not in _EXPECTED[call.verb]:
            findings.add("unexpected", said, call.what.get("job"))


def reads(evidence: Evidence, findings: Findings) -> None:
    """What was accepted can be read at once, on any server."""
    accepted: dict[str, float] = {}
    for call in evidence.calls_of("enqueue", "batch"):
        if call.ok and call.answer is not None:
            for job in call.answer.get("jobs") or [call.answer["job"]]:
                accepted.setdefault(job, call.answer["at"])
    for call in evidence.calls_of("read", "cancel"):
        job = call.what["job"]
        if call.status == 404 and accepted.get(job, call.asked_at + 1) < call.asked_at:
            findings.add("unread", f"{call.verb} ({call.name}) after it was accepted: 404", job)


def refusals(evidence: Evidence, findings: Findings) -> None:
    """While nothing is broken, nothing is refused. The ledger says from when to when that was."""
    calm = [(fact["begin"], fact["until"]) for fact in evidence.facts_of("calm")]
    for call in evidence.calls:
        if call.status == 503 or call.status is None:
            until = call.answered_at
            if any(begin <= call.asked_at and until is not None and until <= end for begin, end in calm):
                why = call.answer.get("detail") or call.answer.get("why") if call.answer else None
                findings.add("refused", f"{call.verb} ({call.name}): {call.status} {why}", call.what.get("job"))


def tokens(evidence: Evidence, findings: Findings) -> None:
    """Only the current token counts, one outcome a token, and a repeat is answered as the first time."""
    accepted: dict[tuple[str, str], dict[tuple[str, bytes], set[int]]] = defaultdict(lambda: defaultdict(set))
    for call in evidence.calls_of(*_SETTLES):
        if not call.ok or call.answer is None:
            continue
        job, token = call.what["job"], call.what["token"]
        outcome = call.verb, orjson.dumps(call.what.get("outcome"), option=orjson.OPT_SORT_KEYS)
        accepted[job, token][outcome].add(call.answer["version"])
        event = next((it for it in evidence.events.get(job, ()) if it.version == call.answer["version"]), None)
        if event is None or event.token != token or event.type not in _ENDED_AS[call.verb]:
            told = (
                "nothing"
                if event is None
                else f"{event.type} under another token"
                if event.token != token
                else event.type
            )
            findings.add("stale token", f"{call.verb} ({call.name}) was accepted; the history has {told}", job)
    for (job, _), outcomes in accepted.items():
        if len(outcomes) > 1:
            findings.add("second success", f"one attempt reported {len(outcomes)} outcomes, and all were accepted", job)
        if any(len(versions) > 1 for versions in outcomes.values()):
            findings.add("repeat", "the same outcome was answered with two versions", job)
    for call in evidence.calls_of("heartbeat"):
        lease = _lease(evidence, call)
        if not call.ok:
            continue
        if lease is None or lease.token != call.what["token"]:
            findings.add("stale token", f"a heartbeat ({call.name}) was accepted under no lease", call.what["job"])
        elif lease.ended is not None and lease.ended.at.timestamp() < call.asked_at:
            findings.add(
                "stale token", f"a heartbeat ({call.name}) was accepted after {lease.ended.type}", call.what["job"]
            )


def leases(evidence: Evidence, findings: Findings) -> None:
    """A lease lasts as long as its holder was told, and no longer than its length from the last sign of life."""
    promised: dict[tuple[str, int], datetime] = {}
    lengths: dict[tuple[str, int], float] = {}
    for call in evidence.calls_of("claim"):
        for granted in (call.answer or {}).get("leases", ()):
            key = granted["job"], granted["fence"]
            lengths[key] = call.what["lease_seconds"]
            promised[key] = _promise(granted["expires_at"])
    for call in evidence.calls_of("heartbeat"):
        key = call.what["job"], call.what["fence"]
        if not call.ok or call.answer is None or key not in lengths:
            continue
        until = _promise(call.answer["expires_at"])
        promised[key] = max(promised.get(key, until), until)
        earliest = call.asked_at + lengths[key] - _CLOCKS_SECONDS / 4
        latest = call.answer["at"] + lengths[key] + _CLOCKS_SECONDS
        if not earliest <= until.timestamp() <= latest:
            by = until.timestamp() - call.answer["at"]
            findings.add("lease length", f"a heartbeat ({call.name}) extended {lengths[key]} s to {by:.2f} s", key[0])
    for (job, fence), until in promised.items():
        story = evidence.stories.get(job)
        lease = story.lease_of(fence) if story else None
        if lease is None or lease.ended is None or lease.ended.type != "lease_expired":
            continue
        if lease.ended.at < until:
            findings.add("early expiry", f"taken back at {lease.ended.at}, promised until {until}", job)


def cancellations(evidence: Evidence, findings: Findings) -> None:
    """A cancel acts on the version that it was meant for, and ends as its receipts said."""
    for call in evidence.calls_of("cancel"):
        if not call.ok or call.answer is None:
            continue
        job, version, outcome = call.what["job"], call.what.get("version"), call.answer["outcome"]
        row, events = evidence.jobs.get(job), evidence.events.get(job, ())
        first = next((it for it in events if it.type == "cancel_requested" or _prevents(it.type, it.detail)), None)
        if first is None or row is None:
            findings.add("receipt", f"{call.name} was answered {outcome}; the history has no cancellation", job)
            continue
        if version is not None and version < first.version - 1:
            findings.add("stale version", f"{call.name}, for version {version}, made version {first.version}", job)
        became = row.cancel_outcome
        fits = {"stopped", "finished_first", "unconfirmed", "requested"} if outcome == "requested" else {outcome}
        if became not in fits:
            findings.add("receipt", f"{call.name} was answered {outcome}; it became {became}", job)


def prevented(evidence: Evidence, findings: Findings) -> None:
    """What was prevented never starts. (An attempt that had been leased before may: its holder was paused.)"""
    at: dict[str, float] = {}
    for call in evidence.calls_of("cancel"):
        if call.ok and call.answer is not None and call.answer["outcome"] == "prevented":
            at.setdefault(call.what["job"], call.answer["at"])
    for fact in evidence.facts_of("start"):
        job = fact["job"]
        if job not in at:
            continue
        canceled = next((it for it in evidence.events.get(job, ()) if it.type == "canceled"), None)
        if canceled is not None and fact["fence"] > canceled.version:
            findings.add("start after prevented", f"started under version {fact['fence']}", job)


def _prevents(name: str, detail: dict[str, object]) -> bool:
    return name == "canceled" and detail.get("outcome") == "prevented"


def _lease(evidence: Evidence, call: Call) -> Lease | None:
    story = evidence.stories.get(call.what["job"])
    return story.lease_of(call.what["fence"]) if story else None


def _promise(text: str) -> datetime:
    found = moment(text)
    assert found is not None
    return found.astimezone(UTC)
