"""Looking: one moment, a fixed number of statements, and no dependence on the size of what is held."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.errors import ConflictError, LeaseLostError, StateError
from penstock.state.database.connection import Database
from penstock.state.history import TASKS_SHOWN
from penstock.state.progress import folding
from penstock.state.store import State
from penstock.values.intervals import EVERYTHING, MAX_POSITION, MIN_POSITION, NOTHING, Interval, IntervalSet, ranges
from penstock.values.records import Definition, StateView
from penstock.values.tasks import Lease

if TYPE_CHECKING:
    from conftest import Story


class Counting(psycopg.Cursor[tuple[object, ...]]):
    """Counts what is executed."""

    executed = 0

    def execute(self, *args: object, **kwargs: object) -> object:  # type: ignore[override]
        Counting.executed += 1
        return super().execute(*args, **kwargs)  # type: ignore[arg-type]


def statements_of_one_look(state: State) -> int:
    state.database.connection.cursor_factory = Counting
    Counting.executed = 0
    state.views.whole()
    return Counting.executed


def test_a_look_takes_as_many_statements_for_fifty_models_as_for_two(story: Story) -> None:
    few = statements_of_one_look(story.connect())
    many = (*story.definitions(), *(Definition(f"more.m{i}", "interval", "f", "second", "ts", {}) for i in range(50)))
    story.state.projects.apply("r2", b"", {}, many)
    story.build((0, 10), (10, 20))
    story.state.queue.fail(story.lease((20, 30)), "user", "no", story.cost)
    assert statements_of_one_look(story.connect()) == few <= 8
    assert len(story.state.views.whole().working) == 52


def test_a_look_reads_one_moment(story: Story) -> None:
    """What others commit between two of its statements does not show in the later ones."""
    other = story.connect()
    lease = story.lease((0, 10))
    with story.state.database.looking():
        before = story.execute("select count(*) from coverage")
        story.record(lease, story.commit(lease, 0), other)
        assert story.execute("select count(*) from coverage") == before
    assert story.covered() == ranges((0, 10))


def test_a_look_writes_nothing(story: Story) -> None:
    with pytest.raises(StateError, match="read-only"), story.state.database.looking():
        story.execute("delete from event")
    story.execute("delete from event")


def test_work_is_counted_by_its_state(story: Story) -> None:
    story.lease((0, 10))
    story.state.queue.fail(story.lease((10, 20)), "engine", "no space", story.cost)
    story.state.queue.fail(story.lease((20, 30)), "user", "bad", story.cost)
    story.enqueue(story.order((40, 50)))
    work = story.state.views.whole().work["core.a"]
    assert (work.running, work.retrying, work.dead_tasks, work.queued) == (1, 1, 1, 1)
    assert (work.in_flight, work.dead) == (ranges((0, 20), (40, 50)), ranges((20, 30)))
    assert work.last_error == "bad"
    assert story.state.views.whole().work["core.b"].in_flight == NOTHING


def test_what_a_connection_remembers_is_what_a_new_one_reads(story: Story) -> None:
    remembering = story.connect()
    for i in (0, 2, 1):
        remembering.views.whole()
        story.build((10 * i, 10 * i + 10))
        story.state.invalidations.invalidate("core.a", ranges((10 * i, 10 * i + 5)), "", "me")
        assert remembering.views.whole().working == story.connect().views.whole().working
    folding.fold(story.state.database, story.generation().no, after_rows=1)
    story.build((0, 10))
    assert remembering.views.whole().working == story.connect().views.whole().working
    assert story.stale() == ranges((10, 15), (20, 25))


def as_planned(view: StateView) -> tuple[object, ...]:
    return view.working, view.current, view.work, view.paused, view.reopened, view.suspended


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_a_look_that_remembers_sees_what_a_new_one_sees(story: Story, seed: int) -> None:
    """Work that begins, fails, dies, is cancelled, let go, covered, asked for again, pruned; holds that pass."""
    dice, remembering = Random(seed), story.connect()
    leases: list[Lease] = []

    def chunk() -> tuple[int, int]:
        start = 10 * dice.randrange(8)
        return start, start + 10

    def enqueue() -> None:
        story.enqueue(story.order(chunk(), model=dice.choice(["core.a", "core.b"])))

    def claim() -> None:
        if lease := story.state.queue.claim("w", ["core.a", "core.b"]):
            leases.append(lease)

    def end() -> None:
        if leases:
            lease = leases.pop(dice.randrange(len(leases)))
            with suppress(LeaseLostError):
                dice.choice(
                    [
                        lambda: story.publish(lease),
                        lambda: story.state.queue.fail(lease, "user", f"bad {seed}", story.cost),
                        lambda: story.state.queue.fail(lease, "engine", "no space", story.cost),
                        lambda: story.state.queue.release(lease, "not ready"),
                    ]
                )()

    def later() -> None:
        nonlocal seconds
        seconds += dice.choice([1.0, 20.0, 40.0, 700.0])
        story.advance(seconds)

    seconds = 0.0
    acts = [
        enqueue,
        claim,
        end,
        end,
        later,
        lambda: story.state.control.cancel_model("core.a", "me"),
        lambda: story.state.control.resume("core.a", "me"),
        lambda: story.state.control.pause("core.b", "me"),
        lambda: story.state.control.clear_holds("core.a"),
        lambda: story.state.invalidations.invalidate("core.a", ranges(chunk()), "", "me"),
        lambda: folding.fold(story.state.database, story.generation().no, after_rows=1),
        story.state.queue.reap,
        lambda: story.state.events.handle(lambda child, parent, changed: changed),
    ]
    for number in range(80):
        dice.choice(acts)()
        if dice.random() < 0.7:
            assert as_planned(remembering.views.whole()) == as_planned(story.connect().views.whole()), number


def test_what_was_open_at_one_look_is_seen_at_the_next(story: Story) -> None:
    """A transaction may have begun before a look and end after it: its number is older than what was seen."""
    writing, looking = story.connect(), story.connect()
    lease = story.lease((0, 10))
    with writing.attempts.publishing(lease) as publication:
        publication.record(story.commit(lease, 0), story.cost, "interval", ())
        story.enqueue(story.order((50, 60), model="core.b"))
        assert looking.views.whole().work["core.b"].queued == 1
        assert not looking.views.whole().working["core.a"].covered
    assert as_planned(looking.views.whole()) == as_planned(story.connect().views.whole())
    assert looking.views.whole().working["core.a"].covered == ranges((0, 10))


def test_control_by_the_newest_transaction_seen_an_older_one_would_be_missed(story: Story) -> None:
    writing, looking = story.connect(), story.connect()
    lease = story.lease((0, 10))
    with writing.attempts.publishing(lease) as publication:
        publication.record(story.commit(lease, 0), story.cost, "interval", ())
        story.enqueue(story.order((50, 60), model="core.b"))
        looking.views.whole()
        [[newest]] = story.execute("select pg_snapshot_xmax(pg_current_snapshot())::text")
        looking.views._memory.horizon = str(newest)
    assert not looking.views.whole().working["core.a"].covered


def test_a_second_look_reads_only_what_changed(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[int]] = []
    for chunk in range(0, 60, 10):
        story.state.queue.fail(story.lease((chunk, chunk + 10)), "user", "bad", story.cost)
    story.state.views.whole()
    sound = Database.rows

    def rows(self: Database, name: str, make: object, /, **values: object) -> object:
        found = sound(self, name, make, **values)  # type: ignore[arg-type]
        if name in ("state_tasks", "state_generations"):
            asked.append([len(found)])
        return found

    monkeypatch.setattr(Database, "rows", rows)
    story.state.views.whole()
    assert asked == [[0]], "no generation changed, and nobody's tasks were read"


def tasks_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tasks each statement brings from now on, by a list that grows."""
    found: list[int] = []
    sound = Database.rows

    def rows(self: Database, name: str, make: object, /, **values: object) -> object:
        made = sound(self, name, make, **values)  # type: ignore[arg-type]
        if name in ("state_tasks", "changed_tasks"):
            found.append(len(made))
        return made

    monkeypatch.setattr(Database, "rows", rows)
    return found


