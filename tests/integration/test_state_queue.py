"""Tasks: each claimed by one worker, never overlapping, in a fair order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.errors import ConflictError, LeaseLostError
from penstock.state.database.statements import statements
from penstock.state.store import State
from penstock.values.intervals import EVERYTHING, Interval, ranges
from penstock.values.tasks import Order

if TYPE_CHECKING:
    from conftest import Story


def test_every_task_is_claimed_once_however_many_claim_at_once(story: Story) -> None:
    story.execute("update model set max_inflight = 100")
    story.enqueue(*(story.order((10 * i, 10 * i + 10)) for i in range(20)))
    states = [story.connect() for _ in range(4)]

    def claim_all(state: State) -> list[int]:
        found = []
        while lease := state.queue.claim("w"):
            found.append(lease.task)
        return found

    with ThreadPoolExecutor(4) as pool:
        claimed = [task for tasks in pool.map(claim_all, states) for task in tasks]
    assert len(claimed) == len(set(claimed)) == 20


def test_a_claimed_task_comes_with_its_order_a_token_and_an_attempt(story: Story) -> None:
    order = story.order((0, 10), (10, 20))
    story.enqueue(order)
    lease = story.claim("me")
    assert (lease.order, lease.attempt, lease.worker, lease.max_attempts) == (order, 1, "me", 4)
    assert story.state.queue.claim("me") is None
    [task] = story.state.history.tasks(None, failed=False, history=False)
    assert (task.state, task.worker, task.order) == ("running", "me", order)


def test_only_the_models_asked_for_are_claimed(story: Story) -> None:
    story.enqueue(story.order((0, 10)))
    assert story.state.queue.claim("w", ["core.b"]) is None
    assert story.state.queue.claim("w", []) is None
    assert story.state.queue.claim("w", ["core.a", "core.b"]) is not None


def test_no_more_tasks_of_a_model_run_than_it_allows(story: Story) -> None:
    story.execute("update model set max_inflight = 2 where id = 'core.a'")
    story.enqueue(*(story.order((10 * i, 10 * i + 10)) for i in range(8)))
    states = [story.connect() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        leases = [one for one in pool.map(lambda state: state.queue.claim("w"), states) if one]
    assert len(leases) == 2
    story.state.queue.release(leases[0], "not ready")
    assert story.state.queue.claim("w") is not None
    assert story.state.queue.claim("w") is None


def test_a_claim_waits_for_a_claim_that_is_not_committed_yet(story: Story) -> None:
    story.execute("update model set max_inflight = 1 where id = 'core.a'")
    story.enqueue(story.order((0, 10)), story.order((10, 20)))
    other = story.connect()
    other.database.connection.execute("set lock_timeout = '100ms'")
    with story.state.database.transaction():
        assert story.state.queue.claim("w")
        with pytest.raises(ConflictError):
            other.queue.claim("v")
    assert other.queue.claim("v") is None


def test_without_that_wait_the_limit_would_be_broken(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(statements(), "lock_claim", "select 1")
    story.execute("update model set max_inflight = 1 where id = 'core.a'")
    story.enqueue(story.order((0, 10)), story.order((10, 20), lane="backfill"))
    other = story.connect()
    with story.state.database.transaction():
        assert story.state.queue.claim("w")
        assert other.queue.claim("v")
    assert story.state.views.whole().work["core.a"].running == 2


def test_forward_goes_first_and_a_busy_model_lets_others_through(story: Story) -> None:
    story.enqueue(story.order((0, 10), lane="backfill"), story.order((10, 20), lane="repair"), story.order((20, 30)))
    lanes = [story.claim().order.lane for _ in range(3)]
    assert lanes == ["forward", "repair", "backfill"]
    story.enqueue(story.order((30, 40)), story.order((0, 10), model="core.b"))
    lease = story.state.queue.claim("w")
    assert lease is not None
    assert lease.order.model == "core.b"


def test_active_scopes_of_a_generation_never_overlap(story: Story) -> None:
    """B-1: a longer order for the same start is turned away while the first is active; touching is not overlapping."""
    assert story.enqueue(story.order((100, 125))) == 1
    assert story.enqueue(story.order((100, 150))) == 0
    assert story.enqueue(story.order((0, 10), (110, 111))) == 0
    assert story.enqueue(story.order((125, 150)), story.order((90, 100))) == 2
    lease = story.claim()
    assert story.enqueue(Order("core.a", "repair", lease.order.chunks, (), "again")) == 0
    story.publish(lease)
    assert story.enqueue(Order("core.a", "repair", lease.order.chunks, (), "again")) == 1


def test_the_database_itself_refuses_an_overlap(story: Story) -> None:
    story.enqueue(story.order((0, 10)))
    with pytest.raises(psycopg.errors.ExclusionViolation):
        story.execute(
            "insert into task (model, generation, lane, ranges, chunks, choices, reason, max_attempts) "
            "select model, generation, lane, '{[5,6)}', '{}', '{}', '', 1 from task"
        )


def test_the_same_positions_of_other_generations_are_free(story: Story) -> None:
    assert story.enqueue(story.order((0, 10)), story.order((0, 10), model="core.b")) == 2
    story.state.projects.apply("r2", b"", {}, story.definitions(a="new"))
    everything = Order("core.a", "forward", (Interval(*EVERYTHING.edges),), (), "all of it")
    assert story.enqueue(everything) == 1
    assert story.enqueue(story.order((0, 10))) == 0


def test_a_generation_that_is_no_longer_worked_on_takes_no_orders(story: Story) -> None:
    old = {"core.a": story.generation().no}
    story.state.projects.apply("r2", b"", {}, story.definitions(a="new"))
    assert story.state.queue.enqueue([story.order((0, 10))], old) == 0
    assert story.state.queue.enqueue([story.order((0, 10))], {}) == 0


def test_planners_that_enqueue_the_same_at_once_add_it_once(story: Story) -> None:
    orders = [story.order((10 * i, 10 * i + 10), (1000 + 10 * i, 1010 + 10 * i)) for i in range(40)]
    generations = {"core.a": story.generation().no}
    batches = [orders, orders[::-1], orders[::2]]
    states = [story.connect() for _ in batches]
    with ThreadPoolExecutor(3) as pool:
        added = pool.map(lambda one: one[0].queue.enqueue(one[1], generations), zip(states, batches, strict=True))
        assert sum(added) == 40


def test_not_ready_is_not_a_failure(story: Story) -> None:
    lease = story.lease((0, 10))
    story.state.queue.release(lease, "raw.events was not ready")
    view = story.state.views.whole()
    assert view.work["core.a"].dead_tasks == 0
    assert not view.work["core.a"].in_flight
    assert story.state.history.attempts([lease.task])[lease.task][0].outcome == "released"
    assert story.enqueue(lease.order) == 1


def test_a_released_task_cannot_be_published(story: Story) -> None:
    lease = story.lease((0, 10))
    story.state.queue.release(lease, "not ready")
    with pytest.raises(LeaseLostError):
        story.record(lease, story.commit(lease, 0))


def test_a_paused_model_is_not_claimed(story: Story) -> None:
    story.enqueue(story.order((0, 10)))
    story.execute("update model set desired = 'paused' where id = 'core.a'")
    assert story.state.queue.claim("w") is None
    assert story.state.views.whole().paused == {"core.a"}


def test_a_wait_ends_when_the_database_changes(story: Story) -> None:
    waiter = story.connect()
    waiter.listener.wait(0)
    done = threading.Event()

    def wait() -> None:
        waiter.listener.wait(60)
        done.set()

    thread = threading.Thread(target=wait)
    thread.start()
    began = time.monotonic()
    story.enqueue(story.order((0, 10)))
    assert done.wait(30)
    thread.join()
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("act", ["publish", "fail", "release", "invalidate"])
def test_what_came_before_a_wait_ends_it_at_once(story: Story, act: str) -> None:
    lease = story.lease((0, 10))
    waiter = story.connect()
    waiter.listener.wait(0)
    acts: dict[str, Callable[[], object]] = {
        "publish": lambda: story.publish(lease),
        "fail": lambda: story.state.queue.fail(lease, "engine", "no", story.cost),
        "release": lambda: story.state.queue.release(lease, "no"),
        "invalidate": lambda: story.state.invalidations.invalidate("core.a", ranges((0, 1)), "", "me"),
    }
    acts[act]()
    waiter.views.whole()
    began = time.monotonic()
    waiter.listener.wait(60)
    assert time.monotonic() - began < 30
