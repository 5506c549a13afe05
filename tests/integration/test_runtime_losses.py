"""What is done about tasks that take their worker's Spark with them, and about claims that nobody heard of?"""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from arrow_engine import ArrowEngine
from deployment import Deployment
from residents import serving, until

from penstock.engine.stage.staged import Staged
from penstock.engine.values.job import Job, Step
from penstock.errors import EngineError, LeaseLostError, SparkError, StateError
from penstock.runtime.place.workspace import apply
from penstock.runtime.serve import roles
from penstock.runtime.work.attempt import AttemptContext
from penstock.runtime.work.heartbeat import Heartbeat
from penstock.runtime.work.worker import Worker
from penstock.runtime.work.worker_pool import WorkerPool
from penstock.state.queue import failure
from penstock.state.queue.queue import Queue
from penstock.values.intervals import ranges
from penstock.values.tasks import Lease


@pytest.fixture
def trial(tmp_path: Path, dsn: str) -> Deployment:
    made = Deployment.empty(tmp_path, dsn)
    made.source("events", "axis: number\nscan: {incremental: 1s, full: 1h}\n")
    made.model("copy", "select n, value from {{ ref('raw.events') }}")
    made.land("events", range(10))
    with made.opened() as workspace:
        apply(workspace)
    return made


class Mortal(ArrowEngine):
    """Ends as soon as it is to compute something; its attempts hear of it when it is put away."""

    def __init__(self) -> None:
        super().__init__()
        self._dead, self._put_away = False, threading.Event()

    @property
    def alive(self) -> bool:
        return not self._dead

    def stage(self, job: Job, step: Step) -> Staged:
        self._dead = True
        self.on_death()
        self._put_away.wait(30)
        raise EngineError("the connection was refused")

    def stop(self, *, quick: bool = False) -> None:
        self._put_away.set()


def two_workers_lose_their_spark(trial: Deployment) -> list[str | None]:
    """How their attempts of the same task ended."""
    with serving(trial, roles.scheduler):
        for turn in (1, 2):
            mortal = replace(trial, engine=Mortal())
            with serving(mortal, roles.worker) as worker:
                assert worker.stop.wait(30)
            assert isinstance(worker.error, SparkError)
            until(trial, lambda view: not view.work["t.copy"].running)
            [task] = trial.tasks("copy")
            assert task.attempt == turn
    with trial.opened() as workspace:
        return [one.outcome for one in workspace.state.history.attempts([task.id])[task.id]]


def test_a_task_that_takes_spark_with_it_twice_is_set_aside(trial: Deployment) -> None:
    assert two_workers_lose_their_spark(trial) == ["lost", "lost"]
    [task] = trial.tasks("copy")
    assert task.state == "dead"
    assert trial.execute("select held_until > clock() from task") == [(True,)]


def test_a_task_that_was_set_aside_is_done_after_its_pause_without_anybodys_help(trial: Deployment) -> None:
    two_workers_lose_their_spark(trial)
    with serving(trial, roles.up):
        trial.move_clock(31)
        until(trial, lambda view: view.current["t.copy"].covered == ranges((0, 10)))
    assert trial.status("t.copy")["health"] == "ok"


def test_control_without_an_end_of_the_hold_it_would_stay_dead(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failure, "hold_seconds", lambda *_, **__: 1e9)
    two_workers_lose_their_spark(trial)
    trial.move_clock(4000)
    with trial.opened() as workspace:
        assert workspace.state.views.whole().work["t.copy"].dead == ranges((0, 10))
    assert trial.status("t.copy")["health"] == "failing"


def test_control_handed_back_it_would_end_one_worker_after_the_other(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave = Worker.leave

    def obliging(worker: Worker, seconds: float, *, hand_back: bool) -> None:
        leave(worker, seconds, hand_back=hand_back or True)

    monkeypatch.setattr(Worker, "leave", obliging)
    assert two_workers_lose_their_spark(trial) == ["released", "released"]
    [task] = trial.tasks("copy")
    assert task.state == "queued"


class Deaf(Queue):
    """Its next claim is made, and the answer does not come."""

    def claim(self, worker: str, models: object = None) -> Lease | None:
        super().claim(worker, models)  # type: ignore[arg-type]
        raise StateError("the connection was lost")


def claimed_twice(trial: Deployment) -> Lease | None:
    """What a worker gets that asks again after an answer was lost."""
    with serving(trial, roles.scheduler):
        until(trial, lambda view: view.work["t.copy"].queued == 1)
    with trial.opened() as workspace, Heartbeat(workspace.connect, "w", {}) as heartbeat:
        context = AttemptContext(lambda *_: None, workspace.state, trial.engine, workspace.step, heartbeat)
        pool = WorkerPool(context, workspace.connect, heartbeat, 1)
        workspace.state.queue = Deaf(workspace.state.database)
        with pytest.raises(StateError):
            pool.claim("w", frozenset({"t.copy"}))
        workspace.state.queue = Queue(workspace.state.database)
        lease = pool.claim("w", frozenset({"t.copy"}))
        pool.close()
        return lease


def test_a_claim_whose_answer_was_lost_is_found_by_its_worker(trial: Deployment) -> None:
    lease = claimed_twice(trial)
    assert lease is not None
    assert lease.attempt == 1


def test_control_without_looking_for_it_the_task_waits_for_its_lease(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Queue, "unheard_claim", lambda *_: None)
    assert claimed_twice(trial) is None
    [task] = trial.tasks("copy")
    assert task.state == "running"


def test_a_lease_that_ended_is_not_the_lease_of_the_same_task_that_came_after(trial: Deployment) -> None:
    with serving(trial, roles.scheduler):
        until(trial, lambda view: view.work["t.copy"].queued == 1)
    with trial.opened() as workspace, Heartbeat(workspace.connect, "w", {}) as heartbeat:
        leases = []
        for _ in range(2):
            lease = workspace.state.queue.claim("w", ["t.copy"])
            assert lease is not None
            heartbeat.hold(lease, 1e12)
            leases.append(lease)
            if lease.attempt == 1:
                workspace.state.queue.hand_back(lease, "test")
        first, second = leases
        heartbeat.drop(first)
        assert heartbeat.holds(second)
        with pytest.raises(LeaseLostError):
            heartbeat.require(first)


# a thousand missing intervals

ROLL_UP = "select cast(floor(n / 10) * 10 as bigint) as n, sum(value) as value from {{ ref('raw.events') }} group by 1"
WITH_BOUNDS = "select {{ bounds.start }} as n, sum(value) as value from {{ ref('raw.events') }} having count(*) > 0"


@pytest.mark.parametrize(("sql", "most"), [(ROLL_UP, 3), (WITH_BOUNDS, 39)], ids=["roll-up", "bounds"])
def test_a_thousand_missing_intervals_are_a_few_tasks(trial: Deployment, sql: str, most: int) -> None:
    trial.model("copy", sql)
    trial.land("events", range(10, 10_000))
    with trial.opened() as workspace:
        apply(workspace)
    with serving(trial, roles.up):
        until(trial, lambda view: view.current["t.copy"].covered == ranges((0, 10_000)), 120)
    assert trial.rows("copy") == [(n, sum(range(n, n + 10)) * 7) for n in range(0, 10_000, 10)]
    tasks = trial.tasks("copy")
    assert len(tasks) <= most
    assert sum(len(task.order.chunks) for task in tasks) == 1000
