"""Pruning: what is over is forgotten in time, and nothing that is known now depends on it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from penstock.state.database.statements import statements
from penstock.state.progress import folding
from penstock.state.progress.folding import CoverageTotal
from penstock.state.progress.invalidations import find_stale
from penstock.state.pruning import prune
from penstock.values.intervals import EVERYTHING, NOTHING, IntervalSet, ranges
from penstock.values.tasks import Frontier

if TYPE_CHECKING:
    from conftest import Story

DAY = 86_400.0
LONG = 30 * DAY


def count(story: Story, table: str) -> int:
    [[found]] = story.execute(f"select count(*) from {table}")
    assert isinstance(found, int)
    return found


def counts(story: Story, *names: str) -> dict[str, int]:
    return {name: count(story, name) for name in names}


# random histories


@dataclass
class History:
    """Signed rows of one generation with chosen ages, and what could be read of it on the way."""

    story: Story
    dice: random.Random
    generation: int
    rows: list[tuple[int, str, range, bool]] = field(default_factory=list)
    """(id, kind, positions, whether it is old)"""
    known: list[CoverageTotal] = field(default_factory=list)

    def scope(self) -> tuple[int, int]:
        start = self.dice.randrange(0, 30)
        return start, start + self.dice.randrange(1, 12)

    def say(self, kind: str, old: bool) -> None:
        at = "clock() - interval '40 days'" if old else "clock() - interval '1 hour'"
        if kind == "cover":
            chunks = [self.scope() for _ in range(self.dice.randrange(1, 4))]
            found = self.story.execute(
                f"""
                with t as (
                  insert into task (model, generation, lane, ranges, chunks, choices, reason, max_attempts, state,
                    attempt, finished_at)
                  values ('core.a', %s, 'forward', '{{[0,1)}}', '{{}}', '{{}}', '', 1, 'succeeded', 1, {at})
                  returning id
                ), a as (
                  insert into attempt (task, n, worker, token, outcome, snapshot, ended_at)
                  select id, 1, 'w', gen_random_uuid(), 'succeeded', 1, {at} from t returning task
                ), f as (
                  insert into frontier (generation, snapshot, inputs, task, attempt)
                  select %s, 1, jsonb_build_object('raw.events', jsonb_build_object('location', 'l',
                    'snapshot', %s::int, 'table_id', null, 'generation', null)), task, 1 from a returning id, task
                )
                insert into coverage (generation, kind, range, task, attempt, frontier, snapshot, rows, at)
                select %s, 'cover', r, f.task, 1, f.id, 1, 1, {at} from f, unnest(%s::int8range[]) as r
                returning id, lower(range), upper(range)
                """,
                self.generation,
                self.generation,
                self.dice.randrange(3),
                self.generation,
                [f"[{start},{end})" for start, end in chunks],
            )
        else:
            start, end = self.scope()
            found = self.story.execute(
                f"insert into coverage (generation, kind, range, at) values (%s, %s, int8range(%s, %s), {at}) "
                "returning id, lower(range), upper(range)",
                self.generation,
                kind,
                start,
                end,
            )
        for no, start, end in found:
            assert isinstance(no, int) and isinstance(start, int) and isinstance(end, int)
            self.rows.append((no, kind, range(start, end), old))

    def die(self) -> None:
        """A task that died some time ago; what was covered since counts."""
        start, end = self.scope()
        self.story.execute(
            "insert into task (model, generation, lane, ranges, chunks, choices, reason, max_attempts, state, attempt, "
            "finished_at, held_until) values ('core.a', %s, 'forward', int8multirange(int8range(%s, %s)), '{}', '{}', "
            "'', 1, 'dead', 1, clock() - interval '40 days', 'infinity')",
            self.generation,
            start,
            end,
        )

    def left(self) -> set[int]:
        """What must be left, said position by position."""
        kept = set()
        for at, (no, _, positions, old) in enumerate(self.rows):
            later = {p for _, kind, said, _ in self.rows[at + 1 :] if kind == "cover" for p in said}
            if not old or not set(positions) <= later:
                kept.add(no)
        return kept


def remember(story: Story, seed: int, length: int = 40, aged: int | None = None) -> History:
    """The first `aged` rows are old, and the others not."""
    no = story.generation().no
    story.execute("update generation set audited_snapshot = 1, accepted_snapshot = 1")
    dice = random.Random(seed)
    history = History(story, dice, no)
    aged = dice.randrange(length) if aged is None else aged
    for step in range(length):
        history.say(dice.choice(["cover", "cover", "cover", "stale", "drop"]), step < aged)
        if dice.random() < 0.1:
            history.die()
        if dice.random() < 0.2:
            history.known.append(folding.read(story.state.database, [no], {})[no])
        if dice.random() < 0.1:
            folding.fold(story.state.database, no, 1)
    return history


def answers(history: History) -> list[object]:
    """Everything that anybody reads out of signed rows, from whatever they had read before."""
    state, no = history.story.state, history.generation
    dice = random.Random(7)

    def hit(frontier: Frontier) -> bool:
        return frontier["raw.events"].snapshot == 1

    folds = [folding.read(state.database, [no], {no: one})[no] for one in (CoverageTotal(), *history.known)]
    folds.append(folding.read(state.database, [no], {})[no])
    scopes: list[IntervalSet] = [EVERYTHING]
    for _ in range(5):
        start = dice.randrange(40)
        scopes.append(ranges((start, start + dice.randrange(1, 9))))
    covers = [state.history.covers(no, scope) for scope in scopes]
    marks = [find_stale(state.database, no, scope, hit) for scope in scopes]
    work = history.story.connect().views.whole().work["core.a"]
    assert all((one.covered, one.stale) == (folds[0].covered, folds[0].stale) for one in folds)
    return [*folds, *covers, *marks, work.dead, work.dead_tasks]


@pytest.mark.parametrize("seed", range(10))
def test_nothing_that_is_known_changes_and_all_that_is_hidden_and_old_goes(story: Story, seed: int) -> None:
    history = remember(story, seed)
    before = answers(history)
    prune(story.state.database, LONG, step_rows=7)
    assert {no for (no,) in story.execute("select id from coverage")} == history.left()
    assert answers(history) == before
    assert prune(story.state.database, LONG) == 0  # there is nothing more
    history.say("cover", False)
    history.say("stale", False)
    after = folding.read(story.state.database, [history.generation], {})[history.generation]
    folding.fold(story.state.database, history.generation, 1)
    assert folding.read(story.state.database, [history.generation], {})[history.generation] == after


def goes_wrong(story: Story, seed: int) -> bool:
    story.execute("truncate coverage, frontier, attempt, task, folded")
    history = remember(story, seed, length=20, aged=20)
    before = answers(history)
    prune(story.state.database, LONG)
    try:
        return answers(history) != before
    except (AssertionError, KeyError):  # what is known contradicts itself
        return True


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("s.span <@ (", "s.span && ("),  # hidden in part
        ("h.id > s.id", "h.id <> s.id"),  # hidden by an older one
        ("o.kind = 'cover' and", ""),  # hidden by a mark that it is stale
        ("and s.span <@", "or s.span <@"),  # hidden or not
    ],
)
def test_a_looser_idea_of_hidden_would_change_what_is_known(
    story: Story, monkeypatch: pytest.MonkeyPatch, right: str, wrong: str
) -> None:
    assert not any(goes_wrong(story, seed) for seed in range(3))
    whole = statements()["prune_coverage"]
    assert right in whole
    monkeypatch.setitem(statements(), "prune_coverage", whole.replace(right, wrong))
    assert any(goes_wrong(story, seed) for seed in range(10))


# stories


def old(story: Story, seconds: float = 2 * LONG) -> None:
    story.advance(seconds)


def test_a_model_that_is_computed_again_and_again_does_not_grow(story: Story) -> None:
    for _ in range(5):
        story.build((0, 10), (10, 20))
        story.state.invalidations.invalidate("core.a", ranges((0, 20)), "again", "me")
    story.state.events.handle(lambda _model, _input, _scope: NOTHING)
    last = story.build((0, 10), (10, 20), inputs=4)
    known = story.state.history.covers(last.generation, EVERYTHING)
    assert prune(story.state.database, LONG) == 0
    old(story)
    assert prune(story.state.database, LONG) == 5
    found = counts(story, "task", "attempt", "frontier", "coverage", "invalidation", "invalidation_target")
    assert found == {
        "task": 1,
        "attempt": 1,
        "frontier": 1,
        "coverage": 2,
        "invalidation": 0,
        "invalidation_target": 0,
    }
    assert story.connect().history.covers(last.generation, EVERYTHING) == known
    assert [one.frontier["raw.events"].snapshot for one in known] == [4, 4]
    assert (story.covered(), story.stale()) == (ranges((0, 20)), NOTHING)
    assert prune(story.state.database, LONG) == 0


def test_what_a_chunk_was_made_from_stays_as_long_as_a_part_of_it_is_visible(story: Story) -> None:
    first = story.build((0, 10), (10, 20), inputs=1)
    story.build((0, 10), inputs=2)
    known = story.state.history.covers(first.generation, EVERYTHING)
    old(story)
    assert prune(story.state.database, LONG) == 0
    assert story.state.history.covers(first.generation, EVERYTHING) == known
    assert [one.frontier["raw.events"].snapshot for one in known] == [2, 1]
    assert count(story, "coverage") == 2
    story.build((10, 20), inputs=3)
    assert prune(story.state.database, LONG) == 1
    assert story.state.history.attempts([first.task])[first.task] == ()


def test_work_that_waits_or_runs_is_never_forgotten(story: Story) -> None:
    running = story.lease((0, 10))
    failed = story.lease((10, 20))
    story.state.queue.fail(failed, "engine", "no", story.cost)
    story.enqueue(story.order((20, 30)))
    old(story)
    assert prune(story.state.database, 0) == 0
    assert count(story, "task") == 3
    assert {one.task for one in story.state.history.attempts([running.task, failed.task])[failed.task]} == {failed.task}


def test_tasks_that_ended_without_a_result_go_in_time(story: Story) -> None:
    given_back = story.lease((0, 10))
    story.state.queue.release(given_back, "not ready")
    split = story.lease((10, 20), (20, 30))
    story.state.queue.fail(split, "user", "no", story.cost)
    halves = [story.claim(), story.claim()]
    assert {task.state for task in story.state.history.tasks(None, False, True)} == {
        "cancelled",
        "superseded",
        "running",
    }
    story.advance(LONG - 60)
    assert prune(story.state.database, LONG) == 0
    story.advance(LONG + 60)
    assert prune(story.state.database, LONG) == 2
    assert {task.id for task in story.state.history.tasks(None, False, True)} == {one.task for one in halves}


def test_a_dead_task_is_kept_while_it_holds_its_scope(story: Story) -> None:
    lease = story.lease((0, 10))
    story.state.queue.fail(lease, "user", "a wrong query", story.cost)
    held = "update task set held_until = %s::timestamptz where id = %s"
    story.execute(held, "infinity", lease.task)
    old(story)
    assert prune(story.state.database, LONG) == 0
    story.execute("update task set held_until = clock() + interval '1 minute' where id = %s", lease.task)
    assert prune(story.state.database, LONG) == 0
    assert story.state.views.whole().work["core.a"].last_error == "a wrong query"
    story.execute("update task set held_until = clock() where id = %s", lease.task)
    assert prune(story.state.database, LONG) == 1


def test_without_looking_at_holds_a_dead_scope_would_be_planned_again(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    careless = statements()["prune_tasks"].replace("t.held_until is null", "true")
    assert careless != statements()["prune_tasks"]
    monkeypatch.setitem(statements(), "prune_tasks", careless)
    lease = story.lease((0, 10))
    story.state.queue.fail(lease, "user", "a wrong query", story.cost)
    story.execute("update task set held_until = 'infinity' where id = %s", lease.task)
    assert story.state.views.whole().work["core.a"].dead == ranges((0, 10))
    old(story)
    prune(story.state.database, LONG)
    assert story.state.views.whole().work["core.a"].dead == NOTHING


def replaced(story: Story, audited: int) -> tuple[bool, int]:
    """A task whose rows were all replaced, in a table that was audited up to some snapshot; is its commit ours?"""
    lease = story.build((0, 10), snapshot=5)
    story.build((0, 10), snapshot=6)
    story.execute("update generation set audited_snapshot = %s", audited)
    old(story)
    removed = prune(story.state.database, LONG)
    return lease.uuid in story.state.generations.owned([lease.uuid]), removed


def test_a_commit_that_was_not_audited_yet_is_still_known_as_ours(story: Story) -> None:
    assert replaced(story, audited=4) == (True, 0)


def test_an_audited_one_is_never_asked_for_again(story: Story) -> None:
    assert replaced(story, audited=5) == (False, 1)


def test_without_that_rule_a_commit_of_ours_would_count_as_foreign(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    careless = statements()["prune_tasks"].replace("a.snapshot <= g.audited_snapshot", "true")
    assert careless != statements()["prune_tasks"]
    monkeypatch.setitem(statements(), "prune_tasks", careless)
    assert replaced(story, audited=4) == (False, 1)


def test_buried_events_and_closed_invalidations_go_and_open_ones_stay(story: Story) -> None:
    story.build((0, 10))
    story.state.events.handle(lambda _model, _input, _scope: NOTHING)
    story.state.invalidations.invalidate("core.a", ranges((0, 5)), "open", "me")
    story.state.invalidations.invalidate("core.a", ranges((50, 60)), "closed", "me", key="k")
    for name, dead in (("buried", True), ("waiting", False)):
        story.execute(
            "insert into event (id, kind, model, ranges, dead) values (%s, 'changed', 'core.a', '{[0,1)}', %s)",
            name,
            dead,
        )
    prune(story.state.database, LONG)
    assert counts(story, "event", "invalidation") == {"event": 2, "invalidation": 2}
    old(story)
    prune(story.state.database, LONG)
    assert story.execute("select id from event") == [("waiting",)]
    assert story.execute("select reason from invalidation") == [("open",)]
    assert count(story, "invalidation_target") == 1
    story.build((0, 10))
    assert story.stale() == NOTHING


def test_pruning_waits_for_nobody_and_nobody_waits_for_it(story: Story) -> None:
    """A publication holds the rows of its generation; whatever is locked is left for the next time."""
    for _ in range(3):
        story.build((0, 10))
    old(story)
    other = story.connect()
    other.database.connection.execute("set lock_timeout = '100ms'")
    lease = story.lease((0, 10))
    with story.state.attempts.publishing(lease) as publication:
        publication.record(story.commit(lease, 0), story.cost, "interval", ())
        story.execute("select from coverage for update")
        assert prune(other.database, LONG) == 0
    assert prune(other.database, LONG) == 3
    assert story.covered() == ranges((0, 10))
    assert count(story, "coverage") == 1


def test_rows_go_in_small_steps(story: Story) -> None:
    for _ in range(6):
        story.build((0, 10))
    old(story)
    assert prune(story.state.database, LONG, step_rows=2) == 5
    assert counts(story, "coverage", "frontier", "task") == {"coverage": 1, "frontier": 1, "task": 1}
