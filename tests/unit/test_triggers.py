"""Which lanes are due: on a change upstream, a parent's commit, a slot, the sweep; and on nothing else."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from penstock.planner.policy.triggers import Due, Triggers
from penstock.values.intervals import NOTHING, IntervalSet, ranges
from penstock.values.models import Chunking, Dependency, Fill, Graph, IntervalModel, Schedules, Source
from penstock.values.records import Generation, SourceRecord, StateView, SuspensionRecord, Work

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SWEEP = 60.0
ALL = {"forward", "repair", "backfill"}


def interval(name: str, *inputs: str, **more: Any) -> IntervalModel:
    groups = tuple((Dependency(one),) for one in inputs)
    made = {
        "name": name,
        "file": "x.sql",
        "sql": "",
        "position": "n",
        "axis": "block",
        "interval": Chunking(10, 10, 10),
    }
    return IntervalModel(dependencies=groups, **(made | more))


def graph(**more: Any) -> Graph:
    """raw.s -> t.a -> t.b, and t.m reads both."""
    source = Source(name="raw.s", file="s.yml", position="n", axis="block")
    return Graph.of(
        (
            source,
            interval("t.a", "raw.s", **more),
            interval("t.b", "t.a", **more),
            interval("t.m", "raw.s", "t.a", **more),
        )
    )


def source(end: int) -> SourceRecord:
    return SourceRecord("raw.s", "id", end, None, {}, 0, end, None, None, None, None, NOW, None)


def generation(
    no: int, model: str, covered: IntervalSet, stale: IntervalSet = NOTHING, state: Any = "current"
) -> Generation:
    return Generation(no, UUID(int=no), model, "f", state, model, 0, 1, 1, None, covered, stale)


def view(seconds: float = 0, end: int = 100, a: IntervalSet = NOTHING, revision: str = "r", **work: Work) -> StateView:
    working = {
        "t.a": generation(1, "t.a", a),
        "t.b": generation(2, "t.b", NOTHING),
        "t.m": generation(3, "t.m", NOTHING),
    }
    named = {f"t.{name}": one for name, one in work.items()}
    return StateView(
        NOW + timedelta(seconds=seconds), revision, frozenset(), working, working, {"raw.s": source(end)}, named, 0, ()
    )


def due(triggers: Triggers, seen: StateView, *slots: Any, **more: Any) -> Due:
    return triggers.due(graph(**more), seen, slots, SWEEP)


def started(**more: Any) -> Triggers:
    made = Triggers()
    due(made, view(), **more)
    return made


DAILY = Schedules("@daily", "@daily")


def test_a_cold_start_plans_everything_that_has_no_schedule() -> None:
    assert due(Triggers(), view()) == {"t.a": ALL, "t.b": ALL, "t.m": ALL}


def test_a_cold_start_leaves_scheduled_lanes_over_sources_to_their_slots() -> None:
    found = due(Triggers(), view(), schedules=DAILY)
    assert found["t.a"] == {"repair"}
    assert found["t.b"] == found["t.m"] == ALL  # a parent's commit may have been missed


def test_nothing_new_means_nothing_to_plan() -> None:
    assert due(started(), view(seconds=1)) == {}


def test_a_change_of_a_source_is_for_its_readers_only() -> None:
    assert set(due(started(), view(1, end=110))) == {"t.a", "t.m"}


def test_a_change_of_a_source_does_not_set_off_scheduled_lanes() -> None:
    assert due(started(schedules=DAILY), view(1, end=110), schedules=DAILY) == {"t.a": {"repair"}, "t.m": {"repair"}}


def test_a_parents_commit_sets_off_every_lane_of_its_children_whatever_their_schedule() -> None:
    found = due(started(schedules=DAILY), view(1, a=ranges((0, 10))), schedules=DAILY)
    assert found["t.b"] == found["t.m"] == ALL


def test_a_slot_sets_off_its_lane_alone() -> None:
    assert due(started(schedules=DAILY), view(1), ("t.a", "backfill"), schedules=DAILY) == {"t.a": {"backfill"}}


def test_the_sweep_comes_once_in_its_time() -> None:
    triggers = started()
    assert due(triggers, view(59)) == {}
    assert set(due(triggers, view(60))) == {"t.a", "t.b", "t.m"}
    assert due(triggers, view(61)) == {}
    assert triggers.seconds_to_sweep(NOW + timedelta(seconds=61), SWEEP) == 59


def test_a_new_revision_is_looked_at_as_a_whole() -> None:
    assert set(due(started(), view(1, revision="r2"))) == {"t.a", "t.b", "t.m"}


def test_work_that_ended_without_a_result_is_planned_again_although_its_slot_is_over() -> None:
    triggers = Triggers()
    due(triggers, replace(view(), work={"t.a": Work(in_flight=ranges((0, 10)))}), schedules=DAILY)
    assert due(triggers, view(1), schedules=DAILY)["t.a"] == ALL


def test_so_is_what_ended_without_a_result_beside_work_that_succeeded() -> None:
    triggers = Triggers()
    due(triggers, replace(view(), work={"t.a": Work(in_flight=ranges((0, 20)))}), schedules=DAILY)
    assert due(triggers, view(1, a=ranges((0, 10))), schedules=DAILY)["t.a"] == ALL


def test_what_died_is_left_alone_while_it_is_held_and_then_planned_although_its_slot_is_over() -> None:
    triggers = Triggers()
    due(triggers, replace(view(), work={"t.a": Work(in_flight=ranges((0, 10)))}), schedules=DAILY)
    held = replace(view(1), work={"t.a": Work(dead=ranges((0, 10)))})
    assert due(triggers, held, schedules=DAILY)["t.a"] == {"repair"}
    assert due(triggers, view(2), schedules=DAILY)["t.a"] == ALL


@pytest.mark.parametrize("dead", [NOTHING, ranges((0, 10))])
def test_a_suspension_that_is_over_sets_off_scheduled_lanes_although_their_slot_is_over(dead: IntervalSet) -> None:
    triggers = started(schedules=DAILY)
    record = SuspensionRecord("t.a", 1, "the store is away", NOW, 1, False, passing=True)
    suspended = replace(view(1), work={"t.a": Work(dead=dead)}, suspended={"t.a": record})
    due(triggers, suspended, schedules=DAILY)
    assert due(triggers, replace(suspended, at=NOW + timedelta(seconds=2)), schedules=DAILY) == {}
    assert due(triggers, view(3), schedules=DAILY)["t.a"] == ALL


def test_work_that_succeeded_leaves_a_scheduled_lane_alone_until_its_next_slot() -> None:
    triggers = Triggers()
    due(triggers, replace(view(), work={"t.a": Work(in_flight=ranges((0, 10)))}), schedules=DAILY)
    assert due(triggers, view(1, a=ranges((0, 10))), schedules=DAILY)["t.a"] == {"repair"}


def test_in_strict_order_the_end_of_one_task_makes_room_for_the_next() -> None:
    strict = {"schedules": DAILY, "fill": Fill(allow_gap_skipping=False)}
    triggers = Triggers()
    due(triggers, replace(view(), work={"t.a": Work(in_flight=ranges((0, 10)))}), **strict)
    assert due(triggers, view(1, a=ranges((0, 10))), **strict)["t.a"] == ALL


def test_a_rebuild_does_not_wait_for_slots() -> None:
    triggers = started(schedules=DAILY)
    seen = view(1, end=110)
    seen = replace(seen, working={**seen.working, "t.a": generation(9, "t.a", NOTHING, state="building")})
    assert due(triggers, seen, schedules=DAILY)["t.a"] == ALL


def test_what_the_database_has_nothing_new_of_is_not_compared_again() -> None:
    triggers, seen = started(), view()
    due(triggers, seen)
    before = dict(triggers._own)
    due(triggers, seen)
    assert all(triggers._own[name] is before[name] for name in before)


@pytest.mark.parametrize(
    "story",
    [
        test_a_parents_commit_sets_off_every_lane_of_its_children_whatever_their_schedule,
        test_work_that_ended_without_a_result_is_planned_again_although_its_slot_is_over,
        test_in_strict_order_the_end_of_one_task_makes_room_for_the_next,
    ],
)
def test_control_what_is_taken_for_unchanged_sets_nothing_off(story: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = Triggers._same_or_new
    monkeypatch.setattr(
        Triggers, "_same_or_new", lambda self, name, view: self._own.get(name) or fresh(self, name, view)
    )
    with pytest.raises((AssertionError, KeyError)):
        story()
