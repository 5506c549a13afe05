"""Do covered and stale say the truth after every publish and every invalidation?"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.planner.change.coverage import Coverage, invalidated, published
from penstock.values.intervals import NOTHING, IntervalSet, ranges

Publish = Callable[[IntervalSet, IntervalSet, IntervalSet, IntervalSet], Coverage]
Step = tuple[str, IntervalSet, IntervalSet]
positions = st.integers(0, 40)
sets = st.lists(st.tuples(positions, positions), max_size=4).map(IntervalSet.of)
steps = st.lists(st.tuples(st.sampled_from(["publish", "invalidate"]), sets, sets), max_size=8)


def truthful(history: list[Step], publish: Publish) -> bool:
    """Whether covered and stale agree with a position by position account of `history`."""
    covered, stale = NOTHING, NOTHING
    fresh: dict[int, bool] = {}
    for kind, one, lost in history:
        if kind == "invalidate":
            covered, stale = invalidated(covered, stale, one)
            fresh |= {p: False for p in fresh if p in one}
        else:
            covered, stale = publish(covered, stale, one, lost)
            fresh |= {p: p not in lost for p in range(41) if p in one}
    expected = {p for p, is_fresh in fresh.items() if not is_fresh}
    return {p for p in range(41) if p in covered} == set(fresh) and {p for p in range(41) if p in stale} == expected


@given(steps)
def test_stale_is_what_was_computed_from_rows_that_changed_since(history: list[Step]) -> None:
    assert truthful(history, published)


@given(sets, sets, sets)
def test_stale_lies_within_covered(done: IntervalSet, lost: IntervalSet, changed: IntervalSet) -> None:
    covered, stale = published(*invalidated(*published(NOTHING, NOTHING, done, lost), changed), done, changed)
    assert stale - covered == NOTHING


def test_what_changed_while_an_attempt_ran_stays_stale_after_its_publish() -> None:
    assert published(ranges((0, 20)), ranges((5, 15)), ranges((5, 15)), ranges((8, 10))) == (
        ranges((0, 20)),
        ranges((8, 10)),
    )


def test_what_was_never_computed_cannot_be_stale() -> None:
    assert invalidated(ranges((0, 10)), NOTHING, ranges((5, 50))) == (ranges((0, 10)), ranges((5, 10)))


def test_forgetting_what_was_lost_is_found_out() -> None:
    """The negative control: `stale - done` alone marks old rows as fresh."""

    def broken(covered: IntervalSet, stale: IntervalSet, done: IntervalSet, _lost: IntervalSet) -> Coverage:
        return Coverage(covered | done, stale - done)

    history: list[Step] = [("publish", ranges((0, 10)), NOTHING), ("publish", ranges((0, 10)), ranges((3, 5)))]
    assert truthful(history, published)
    with pytest.raises(AssertionError):
        assert truthful(history, broken)
