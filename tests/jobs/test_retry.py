"""Backoff: bounds, jitter, and nonsense refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import ConfigurationError
from tenure.jobs.retry import MAX_DELAY_SECONDS, RetryPolicy


@given(
    base=st.floats(0.001, 100),
    factor=st.floats(1, 100),
    extra=st.floats(0, 10_000),
    attempt=st.integers(1, 32_767),
    random=st.floats(0, 1, exclude_max=True),
)
def test_a_delay_is_never_above_the_cap(base: float, factor: float, extra: float, attempt: int, random: float) -> None:
    policy = RetryPolicy(base_seconds=base, factor=factor, cap_seconds=base + extra)
    assert 0 <= policy.delay_seconds(attempt, random=random) <= base + extra


def test_the_ceiling_doubles_until_the_cap() -> None:
    policy = RetryPolicy(base_seconds=1, factor=2, cap_seconds=10)
    assert [policy.ceiling_seconds(n) for n in range(1, 7)] == [1, 2, 4, 8, 10, 10]


def test_full_jitter_draws_from_the_whole_range() -> None:
    policy = RetryPolicy(base_seconds=10, cap_seconds=60)
    assert policy.delay_seconds(1, random=0.0) == 0
    assert policy.delay_seconds(1, random=0.999) == pytest.approx(9.99)


def test_without_jitter_the_delay_is_the_ceiling() -> None:
    assert RetryPolicy(base_seconds=3, jitter="none").delay_seconds(2, random=0.1) == 6


def test_a_requested_delay_is_a_floor_with_a_little_jitter_on_top() -> None:
    policy = RetryPolicy(base_seconds=2, cap_seconds=60)
    assert policy.delay_seconds(1, random=0.5, at_least_seconds=100) == 101
    assert policy.delay_seconds(1, random=0.5, at_least_seconds=1e12) == MAX_DELAY_SECONDS


@pytest.mark.parametrize(
    "fields",
    [
        {"base_seconds": 0},
        {"base_seconds": -1},
        {"factor": 0.5},
        {"base_seconds": 10, "cap_seconds": 5},
        {"cap_seconds": float("inf")},
        {"base_seconds": float("nan")},
    ],
)
def test_nonsense_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError):
        RetryPolicy(**fields)  # type: ignore[arg-type]
