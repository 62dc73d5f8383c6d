"""The lower bound of a claim: when it is used, when everything is looked at, and that nothing is passed over for long."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.jobs.model import Claimed
from tenure.settings import DatabaseSettings
from tenure.store.claim import claim
from tenure.store.database import Database
from tenure.store.frontier import _DEAR_SECONDS, _MAX_LANES, _SHARE, _WHOLE_SECONDS, Frontier, Lane
from tenure.store.settle import OutcomeKind
from tests.factories import age, many_queued, queued
from tests.store.claimers import KINDS, PRIORITIES, QUEUES, SERVED, Clock, World

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def job(minute: int, *, queue: str = "q", priority: int = 0) -> Claimed:
    """What a frontier reads of a claimed job."""
    at = NOON + timedelta(minutes=minute)
    seen = SimpleNamespace(queue=queue, kind="k", priority=priority, available_at=at, id=UUID(int=minute))
    return cast(Claimed, SimpleNamespace(job=seen))


class Script:
    """Looks that bring what was written down for them, and take so long."""

    def __init__(self, clock: Clock, *brings: Sequence[Claimed], cost_seconds: float = 0.0) -> None:
        self.clock = clock
        self.brings = list(brings)
        self.cost_seconds = cost_seconds
        self.asked: list[tuple[list[Lane], int]] = []

    async def __call__(self, lanes: Sequence[Lane], limit: int) -> list[Claimed]:
        self.clock.seconds += self.cost_seconds
        self.asked.append((list(lanes), limit))
        return list(self.brings.pop(0)) if self.brings else []

    @property
    def wholes(self) -> list[bool]:
        return [not lanes for lanes, _ in self.asked]


async def test_what_was_claimed_in_full_is_the_next_claims_beginning() -> None:
    clock = Clock()
    look, frontier = Script(clock, [job(1), job(2)], [job(3), job(4)]), Frontier(clock=clock)
    assert len(await frontier.claim(look, 2)) == 2
    assert len(await frontier.claim(look, 2)) == 2
    (first, _), (second, _) = look.asked
    assert first == []
    assert [(lane.queue, lane.from_at, lane.from_id) for lane in second] == [
        ("q", NOON + timedelta(minutes=2), UUID(int=2))
    ]


async def test_a_claim_that_had_room_is_followed_by_a_look_at_everything() -> None:
    clock = Clock()
    look, frontier = Script(clock, [job(1), job(2)], [job(3)], [job(4)]), Frontier(clock=clock)
    await frontier.claim(look, 2)
    assert len(await frontier.claim(look, 2)) == 2
    assert look.wholes == [True, False, True]
    assert look.asked[2][1] == 1, "the rest is asked for"
    look.brings = [[]]
    await frontier.claim(look, 2)
    await frontier.claim(look, 2)
    assert look.wholes[-1]


async def test_while_there_is_more_than_asked_for_everything_is_looked_at_once_a_period() -> None:
    clock = Clock()
    look = Script(clock, *[[job(minute)] for minute in range(1, 30)])
    frontier = Frontier(clock=clock)
    for _ in range(10):
        await frontier.claim(look, 1)
        clock.seconds += _WHOLE_SECONDS / 4
    assert [number for number, whole in enumerate(look.wholes) if whole] == [0, 4, 8]


async def test_after_a_dear_look_at_everything_claims_begin_at_the_frontier_for_twenty_times_as_long() -> None:
    clock, dear = Clock(), 2 * _DEAR_SECONDS
    look, frontier = Script(clock, [job(1)], cost_seconds=dear), Frontier(clock=clock)
    await frontier.claim(look, 2)
    look.cost_seconds = 0.0
    for seconds in (0.0, 0.9 * _SHARE * dear, 0.2 * _SHARE * dear):
        clock.seconds += seconds
        await frontier.claim(look, 2)
    assert look.wholes == [True, False, False, False, True]


async def test_however_dear_it_is_everything_is_looked_at_within_the_period() -> None:
    clock = Clock()
    look, frontier = Script(clock, [job(1)], cost_seconds=_WHOLE_SECONDS), Frontier(clock=clock)
    await frontier.claim(look, 2)
    look.cost_seconds = 0.0
    await frontier.claim(look, 2)
    clock.seconds += _WHOLE_SECONDS
    await frontier.claim(look, 2)
    assert look.wholes == [True, False, True]


async def test_a_lanes_beginning_never_goes_back_and_every_lane_has_its_own() -> None:
    clock = Clock()
    claims = [job(5), job(3), job(4, queue="r"), job(2, priority=9)]
    look, frontier = Script(clock, claims, []), Frontier(clock=clock)
    await frontier.claim(look, 4)
    await frontier.claim(look, 4)
    remembered = {(lane.queue, lane.priority): lane.from_id.int for lane in look.asked[1][0]}
    assert remembered == {("q", 0): 5, ("r", 0): 4, ("q", 9): 2}


async def test_of_very_many_lanes_the_last_ones_are_remembered() -> None:
    clock = Clock()
    claims = [job(1, queue=f"q{number}") for number in range(_MAX_LANES + 5)]
    look, frontier = Script(clock, claims, []), Frontier(clock=clock)
    await frontier.claim(look, len(claims))
    await frontier.claim(look, 1)
    assert [lane.queue for lane in look.asked[1][0]] == [f"q{number}" for number in range(5, _MAX_LANES + 5)]


async def test_a_job_that_appears_behind_the_frontier_is_found_at_once_by_a_claim_with_room(database: Database) -> None:
    frontier = Frontier(clock=Clock())
    await many_queued(database, 3)

    async def take(limit: int) -> list[UUID]:
        async with database.connection() as connection:
            claimed = await claim(
                connection,
                worker_id="w",
                queues=["default"],
                limit=limit,
                default_lease_seconds=30.0,
                frontier=frontier,
            )
        return [item.job.id for item in claimed]

    assert len(await take(2)) == 2
    behind = await queued(database)
    async with database.connection() as connection:
        await age(connection, behind, "available_at", timedelta(hours=1))
    assert behind.id not in await take(1), "the frontier is past it, and there is more"
    assert await take(2) == [behind.id]


_WHERE = (st.sampled_from(QUEUES), st.sampled_from(KINDS), st.sampled_from(PRIORITIES))
_COSTS = st.sampled_from([0.0, 0.0, 0.0, _DEAR_SECONDS / 2, 6 * _DEAR_SECONDS, 0.2])
_DELAYS = st.sampled_from([0.0, 3_600.0, -3_600.0])


def _steps(claimers: int) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """What so many claimers live through: claims and pauses above all, for what a frontier hides shows only by them."""
    claims = st.tuples(st.just("claim"), st.integers(0, claimers - 1), st.integers(1, 4), _COSTS)
    waits = st.tuples(st.just("wait"), st.sampled_from([0.1, 0.5, 0.9, _WHOLE_SECONDS]))
    enqueues = st.tuples(st.just("enqueue"), st.integers(1, 6), *_WHERE, _DELAYS)
    clock = st.tuples(st.just("set_clock_back"), st.sampled_from([1.0, 7_200.0]))
    others = st.one_of(
        st.tuples(st.just("enqueue_late"), *_WHERE),
        st.tuples(st.just("commit_late")),
        st.tuples(st.just("make_due"), st.sampled_from([0.0, 60.0, 3_600.0])),
        st.tuples(st.just("lock"), st.integers(1, 4)),
        st.tuples(st.just("unlock")),
        st.tuples(st.just("settle"), st.sampled_from(OutcomeKind)),
        st.tuples(st.just("lose_all")),
        st.tuples(st.just("claim_together"), st.integers(1, 3)),
    )
    return st.lists(
        st.one_of(claims, claims, claims, claims, waits, waits, enqueues, enqueues, clock, others, others),
        min_size=10,
        max_size=40,
    )


def _settings(examples: int) -> settings:
    return settings(max_examples=examples, deadline=None, derandomize=True, database=None)


def test_no_due_job_is_passed_over_for_longer_than_a_period_and_none_is_taken_twice(
    database_settings: DatabaseSettings,
) -> None:
    with asyncio.Runner() as runner:
        world = runner.run(World.open(database_settings))

        async def play(backlog: int, steps: Sequence[tuple[Any, ...]]) -> None:
            await world.begin()
            for number in range(backlog):
                await world.enqueue(4, QUEUES[number % 2], KINDS[number // 2 % 2], PRIORITIES[number // 4 % 2])
            for name, *arguments in steps:
                if name == "wait":
                    world.clock.seconds += arguments[0]
                else:
                    await getattr(world, name)(*arguments)
            await world.drain()

        @_settings(120)
        @given(st.integers(0, 8), st.integers(1, len(SERVED)).flatmap(_steps))
        def holds(backlog: int, steps: Sequence[tuple[Any, ...]]) -> None:
            runner.run(play(backlog, steps))

        try:
            holds()
            runner.run(world.begin())
        finally:
            runner.run(world.close())
