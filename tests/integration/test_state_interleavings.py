"""Every order in which publications, invalidations and their neighbours can meet: by transaction, then by statement."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import psycopg
import pytest
from invariants import violations
from kept import bring_back, keep, stop_clock
from orderings import orders
from preemption import Act, Preempted, answer, gated, preempt, statements_of
from reaches import same

from penstock.intervals import NOTHING, IntervalSet, ranges
from penstock.planner.coverage import Coverage, invalidated, published
from penstock.state import control, events, folding, invalidation, pins
from penstock.state.connection import Database
from penstock.state.records import SourceRecord
from penstock.state.statements import statements
from penstock.state.store import State
from penstock.tasks import Changed, Lease

if TYPE_CHECKING:
    from conftest import Story

EVERY_STEP = os.environ.get("PENSTOCK_FUZZ") == "1"
Actor = Iterator[None]


# one transaction per step


@dataclass
class Account:
    """What the pure functions say, position by position where an input's snapshot decides."""

    covered: IntervalSet = NOTHING
    stale: IntervalSet = NOTHING
    told: list[tuple[str, int, IntervalSet]] = field(default_factory=list)
    """Marks so far: ("snapshot", n, where) or ("epoch", number of the step, where)."""
    made: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By covered position: the snapshot that was read, and the step of the intent."""

    def published(self, scope: IntervalSet, snapshot: int, intent: int) -> None:
        lost = (where for kind, mark, where in self.told if _older(kind, mark, snapshot, intent))
        met = IntervalSet.of(part for where in lost for part in where)
        self._keep(published(self.covered, self.stale, scope, met))
        self.made |= {p: (snapshot, intent) for part in scope for p in range(part.start, part.end)}

    def news(self, snapshot: int, where: IntervalSet) -> None:
        """Rows that were made from that snapshot, or a later one, have it already."""
        behind = ranges(*((p, p + 1) for p, (read, _) in self.made.items() if read < snapshot))
        self._keep(invalidated(self.covered, self.stale, where & behind))
        self.told.append(("snapshot", snapshot, where))

    def wish(self, step: int, where: IntervalSet) -> None:
        self._keep(invalidated(self.covered, self.stale, where))
        self.told.append(("epoch", step, where))

    def _keep(self, coverage: Coverage) -> None:
        self.covered, self.stale = coverage

    def wrongly_fresh(self, covered: IntervalSet, stale: IntervalSet) -> list[int]:
        """Fresh positions that were computed from inputs older than a mark that met them."""
        return [
            p
            for p, (snapshot, intent) in self.made.items()
            if p in covered - stale
            and any(p in where and _older(kind, mark, snapshot, intent) for kind, mark, where in self.told)
        ]


def _older(kind: str, mark: int, snapshot: int, intent: int) -> bool:
    return snapshot < mark if kind == "snapshot" else intent < mark


@dataclass
class Scene:
    """Two tasks, an observation and a wish of a person, at positions of their own."""

    story: Story
    at: int
    account: Account
    generation: int
    observed: int
    """The snapshot of the source that everybody sees now."""
    step: int = 0

    def __post_init__(self) -> None:
        self.first = self.observed

    def moved(self, *parts: tuple[int, int]) -> IntervalSet:
        return ranges(*((self.at + start, self.at + end) for start, end in parts))

    def tasks(self, *spans: tuple[int, int]) -> list[Lease]:
        orders = [self.story.order((self.at + start, self.at + end)) for start, end in spans]
        assert self.story.state.enqueue(orders, {"core.a": self.generation}) == len(orders)
        return [self.story.claim() for _ in orders]

    def attempt(self, lease: Lease, read: int | None) -> Actor:
        """`read`: the snapshot that was seen when the task was claimed; None looks at the moment of the intent."""
        snapshot, intent = self.observed if read is None else read, self.step
        epoch = self.story.state.intend(lease, self.story.frontier(lease, snapshot), None, "")
        yield
        # equal rows: no news of its own, which nobody here would read
        self.story.record(lease, self.story.commit(lease, epoch, snapshot, changed=False))
        self.account.published(lease.order.scope, snapshot, intent)
        yield

    def one_after_the_other(self, first: Lease, read: int | None) -> Actor:
        """A second task about positions of the first: it cannot be asked for before the first has ended."""
        yield from self.attempt(first, read)
        [lease], seen = self.tasks((5, 15)), self.observed
        yield
        yield from self.attempt(lease, seen)

    def observation(self) -> Actor:
        changed, after = self.moved((3, 12)), self.observed + 1
        assert self.story.state.record_source(record(after), self.observed, Changed(changed))
        self.observed = after
        yield
        self.story.state.handle_events(same)
        self.account.news(after, changed)
        yield

    def wish(self) -> Actor:
        self.story.state.invalidate("core.a", self.moved((5, 15)), "rerun", "me")
        self.account.wish(self.step, self.moved((5, 15)))
        yield

    def play(self, order: Sequence[int], actors: Sequence[Actor]) -> None:
        for actor in order:
            self.step += 1
            next(actors[actor])
        here = self.moved((0, 1000))
        generation = self.story.generation()
        covered, stale = generation.covered & here, generation.stale & here
        assert (covered, stale) == (self.account.covered, self.account.stale), order
        assert not self.account.wrongly_fresh(covered, stale), order


def record(snapshot: int) -> SourceRecord:
    now = datetime.now(UTC)
    return SourceRecord(
        "raw.events", "table-1", snapshot, "hash", {"ts": "long"}, 0, 100, 1000, 10, None, None, now, None
    )


def scenes(story: Story) -> Iterator[Scene]:
    story.state.record_source(record(1), None)
    generation = story.generation().no
    for number in range(100_000):
        yield Scene(story, 1000 * number, Account(), generation, observed=number + 1)


def apart(story: Story, *, every_step: bool = EVERY_STEP) -> int:
    """Two tasks beside each other; one reads what was seen before anything happened, the other what is seen now.

    The task that was claimed first may look at the world at any moment before its intent; that is only one more step.
    """
    stage = scenes(story)
    played = 0
    for order in orders(2, 2, 2, 1):
        for swapped in (False, True) if every_step else (False,):
            scene = next(stage)
            one, other = scene.tasks((0, 10), (10, 20))
            early, late = scene.attempt(one, scene.first), scene.attempt(other, None)
            both = (late, early) if swapped else (early, late)
            scene.play(order, (*both, scene.observation(), scene.wish()))
            played += 1
    return played


def in_a_row(story: Story) -> int:
    """Two tasks that overlap, so that one follows the other; the first looked at the start, or looks when it begins."""
    stage = scenes(story)
    played = 0
    for order in orders(5, 2, 1):
        for looked_before in (True, False):
            scene = next(stage)
            chain = scene.one_after_the_other(scene.tasks((0, 10))[0], scene.first if looked_before else None)
            scene.play(order, (chain, scene.observation(), scene.wish()))
            played += 1
    return played


def test_two_tasks_apart_in_every_order_leave_nothing_wrongly_fresh(story: Story) -> None:
    assert apart(story) >= 630


def test_two_tasks_in_a_row_in_every_order_leave_nothing_wrongly_fresh(story: Story) -> None:
    assert in_a_row(story) == 336


def forgets_what_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """`stale = stale - r` alone."""
    monkeypatch.setattr(invalidation, "lost", lambda *_: NOTHING)


def compares_no_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        invalidation, "too_early", lambda asked, frontier, _: pins.standing(frontier, asked.news) == "behind"
    )


def compares_no_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invalidation, "standing", lambda *_: "unknown")


def marks_whatever_is_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also rows that were made from the news itself: work for nothing."""
    monkeypatch.setattr(events, "standing", lambda *_: "behind")


