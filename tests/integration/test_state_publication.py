"""Publishing: one transaction, fenced, accepted once, and never fresher than what was read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import ConflictError, LeaseLostError, StateError
from penstock.planner.change.coverage import invalidated, published
from penstock.state.database.statements import statements
from penstock.state.progress import invalidations
from penstock.state.progress.folding import CoverageEntries, CoverageTotal, extended
from penstock.state.progress.publication import Publication
from penstock.values.intervals import NOTHING, Interval, IntervalSet, ranges
from penstock.values.tasks import ChunkResult, Lease

if TYPE_CHECKING:
    from conftest import Story


def test_publishing_records_everything_that_follows_from_the_commit(story: Story) -> None:
    lease = story.lease((0, 10), (10, 20))
    epoch = story.state.attempts.intend(lease, story.frontier(lease, 5), 3, "staging/1")
    with story.state.attempts.publishing(lease) as publication:
        assert (publication.generation.accepted_snapshot, publication.generation.epoch) == (None, 0)
        commit = story.commit(lease, epoch, inputs=5, snapshot=4)
        first, second = commit.chunks
        commit = replace(commit, chunks=(replace(first, digest=(7, 2**70, -5)), replace(second, digest=None)))
        publication.record(commit, story.cost, "union", ["one warning"])
    generation = story.generation()
    assert (generation.covered, generation.stale, generation.accepted_snapshot) == (ranges((0, 20)), NOTHING, 4)
    assert generation.data_timestamp is not None
    [attempt] = story.state.history.attempts([lease.task])[lease.task]
    assert (attempt.outcome, attempt.snapshot, attempt.cost) == ("succeeded", 4, story.cost)
    assert attempt.inputs == story.frontier(lease, 5)
    [task] = story.state.history.tasks(None, failed=False, history=True)
    assert (task.state, task.strategy, task.snapshot, task.cost) == ("succeeded", "union", 4, story.cost)
    first, second = story.state.history.covers(generation.no, ranges((0, 20)))
    assert (first.interval, first.rows, first.digest) == (Interval(0, 10), 7, (7, 2**70, -5))
    assert second.digest is None
    assert first.frontier == second.frontier == story.frontier(lease, 5)
    assert story.state.views.whole().events == 1


def test_nothing_recorded_is_nothing_kept_and_may_be_tried_again(story: Story) -> None:
    lease = story.lease((0, 10))
    with story.state.attempts.publishing(lease):
        pass
    assert story.covered() == NOTHING
    story.publish(lease)
    assert story.covered() == ranges((0, 10))


def test_an_error_while_publishing_keeps_nothing(story: Story) -> None:
    lease = story.lease((0, 10))
    with pytest.raises(ZeroDivisionError), story.state.attempts.publishing(lease) as publication:
        publication.record(story.commit(lease, 0), story.cost, "interval", ())
        raise ZeroDivisionError
    assert story.covered() == NOTHING
    assert story.state.views.whole().events == 0
    story.publish(lease)


def test_a_database_that_fails_while_recording_fails_the_attempt(story: Story) -> None:
    """B-10: no success without a record; the next try is idempotent."""
    lease = story.lease((0, 10))
    killer = story.connect()
    with pytest.raises(StateError), story.state.attempts.publishing(lease) as publication:
        pid = story.state.database.connection.info.backend_pid
        killer.database.connection.execute("select pg_terminate_backend(%s)", (pid,))
        publication.record(story.commit(lease, 0), story.cost, "interval", ())
    story.state = killer
    assert story.covered() == NOTHING
    story.publish(lease)
    assert story.covered() == ranges((0, 10))


def test_completing_twice_gives_the_stored_outcome(story: Story) -> None:
    """B-41: a worker that lost the answer asks with its token."""
    lease = story.lease((0, 10))
    assert story.state.attempts.completed(lease) is None
    story.publish(lease, snapshot=9)
    done = story.state.attempts.completed(lease)
    assert done is not None
    assert (done.outcome, done.snapshot) == ("succeeded", 9)
    with pytest.raises(LeaseLostError):
        story.record(lease, story.commit(lease, 0))
    assert len(story.state.history.covers(lease.generation, ranges((0, 10)))) == 1


def test_the_database_itself_refuses_a_second_success(story: Story) -> None:
    lease = story.build((0, 10))
    with pytest.raises(psycopg.errors.UniqueViolation):
        story.execute(
            "insert into attempt (task, n, worker, token, outcome, ended_at) "
            "values (%s, 2, 'w', gen_random_uuid(), 'succeeded', clock())",
            lease.task,
        )


def test_publications_of_one_generation_wait_for_each_other(story: Story) -> None:
    one, two = story.lease((0, 10)), story.lease((10, 20))
    other = story.connect()
    other.database.connection.execute("set lock_timeout = '100ms'")
    with story.state.attempts.publishing(one) as publication:
        with pytest.raises(ConflictError), other.attempts.publishing(two):
            raise AssertionError("two transactions hold one lock")
        publication.record(story.commit(one, 0), story.cost, "interval", ())
    story.record(two, story.commit(two, 0), other)
    assert story.covered() == ranges((0, 20))


def test_a_commit_outside_of_its_task_is_refused(story: Story) -> None:
    lease = story.lease((0, 10))
    outside = replace(story.commit(lease, 0), chunks=(ChunkResult(Interval(5, 15), 1, True),))
    with pytest.raises(ValueError, match=r"is about \[0, 10\)"):
        story.record(lease, outside)
    assert story.covered() == NOTHING


def test_equal_rows_make_progress_and_no_event(story: Story) -> None:
    lease = story.lease((0, 10))
    story.publish(lease, changed=False)
    assert story.covered() == ranges((0, 10))
    assert story.state.views.whole().events == 0


# publish against invalidate


def test_an_invalidation_before_the_intent_is_answered(story: Story) -> None:
    story.build((0, 10))
    number = story.state.invalidations.invalidate("core.a", ranges((0, 10)), "rerun", "me")
    assert story.stale() == ranges((0, 10))
    story.build((0, 10), snapshot=2)
    assert (story.covered(), story.stale()) == (ranges((0, 10)), NOTHING)
    assert story.execute("select closed_at is not null from invalidation where id = %s", number) == [(True,)]


def invalidated_between(story: Story) -> IntervalSet:
    """Half of a running repair is invalidated after its inputs were fixed; what is stale when it has published."""
    story.build((0, 10))
    story.state.invalidations.invalidate("core.a", ranges((0, 10)), "rerun", "me")
    lease = story.lease((0, 10))
    epoch = story.state.attempts.intend(lease, story.frontier(lease), None, "")
    number = story.state.invalidations.invalidate("core.a", ranges((5, 10)), "again", "me")
    story.record(lease, story.commit(lease, epoch))
    assert story.execute("select closed_at is null from invalidation where id = %s", number) == [(True,)]
    return story.stale()


def test_what_was_invalidated_between_intent_and_publish_stays_stale(story: Story) -> None:
    assert invalidated_between(story) == ranges((5, 10))
    story.build((5, 10))
    assert story.stale() == NOTHING
    assert story.execute("select count(*) from invalidation where closed_at is null") == [(0,)]


def test_taking_the_published_range_out_of_stale_would_hide_it(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant `stale - r` leaves rows of the old inputs marked fresh."""
    monkeypatch.setattr(invalidations, "lost", lambda *_: NOTHING)
    assert invalidated_between(story) == NOTHING


