"""Holds: what died is left alone for a while, longer each time, and then found again by itself."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from deployment import Deployment
from faults import Fault, raising

from penstock.errors import EngineError
from penstock.planner.observations import Observations
from penstock.planner.policy.retry import Die, Ending, Retry, hold_seconds, next_step
from penstock.planner.readiness.plan import plan
from penstock.state.database.statements import statements
from penstock.state.queue import failure
from penstock.values.intervals import NOTHING, IntervalSet, ranges
from penstock.values.records import Work
from penstock.values.tasks import Lease, Order

if TYPE_CHECKING:
    from conftest import Story


def work(story: Story) -> Work:
    return story.state.views.whole().work["core.a"]


def held(story: Story) -> IntervalSet:
    return work(story).dead


def die(story: Story, *chunks: tuple[int, int]) -> Lease:
    lease = story.lease(*chunks)
    assert story.state.queue.fail(lease, "user", "no such column", story.cost) == "dead"
    return lease


def hold_of(story: Story, lease: Lease) -> float:
    [[seconds]] = story.execute(
        "select extract(epoch from held_until - finished_at)::float8 from task where id = %s", lease.task
    )
    assert isinstance(seconds, float)
    return seconds


# how long


def test_holds_double_up_to_ten_minutes() -> None:
    assert [hold_seconds(deaths) for deaths in range(1, 8)] == [30, 60, 120, 240, 480, 600, 600]
    assert hold_seconds(10**6) == 600


def test_only_two_different_lost_workers_in_a_row_are_a_quarantine() -> None:
    def ending(*workers: str) -> object:
        return next_step([Ending("lost", worker) for worker in workers], 1, 4, Random(1))

    def quarantined(step: object) -> bool:
        return isinstance(step, Die) and step.quarantined

    assert quarantined(ending("a", "b"))
    assert not quarantined(ending("a", "a"))
    assert ending("a", "a", "a", "a") == Die("its worker was lost; 4 attempts are used up")
    assert next_step([Ending("user", "a")], 1, 4, Random(1)) != Die("", quarantined=True)


def test_a_worker_that_was_heard_of_again_was_not_lost_on_the_task() -> None:
    lost, back = Ending("lost", "a"), Ending("lost", "a", came_back=True)
    assert isinstance(next_step([lost, Ending("lost", "b")], 1, 4, Random(1)), Die)
    assert isinstance(next_step([back, Ending("lost", "b")], 1, 4, Random(1)), Retry)
    assert isinstance(next_step([back] * 9 + [Ending("lost", "a")], 1, 2, Random(1)), Retry)


def test_a_dead_scope_is_held_and_then_found_again(story: Story) -> None:
    """S0-31: the cause may be gone after the hold, so planning sees the scope again without anybody's help."""
    die(story, (0, 10))
    assert held(story) == ranges((0, 10))
    story.advance(29)
    assert held(story) == ranges((0, 10))
    story.advance(31)
    assert held(story) == NOTHING
    assert (work(story).dead_tasks, work(story).last_error) == (1, "no such column")
    story.build((0, 10))
    assert (work(story).dead_tasks, work(story).last_error) == (0, None)


def test_without_a_hold_a_hopeless_scope_would_be_planned_at_once(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failure, "hold_seconds", lambda deaths, **_: 0.0)
    die(story, (0, 10))
    assert held(story) == NOTHING


def test_every_death_of_a_scope_in_a_row_holds_longer(story: Story) -> None:
    found = []
    for number in range(7):
        story.advance(1000 * number)
        found.append(round(hold_of(story, die(story, (0, 10)))))
    assert found == [30, 60, 120, 240, 480, 600, 600]
    assert work(story).dead_tasks == 1


def test_deaths_elsewhere_or_before_a_success_do_not_count(story: Story) -> None:
    die(story, (0, 10))
    assert round(hold_of(story, die(story, (10, 20)))) == 30
    assert round(hold_of(story, die(story, (5, 15)))) == 60 * 2  # both of its neighbours died
    story.advance(1000)
    story.build((0, 20))
    story.advance(2000)
    assert round(hold_of(story, die(story, (0, 10)))) == 30
    assert held(story) == ranges((0, 10))


