"""What a worker is put through: each scenario a rule of docs/protocol.md, and how to see that it was kept."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tenure.conformance.bench import Bench, RuleBroken
from tenure.conformance.messages import Exchange, Statement

_LONG_SECONDS = 600.0
"""What a worker can get through only by not stopping."""
_RESULTS: Sequence[Any] = ({"answer": 42, "text": 'snow ☃ and "quotes"'}, "a text", [1, 2.5, False], None)
_ATTEMPTS_A_SECOND = 10
"""More than this many requests a second at a service that refuses them is a flood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A rule. ``run`` raises RuleBroken. ``stops_service``: it needs a service that nobody else uses."""

    name: str
    rule: str
    run: Callable[[Bench], Coroutine[Any, Any, None]]
    stops_service: bool = False


async def completes(bench: Bench) -> None:
    before = [await bench.enqueue("succeed", result=result) for result in _RESULTS]
    await bench.start_worker()
    await _done(bench, before, _RESULTS)
    # Also one that comes when there was nothing left to do.
    await _done(bench, [await bench.enqueue("succeed", result="later")], ["later"])


async def fails(bench: Bench) -> None:
    permanent = await bench.enqueue("fail", kind="permanent", message="no such mailbox")
    transient = await bench.enqueue("fail", kind="transient", message="mailbox busy", max_attempts=2)
    await bench.start_worker()
    for job_id, state, kind, message, attempts in (
        (permanent, "failed", "permanent", "no such mailbox", 1),
        (transient, "dead", "transient", "mailbox busy", 2),
    ):
        job = await bench.in_state(job_id, "succeeded", "failed", "dead", what=f"the job that fails ({kind})")
        error = job["last_error"] or {"kind": "success", "message": ""}
        if (job["state"], error["kind"]) != (state, kind):
            raise RuleBroken(f"a failure of kind {kind} was reported as {error['kind']}, and the job is {job['state']}")
        if message not in error["message"]:
            raise RuleBroken(
                f"the message of the failure, {message!r}, is not in what it reported: {error['message']!r}"
            )
        if job["attempts"] != attempts:
            raise RuleBroken(f"the job that fails ({kind}) was attempted {job['attempts']} times instead of {attempts}")


async def keeps_lease(bench: Bench) -> None:
    job_id = await bench.enqueue("sleep", seconds=2.5 * bench.lease_seconds, result="kept")
    await bench.start_worker()
    await _done_at_first_attempt(bench, job_id, "kept", slept_leases=2.5)


async def slow_answers(bench: Bench) -> None:
    bench.proxy.delay_seconds = 0.25 * bench.lease_seconds
    slow = await bench.enqueue("sleep", seconds=1.5 * bench.lease_seconds, result="slow")
    await bench.start_worker()
    await _done_at_first_attempt(bench, slow, "slow", slept_leases=2.5)
    quick = await bench.enqueue("succeed", result="quick")
    await _done_at_first_attempt(bench, quick, "quick", slept_leases=1.0)


async def lost_claim(bench: Bench) -> None:
    bench.proxy.lose("answer", lambda exchange: bool(exchange.granted))
    job_id = await bench.enqueue("succeed", result="second time")
    await bench.start_worker()
    await bench.in_state(
        job_id,
        "succeeded",
        within_seconds=bench.lease_seconds + bench.timing.patience_seconds,
        what="the job that was leased in an answer that got lost",
    )


async def lost_outcome(bench: Bench) -> None:
    bench.proxy.lose("answer", lambda exchange: _settles(exchange))
    heard = await bench.enqueue("succeed", result="told twice")
    await bench.start_worker()
    await _done(bench, [heard], ["told twice"])
    bench.proxy.lose("request", lambda exchange: _settles(exchange))
    unheard = await bench.enqueue("succeed", result="told again")
    job = (await _done(bench, [unheard], ["told again"]))[0]
    if job["attempts"] != 1:
        raise RuleBroken(
            "an outcome whose request got lost was not reported again before the lease ended: it cost the job an attempt"
        )
    for job_id in (heard, unheard):
        told = bench.settles(job_id)
        if any((one.verb, one.outcome) != (told[0].verb, told[0].outcome) for one in told):
            raise RuleBroken(f"after an answer got lost it reported another outcome: {[one.verb for one in told]}")


async def cancel(bench: Bench) -> None:
    job_id = await bench.enqueue("sleep", seconds=_LONG_SECONDS)
    await bench.start_worker()
    await bench.was_kept(job_id)
    await bench.cancel(job_id)
    job = await bench.in_state(
        job_id,
        "canceled",
        "succeeded",
        within_seconds=_two_beats(bench) + bench.timing.patience_seconds / 2,
        what="the job whose cancellation was requested",
    )
    if job["cancellation"]["outcome"] != "stopped":
        outcome = job["cancellation"]["outcome"]
        raise RuleBroken(f"it was asked to stop, and the cancellation came to {outcome} instead of stopped")
    _nothing_after(bench, job_id, lambda one: one.settles and one.status == 200, "after its outcome was taken")
    await _done(bench, [await bench.enqueue("succeed", result="next")], ["next"])


async def lost_lease(bench: Bench) -> None:
    slept = 4 * bench.lease_seconds
    job_id = await bench.enqueue("sleep", seconds=slept, result="stale")
    await bench.start_worker()
    await bench.was_kept(job_id)
    bench.judge_lease_length()
    began_at = bench.granted_at(job_id)
    taken = await bench.take_over(job_id)
    await bench.until(
        lambda: any(one.was_told_lost for one in bench.proxy.statements(job_id)),
        within_seconds=_two_beats(bench) + bench.timing.patience_seconds / 2,
        complaint="it sent no more heartbeats, and so did not learn that its lease was lost",
    )
    other = await bench.enqueue("succeed", result="other")
    await bench.in_state(
        other,
        "succeeded",
        within_seconds=max(began_at + slept - asyncio.get_running_loop().time() - 0.5, 1.0),
        what="it goes on with a job whose lease it has lost; another job, which waits,",
    )
    # Until the job that it should have stopped would have come to its end, and a report with it.
    while asyncio.get_running_loop().time() < began_at + slept + 1.0:
        _nothing_after(bench, job_id, lambda one: one.was_told_lost, "after it was told lease-lost")
        await asyncio.sleep(0.1)
    await bench.complete(taken, "the other one's")
    if (await bench.job(job_id))["result"] != "the other one's":
        raise RuleBroken("what it reported under a lost lease stands")
    await _done(bench, [await bench.enqueue("succeed", result="next")], ["next"])


async def restart(bench: Bench) -> None:
    await bench.start_worker()
    await bench.waits_for_work()
    bench.service.drain()
    seen, drained_at = len(bench.proxy.exchanges), asyncio.get_running_loop().time()
    waiting = await bench.enqueue("succeed", result="waited")
    await asyncio.sleep(1.5)
    refused = [exchange for exchange in bench.proxy.exchanges[seen:] if exchange.status == 503]
    _no_flood([exchange.sent_at for exchange in refused], drained_at, "a service that drains")
    await bench.service.stop()
    stopped_at = asyncio.get_running_loop().time()
    await asyncio.sleep(1.5)
    _no_flood(bench.proxy.refused_at, stopped_at, "a service that is away")
    await bench.service.start()
    await _done(bench, [waiting], ["waited"])
    # And in the middle of a job: its lease may end meanwhile, but the job must come to its end.
    long = await bench.enqueue("sleep", seconds=1.5 * bench.lease_seconds, result="survived")
    await bench.was_kept(long)
    await bench.service.stop()
    await asyncio.sleep(0.3 * bench.lease_seconds)
    await bench.service.start()
    await bench.in_state(
        long,
        "succeeded",
        within_seconds=4 * bench.lease_seconds + bench.timing.patience_seconds,
        what="the job that ran while the service was restarted",
    )


async def sigterm(bench: Bench) -> None:
    job_id = await bench.enqueue("sleep", seconds=2 * bench.lease_seconds, result="in time")
    await bench.start_worker()
    await bench.was_kept(job_id)
    bench.terminate_worker()
    await asyncio.sleep(0.5)
    late = await bench.enqueue("succeed")
    await bench.exited(within_seconds=2 * bench.lease_seconds + bench.timing.patience_seconds)
    for one, what in ((job_id, "the job that it held"), (late, "a job that came after SIGTERM")):
        job = await bench.job(one)
        if job["state"] == "running":
            raise RuleBroken(f"it ended and left {what} to its lease: that costs time and an attempt")
        if job["state"] != "succeeded" and (job["state"], job["attempts"]) != ("queued", 0):
            raise RuleBroken(
                f"{what} is {job['state']} with {job['attempts']} attempts used, neither finished nor released"
            )


async def sigterm_idle(bench: Bench) -> None:
    await bench.start_worker()
    await bench.waits_for_work()
    bench.terminate_worker()
    await bench.exited(within_seconds=bench.timing.patience_seconds)


async def _done(bench: Bench, ids: Sequence[str], results: Sequence[Any]) -> list[dict[str, Any]]:
    jobs = []
    for job_id, result in zip(ids, results, strict=True):
        job = await bench.in_state(job_id, "succeeded", "failed", "dead", what="a job that should succeed")
        if job["state"] != "succeeded":
            error = job["last_error"]
            raise RuleBroken(f"a job that should succeed is {job['state']}: {error['kind']}, {error['message'][:200]}")
        if job["result"] != result:
            raise RuleBroken(f"the result should be {result!r}, and is {job['result']!r}")
        jobs.append(job)
    return jobs


async def _done_at_first_attempt(bench: Bench, job_id: str, result: Any, *, slept_leases: float) -> None:
    limit = slept_leases * bench.lease_seconds + bench.timing.patience_seconds
    spent: list[str] = []

    async def settled() -> bool:
        job = await bench.job(job_id)
        spent.extend(event["type"] for event in job["events"] if event["type"] == "lease_expired")
        return bool(spent) or (job["state"] != "queued" and job["lease"] is None)

    await bench.until(settled, within_seconds=limit, complaint=f"the job did not come to an end in {limit:.0f} s")
    if spent:
        beats = sum(one.verb == "heartbeat" for one in bench.proxy.statements(job_id))
        raise RuleBroken(f"its lease of {bench.lease_seconds:g} s ran out while it worked, after {beats} heartbeats")
    bench.judge_lease_length()
    (job,) = await _done(bench, [job_id], [result])
    if job["attempts"] != 1:
        raise RuleBroken(f"it took {job['attempts']} attempts instead of one")


def _settles(exchange: Exchange) -> bool:
    return exchange.path == "/leases/settle" or exchange.path.endswith(("/complete", "/fail"))


def _two_beats(bench: Bench) -> float:
    return 2 * bench.lease_seconds / 3


def _nothing_after(bench: Bench, job_id: str, last: Callable[[Statement], bool], when: str) -> None:
    """Raises RuleBroken when more was said about the job once the worker had heard the answer to ``last``."""
    said = bench.proxy.statements(job_id)
    ends = [one for one in said if last(one) and one.heard_at is not None]
    for end in ends[:1]:
        assert end.heard_at is not None
        later = [one for one in said if one.token == end.token and one.sent_at > end.heard_at]
        if later:
            raise RuleBroken(f"{when} it still sent: {', '.join(one.verb for one in later[:5])}")


def _no_flood(moments: Sequence[float], since: float, whom: str) -> None:
    times = sorted(moment for moment in moments if moment >= since)
    if len(times) > _ATTEMPTS_A_SECOND and any(
        second - first < 1.0 for first, second in pairwise(times[::_ATTEMPTS_A_SECOND])
    ):
        raise RuleBroken(f"it asked {whom} {len(times)} times in a moment: wait a second between two attempts")


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        name="completes", rule="claims jobs, reports their results as they are, and waits for more", run=completes
    ),
    Scenario(name="fails", rule="reports a failure with its kind and message", run=fails),
    Scenario(name="keeps-lease", rule="keeps a lease by heartbeats for as long as the job takes", run=keeps_lease),
    Scenario(name="slow-answers", rule="works on, and loses no lease, while answers are slow", run=slow_answers),
    Scenario(name="lost-claim", rule="goes on when the answer to a claim is lost", run=lost_claim),
    Scenario(
        name="lost-outcome", rule="repeats an outcome whose answer or request is lost, the same one", run=lost_outcome
    ),
    Scenario(
        name="cancel", rule="stops within a heartbeat of a cancel, says so, and goes on with other work", run=cancel
    ),
    Scenario(
        name="lost-lease",
        rule="stops when its lease is lost, reports nothing, and goes on with other work",
        run=lost_lease,
    ),
    Scenario(
        name="restart",
        rule="outlives a service that drains, is away and comes back, without a flood",
        run=restart,
        stops_service=True,
    ),
    Scenario(name="sigterm", rule="on SIGTERM finishes or releases what it holds, and ends", run=sigterm),
    Scenario(name="sigterm-idle", rule="on SIGTERM ends while it waits for work", run=sigterm_idle),
)
