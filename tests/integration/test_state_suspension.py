"""Suspended models: who is, what keeps them so, and what lets them go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from observations import record

from penstock.errors import ErrorClass
from penstock.planner.policy.breaker import MOST_ALIKE
from penstock.planner.policy.retry import MOST_PARTS_ALIKE, SplitFailures
from penstock.state.database.statements import statements
from penstock.state.queue import failure
from penstock.values.changes import Changed
from penstock.values.intervals import NOTHING, Interval, ranges
from penstock.values.records import SuspensionRecord
from penstock.values.tasks import Lease

if TYPE_CHECKING:
    from conftest import Story

BATCH = tuple((10 * n, 10 * n + 10) for n in range(8))


def suspended(story: Story) -> SuspensionRecord | None:
    return story.state.views.whole().suspended.get("core.a")


def must(story: Story) -> SuspensionRecord:
    found = suspended(story)
    assert found is not None
    return found


def read(story: Story, lease: Lease, snapshot: int = 1) -> Lease:
    story.state.attempts.intend(lease, story.frontier(lease, snapshot), None, "")
    return lease


def fail_all(
    story: Story, error_class: ErrorClass = "user", error: str = "cannot cast 'x{}'", snapshot: int = 1
) -> int:
    """Whatever is claimed fails; how many attempts there were."""
    count = 0
    while (lease := story.state.queue.claim("w")) is not None:
        count += 1
        story.state.queue.fail(read(story, lease, snapshot), error_class, error.format(count), story.cost, 0)
    return count


@pytest.fixture
def hopeless(story: Story) -> Story:
    """A batch failed, and so did its ends and its middle."""
    story.state.sources.record(record(1), None)
    story.enqueue(story.order(*BATCH), story.order((1000, 1010)))
    assert fail_all(story) == 4
    return story


def test_a_batch_whose_ends_and_middle_fail_like_it_suspends_its_model(hopeless: Story) -> None:
    found = must(hopeless)
    assert (found.error, found.times, found.moved) == ("cannot cast 'x4'", 1, False)
    assert hopeless.state.queue.claim("w") is None
    work = hopeless.state.views.whole().work["core.a"]
    assert (work.queued, work.in_flight, work.dead_tasks) == (0, NOTHING, 3)


def test_what_comes_into_the_queue_of_a_suspended_model_is_not_claimed(hopeless: Story) -> None:
    hopeless.enqueue(hopeless.order((2000, 2010)))
    assert hopeless.state.queue.claim("w") is None
    assert hopeless.state.queue.claim("w", ["core.a"]) is None


def test_control_a_claim_that_does_not_look_would_go_on(hopeless: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    blind = statements()["claim"].replace("s.generation = t.generation and s.active", "false")
    assert blind != statements()["claim"]
    monkeypatch.setitem(statements(), "claim", blind)
    hopeless.enqueue(hopeless.order((2000, 2010)))
    assert hopeless.state.queue.claim("w") is not None


def test_control_without_suspension_every_chunk_would_be_tried(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure, "suspend_if_hopeless", lambda *_, **__: False)
    story.enqueue(story.order(*BATCH))
    assert fail_all(story) > 8
    assert suspended(story) is None


@pytest.mark.parametrize("error_class", ["engine", "conflict"])
def test_many_single_chunks_that_fail_alike_suspend_unless_they_only_conflict(
    story: Story, error_class: ErrorClass
) -> None:
    story.execute("update model set retries = 0")
    story.enqueue(*(story.order((10 * n, 10 * n + 10)) for n in range(MOST_ALIKE)))
    fail_all(story, error_class, "no {}")
    assert (suspended(story) is None) == (error_class == "conflict")


def far_and_wide(story: Story) -> int:
    """Storage refuses all of 200 chunks but the first; how many attempts were made of it."""
    story.execute("update model set retries = 0")
    story.enqueue(story.order(*((10 * n, 10 * n + 10) for n in range(200))))
    count = 0
    while (lease := story.state.queue.claim("w")) is not None:
        count += 1
        if lease.order.chunks == (Interval(0, 10),):
            story.publish(lease)
        else:
            story.state.queue.fail(lease, "engine", f"cannot read s3://bucket/part-{count}.parquet", story.cost, 0)
    return count


def test_storage_that_fails_nearly_everywhere_is_not_isolated_chunk_by_chunk(story: Story) -> None:
    assert far_and_wide(story) <= 3 * MOST_PARTS_ALIKE
    assert story.covered() == ranges((0, 10))
    assert story.state.views.whole().work["core.a"].dead == ranges((10, 2000))


def test_control_without_looking_at_the_family_every_chunk_is_tried(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failure, "_split_failures", lambda *_: SplitFailures())
    assert far_and_wide(story) > 300


def test_another_error_than_its_batchs_leaves_a_part_its_tries(story: Story) -> None:
    story.execute("update model set retries = 1")
    story.enqueue(story.order(*BATCH))
    for _ in range(2):
        story.state.queue.fail(story.claim(), "engine", "cannot read", story.cost, 0)
    part = story.claim()
    assert len(part.order.chunks) == 1
    assert story.state.queue.fail(part, "engine", "no space", story.cost, 0) == "retrying"


def test_faults_of_storage_and_of_the_query_take_turns(story: Story) -> None:
    seen = []
    for error_class, error in (("engine", "away"), ("engine", "away"), ("user", "no {}"), ("engine", "away")):
        story.execute("update model set retries = 0")
        story.enqueue(story.order(*BATCH))
        fail_all(story, cast("ErrorClass", error_class), error)
        record = must(story)
        seen.append((record.passing, record.times))
        story.state.control.go_on(record.generation)
    assert seen == [(True, 1), (True, 2), (False, 1), (True, 1)]


def test_a_person_who_acts_begins_the_count_anew(hopeless: Story) -> None:
    hopeless.state.control.resume("core.a", "me")
    hopeless.enqueue(hopeless.order(*BATCH))
    assert fail_all(hopeless) == 4
    assert must(hopeless).times == 1


@pytest.mark.parametrize("retries", [0, 2])
def test_storage_that_fails_everywhere_costs_the_tries_of_one_task_and_three_chunks(story: Story, retries: int) -> None:
    story.execute(f"update model set retries = {retries}")
    story.enqueue(story.order(*BATCH))
    assert fail_all(story, "engine", "cannot read s3://bucket/{}") == 1 + retries + 3
    found = must(story)
    assert (found.passing, found.times) == (True, 1)


def test_control_parts_with_tries_of_their_own_would_take_them_all(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failure, "_split_failures", lambda *_: SplitFailures())
    story.execute("update model set retries = 2")
    story.enqueue(story.order(*BATCH))
    assert fail_all(story, "engine", "cannot read s3://bucket/{}") == 16


def test_a_single_chunk_that_storage_refuses_is_isolated(story: Story) -> None:
    story.execute("update model set retries = 2")
    story.enqueue(story.order(*BATCH))
    count = 0
    while (lease := story.state.queue.claim("w")) is not None:
        count += 1
        if ranges((20, 30)) & lease.order.scope:
            story.state.queue.fail(lease, "engine", "cannot read", story.cost, 0)
        else:
            story.publish(lease)
    assert suspended(story) is None
    assert story.covered() == ranges((0, 20), (30, 80))
    assert count <= 12


def test_a_batch_at_fault_by_its_query_leaves_its_parts_their_tries(story: Story) -> None:
    story.execute("update model set retries = 2")
    story.enqueue(story.order(*BATCH))
    story.state.queue.fail(story.claim(), "user", "no", story.cost)
    assert story.state.queue.fail(story.claim(), "engine", "cannot read", story.cost, 0) == "retrying"


def test_errors_that_differ_suspend_nothing(story: Story) -> None:
    story.enqueue(story.order(*BATCH))
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    while (lease := story.state.queue.claim("w")) is not None:
        story.state.queue.fail(lease, "user", f"no such column: {next(letters)}", story.cost)
    assert suspended(story) is None


def test_a_success_between_shows_that_the_model_is_not_at_fault(story: Story) -> None:
    story.enqueue(story.order(*BATCH))
    story.state.queue.fail(story.claim(), "user", "no", story.cost)
    first, last, middle = story.claim(), story.claim(), story.claim()
    story.state.queue.fail(first, "user", "no", story.cost)
    story.publish(last)
    story.state.queue.fail(middle, "user", "no", story.cost)
    assert suspended(story) is None
    assert story.state.views.whole().work["core.a"].queued == 2


def test_a_query_that_cannot_be_understood_suspends_at_once(story: Story) -> None:
    assert story.state.queue.fail(story.lease(*BATCH), "user", "syntax", story.cost, divisible=False) == "dead"
    assert suspended(story) is not None


def test_what_still_runs_while_its_model_is_suspended_may_end_well(story: Story) -> None:
    running = story.lease((500, 510))
    story.state.queue.fail(story.lease(*BATCH), "user", "syntax", story.cost, divisible=False)
    story.publish(running)
    assert story.covered() == ranges((500, 510))
    assert suspended(story) is not None


def test_a_batch_that_fails_while_its_model_is_suspended_is_not_split(story: Story) -> None:
    running = story.lease(*((500 + start, 500 + end) for start, end in BATCH))
    story.state.queue.fail(story.lease(*BATCH), "user", "syntax", story.cost, divisible=False)
    assert story.state.queue.fail(running, "user", "syntax", story.cost) == "dead"
    assert story.state.views.whole().work["core.a"].queued == 0


# going on


@pytest.mark.parametrize("act", ["resume", "rerun", "retry a task", "new revision"])
def test_a_person_lets_it_go_on(hopeless: Story, act: str) -> None:
    if act == "resume":
        hopeless.state.control.resume("core.a", "me")
    elif act == "rerun":
        hopeless.state.control.clear_holds("core.a")
    elif act == "retry a task":
        [dead, *_] = hopeless.state.history.tasks("core.a", failed=True, history=False)
        assert hopeless.state.control.resume_task(dead.id, "me")
    else:
        hopeless.state.projects.apply("r2", b"", {}, hopeless.definitions())
    assert suspended(hopeless) is None
    assert hopeless.state.views.whole().work["core.a"].dead == NOTHING
    hopeless.enqueue(hopeless.order(*BATCH))
    assert fail_all(hopeless) == 4
    assert must(hopeless).times == 1


def test_another_text_is_another_generation_and_is_not_suspended(hopeless: Story) -> None:
    hopeless.state.projects.apply("r2", b"", {}, hopeless.definitions(a="mended"))
    assert suspended(hopeless) is None


def test_an_input_that_moves_on_is_noticed(hopeless: Story) -> None:
    found = must(hopeless)
    assert not found.moved
    assert hopeless.state.sources.record(record(2), 1, Changed(NOTHING))
    found = must(hopeless)
    assert found.moved
    hopeless.state.control.go_on(found.generation)
    assert suspended(hopeless) is None
    hopeless.enqueue(hopeless.order(*BATCH))
    assert fail_all(hopeless, snapshot=2) == 4
    found = must(hopeless)
    assert (found.times, found.moved) == (2, False)


def test_what_counts_is_what_the_attempt_had_read(story: Story) -> None:
    """The source moved on while the attempt was failing: its rows may be good now."""
    story.state.sources.record(record(1), None)
    lease = read(story, story.lease(*BATCH), snapshot=1)
    assert story.state.sources.record(record(2), 1, Changed(NOTHING))
    story.state.queue.fail(lease, "user", "syntax", story.cost, divisible=False)
    found = must(story)
    assert found.moved


def test_a_parent_that_publishes_lets_its_child_be_tried(story: Story) -> None:
    story.build((0, 100))
    lease = read(story, story.lease((0, 10), model="core.b"))
    story.state.queue.fail(lease, "user", "syntax", story.cost, divisible=False)
    assert not story.state.views.whole().suspended["core.b"].moved
    story.build((100, 200))
    assert story.state.views.whole().suspended["core.b"].moved


def test_a_success_begins_the_count_anew(hopeless: Story) -> None:
    found = must(hopeless)
    hopeless.state.control.go_on(found.generation)
    hopeless.build((0, 10))
    hopeless.enqueue(hopeless.order(*((100 + start, 100 + end) for start, end in BATCH)))
    assert fail_all(hopeless) == 4
    again = must(hopeless)
    assert again.times == 1


def test_two_failures_at_once_see_each_other(story: Story) -> None:
    """The probes of one batch end in the same moment, on two connections: the second waits and counts both."""
    story.enqueue(story.order(*BATCH[:2]))
    story.state.queue.fail(story.claim(), "user", "no", story.cost)
    one, other = story.claim(), story.claim()
    second = story.connect()
    second.database.connection.execute("set lock_timeout = '200ms'")
    with story.state.database.transaction():
        story.state.queue.fail(one, "user", "no", story.cost)
        with pytest.raises(Exception, match="lock timeout"):
            second.queue.fail(other, "user", "no", story.cost)
    second.queue.fail(other, "user", "no", story.cost)
    assert suspended(story) is not None