def test_without_looking_at_what_was_covered_old_deaths_would_count_for_ever(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    blind = statements()["deaths_in_a_row"].replace("c.kind = 'cover'", "false")
    assert blind != statements()["deaths_in_a_row"]
    monkeypatch.setitem(statements(), "deaths_in_a_row", blind)
    die(story, (0, 10))
    story.build((0, 10))
    assert round(hold_of(story, die(story, (0, 10)))) == 60


def test_what_is_worked_on_or_covered_since_is_not_held(story: Story) -> None:
    die(story, (0, 10))
    die(story, (10, 20))
    story.enqueue(story.order((0, 10)))
    assert held(story) == ranges((10, 20))
    assert work(story).in_flight == ranges((0, 10))
    story.publish(story.claim())
    assert held(story) == ranges((10, 20))
    assert work(story).dead_tasks == 1


# planning


def planned(trial: Deployment) -> IntervalSet:
    """What a scheduler would order now."""
    with trial.opened() as workspace:
        [model] = workspace.interval_models(())
        seen = Observations(workspace.project.graph, workspace.state.views.whole()).observation(model)
    return IntervalSet.of(part for one in plan(seen) if isinstance(one, Order) for part in one.scope)


def test_a_scope_whose_cause_was_fixed_is_planned_after_the_hold(tmp_path: Path, dsn: str) -> None:
    """S0-31: nobody has to do anything; before the hold ends it is not tried over and over."""
    trial = Deployment.empty(tmp_path, dsn)
    trial.source("numbers")
    trial.land("numbers", range(30))
    trial.model("copy", "select n, value from {{ ref('raw.numbers') }}", "interval: 30\nretries: 0")
    broken = Fault("staged", raising(EngineError("no space")), times=100)
    assert trial.run(step=broken).failed == 1
    assert planned(trial) == NOTHING
    trial.move_clock(31)
    assert planned(trial) == ranges((0, 30))
    assert trial.run().failed == 0
    assert (trial.covered("copy"), trial.status("t.copy")["health"]) == (ranges((0, 30)), "ok")


# poison and conflicts


def lose(story: Story, worker: str, seconds: float) -> None:
    story.claim(worker)
    story.advance(seconds)
    assert story.state.queue.reap() == 1


def quarantine(story: Story, now: float) -> float:
    """Two workers are lost on [0, 10); for how long it is left alone."""
    story.advance(now)
    story.enqueue(story.order((0, 10)))
    lose(story, "one", now + 121)
    lose(story, "two", now + 300)
    [[seconds]] = story.execute(
        "select extract(epoch from held_until - finished_at)::float8 from task order by id desc limit 1"
    )
    return round(float(str(seconds)))


def test_what_loses_two_workers_is_left_alone_for_a_while_and_then_found_again(story: Story) -> None:
    assert quarantine(story, 0) == 30
    assert (held(story), work(story).queued, work(story).dead_tasks) == (ranges((0, 10)), 0, 1)
    story.advance(331)
    assert held(story) == NOTHING
    assert [quarantine(story, 10_000 * turn) for turn in range(1, 9)] == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    story.state.control.resume("core.a", "me")
    assert held(story) == NOTHING


@pytest.mark.parametrize("back", ["one", "two"])
@pytest.mark.parametrize("how", ["registers", "beats"])
def test_a_worker_that_is_heard_of_again_ends_the_quarantine_at_once(story: Story, back: str, how: str) -> None:
    first = story.connect()
    first.workers.register(back, {})
    quarantine(story, 0)
    assert held(story) == ranges((0, 10))
    waiter = story.connect()
    waiter.listener.wait(0)
    if how == "registers":
        story.connect().workers.register(back, {})
    else:
        first.workers.heartbeat([], back)
    assert held(story) == NOTHING
    assert waiter.listener.wait(20) == ("",)


def test_another_worker_that_comes_back_ends_no_quarantine(story: Story) -> None:
    quarantine(story, 0)
    story.connect().workers.register("three", {})
    assert held(story) == ranges((0, 10))


def test_a_worker_that_beats_in_time_says_nothing_about_what_died(story: Story) -> None:
    """The control: only one that was silent can have been taken for lost."""
    first = story.connect()
    first.workers.register("one", {})
    story.enqueue(story.order((0, 10)))
    for worker in ("one", "two"):
        story.claim(worker)
        story.execute("update task set lease_expires_at = clock()")
        assert story.state.queue.reap() == 1
    first.workers.heartbeat([], "one")
    assert held(story) == ranges((0, 10))


def test_losses_on_one_worker_end_with_a_hold_and_no_quarantine(story: Story) -> None:
    story.enqueue(story.order((0, 10)))
    for number in range(1, 5):
        story.execute("update task set run_after = clock()")
        lose(story, "one", 1000 * number)
    assert work(story).dead_tasks == 1
    story.advance(4031)
    assert held(story) == NOTHING


def test_ten_conflicts_end_a_task_and_cost_no_budget_before(story: Story) -> None:
    story.execute("update model set retries = 0")
    story.enqueue(story.order((0, 10)))
    for _ in range(9):
        lease = story.claim()
        assert story.state.queue.fail(lease, "conflict", "busy", story.cost, most_pause_seconds=0) == "retrying"
    assert story.state.queue.fail(story.claim(), "conflict", "busy", story.cost) == "dead"
    assert held(story) == ranges((0, 10))
    story.advance(31)
    assert held(story) == NOTHING


def test_conflicts_do_not_use_up_what_an_engine_failure_may(story: Story) -> None:
    story.execute("update model set retries = 1")
    story.enqueue(story.order((0, 10)))
    for error, follows in (("conflict", "retrying"), ("engine", "retrying"), ("conflict", "retrying")):
        lease = story.claim()
        assert story.state.queue.fail(lease, error, "no", story.cost, most_pause_seconds=0) == follows  # type: ignore[arg-type]
    assert story.state.queue.fail(story.claim(), "engine", "no", story.cost) == "dead"


# a run of its own


def test_a_run_holds_what_died_since_it_began_and_nothing_older(story: Story) -> None:
    die(story, (0, 10))
    began = story.state.views.whole().at
    assert story.state.views.whole(dead_since=began).work["core.a"].dead == NOTHING
    die(story, (10, 20))
    since = story.state.views.whole(dead_since=began).work["core.a"]
    assert (since.dead, since.dead_tasks) == (ranges((10, 20)), 1)
    story.advance(10_000)
    assert story.state.views.whole(dead_since=began).work["core.a"].dead == ranges((10, 20))
    assert story.state.views.whole().work["core.a"].dead == NOTHING
    assert story.state.views.whole().work["core.a"].dead_tasks == 2


# letting go


@pytest.mark.parametrize("act", ["rerun", "new revision", "resume"])
def test_holds_end_when_a_person_acts(story: Story, act: str) -> None:
    die(story, (0, 10))
    waiter = story.connect()
    waiter.listener.wait(0)
    if act == "resume":
        story.state.control.resume("core.a", "me")
    elif act == "rerun":
        story.state.control.clear_holds("core.a")
    else:
        story.state.projects.apply("r2", b"", {}, story.definitions())
    assert waiter.listener.wait(20) == ("",)
    assert held(story) == NOTHING
    assert work(story).dead_tasks == 1
    assert round(hold_of(story, die(story, (0, 10)))) == 30


def test_applying_the_same_revision_again_leaves_holds_alone(story: Story) -> None:
    die(story, (0, 10))
    story.state.projects.apply("r1", b"", {}, story.definitions())
    assert held(story) == ranges((0, 10))


def test_resuming_one_task_lets_go_of_its_positions_only(story: Story) -> None:
    first, second = die(story, (0, 10)), die(story, (10, 20))
    die(story, (0, 10))
    assert story.state.control.resume_task(first.task, "me")
    assert held(story) == ranges((10, 20))
    assert not story.state.control.resume_task(first.task, "me")
    assert not story.state.control.resume_task(10**9, "me")
    assert story.state.control.resume_task(second.task, "me")
    assert held(story) == NOTHING


def test_another_models_holds_stay(story: Story) -> None:
    die(story, (0, 10))
    story.state.control.resume("core.b", "me")
    assert held(story) == ranges((0, 10))


def test_what_happened_last_to_a_position_decides(story: Story) -> None:
    """Cancelled once, then taken up by a run and dead: the short hold counts, not the endless one."""
    story.enqueue(story.order((0, 10)))
    story.state.control.cancel_model("core.a", "me")
    die(story, (0, 10))
    assert held(story) == ranges((0, 10))
    story.advance(31)
    assert held(story) == NOTHING


# what always fails


def test_of_a_scope_that_died_again_and_again_the_last_death_speaks(story: Story) -> None:
    for turn in range(1, 4):
        lease = story.lease((0, 10))
        story.state.queue.fail(lease, "user", f"no such column: {turn}", story.cost)
    died = work(story)
    assert (died.dead, died.dead_tasks, died.last_error) == (ranges((0, 10)), 1, "no such column: 3")
    generations = [story.generation().no]
    told = story.state.database.rows("state_tasks", dict, generations=generations, dead_since=None)
    assert len(told) == 1


def test_the_words_of_a_failure_may_hold_what_the_database_cannot(story: Story) -> None:
    die_of = "cannot cast 'a\0b'"
    assert story.state.queue.fail(story.lease((0, 10)), "user", die_of, story.cost) == "dead"
    assert work(story).last_error == "cannot cast 'a\N{REPLACEMENT CHARACTER}b'"