def test_what_failed_is_not_read_again_because_its_model_works_elsewhere(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    for start in range(0, 60, 10):
        story.state.queue.fail(story.lease((start, start + 10)), "user", "bad", story.cost)
    looking = story.connect()
    looking.views.whole()
    read = tasks_read(monkeypatch)
    story.build((500, 510))
    assert looking.views.whole().work["core.a"].dead_tasks == 6
    assert max(read) == 1, "the task that came to an end"
    read.clear()
    story.build((0, 10))
    looking.views.whole()
    assert max(read) <= 3, "that task, the one before it, and what had failed there"
    assert as_planned(looking.views.whole()) == as_planned(story.connect().views.whole())
    assert looking.views.whole().work["core.a"].dead_tasks == 5


def test_an_older_failure_counts_again_when_the_later_one_is_let_go(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that ended alike only the last is remembered."""
    looking = story.connect()
    for _ in range(2):
        story.enqueue(story.order((0, 10)))
        story.state.control.cancel_model("core.a", "me")
        story.execute("update task set state = 'cancelled', held_until = 'infinity', finished_at = clock()")
    assert looking.views.whole().work["core.a"].cancelled == ranges((0, 10))
    story.execute("update task set held_until = null where id = (select max(id) from task)")
    assert (
        looking.views.whole().work["core.a"].cancelled
        == ranges((0, 10))
        == story.connect().views.whole().work["core.a"].cancelled
    )


def test_an_attempt_reads_its_model_and_what_that_is_made_of(story: Story) -> None:
    more = Definition("more.m", "interval", "f", "second", "ts", {}, (("raw.events", 0, 0, 0, 0, False),))
    story.state.projects.apply("r2", b"", {}, (*story.definitions(), more))
    story.build((0, 10))
    story.state.queue.fail(story.lease((10, 20)), "user", "bad", story.cost)
    whole, part = story.state.views.whole(), story.connect().views.lineage("core.b")
    assert set(part.working) == {"core.a", "core.b"} < set(whole.working)
    assert part.working == {name: whole.working[name] for name in part.working}
    assert part.work == {name: whole.work[name] for name in part.working}
    assert part.sources == whole.sources
    assert set(story.state.views.lineage("core.a").working) == {"core.a"}


def test_coverage_has_holes_where_nothing_was_built(story: Story) -> None:
    """B-2: no minimum and maximum stand for what lies between."""
    story.build((200, 260))
    story.build((300, 400))
    assert not story.covered().covers(Interval(240, 360))
    assert story.covered() - ranges((240, 360)) == ranges((200, 240), (360, 400))


def test_a_fold_changes_nothing_but_where_it_is_read_from(story: Story) -> None:
    """B-4: whatever the order of folds and further rows, the sets are the same."""
    for i in range(4):
        story.build((10 * i, 10 * i + 10))
        story.state.invalidations.invalidate("core.a", ranges((10 * i + 2, 10 * i + 4)), "", "me")
        before = story.connect().views.whole().working["core.a"]
        assert folding.fold(story.state.database, before.no, after_rows=1)
        assert story.connect().views.whole().working["core.a"] == before
        assert not folding.fold(story.state.database, before.no, after_rows=1)


def test_a_fold_neither_waits_for_a_publication_nor_holds_one_up(story: Story) -> None:
    """Summing up half a million parts takes a while: it must not be done behind the generation's lock."""
    story.build((0, 10))
    other, lease = story.connect(), story.lease((10, 20))
    with story.state.attempts.publishing(lease) as publication:
        publication.record(story.commit(lease, 0), story.cost, "interval", ())
        assert folding.fold(other.database, lease.generation, after_rows=1)
        assert story.execute("select covered from folded") == [([0, 10],)], "what is not committed yet is not in it"
    assert story.connect().views.whole().working["core.a"].covered == ranges((0, 20))


def test_of_two_folds_the_one_that_got_further_stays(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    story.build((0, 10))
    late, no = story.connect(), story.generation().no
    sound = folding.read

    def slow(*args: object) -> object:
        held = sound(*args)  # type: ignore[arg-type]
        monkeypatch.setattr(folding, "read", sound)
        story.build((10, 20))
        assert folding.fold(story.state.database, no, after_rows=1)
        return held

    monkeypatch.setattr(folding, "read", slow)
    assert not folding.fold(late.database, no, after_rows=1)
    assert story.execute("select covered from folded") == [([0, 20],)]


def test_a_fold_comes_by_itself_after_a_thousand_rows(story: Story) -> None:
    lease = story.lease(*((2 * i, 2 * i + 1) for i in range(999)))
    story.publish(lease)
    assert story.execute("select count(*) from folded") == [(0,)]
    story.build((5000, 5001))
    assert story.execute("select cardinality(covered) from folded") == [(2000,)]
    assert len(story.connect().views.whole().working["core.a"].covered) == 1000


def test_a_fold_that_has_to_wait_too_long_does_not_fail_what_is_published(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object) -> bool:
        raise ConflictError("somebody else holds the lock")

    monkeypatch.setattr(folding, "fold", busy)
    story.build((0, 10))
    assert story.covered() == ranges((0, 10))


def test_one_interval_more_does_not_rewrite_a_million(story: Story) -> None:
    no = story.generation().no
    story.execute(
        "insert into folded (generation, through, covered, stale) "
        "select %s, 0, array(select generate_series(0, 9999995, 5)), '{}'",
        no,
    )
    written = story.execute("select xmin::text, ctid::text from folded")
    story.build((7, 9))
    story.state.invalidations.invalidate("core.a", ranges((0, 8)), "", "me")
    assert story.execute("select xmin::text, ctid::text from folded") == written
    assert story.execute("select count(*) from coverage") == [(2,)]
    held = story.connect().views.whole().working["core.a"]
    assert len(held.covered) == 1_000_001
    assert Interval(7, 9) in held.covered.within(5, 10).parts


# what was accepted, and from what


def test_a_later_cover_leaves_of_a_record_what_it_does_not_replace(story: Story) -> None:
    no = story.generation().no
    story.build((0, 10), (10, 20), (20, 30))
    story.build((10, 15), snapshot=2)
    found = story.state.history.covers(no, EVERYTHING)
    assert [(one.interval, one.left, one.snapshot) for one in found] == [
        (Interval(0, 10), ranges((0, 10)), 1),
        (Interval(10, 15), ranges((10, 15)), 2),
        (Interval(10, 20), ranges((15, 20)), 1),
        (Interval(20, 30), ranges((20, 30)), 1),
    ]
    assert [one.interval for one in story.state.history.covers(no, ranges((16, 18)))] == [Interval(10, 20)]
    assert [one.interval for one in story.state.history.covers(no, ranges((5, 6)))] == [Interval(0, 10)]


def test_a_mark_does_not_hide_a_record_and_a_drop_does(story: Story) -> None:
    no = story.generation().no
    story.build((0, 10), (10, 20))
    story.state.invalidations.invalidate("core.a", ranges((0, 20)), "", "me")
    assert len(story.state.history.covers(no, EVERYTHING)) == 2
    story.execute("insert into coverage (generation, kind, range) values (%s, 'drop', '[0,5)')", no)
    assert [one.left for one in story.state.history.covers(no, EVERYTHING)] == [ranges((5, 10)), ranges((10, 20))]
    assert (story.covered(), story.stale()) == (ranges((5, 20)), ranges((5, 20)))


def test_a_rerun_leaves_one_record(story: Story) -> None:
    for snapshot in (1, 2, 3):
        story.build((0, 10), snapshot=snapshot, inputs=snapshot)
    [record] = story.state.history.covers(story.generation().no, EVERYTHING)
    assert (record.snapshot, record.frontier["raw.events"].snapshot) == (3, 3)


def test_records_of_other_generations_are_not_mixed_in(story: Story) -> None:
    story.build((0, 10))
    story.build((0, 10), model="core.b")
    assert len(story.state.history.covers(story.generation("core.b").no, EVERYTHING)) == 1


# history


def test_tasks_are_shown_with_their_last_attempt(story: Story) -> None:
    story.build((0, 10))
    lease = story.lease((10, 20))
    story.state.queue.fail(lease, "engine", "no space", story.cost)
    story.enqueue(story.order((0, 10), model="core.b"))
    active = story.state.history.tasks(None, failed=False, history=False)
    assert [(one.model, one.state) for one in active] == [("core.b", "queued"), ("core.a", "retrying")]
    assert [one.error for one in active] == [None, "no space"]
    assert len(story.state.history.tasks(None, failed=False, history=True)) == 3
    assert len(story.state.history.tasks(None, failed=False, history=True, limit=1)) == 1
    assert story.state.history.tasks("core.c", failed=False, history=True) == ()


def test_sets_travel_as_they_are(story: Story) -> None:
    for one in (NOTHING, ranges((-5, 3), (7, 9)), EVERYTHING, IntervalSet((MIN_POSITION, -1, 5, MAX_POSITION))):
        assert story.execute("select %s::int8multirange", one) == [(one,)]
    part = Interval(MIN_POSITION, MAX_POSITION)
    assert story.execute("select %s::int8range, %s::int8range[]", part, [part, Interval(1, 2)]) == [
        (part, [part, Interval(1, 2)])
    ]


def test_an_old_server_is_refused(dsn: str, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psycopg.ConnectionInfo, "server_version", 130020)
    with pytest.raises(StateError, match="PostgreSQL 13 is too old"):
        State.open(dsn, schema, migrate=True)


def test_tasks_come_newest_first_and_are_counted_in_full(story: Story) -> None:
    shown = TASKS_SHOWN
    story.enqueue(*(story.order((10 * i, 10 * i + 10)) for i in range(shown + 5)))
    found = [task.id for task in story.state.history.tasks(None, failed=False, history=False)]
    assert len(found) == shown
    assert story.state.history.count_tasks(None, failed=False, history=True) == shown + 5
    assert story.state.history.count_tasks("core.b", failed=False, history=True) == 0
    assert story.state.history.count_tasks(None, failed=True, history=True) == 0
    assert found == sorted(found, reverse=True)
    assert [task.id for task in story.state.history.tasks(None, failed=False, history=True, limit=2)] == found[:2]


def test_only_what_is_not_tried_again_has_failed(story: Story) -> None:
    story.state.queue.fail(story.lease((0, 10)), "engine", "no space", story.cost)
    dead = story.lease((10, 20))
    story.state.queue.fail(dead, "user", "no such column", story.cost)
    for history in (False, True):
        assert [task.id for task in story.state.history.tasks(None, failed=True, history=history)] == [dead.task]
    assert len(story.state.history.tasks(None, failed=False, history=False)) == 2