def test_a_range_that_was_never_covered_is_stale_when_its_inputs_changed_meanwhile(story: Story) -> None:
    lease = story.lease((0, 10))
    epoch = story.state.attempts.intend(lease, story.frontier(lease), None, "")
    story.state.invalidations.invalidate("core.a", ranges((0, 5)), "correction", "me")
    assert (story.covered(), story.stale()) == (NOTHING, NOTHING)
    story.record(lease, story.commit(lease, epoch))
    assert (story.covered(), story.stale()) == (ranges((0, 10)), ranges((0, 5)))


def test_an_adopted_commit_counts_from_the_attempt_that_made_it(story: Story) -> None:
    """Attempt 1 committed to Delta and was lost; what changed before attempt 2 adopts it is not in its rows."""
    first = story.lease((0, 10))
    epoch = story.state.attempts.intend(first, story.frontier(first, 1), None, "")
    commit = story.commit(first, epoch, inputs=1, snapshot=1)
    story.advance(121)
    story.state.queue.reap()
    story.state.invalidations.invalidate("core.a", ranges((0, 5)), "correction", "me")
    second = story.claim()
    assert second.epoch > epoch
    story.state.attempts.intend(second, story.frontier(second, 2), None, "")
    story.record(second, replace(commit, adopted=True))
    assert (story.covered(), story.stale()) == (ranges((0, 10)), ranges((0, 5)))
    [record] = story.state.history.covers(second.generation, ranges((0, 10)))
    assert (record.frontier, record.attempt) == (story.frontier(first, 1), 2)


