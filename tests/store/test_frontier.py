"""The lower bound of a claim: when it is used, when everything is looked at, and that nothing is passed over for long."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.jobs.model import Claimed
from tenure.settings import DatabaseSettings
from tenure.store.claim import claim
from tenure.store.database import Database
from tenure.store.frontier import _DEAR_SECONDS, _MAX_LANES, _WHOLE_SECONDS, Frontier, Lane
from tenure.store.settle import OutcomeKind
from tests.factories import many_queued, queued
from tests.store.claimers import KINDS, PRIORITIES, QUEUES, SERVED, Clock, WatchedFrontier, World

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

        @_settings(150)
        @given(st.integers(0, 8), st.integers(1, len(SERVED)).flatmap(_steps))
        def holds(backlog: int, steps: Sequence[tuple[Any, ...]]) -> None:
            runner.run(play(backlog, steps))

        try:
            holds()
            runner.run(world.begin())
        finally:
            runner.run(world.close())
