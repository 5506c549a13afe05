"""Attempts without a result: who may say so, what follows, and how lost workers are noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from penstock.errors import ErrorClass, LeaseLostError
from penstock.planner.policy.retry import MOST_PARTS_ALIKE, Die, Ending, Retry, Split, SplitFailures, next_step
from penstock.state.database.statements import statements
from penstock.state.store import State
from penstock.values.intervals import NOTHING, ranges
from penstock.values.tasks import Lease

if TYPE_CHECKING:
    from conftest import Story


def endings(*classes: ErrorClass, workers: str = "wwwwwwwwwwww") -> list[Ending]:
    return [Ending(one, worker) for one, worker in zip(classes, workers, strict=False)]


def again(story: Story) -> Lease:
    """The next attempt of the only task, whenever it is due."""
    story.execute("update task set run_after = clock() where state = 'retrying'")
    return story.claim()


def no_token_check(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The broken twin of a fenced statement."""
    broken = statements()[name].replace("and lease_token = %(token)s", "").replace("and attempt = %(attempt)s", "")
    assert broken != statements()[name]
    monkeypatch.setitem(statements(), name, broken)


# deciding


def test_a_users_mistake_is_not_tried_again() -> None:
    assert isinstance(next_step(endings("user"), 1, 4, Random(1)), Die)


def test_a_batch_with_a_users_mistake_is_halved() -> None:
    assert next_step(endings("user"), 2, 4, Random(1)) == Split()


def test_an_engine_failure_is_tried_again_with_growing_pauses_until_the_budget_is_spent() -> None:
    pauses = []
    for failures in range(1, 4):
        step = next_step(endings(*["engine"] * failures), 1, 4, Random(1))
        assert isinstance(step, Retry)
        pauses.append(step.after_seconds)
    assert pauses == sorted(pauses)
    assert 0.5 <= pauses[0] <= 1.0 < pauses[2] <= 4.0
    assert isinstance(next_step(endings(*["engine"] * 4), 1, 4, Random(1)), Die)
    assert next_step(endings(*["engine"] * 4), 3, 4, Random(1)) == Split()


def test_a_part_has_no_more_tries_than_its_batch_has_left() -> None:
    assert isinstance(next_step(endings("engine"), 1, 4, Random(1), SplitFailures(2, 2)), Retry)
    assert isinstance(next_step(endings("engine"), 1, 4, Random(1), SplitFailures(4, 4)), Die)
    assert next_step(endings("engine"), 2, 4, Random(1), SplitFailures(4, 4)) == Split()
    assert isinstance(next_step(endings("lost"), 1, 4, Random(1), SplitFailures(4, 4)), Retry)
    assert isinstance(next_step(endings("engine"), 2, 4, Random(1), SplitFailures(4, MOST_PARTS_ALIKE)), Die)


def test_pauses_have_jitter_and_a_longest_one() -> None:
    many = {next_step(endings(*["conflict"] * 9), 1, 4, Random(seed)) for seed in range(20)}
    assert len(many) == 20
    assert all(isinstance(one, Retry) and one.after_seconds <= 300 for one in many)


def test_conflicts_cost_no_budget_but_end_at_ten() -> None:
    assert isinstance(next_step(endings(*["conflict"] * 9), 1, 1, Random(1)), Retry)
    assert isinstance(next_step(endings(*["conflict"] * 10, workers="w" * 10), 1, 99, Random(1)), Die)
    mixed = endings("conflict", "conflict", "engine")
    assert isinstance(next_step(mixed, 1, 2, Random(1)), Retry)


def test_a_lost_worker_is_retried_at_once_twice() -> None:
    assert next_step(endings("lost"), 1, 9, Random(1)) == Retry(0.0)
    assert next_step(endings("lost", "lost"), 1, 9, Random(1)) == Retry(0.0)
    third = next_step(endings("lost", "lost", "lost"), 1, 9, Random(1))
    assert isinstance(third, Retry)
    assert third.after_seconds > 0


def test_losing_two_different_workers_in_a_row_quarantines_the_task() -> None:
    assert isinstance(next_step(endings("lost", "lost", workers="ab"), 1, 9, Random(1)), Die)
    assert isinstance(next_step(endings("lost", "engine", "lost", workers="aab"), 1, 9, Random(1)), Retry)


