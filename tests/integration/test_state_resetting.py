"""Emptied tables, and acts that meet in the middle: invalidations, answers and resets on two connections at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import psycopg
import pytest
from preemption import Act, Preempted, answer, gate_of, gated, preempt, statements_of
from reaches import none, same

from penstock.errors import LeaseLostError, StateError
from penstock.planner.change.pins import InputChange
from penstock.state.database.statements import statements
from penstock.state.progress.resetting import Reset
from penstock.state.store import State
from penstock.values.changes import Changed
from penstock.values.intervals import EVERYTHING, NOTHING, IntervalSet, ranges
from penstock.values.records import Definition, SourceRecord
from penstock.values.tasks import Commit, Lease, Pin

if TYPE_CHECKING:
    from conftest import Story

TABLE = "table-1"


def record(snapshot: int) -> SourceRecord:
    now = datetime.now(UTC)
    return SourceRecord("raw.events", TABLE, snapshot, "hash", {"ts": "long"}, 0, 100, 1000, 10, None, None, now, None)


def begun(story: Story) -> None:
    """core.a holds [0, 20), from the first snapshot of its source."""
    story.state.sources.record(record(1), None)
    story.build((0, 10), (10, 20))
    story.state.events.handle(none)


def open_ones(story: Story) -> int:
    [[found]] = story.execute("select count(*) from invalidation where closed_at is null")
    assert isinstance(found, int)
    return found


@dataclass(frozen=True)
class Meeting:
    """Two connections that are stopped before any statement, and one that looks."""

    one: State
    other: State
    looking: psycopg.Connection

    def preempt(self, first: Act, second: Act, stop_at: int) -> Preempted:
        return preempt(self.looking, (self.one, first), (self.other, second), stop_at)


@pytest.fixture
def meeting(story: Story, dsn: str, empty_schema: str) -> Iterator[Meeting]:
    met = Meeting(gated(dsn, empty_schema), gated(dsn, empty_schema), story.connect().database.connection)
    yield met
    met.one.close()
    met.other.close()


def publishing(story: Story, lease: Lease, commit: Commit) -> Act:
    return lambda state: story.record(lease, commit, state)


# an empty table


def test_a_reset_drops_everything_and_fences_off_who_was_running(story: Story) -> None:
    begun(story)
    story.build((0, 10), (10, 20), model="core.b", inputs=1)
    story.state.events.handle(none)
    lease = story.lease((20, 30))
    story.enqueue(story.order((30, 40)))
    epoch = story.state.attempts.intend(lease, story.frontier(lease), None, "")
    no = story.generation().no
    with story.state.generations.resetting(no) as reset:
        assert (reset.covered, reset.generation.accepted_snapshot) == (ranges((0, 20)), 1)
        reset.record(7)
    with pytest.raises(LeaseLostError):
        story.record(lease, story.commit(lease, epoch))
    generation, work = story.generation(), story.state.views.whole().work["core.a"]
    assert (generation.covered, generation.stale, generation.accepted_snapshot) == (NOTHING, NOTHING, 7)
    assert (generation.audited_snapshot, work.queued, work.running) == (7, 0, 0)
    assert story.state.history.covers(no, EVERYTHING) == ()


def rebuilt_empty(story: Story) -> IntervalSet:
    """core.a is emptied and comes out empty; what of its consumer is stale then."""
    begun(story)
    story.build((0, 10), (10, 20), model="core.b", inputs=1)
    story.state.events.handle(none)
    with story.state.generations.resetting(story.generation().no) as reset:
        reset.record(7)
    story.publish(story.lease((0, 10), (10, 20)), changed=False)
    story.state.events.handle(same)
    return story.stale("core.b")


def test_consumers_hear_of_a_reset_even_where_nothing_comes_back(story: Story) -> None:
    assert rebuilt_empty(story) == ranges((0, 20))
    story.build((0, 10), (10, 20), model="core.b", inputs=7)
    assert (story.stale("core.b"), open_ones(story)) == (NOTHING, 0)


def test_an_emptied_table_without_an_event_would_leave_old_rows_behind(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk that comes out empty equals the emptied table: its publication tells nobody."""
    monkeypatch.setattr(Reset, "_tell", lambda *_: None)
    assert rebuilt_empty(story) == NOTHING


def test_a_reset_that_is_not_recorded_changes_nothing(story: Story) -> None:
    begun(story)
    lease = story.lease((20, 30))
    before = story.state.views.whole().working
    with story.state.generations.resetting(story.generation().no):
        pass
    assert story.state.views.whole().working == before
    story.publish(lease)
    assert story.covered() == ranges((0, 30))


def test_a_table_that_is_not_worked_on_cannot_be_reset(story: Story) -> None:
    begun(story)
    old = story.generation().no
    story.execute("update generation set state = 'retired'")
    with pytest.raises(StateError, match="not worked on"), story.state.generations.resetting(old):
        raise AssertionError("it should not get here")


def begin_again(no: int) -> Act:
    def act(state: State) -> object:
        with state.generations.resetting(no) as reset:
            reset.record((reset.generation.accepted_snapshot or 0) + 1)
        return "done"

    return act


