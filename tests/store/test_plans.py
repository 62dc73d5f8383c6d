"""How PostgreSQL runs each statement on a large database: by which index, and over how many rows and pages.

Every statement of the store that meets jobs, events or artifacts has a case here; a new one without a case fails.
"""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import pytest

from tenure.jobs.decisions import ReportedError
from tenure.jobs.model import Claimed, ErrorKind, State
from tenure.settings import DatabaseSettings
from tenure.store import artifacts, prune
from tenure.store.cancel import cancel
from tenure.store.claim import KindSelector, claim
from tenure.store.database import Connection, Executor, close_quietly, connect, render
from tenure.store.enqueue import enqueue
from tenure.store.frontier import Frontier
from tenure.store.heartbeat import Heartbeat, heartbeat
from tenure.store.inspect import JobFilter, events, get, list_jobs, marks
from tenure.store.reap import expire_deadlines, reap_expired
from tenure.store.retry import retry
from tenure.store.settle import Outcome, OutcomeKind, settle
from tenure.store.workers import held_by, list_workers
from tests.factories import half, new_job, policy_of
from tests.store.crowd import (
    DEAD,
    ENDED,
    FINISHED,
    MANY,
    ROUND,
    RUNNING,
    RUNS,
    WAITING,
    crowded,
    job_id,
)
from tests.store.explaining import Explaining, rows_read, rows_sorted
from tests.store.test_statements import STATEMENTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The same transaction, twice: as it is, and with every statement explained."""

    plain: Connection
    watched: Connection
    explaining: Explaining
    settings: DatabaseSettings


Act = Callable[[Stage], Awaitable[Any]]

LISTING = "inspect.list_jobs"
"""Put together for what is asked: a statement without a constant."""

_NAMES = {render(statement, "tenure"): name for name, statement in STATEMENTS.items()}


def name_of(query: str) -> str:
    return _NAMES.get(query, LISTING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is done, which statements that must execute, by which of the jobs' indexes alone, and over how many rows."""

    act: Act
    statements: tuple[str, ...]
    indexes: frozenset[str]
    rows: int = 5 * ROUND
    tables: tuple[str, ...] = ("jobs", "events", "artifacts")
    not_yet: str = ""
    """Why it does not hold: the test fails when it begins to."""


@pytest.fixture(scope="module")
def crowd(server_url: str) -> Iterator[DatabaseSettings]:
    with crowded(server_url) as settings:
        yield settings


@pytest.fixture
async def stage(crowd: DatabaseSettings) -> AsyncIterator[Stage]:
    """A connection as the service opens it, in a transaction that is rolled back."""
    raw = await connect(crowd, "tenure test")
    explaining = Explaining(raw)
    around = raw.transaction()
    await around.start()
    try:
        yield Stage(
            plain=Connection(executor=cast(Executor, raw)),
            watched=Connection(executor=explaining),
            explaining=explaining,
            settings=crowd,
        )
    finally:
        await around.rollback()
        await close_quietly(raw)


async def take(
    connection: Connection,
    queue: str,
    *,
    limit: int = ROUND,
    kinds: Sequence[str] | None = ("crowd.plain",),
    **options: Any,
) -> list[Claimed]:
    return await claim(
        connection,
        worker_id="holder-1",
        queues=[queue],
        limit=limit,
        kinds=None if kinds is None else [KindSelector(kind=kind) for kind in kinds],
        default_lease_seconds=30.0,
        **options,
    )


def some(sort: int, count: int = ROUND) -> list[Any]:
    """Jobs of that sort, from all over it."""
    return [job_id(sort, number) for number in random.Random(7).sample(range(1, MANY), count)]


def held(sort: int = RUNS) -> list[tuple[Any, str]]:
    """Jobs that run, with their tokens."""
    return [(job_id(sort, number), str(number)) for number in range(3, 3 + ROUND)]


async def claims(stage: Stage) -> None:
    assert len(await take(stage.watched, "waiting")) == ROUND


async def claims_any_kind(stage: Stage) -> None:
    assert len(await take(stage.watched, "waiting", kinds=None)) == ROUND


