"""A worker's threads: one that breaks takes no others with it, and what was given up is not begun again."""

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
from penstock.errors import EngineError, StateError
from penstock.runtime.place.workspace import apply
from penstock.runtime.serve import roles
from penstock.runtime.work.attempt import AttemptContext
from penstock.runtime.work.heartbeat import Heartbeat
from penstock.runtime.work.worker_pool import WorkerPool
from penstock.state.queue.queue import Queue
from penstock.values.tasks import Lease


@pytest.fixture
def trial(tmp_path: Path, dsn: str) -> Deployment:
    made = Deployment.empty(tmp_path, dsn)
    made.source("events", "axis: number\nscan: {incremental: 1s, full: 1h}\n")
    made.land("events", range(10))
    for name in ("fine", "odd"):
        made.model(name, "select n, value from {{ ref('raw.events') }}")
    with made.opened() as workspace:
        apply(workspace)
    return made


class Odd(ArrowEngine):
    """Computes two models at once; one of them goes on to its end, the other until Spark is stopped."""

    def __init__(self) -> None:
        super().__init__()
        self._both, self._put_away = threading.Barrier(2), threading.Event()

    def stage(self, job: Job, step: Step) -> Staged:
        self._both.wait(30)
        if job.model == "t.odd":
            raise EngineError("a failure that cannot be recorded")
        self._put_away.wait(30)
        raise EngineError("Spark was stopped")

    def stop(self, *, quick: bool = False) -> None:
        self._put_away.set()


def test_a_bug_beside_the_attempts_ends_the_worker_and_the_others_are_handed_back(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("nobody foresaw this")

    monkeypatch.setattr(Queue, "fail", fail)
    path = trial.root / "penstock.yml"
    path.write_text(path.read_text() + "worker: {concurrency: 2}\n")
    with serving(trial, roles.scheduler):
        with serving(replace(trial, engine=Odd()), roles.worker) as worker:
            assert worker.stop.wait(30)
        assert isinstance(worker.error, KeyError)
        until(trial, lambda view: not any(work.running for work in view.work.values()))
    with trial.opened() as workspace:
        ended = {task.model: workspace.state.history.attempts([task.id])[task.id][0].outcome for task in trial.tasks()}
    assert ended == {"t.odd": "lost", "t.fine": "released"}


class Deaf(Queue):
    """Its claims are made, and the answers do not come."""

    def claim(self, worker: str, models: object = None) -> Lease | None:
        super().claim(worker, models)  # type: ignore[arg-type]
        raise StateError("the connection was lost")


def test_an_attempt_that_was_given_up_is_not_taken_for_a_claim_that_nobody_heard_of(trial: Deployment) -> None:
    with serving(trial, roles.scheduler):
        until(trial, lambda view: view.work["t.fine"].queued == 1)

    with trial.opened() as workspace, Heartbeat(workspace.connect, "w", {}) as heartbeat:

        def away_too_long(label: str) -> None:
            if label == "staged":
                heartbeat._leases.clear()

        context = AttemptContext(lambda *_: workspace.resolver, workspace.state, trial.engine, away_too_long, heartbeat)
        pool = WorkerPool(context, workspace.connect, heartbeat, 1)
        assert pool.claim("w", frozenset({"t.fine"})) is not None
        [(_, result)] = pool.collect(None)
        assert result.outcome == "lost"
        workspace.state.queue = Deaf(workspace.state.database)
        with pytest.raises(StateError):
            pool.claim("w", frozenset({"t.fine"}))
        workspace.state.queue = Queue(workspace.state.database)
        assert pool.claim("w", frozenset({"t.fine"})) is None
        pool.close()
    [task] = trial.tasks("fine")
    assert task.state == "running"  # until its lease ends