def test_losses_do_not_go_on_for_ever() -> None:
    """B-40."""
    assert isinstance(next_step(endings(*["lost"] * 4), 1, 4, Random(1)), Die)


# failing


def test_a_users_mistake_is_dead_at_once_and_visible(story: Story) -> None:
    lease = story.lease((0, 10))
    assert story.state.queue.fail(lease, "user", "no such column", story.cost) == "dead"
    work = story.state.views.whole().work["core.a"]
    assert (work.dead, work.dead_tasks, work.last_error) == (ranges((0, 10)), 1, "no such column")
    assert not work.in_flight
    [task] = story.state.history.tasks("core.a", failed=True, history=False)
    assert (task.state, task.error, task.cost) == ("dead", "no such column", story.cost)
    [attempt] = story.state.history.attempts([lease.task])[lease.task]
    assert (attempt.outcome, attempt.error_class) == ("failed", "user")
    assert story.covered() == NOTHING


def test_a_failing_batch_becomes_its_ends_its_middle_and_the_rest_in_one_transaction(story: Story) -> None:
    lease = story.lease(*((start, start + 10) for start in range(0, 80, 10)))
    assert story.state.queue.fail(lease, "user", "bad row", story.cost) == "split"
    work = story.state.views.whole().work["core.a"]
    assert (work.queued, work.in_flight, work.dead_tasks) == (5, ranges((0, 80)), 0)
    parts = []
    while part := story.state.queue.claim("w"):
        parts.append(part.order.chunks)
        story.state.queue.release(part, "the next one")
    assert parts == [
        story.order(*part).chunks
        for part in (
            [(0, 10)],
            [(70, 80)],
            [(40, 50)],
            [(10, 20), (20, 30), (30, 40)],
            [(50, 60), (60, 70)],
        )
    ]


def test_a_batch_that_fails_for_the_engine_becomes_its_ends_its_middle_and_the_rest(story: Story) -> None:
    story.execute("update model set retries = 0")
    lease = story.lease((0, 10), (10, 20), (20, 30), (30, 40))
    assert story.state.queue.fail(lease, "engine", "no space", story.cost) == "split"
    first, *others = (story.claim() for _ in range(4))
    parts = [first.order, *(one.order for one in others)]
    assert parts == [story.order(chunk) for chunk in ((0, 10), (30, 40), (20, 30), (10, 20))]
    assert story.state.queue.fail(first, "user", "bad row", story.cost) == "dead"
    for one in others:
        story.publish(one)
    assert story.covered() == ranges((10, 40))
    assert story.state.views.whole().work["core.a"].dead == ranges((0, 10))


def test_an_engine_failure_pauses_and_comes_back_as_the_next_attempt(story: Story) -> None:
    lease = story.lease((0, 10))
    assert story.state.queue.fail(lease, "engine", "no space", story.cost) == "retrying"
    assert story.state.queue.claim("w") is None
    assert story.state.views.whole().work["core.a"].retrying == 1
    story.advance(2)
    second = story.claim()
    assert (second.task, second.attempt) == (lease.task, 2)
    assert second.token != lease.token


def test_a_caller_that_waits_caps_the_pause(story: Story) -> None:
    """Nine conflicts: two to four minutes of pause, but not for somebody who sits in front of it."""

    def pause(most: float | None) -> float:
        lease = story.lease((0, 10))
        for _ in range(8):
            story.state.queue.fail(lease, "conflict", "busy", story.cost)
            lease = again(story)
        cap = {} if most is None else {"most_pause_seconds": most}
        assert story.state.queue.fail(lease, "conflict", "busy", story.cost, **cap) == "retrying"
        [[seconds]] = story.execute("select extract(epoch from run_after - clock()) from task where state = 'retrying'")
        story.state.queue.release(again(story), "the next one")
        return float(str(seconds))

    assert pause(None) > 100
    assert 4 < pause(5) <= 5


