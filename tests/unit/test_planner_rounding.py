"""Are scattered repairs computed together where that is cheaper, and never for more than all of it at once?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from observed import chunks, model, observation, orders, partial, source, strict

from penstock.planner.readiness import lanes
from penstock.planner.readiness.explain import explain
from penstock.planner.readiness.observation import Observation
from penstock.planner.readiness.plan import recheck
from penstock.planner.readiness.rounding import QUERY_BYTES, Price, rounded
from penstock.values.intervals import Interval, IntervalSet, ranges

HOUR = 3600


def scattered(count: int, every: int, start: int = 0) -> IntervalSet:
    return ranges(*((start + n * every, start + n * every + 1) for n in range(count)))


def cursor(stale: IntervalSet, per_position: float = 0.0, **more: object) -> Observation:
    """A model that takes whatever is there, up to an hour, over a year."""
    year = 365 * 24 * HOUR
    read = replace(source("s", 0, year), bytes_per_position=per_position)
    return observation(model(partial(0, HOUR), "s", **more), read, covered=ranges((0, year)), stale=stale)


def test_late_rows_in_one_hour_are_one_chunk() -> None:
    seen = cursor(scattered(20, 150, start=10 * HOUR))
    assert chunks(seen, "repair") == [(10 * HOUR, 10 * HOUR + 19 * 150 + 1)]
    (order,) = orders(seen)
    assert "20 changed ranges; neighbouring ranges are computed together" in order.reason


@pytest.mark.parametrize("widens", [True, False])
def test_an_update_all_over_a_year_is_no_more_work_than_the_year(widens: bool) -> None:
    seen = cursor(scattered(4000, 7000), per_position=1.0, widens=widens)
    tasks, whole = len(orders(seen)), len(orders(cursor(ranges((0, 4000 * 7000)), 1.0, widens=widens)))
    assert tasks <= whole * 1.2


def test_far_apart_and_full_of_rows_they_stay_apart() -> None:
    seen = cursor(scattered(2, 24 * HOUR), per_position=QUERY_BYTES)
    assert sorted(chunks(seen, "repair")) == [(0, 1), (24 * HOUR, 24 * HOUR + 1)]
    (order,) = orders(seen)
    assert "as one span" not in order.reason


def test_a_gap_that_is_not_covered_or_is_under_way_is_left_out() -> None:
    stale = ranges((0, 1), (100, 101), (200, 201))
    seen = replace(cursor(stale), covered=ranges((0, 50), (60, 1000)))
    assert sorted(chunks(seen, "repair")) == [(0, 1), (100, 201)]
    busy = replace(cursor(stale), in_flight=ranges((150, 160)))
    assert sorted(chunks(busy, "repair")) == [(0, 101), (200, 201)]


def test_what_expired_between_two_repairs_is_not_made_again() -> None:
    seen = cursor(ranges((100, 101), (300, 301)))
    expired = replace(seen, inputs={"s": replace(seen.inputs["s"], expired=200)})
    assert chunks(expired, "repair") == [(300, 301)]


def test_the_open_cell_is_left_to_forward() -> None:
    one = model(partial(0, 600, align=60), "s")
    seen = observation(one, source("s", 0, 400), covered=ranges((0, 130), (180, 330)), stale=ranges((0, 1), (185, 186)))
    assert sorted(chunks(seen, "repair")) == [(0, 60), (180, 240)], "between them something was never computed"


def test_a_strict_model_computes_its_stale_cells_and_no_other() -> None:
    for widens in (True, False):
        seen = observation(
            model(strict(10), "s", widens=widens),
            replace(source("s", 0, 100), bytes_per_position=1.0),
            covered=ranges((0, 100)),
            stale=ranges((0, 10), (30, 31), (40, 50)),
        )
        assert sorted(chunks(seen, "repair")) == [(0, 10), (30, 40), (40, 50)]


@pytest.mark.parametrize(("stale", "spans"), [(30, 30), (300, 1)])
def test_very_many_cells_are_computed_with_those_between_them(stale: int, spans: int) -> None:
    """A file each, and as many holes in the files of the others, is more work than a month at once."""
    hours, every = 720, 720 // stale
    seen = observation(
        model(strict(HOUR), "s", widens=True),
        replace(source("s", 0, hours * HOUR), bytes_per_position=2.0),
        covered=ranges((0, hours * HOUR)),
        stale=scattered(stale, every * HOUR),
    )
    assert len(IntervalSet.of(chunks(seen, "repair"))) == spans


def test_explain_knows_the_span_that_a_fresh_position_is_computed_again_with() -> None:
    seen = cursor(ranges((10, 11), (30, 31)))
    assert explain(seen, 20).chunk == Interval(10, 31)
    assert explain(seen, 20).decision == "enqueue"
    assert explain(seen, 9).decision == "wait"


sets = st.lists(st.tuples(st.integers(0, 400), st.integers(1, 40)), max_size=12).map(
    lambda parts: IntervalSet.of((start, start + size) for start, size in parts)
)
prices = st.builds(Price, st.integers(1, 60), st.sampled_from([0.0, 1.0, QUERY_BYTES / 10, QUERY_BYTES]), st.booleans())


@given(sets, sets, prices)
def test_rounding_holds_all_that_is_stale_and_nothing_without_room(
    wanted: IntervalSet, room: IntervalSet, price: Price
) -> None:
    found = rounded(wanted, room | wanted, price)
    assert not wanted - found
    assert not found - wanted - room
    assert price.of(rounded(found, room | wanted, price)) <= price.of(found), "again it gets no worse"


@given(sets, prices)
def test_rounding_costs_no_more_than_the_whole_span_or_than_every_part_alone(wanted: IntervalSet, price: Price) -> None:
    if not wanted:
        return
    whole = IntervalSet((wanted.edges[0], wanted.edges[-1]))
    found = rounded(wanted, whole, price)
    if price.per_position:
        assert price.of(found) <= price.of(whole)
    assert price.of(found) <= price.of(wanted) + QUERY_BYTES * (len(wanted) > 1)


@given(sets, st.integers(1, 40), st.booleans())
def test_a_rounded_repair_passes_its_recheck(stale: IntervalSet, size: int, widens: bool) -> None:
    read = replace(source("s", 0, 500), bytes_per_position=1.0)
    seen = observation(model(partial(0, size), "s", widens=widens), read, covered=ranges((0, 500)), stale=stale)
    found = [order for order in orders(seen) if order.lane == "repair"]
    for order in found:
        assert recheck(seen, order) == order
    assert all(chunk.size <= size for order in found for chunk in order.chunks)
    assert not stale - IntervalSet.of(chunk for order in found for chunk in order.chunks)


def test_without_rounding_an_update_of_a_year_is_many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control."""
    monkeypatch.setattr(lanes, "rounded", lambda wanted, room, price: wanted)
    with pytest.raises(AssertionError):
        test_late_rows_in_one_hour_are_one_chunk()
    stale = scattered(4000, 1000)
    assert len(orders(cursor(stale, 1.0))) == 125
    monkeypatch.undo()
    assert len(orders(cursor(stale, 1.0))) < 40
    assert Interval(0, 1) not in orders(cursor(stale, 1.0))[-1].chunks
