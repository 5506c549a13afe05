"""What is planned, and what is said, in the stories that people tell?"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from penstock.intervals import EVERYTHING, MAX_POSITION, MIN_POSITION, NOTHING, Interval, IntervalSet, ranges
from penstock.models import Chunking, Dependency, Fill, Group, IntervalModel, Limits, Schedules
from penstock.models.axis import position
from penstock.planner import (
    Input,
    Observation,
    Wait,
    affected,
    explain,
    gaps,
    offered,
    permanent_gaps,
    plan,
    ready,
    recheck,
)
from penstock.planner.batches import Caps
from penstock.tasks import Order

OFF = "off"


def strict(size: int) -> Chunking:
    return Chunking(size, size, size)


def partial(least: int, most: int, align: int = 1) -> Chunking:
    return Chunking(most, least, align)


def model(interval: Chunking, *groups: Group | Dependency | str, **more: Any) -> IntervalModel:
    named = [Dependency(one) if isinstance(one, str) else one for one in groups]
    dependencies = tuple((one,) if isinstance(one, Dependency) else one for one in named)
    settings = {"name": "t.child", "file": "child.sql", "sql": "", "position": "p", "axis": "block"} | more
    return IntervalModel(interval=interval, dependencies=dependencies, **settings)


def source(name: str, first: int, end: int, lag: int = 0) -> Input:
    return Input(name, "source", IntervalSet((MIN_POSITION, end - lag)), first, lag=lag)


def built(name: str, *parts: tuple[int, int]) -> Input:
    found = ranges(*parts)
    return Input(name, "interval", found, found.first, "not built yet")


def empty(name: str) -> Input:
    return Input(name, "source", NOTHING, None, "no rows yet")


def lookup(name: str) -> Input:
    return Input(name, "lookup", EVERYTHING, None)


def observation(one: IntervalModel, *inputs: Input, covered: IntervalSet = NOTHING, **more: Any) -> Observation:
    return Observation(one, {each.name: each for each in inputs}, covered, **more)


def orders(seen: Observation, **more: Any) -> list[Order]:
    return [one for one in plan(seen, **more) if isinstance(one, Order)]


def waits(seen: Observation) -> list[Wait]:
    return [one for one in plan(seen) if isinstance(one, Wait)]


def chunks(seen: Observation, lane: str | None = None, **more: Any) -> list[tuple[int, int]]:
    found = [one for one in orders(seen, **more) if lane in (None, one.lane)]
    return [(chunk.start, chunk.end) for one in found for chunk in one.chunks]


def group(*names: str) -> Group:
    return tuple(Dependency(name) for name in names)


# --- readiness


def test_the_worked_example_of_four_dependencies_is_valid_from_2000_to_4000() -> None:
    names = ("eth.blocks", "eth.transactions", "a.hourly", "a.daily")
    inputs = (
        source(names[0], 1000, 5000, lag=100),
        source(names[1], 900, 4900),
        built(names[2], (1500, 4500)),
        built(names[3], (2000, 4000)),
    )
    assert ready(observation(model(strict(100), *names), *inputs)) == ranges((2000, 4000))
    assert ready(observation(model(strict(100), *names[:2]), *inputs)) == ranges((900, 4900))


def test_lag_is_taken_off_the_end_of_a_source() -> None:
    assert ready(observation(model(strict(100), "s"), source("s", 0, 5000, lag=100))) == ranges((0, 4900))


@pytest.mark.parametrize(("end", "planned"), [(1735776059, 0), (1735776060, 1), (1735776061, 1)])
def test_a_chunk_that_ends_where_its_source_ends_is_ready(end: int, planned: int) -> None:
    one = model(strict(60), "s", fill=Fill("tail"))
    assert len(chunks(observation(one, source("s", 1735776000, end)))) == planned


def test_a_dependency_may_have_been_filled_in_any_sizes() -> None:
    parent = built("p", *((60 * i, 60 * i + 60) for i in range(3)), (180, 300))
    assert ready(observation(model(strict(90), "p"), parent)) == ranges((0, 270))


def test_b2_a_hole_inside_a_dependency_is_not_ready() -> None:
    seen = observation(model(strict(120), "p"), built("p", (200, 260), (300, 480)))
    assert ready(seen) == ranges((360, 480))
    said = explain(seen, 250)
    assert (said.decision, said.chunk) == ("wait", Interval(240, 360))
    assert said.reason == "waiting for p: [260, 300) is not built yet, or is being recomputed"
    assert [(v.dependency, v.rule, v.value, v.ok) for v in said.verdicts] == [
        ("p", "covers [240, 360)", "lacks [260, 300)", False)
    ]


def test_below_its_first_row_a_source_is_empty_and_the_first_chunk_holds_that_row() -> None:
    assert ready(observation(model(strict(100), "s"), source("s", 250, 600))) == ranges((200, 600))
    assert ready(observation(model(partial(0, 100), "s"), source("s", 250, 650))) == ranges((250, 650))


def test_a_look_back_is_clipped_where_the_input_begins_and_nowhere_else() -> None:
    one = model(strict(10), Dependency("p", before=24))
    assert ready(observation(one, built("p", (100, 120)))) == ranges((100, 120))
    assert ready(observation(one, built("p", (100, 120), (130, 180)))) == ranges((100, 120), (160, 180))
    assert ready(observation(one, replace(built("p", (130, 180)), first=100))) == ranges((160, 180))


def test_a_look_ahead_needs_what_follows() -> None:
    one = model(strict(10), Dependency("s", after=5))
    assert ready(observation(one, source("s", 0, 44))) == ranges((0, 30))


def test_an_optional_dependency_does_not_limit_and_is_chosen_when_it_has_something() -> None:
    one = model(strict(10), "s", Dependency("o", optional=True), fill=Fill("tail"))
    found = orders(observation(one, source("s", 0, 40), built("o", (0, 15))))
    assert [(order.choices, order.scope) for order in found] == [
        (("s", "o"), ranges((0, 20))),
        (("s", ""), ranges((20, 40))),
    ]


def test_finality_keeps_away_from_the_end_of_one_dependency() -> None:
    one = model(strict(10), Dependency("a", finality=15), "b")
    assert ready(observation(one, source("a", 0, 100), source("b", 0, 100))) == ranges((0, 80))


def test_b16_a_buffer_never_shrinks_an_explicit_limit() -> None:
    one = model(strict(10), "s", limits=Limits(None, 1000), fill=Fill(buffer=20))
    assert ready(observation(one, source("s", 0, 5000))).end == 1000
    assert ready(observation(one, source("s", 0, 1000))).end == 1000
    assert ready(observation(one, source("s", 0, 900))).end == 880
    assert "buffer" in explain(observation(one, source("s", 0, 900), covered=ranges((0, 880))), 885).reason


def test_limits_clip_forward_and_backfill_and_may_cut_the_chunks_at_the_edge() -> None:
    one = model(strict(10), "s", limits=Limits(5, 37), fill=Fill("tail"))
    assert chunks(observation(one, source("s", 0, 90))) == [(5, 10), (10, 20), (20, 30), (30, 37)]


# --- OR groups


def test_b6_a_member_that_goes_further_is_used_where_the_first_ends() -> None:
    one = model(partial(0, 5000), group("a", "b"), fill=Fill("tail"))
    found = orders(observation(one, built("a", (0, 28188)), source("b", 27396, 29988), covered=ranges((0, 25000))))
    assert [(order.choices, order.scope) for order in found] == [
        (("a",), ranges((25000, 28188))),
        (("b",), ranges((28188, 29988))),
    ]


def test_b6_an_empty_member_counts_for_nothing() -> None:
    one = model(strict(100), group("a", "b"))
    assert ready(observation(one, empty("a"), source("b", 1000, 1200))) == ranges((1000, 1200))
    assert ready(observation(one, empty("a"), empty("b"))) == NOTHING
    seen = observation(one, empty("a"), empty("b"))
    assert [w.reason for w in waits(seen)] == ["waiting for one of a, b: a no rows yet; b no rows yet"]


def test_b6_what_lies_between_two_members_is_not_ready() -> None:
    one = model(strict(100), group("a", "b"))
    assert ready(observation(one, built("a", (0, 100)), built("b", (200, 300)))) == ranges((0, 100), (200, 300))


def test_b6_a_hole_beyond_the_end_of_the_other_member_is_a_hole() -> None:
    seen = observation(model(strict(100), group("a", "b")), built("a", (0, 100)), built("b", (0, 500), (600, 1000)))
    assert ready(seen) == ranges((0, 500), (600, 1000))


def test_b6_a_chunk_is_never_patched_together_from_two_members() -> None:
    seen = observation(model(strict(100), group("a", "b")), built("a", (0, 150)), built("b", (150, 400)))
    assert ready(seen) == ranges((0, 100), (200, 400))
    assert "waiting for one of a, b" in explain(seen, 120).reason


def test_b6_a_lookup_is_a_member_like_others() -> None:
    seen = observation(model(strict(100), "s", group("a", "l")), source("s", 0, 300), built("a", (0, 100)), lookup("l"))
    assert {(order.choices, str(order.scope)) for order in orders(seen)} == {
        (("s", "l"), "[200, 300)"),
        (("s", "l"), "[100, 200)"),
        (("s", "a"), "[0, 100)"),
    }


def test_in_an_or_group_a_source_counts_from_its_first_row() -> None:
    one = model(strict(100), group("new", "old"))
    seen = observation(one, source("new", 150, 400), source("old", 0, 250))
    assert {chunk: order.choices for order in orders(seen) for chunk in order.chunks} == {
        Interval(0, 100): ("old",),
        Interval(100, 200): ("old",),
        Interval(200, 300): ("new",),
        Interval(300, 400): ("new",),
    }


def test_the_first_chunk_of_an_or_group_holds_the_first_row_of_all_its_members() -> None:
    seen = observation(model(strict(100), group("never", "s")), empty("never"), source("s", 130, 400))
    assert ready(seen) == ranges((100, 400))


# --- forward


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
        (Interval(20, 40), "backfill is off, and forward went on without it while it was not ready"),
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


# --- backfill


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


def test_gaps_are_filled_newest_first_unless_told_otherwise() -> None:
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


# --- repair, failures, work in flight


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


# --- batches


def test_a_widened_order_is_one_contiguous_run_and_others_are_lists() -> None:
    covered = ranges((30, 40), (90, 100))
    one = model(strict(10), "s", widens=True)
    seen = observation(one, source("s", 0, 100), covered=covered)
    assert [order.scope for order in orders(seen)] == [ranges((40, 90)), ranges((0, 30))]
    listed = replace(seen, model=replace(one, widens=False))
    assert [order.scope for order in orders(listed)] == [ranges((0, 30), (40, 90))]


def test_an_order_is_bounded_by_the_bytes_it_reads_but_holds_one_chunk_at_least() -> None:
    heavy = replace(source("s", 0, 100), bytes_per_position=float(2**20))
    one = model(strict(10), "s", widens=True, fill=Fill("tail"))
    assert {len(order.chunks) for order in orders(observation(one, heavy), caps=Caps(bytes=30 * 2**20))} == {3, 1}
    assert {len(order.chunks) for order in orders(observation(one, heavy), caps=Caps(bytes=1))} == {1}


# --- recheck and explain


def test_a_worker_is_told_to_wait_when_an_input_went_away_meanwhile() -> None:
    order = Order("t.child", "forward", (Interval(10, 20), Interval(20, 30)), ("p",), "")
    seen = observation(model(strict(10), "p"), built("p", (0, 30)), covered=ranges((0, 10)))
    assert recheck(seen, order) == order
    refused = recheck(replace(seen, inputs={"p": built("p", (0, 25))}), order)
    assert isinstance(refused, Wait)
    assert (refused.chunk, refused.reason) == (Interval(20, 30), "waiting for p: needs up to 30, has 25")
    assert "up to date" in recheck(replace(seen, covered=ranges((0, 30))), order).reason


def test_a_choice_that_no_longer_holds_is_made_again_before_the_attempt_runs() -> None:
    order = Order("t.child", "forward", (Interval(10, 20),), ("a",), "")
    seen = observation(model(strict(10), group("a", "b")), built("a", (0, 20)), built("b", (0, 40)))
    assert recheck(seen, order) == order
    changed = recheck(replace(seen, inputs=dict(seen.inputs) | {"a": built("a", (0, 15))}), order)
    assert isinstance(changed, Order)
    assert changed.choices == ("b",)
    two = replace(order, chunks=(Interval(0, 10), Interval(30, 40)))
    assert isinstance(recheck(replace(seen, inputs={"a": built("a", (0, 10)), "b": built("b", (30, 40))}), two), Wait)


def test_times_are_said_as_times_with_the_lag_that_was_applied() -> None:
    at = lambda text: position(text, "second")  # noqa: E731
    parent = source("raw.blocks", at("2026-01-01 08:00"), at("2026-01-01 11:00"), lag=120)
    one = model(strict(3600), "raw.blocks", axis="second")
    seen = observation(one, parent, covered=ranges((at("2026-01-01 08:00"), at("2026-01-01 10:00"))))
    said = explain(seen, None)
    assert said.decision == "wait"
    assert said.reason == (
        "waiting for raw.blocks: needs up to 2026-01-01 11:00, has 2026-01-01 10:58 (lag 2 minutes applied)"
    )
    assert said.verdicts[0].rule == "covers [2026-01-01 10:00, 2026-01-01 11:00)"
    assert said.verdicts[0].value == "has up to 2026-01-01 10:58"
    assert explain(seen, at("2026-01-01 09:30")).reason == (
        "up to date: [2026-01-01 09:00, 2026-01-01 10:00) is covered"
    )


def test_explain_takes_the_next_forward_chunk_and_else_the_newest_gap() -> None:
    seen = observation(model(strict(10), "s"), source("s", 0, 60), covered=ranges((20, 40)))
    assert (explain(seen, None).lane, explain(seen, None).chunk) == ("forward", Interval(40, 50))
    only_back = replace(seen, model=model(strict(10), "s", schedules=Schedules(forwardfill=OFF)))
    assert (explain(only_back, None).lane, explain(only_back, None).chunk) == ("backfill", Interval(50, 60))
    done = observation(model(strict(10), "s", limits=Limits(0, 40)), source("s", 0, 60), covered=ranges((0, 40)))
    assert explain(done, None).reason == "up to date: limits.max, 40, was reached"
    assert explain(observation(model(strict(10), "s"), empty("s")), None).reason == "waiting for s: no rows yet"


def test_everything_outside_the_limits_is_said_to_be_outside() -> None:
    seen = observation(model(strict(10), "s", limits=Limits(10, 40)), source("s", 0, 60))
    assert explain(seen, 5).reason == "outside the limits: limits.min is 10"
    assert explain(seen, 55).reason == "outside the limits: limits.max is 40"
    assert explain(replace(seen, paused=True), 15).reason == "paused"


# --- consumers


def test_a_change_reaches_the_chunks_that_look_back_or_ahead_at_it() -> None:
    one = model(strict(10), Dependency("p", before=24, after=5))
    assert affected(one, "p", ranges((100, 103))) == ranges((90, 130))
    assert affected(replace(one, interval=partial(0, 10)), "p", ranges((100, 103))) == ranges((95, 127))
    assert affected(one, "other", ranges((100, 103))) == NOTHING
    assert affected(replace(one, limits=Limits(95, 120)), "p", EVERYTHING) == ranges((95, 120))
    assert affected(one, "p", EVERYTHING) == ranges((MIN_POSITION, MAX_POSITION))


def test_the_chunk_that_holds_the_beginning_of_a_parent_does_not_wait_for_what_never_comes() -> None:
    parent = observation(
        model(strict(10), "s", name="t.parent"),
        source("s", 72, 200),
        covered=ranges((70, 200)),
        stale=ranges((150, 160)),
    )
    given = offered(parent)
    assert (given.available, given.first) == (ranges((MIN_POSITION, 150), (160, 200)), 70)
    assert ready(observation(model(strict(100), "t.parent"), given)) == ranges((0, 100))


def test_a_parent_that_still_backfills_is_waited_for() -> None:
    parent = observation(model(strict(10), "s", name="t.parent"), source("s", 72, 200), covered=ranges((150, 200)))
    given = offered(parent)
    assert (given.available, given.first) == (ranges((MIN_POSITION, 70), (150, 200)), 70)
    looking_back = observation(model(strict(10), Dependency("t.parent", before=30)), given)
    assert ready(looking_back) == ranges((180, 200))
    assert offered(replace(parent, covered=NOTHING)) == Input("t.parent", "interval", NOTHING, None, "not built yet")
