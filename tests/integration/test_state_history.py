"""History: how attempts went, in their own words."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

from penstock.state.history import LOG_CHARACTERS

if TYPE_CHECKING:
    from conftest import Story


def test_the_attempts_of_many_tasks_are_read_at_once_and_in_order(story: Story) -> None:
    failed = story.lease((0, 10))
    story.state.queue.fail(failed, "engine", "no", story.cost, 0.0)
    again = story.claim()
    assert again.task == failed.task
    story.publish(again)
    waiting = story.lease((10, 20))
    found = story.state.history.attempts([failed.task, waiting.task, 999])
    assert list(found) == [failed.task, waiting.task, 999]
    assert found[999] == ()
    one, two = found[failed.task]
    assert (one.n, one.outcome, one.error, one.followed_by, one.strategy) == (1, "failed", "no", "retrying", None)
    assert (two.n, two.outcome, two.error, two.followed_by, two.strategy) == (2, "succeeded", None, None, "interval")
    [three] = found[waiting.task]
    assert (three.n, three.outcome, three.ended_at) == (1, None, None)
    assert story.state.history.attempts([failed.task])[failed.task] == (one, two)
    assert story.state.history.attempts([]) == {}


def test_a_log_is_kept_while_an_attempt_runs_and_after_it_has_ended(story: Story) -> None:
    lease = story.lease((0, 10))
    story.state.history.keep_log(lease, "reading")
    assert story.state.history.attempts([lease.task])[lease.task][0].log_tail == "reading"
    story.publish(lease)
    story.state.history.keep_log(lease, "reading\ndone")
    assert story.state.history.attempts([lease.task])[lease.task][0].log_tail == "reading\ndone"


def test_an_attempt_that_lost_its_task_speaks_only_for_itself(story: Story) -> None:
    old = story.lease((0, 10))
    story.advance(500)
    story.state.queue.reap()
    new = story.claim("v")
    story.state.history.keep_log(old, "old")
    story.state.history.keep_log(new, "new")
    assert [one.log_tail for one in story.state.history.attempts([old.task])[old.task]] == ["old", "new"]
    story.state.history.keep_log(replace(new, token=uuid4()), "a stranger's")
    assert [one.log_tail for one in story.state.history.attempts([old.task])[old.task]] == ["old", "new"]


def test_of_a_long_log_the_end_is_kept_whatever_bytes_it_holds(story: Story) -> None:
    lease = story.lease((0, 10))
    story.state.history.keep_log(lease, "x" * LOG_CHARACTERS + "the\0end")
    kept = story.state.history.attempts([lease.task])[lease.task][0].log_tail or ""
    assert len(kept) == LOG_CHARACTERS
    assert kept.endswith("xthe\N{REPLACEMENT CHARACTER}end")