def test_a_poisoned_task_dies_when_its_attempts_are_used_up(story: Story) -> None:
    """B-40: three retries by default, then it stands still and says so."""
    lease = story.lease((0, 10))
    said = [story.state.queue.fail(lease, "engine", "no", story.cost)]
    while said[-1] == "retrying":
        said.append(story.state.queue.fail(again(story), "engine", "no", story.cost))
    assert said == ["retrying"] * 3 + ["dead"]
    assert "it failed 4 times" in (story.state.views.whole().work["core.a"].last_error or "")


def test_ten_conflicts_are_enough(story: Story) -> None:
    lease = story.lease((0, 10))
    said = [story.state.queue.fail(lease, "conflict", "busy", story.cost)]
    while said[-1] == "retrying":
        said.append(story.state.queue.fail(again(story), "conflict", "busy", story.cost))
    assert said == ["retrying"] * 9 + ["dead"]


def test_saying_a_failure_twice_gives_the_stored_answer(story: Story) -> None:
    """B-41."""
    lease = story.lease((0, 10), (10, 20))
    assert story.state.queue.fail(lease, "user", "bad", story.cost) == "split"
    assert story.state.queue.fail(lease, "user", "bad", story.cost) == "split"
    assert story.state.views.whole().work["core.a"].queued == 2


def test_a_lost_attempt_writes_nothing(story: Story) -> None:
    lease = story.lease((0, 10))
    story.state.queue.fail(lease, "lost", "somebody else has it", story.cost)
    assert story.state.history.attempts([lease.task])[lease.task][0].outcome is None


def test_dead_work_blocks_nobody_and_is_planned_again(story: Story) -> None:
    """B-43: dead tasks occupy no slot; the same range can be ordered again, and success makes it good."""
    for i in range(4):
        story.state.queue.fail(story.lease((10 * i, 10 * i + 10)), "user", "bad", story.cost)
    assert story.state.views.whole().work["core.a"].dead_tasks == 4
    began = story.state.views.whole().at
    assert story.state.views.whole(dead_since=began).work["core.a"].dead == NOTHING
    story.build((0, 10))
    work = story.state.views.whole().work["core.a"]
    assert (work.dead, work.dead_tasks) == (ranges((10, 40)), 3)


def test_a_range_that_died_twice_is_counted_once(story: Story) -> None:
    for _ in range(2):
        story.state.queue.fail(story.lease((0, 10)), "user", "bad", story.cost)
    work = story.state.views.whole().work["core.a"]
    assert (work.dead_tasks, work.dead) == (1, ranges((0, 10)))


# the fence


@pytest.mark.parametrize("wrong", ["token", "attempt"])
def test_who_does_not_own_the_attempt_can_do_nothing(story: Story, wrong: str) -> None:
    lease = story.lease((0, 10))
    zombie = replace(lease, token=uuid4()) if wrong == "token" else replace(lease, attempt=7)
    acts: list[Callable[[], object]] = [
        lambda: story.record(zombie, story.commit(zombie, 0)),
        lambda: story.state.queue.fail(zombie, "engine", "no", story.cost),
        lambda: story.state.queue.release(zombie, "no"),
        lambda: story.state.attempts.intend(zombie, {}, None, ""),
    ]
    for act in acts:
        with pytest.raises(LeaseLostError):
            act()
    assert story.state.workers.heartbeat([zombie]) == (zombie,)
    assert story.state.workers.heartbeat([lease]) == ()
    assert story.covered() == NOTHING
    assert story.state.views.whole().work["core.a"].running == 1


def test_an_older_attempt_can_do_nothing(story: Story) -> None:
    old = story.lease((0, 10))
    story.state.queue.fail(old, "engine", "no", story.cost)
    new = again(story)
    with pytest.raises(LeaseLostError):
        story.record(old, story.commit(old, 0))
    assert story.state.workers.heartbeat([old]) == (old,)
    story.publish(new)
    assert story.covered() == ranges((0, 10))


