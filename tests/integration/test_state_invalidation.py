"""Events: what consumers of a changed table must do again, exactly that, exactly once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from reaches import same

from penstock.state.database.statements import statements
from penstock.state.progress import events
from penstock.values.changes import Changed
from penstock.values.intervals import EVERYTHING, NOTHING, IntervalSet, ranges
from penstock.values.records import Definition, SourceRecord
from penstock.values.tasks import Pin

if TYPE_CHECKING:
    from conftest import Story


def handle(story: Story) -> int:
    return story.state.events.handle(same)


def record(snapshot: int | None, end: int = 100, table: str | None = "table-1") -> SourceRecord:
    now = datetime.now(UTC)
    return SourceRecord("raw.events", table, snapshot, "hash", {"ts": "long"}, 0, end, 1000, 10, None, None, now, None)


def both_built(story: Story) -> None:
    """core.a at snapshot 1, core.b from it; all events handled."""
    story.build((0, 10), (10, 20), snapshot=1)
    handle(story)
    story.build((0, 10), (10, 20), model="core.b", inputs=1)
    handle(story)
    assert story.state.views.whole().events == 0


# by hand


def test_a_rerun_marks_what_is_covered_and_no_more(story: Story) -> None:
    """B-20: the range may straddle, lie inside or equal what is stored."""
    story.build((80, 140))
    story.state.invalidations.invalidate("core.a", ranges((100, 200)), "rerun", "me")
    assert story.stale() == ranges((100, 140))
    story.state.invalidations.invalidate("core.a", ranges((90, 95)), "rerun", "me")
    assert story.stale() == ranges((90, 95), (100, 140))
    story.state.invalidations.invalidate("core.a", ranges((80, 140)), "rerun", "me")
    assert story.stale() == story.covered() == ranges((80, 140))


def test_the_same_key_asks_once(story: Story) -> None:
    story.build((0, 10))
    first = story.state.invalidations.invalidate("core.a", ranges((0, 10)), "rerun", "me", key="k")
    story.build((0, 10), snapshot=2)
    assert story.state.invalidations.invalidate("core.a", ranges((0, 10)), "rerun", "me", key="k") == first
    assert story.stale() == NOTHING
    assert story.state.invalidations.invalidate("core.a", ranges((0, 10)), "rerun", "me", key="other") != first
    assert story.stale() == ranges((0, 10))


def test_two_processes_with_the_same_key_ask_once(story: Story) -> None:
    story.build((0, 10))
    states = [story.connect() for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        numbers = set(
            pool.map(lambda one: one.invalidations.invalidate("core.a", ranges((0, 10)), "r", "me", key="k"), states)
        )
    assert len(numbers) == 1
    assert story.generation().epoch == 1


def test_every_table_that_could_still_be_served_is_marked(story: Story) -> None:
    story.build((0, 10))
    old = story.generation().no
    story.state.projects.apply("r2", b"", {}, story.definitions(a="new"))
    story.build((0, 10))
    story.state.projects.cutover(["core.a", "core.b"])
    story.state.invalidations.invalidate("core.a", ranges((0, 5)), "rerun", "me")
    marked = story.execute("select generation from coverage where kind = 'stale' order by 1")
    assert marked == [(old,), (story.generation().no,)]


def test_an_invalidation_of_nothing_is_closed_at_once(story: Story) -> None:
    story.state.invalidations.invalidate("core.a", ranges((0, 10)), "rerun", "me")
    assert story.execute("select closed_at is not null from invalidation") == [(True,)]


# events


def test_a_changed_parent_marks_its_consumer(story: Story) -> None:
    both_built(story)
    story.state.invalidations.invalidate("core.a", ranges((0, 10)), "rerun", "me")
    story.build((0, 10), snapshot=2)
    assert story.stale("core.b") == NOTHING
    assert handle(story) == 1
    assert story.stale("core.b") == ranges((0, 10))
    story.build((0, 10), model="core.b", inputs=2)
    assert story.stale("core.b") == NOTHING
    assert story.execute("select count(*) from invalidation where closed_at is null") == [(0,)]


def test_the_mapping_of_the_caller_decides_the_reach(story: Story) -> None:
    both_built(story)
    story.state.invalidations.invalidate("core.a", ranges((0, 10)), "rerun", "me")
    story.build((0, 10), snapshot=2)
    asked: list[tuple[str, str, IntervalSet]] = []

    def widened(child: str, parent: str, changed: IntervalSet) -> IntervalSet:
        asked.append((child, parent, changed))
        return ranges((0, 20))

    story.state.events.handle(widened)
    assert asked == [("core.b", "core.a", ranges((0, 10)))]
    assert story.stale("core.b") == ranges((0, 20))


def test_coverage_from_a_newer_snapshot_is_left_alone(story: Story) -> None:
    """The consumer had read snapshot 2 already when the event of snapshot 2 was handled."""
    both_built(story)
    story.state.invalidations.invalidate("core.a", ranges((0, 20)), "rerun", "me")
    story.build((0, 10), (10, 20), snapshot=2)
    story.build((0, 10), model="core.b", inputs=2)
    handle(story)
    assert story.stale("core.b") == ranges((10, 20))


def test_new_coverage_over_old_counts_and_not_the_other_way_round(story: Story) -> None:
    both_built(story)
    story.build((0, 10), model="core.b", inputs=5)
    story.state.invalidations.invalidate("core.a", ranges((0, 20)), "rerun", "me")
    story.build((0, 10), (10, 20), snapshot=4)
    handle(story)
    assert story.stale("core.b") == ranges((10, 20))


def test_a_consumer_that_never_read_the_parent_is_marked(story: Story) -> None:
    story.build((0, 10))
    lease = story.lease((0, 10), model="core.b")
    story.record(lease, replace(story.commit(lease, 0), frontier={"other.member": Pin("x", 1)}))
    handle(story)
    assert story.stale("core.b") == ranges((0, 10))
    repair = story.lease((0, 10), model="core.b")
    epoch = story.state.attempts.intend(repair, {}, None, "")
    story.record(repair, replace(story.commit(repair, epoch), frontier={"other.member": Pin("x", 1)}))
    assert story.stale("core.b") == NOTHING


def with_alternatives(story: Story) -> None:
    """core.b reads core.first, or else core.second."""
    source, *_ = story.definitions()
    members = tuple(Definition(f"core.{name}", "interval", name, "second", "ts", {}) for name in ("first", "second"))
    edges = (("core.first", 0, 0, 0, 0, False), ("core.second", 0, 1, 0, 0, False))
    story.state.projects.apply(
        "r2", b"", {}, (source, *members, Definition("core.b", "interval", "b", "second", "ts", {}, edges))
    )


def build_from(story: Story, member: str, *, news_of: str = "") -> IntervalSet:
    """Build core.b from one member, while another one changes; what of it is stale then."""
    with_alternatives(story)
    lease = story.lease((0, 10), model="core.b")
    frontier = {member: Pin("x", 1, None, str(story.generation(member).id))}
    epoch = story.state.attempts.intend(lease, frontier, None, "")
    changed = story.lease((0, 10), model=news_of)
    story.record(changed, replace(story.commit(changed, 0, snapshot=5), frontier={}))
    handle(story)
    story.record(lease, replace(story.commit(lease, epoch), frontier=frontier))
    running = story.stale("core.b")
    story.state.invalidations.invalidate(news_of, ranges((0, 10)), "rerun", "me")
    again = story.lease((0, 10), model=news_of)
    story.record(again, replace(story.commit(again, 9, snapshot=6), frontier={}))
    handle(story)
    assert story.stale("core.b") == running
    return running


def test_an_alternative_that_was_not_needed_may_change(story: Story) -> None:
    assert build_from(story, "core.first", news_of="core.second") == NOTHING


def test_an_alternative_that_would_be_preferred_is_a_change(story: Story) -> None:
    assert build_from(story, "core.second", news_of="core.first") == ranges((0, 10))


def test_a_change_while_the_consumer_runs_is_not_lost(story: Story) -> None:
    """The attempt reads snapshot 1; snapshot 2 is published and handled before it publishes its uncovered range."""
    story.build((0, 10), snapshot=1)
    handle(story)
    lease = story.lease((0, 10), model="core.b")
    epoch = story.state.attempts.intend(lease, story.frontier(lease, 1), None, "")
    story.state.invalidations.invalidate("core.a", ranges((0, 5)), "rerun", "me")
    story.build((0, 5), snapshot=2)
    handle(story)
    story.record(lease, story.commit(lease, epoch, inputs=1))
    assert story.stale("core.b") == ranges((0, 5))


def test_a_running_consumer_that_already_reads_the_change_is_fresh(story: Story) -> None:
    story.build((0, 10), snapshot=1)
    story.state.invalidations.invalidate("core.a", ranges((0, 5)), "rerun", "me")
    story.build((0, 5), snapshot=2)
    lease = story.lease((0, 10), model="core.b")
    epoch = story.state.attempts.intend(lease, story.frontier(lease, 2), None, "")
    handle(story)
    story.record(lease, story.commit(lease, epoch, inputs=2))
    assert (story.covered("core.b"), story.stale("core.b")) == (ranges((0, 10)), NOTHING)


def test_a_crash_between_publish_and_handling_is_harmless(story: Story) -> None:
    both_built(story)
    story.state.invalidations.invalidate("core.a", ranges((0, 10)), "rerun", "me")
    story.build((0, 10), snapshot=2)
    story.state.close()
    story.state = story.connect()
    assert story.state.views.whole().events == 1
    assert handle(story) == 1
    assert story.stale("core.b") == ranges((0, 10))
    assert (handle(story), story.state.views.whole().events) == (0, 0)


def test_the_same_change_again_marks_nothing_that_was_done_since(story: Story) -> None:
    both_built(story)
    story.state.invalidations.invalidate("core.a", ranges((0, 10)), "rerun", "me")
    story.build((0, 10), snapshot=2)
    story.execute("create temp table kept as select * from event")
    handle(story)
    story.build((0, 10), model="core.b", inputs=2)
    story.execute(
        "insert into event (id, kind, model, generation, snapshot, ranges) "
        "select id, kind, model, generation, snapshot, ranges from kept"
    )
    handle(story)
    assert story.stale("core.b") == NOTHING


def test_several_processes_handle_each_event_once(story: Story) -> None:
    for i in range(12):
        story.build((10 * i, 10 * i + 10), snapshot=i)
    states = [story.connect() for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(lambda one: one.events.handle(same), states)) == 12


def test_a_poisoned_event_does_not_hold_up_the_others_and_ends(story: Story) -> None:
    """B-44; and what cannot be mapped counts as everything, so that no consumer stays wrong in silence."""
    both_built(story)
    story.state.invalidations.invalidate("core.a", ranges((0, 20)), "rerun", "me")
    story.build((0, 10), snapshot=2)
    story.build((10, 20), snapshot=3)

    def poisoned(child: str, parent: str, changed: IntervalSet) -> IntervalSet:
        if 0 in changed:
            raise KeyError("no such model")
        return changed

    story.state.events.handle(poisoned)
    assert story.stale("core.b") == ranges((10, 20))
    for round_ in range(1, events.MOST_TRIES + 1):
        assert story.state.views.whole().events == 1
        story.advance(60.0 * round_)
        story.state.events.handle(poisoned)
    assert story.state.views.whole().events == 0
    assert story.stale("core.b") == ranges((0, 20))
    assert story.execute("select dead, last_error from event") == [(True, "KeyError: 'no such model'")]


def test_a_rebuild_aside_does_not_disturb_the_table_that_serves(story: Story) -> None:
    both_built(story)
    story.state.projects.apply("r2", b"", {}, story.definitions(a="new"))
    story.build((0, 10), (10, 20), snapshot=1)
    handle(story)
    assert story.state.views.whole().current["core.b"].stale == NOTHING


def test_a_rebuild_that_was_taken_back_recomputes_nothing(story: Story) -> None:
    """Its event came late: the old query serves again, and nobody reads what the given-up table holds."""
    both_built(story)
    before = story.state.views.whole().working
    story.state.projects.apply("r2", b"", {}, story.definitions(a="new"))
    story.build((0, 10), snapshot=1)
    handle(story)
    story.build((10, 20), snapshot=2)
    story.state.projects.apply("r1", b"", {}, story.definitions())
    lease = story.lease((20, 30), model="core.b")
    assert handle(story) == 1
    assert (story.state.views.whole().events, story.execute("select count(*) from event")) == (0, [(0,)])
    assert story.state.views.whole().working == before
    story.publish(lease)
    assert story.stale("core.b") == NOTHING


def test_the_event_of_a_table_that_gave_way_to_another_is_dropped(story: Story) -> None:
    both_built(story)
    story.state.invalidations.invalidate("core.a", ranges((0, 10)), "rerun", "me")
    story.build((0, 10), snapshot=2)
    story.state.projects.apply("r2", b"", {}, story.definitions(a="new"))
    story.build((0, 10), (10, 20), snapshot=1)
    story.state.projects.cutover(["core.a", "core.b"])
    story.build((0, 10), (10, 20), model="core.b", inputs=1)
    handle(story)
    assert story.state.views.whole().events == 0
    assert story.stale("core.b") == NOTHING


def test_if_every_generation_had_a_say_a_given_up_rebuild_would_mark_the_table_that_serves(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(statements(), "is_working", "select true from generation where id = %(generation)s::uuid")
    both_built(story)
    story.state.projects.apply("r2", b"", {}, story.definitions(a="new"))
    story.build((0, 10), snapshot=1)
    story.state.projects.apply("r1", b"", {}, story.definitions())
    handle(story)
    assert story.stale("core.b") == ranges((0, 10))


# sources


def test_a_first_observation_is_kept(story: Story) -> None:
    assert story.state.sources.record(record(3), None)
    seen = story.state.views.whole().sources["raw.events"]
    assert (seen.snapshot, seen.min_pos, seen.end_pos, seen.columns) == (3, 0, 100, {"ts": "long"})


def test_a_source_that_is_declared_otherwise_is_observed_anew(story: Story) -> None:
    """Its bounds were those of another column, place or rule."""
    story.state.sources.record(record(3), None)
    story.state.projects.apply("r2", b"", {}, story.definitions(a="new"))
    assert story.state.views.whole().sources["raw.events"].end_pos == 100
    story.state.projects.apply("r3", b"", {}, story.definitions(a="new", events="other position"))
    assert story.state.views.whole().sources == {}
    assert not story.connect().sources.record(record(4), 3), "it was derived from the old bounds"
    assert story.state.sources.record(record(1, end=7), None)
    assert story.state.views.whole().sources["raw.events"].end_pos == 7


def test_a_source_that_comes_back_declared_otherwise_is_observed_anew(story: Story) -> None:
    story.state.sources.record(record(3), None)
    source, *_ = story.definitions()
    for revision, definitions in (("r2", ()), ("r3", (source,)), ("r4", ())):
        story.state.projects.apply(revision, b"", {}, definitions)
    assert story.execute("select end_pos from source") == [(100,)]
    story.state.projects.apply("r5", b"", {}, (replace(source, fingerprint="other"),))
    assert story.execute("select end_pos from source") == []


def test_of_two_that_look_at_once_the_later_state_wins(story: Story) -> None:
    story.state.sources.record(record(3), None)
    assert story.state.sources.record(record(5, end=200), 3)
    assert not story.connect().sources.record(record(4, end=150), 3)
    assert story.state.views.whole().sources["raw.events"].end_pos == 200


def test_without_a_snapshot_the_time_of_the_look_decides(story: Story) -> None:
    early, late = record(None, end=100, table=None), record(None, end=200, table=None)
    assert story.state.sources.record(late, None)
    assert not story.state.sources.record(early, None)
    assert story.state.views.whole().sources["raw.events"].end_pos == 200


def test_a_clock_that_runs_ahead_keeps_nobody_out(story: Story) -> None:
    ahead = replace(record(None, table=None), observed_at=datetime(2999, 1, 1, tzinfo=UTC))
    assert story.state.sources.record(ahead, None)
    story.advance(60)
    later = replace(ahead, observed_at=datetime.now(UTC).replace(year=2998), end_pos=300)
    assert story.state.sources.record(later, None)
    assert story.state.views.whole().sources["raw.events"].end_pos == 300


def test_an_error_keeps_the_old_bounds_and_the_next_good_look_clears_it(story: Story) -> None:
    story.state.sources.record_error("raw.events", "no such folder")
    never = story.state.views.whole().sources["raw.events"]
    assert (never.error, never.observed_at, never.end_pos) == ("no such folder", None, None)
    assert story.state.sources.record(record(3), None)
    story.state.sources.record_error("raw.events", "denied")
    seen = story.state.views.whole().sources["raw.events"]
    assert (seen.error, seen.end_pos, seen.snapshot) == ("denied", 100, 3)
    assert story.state.sources.record(record(4), 3)
    assert story.state.views.whole().sources["raw.events"].error is None


def test_changed_rows_of_a_source_reach_its_consumers_with_the_observation(story: Story) -> None:
    story.state.sources.record(record(3), None)
    story.build((0, 10), (10, 20), inputs=3)
    handle(story)
    assert story.state.sources.record(record(4), 3, Changed(ranges((0, 5))))
    handle(story)
    assert story.stale() == ranges((0, 5))


def test_an_observation_that_is_dropped_tells_nothing(story: Story) -> None:
    story.state.sources.record(record(3), None)
    assert not story.state.sources.record(record(4), 2, Changed(ranges((0, 5))))
    assert story.state.views.whole().events == 0


def test_a_replaced_table_is_everything_whatever_its_snapshot(story: Story) -> None:
    story.state.sources.record(record(30), None)
    story.build((0, 10), inputs=30)
    handle(story)
    story.state.sources.record(record(2, table="table-2"), 30, Changed(EVERYTHING))
    handle(story)
    assert story.stale() == ranges((0, 10))


def test_older_files_of_the_same_table_that_were_put_back_are_everything_too(story: Story) -> None:
    story.state.sources.record(record(30), None)
    story.build((0, 10), inputs=30)
    handle(story)
    story.state.sources.record(record(2), 30, Changed(EVERYTHING))
    handle(story)
    assert story.stale() == ranges((0, 10))


@pytest.mark.parametrize("snapshot", [None, 4])
def test_a_source_without_snapshots_is_ordered_by_epoch(story: Story, snapshot: int | None) -> None:
    story.state.sources.record(record(snapshot), None)
    lease = story.lease((0, 10))
    frontier = {"raw.events": Pin("csv", None)}
    epoch = story.state.attempts.intend(lease, frontier, None, "")
    story.state.sources.record(record(snapshot), snapshot, Changed(ranges((0, 5))))
    handle(story)
    story.record(lease, replace(story.commit(lease, epoch), frontier=frontier))
    assert story.stale() == ranges((0, 5))
    repair = story.lease((0, 5))
    epoch = story.state.attempts.intend(repair, frontier, None, "")
    story.record(repair, replace(story.commit(repair, epoch), frontier=frontier))
    assert story.stale() == NOTHING


def test_rows_that_somebody_else_may_have_changed_have_no_digest(story: Story) -> None:
    lease = story.lease((0, 10), (10, 20))
    epoch = story.state.attempts.intend(lease, story.frontier(lease, 5), 3, "staging/1")
    commit = story.commit(lease, epoch)
    story.record(lease, replace(commit, chunks=tuple(replace(chunk, digest=(1, 2, 3)) for chunk in commit.chunks)))
    scope = ranges((0, 20))
    story.state.invalidations.invalidate("core.a", ranges((0, 5)), "a rerun trusts what is stored", "test")
    assert [one.digest for one in story.state.history.covers(lease.generation, scope)] == [(1, 2, 3), (1, 2, 3)]
    story.state.invalidations.invalidate("core.a", ranges((0, 5)), "a foreign commit", "test", rows_unknown=True)
    assert [one.digest for one in story.state.history.covers(lease.generation, scope)] == [None, (1, 2, 3)]