def asks_nothing_of_running_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        statements(), "active_ranges", "select ranges from task where generation = %(generation)s and 1 = 0"
    )


def is_never_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invalidation, "too_early", lambda *_: False)


@pytest.mark.parametrize(
    "mutant",
    [
        forgets_what_was_lost,
        compares_no_epoch,
        compares_no_snapshot,
        marks_whatever_is_covered,
        asks_nothing_of_running_work,
        is_never_too_early,
    ],
)
@pytest.mark.parametrize("play", [apart, in_a_row])
def test_a_publication_that_forgets_is_found_out(
    story: Story,
    monkeypatch: pytest.MonkeyPatch,
    mutant: Callable[[pytest.MonkeyPatch], None],
    play: Callable[[Story], int],
) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        play(story)


# one statement per step


@dataclass(frozen=True)
class Meeting:
    """Two acts that may meet, and the tables as they find them."""

    story: Story
    one: State
    other: State
    looking: psycopg.Connection
    acts: dict[str, Act] = field(default_factory=dict)

    def begin(self) -> dict[str, Act]:
        """The tables are filled once for all meetings of one test."""
        if not self.acts:
            self.acts.update(self._filled())
            keep(self.looking)
        else:
            bring_back(self.looking)
        return self.acts

    def _filled(self) -> dict[str, Act]:
        """[0, 20) is covered; a repair of [0, 10) and a batch of [20, 40) run, their leases are over; two more wait."""
        story, changed = self.story, ranges((5, 15), (25, 35))
        stop_clock(self.looking, 0)
        story.execute("update model set max_inflight = 3")
        story.state.record_source(record(1), None)
        story.build((0, 10), (10, 20))
        story.state.handle_events(same)
        story.state.invalidate("core.a", ranges((0, 10)), "rerun", "me")
        generations = {"core.a": story.generation().no}
        lease, failing = story.lease((0, 10)), story.lease((20, 30), (30, 40))
        story.enqueue(story.order((40, 50)), story.order((50, 60)))
        epoch = story.state.intend(lease, story.frontier(lease), 1, "")
        commit, failed = story.commit(lease, epoch), story.commit(failing, epoch)
        story.state.record_source(record(2), 1, Changed(changed))
        stop_clock(self.looking, 200)
        return {
            "publish": lambda state: story.record(lease, commit, state),
            "publish the other": lambda state: story.record(failing, failed, state),
            "invalidate": lambda state: state.invalidate("core.a", changed, "again", "me") and None,
            "news": lambda state: state.handle_events(same),
            "reset": lambda state: begin_again(state, generations["core.a"]),
            "cancel": lambda state: state.cancel_task(lease.task, "me"),
            "cancel all": lambda state: state.cancel_model("core.a", "me"),
            "reap": lambda state: state.reap() and None,
            "heartbeat": lambda state: len(state.heartbeat([lease, failing])),
            "intend": lambda state: state.intend(failing, story.frontier(failing), 1, ""),
            "fail": lambda state: state.fail(lease, "engine", "no", story.cost),
            "split": lambda state: state.fail(failing, "user", "no", story.cost),
            "hand back": lambda state: state.hand_back(lease, "the worker stops"),
            "release": lambda state: state.release(lease, "not ready"),
            "claim": lambda state: claimed(state.claim("v")),
            "enqueue": lambda state: state.enqueue([story.order((60, 70))], generations),
            "enqueue a half": lambda state: state.enqueue([story.order((30, 40))], generations),
            "apply": lambda state: len(state.apply("r2", b"", {}, story.definitions(a="new"))),
        }

    def found(self, *, reaped: bool) -> dict[str, object]:
        """All that matters, without numbers that only count on. A lost task that somebody just held is reaped later."""
        if reaped:
            self.story.state.reap()
        return {
            "tasks": self._ask(
                "select dense_rank() over (order by generation), ranges::text, state, attempt, held_until::text, "
                "lease_expires_at, run_after > clock() from task order by id"
            ),
            "attempts": self._ask(
                "select t.ranges::text, a.n, a.outcome, a.error_class, a.followed_by, a.basis_epoch "
                "from attempt a join task t on t.id = a.task order by a.task, a.n"
            ),
            "coverage": self._coverage(),
            "targets": self._ask(
                "select i.reason, i.closed_at is null, t.ranges::text, t.remaining::text, t.epoch, "
                "dense_rank() over (order by t.generation) "
                "from invalidation i left join invalidation_target t on t.invalidation = i.id order by 1, 3, 4, 5, 6"
            ),
            "generations": self._ask("select state, epoch, accepted_snapshot from generation order by no"),
            "events": self._ask("select model, snapshot, ranges::text from event order by 1, 2, 3"),
        }

    def _coverage(self) -> list[object]:
        database = self.story.state.database
        numbers = [int(str(no)) for (no,) in self._ask("select no from generation order by no")]
        held = folding.read(database, numbers, {})
        return [(held[no].covered, held[no].stale) for no in numbers]

    def _ask(self, text: str) -> list[tuple[object, ...]]:
        return self.looking.execute(text.encode()).fetchall()

    def one_by_one(self, first: str, second: str) -> tuple[object, object, dict[str, object]]:
        acts = self.begin()
        answers = answer(acts[first], self.one), answer(acts[second], self.other)
        return (*answers, self.found(reaped="reap" in (first, second)))

    def stopped(self, first: str, second: str, stop_at: int) -> tuple[Preempted, dict[str, object]]:
        acts = self.begin()
        came = preempt(self.looking, (self.one, acts[first]), (self.other, acts[second]), stop_at)
        return came, self.found(reaped="reap" in (first, second))