def test_without_the_token_a_zombie_would_publish(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    no_token_check(monkeypatch, "fence")
    old = story.lease((0, 10))
    story.advance(121)
    story.state.queue.reap()
    story.claim("somebody else")
    story.record(old, story.commit(old, 0))
    assert story.covered() == ranges((0, 10))


# liveness


def test_a_lease_that_ran_out_is_taken_back(story: Story) -> None:
    lease = story.lease((0, 10))
    assert story.state.queue.reap() == 0
    story.advance(119)
    assert story.state.queue.reap() == 0
    story.advance(121)
    assert story.state.queue.reap() == 1
    second = story.claim("v")
    assert (second.task, second.attempt) == (lease.task, 2)
    assert story.state.history.attempts([lease.task])[lease.task][0].outcome == "lost"


def test_a_heartbeat_keeps_a_lease_alive(story: Story) -> None:
    lease = story.lease((0, 10))
    story.advance(100)
    assert story.connect().workers.heartbeat([lease]) == ()
    story.advance(219)
    assert story.state.queue.reap() == 0
    story.advance(221)
    assert story.state.queue.reap() == 1


def test_a_late_completion_counts_while_nobody_else_has_the_task(story: Story) -> None:
    lease = story.lease((0, 10))
    story.advance(500)
    assert story.state.workers.heartbeat([lease]) == ()
    story.publish(lease)
    assert story.covered() == ranges((0, 10))


def test_a_worker_whose_connection_is_gone_is_noticed_at_once(story: Story) -> None:
    beat = story.connect()
    beat.workers.register("w", {"host": "here", "pid": 7})
    lease = story.lease((0, 10))
    assert [(one.id, one.host, one.pid) for one in story.state.workers.alive()] == [("w", "here", 7)]
    assert story.state.queue.reap() == 0
    hang_up(story, beat)
    assert story.state.workers.alive() == ()
    assert story.state.queue.reap() == 1
    second = story.claim("v")
    assert (second.task, second.attempt) == (lease.task, 2)
    with pytest.raises(LeaseLostError):
        story.record(lease, story.commit(lease, 0))


def test_without_looking_at_the_lock_a_dead_worker_would_hold_its_task(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    blind = statements()["abandoned_tasks"].replace("w.id is not null", "false")
    assert blind != statements()["abandoned_tasks"]
    monkeypatch.setitem(statements(), "abandoned_tasks", blind)
    beat = story.connect()
    beat.workers.register("w", {})
    story.lease((0, 10))
    hang_up(story, beat)
    assert story.state.queue.reap() == 0


def test_a_worker_never_takes_its_own_tasks_for_a_missing_lock(story: Story) -> None:
    other = story.connect()
    other.workers.register("w", {})
    story.lease((0, 10))
    other.database.connection.execute("select pg_advisory_unlock_all()")
    assert story.state.queue.reap("w") == 0  # on whichever connection it asks
    assert other.queue.reap("v") == 1


def test_a_worker_may_register_again_on_another_connection(story: Story) -> None:
    first, second = story.connect(), story.connect()
    first.workers.register("w", {})
    story.lease((0, 10))
    second.workers.register("w", {})
    hang_up(story, first)
    assert story.state.queue.reap() == 0
    assert len(story.state.workers.alive()) == 1


def test_a_task_that_kills_two_workers_is_dead(story: Story) -> None:
    story.lease((0, 10), worker="one")
    for seconds, worker in ((121, "two"), (300, "three")):
        story.advance(seconds)
        assert story.state.queue.reap() == 1
        if worker == "two":
            story.claim(worker)
    work = story.state.views.whole().work["core.a"]
    assert (work.dead_tasks, work.queued) == (1, 0)
    assert "two workers in a row" in (work.last_error or "")


def test_a_completion_in_progress_is_not_reaped(story: Story) -> None:
    """B-42: the fence and what follows from it are one transaction; the reaper skips the row that it holds."""
    lease = story.lease((0, 10))
    story.advance(500)
    reaper = story.connect()
    with story.state.attempts.publishing(lease) as publication:
        assert reaper.queue.reap() == 0
        publication.record(story.commit(lease, 0), story.cost, "interval", ())
    assert reaper.queue.reap() == 0
    assert story.covered() == ranges((0, 10))


def hang_up(story: Story, gone: State) -> None:
    """Close a connection, and wait until its server process has ended: that is what frees the lock."""
    pid = gone.database.connection.info.backend_pid
    gone.close()
    while story.execute("select 1 from pg_stat_activity where pid = %s", pid):
        pass
