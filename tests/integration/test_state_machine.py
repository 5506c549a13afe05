"""Any calls in any order, by living and dead workers, with leases of today and of long ago: the promises hold."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import psycopg
import pytest
from account import MOST_CONFLICTS, RETRIES
from arrow_engine import ArrowEngine
from deployment import Deployment
from faults import Fault
from fuzzing import FUZZ, effort
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from trial import MODELS, Trial, mixed

from penstock.engine.commit.publish import FileSetChanged
from penstock.engine.stage.staged import Staged
from penstock.engine.values.job import HeadMoved, Step
from penstock.errors import ErrorClass
from penstock.planner.change import pins
from penstock.planner.policy import retry
from penstock.runtime.place.workspace import Workspace, apply
from penstock.runtime.process.progress import Silent
from penstock.runtime.serve.run import observe
from penstock.runtime.work import heartbeat as heartbeats
from penstock.runtime.work.attempt import AttemptContext, work
from penstock.runtime.work.heartbeat import MARGIN_SECONDS, Heartbeat
from penstock.state.database.statements import statements
from penstock.state.progress import invalidations
from penstock.state.queue.workers import LEASE_SECONDS
from penstock.values.intervals import Interval
from penstock.values.tasks import Commit, Lease, Order

if TYPE_CHECKING:
    from conftest import Story

NewTrial = Callable[[], Trial]
models = st.sampled_from(MODELS)
numbers = st.integers(0, 40)
Scope = tuple[int, int, int]
# they begin at few places, so that orders meet
scopes = st.tuples(st.integers(0, 7), st.integers(1, 3), st.sampled_from([5, 10]))
REPLAYS = ["complete", "adopt", "engine", "user", "release", "hand back", "intend", "heartbeat", "ask"]
ACTS = ["complete", "complete", "intend", "intend", *REPLAYS, "crash", "record nothing", "conflict", "lost"]
acts = st.lists(st.sampled_from(ACTS), max_size=3)


@pytest.fixture
def new_trial(story: Story) -> Iterator[NewTrial]:
    """Trials on the same connections, one after the other."""
    connections = [(story.connect(), story.connect()) for _ in range(3)]
    opened: list[Trial] = []

    def begin() -> Trial:
        opened.append(Trial(story, connections))
        return opened[-1]

    yield begin
    for trial in reversed(opened):
        trial.close()


def machine(new_trial: NewTrial) -> type[RuleBasedStateMachine]:
    """`which` and `by` pick a lease, a task or a worker: 0 is the newest lease, the newest task, the first worker.

    The rules are few, because examples leave some of them out altogether.
    """

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.trial = new_trial()

        def teardown(self) -> None:
            self.trial.close()

        @invariant()
        def the_database_agrees_with_the_account(self) -> None:
            self.trial.check()

        @initialize(orders=st.lists(st.tuples(models, scopes), min_size=1, max_size=5), workers=st.lists(numbers))
        def begin(self, orders: list[tuple[str, Scope]], workers: list[int]) -> None:
            for model, scope in orders:
                self.trial.enqueue(model, *chunks(scope))
            for by in workers:
                self.trial.claim(by)

        @rule(model=models, scope=scopes, by=numbers, acts=acts)
        def plan(self, model: str, scope: Scope, by: int, acts: list[str]) -> None:
            self.trial.enqueue(model, *chunks(scope))
            self._work(self.trial.claim(by, [model]), acts)

        @rule(by=numbers, of=st.none() | models, acts=acts)
        def claim(self, by: int, of: str | None, acts: list[str]) -> None:
            self._work(self.trial.claim(by, of and [of]), acts)

        @precondition(lambda self: self.trial.held)
        @rule(which=numbers, acts=acts)
        def work(self, which: int, acts: list[str]) -> None:
            self._work(self.trial.held[-1 - which % len(self.trial.held)], acts)

        @precondition(lambda self: self.trial.held)
        @rule(which=numbers, kind=st.sampled_from(["engine", "conflict"]), times=st.integers(2, 12))
        def storm(self, which: int, kind: ErrorClass, times: int) -> None:
            self.trial.storm(self.trial.held[-1 - which % len(self.trial.held)], kind, times)

        @precondition(lambda self: self.trial.leases)
        @rule(which=numbers, act=st.sampled_from(REPLAYS), by=numbers)
        def replay(self, which: int, act: str, by: int) -> None:
            done(self.trial, act, self._lease(which), by=by)

        @precondition(lambda self: self.several)
        @rule(which=numbers, other=numbers, act=st.sampled_from(REPLAYS), by=numbers)
        def mix(self, which: int, other: int, act: str, by: int) -> None:
            """The attempt of one lease with the token of another of the same task."""
            one = self.several[which % len(self.several)]
            others = [other for other in self.trial.leases if other.task == one.task and other.attempt != one.attempt]
            done(self.trial, act, mixed(one, others[other % len(others)]), by=by)

        @rule(by=numbers, which=st.lists(numbers, max_size=4))
        def heartbeat(self, by: int, which: list[int]) -> None:
            leases = [self._lease(number) for number in which] if self.trial.leases else []
            self.trial.heartbeat(by, list({lease.token: lease for lease in leases}.values()))

        @rule(seconds=st.sampled_from([0, 0, 1, 40, 121, 310]), cut=st.none() | numbers, own=st.none() | numbers)
        def reap(self, seconds: int, cut: int | None, own: int | None) -> None:
            if seconds:
                self.trial.advance(seconds)
            if cut is not None:
                self.trial.cut(cut)
            self.trial.reap(own)

        @precondition(lambda self: self.trial.tasks)
        @rule(which=numbers, what=st.sampled_from(["task", "task", "task", "model", "revision", "claim", "claim"]))
        def take_away(self, which: int, what: str) -> None:
            newest = self.trial.leases[-1] if self.trial.leases else None
            if what == "task":
                self.trial.cancel(-1 - which)
            elif what == "model":
                self.trial.cancel_model(MODELS[which % 2])
            elif what == "revision":
                self.trial.rebuild()
            elif newest and self.trial.holds(newest):
                self.trial.forget_claim(newest)
                self.trial.claim(which, [newest.order.model])

        @rule(model=models, start=st.integers(0, 8), size=st.integers(1, 4))
        def invalidate(self, model: str, start: int, size: int) -> None:
            self.trial.invalidate(model, 10 * start, 10 * (start + size))

        @property
        def several(self) -> list[Lease]:
            """Leases of tasks that have had more than one attempt."""
            attempts = {(lease.task, lease.attempt) for lease in self.trial.leases}
            tasks = [task for task, _ in attempts]
            return [lease for lease in self.trial.leases if tasks.count(lease.task) > 1]

        def _work(self, lease: Lease | None, acts: list[str]) -> None:
            """All with the same lease, also those that come after it has ended."""
            for act in acts:
                if lease:
                    done(self.trial, act, lease)
                    self.trial.check()

        def _lease(self, which: int) -> Lease:
            return self.trial.leases[-1 - which % len(self.trial.leases)]

    return Machine


def chunks(scope: Scope) -> Iterator[tuple[int, int]]:
    at, count, size = scope
    return ((10 * at + size * n, 10 * at + size * (n + 1)) for n in range(count))


def done(trial: Trial, act: str, lease: Lease, by: int | None = None) -> None:
    acts: dict[str, Callable[[], object]] = {
        "complete": lambda: trial.complete(lease, by=by),
        "adopt": lambda: trial.complete(lease, "adopt", by),
        "crash": lambda: trial.complete(lease, "crash", by),
        "record nothing": lambda: trial.complete(lease, "nothing", by),
        "engine": lambda: trial.fail(lease, "engine", by),
        "user": lambda: trial.fail(lease, "user", by),
        "conflict": lambda: trial.fail(lease, "conflict", by),
        "lost": lambda: trial.fail(lease, "lost", by),
        "release": lambda: trial.release(lease, by),
        "hand back": lambda: trial.hand_back(lease, by),
        "intend": lambda: trial.intend(lease, by),
        "heartbeat": lambda: trial.heartbeat(by or 0, [lease]),
        "ask": lambda: trial.ask(lease),
    }
    acts[act]()


def test_whatever_is_called_in_whatever_order_the_promises_hold(new_trial: NewTrial) -> None:
    run_state_machine_as_test(machine(new_trial), settings=effort(20))


# scripts: each one passes, and each one sees one mechanism missing


def forgotten(trial: Trial, act: str) -> None:
    """The database forgot a claim and gave the same attempt to somebody else: only the token tells them apart."""
    trial.enqueue("core.a", (0, 10))
    old = claimed(trial, 0)
    trial.forget_claim(old)
    new = claimed(trial, 1)
    assert (old.task, old.attempt) == (new.task, new.attempt)
    if act == "ask":
        trial.complete(new)
    elif act == "engine again":
        trial.fail(new, "engine")
        act = "engine"
    done(trial, act, old)
    trial.check()


def mingled(trial: Trial, act: str) -> None:
    """The attempt of a lease that was lost, with the token of the one that is valid."""
    trial.enqueue("core.a", (0, 10))
    old = claimed(trial, 0)
    trial.advance(121)
    trial.reap()
    done(trial, act, mixed(old, claimed(trial, 1)))
    trial.check()


def lost_and_late(trial: Trial, act: str) -> None:
    """A worker comes back after somebody else took over."""
    trial.enqueue("core.a", (0, 10))
    old = claimed(trial, 0)
    trial.advance(121)
    trial.reap()
    claimed(trial, 1)
    done(trial, act, old)
    trial.check()


def cancelled(trial: Trial, act: str) -> None:
    trial.enqueue("core.a", (0, 10))
    lease = claimed(trial, 0)
    trial.cancel(0)
    done(trial, act, lease)
    trial.check()


def invalidated_meanwhile(trial: Trial, act: str) -> None:
    trial.enqueue("core.a", (0, 10))
    lease = claimed(trial, 0)
    trial.intend(lease)
    trial.invalidate("core.a", 5, 20)
    if act == "adopt":
        trial.hand_back(lease)
        lease = claimed(trial, 1)
        trial.intend(lease)
    done(trial, act, lease)
    trial.check()


def nearly_late(trial: Trial, _: str) -> None:
    """A lease that is about to end is still a lease."""
    trial.enqueue("core.a", (0, 10))
    claimed(trial, 0)
    trial.advance(119)
    trial.reap()
    trial.check()


def cut_off(trial: Trial, who: str) -> None:
    """Without its session lock a worker is gone at once; it never says so of itself."""
    trial.enqueue("core.a", (0, 10))
    claimed(trial, 0)
    trial.cut(0)
    trial.reap(0 if who == "itself" else None)
    trial.check()


def lost_twice(trial: Trial, fate: str) -> None:
    """Two workers in a row: a task that kills them is set aside, one whose worker was only cut off is not."""
    trial.enqueue("core.a", (0, 10))
    claimed(trial, 0)
    trial.cut(0)
    trial.reap()
    trial.advance(1)
    if fate == "it came back":
        trial.heartbeat(0, [])
    claimed(trial, 1)
    trial.cut(1)
    trial.reap()
    [entry] = trial.entries
    assert entry.state == ("queued" if fate == "it came back" else "dead")
    trial.check()


def failing(trial: Trial, kind: str) -> None:
    """Conflicts and failures in turn, then one kind until the task is dead."""
    trial.enqueue("core.a", (0, 10))
    lease = claimed(trial, 0)
    for earlier in ("conflict", "conflict", "engine", "conflict"):
        trial.fail(lease, earlier)  # type: ignore[arg-type]
        trial.check()
        trial.claim(0)  # not before its pause is over
        trial.advance(301)
        lease = claimed(trial, 0)
    trial.storm(lease, kind, 12)  # type: ignore[arg-type]
    [entry] = trial.entries
    assert entry.state == "dead"
    kinds = [one for one, *_ in entry.endings]
    assert kinds.count(kind) == (MOST_CONFLICTS if kind == "conflict" else RETRIES + 1)
    trial.check()


def crowded(trial: Trial, _: str) -> None:
    for at in (0, 10, 20):
        trial.enqueue("core.a", (at, at + 10))
    for by in range(4):
        trial.claim(by)
    trial.check()


def claimed(trial: Trial, by: int) -> Lease:
    lease = trial.claim(by)
    assert lease is not None
    return lease


Script = Callable[[Trial, str], None]
Mutant = tuple[str, str, str]
NO_TOKEN: Mutant = ("fence", "and lease_token = %(token)s", "")
NO_ATTEMPT: Mutant = ("fence", "attempt = %(attempt)s and", "")
NEITHER: Mutant = ("fence", "and attempt = %(attempt)s and lease_token = %(token)s and state = 'running'", "")
BEAT_ANY_TOKEN: Mutant = ("heartbeat", "and t.lease_token = held.token", "")
BEAT_ANY_ATTEMPT: Mutant = ("heartbeat", "and t.attempt = held.attempt", "")
REAP_ALL: Mutant = ("abandoned_tasks", "t.lease_expires_at <= clock()", "true")
REAP_LATE: Mutant = ("abandoned_tasks", "w.id is not null and", "false and")
REAP_OWN: Mutant = ("abandoned_tasks", "and w.id is distinct from %(own_worker)s", "")
NO_PAUSE: Mutant = ("claim", "and t.run_after <= moment.at", "")
NO_LIMIT: Mutant = ("claim", "and coalesce(r.n, 0) < m.max_inflight", "")
ASK_ANY: Mutant = ("completed_attempt", "and token = %(token)s", "")
FOLLOW_ANY: Mutant = ("stored_following", "and token = %(token)s", "")
NO_MEMORY: Mutant = ("earlier_endings", "a.outcome in ('failed', 'lost')", "false")
COSTLY: Mutant = (
    "earlier_endings",
    "select a.error_class",
    "select replace(a.error_class, 'conflict', 'engine') as error_class",
)
BACK_OR_NOT: Mutant = ("earlier_endings", "and w.heartbeat_at > a.ended_at", "and false")
NEVER_GONE: Mutant = ("earlier_endings", "and w.heartbeat_at > a.ended_at", "")

SCRIPTS: list[tuple[Script, str, Mutant]] = [
    *((forgotten, act, NO_TOKEN) for act in ("complete", "engine", "release", "hand back", "intend")),
    *((mingled, act, NO_ATTEMPT) for act in ("complete", "engine", "release", "hand back")),
    *((lost_and_late, act, NEITHER) for act in ("complete", "user", "release", "hand back")),
    *((cancelled, act, NEITHER) for act in ("complete", "engine", "release", "hand back")),
    (forgotten, "heartbeat", BEAT_ANY_TOKEN),
    (mingled, "heartbeat", BEAT_ANY_ATTEMPT),
    (forgotten, "ask", ASK_ANY),
    (forgotten, "engine again", FOLLOW_ANY),
    (nearly_late, "", REAP_ALL),
    (cut_off, "others", REAP_LATE),
    (cut_off, "itself", REAP_OWN),
    (failing, "engine", NO_MEMORY),
    (failing, "conflict", NO_MEMORY),
    (failing, "engine", COSTLY),
    (failing, "engine", NO_PAUSE),
    (crowded, "", NO_LIMIT),
    (lost_twice, "it came back", BACK_OR_NOT),
    (lost_twice, "it is gone", NEVER_GONE),
]


@pytest.mark.parametrize(("script", "act"), list(dict.fromkeys((script, act) for script, act, _ in SCRIPTS)))
def test_the_promise_holds(new_trial: NewTrial, script: Script, act: str) -> None:
    script(new_trial(), act)


@pytest.mark.parametrize(("script", "act", "mutant"), SCRIPTS)
def test_without_the_mechanism_the_promise_is_broken(
    new_trial: NewTrial, monkeypatch: pytest.MonkeyPatch, script: Script, act: str, mutant: Mutant
) -> None:
    name, words, instead = mutant
    assert words in statements()[name]
    trial = new_trial()
    monkeypatch.setitem(statements(), name, statements()[name].replace(words, instead))
    with pytest.raises((AssertionError, psycopg.errors.IntegrityError)):
        script(trial, act)


EVERY_MUTANT = list(dict.fromkeys(mutant for *_, mutant in SCRIPTS))


@pytest.mark.parametrize("mutant", EVERY_MUTANT if FUZZ else [NEITHER, REAP_ALL, NO_MEMORY], ids=lambda one: one[0])
def test_random_calls_find_it_out_too(new_trial: NewTrial, monkeypatch: pytest.MonkeyPatch, mutant: Mutant) -> None:
    name, words, instead = mutant
    monkeypatch.setitem(statements(), name, statements()[name].replace(words, instead))
    hunting = settings(effort(400), phases=[Phase.generate], derandomize=True, database=None)
    with pytest.raises((AssertionError, psycopg.errors.IntegrityError)):
        run_state_machine_as_test(machine(new_trial), settings=hunting)


@pytest.mark.parametrize("act", ["complete", "adopt"])
def test_a_publication_without_an_epoch_is_found_out(
    new_trial: NewTrial, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    invalidated_meanwhile(new_trial(), act)
    for module in (invalidations, pins):
        monkeypatch.setattr(module, "too_early", lambda *_: False)
    with pytest.raises(AssertionError):
        invalidated_meanwhile(new_trial(), act)


def test_one_conflict_too_many_is_found_out(new_trial: NewTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "MOST_CONFLICTS", MOST_CONFLICTS + 1)
    with pytest.raises(AssertionError):
        failing(new_trial(), "conflict")


# the worker's own clock


class Watched(ArrowEngine):
    """Counts the commits that were begun."""

    begun = 0

    def publish(self, staged: Staged, step: Step) -> Commit | FileSetChanged | HeadMoved:
        self.begun += 1
        return super().publish(staged, step)


def worked(root: Path, dsn: str, patch: pytest.MonkeyPatch, label: str, *, heard: bool = False) -> tuple[str, int]:
    """Let the lease less its margin pass at one step of an attempt; how the attempt ended, and the commits it began."""
    away = 0.0
    steady = SimpleNamespace(monotonic=lambda: time.monotonic() + away)
    patch.setattr(heartbeats, "time", steady)
    engine = Watched()
    deployment = Deployment.empty(root, dsn)
    deployment.engine = engine
    deployment.source("events")
    deployment.land("events", range(20))
    deployment.model("copy", "select n, value from {{ ref('raw.events') }}")
    with deployment.opened() as workspace, Heartbeat(workspace.connect, "me", {}) as heartbeat:
        apply(workspace)
        observe(workspace, Silent())
        lease = leased(workspace, heartbeat)

        def lose_time() -> None:
            nonlocal away
            away = LEASE_SECONDS - MARGIN_SECONDS
            assert not heartbeat.holds(lease)
            if heard:
                heartbeat._extend()

        fault = Fault(label, lose_time)
        context = AttemptContext(lambda *_: workspace.resolver, workspace.state, engine, fault, heartbeat)
        finished = work(context, lease)
        assert label in fault.seen
        covered = workspace.state.views.whole().current["t.copy"].covered
    assert bool(covered) == (finished.outcome == "succeeded")
    return finished.outcome, engine.begun


def leased(workspace: Workspace, heartbeat: Heartbeat) -> Lease:
    order = Order("t.copy", "forward", (Interval(0, 10),), ("raw.events",), "new rows")
    workspace.state.queue.enqueue([order], {"t.copy": workspace.state.views.whole().working["t.copy"].no})
    lease = workspace.state.queue.claim("me")
    assert lease is not None
    heartbeat.hold(lease, time.monotonic())
    return lease


STEPS_BEFORE_THE_COMMIT = ["claimed", "intended", "computed", "staged", "locked"]


@pytest.mark.parametrize("label", STEPS_BEFORE_THE_COMMIT)
def test_who_could_not_extend_its_lease_never_begins_the_commit(
    tmp_path: Path, dsn: str, monkeypatch: pytest.MonkeyPatch, label: str
) -> None:
    assert worked(tmp_path, dsn, monkeypatch, label) == ("lost", 0)


def test_who_could_extend_it_goes_on(tmp_path: Path, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert worked(tmp_path, dsn, monkeypatch, "staged", heard=True) == ("succeeded", 1)


def test_without_asking_again_a_late_worker_would_begin_a_commit(
    tmp_path: Path, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Heartbeat, "require", lambda *_: None)
    assert worked(tmp_path, dsn, monkeypatch, "locked") == ("succeeded", 1)
