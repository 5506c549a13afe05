"""Which stale ranges are computed again when a source no longer begins or ends where it did?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from observed import OFF, built, chunks, empty, model, observation, orders, partial, source, strict, waits

from penstock.planner.change.consumers import offered
from penstock.planner.readiness import lanes, ready
from penstock.planner.readiness.explain import explain
from penstock.planner.readiness.observation import Observation, Wait
from penstock.planner.readiness.plan import recheck
from penstock.values.intervals import MIN_POSITION, NOTHING, Interval, IntervalSet, ranges
from penstock.values.models import Dependency, Limits, Schedules
from penstock.values.tasks import Order


def repairs(seen: Observation) -> list[tuple[int, int]]:
    return sorted(chunks(seen, "repair"))


def test_rows_deleted_at_the_new_end_are_repaired_although_the_source_ends_before_them() -> None:
    seen = observation(model(strict(10), "s"), source("s", 0, 20), covered=ranges((0, 60)), stale=ranges((35, 60)))
    assert repairs(seen) == [(30, 40), (40, 50), (50, 60)]
    assert not [order for order in orders(seen) if order.lane != "repair"]


def test_a_table_that_begins_later_than_the_one_it_replaced_empties_what_lies_before() -> None:
    seen = observation(model(strict(10), "s"), source("s", 40, 60), covered=ranges((0, 60)), stale=ranges((0, 60)))
    assert repairs(seen)[0] == (0, 10)
    assert len(repairs(seen)) == 6


def test_a_source_that_was_emptied_empties_what_was_built_from_it() -> None:
    seen = observation(model(strict(10), "s"), empty("s"), covered=ranges((0, 20)), stale=ranges((0, 20)))
    assert repairs(seen) == [(0, 10), (10, 20)]


def test_a_look_back_into_a_parent_whose_source_was_emptied_ends_where_the_parent_begins() -> None:
    parent = observation(model(strict(10), "s", name="t.parent"), empty("s"), covered=ranges((20, 60)))
    rolling = model(strict(15), Dependency("t.parent", before=10))
    seen = observation(rolling, offered(parent), covered=ranges((15, 60)), stale=ranges((15, 30)))
    assert repairs(seen) == [(15, 30)]


def test_what_expired_while_it_was_stale_keeps_nobody_waiting() -> None:
    old = replace(source("s", 25, 60), expired=25)
    parent = observation(
        model(strict(10), "s", name="t.parent"), old, covered=ranges((0, 60)), stale=ranges((0, 10), (40, 50))
    )
    child = observation(
        model(strict(20), "t.parent"), offered(parent), covered=ranges((40, 60)), stale=ranges((40, 60))
    )
    assert sorted(chunks(child, "backfill")) == [(0, 20), (20, 40)]
    assert repairs(child) == [], "what can still be repaired is waited for"


def test_a_source_that_was_never_observed_repairs_nothing() -> None:
    unseen = replace(empty("s"), observed=False)
    seen = observation(model(strict(10), "s"), unseen, covered=ranges((0, 20)), stale=ranges((0, 20)))
    assert repairs(seen) == []


def test_what_expired_is_not_made_again_and_says_so() -> None:
    old = replace(source("s", 25, 60), expired=25)
    seen = observation(model(strict(10), "s"), old, covered=ranges((0, 60)), stale=ranges((0, 50)))
    assert repairs(seen) == [(30, 40), (40, 50)], "not the chunk that has lost some of its rows either"
    reason = explain(seen, 12).reason
    assert reason == (
        "waiting for s: its rows before 25 have expired: recomputing would lose what was built from them "
        "(only --reset does that)"
    )
    assert any("have expired" in one.reason for one in waits(seen))


def test_a_chunk_whose_look_back_has_expired_is_not_made_again_and_says_so() -> None:
    old = replace(source("s", 25, 60), expired=25)
    rolling = model(strict(10), Dependency("s", before=20))
    seen = observation(rolling, old, covered=ranges((0, 60)), stale=ranges((20, 60)))
    assert repairs(seen) == [(50, 60)], "[40, 50) was made of rows from 20 on"
    reason = explain(seen, 42).reason
    assert reason == (
        "waiting for s: its rows before 25 have expired: recomputing would lose what was built from them "
        "(only --reset does that)"
    )
    (check,) = explain(seen, 42).readiness_checks
    assert (check.rule, check.value, check.ok) == ("must cover [20, 50)", "lacks [20, 25)", False)
    assert any("have expired" in one.reason for one in waits(seen))


def test_new_chunks_read_what_is_left_of_their_look_back() -> None:
    old = replace(source("s", 25, 60), expired=25)
    rolling = model(strict(10), Dependency("s", before=20))
    seen = observation(rolling, old, covered=ranges((0, 30)), stale=ranges((20, 30)))
    assert chunks(seen, "forward") == [(30, 40), (40, 50), (50, 60)]


def test_an_input_that_is_optional_is_not_made_again_from_what_is_left_of_it_either() -> None:
    old = replace(source("s", 25, 60), expired=25)
    either = model(strict(10), "other", Dependency("s", before=20, optional=True))
    seen = observation(either, source("other", 0, 60), old, covered=ranges((0, 60)), stale=ranges((0, 60)))
    assert repairs(seen) == [(50, 60)]


def test_consumers_do_not_wait_for_a_chunk_whose_look_back_has_expired() -> None:
    old = replace(source("s", 25, 60), expired=25)
    rolling = model(strict(10), Dependency("s", before=20), name="t.parent")
    parent = observation(rolling, old, covered=ranges((0, 60)), stale=ranges((30, 60)))
    assert offered(parent).available == ranges((MIN_POSITION, 50))


def test_the_open_bucket_is_repaired_as_far_as_it_is_covered_or_ready() -> None:
    hourly = model(partial(0, 60, align=60), "s")
    shrunk = observation(hourly, source("s", 0, 5), covered=ranges((0, 100)), stale=ranges((70, 71)))
    assert repairs(shrunk) == [(60, 100)], "not up to 120: those rows are still to come"
    grown = observation(hourly, source("s", 0, 110), covered=ranges((0, 100)), stale=ranges((70, 71)))
    assert repairs(grown) == [(60, 110)]


def test_a_cell_of_which_some_input_is_stale_is_not_computed_from_the_rest() -> None:
    daily = model(strict(24), "p")
    hourly = built("p", (0, 29), (30, 72))
    seen = observation(daily, hourly, covered=ranges((0, 72)), stale=ranges((25, 26), (50, 51)))
    assert repairs(seen) == [(48, 72)]
    assert "waiting for p" in explain(seen, 25).reason


def test_limits_bound_repairs_too() -> None:
    one = model(strict(10), "s", limits=Limits(15, 35))
    seen = observation(one, source("s", 0, 60), covered=ranges((0, 60)), stale=ranges((0, 60)))
    assert IntervalSet.of(repairs(seen)).first == 15


def test_finality_keeps_what_was_built_from_final_rows_repairable_and_the_rest_unbuilt() -> None:
    compacted = model(strict(10), Dependency("s", finality=100))
    seen = observation(compacted, source("s", 0, 200), covered=ranges((0, 100)), stale=ranges((95, 100)))
    assert repairs(seen) == [(90, 100)]
    assert chunks(seen, "forward") == []


def test_a_forward_only_model_repairs_straddled_nested_and_exact_ranges_whole() -> None:
    one = model(strict(60), "s", schedules=Schedules(backfill=OFF))
    seen = observation(one, source("s", 0, 300), covered=ranges((0, 300)))
    for stale, expected in (
        ((100, 200), [(60, 120), (120, 180), (180, 240)]),
        ((70, 80), [(60, 120)]),
        ((60, 120), [(60, 120)]),
    ):
        assert repairs(replace(seen, stale=ranges(stale))) == expected


def test_a_worker_finds_the_same_repair_ready_that_was_planned() -> None:
    seen = observation(model(strict(10), "s"), source("s", 0, 20), covered=ranges((0, 60)), stale=ranges((35, 60)))
    (order,) = (one for one in orders(seen) if one.lane == "repair")
    assert recheck(seen, order) == order
    expired = replace(seen, inputs={"s": replace(source("s", 50, 60), expired=50)})
    found = recheck(expired, order)
    assert isinstance(found, Wait) and "have expired" in found.reason


def test_a_repair_that_reaches_beyond_what_is_covered_needs_its_inputs_there() -> None:
    seen = observation(model(strict(10), "s"), source("s", 0, 20), covered=ranges((0, 25)), stale=ranges((20, 25)))
    found = recheck(seen, Order("t.child", "repair", (Interval(20, 30),), ("s",), "why"))
    assert isinstance(found, Wait)


sets = st.lists(st.tuples(st.integers(0, 59), st.integers(1, 30)), max_size=4).map(
    lambda parts: IntervalSet.of((start, min(start + size, 60)) for start, size in parts)
)


@given(
    st.integers(0, 60), st.integers(0, 60), st.tuples(st.none() | st.integers(0, 60), st.integers(0, 20)), sets, sets
)
def test_every_stale_cell_that_reads_nothing_expired_is_repaired_and_nothing_uncovered_is(
    first: int, end: int, look: tuple[int | None, int], covered: IntervalSet, stale: IntervalSet
) -> None:
    expired, before = look
    covered, stale = covered.outward(6), stale & covered.outward(6)
    seen_source = replace(source("s", first, end), expired=expired) if first < end else empty("s")
    seen = observation(model(strict(6), Dependency("s", before=before)), seen_source, covered=covered, stale=stale)
    lost = NOTHING if first >= end or expired is None else IntervalSet((-100, expired + before))
    expected = stale.outward(6) - (stale.outward(6) & lost).outward(6)
    assert IntervalSet.of(repairs(seen)) == expected


def test_without_the_look_back_a_chunk_is_made_again_from_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a repair that compares only its own beginning with what expired."""
    monkeypatch.setattr(ready, "_eroded", lambda counted, *_: counted)
    with pytest.raises(AssertionError):
        test_a_chunk_whose_look_back_has_expired_is_not_made_again_and_says_so()


def test_without_that_rule_what_was_deleted_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a repair that asks where the source ends now."""
    monkeypatch.setattr(lanes, "repair_readiness", lambda _, found: found)
    with pytest.raises(AssertionError):
        test_rows_deleted_at_the_new_end_are_repaired_although_the_source_ends_before_them()
    with pytest.raises(AssertionError):
        test_a_source_that_was_emptied_empties_what_was_built_from_it()