def begin_again(state: State, generation: int) -> None:
    with state.resetting(generation) as reset:
        reset.record(9)


def claimed(lease: Lease | None) -> object:
    return lease and (lease.order.scope, lease.attempt, lease.epoch)


@pytest.fixture
def meeting(story: Story, dsn: str, empty_schema: str) -> Iterator[Meeting]:
    one, other = gated(dsn, empty_schema), gated(dsn, empty_schema)
    yield Meeting(story, one, other, story.connect().database.connection)
    one.close()
    other.close()


PAIRS = [
    ("publish", "invalidate"),
    ("publish", "news"),
    ("publish", "cancel"),
    ("publish", "cancel all"),
    ("publish", "reap"),
    ("publish", "apply"),
    ("publish", "heartbeat"),
    ("publish", "publish the other"),
    ("publish", "hand back"),
    ("publish the other", "invalidate"),
    ("publish the other", "news"),
    ("claim", "apply"),
    ("claim", "cancel all"),
    ("claim", "reap"),
    ("claim", "invalidate"),
    ("intend", "invalidate"),
    ("intend", "reap"),
    ("enqueue", "apply"),
    ("enqueue a half", "split"),
    ("fail", "cancel"),
    ("fail", "reap"),
    ("split", "apply"),
    ("hand back", "reap"),
    ("release", "reap"),
    ("split", "cancel all"),
    ("split", "split"),
    ("enqueue", "cancel all"),
    ("claim", "claim"),
    ("claim", "hand back"),
    ("apply", "news"),
    ("apply", "invalidate"),
    ("news", "invalidate"),
    ("reset", "enqueue"),
    ("reset", "claim"),
    ("reset", "split"),
    ("reap", "cancel all"),
    ("reap", "apply"),
    ("reap", "reap"),
]


