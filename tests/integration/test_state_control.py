"""Pause, resume, cancel, hand back: what people and stopping workers may do at any moment, and say twice."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from penstock.errors import LeaseLostError, UnknownModelError
from penstock.state.database.statements import statements
from penstock.state.store import State
from penstock.values.intervals import NOTHING, ranges
from penstock.values.tasks import Lease

if TYPE_CHECKING:
    from conftest import Story


def audited(story: Story) -> list[tuple[object, ...]]:
    return story.execute("select actor, action, subject, detail from audit where action <> 'apply' order by id")


def outcomes(story: Story, lease: Lease) -> list[str | None]:
    return [one.outcome for one in story.state.history.attempts([lease.task])[lease.task]]


def states(story: Story) -> list[str]:
    return [task.state for task in reversed(story.state.history.tasks("core.a", failed=False, history=True))]


# pause and resume


def test_a_paused_model_is_not_claimed_and_what_runs_may_end(story: Story) -> None:
    lease = story.lease((0, 10))
    story.enqueue(story.order((10, 20)))
    story.state.control.pause("core.a", "me")
    assert story.state.views.whole().paused == {"core.a"}
    assert story.state.queue.claim("w") is None
    story.publish(lease)
    assert story.covered() == ranges((0, 10))
    story.state.control.resume("core.a", "you")
    assert story.state.views.whole().paused == frozenset()
    assert story.state.queue.claim("w") is not None
    assert audited(story) == [("me", "pause", "core.a", {}), ("you", "resume", "core.a", {"holds": 0})]


def test_pausing_twice_is_fine_and_a_revision_leaves_it_alone(story: Story) -> None:
    for _ in range(2):
        story.state.control.pause("core.a", "me")
    story.state.projects.apply("r2", b"", {}, story.definitions(a="new"))
    assert story.state.views.whole().paused == {"core.a"}


@pytest.mark.parametrize("name", ["core.c", "raw.events"])
def test_only_models_that_we_build_can_be_controlled(story: Story, name: str) -> None:
    acts: list[Callable[[str, str], object]] = [
        story.state.control.pause,
        story.state.control.resume,
        story.state.control.cancel_model,
    ]
    for act in acts:
        with pytest.raises(UnknownModelError, match=r"the project has core\.a, core\.b"):
            act(name, "me")
    assert audited(story) == []


@pytest.mark.parametrize(
    ("act", "payload"),
    [("pause", ""), ("resume", ""), ("resume_task", ""), ("cancel_task", "cancel"), ("cancel_model", "cancel")],
)
def test_every_waiting_process_is_notified(story: Story, act: str, payload: str) -> None:
    lease = story.lease((0, 10))
    waiter = story.connect()
    waiter.listener.wait(0)
    acts: dict[str, Callable[[], object]] = {
        "pause": lambda: story.state.control.pause("core.a", "me"),
        "resume": lambda: story.state.control.resume("core.a", "me"),
        "resume_task": lambda: story.state.control.resume_task(lease.task, "me"),
        "cancel_task": lambda: story.state.control.cancel_task(lease.task, "me"),
        "cancel_model": lambda: story.state.control.cancel_model("core.a", "me"),
    }
    acts[act]()
    assert waiter.listener.wait(20) == (payload,)


# cancel


def test_a_cancelled_task_is_taken_from_its_worker(story: Story) -> None:
    lease = story.lease((0, 10))
    assert story.state.control.cancel_task(lease.task, "me")
    assert story.state.workers.heartbeat([lease]) == (lease,)
    assert (states(story), outcomes(story, lease)) == (["cancelled"], ["cancelled"])
    assert story.state.history.attempts([lease.task])[lease.task][0].error == "cancelled by me"
    acts: list[Callable[[], object]] = [
        lambda: story.publish(lease),
        lambda: story.record(lease, story.commit(lease, 0)),
        lambda: story.state.queue.fail(lease, "engine", "no", story.cost),
        lambda: story.state.queue.release(lease, "no"),
        lambda: story.state.queue.hand_back(lease, "no"),
    ]
    for act in acts:
        with pytest.raises(LeaseLostError):
            act()
    assert story.state.queue.reap() == 0
    assert story.state.queue.claim("w") is None
    assert story.covered() == NOTHING


def test_a_cancelled_scope_is_held_until_somebody_resumes_it(story: Story) -> None:
    lease = story.lease((0, 10))
    began = story.state.views.whole().at
    story.state.control.cancel_task(lease.task, "me")
    story.advance(10**8)
    for view in (story.state.views.whole(), story.state.views.whole(dead_since=began)):
        work = view.work["core.a"]
        assert (work.dead, work.dead_tasks, work.last_error) == (ranges((0, 10)), 0, None)
    assert story.state.control.resume_task(lease.task, "me")
    for view in (story.state.views.whole(), story.state.views.whole(dead_since=began)):
        assert view.work["core.a"].dead == NOTHING
    story.build((0, 10))
    assert story.covered() == ranges((0, 10))


def test_cancelling_a_model_takes_all_its_active_tasks_and_nobody_elses(story: Story) -> None:
    done, running = story.build((0, 10)), story.lease((10, 20))
    failed = story.lease((20, 30))
    story.state.queue.fail(failed, "engine", "no", story.cost)
    story.enqueue(story.order((30, 40)), story.order((0, 10), model="core.b"))
    assert story.state.control.cancel_model("core.a", "me") == 3
    assert states(story) == ["succeeded", "cancelled", "cancelled", "cancelled"]
    assert (outcomes(story, done), outcomes(story, running), outcomes(story, failed)) == (
        ["succeeded"],
        ["cancelled"],
        ["failed"],
    )
    view = story.state.views.whole()
    assert (view.work["core.a"].dead, view.work["core.b"].queued) == (ranges((10, 40)), 1)
    assert audited(story) == [("me", "cancel", "core.a", {"tasks": 3})]


def test_cancelling_twice_is_fine(story: Story) -> None:
    lease = story.lease((0, 10))
    assert story.state.control.cancel_task(lease.task, "me")
    assert not story.state.control.cancel_task(lease.task, "me")
    assert story.state.control.cancel_model("core.a", "me") == 0
    assert not story.state.control.cancel_task(10**9, "me")
    assert outcomes(story, lease) == ["cancelled"]


def test_what_has_ended_cannot_be_cancelled(story: Story) -> None:
    lease = story.build((0, 10))
    assert not story.state.control.cancel_task(lease.task, "me")
    assert states(story) == ["succeeded"]


# cancel and publish, in both orders


def publish_while(story: Story, lease: Lease, cancel: Callable[[State], object]) -> object:
    """Cancel from another connection while the publication is open; what the cancel answered."""
    other = story.connect()
    with ThreadPoolExecutor(1) as pool:
        with story.state.attempts.publishing(lease) as publication:
            answer = pool.submit(cancel, other)
            wait_until_blocked(story, other, answer)
            publication.record(story.commit(lease, 0), story.cost, "interval", ())
        return answer.result(30)


def wait_until_blocked(story: Story, other: State, answer: Future[object]) -> None:
    """Until that connection waits for a lock."""
    looking = story.connect().database.connection
    pid = other.database.connection.info.backend_pid
    while not answer.done():
        found = looking.execute("select wait_event_type from pg_stat_activity where pid = %s", (pid,)).fetchall()
        if found == [("Lock",)]:
            return
    raise AssertionError(f"it did not wait: {answer.result()}")


@pytest.mark.parametrize("whole", [True, False], ids=["the model", "the task"])
def test_a_cancel_during_a_publication_waits_and_changes_nothing(story: Story, whole: bool) -> None:
    lease = story.lease((0, 10))
    answer = publish_while(
        story,
        lease,
        lambda state: (
            state.control.cancel_model("core.a", "me") if whole else state.control.cancel_task(lease.task, "me")
        ),
    )
    assert answer == 0
    assert (states(story), outcomes(story, lease)) == (["succeeded"], ["succeeded"])
    assert story.covered() == ranges((0, 10))


def test_a_publication_after_a_cancel_is_fenced_off(story: Story) -> None:
    lease = story.lease((0, 10))
    epoch = story.state.attempts.intend(lease, story.frontier(lease), None, "staging")
    canceller, publisher, commit = story.connect(), story.connect(), story.commit(lease, epoch)
    with ThreadPoolExecutor(1) as pool:
        with canceller.database.transaction():
            assert canceller.control.cancel_task(lease.task, "me")
            done: Future[object] = pool.submit(story.record, lease, commit, publisher)
            wait_until_blocked(story, publisher, done)
        with pytest.raises(LeaseLostError):
            done.result(30)
    assert story.covered() == NOTHING
    assert outcomes(story, lease) == ["cancelled"]


def test_a_cancel_that_left_the_token_would_be_overtaken(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = statements()["cancel_tasks"].replace(
        "set state = 'cancelled', lease_token = null, lease_expires_at = null, finished_at = clock(), held_until",
        "set held_until",
    )
    assert kept != statements()["cancel_tasks"]
    monkeypatch.setitem(statements(), "cancel_tasks", kept)
    lease = story.lease((0, 10))
    assert story.state.control.cancel_task(lease.task, "me")
    story.record(lease, story.commit(lease, 0))
    assert story.covered() == ranges((0, 10))


# handing back


def test_a_task_that_is_handed_back_can_be_started_at_once(story: Story) -> None:
    lease = story.lease((0, 10))
    story.state.queue.hand_back(lease, "the worker stops")
    work = story.state.views.whole().work["core.a"]
    assert (work.queued, work.running, work.dead) == (1, 0, NOTHING)
    second = story.claim("another")
    assert (second.task, second.attempt, second.order) == (lease.task, 2, lease.order)
    with pytest.raises(LeaseLostError):
        story.record(lease, story.commit(lease, 0))
    story.publish(second)
    assert outcomes(story, lease) == ["released", "succeeded"]


def test_handing_back_uses_no_budget(story: Story) -> None:
    story.execute("update model set retries = 1")
    lease = story.lease((0, 10))
    for number in range(6):
        story.state.queue.hand_back(lease, "the worker stops")
        lease = story.claim(f"w{number}")
    assert lease.attempt == 7
    assert story.state.queue.fail(lease, "engine", "no", story.cost, most_pause_seconds=0) == "retrying"
    story.state.queue.hand_back(story.claim(), "the worker stops")
    assert story.state.queue.fail(story.claim(), "engine", "no", story.cost) == "dead"


def test_a_counted_hand_back_would_use_the_budget_up(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = statements()["earlier_endings"].replace("('failed', 'lost')", "('failed', 'lost', 'released')")
    usual = "select a.error_class"
    assert usual in counted
    counted = counted.replace(usual, "select coalesce(a.error_class, 'engine') as error_class")
    monkeypatch.setitem(statements(), "earlier_endings", counted)
    story.execute("update model set retries = 1")
    story.state.queue.hand_back(story.lease((0, 10)), "the worker stops")
    assert story.state.queue.fail(story.claim(), "engine", "no", story.cost) == "dead"


# saying it twice


def test_who_completes_twice_finds_the_stored_outcome(story: Story) -> None:
    lease = story.lease((0, 10))
    assert story.state.attempts.completed(lease) is None
    story.publish(lease, snapshot=5)
    with pytest.raises(LeaseLostError):
        story.record(lease, story.commit(lease, 0, snapshot=6))
    for _ in range(2):
        stored = story.state.attempts.completed(lease)
        assert stored is not None
        assert (stored.outcome, stored.snapshot, stored.cost) == ("succeeded", 5, story.cost)
    assert story.execute("select count(*) from coverage") == [(1,)]


@pytest.mark.parametrize("follows", ["dead", "retrying"])
def test_who_fails_twice_hears_the_same_answer(story: Story, follows: str) -> None:
    lease = story.lease((0, 10))
    for _ in range(2):
        assert story.state.queue.fail(lease, "user" if follows == "dead" else "engine", "no", story.cost) == follows
    assert outcomes(story, lease) == ["failed"]
    assert len(states(story)) == 1


@pytest.mark.parametrize("act", ["release", "hand_back"])
def test_who_gives_a_task_away_twice_no_longer_owns_it(story: Story, act: str) -> None:
    lease = story.lease((0, 10))
    give = {"release": story.state.queue.release, "hand_back": story.state.queue.hand_back}[act]
    give(lease, "once")
    with pytest.raises(LeaseLostError):
        give(lease, "twice")
    if act == "hand_back":
        story.claim("another")
        with pytest.raises(LeaseLostError):
            give(lease, "thrice")
