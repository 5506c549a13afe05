"""Two connections that meet at any statement: it must be as if one came after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psycopg
import pytest
from invariants import violations
from kept import bring_back, keep, stop_clock
from observations import record
from preemption import Act, Preempted, answer, gated, preempt, statements_of
from reaches import same

from penstock.state.database.connection import Database
from penstock.state.database.statements import statements
from penstock.state.progress import folding
from penstock.state.queue import control
from penstock.state.store import State
from penstock.values.changes import Changed
from penstock.values.intervals import ranges
from penstock.values.tasks import Lease

if TYPE_CHECKING:
    from conftest import Story


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
        story.state.sources.record(record(1), None)
        lose_lock(story, "unlocked")
        story.build((0, 10), (10, 20))
        story.state.events.handle(same)
        story.state.invalidations.invalidate("core.a", ranges((0, 10)), "rerun", "me")
        generations = {"core.a": story.generation().no}
        lease, failing = story.lease((0, 10)), story.lease((20, 30), (30, 40))
        story.enqueue(story.order((40, 50)), story.order((50, 60)))
        epoch = story.state.attempts.intend(lease, story.frontier(lease), 1, "")
        commit, failed = story.commit(lease, epoch), story.commit(failing, epoch)
        story.state.sources.record(record(2), 1, Changed(changed))
        stop_clock(self.looking, 200)
        return {
            "publish": lambda state: story.record(lease, commit, state),
            "publish the other": lambda state: story.record(failing, failed, state),
            "invalidate": lambda state: state.invalidations.invalidate("core.a", changed, "again", "me") and None,
            "event": lambda state: state.events.handle(same),
            "reset": lambda state: begin_again(state, generations["core.a"]),
            "cancel": lambda state: state.control.cancel_task(lease.task, "me"),
            "cancel all": lambda state: state.control.cancel_model("core.a", "me"),
            "reap": lambda state: state.queue.reap() and None,
            "heartbeat": lambda state: len(state.workers.heartbeat([lease, failing])),
            "intend": lambda state: state.attempts.intend(failing, story.frontier(failing), 1, ""),
            "fail": lambda state: state.queue.fail(lease, "engine", "no", story.cost),
            "split": lambda state: state.queue.fail(failing, "user", "no", story.cost),
            "hand back": lambda state: state.queue.hand_back(lease, "the worker stops"),
            "release": lambda state: state.queue.release(lease, "not ready"),
            "claim": lambda state: claimed(state.queue.claim("v")),
            "claim unlocked": lambda state: claimed(state.queue.claim("unlocked")),
            "come back": lambda state: state.workers.register("unlocked", {}),
            "enqueue": lambda state: state.queue.enqueue([story.order((60, 70))], generations),
            "enqueue a half": lambda state: state.queue.enqueue([story.order((30, 40))], generations),
            "apply": lambda state: len(state.projects.apply("r2", b"", {}, story.definitions(a="new"))),
        }

    def found(self, *, reaped: bool) -> dict[str, object]:
        """All that matters, without numbers that only count on. A lost task that somebody just held is reaped later."""
        if reaped:
            self.story.state.queue.reap()
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


def lose_lock(story: Story, worker: str) -> None:
    """The worker is known, and its session lock went with its connection: the server was restarted, for example."""
    gone = story.connect()
    gone.workers.register(worker, {})
    gone.close()
    while story.state.workers.alive():
        pass


def begin_again(state: State, generation: int) -> None:
    with state.generations.resetting(generation) as reset:
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
    ("publish", "event"),
    ("publish", "cancel"),
    ("publish", "cancel all"),
    ("publish", "reap"),
    ("publish", "apply"),
    ("publish", "heartbeat"),
    ("publish", "publish the other"),
    ("publish", "hand back"),
    ("publish the other", "invalidate"),
    ("publish the other", "event"),
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
    ("claim unlocked", "reap"),
    ("claim unlocked", "come back"),
    ("apply", "event"),
    ("apply", "invalidate"),
    ("event", "invalidate"),
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
        ("event", "publish", "lock_consumers"),
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
        (without("lock_consumers", "for no key update of g"), "event", "publish the other"),
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


def claims_that_were_lost(meeting: Meeting) -> list[tuple[object, ...]]:
    """Attempts of a worker that claims while its lock is away or just coming back, and that a reaper took from it."""
    found: list[tuple[object, ...]] = []
    for first, second in (("claim unlocked", "come back"), ("come back", "claim unlocked"), ("claim unlocked", "reap")):
        said, _ = statements_of(meeting.one, meeting.begin()[first])
        for stop_at in range(len(said)):
            meeting.stopped(first, second, stop_at)
            meeting.story.state.queue.reap()
            found += meeting._ask("select * from attempt where worker = 'unlocked' and outcome = 'lost'")
    return found


def test_a_worker_whose_lock_is_not_back_yet_claims_nothing_that_a_reaper_would_take(meeting: Meeting) -> None:
    assert claims_that_were_lost(meeting) == []
    meeting.one_by_one("come back", "claim unlocked")
    assert meeting._ask("select count(*) from attempt where worker = 'unlocked'") == [(1,)]


def test_control_a_claim_that_does_not_look_for_the_lock_is_lost_at_once(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(statements(), *without("claim", "and not exists (select from absent)"))
    assert claims_that_were_lost(meeting)


def test_one_look_would_miss_the_halves_of_a_task_that_is_just_split(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_once(database: Database, *, task: int | None = None, model: str | None = None) -> list[int]:
        return database.values("lock_active_tasks", int, task=task, model=model, generations=[])

    monkeypatch.setattr(control, "lock_active", look_once)
    with pytest.raises(AssertionError):
        preempted_everywhere(meeting, "split", "cancel all")