def preempted_everywhere(meeting: Meeting, first: str, second: str) -> list[Preempted]:
    """Stop `first` before each of its statements: whatever `second` does then, it is as if one came after the other."""
    a, b, found = meeting.one_by_one(first, second)
    b_first, a_second, found_reversed = meeting.one_by_one(second, first)
    allowed = [(a, b, found), (a_second, b_first, found_reversed)]
    said, _ = statements_of(meeting.one, meeting.begin()[first])
    came = []
    for stop_at in range(len(said)):
        preempted, left = meeting.stopped(first, second, stop_at)
        assert not violations(meeting.looking), preempted
        assert (preempted.first, preempted.second, left) in allowed, (preempted, left)
        came.append(preempted)
    return came


@pytest.mark.parametrize(("first", "second"), PAIRS + [(b, a) for a, b in PAIRS if a != b])
def test_two_connections_that_meet_at_any_statement_end_as_if_they_came_one_by_one(
    meeting: Meeting, first: str, second: str
) -> None:
    assert preempted_everywhere(meeting, first, second)


def test_publishing_and_invalidating_one_table_wait_for_each_other(meeting: Meeting) -> None:
    """Before the lock nobody waits, from then on to the commit the other one does."""
    for first, second, lock in (
        ("publish", "invalidate", "lock_generation_head"),
        ("invalidate", "publish", "lock_kept_generations"),
        ("news", "publish", "lock_consumers"),
    ):
        came = preempted_everywhere(meeting, first, second)
        names = [one.stopped_before for one in came]
        locked, committed = names.index(lock), names.index("commit")
        assert [one.waited for one in came] == [locked < n <= committed for n in range(len(came))], came


def without(name: str, words: str) -> tuple[str, str]:
    assert words in statements()[name]
    return name, statements()[name].replace(words, "")


@pytest.mark.parametrize(
    ("mutant", "first", "second"),
    [
        (without("lock_generation_head", "for no key update"), "publish", "publish the other"),
        (without("lock_kept_generations", "for no key update"), "invalidate", "publish the other"),
        (without("lock_consumers", "for no key update of g"), "news", "publish the other"),
        (without("fence", "for update"), "publish", "reap"),
        (without("fence", "for update"), "fail", "reap"),
        (without("fence", "for update"), "fail", "cancel"),
        (without("share_generations", "for share"), "apply", "enqueue"),
        (without("lock_active_tasks", "for update"), "split", "cancel all"),
        (without("lock_active_tasks", "for update"), "split", "apply"),
        (without("lock_active_tasks", "for update"), "claim", "apply"),
        (without("lock_generations", "for no key update"), "apply", "enqueue"),
        (("lock_claim", "select 1"), "claim", "claim"),
    ],
    ids=lambda one: one if isinstance(one, str) else one[0],
)
def test_without_the_lock_one_statement_between_two_others_is_seen(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch, mutant: tuple[str, str], first: str, second: str
) -> None:
    monkeypatch.setitem(statements(), *mutant)
    with pytest.raises((AssertionError, psycopg.errors.IntegrityError)):
        preempted_everywhere(meeting, first, second)


def test_one_look_would_miss_the_halves_of_a_task_that_is_just_split(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_once(database: Database, *, task: int | None = None, model: str | None = None) -> list[int]:
        return database.values("lock_active_tasks", int, task=task, model=model, generations=[])

    monkeypatch.setattr(control, "lock_active", look_once)
    with pytest.raises(AssertionError):
        preempted_everywhere(meeting, "split", "cancel all")