def test_a_publication_and_a_reset_at_once_leave_no_coverage_without_rows(story: Story, meeting: Meeting) -> None:
    """Either it lands before and is emptied with the rest, or it is refused."""
    begun(story)
    reset = begin_again(story.generation().no)
    said: list[str] = ["", ""]
    stop_at = -1
    while stop_at < len(said) - 1:
        story.build((0, 10))
        lease = story.lease((10, 20))
        epoch = story.state.attempts.intend(lease, story.frontier(lease), None, "")
        publish = publishing(story, lease, story.commit(lease, epoch))
        if stop_at < 0:
            said, _ = statements_of(meeting.one, reset)
        else:
            came = meeting.preempt(reset, publish, stop_at)
            assert (came.first, came.second) == ("done", "LeaseLostError" if stop_at else None), came
            assert story.covered() == NOTHING, came
        story.state.events.handle(none)
        stop_at += 1
    assert "drop_tasks" in said


def test_a_reset_waits_for_a_publication_that_began_first(story: Story, meeting: Meeting) -> None:
    begun(story)
    lease = story.lease((20, 30))
    epoch = story.state.attempts.intend(lease, story.frontier(lease), None, "")
    publish = publishing(story, lease, story.commit(lease, epoch))
    came = meeting.preempt(publish, begin_again(story.generation().no), 2)
    assert (came.waited, came.first, came.second) == (True, None, "done")
    assert (story.covered(), story.generation().accepted_snapshot) == (NOTHING, 3)


# several models at once


def test_an_eager_cascade_and_a_publication_in_the_middle_end_as_if_one_came_first(
    story: Story, meeting: Meeting
) -> None:
    begun(story)
    story.build((0, 10), (10, 20), model="core.b")
    story.state.events.handle(none)

    def eager(state: State) -> object:
        return state.invalidations.invalidate_all({"core.a": ranges((0, 10)), "core.b": ranges((0, 20))}, "rerun", "me")

    said, _ = statements_of(meeting.one, eager)
    locked = said.index("lock_kept_generations")
    for stop_at in (locked, locked + 1, said.index("insert_target"), len(said) - 1):
        lease = story.lease((0, 10), model="core.b")
        epoch = story.state.attempts.intend(lease, story.frontier(lease), None, "")
        commit = story.commit(lease, epoch, changed=False)
        came = meeting.preempt(eager, publishing(story, lease, commit), stop_at)
        assert came.waited == (stop_at > locked)
        assert (story.stale(), story.stale("core.b")) == (ranges((0, 10)), ranges((0, 20))), came
        story.build((0, 10))
        story.state.events.handle(none)
        story.build((0, 10), (10, 20), model="core.b", inputs=story.generation().accepted_snapshot or 0)
        assert (story.stale("core.b"), open_ones(story)) == (NOTHING, 0)


# a key


def test_without_the_lock_on_the_key_somebody_would_be_turned_away(
    story: Story, meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table without consumers has no row that both would lock."""
    begun(story)
    story.execute("delete from edge")

    def report(state: State) -> object:
        impact = state.events.ask_consumers(
            InputChange("raw.events", None, TABLE, 2), ranges((0, 5)), {}, "", "me", key="k"
        )
        return impact.recorded is not None

    said, _ = statements_of(meeting.one, report)
    stop_at = said.index("insert_invalidation")
    story.execute("delete from invalidation")
    came = meeting.preempt(report, report, stop_at)
    assert (came.waited, came.first, came.second) == (True, False, True)
    story.execute("delete from invalidation")
    monkeypatch.setitem(statements(), "lock_key", "select 1 where %(model)s <> %(key)s")
    with pytest.raises(psycopg.errors.UniqueViolation):
        meeting.preempt(report, report, stop_at)
    gate_of(meeting.one).reset(None)


# the last answer


def test_two_consumers_that_answer_at_once_close_it(story: Story, meeting: Meeting) -> None:
    """Stopped before any statement of the one, the other publishes: one of them sees that nothing is left."""
    assert stays_open(story, meeting) == []


def test_without_the_lock_two_that_answer_at_once_would_leave_it_open(
    story: Story, meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(statements(), "lock_invalidations", "select 1 where %(invalidations)s::bigint[] is null")
    assert stays_open(story, meeting)


def stays_open(story: Story, meeting: Meeting) -> list[str]:
    """Before which statements of the first publication the second one must come for that."""
    added = Definition("core.c", "interval", "c", "second", "ts", {}, (("raw.events", 0, 0, 0, 0, False),))
    story.state.projects.apply("r2", b"", {}, (*story.definitions(), added))
    story.state.sources.record(record(1), None)
    for act in answers(story, 1):
        answer(act, story.state)
    said: list[str] = []
    found: list[str] = []
    for snapshot in range(2, 100):
        assert story.state.sources.record(record(snapshot), snapshot - 1, Changed(ranges((0, 10))))
        story.state.events.handle(same)
        first, second = answers(story, snapshot)
        if not said:
            said, _ = statements_of(meeting.one, first)
            answer(second, meeting.other)
            stops = iter(range(said.index("answer_targets"), said.index("close_invalidations") + 2))
            continue
        if (stop_at := next(stops, None)) is None:
            return found
        meeting.preempt(first, second, stop_at)
        if open_ones(story):
            found.append(said[stop_at])
            story.execute("update invalidation set closed_at = clock()")
    raise AssertionError("it says more than is expected here")


def answers(story: Story, snapshot: int) -> list[Act]:
    """Both consumers compute [0, 10) from that snapshot, and are about to publish it."""
    frontier = {"raw.events": Pin("landing/events", snapshot, TABLE)}
    found: list[Act] = []
    for model in ("core.a", "core.c"):
        lease = story.lease((0, 10), model=model)
        epoch = story.state.attempts.intend(lease, frontier, None, "")
        found.append(publishing(story, lease, replace(story.commit(lease, epoch, changed=False), frontier=frontier)))
    return found
