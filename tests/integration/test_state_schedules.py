"""Slots: each fires once, whoever and however many look, and a missed one fires late but not twice."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from penstock.runtime.place import definitions as project_words
from penstock.state.database.statements import statements
from penstock.state.queue.schedules import due_slots
from penstock.state.store import State
from penstock.values.models import Chunking, IntervalModel
from penstock.values.models.model import Schedules
from penstock.values.records import Definition, ScheduleRecord, Slot
from penstock.values.tasks import Lane

if TYPE_CHECKING:
    from conftest import Story

NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
Specs = tuple[tuple[Lane, str], ...]


def with_schedules(story: Story, **specs: Specs) -> tuple[Definition, ...]:
    return tuple(replace(one, schedules=specs.get(one.name.split(".")[1], ())) for one in story.definitions())


def schedule(story: Story, **specs: Specs) -> None:
    story.state.projects.apply(f"with {specs}", b"", {}, with_schedules(story, **specs))


def stand_still(story: Story, at: datetime) -> None:
    story.execute(
        "create or replace function clock() returns timestamptz language sql volatile as "
        f"$$ select timestamptz '{at.isoformat()}' $$"
    )


def schedules(story: Story) -> Mapping[tuple[str, str], ScheduleRecord]:
    return {(one.model, one.lane): one for one in story.state.views.whole().schedules}


def due(story: Story) -> tuple[Slot, ...]:
    view = story.state.views.whole()
    return due_slots(view.schedules, view.at)


# which slots there are


def test_a_new_cadence_starts_counting_when_it_is_applied(story: Story) -> None:
    stand_still(story, NOON + timedelta(seconds=20))
    schedule(story, a=(("forward", "@every 1m"), ("backfill", "@hourly")))
    assert schedules(story) == {
        ("core.a", "forward"): ScheduleRecord("core.a", "forward", "@every 1m", NOON + timedelta(seconds=80), None),
        ("core.a", "backfill"): ScheduleRecord("core.a", "backfill", "@hourly", NOON + timedelta(hours=1), None),
    }


def test_applying_again_moves_no_slot_unless_its_cadence_changed(story: Story) -> None:
    stand_still(story, NOON)
    schedule(story, a=(("forward", "@every 1m"), ("backfill", "@every 1m")), b=(("forward", "@every 1m"),))
    stand_still(story, NOON + timedelta(seconds=90))
    story.state.queue.enqueue([], {}, due(story))
    before = schedules(story)
    assert before["core.a", "forward"].last_slot == NOON + MINUTE
    changed: dict[str, Specs] = {"a": (("forward", "@every 1m"), ("backfill", "@every 2m"))}
    for seconds in (95, 100):
        stand_still(story, NOON + timedelta(seconds=seconds))
        schedule(story, **changed)
    after = schedules(story)
    assert after["core.a", "forward"] == before["core.a", "forward"]
    assert after["core.a", "backfill"].next_at == NOON + timedelta(seconds=95 + 120)
    assert after["core.a", "backfill"].last_slot is None
    assert after.keys() == {("core.a", "forward"), ("core.a", "backfill")}


def test_a_model_that_is_gone_has_no_slots(story: Story) -> None:
    schedule(story, a=(("forward", "@hourly"),), b=(("forward", "@hourly"),))
    story.state.projects.apply("smaller", b"", {}, with_schedules(story, a=(("forward", "@hourly"),))[:2])
    assert schedules(story).keys() == {("core.a", "forward")}
    assert story.execute("select count(*) from schedule") == [(1,)]


def test_the_same_revision_again_brings_slots_that_the_tables_lack(story: Story) -> None:
    schedule(story, a=(("forward", "@hourly"),))
    story.execute("delete from schedule")
    schedule(story, a=(("forward", "@hourly"),))
    assert schedules(story).keys() == {("core.a", "forward")}


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        (Schedules(), ()),
        (Schedules(forwardfill="off", backfill="@daily"), (("backfill", "@daily"),)),
        (Schedules("@every 10s", "off"), (("forward", "@every 10s"),)),
    ],
)
def test_only_a_written_cadence_has_slots(written: Schedules, stored: Specs) -> None:
    model = IntervalModel(
        name="t.m",
        file="m.sql",
        sql="",
        position="n",
        axis="number",
        interval=Chunking(1, 1, 1),
        dependencies=(),
        schedules=written,
    )
    assert project_words._schedules(model) == stored


# firing


def test_a_slot_creates_its_tasks_and_moves_on(story: Story) -> None:
    stand_still(story, NOON)
    schedule(story, a=(("forward", "@every 1m"),))
    generations = {"core.a": story.generation().no}
    assert due(story) == ()
    stand_still(story, NOON + MINUTE)
    slots = due(story)
    assert slots == (Slot("core.a", "forward", NOON + MINUTE, NOON + 2 * MINUTE),)
    assert story.state.queue.enqueue([story.order((0, 10))], generations, slots) == 1
    record = schedules(story)["core.a", "forward"]
    assert (record.last_slot, record.next_at) == (NOON + MINUTE, NOON + 2 * MINUTE)
    assert due(story) == ()


def test_who_comes_late_for_a_slot_adds_nothing_to_that_lane(story: Story) -> None:
    stand_still(story, NOON)
    schedule(story, a=(("forward", "@every 1m"),))
    generations = {name: one.no for name, one in story.state.views.whole().working.items()}
    stand_still(story, NOON + MINUTE)
    slots = due(story)
    assert story.state.queue.enqueue([story.order((0, 10))], generations, slots) == 1
    late = [story.order((10, 20)), story.order((20, 30), lane="backfill"), story.order((0, 10), model="core.b")]
    assert story.state.queue.enqueue(late, generations, slots) == 2
    assert {task.lane for task in story.state.history.tasks("core.a", False, False)} == {"forward", "backfill"}


def test_a_slot_without_work_moves_on_all_the_same(story: Story) -> None:
    stand_still(story, NOON)
    schedule(story, a=(("backfill", "0 * * * *"),))
    stand_still(story, NOON + timedelta(hours=1))
    assert story.state.queue.enqueue([], {}, due(story)) == 0
    assert schedules(story)["core.a", "backfill"].next_at == NOON + timedelta(hours=2)


def test_a_transaction_that_fails_gives_its_slot_back(story: Story) -> None:
    stand_still(story, NOON)
    schedule(story, a=(("forward", "@every 1m"),))
    stand_still(story, NOON + MINUTE)
    slots, generations = due(story), {"core.a": story.generation().no}
    with pytest.raises(RuntimeError), story.state.database.transaction():
        assert story.state.queue.enqueue([story.order((0, 10))], generations, slots) == 1
        raise RuntimeError("killed")
    assert due(story) == slots


def race(story: Story, slots: Sequence[Slot], schedulers: int = 4) -> int:
    """Everybody saw the same slot and planned something else for it."""
    generations = {"core.a": story.generation().no}
    ready = threading.Barrier(schedulers)

    def fire(one: tuple[int, State]) -> int:
        number, state = one
        ready.wait(30)
        return state.queue.enqueue([story.order((10 * number, 10 * number + 10))], generations, slots)

    with ThreadPoolExecutor(schedulers) as pool:
        return sum(pool.map(fire, enumerate(story.connect() for _ in range(schedulers))))


def one_slot(story: Story) -> tuple[Slot, ...]:
    stand_still(story, NOON)
    schedule(story, a=(("forward", "@every 1m"),))
    stand_still(story, NOON + MINUTE)
    return due(story)


def test_of_several_schedulers_exactly_one_creates_the_tasks_of_a_slot(story: Story) -> None:
    slots = one_slot(story)
    for _ in range(10):
        assert race(story, slots) == 1
        story.execute("delete from task")
        at = slots[0].next_at
        stand_still(story, at)
        slots = due(story)
        assert [slot.at for slot in slots] == [at]


def test_without_the_comparison_everybody_would(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    blind = statements()["take_slot"].replace("and next_at = %(at)s", "")
    assert blind != statements()["take_slot"]
    monkeypatch.setitem(statements(), "take_slot", blind)
    assert race(story, one_slot(story)) == 4


# missed slots


def test_many_missed_slots_fire_once_and_the_cadence_does_not_drift() -> None:
    record = ScheduleRecord("core.a", "forward", "@every 90s", NOON, None)
    [slot] = due_slots([record], NOON + timedelta(hours=3, seconds=17))
    assert slot.at == NOON
    assert slot.next_at == NOON + timedelta(hours=3, seconds=90)
    later = replace(record, next_at=slot.next_at)
    assert due_slots([later], NOON + timedelta(hours=3, seconds=17)) == ()
    assert due_slots([later], slot.next_at)[0].next_at == NOON + timedelta(hours=3, seconds=180)


def test_a_day_of_late_looks_gives_every_slot_its_own_time() -> None:
    """Each look comes a little late; the thousandth slot still stands where it belongs."""
    record = ScheduleRecord("core.a", "forward", "@every 1m", NOON, None)
    for number in range(1440):
        [slot] = due_slots([record], record.next_at + timedelta(seconds=number % 59, milliseconds=7))
        assert slot.at == NOON + number * MINUTE
        record = replace(record, next_at=slot.next_at)


def test_counting_from_the_look_would_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.planner.policy import cadence
    from penstock.state.queue import schedules as module

    monkeypatch.setattr(module, "following", lambda one, after, anchor: cadence.following(one, after, anchor=after))
    record = ScheduleRecord("core.a", "forward", "@every 1m", NOON, None)
    [slot] = due_slots([record], NOON + timedelta(seconds=5))
    assert slot.next_at != NOON + MINUTE
