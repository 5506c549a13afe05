"""How often a source is glanced at, and in which slices its log is walked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.planner.watching import (
    FIRST_SLICE,
    GLANCE_SECONDS,
    QUIET_SECONDS,
    gathered_at,
    glance_seconds,
    next_slice,
)

seconds = st.floats(0, 1e7)


@pytest.mark.parametrize(("rested", "every"), [(0, 1), (30, 1), (60, 2), (300, 10), (1e6, 10)])
def test_the_longer_a_source_rests_the_seldomer_it_is_glanced_at(rested: float, every: float) -> None:
    assert glance_seconds(rested, 10) == every


@given(seconds, seconds)
def test_a_glance_comes_at_least_as_often_as_the_source_asks_and_at_most_once_a_second(
    rested: float, scan: float
) -> None:
    assert GLANCE_SECONDS <= glance_seconds(rested, scan) <= max(scan, GLANCE_SECONDS)


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


def test_one_change_is_gathered_once_it_has_been_quiet() -> None:
    assert gathered_at(NOON, NOON, 30) == NOON + timedelta(seconds=QUIET_SECONDS)


def test_changes_that_go_on_are_gathered_for_as_long_as_the_project_says() -> None:
    assert gathered_at(NOON, NOON + timedelta(seconds=29.5), 30) == NOON + timedelta(seconds=30)


def test_a_project_that_does_not_want_to_wait_does_not() -> None:
    assert gathered_at(NOON, NOON + timedelta(seconds=5), 0) == NOON
