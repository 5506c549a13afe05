"""What is a worker told before it runs, and a person who asks, and who is affected by a change?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from observed import (
    OFF,
    built,
    empty,
    group,
    model,
    observation,
    source,
    strict,
)

from penstock.planner.change.consumers import affected, offered
from penstock.planner.readiness.explain import explain
from penstock.planner.readiness.observation import Input, Wait
from penstock.planner.readiness.plan import recheck
from penstock.planner.readiness.ready import ready
from penstock.values.intervals import EVERYTHING, MAX_POSITION, MIN_POSITION, NOTHING, Interval, ranges
from penstock.values.models import Dependency, Limits, Schedules, Source
from penstock.values.models.axis import position
from penstock.values.tasks import Order


def test_a_claimed_task_waits_when_an_input_went_away_meanwhile() -> None:
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
    assert said.readiness_checks[0].rule == "must cover [2026-01-01 10:00, 2026-01-01 11:00)"
    assert said.readiness_checks[0].value == "ends at 2026-01-01 10:58 (lag 2 minutes applied)"
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


def test_a_change_reaches_the_chunks_that_look_back_or_ahead_at_it() -> None:
    one = model(strict(10), Dependency("p", before=24, after=5))
    p = Source(name="p", file="p.yml", position="at", axis="block")
    assert affected(one, p, ranges((100, 103))) == ranges((95, 127))
    assert affected(one, replace(p, name="other"), ranges((100, 103))) == NOTHING
    assert affected(replace(one, limits=Limits(95, 120)), p, EVERYTHING) == ranges((95, 120))
    assert affected(one, p, EVERYTHING) == ranges((MIN_POSITION, MAX_POSITION))


@pytest.mark.parametrize("changes", [{"position": None, "axis": None}, {"axis": "second"}])
def test_a_changed_lookup_reopens_everything_where_that_is_asked_for_and_else_nothing(changes: dict[str, None]) -> None:
    p = replace(Source(name="p", file="p.yml", position="at", axis="block"), **changes)
    assert affected(model(strict(10), "p"), p, EVERYTHING) == NOTHING
    recomputing = model(strict(10), Dependency("p", on_change="rerun"))
    assert affected(recomputing, p, ranges((1, 2))) == EVERYTHING
    assert affected(recomputing, p, NOTHING) == NOTHING


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