def test_an_adopted_commit_does_not_move_the_accepted_snapshot_back(story: Story) -> None:
    lease = story.lease((0, 10))
    story.build((10, 20), snapshot=8)
    story.record(lease, replace(story.commit(lease, 0, snapshot=5), adopted=True))
    assert story.generation().accepted_snapshot == 8


# snapshots


def snapshots(story: Story) -> tuple[int | None, int | None]:
    generation = story.generation()
    return generation.accepted_snapshot, generation.audited_snapshot


def test_a_forgotten_table_is_counted_from_its_new_beginning(story: Story) -> None:
    story.build((0, 10), (10, 20), snapshot=8)
    number = story.generation().no
    story.state.generations.forget_table(number, 7)
    assert snapshots(story) == (8, 8), "somebody has published since the table was missed"
    story.state.generations.forget_table(number, 8)
    assert snapshots(story) == (None, None)
    assert [one.digest for one in story.state.history.covers(number, ranges((0, 20)))] == [None, None]
    assert story.covered() == ranges((0, 20))
    story.build((0, 10), snapshot=1)
    assert snapshots(story) == (1, 1)


def audited_late(story: Story) -> tuple[int | None, int | None]:
    """An audit of snapshot 9 that comes when the table of then is gone and another one lies in its place."""
    story.build((0, 10), (10, 20), snapshot=8)
    seen = story.generation()
    story.state.generations.forget_table(seen.no, 8)
    story.build((0, 10), snapshot=1)
    story.state.generations.audited(seen, 9)
    return snapshots(story)


def test_an_audit_of_a_table_that_was_forgotten_changes_nothing(story: Story) -> None:
    assert audited_late(story) == (1, 1)


def test_an_audit_counts_once_for_the_table_that_was_seen(story: Story) -> None:
    story.build((0, 10), snapshot=8)
    seen = story.generation()
    story.state.generations.audited(seen, 9)
    assert snapshots(story) == (8, 9)
    story.state.generations.audited(seen, 10)
    assert snapshots(story) == (8, 9), "another audit came first"


def test_control_an_audit_of_whatever_is_there_leaves_the_next_one_blind(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        statements(), "audited", "update generation set audited_snapshot = %(snapshot)s where no = %(generation)s"
    )
    assert audited_late(story) == (1, 9)


def made_anew(story: Story, second: int, *, written: bool = True) -> tuple[IntervalSet, tuple[int | None, int | None]]:
    """Publish at snapshot 4, and once more at `second`; what is stale then, and the snapshots."""
    story.build((0, 10), (10, 20), snapshot=4)
    waiting = story.lease((20, 30))
    story.publish(story.lease((0, 10)), snapshot=second, changed=written)
    stale, numbers = story.stale(), snapshots(story)
    story.publish(waiting, snapshot=second + 1)
    assert story.stale() == stale
    return stale, numbers


