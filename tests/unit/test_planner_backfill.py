"""How are gaps and stale ranges filled, and which chunks go together?"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from observed import (
    OFF,
    built,
    chunks,
    model,
    observation,
    orders,
    partial,
    source,
    strict,
    waits,
)

from penstock.planner.readiness.batches import Caps
from penstock.planner.readiness.explain import explain
from penstock.planner.readiness.lanes import gaps_to_fill
from penstock.planner.readiness.ready import gaps
from penstock.values.intervals import IntervalSet, ranges
from penstock.values.models import Dependency, Fill, Limits, Schedules


def test_b5_a_source_whose_first_row_moves_through_covered_ground_is_no_work() -> None:
    for first in range(100):
        for covered in (ranges((0, 200)), ranges((0, 300))):
            seen = observation(model(strict(100), "s"), source("s", first, 299), covered=covered)
            assert chunks(seen) == []


def test_b12_a_model_that_only_backfills_can_begin() -> None:
    one = model(partial(0, 1000), "s", schedules=Schedules(forwardfill=OFF))
    assert [order.lane for order in orders(observation(one, source("s", 0, 500)))] == ["backfill"]
    assert chunks(observation(one, source("s", 0, 500))) == [(0, 500)]


def test_b13_a_gap_smaller_than_the_minimum_is_run_as_it_is() -> None:
    one = model(partial(10, 100), "s")
    assert chunks(observation(one, source("s", 0, 300), covered=ranges((5, 300)))) == [(0, 5)]


def test_b13_a_long_gap_is_cut_to_the_maximum() -> None:
    year = 365 * 86400
    seen = observation(model(partial(0, 3600), "s"), source("s", 0, year + 10), covered=ranges((year, year + 10)))
    found = chunks(seen)
    assert len(found) == 8760
    assert max(end - start for start, end in found) == 3600


def test_a_gap_of_half_a_chunk_is_one_short_chunk_or_the_whole_aligned_one() -> None:
    covered = ranges((0, 60), (90, 120))
    assert chunks(observation(model(partial(0, 60), "s"), source("s", 0, 120), covered=covered)) == [(60, 90)]
    assert chunks(observation(model(strict(60), "s"), source("s", 0, 120), covered=covered)) == [(60, 120)]


def test_gaps_are_filled_newest_first_by_default() -> None:
    one = model(partial(0, 10), "s")
    seen = observation(one, source("s", 0, 100), covered=ranges((25, 50), (75, 100)))
    single = {"caps": Caps(1, 1)}
    assert chunks(seen, **single) == [(65, 75), (55, 65), (50, 55), (15, 25), (5, 15), (0, 5)]
    oldest = replace(seen, model=replace(one, fill=Fill(backfill="oldest")))
    assert chunks(oldest, **single) == [(0, 10), (10, 20), (20, 25), (50, 60), (60, 70), (70, 75)]


def test_b14_blocked_gaps_never_hide_one_that_can_be_filled() -> None:
    parent = [(0, 10), *((20 + 20 * i, 30 + 20 * i) for i in range(16)), (340, 400)]
    covered = ranges(*parent) - ranges((0, 10))
    seen = observation(model(strict(10), "p"), built("p", *parent), covered=covered)
    blocked = ranges((0, 400)) - ranges(*parent)
    assert len(blocked) >= 15
    assert chunks(seen) == [(0, 10)]
    assert any(w.lane == "backfill" and "[330, 340)" in w.reason for w in waits(seen))


def test_b25_ten_thousand_alternating_gaps_are_one_plan() -> None:
    covered = IntervalSet(tuple(edge for i in range(10_000) for edge in (20 * i, 20 * i + 10)))
    seen = observation(model(strict(10), "s"), source("s", 0, 200_000), covered=covered)
    found = orders(seen)
    assert len(found) <= 320
    assert IntervalSet.of(chunk for order in found for chunk in order.chunks) == ranges((0, 200_000)) - covered


def test_b25_a_thousand_missing_chunks_are_a_few_orders_of_one_plan() -> None:
    one = model(strict(10), "s")
    assert len(orders(observation(replace(one, widens=True), source("s", 0, 10_000)))) == 2
    assert len(orders(observation(one, source("s", 0, 10_000)))) == 33


def test_history_and_repairs_get_their_share_of_a_plan_that_is_full_of_new_chunks() -> None:
    one = model(strict(1), "s")
    seen = observation(one, source("s", 0, 100_000), covered=ranges((10_000, 20_000)), stale=ranges((10_000, 15_000)))
    lanes = [order.lane for order in orders(seen, most=100)]
    assert (lanes.count("forward"), lanes.count("repair"), lanes.count("backfill")) == (50, 25, 25)
    assert lanes == sorted(lanes, key=("forward", "repair", "backfill").index)


@pytest.mark.parametrize("size", range(1, 40))
@pytest.mark.parametrize("exact", [True, False])
def test_b39_the_chunks_join_to_the_whole_range_for_every_size(size: int, exact: bool) -> None:
    one = model(strict(size) if exact else partial(0, size), "s", limits=Limits(3, 118), fill=Fill("tail"))
    found = sorted(chunks(observation(one, source("s", 0, 500))))
    assert (found[0][0], found[-1][1]) == (3, 118)
    assert all(left[1] == right[0] for left, right in pairwise(found))


def test_changing_the_interval_size_keeps_what_was_covered() -> None:
    seen = observation(model(strict(120), "s"), source("s", 0, 480), covered=ranges((0, 180)))
    assert chunks(seen) == [(120, 240), (240, 360), (360, 480)]
    assert gaps(seen) == ranges((180, 480))


def test_stale_ranges_are_repaired_without_a_backfill_schedule() -> None:
    one = model(strict(10), "s", schedules=Schedules(backfill=OFF))
    seen = observation(one, source("s", 0, 60), covered=ranges((0, 60)), stale=ranges((13, 25)))
    assert [(order.lane, order.scope) for order in orders(seen)] == [("repair", ranges((10, 30)))]
    exact = replace(seen, model=model(partial(5, 10), "s"))
    assert chunks(exact, "repair") == [(13, 15), (15, 25)]


def test_a_stale_range_whose_inputs_are_stale_too_waits_for_them() -> None:
    seen = observation(
        model(strict(10), "p"), built("p", (0, 10), (30, 60)), covered=ranges((0, 60)), stale=ranges((10, 40))
    )
    assert chunks(seen) == [(30, 40)]
    assert any(w.lane == "repair" and "waiting for p" in w.reason for w in waits(seen))


def test_failed_ranges_are_not_planned_and_are_named() -> None:
    seen = observation(model(strict(10), "s"), source("s", 0, 40), covered=ranges((0, 10)), failed=ranges((20, 30)))
    assert chunks(seen) == [(10, 20), (30, 40)]
    assert any("[20, 30)" in w.reason and "failed" in w.reason for w in waits(seen))
    assert "failed" in explain(seen, 25).reason


def test_a_chunk_never_overlaps_work_in_flight_of_another_size() -> None:
    seen = observation(model(strict(20), "s"), source("s", 0, 80), covered=ranges((0, 20)), in_flight=ranges((20, 30)))
    assert chunks(seen) == [(40, 60), (60, 80)]
    assert "already being worked on: [20, 30)" in explain(seen, 25).reason


def test_b25_a_thousand_separate_gaps_are_a_few_orders_of_one_plan() -> None:
    covered = IntervalSet(tuple(edge for i in range(1000) for edge in (20 * i, 20 * i + 10)))
    for widens, count in ((True, 2), (False, 33)):
        one = model(strict(10), "s", widens=widens)
        assert len(orders(observation(one, source("s", 0, 20_000), covered=covered))) == count


def test_an_order_holds_as_many_chunks_as_one_query_does_or_so_many_queries() -> None:
    covered = ranges((30, 40), (90, 100))
    one = model(strict(10), "s", widens=True)
    seen = observation(one, source("s", 0, 100), covered=covered)
    assert [order.scope for order in orders(seen)] == [ranges((0, 30), (40, 90))]
    batches = [order.scope for order in orders(seen, caps=Caps(widened=6))]
    assert batches == [ranges((20, 30), (40, 90)), ranges((0, 20))]
    listed = replace(seen, model=replace(one, widens=False))
    assert [len(order.chunks) for order in orders(listed, caps=Caps(listed=5))] == [5, 3]


def test_an_order_is_bounded_by_the_bytes_it_reads_but_holds_one_chunk_at_least() -> None:
    heavy = replace(source("s", 0, 100), bytes_per_position=float(2**20))
    one = model(strict(10), "s", widens=True, fill=Fill("tail"))
    assert {len(order.chunks) for order in orders(observation(one, heavy), caps=Caps(bytes=30 * 2**20))} == {3, 1}
    assert {len(order.chunks) for order in orders(observation(one, heavy), caps=Caps(bytes=1))} == {1}


def test_what_is_looked_back_to_counts_for_every_chunk_of_an_order() -> None:
    heavy = replace(source("s", 0, 100), bytes_per_position=float(2**20))
    one = model(strict(10), Dependency("s", before=20), widens=True, fill=Fill("tail"))
    assert {len(order.chunks) for order in orders(observation(one, heavy), caps=Caps(bytes=60 * 2**20))} == {2}


def test_what_is_too_short_for_a_chunk_is_no_gap_until_it_is_long_enough() -> None:
    seen = observation(model(partial(20, 60), "s"), source("s", 0, 310), covered=ranges((60, 300)))
    assert gaps(seen) == ranges((0, 60), (300, 310))
    assert gaps_to_fill(seen) == ranges((0, 60)), "and all that is missing below is one, however short"
    assert gaps_to_fill(replace(seen, inputs={"s": source("s", 0, 320)})) == ranges((0, 60), (300, 320))
    assert gaps_to_fill(replace(seen, inputs={"s": source("s", 0, 365)})) == ranges((0, 60), (300, 360))
    assert gaps_to_fill(replace(seen, model=model(partial(1, 60), "s"))) == gaps(seen)
