"""Workers: what is known of those that live, and that one lives on whatever becomes of its connection."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from penstock.errors import StateError
from penstock.state.queue.workers import Workers
from penstock.state.store import State

if TYPE_CHECKING:
    from conftest import Story

INFO = {"role": "worker", "host": "here", "pid": 7, "globs": ["core.*"], "tags": ["slow"], "slots": 3}


def test_a_worker_says_who_it_is_and_what_it_has_in_hand(story: Story) -> None:
    story.connect().workers.register("w", INFO)
    story.connect().workers.register("scheduler", {"role": "scheduler"})
    story.lease((0, 10))
    story.lease((10, 20))
    one, two = story.state.workers.alive()
    assert (one.id, one.role, one.host, one.pid, one.slots, one.stopping, one.tasks) == (
        "w",
        "worker",
        "here",
        7,
        3,
        False,
        2,
    )
    assert (two.id, two.role, two.host, two.slots, two.tasks) == ("scheduler", "scheduler", None, None, 0)
    assert story.execute("select info from worker where id = 'w'") == [(INFO,)]


def test_a_worker_that_ends_says_so_and_does_not_take_it_back(story: Story) -> None:
    beat = story.connect()
    beat.workers.register("w", INFO)
    story.connect().workers.register("v", INFO)
    story.state.workers.say_stopping("w")
    assert [(one.id, one.stopping) for one in story.state.workers.alive()] == [("w", True), ("v", False)]
    beat.workers.register("w", INFO)  # again, after its connection was lost
    assert {one.id: one.stopping for one in story.state.workers.alive()} == {"w": True, "v": False}


def test_a_worker_without_a_task_lives_on(story: Story) -> None:
    beat = story.connect()
    beat.workers.register("w", INFO)
    began = story.state.workers.alive()[0].heartbeat
    story.advance(3600)
    assert beat.workers.heartbeat([], "w") == ()
    assert (story.state.workers.alive()[0].heartbeat - began).total_seconds() > 3500
    story.advance(90_000)
    beat.workers.heartbeat([], "w")
    story.connect().workers.register("v", {})  # this forgets who was silent for a day
    assert [one.id for one in story.state.workers.alive()] == ["w", "v"]


def test_a_worker_that_never_beats_is_forgotten_after_a_day(story: Story) -> None:
    """The control of the test above."""
    story.connect().workers.register("w", INFO)
    story.advance(90_000)
    story.connect().workers.register("v", {})
    assert [one.id for one in story.state.workers.alive()] == ["v"]


def test_a_heartbeat_with_leases_beats_for_the_worker_too(story: Story) -> None:
    story.connect().workers.register("w", INFO)
    lease = story.lease((0, 10))
    began = story.state.workers.alive()[0].heartbeat
    story.advance(60)
    assert story.state.workers.heartbeat([lease]) == ()
    assert (story.state.workers.alive()[0].heartbeat - began).total_seconds() > 50


def lose(story: Story, victim: State) -> None:
    """Let the server drop the victim's connection, and the victim notice it."""
    pid = victim.database.connection.info.backend_pid
    story.execute("select pg_terminate_backend(%s)", pid)
    while story.execute("select 1 from pg_stat_activity where pid = %s", pid):
        pass
    with pytest.raises(StateError):
        victim.workers.alive()


def test_a_worker_on_a_new_connection_is_alive_from_its_next_heartbeat_on(story: Story) -> None:
    beat = story.connect()
    beat.workers.register("w", INFO)
    story.lease((0, 10))
    lose(story, beat)
    assert story.state.workers.alive() == ()
    beat.workers.heartbeat([], "w")
    assert [one.id for one in story.state.workers.alive()] == ["w"]
    assert story.state.queue.reap() == 0


def test_without_its_lock_a_living_worker_would_lose_its_tasks(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the test above."""
    monkeypatch.setattr(Workers, "_renew", lambda self: None)
    beat = story.connect()
    beat.workers.register("w", INFO)
    story.lease((0, 10))
    lose(story, beat)
    beat.workers.heartbeat([], "w")
    assert story.state.workers.alive() == ()
    assert story.state.queue.reap() == 1


def test_a_lease_that_is_just_being_published_keeps_no_other_from_being_extended(story: Story) -> None:
    slow, quick = story.lease((0, 10)), story.lease((10, 20))
    beating = story.connect()
    beating.database.connection.execute("set lock_timeout = '100ms'")
    before = leases(story)
    with story.connect().attempts.publishing(slow):
        assert beating.workers.heartbeat([slow, quick]) == ()
    after = leases(story)
    assert after[slow.task] == before[slow.task]
    assert after[quick.task] > before[quick.task]
    assert beating.workers.heartbeat([slow]) == ()
    assert leases(story)[slow.task] > before[slow.task]


def leases(story: Story) -> dict[object, datetime]:
    found = story.execute("select id, lease_expires_at from task")
    return {task: ends for task, ends in found if isinstance(ends, datetime)}