@pytest.mark.parametrize(("second", "written"), [(1, True), (4, True), (0, False)])
def test_a_table_that_vanished_and_was_made_anew_starts_over(story: Story, second: int, written: bool) -> None:
    """No audit has looked yet: the rest of the old rows is gone all the same."""
    assert made_anew(story, second, written=written) == (ranges((10, 20)), (second, second))
    digests = {one.interval: one.digest for one in story.state.history.covers(story.generation().no, ranges((0, 20)))}
    assert digests == {Interval(0, 10): (7, 1, 2), Interval(10, 20): None}
    story.build((10, 20))
    assert story.stale() == NOTHING
    assert story.execute("select count(*) from invalidation where closed_at is null") == [(0,)]


@pytest.mark.parametrize(("second", "written"), [(5, True), (4, False), (7, False)])
def test_a_table_that_only_grows_keeps_what_it_holds(story: Story, second: int, written: bool) -> None:
    stale, (accepted, _) = made_anew(story, second, written=written)
    assert (stale, accepted) == (NOTHING, second)


def test_without_looking_at_the_numbers_lost_rows_would_count_as_built(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Publication, "_made_anew", lambda *_: False)
    stale, (accepted, _) = made_anew(story, 1)
    assert (stale, accepted) == (NOTHING, 4)


def test_our_own_commits_in_a_row_need_no_audit(story: Story) -> None:
    for number in (1, 2, 3):
        story.build((10 * number, 10 * number + 10), snapshot=number)
        assert snapshots(story) == (number, number)
    story.publish(story.lease((10, 20)), snapshot=3, changed=False)
    assert snapshots(story) == (3, 3)


def test_a_commit_of_another_program_below_ours_is_still_to_be_audited(story: Story) -> None:
    story.build((0, 10), snapshot=1)
    story.build((10, 20), snapshot=3)
    story.build((20, 30), snapshot=4)
    assert snapshots(story) == (4, 1)
    story.state.generations.audited(story.generation(), 4)
    assert snapshots(story) == (4, 4)
    story.build((30, 40), snapshot=5)
    assert snapshots(story) == (5, 5)


def test_equal_rows_do_not_hide_a_commit_of_another_program(story: Story) -> None:
    story.build((0, 10), snapshot=1)
    story.publish(story.lease((0, 10)), snapshot=2, changed=False)
    assert snapshots(story) == (2, 1)


def told(story: Story) -> list[object]:
    return [ranges for (ranges,) in story.execute("select ranges::text from event order by no")]


