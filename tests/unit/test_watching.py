"""How often a source is polled, and in which slices its log is walked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.planner.policy.watching import (
    FIRST_SLICE,
    POLL_SECONDS,
    QUIET_SECONDS,
    SETTLING_SECONDS,
    gathered_at,
    next_slice,
    poll_seconds,
)

seconds = st.floats(0, 1e7)


@pytest.mark.parametrize(("rested", "every"), [(0, 1), (30, 1), (60, 2), (300, 10), (1e6, 10)])
def test_the_longer_a_source_rests_the_seldomer_it_is_polled(rested: float, every: float) -> None:
    assert poll_seconds(rested, 10) == every


@given(seconds, seconds)
def test_a_poll_comes_at_least_as_often_as_the_source_asks_and_at_most_once_a_second(
    rested: float, scan: float
) -> None:
    assert POLL_SECONDS <= poll_seconds(rested, scan) <= max(scan, POLL_SECONDS)


@given(st.lists(seconds, max_size=40))
def test_slices_stay_bounded_whatever_they_cost(costs: list[float]) -> None:
    size = FIRST_SLICE
    for cost in costs:
        size = next_slice(size, cost)
        assert 1 <= size <= 1024


def test_quick_slices_grow_and_slow_ones_shrink() -> None:
    assert next_slice(64, 0.1) == 128
    assert next_slice(64, 2.0) == 64
    assert next_slice(64, 9.0) == 32


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def later(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


@pytest.mark.parametrize("repaired", [None, later(-60), later(-QUIET_SECONDS)])
def test_what_changes_after_a_calm_is_repaired_almost_at_once(repaired: datetime | None) -> None:
    assert gathered_at(NOON, NOON, repaired, 30) == later(SETTLING_SECONDS)
    assert gathered_at(NOON, later(0.4), repaired, 30) == later(0.4 + SETTLING_SECONDS)


def test_what_changes_again_right_after_its_repair_is_gathered_until_it_is_quiet() -> None:
    assert gathered_at(NOON, NOON, later(-1), 30) == later(QUIET_SECONDS)
    assert gathered_at(NOON, later(7), later(-1), 30) == later(7 + QUIET_SECONDS)


@pytest.mark.parametrize("repaired", [None, later(-1)])
def test_changes_that_go_on_are_gathered_for_as_long_as_the_project_says(repaired: datetime | None) -> None:
    assert gathered_at(NOON, later(29.9), repaired, 30) == later(30)


def test_a_project_that_does_not_want_to_wait_does_not() -> None:
    assert gathered_at(NOON, later(5), later(-1), 0) == NOON
