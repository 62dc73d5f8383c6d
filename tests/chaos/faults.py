"""Faults that are seeded on purpose, to see that the harness catches each.

A fault changes the product from outside, in a process of the harness's own (see `builds.py`): it rewrites a statement or
puts another function into the place of one. Where the product has changed so that a fault no longer applies, seeding it
raises, and says so: a fault that is not there cannot be caught.
"""

import asyncio
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from tenure.api import intake
from tenure.jobs.decisions import Decision, Standing
from tenure.jobs.lifecycle import EventType
from tenure.jobs.model import CancelOutcome, NewJob, State
from tenure.maintenance import tasks
from tenure.store import cancel, database, enqueue, reap, settle
from tenure.store.database import Connection, Database
from tenure.store.notify import WORK, Bell, Listener


class FaultDoesNotApplyError(Exception):
    """The product has changed: the fault must be written anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """``seed`` makes this process one that has the fault; ``caught_by`` names the checks of which one must find it."""

    what: str
    seed: Callable[[], None]
    caught_by: frozenset[str]


def put(owner: object, name: str, value: object) -> None:
    """Puts something into the place of what the product calls by this name."""
    if not hasattr(owner, name):
        raise FaultDoesNotApplyError(f"{owner!r} has no {name}")
    setattr(owner, name, value)


def rewrite(pattern: str, replacement: str, *, only: str = "") -> None:
    """Changes every statement that fits, also ``only`` those that contain this text."""
    wanted = re.compile(pattern)
    if not any(only in text and wanted.search(text) for text in _statements()):
        raise FaultDoesNotApplyError(f"no statement fits {pattern!r}")
    original = database.render

    def render(statement: str, schema: str) -> str:
        return original(wanted.sub(replacement, statement) if only in statement else statement, schema)

    put(database, "render", render)


def _statements() -> list[str]:
    modules = [module for name, module in sys.modules.items() if name.startswith("tenure.store.")]
    return [value for module in modules for value in vars(module).values() if isinstance(value, str)]


def _no_token_predicate() -> None:
    rewrite(r"(?<!coalesce\()\bj\.lease_token_digest\s*=\s*", "'' <> ")
    put(settle, "_holds", lambda job, _outcome: job.state is State.RUNNING)


def _no_skip_locked() -> None:
    rewrite(r"\s+SKIP LOCKED", "", only="'leased'")


def _answer_before_commit() -> None:
    write = intake.Intake.enqueue
    writing: set[asyncio.Task[Any]] = set()

    async def hasty(self: intake.Intake, job: NewJob) -> enqueue.Enqueued:
        task = asyncio.create_task(write(self, job))
        writing.add(task)
        task.add_done_callback(writing.discard)
        now = datetime.now(UTC)
        return enqueue.Enqueued(job=enqueue._as_job(job, now, now, job.deadline_at), replayed=False)

    put(intake.Intake, "enqueue", hasty)


def _reap_without_looking_again() -> None:
    put(reap, "_EXPIRED", _without(reap._EXPIRED, "FOR NO KEY UPDATE SKIP LOCKED"))
    rewrite(r"\s+AND \(j\.state, j\.version\) = \(SELECT d\.from_state[^)]*\)", "")
    write = getattr(reap, "apply")  # noqa: B009 - it belongs to another module

    async def late(connection: Connection, decided: Sequence[Any]) -> Any:
        await asyncio.sleep(0.4)
        return await write(connection, decided)

    put(reap, "apply", late)


def _without(text: str, words: str) -> str:
    if words not in text:
        raise FaultDoesNotApplyError(f"no {words!r} in {text!r}")
    return text.replace(words, "")


def _count_attempts_twice() -> None:
    rewrite(r"attempts = j\.attempts \+ 1\b", "attempts = j.attempts + 2", only="'leased'")


def _cancel_blindly() -> None:
    def decide(job: Standing, *, version: int | None, reason: str | None, requested_by: str | None) -> Decision:
        return Decision(
            event=EventType.CANCELED,
            state=State.CANCELED,
            attempts=job.attempts,
            releases=job.releases,
            cancel_outcome=CancelOutcome.PREVENTED,
            cancel_reason=reason,
            cancel_requested_by=requested_by,
        )

    put(cancel, "decide_cancel", decide)


def _heartbeat_by_own_clock() -> None:
    theirs = r"now\(\)(?= \+ interval '1 second' \* j\.lease_length_seconds)"
    mark = "lease_heartbeats = j.lease_heartbeats + 1"
    if not any(mark in text and re.search(theirs, text) for text in _statements()):
        raise FaultDoesNotApplyError("the heartbeat's statement is another one")
    fetch = Connection.fetch

    async def by_own_clock(self: Connection, statement: str, *args: Any) -> Any:
        if mark in statement:
            statement = re.sub(theirs, f"to_timestamp({time.time()!r})", statement)
        return await fetch(self, statement, *args)

    put(Connection, "fetch", by_own_clock)


def _swallow_reaper_errors() -> None:
    work = tasks.reap
    over = False

    async def swallowing(database: Database, bell: Bell) -> int:
        nonlocal over
        if not over:
            try:
                return await work(database, bell)
            except Exception:
                over = True
        return 0

    put(tasks, "reap", swallowing)


def _key_apart() -> None:
    put(intake, "_GROUP_JOBS", 1)  # one statement then commits by itself
    write = enqueue._insert

    async def apart(connection: Connection, pending: dict[int, NewJob], accepted: dict[int, Any]) -> None:
        keyed = {position: job for position, job in pending.items() if job.idempotency_key is not None}
        if keyed:
            await enqueue._find_existing(connection, keyed, accepted, many=False)
        fresh = {position: job for position, job in pending.items() if position not in accepted}
        if not fresh:
            return
        await write(connection, {it: replace(job, idempotency_key=None) for it, job in fresh.items()}, accepted)
        for position, job in fresh.items():
            if position in accepted and job.idempotency_key is not None:
                await connection.execute(
                    "UPDATE tenure.jobs SET idempotency_key = $2, request_digest = $3 WHERE id = $1"
                    " AND NOT EXISTS (SELECT FROM tenure.jobs WHERE idempotency_key = $2)",
                    job.id,
                    job.idempotency_key,
                    job.request_digest,
                )

    put(enqueue, "_insert", apart)


def _listen_once() -> None:
    async def once(self: Listener) -> None:
        async with self._connected():
            self.healthy = True
            self.deliver(WORK, "*")
            await asyncio.Event().wait()

    put(Listener, "run", once)


FAULTS: dict[str, Fault] = {
    "token-predicate-dropped": Fault(
        what="any token settles and renews a running job",
        seed=_no_token_predicate,
        caught_by=frozenset({"stale token", "history"}),
    ),
    "skip-locked-dropped": Fault(
        what="a claim waits for rows that somebody else has locked",
        seed=_no_skip_locked,
        caught_by=frozenset({"refused"}),
    ),
    "commit-after-the-answer": Fault(
        what="an enqueue is answered before it is committed",
        seed=_answer_before_commit,
        caught_by=frozenset({"lost", "unread"}),
    ),
    "reaper-without-re-check": Fault(
        what="the reaper reads which leases have ended, and later writes by id",
        seed=_reap_without_looking_again,
        caught_by=frozenset({"history", "early expiry"}),
    ),
    "attempts-counted-twice": Fault(
        what="a claim counts two attempts",
        seed=_count_attempts_twice,
        caught_by=frozenset({"history"}),
    ),
    "cancel-as-blind-write": Fault(
        what="a cancel writes, whatever state and version the job has",
        seed=_cancel_blindly,
        caught_by=frozenset({"history", "stale version"}),
    ),
    "heartbeat-by-the-applications-clock": Fault(
        what="a heartbeat extends the lease from what the server's own clock says",
        seed=_heartbeat_by_own_clock,
        caught_by=frozenset({"early expiry", "lease length"}),
    ),
    "reaper-error-swallowed": Fault(
        what="the reaper fails once, says nothing, and never works again",
        seed=_swallow_reaper_errors,
        caught_by=frozenset({"stuck"}),
    ),
    "key-in-its-own-transaction": Fault(
        what="the job is committed first, its idempotency key later",
        seed=_key_apart,
        caught_by=frozenset({"duplicate"}),
    ),
    "lost-listen-ignored": Fault(
        what="a process whose LISTEN connection is gone does not notice",
        seed=_listen_once,
        caught_by=frozenset({"deaf"}),
    ),
}