def test_rows_that_equal_those_of_a_commit_that_was_not_accepted_are_new_to_consumers(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task was cancelled right after its Delta commit: what comes next equals it, but consumers read the old rows."""
    story.build((0, 10), snapshot=1)
    before = told(story)
    story.publish(story.lease((0, 10)), snapshot=1, changed=False)
    assert told(story) == before
    story.publish(story.lease((0, 10)), snapshot=2, changed=False)
    assert told(story) == [*before, "{[0,10)}"]
    monkeypatch.setattr(Publication, "_follows", lambda *_: True)
    story.publish(story.lease((0, 10)), snapshot=3, changed=False)
    assert told(story) == [*before, "{[0,10)}"], "without that rule nobody hears of it"


def test_equal_rows_are_a_change_where_a_commit_was_found_that_was_not_accepted(story: Story) -> None:
    """Others may have published since, so that the numbers tell nothing any more."""
    story.build((0, 10), snapshot=1)
    story.state.invalidations.invalidate(
        "core.a", ranges((0, 10)), "a commit that nobody accepted", "audit", cause="audit"
    )
    story.build((10, 20), snapshot=3)
    before = told(story)
    story.publish(story.lease((0, 10)), snapshot=3, changed=False)
    assert told(story) == [*before, "{[0,10)}"]
    story.publish(story.lease((0, 10)), snapshot=3, changed=False)
    assert told(story) == [*before, "{[0,10)}"], "once it is answered, equal rows are equal"


def test_an_adopted_commit_fills_the_gap_that_it_left(story: Story) -> None:
    lease = story.lease((0, 10))
    story.build((10, 20), snapshot=1)
    story.build((20, 30), snapshot=3)
    story.record(lease, replace(story.commit(lease, 0, snapshot=2), adopted=True))
    assert snapshots(story) == (3, 2)


def test_the_same_rows_in_other_files_are_served_and_audited(story: Story) -> None:
    story.build((0, 10), snapshot=1)
    number = story.generation().no
    story.state.generations.accept_snapshot(number, 0, 9)
    assert snapshots(story) == (1, 1)
    story.state.generations.accept_snapshot(number, 1, 2)
    assert snapshots(story) == (2, 2)


# random stories

steps = st.lists(
    st.tuples(st.sampled_from(["publish", "intend", "invalidate"]), st.integers(0, 3), st.integers(1, 4)), max_size=8
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_what_the_database_says_is_what_the_pure_functions_say(
    story: Story, sequence: list[tuple[str, int, int]]
) -> None:
    """Any order of intents, publications and invalidations of one table: covered and stale equal the pure pair."""
    restart(story)
    covered, stale = NOTHING, NOTHING
    open_: dict[int, tuple[Lease, int, IntervalSet]] = {}
    for act, cell, width in sequence:
        scope = ranges((10 * cell, 10 * (cell + 1)))
        if act == "invalidate":
            wide = ranges((10 * cell, 10 * (cell + width)))
            story.state.invalidations.invalidate("core.a", wide, "", "me")
            covered, stale = invalidated(covered, stale, wide)
            open_ = {key: (lease, epoch, lost | wide) for key, (lease, epoch, lost) in open_.items()}
        elif act == "intend" and cell not in open_:
            lease = story.lease((10 * cell, 10 * cell + 10))
            open_[cell] = (lease, story.state.attempts.intend(lease, story.frontier(lease), None, ""), NOTHING)
        elif act == "publish" and cell in open_:
            lease, epoch, lost = open_.pop(cell)
            story.record(lease, story.commit(lease, epoch))
            covered, stale = published(covered, stale, scope, lost)
        generation = story.generation()
        assert (generation.covered, generation.stale) == (covered, stale)


def restart(story: Story) -> None:
    """An empty table for the next example."""
    number = story.execute("select count(*) from revision")[0][0]
    story.state.projects.apply(f"again {number}", b"", {}, story.definitions(a=f"{number}"))


rows = st.lists(
    st.tuples(st.sampled_from(["cover", "stale", "drop"]), st.integers(0, 12), st.integers(1, 5)), max_size=12
)


@given(rows, rows)
def test_folding_in_any_two_steps_is_folding_at_once(
    first: list[tuple[str, int, int]], second: list[tuple[str, int, int]]
) -> None:
    def signed(items: list[tuple[str, int, int]], begin: int) -> list[CoverageEntries]:
        return [
            CoverageEntries(1, begin + i, kind, ranges((start, start + size)))  # type: ignore[arg-type]
            for i, (kind, start, size) in enumerate(items)
        ]

    early, late = signed(first, 1), signed(second, 100)
    at_once = extended(CoverageTotal(), [*early, *late])
    assert extended(extended(CoverageTotal(), early), late) == at_once
    held = dict.fromkeys(range(20), "")
    for row in (*early, *late):
        for p in range(row.ranges.edges[0], row.ranges.edges[1]):
            if row.kind == "stale":
                held[p] = "stale" if held[p] else ""
            else:
                held[p] = "fresh" if row.kind == "cover" else ""
    assert at_once.covered == ranges(*((p, p + 1) for p, word in held.items() if word))
    assert at_once.stale == ranges(*((p, p + 1) for p, word in held.items() if word == "stale"))