async def claims_from_a_frontier(stage: Stage) -> None:
    frontier = Frontier()
    for _ in range(3):
        assert len(await take(stage.plain, "waiting", limit=MANY // 100, frontier=frontier)) == MANY // 100
    assert len(await take(stage.watched, "waiting", frontier=frontier)) == ROUND


async def claims_beside_locked_rows(stage: Stage) -> None:
    other = await connect(stage.settings, "tenure test")
    try:
        async with other.transaction():
            await other.execute(
                "SELECT 1 FROM tenure.jobs AS j WHERE j.part = 0 AND j.queue = 'few' AND j.state = 'queued' AND j.priority = 5"
                " ORDER BY j.id FOR UPDATE"
            )
            assert len(await take(stage.watched, "few")) == ROUND // 2
    finally:
        await close_quietly(other)


async def enqueues_anew_and_again(stage: Stage) -> None:
    fresh = [new_job() for _ in range(500)]
    keyed = [new_job(idempotency_key=f"key-{number}") for number in range(1, 1 + ROUND)]
    accepted = await enqueue(stage.watched, [*fresh, *keyed])
    assert [item.replayed for item in accepted] == [False] * len(fresh) + [True] * len(keyed)


async def completes(stage: Stage) -> None:
    outcomes = [Outcome(job_id=job, token=token, kind=OutcomeKind.COMPLETE, result="1") for job, token in held()]
    await settle(stage.watched, outcomes, policy_of=policy_of, random=half)


async def fails(stage: Stage) -> None:
    error = ReportedError(kind=ErrorKind.TRANSIENT, message="it broke")
    outcomes = [Outcome(job_id=job, token=token, kind=OutcomeKind.FAIL, error=error) for job, token in held()]
    await settle(stage.watched, outcomes, policy_of=policy_of, random=half)


async def settles_what_it_no_longer_holds(stage: Stage) -> None:
    outcomes = [Outcome(job_id=job, token="gone", kind=OutcomeKind.COMPLETE) for job in some(FINISHED)]
    await settle(stage.watched, outcomes, policy_of=policy_of, random=half)


async def beats(stage: Stage) -> None:
    await heartbeat(stage.watched, [Heartbeat(job_id=job, token=token) for job, token in held()])


async def beats_on_a_row_that_somebody_locks_for_a_moment(stage: Stage) -> None:
    other = await connect(stage.settings, "tenure test")
    try:
        lock = other.transaction()
        await lock.start()
        await other.execute("SELECT 1 FROM tenure.jobs AS j WHERE j.part = 0 AND j.id = $1 FOR UPDATE", held()[0][0])

        async def let_go(query: str) -> None:
            if name_of(query) == "heartbeat._HEARTBEAT":
                await lock.rollback()

        stage.explaining.before = let_go
        await beats(stage)
    finally:
        await close_quietly(other)


async def cancels_and_retries(stage: Stage) -> None:
    await cancel(stage.watched, job_id(WAITING, MANY // 2))
    await retry(stage.watched, job_id(ENDED, DEAD // 2))


async def reaps(stage: Stage) -> None:
    assert len(await reap_expired(stage.watched, limit=ROUND)) == ROUND


async def fails_the_late(stage: Stage) -> None:
    assert len(await expire_deadlines(stage.watched, limit=ROUND)) == ROUND


async def prunes(stage: Stage) -> None:
    await prune.prune(stage.watched, dict.fromkeys(State, timedelta(days=1)), limit=ROUND)


async def reads(stage: Stage) -> None:
    for job in (job_id(FINISHED, MANY // 2), job_id(RUNS, RUNNING // 2)):
        await get(stage.watched, job)
        await get(stage.watched, job, body=False)
        await events(stage.watched, job)
    await marks(stage.watched, some(FINISHED))


async def registers_and_finds_artifacts(stage: Stage) -> None:
    job = job_id(RUNS, 1)
    file = artifacts.Artifact(name="a", location="a/b", bytes=1, rows=None, sha256="00", content_type="text/plain")
    await artifacts.register(stage.watched, job, [file])
    await artifacts.find(stage.watched, job)
    objects = [artifacts.StoredObject(job_id=one, attempt_version=2, location="x") for one in [job, *some(FINISHED)]]
    await artifacts.still_wanted(stage.watched, objects)


async def lists_workers(stage: Stage) -> None:
    await list_workers(stage.watched)
    await held_by(stage.watched, "holder-1")


def listing(**wanted: Any) -> Act:
    async def lists(stage: Stage) -> None:
        assert len(await list_jobs(stage.watched, JobFilter(**wanted), limit=ROUND)) == ROUND

    return lists


PKEY = frozenset({"jobs_pkey"})
CLAIM = frozenset({"jobs_claim", "jobs_pkey"})
RUNS_NOW = frozenset({"jobs_running"})

CASES = {
    "claim": Case(act=claims, statements=("claim._CLAIM",), indexes=CLAIM),
    "claim of any kind": Case(act=claims_any_kind, statements=("claim._CLAIM",), indexes=CLAIM),
    "claim from a frontier": Case(act=claims_from_a_frontier, statements=("claim._CLAIM",), indexes=CLAIM),
    "contended claim": Case(
        act=claims_beside_locked_rows, statements=("claim._CLAIM", "claim._CLAIM_CONTENDED"), indexes=CLAIM
    ),
    "enqueue": Case(
        act=enqueues_anew_and_again,
        statements=("enqueue._INSERT", "enqueue._EXISTING"),
        indexes=frozenset({"jobs_idempotency_key"}),
    ),
    "complete": Case(act=completes, statements=("settle._COMPLETE",), indexes=PKEY | RUNS_NOW),
    "fail": Case(act=fails, statements=("apply._LOCK", "apply._APPLY"), indexes=PKEY),
    "settle too late": Case(
        act=settles_what_it_no_longer_holds,
        statements=("settle._COMPLETE", "refusals._ENDINGS"),
        indexes=PKEY | RUNS_NOW,
    ),
    "heartbeat": Case(act=beats, statements=("heartbeat._HEARTBEAT_UNLOCKED",), indexes=PKEY | RUNS_NOW),
    "heartbeat beside a lock": Case(
        act=beats_on_a_row_that_somebody_locks_for_a_moment,
        statements=("heartbeat._HEARTBEAT_UNLOCKED", "refusals._ENDINGS", "heartbeat._HEARTBEAT"),
        indexes=PKEY | RUNS_NOW,
    ),
    "cancel and retry": Case(
        act=cancels_and_retries,
        statements=("apply._LOCK", "apply._APPLY", "inspect._GET", "inspect._GET_WITHOUT_BODY"),
        indexes=PKEY,
    ),
    "reap": Case(
        act=reaps, statements=("reap._EXPIRED", "apply._APPLY"), indexes=PKEY | RUNS_NOW, rows=RUNNING + 5 * ROUND
    ),
    "deadlines": Case(
        act=fails_the_late,
        statements=("reap._PAST_DEADLINE", "apply._APPLY"),
        indexes=PKEY | {"jobs_deadline"},
    ),
    "retention": Case(
        act=prunes,
        statements=tuple(f"prune.{state}" for state in State),
        # Where a state has next to no jobs, any index of them will do.
        indexes=PKEY | {"jobs_finished", "jobs_ended_badly"},
        tables=("jobs", "events"),
    ),
    "retention of artifacts": Case(
        act=prunes,
        statements=("prune.succeeded",),
        indexes=PKEY | {"jobs_finished"},
        tables=("artifacts",),
    ),
    "read": Case(
        act=reads,
        statements=("inspect._GET", "inspect._GET_WITHOUT_BODY", "inspect._EVENTS", "inspect._MARKS"),
        indexes=PKEY,
    ),
    "artifacts": Case(
        act=registers_and_finds_artifacts,
        statements=("artifacts._REGISTER", "artifacts._FIND", "artifacts._WANTED"),
        indexes=PKEY | RUNS_NOW,
    ),
    "workers": Case(
        act=lists_workers,
        statements=("workers._LIST", "workers._HOLDS"),
        indexes=RUNS_NOW,
        rows=RUNNING + 5 * ROUND,
    ),
    "list": Case(act=listing(), statements=(LISTING,), indexes=PKEY),
    "list the newest state": Case(act=listing(states=(State.QUEUED,)), statements=(LISTING,), indexes=PKEY),
    "list an old state": Case(
        act=listing(states=(State.SUCCEEDED,)),
        statements=(LISTING,),
        indexes=PKEY | {"jobs_finished"},
        not_yet="no index holds succeeded jobs by id: the page passes over all that are newer",
    ),
    "list by running": Case(act=listing(states=(State.RUNNING,)), statements=(LISTING,), indexes=RUNS_NOW),
    "list by worker": Case(
        act=listing(worker_ids=("holder-1",)), statements=(LISTING,), indexes=RUNS_NOW, rows=RUNNING + 5 * ROUND
    ),
    "list the newest queue": Case(act=listing(queues=("few",)), statements=(LISTING,), indexes=PKEY),
    "list an old queue": Case(
        act=listing(queues=("waiting",)),
        statements=(LISTING,),
        indexes=PKEY,
        not_yet="no index holds a queue's jobs by id: the page passes over all that are newer",
    ),
    "list by key": Case(
        act=listing(concurrency_keys=("account-7",)),
        statements=(LISTING,),
        indexes=frozenset({"jobs_concurrency_key"}),
    ),
    "list the dead": Case(
        act=listing(states=(State.DEAD,)), statements=(LISTING,), indexes=frozenset({"jobs_ended_badly"})
    ),
    "list the dead by fingerprint": Case(
        act=listing(states=(State.DEAD,), fingerprints=("print-500",)),
        statements=(LISTING,),
        indexes=frozenset({"jobs_error_fingerprint"}),
    ),
}


def test_every_statement_has_a_case() -> None:
    assert {name for case in CASES.values() for name in case.statements} - {LISTING} == set(STATEMENTS) - {
        "prune._PRUNE"
    }


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.xfail(reason=case.not_yet, strict=True)] if case.not_yet else [])
        for name, case in CASES.items()
    ],
)
async def test_it_goes_by_its_indexes_over_few_rows(stage: Stage, name: str) -> None:
    case = CASES[name]
    await case.act(stage)
    assert set(case.statements) <= {name_of(plan.query) for plan in stage.explaining.plans}
    for plan in stage.explaining.plans:
        for table in case.tables:
            for node in plan.scans(table):
                assert "Index" in node["Node Type"], f"{table} is read whole:\n{plan}"
                assert "Index Cond" in node, f"{table}: an index is read from end to end:\n{plan}"
                assert rows_read(node) <= case.rows, f"{table}: {rows_read(node)} rows are read:\n{plan}"
        assert plan.indexes("jobs") <= case.indexes, f"another index than {sorted(case.indexes)}:\n{plan}"
        for node in plan.sorts():
            assert rows_sorted(node) <= max(case.rows, 600), f"{rows_sorted(node)} rows are sorted:\n{plan}"


async def test_a_claim_among_many_costs_as_much_as_one_among_few(stage: Stage) -> None:
    for queue in ("few", "waiting"):
        assert len(await take(stage.watched, queue)) == ROUND
    few, many = stage.explaining.plans
    assert many.buffers <= 3 * few.buffers, f"{few}\n\n{many}"


@pytest.mark.parametrize("queue", ["finished", "future", "mixed"])
@pytest.mark.parametrize("kinds", [("crowd.nobody",), ("crowd.a", "crowd.z")])
async def test_a_claim_beside_many_that_it_cannot_take_costs_as_much_as_one_beside_none(
    stage: Stage, queue: str, kinds: Sequence[str]
) -> None:
    for name in ("nowhere", queue):
        assert await take(stage.watched, name, kinds=kinds) == []
    none, many = stage.explaining.plans
    assert many.buffers <= 3 * none.buffers, f"{none}\n\n{many}"


async def test_many_jobs_of_the_asked_kind_that_are_not_due_cost_a_claim_nothing(stage: Stage) -> None:
    for queue in ("nowhere", "future"):
        assert await take(stage.watched, queue) == []
    none, many = stage.explaining.plans
    assert many.buffers <= 3 * none.buffers, f"{none}\n\n{many}"
