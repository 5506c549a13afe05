"""How does a model go on with what is new?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from observed import (
    OFF,
    built,
    chunks,
    lookup,
    model,
    observation,
    orders,
    partial,
    source,
    strict,
    waits,
)

from penstock.planner.readiness.explain import explain
from penstock.planner.readiness.observation import Wait
from penstock.planner.readiness.plan import permanent_gaps, plan, recheck
from penstock.values.intervals import NOTHING, Interval, ranges
from penstock.values.models import Chunking, Fill, Limits, Schedules
from penstock.values.tasks import Order


def test_the_worked_example_of_a_partial_interval() -> None:
    """Also B-11: a minimum between nothing and the whole chunk is kept."""
    one = model(partial(20, 100), "s", fill=Fill("tail"))
    assert chunks(observation(one, source("s", 1000, 1050))) == [(1000, 1050)]
    assert chunks(observation(one, source("s", 1000, 1150), covered=ranges((1000, 1050)))) == [(1050, 1150)]


@pytest.mark.parametrize(
    ("interval", "end", "expected"),
    [
        (strict(100), 1199, [(1000, 1100)]),
        (strict(100), 1200, [(1000, 1100), (1100, 1200)]),
        (partial(20, 100), 1119, [(1000, 1100)]),
        (partial(20, 100), 1120, [(1000, 1100), (1100, 1120)]),
        (partial(0, 100), 1101, [(1000, 1100), (1100, 1101)]),
        (partial(0, 100), 1000, []),
    ],
)
def test_forward_takes_a_full_chunk_or_an_allowed_partial_one_or_waits(
    interval: Chunking, end: int, expected: list[tuple[int, int]]
) -> None:
    seen = observation(model(interval, "s", fill=Fill("tail")), source("s", 0, end), covered=ranges((0, 1000)))
    assert chunks(seen) == expected


def test_b45_a_range_at_the_tip_waits_until_it_is_long_enough() -> None:
    seen = observation(model(partial(20, 100), "s"), source("s", 0, 1019), covered=ranges((0, 1000)))
    assert [w.reason for w in waits(seen)] == ["waiting for s: needs up to 1020, has 1019"]
    assert explain(seen, 1005).reason == "waiting for s: needs up to 1020, has 1019"
    hole = observation(model(partial(20, 100), "p"), built("p", (0, 15), (50, 90)), covered=ranges((50, 90)))
    assert chunks(hole) == []
    assert explain(hole, 5).reason == "waiting for at least 20 positions (interval.min), has 15 positions"


def test_b45_a_lowered_start_makes_a_backfill() -> None:
    seen = observation(model(strict(10), "s", limits=Limits(20, None)), source("s", 0, 60), covered=ranges((40, 60)))
    assert chunks(seen, "backfill") == [(20, 30), (30, 40)]


def test_an_open_bucket_is_recomputed_whole() -> None:
    one = model(partial(0, 7200, align=3600), "s")
    seen = observation(one, source("s", 0, 9000), covered=ranges((0, 8220)))
    assert chunks(seen) == [(7200, 9000)]
    assert chunks(observation(one, source("s", 0, 20000), covered=ranges((0, 8220)))) == [(7200, 14400), (14400, 20000)]


def test_new_positions_count_towards_the_minimum_and_not_the_whole_bucket() -> None:
    one = model(partial(600, 3600, align=3600), "s")
    assert chunks(observation(one, source("s", 0, 5599), covered=ranges((0, 5000)))) == []
    assert chunks(observation(one, source("s", 0, 5600), covered=ranges((0, 5000)))) == [(3600, 5600)]


@pytest.mark.parametrize(
    ("direction", "forward", "backfill"),
    [
        ("head", [(700, 800)], [(i, i + 100) for i in range(0, 700, 100)]),
        ("tail", [(i, i + 100) for i in range(0, 800, 100)], []),
    ],
)
def test_a_never_run_model_begins_at_its_newest_chunk_or_at_its_oldest(
    direction: Any, forward: list[tuple[int, int]], backfill: list[tuple[int, int]]
) -> None:
    """The dependencies end at 1000, 1200 and 800."""
    one = model(strict(100), "a", "b", "c", fill=Fill(direction))
    seen = observation(one, source("a", 0, 1000), source("b", 0, 1200), source("c", 0, 800))
    assert (chunks(seen, "forward"), chunks(seen, "backfill")) == (forward, backfill)


def test_b24_raising_the_lower_limit_above_what_is_covered_does_not_stall() -> None:
    one = model(strict(10), "s", limits=Limits(100, None))
    assert chunks(observation(one, source("s", 0, 130), covered=ranges((0, 50)))) == [
        (120, 130),
        (100, 110),
        (110, 120),
    ]


def test_b24_a_start_where_only_some_dependencies_have_data_is_not_planned() -> None:
    seen = observation(model(strict(10), "a", "b", fill=Fill("tail")), built("a", (0, 50)), built("b", (30, 50)))
    assert chunks(seen) == [(30, 40), (40, 50)]


def test_b24_a_gap_that_forward_skips_without_a_backfill_is_reported_as_permanent() -> None:
    one = model(strict(10), "p", schedules=Schedules(backfill=OFF))
    seen = observation(one, built("p", (0, 20), (40, 60)), covered=ranges((0, 20)))
    assert chunks(seen) == [(40, 50), (50, 60)]
    after = replace(seen, covered=ranges((0, 20), (40, 60)), inputs={"p": built("p", (0, 60))})
    assert chunks(after) == []
    assert permanent_gaps(after) == (
        (Interval(20, 40), "backfill is off, and forward skipped it while it was not ready"),
    )
    assert any(w.permanent and "[20, 40)" in w.reason for w in waits(after))
    assert "backfill is off" in explain(after, 25).reason


def test_history_below_a_head_start_without_a_backfill_is_a_permanent_gap() -> None:
    seen = observation(model(strict(10), "s", schedules=Schedules(backfill=OFF)), source("s", 0, 60))
    assert chunks(seen) == [(50, 60)]
    assert permanent_gaps(seen) == ((Interval(0, 50), "backfill is off, and forward began at 50"),)
    assert permanent_gaps(replace(seen, model=model(strict(10), "s"))) == ()


def test_strict_order_waits_at_the_frontier_and_says_so() -> None:
    one = model(strict(10), "p", fill=Fill(allow_gap_skipping=False))
    seen = observation(one, built("p", (0, 20), (40, 60)), covered=ranges((0, 20)))
    assert chunks(seen) == []
    assert "waiting for p: [20, 30)" in waits(seen)[0].reason
    assert "strict order" in explain(seen, 45).reason
    assert chunks(replace(seen, inputs={"p": built("p", (0, 60))})) == [(20, 30), (30, 40), (40, 50), (50, 60)]


def test_strict_order_holds_when_an_earlier_chunk_failed_after_it_was_planned() -> None:
    one = model(strict(10), "s", fill=Fill("tail", allow_gap_skipping=False))
    order = Order("t.child", "forward", (Interval(30, 40),), ("s",), "")
    seen = observation(one, source("s", 0, 60), covered=ranges((0, 20)))
    assert isinstance(recheck(replace(seen, failed=ranges((20, 30))), order), Wait)
    assert isinstance(recheck(replace(seen, in_flight=ranges((20, 30))), order), Wait)
    assert recheck(replace(seen, covered=ranges((0, 30))), order) == order


def test_strict_order_is_kept_within_a_batch_and_the_next_batch_waits_for_it() -> None:
    one = model(strict(10), "s", fill=Fill("tail", allow_gap_skipping=False))
    seen = observation(one, source("s", 0, 400), covered=ranges((0, 20)))
    (order,) = orders(seen)
    assert order.scope == ranges((20, 340))
    assert recheck(seen, order) == order
    assert isinstance(recheck(seen, replace(order, chunks=order.chunks[1:])), Wait)
    assert isinstance(recheck(seen, replace(order, chunks=(order.chunks[0], order.chunks[2]))), Wait)
    assert "strict order" in explain(seen, 350).reason
    running = replace(seen, in_flight=order.scope)
    assert [(type(one), one.reason) for one in plan(running)] == [
        (Wait, "in strict order (allow_gap_skipping is false): what ends at 340 is still being worked on")
    ]
    assert chunks(replace(seen, covered=ranges((0, 340))))[0] == (340, 350)


def test_strict_order_goes_on_after_the_repair_of_the_open_bucket() -> None:
    one = model(partial(0, 100, align=100), "s", fill=Fill("tail", allow_gap_skipping=False))
    seen = observation(one, source("s", 0, 400), covered=ranges((0, 250)), stale=ranges((210, 220)))
    assert [(order.lane, order.scope) for order in orders(seen)] == [("repair", ranges((200, 300)))]
    assert "what ends at 300 is repaired first" in waits(seen)[0].reason
    repaired = replace(seen, covered=ranges((0, 300)), stale=NOTHING)
    assert [(order.lane, order.scope) for order in orders(repaired)] == [("forward", ranges((300, 400)))]


def test_strict_order_begins_beside_a_backfill_that_is_in_flight() -> None:
    one = model(strict(10), "s", fill=Fill("head", allow_gap_skipping=False))
    seen = observation(one, source("s", 0, 60))
    forward, backfill = orders(seen)
    assert recheck(replace(seen, in_flight=backfill.scope), forward) == forward
    assert recheck(replace(seen, in_flight=forward.scope), backfill) == backfill


def test_b52_a_stray_interval_in_the_far_future_does_not_freeze_forward() -> None:
    seen = observation(model(strict(10), "s"), source("s", 0, 40), covered=ranges((0, 20), (10**12, 10**12 + 10)))
    assert chunks(seen, "forward") == [(20, 30), (30, 40)]


def test_b9_an_axis_may_begin_at_zero_or_below() -> None:
    assert chunks(observation(model(strict(1), "s"), source("s", 0, 1))) == [(0, 1)]
    seen = observation(model(strict(10), "s", fill=Fill("tail")), source("s", -20, 10), covered=ranges((-20, 0)))
    assert chunks(seen) == [(0, 10)]


def test_b9_a_model_without_dependencies_is_planned_over_its_limits() -> None:
    assert chunks(observation(model(strict(10), limits=Limits(0, 25), fill=Fill("tail")))) == [
        (0, 10),
        (10, 20),
        (20, 25),
    ]


def test_b54_a_model_with_lookups_only_does_not_march_on_for_ever() -> None:
    seen = observation(model(strict(10), "l"), lookup("l"))
    assert plan(seen) == (Wait("t.child", "no input has a position, so limits.min must say where to begin"),)
    above = observation(model(strict(10), "l", limits=Limits(0, None)), lookup("l"))
    assert waits(above)[0].reason == "no input has a position, so limits.max must say where to end"
    assert orders(above) == []
    assert chunks(observation(model(strict(10), "l", limits=Limits(0, 20)), lookup("l"))) == [(10, 20), (0, 10)]
