"""Reopening: who is asked to compute what again, by whom, since when, and when that is over."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from reaches import none, same

import penstock
from penstock.planner.change.pins import InputChange
from penstock.state.pruning import prune
from penstock.values.changes import MOST_PARTS, Changed, merged_counts
from penstock.values.intervals import EVERYTHING, NOTHING, Interval, ranges
from penstock.values.records import Definition, SourceRecord
from penstock.values.tasks import Pin

if TYPE_CHECKING:
    from conftest import Story

TABLE = "table-1"


def record(snapshot: int | None, table: str = TABLE, expired: int | None = None) -> SourceRecord:
    now = datetime.now(UTC)
    return SourceRecord(
        "raw.events", table, snapshot, "hash", {"ts": "long"}, 0, 100, 1000, 10, None, None, now, None, expired
    )


def input_change(snapshot: int | None, table: str = TABLE) -> InputChange:
    return InputChange("raw.events", None, table, snapshot)


def observed(story: Story, snapshot: int, changed: Changed) -> None:
    """Seen one snapshot after the other, and told."""
    assert story.state.sources.record(record(snapshot), snapshot - 1 if snapshot > 1 else None, changed)
    story.state.events.handle(same)


def begun(story: Story) -> None:
    """core.a holds [0, 20), from the first snapshot of its source."""
    story.state.sources.record(record(1), None)
    story.build((0, 10), (10, 20))
    story.state.events.handle(none)


def add_consumer(story: Story, name: str, revision: str = "r2") -> None:
    """One more that reads the source."""
    edges = (("raw.events", 0, 0, 0, 0, False),)
    added = Definition(name, "interval", name, "second", "ts", {}, edges)
    story.state.projects.apply(revision, b"", {}, (*story.definitions(), added))


def build_from_source(story: Story, *chunks: tuple[int, int], model: str, snapshot: int) -> None:
    lease = story.lease(*chunks, model=model)
    frontier = {"raw.events": Pin("landing/events", snapshot, TABLE)}
    epoch = story.state.attempts.intend(lease, frontier, None, "")
    story.record(lease, replace(story.commit(lease, epoch), frontier=frontier))


def open_ones(story: Story) -> int:
    [[found]] = story.execute("select count(*) from invalidation where closed_at is null")
    assert isinstance(found, int)
    return found


def count(story: Story, table: str) -> int:
    [[found]] = story.execute(f"select count(*) from {table}")
    assert isinstance(found, int)
    return found


# what is stored with a source


def test_where_a_source_begins_to_have_lost_its_rows_is_kept(story: Story) -> None:
    story.state.sources.record(record(1, expired=7), None)
    assert story.state.views.whole().sources["raw.events"].expired_pos == 7
    story.state.sources.record(record(2), 1)
    assert story.state.views.whole().sources["raw.events"].expired_pos is None


# why, and how many rows


def test_counts_of_changed_rows_are_summed_up_for_the_positions_asked_about(story: Story) -> None:
    begun(story)
    rows = ((Interval(3, 4), 20), (Interval(5, 6), 1), (Interval(12, 13), 7))
    observed(story, 2, Changed(ranges((3, 4), (5, 6), (12, 13)), rows))
    no = story.generation().no
    [found] = story.state.reopenings.newest(no, ranges((0, 10)))
    assert (found.model, found.cause, found.snapshot, found.rows) == ("raw.events", "source", 2, 21)
    assert (found.ranges, found.open) == (ranges((3, 4), (5, 6)), ranges((3, 4), (5, 6)))
    assert [one.rows for one in story.state.reopenings.newest(no, ranges((10, 20)))] == [7]
    assert story.state.reopenings.newest(no, ranges((14, 20))) == ()
    story.build((0, 10), (10, 20), inputs=2)
    [found] = story.state.reopenings.newest(no, EVERYTHING)
    assert (found.rows, found.open, found.closed_at is not None) == (28, NOTHING, True)


def test_rows_are_not_counted_where_nobody_knows_them_exactly(story: Story) -> None:
    begun(story)
    observed(story, 2, Changed(ranges((0, 20)), ((Interval(0, 15), 100),)))
    no = story.generation().no
    assert [one.rows for one in story.state.reopenings.newest(no, ranges((0, 10)))] == [None], "it reaches beyond"
    assert [one.rows for one in story.state.reopenings.newest(no, ranges((0, 20)))] == [None], "some were not counted"
    assert [one.rows for one in story.state.reopenings.newest(no, ranges((0, 15)))] == [100]


def test_rows_count_for_a_chunk_that_looks_back_at_them(story: Story) -> None:
    """core.b reads ten positions before its own."""
    [source, first, second] = story.definitions()
    story.state.projects.apply(
        "r2", b"", {}, (source, first, replace(second, edges=(("raw.events", 0, 0, 10, 0, False),)))
    )
    begun(story)
    build_from_source(story, (0, 10), (10, 20), model="core.b", snapshot=1)
    story.state.sources.record(record(2), 1, Changed(ranges((8, 9)), ((Interval(8, 9), 3),)))
    story.state.events.handle(lambda child, _, changed: changed.outward(10) | ranges((0, 20)))
    no = story.generation("core.b").no
    assert [one.rows for one in story.state.reopenings.newest(no, ranges((10, 20)))] == [3]


def test_the_newest_reason_comes_first_and_old_ones_are_left_out(story: Story) -> None:
    begun(story)
    for n in range(5):
        story.state.invalidations.invalidate("core.a", ranges((0, 5)), f"rerun {n}", "me", row_filter="country = 'NO'")
    found = story.state.reopenings.newest(story.generation().no, ranges((0, 10)), limit=2)
    assert [(one.reason, one.cause, one.row_filter, one.rows) for one in found] == [
        ("rerun 4", "rerun", "country = 'NO'", None),
        ("rerun 3", "rerun", "country = 'NO'", None),
    ]


def test_neighbours_of_too_many_parts_become_one() -> None:
    parts = tuple((Interval(n, n + 1), 1) for n in range(MOST_PARTS))
    assert merged_counts([parts, parts]) == tuple((part, 2) for part, _ in parts)
    fewer = merged_counts([parts, ((Interval(10_000, 10_001), 5),)])
    assert len(fewer) <= MOST_PARTS
    assert sum(rows for _, rows in fewer) == MOST_PARTS + 5
    assert (fewer[0][0].start, fewer[-1][0].end) == (0, 10_001)


# several invalidations of one range


def test_a_trickle_of_late_rows_is_one_invalidation_that_waits_since_the_first(story: Story) -> None:
    begun(story)
    row = Changed(ranges((0, 10)), ((Interval(0, 10), 1),))
    observed(story, 2, row)
    first = story.state.views.whole().reopened["core.a"]
    assert first.gathers
    for snapshot in range(3, 32):
        observed(story, snapshot, row)
    assert (count(story, "invalidation"), open_ones(story)) == (1, 1)
    last = story.state.views.whole().reopened["core.a"]
    assert (last.since, last.gathers) == (first.since, True)
    assert last.latest > first.latest
    [found] = story.state.reopenings.newest(story.generation().no, ranges((0, 10)))
    assert (found.snapshot, found.rows) == (31, 30)
    story.build((0, 10), inputs=30)
    assert (story.stale(), open_ones(story)) == (ranges((0, 10)), 1), "the last row is not in it"
    story.build((0, 10), inputs=31)
    assert (story.stale(), open_ones(story)) == (NOTHING, 0)


def test_an_invalidation_of_which_something_is_done_or_that_asks_more_is_not_taken_in(story: Story) -> None:
    begun(story)
    observed(story, 2, Changed(ranges((0, 20))))
    observed(story, 3, Changed(ranges((0, 10))))
    assert open_ones(story) == 2
    story.build((10, 20), inputs=2)
    observed(story, 4, Changed(ranges((0, 20))))
    assert story.execute("select input_snapshot from invalidation order by id") == [(2,), (4,)]
    story.build((0, 10), (10, 20), inputs=4)
    assert (story.stale(), open_ones(story)) == (NOTHING, 0)


def test_what_people_said_is_kept_as_they_said_it(story: Story) -> None:
    begun(story)
    for snapshot in (2, 3):
        story.state.sources.record(record(snapshot), snapshot - 1)
        story.state.events.ask_consumers(
            input_change(snapshot), ranges((0, 10)), {"core.a": ranges((0, 10))}, "bad file", "me"
        )
    assert count(story, "invalidation") == 2
    story.build((0, 10), inputs=3)
    assert (story.stale(), open_ones(story)) == (NOTHING, 0), "one repair answers both"


# since when, and whether to wait for more


def test_only_rows_of_sources_let_a_repair_wait(story: Story) -> None:
    begun(story)
    assert story.state.views.whole().reopened == {}
    observed(story, 2, Changed(ranges((0, 5))))
    first = story.state.views.whole().reopened["core.a"]
    assert first.gathers
    story.advance(20)
    story.state.invalidations.invalidate("core.a", ranges((10, 15)), "rerun", "me")
    both = story.state.views.whole().reopened["core.a"]
    assert (both.since, both.gathers) == (first.since, False)
    assert both.latest > first.latest
    story.build((10, 20), inputs=2)
    assert story.state.views.whole().reopened["core.a"] == first
    story.build((0, 10), inputs=2)
    assert story.state.views.whole().reopened == {}


def test_a_change_that_running_work_may_have_read_already_delays_nothing(story: Story) -> None:
    """Else a late row that comes much later would not be waited for."""
    begun(story)
    lease = story.lease((20, 30))
    epoch = story.state.attempts.intend(lease, story.frontier(lease, 1), None, "")
    observed(story, 2, Changed(ranges((20, 21))))
    assert (open_ones(story), story.state.views.whole().reopened) == (1, {})
    story.advance(60)
    story.record(lease, story.commit(lease, epoch, 1))
    reopened = story.state.views.whole().reopened["core.a"]
    assert reopened.gathers and (story.state.views.whole().at - reopened.since).total_seconds() < 30


def test_a_cascade_waits_for_nothing(story: Story) -> None:
    begun(story)
    story.build((0, 10), (10, 20), model="core.b")
    story.state.events.handle(none)
    story.state.invalidations.invalidate("core.a", ranges((0, 10)), "rerun", "me")
    story.build((0, 10), snapshot=5)
    story.state.events.handle(same)
    assert story.state.views.whole().reopened["core.b"].gathers is False
    [found] = story.state.reopenings.newest(story.generation("core.b").no, EVERYTHING)
    assert (found.cause, found.model, found.snapshot) == ("parent", "core.a", 5)


# data that we do not compute


def test_consumers_of_a_table_are_asked_unless_they_read_that_snapshot(story: Story) -> None:
    begun(story)
    story.state.sources.record(record(2), 1)
    story.build((10, 20), inputs=2)
    scope = ranges((0, 20))
    impact = story.state.events.ask_consumers(input_change(2), scope, {"core.a": scope}, "bad file", "me", keep=False)
    assert (impact.number, impact.asked, impact.recorded is not None) == (None, {"core.a": ranges((0, 10))}, False)
    assert (story.stale(), count(story, "invalidation")) == (NOTHING, 0)
    done = story.state.events.ask_consumers(input_change(2), scope, {"core.a": scope}, "bad file", "me", key="k")
    assert (done.asked, done.recorded is not None, story.stale()) == (impact.asked, False, ranges((0, 10)))
    for keep in (True, False):
        again = story.state.events.ask_consumers(
            input_change(2), scope, {"core.a": scope}, "bad file", "me", key="k", keep=keep
        )
        assert (again.number, again.asked, again.recorded is not None) == (done.number, {}, True)
    story.build((0, 10), inputs=2)
    assert (story.stale(), open_ones(story)) == (NOTHING, 0)


def test_a_reorg_seen_in_the_log_and_reported_by_hand_is_one_recompute(story: Story) -> None:
    """B-46: whichever comes first, and whether or not the repair lies between."""
    begun(story)
    scope = ranges((0, 10))
    observed(story, 2, Changed(scope))
    assert story.state.events.ask_consumers(input_change(2), scope, {"core.a": scope}, "reorg", "me", key="1").asked
    story.build((0, 10), inputs=2)
    assert (story.stale(), open_ones(story)) == (NOTHING, 0)
    late = story.state.events.ask_consumers(input_change(2), scope, {"core.a": scope}, "reorg", "me", key="2")
    assert (late.asked, story.stale(), open_ones(story)) == ({}, NOTHING, 0)


def test_without_snapshots_consumers_are_asked_by_the_order_of_things(story: Story) -> None:
    begun(story)
    lease = story.lease((20, 30))
    frontier = {"raw.events": Pin("csv", None)}
    epoch = story.state.attempts.intend(lease, frontier, None, "")
    scope = ranges((5, 25))
    impact = story.state.events.ask_consumers(
        InputChange("raw.events", None, None, None), scope, {"core.a": scope}, "", "me"
    )
    assert impact.asked == {"core.a": ranges((5, 25))}
    story.record(lease, replace(story.commit(lease, epoch), frontier=frontier))
    assert story.stale() == ranges((5, 25))


def test_consumers_that_were_removed_are_marked_by_what_is_known_of_them(story: Story) -> None:
    begun(story)
    source, *_ = story.definitions()
    story.state.projects.apply("r2", b"", {}, (source,))
    story.state.sources.record(record(2), 1)
    impact = story.state.events.ask_consumers(input_change(2), ranges((0, 5)), {}, "bad file", "me")
    assert impact.asked == {"core.a": ranges((0, 5))}
    assert open_ones(story) == 0, "nobody waits for a model that is gone"
    story.state.projects.apply("r3", b"", {}, story.definitions())
    assert story.stale() == ranges((0, 5))


def test_the_same_key_about_another_table_is_another_invalidation(story: Story) -> None:
    begun(story)
    story.state.invalidations.invalidate("core.a", ranges((0, 5)), "rerun", "me", key="k")
    story.state.sources.record(record(2), 1)
    done = story.state.events.ask_consumers(
        input_change(2), ranges((5, 9)), {"core.a": ranges((5, 9))}, "", "me", key="k"
    )
    assert (done.recorded is not None, story.stale()) == (False, ranges((0, 9)))


@pytest.mark.parametrize("consumers", [0, 1])
def test_of_two_that_report_the_same_at_once_one_is_heard(story: Story, consumers: int) -> None:
    begun(story)
    if not consumers:
        story.execute("delete from edge")
    states = [story.connect() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(
            pool.map(
                lambda one: one.events.ask_consumers(
                    input_change(2), ranges((0, 5)), {"core.a": ranges((0, 5))}, "reorg", "me", key="k"
                ),
                states,
            )
        )
    assert len({one.number for one in found}) == 1
    assert [one.recorded is not None for one in found].count(False) == 1
    assert count(story, "invalidation") == 1


# when it is over


def test_an_invalidation_is_closed_by_its_last_consumer_and_not_opened_by_a_later_one(story: Story) -> None:
    """S2-42."""
    add_consumer(story, "core.c")
    begun(story)
    build_from_source(story, (0, 10), model="core.c", snapshot=1)
    observed(story, 2, Changed(ranges((0, 10))))
    assert open_ones(story) == 1
    story.build((0, 10), inputs=2)
    assert open_ones(story) == 1
    build_from_source(story, (0, 10), model="core.c", snapshot=2)
    closed = story.execute("select closed_at from invalidation")
    assert open_ones(story) == 0
    add_consumer(story, "core.d", revision="r3")
    build_from_source(story, (0, 10), model="core.d", snapshot=1)
    story.state.events.handle(same)
    assert story.execute("select closed_at from invalidation") == closed
    assert story.stale("core.d") == NOTHING


def test_a_table_that_gave_way_to_another_is_not_waited_for(story: Story) -> None:
    begun(story)
    story.state.projects.apply("r2", b"", {}, story.definitions(a="new"))
    observed(story, 2, Changed(ranges((0, 10))))
    assert open_ones(story) == 1, "the table that serves holds old rows"
    story.build((0, 10), inputs=2)
    story.state.projects.cutover(["core.a", "core.b"])
    assert open_ones(story) == 0


def test_what_is_over_is_forgotten_in_time_and_what_is_open_is_not(story: Story) -> None:
    begun(story)
    observed(story, 2, Changed(ranges((0, 10))))
    story.build((0, 10), inputs=2)
    observed(story, 3, Changed(ranges((10, 20))))
    story.advance(60 * 86_400)
    prune(story.state.database, 30 * 86_400)
    assert story.execute("select input_snapshot from invalidation") == [(3,)]
    assert count(story, "invalidation_target") == 1
    assert story.stale() == ranges((10, 20))


def test_a_table_that_is_kept_is_marked_for_what_it_read_of_a_source_that_was_replaced(story: Story) -> None:
    """Nobody builds it, but a rollback could serve it."""
    begun(story)
    old = story.generation().no
    story.state.projects.apply("r2", b"", {}, story.definitions(a="new"))
    story.build((0, 10), (10, 20))
    story.state.projects.cutover(["core.a", "core.b"])
    story.state.sources.record(record(1, table="table-2"), 1, Changed(EVERYTHING))
    story.state.events.handle(same)
    marked = story.execute("select generation, range::text from coverage where kind = 'stale' order by 1")
    assert marked == [(old, "[0,20)"), (story.generation().no, "[0,20)")]


# several models at once


def test_an_eager_cascade_marks_all_at_once(story: Story) -> None:
    begun(story)
    story.build((0, 10), (10, 20), model="core.b")
    story.state.events.handle(none)
    asked = story.state.invalidations.invalidate_all(
        {"core.a": ranges((0, 5)), "core.b": ranges((0, 15)), "core.x": NOTHING}, "rerun", "me"
    )
    assert (asked, story.stale(), story.stale("core.b")) == (2, ranges((0, 5)), ranges((0, 15)))
    story.build((0, 10), inputs=1)
    story.state.events.handle(same)
    story.build((0, 10), (10, 20), model="core.b", inputs=story.generation().accepted_snapshot or 0)
    assert (story.stale(), story.stale("core.b"), open_ones(story)) == (NOTHING, NOTHING, 0)


# who may ask


def test_workers_never_raise_an_invalidation() -> None:
    """S2-37: what a worker writes is the answer inside its publication."""
    raising = ("state.invalidations.", "state.events.", "state.generations.", ".resetting(")
    root = Path(penstock.__file__).parent
    files = [root / "runtime" / "work" / f"{name}.py" for name in ("attempt", "worker", "worker_pool", "heartbeat")]
    files += sorted((root / "engine").rglob("*.py"))
    assert len(files) > 20
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert not [name for name in raising if name in text], file
    assert "state.events." in (root / "runtime" / "plan" / "reconcile.py").read_text(encoding="utf-8"), "the control"
