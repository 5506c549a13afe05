"""Where may chunks stand, given what the inputs hold?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from observed import (
    built,
    chunks,
    empty,
    group,
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
from penstock.planner.readiness.ready import ready
from penstock.values.intervals import NOTHING, Interval, ranges
from penstock.values.models import Dependency, Fill, Limits


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
    assert [(v.dependency, v.rule, v.value, v.ok) for v in said.readiness_checks] == [
        ("p", "must cover [240, 360)", "lacks [260, 300)", False)
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
