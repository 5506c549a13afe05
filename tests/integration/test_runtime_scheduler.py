"""Rounds of a scheduler: what called for a lane is not forgotten before its tasks are in the queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from deployment import Deployment
from table_watcher import TableWatcher

from penstock.errors import BusyError
from penstock.planner.readiness.observation import Observation
from penstock.planner.readiness.plan import Decision, plan
from penstock.runtime.place.revisions import Revisions
from penstock.runtime.place.workspace import apply
from penstock.runtime.plan.scheduler import Scheduler
from penstock.runtime.process.metrics import Metrics
from penstock.state.queue.queue import Queue
from penstock.values.tasks import Lane

NEVER = "scheduler: {sweep: 10 days}\n"
DAILY = 'interval: 10\nschedules: {forwardfill: "@every 1d", backfill: "@every 1d"}'


@pytest.fixture
def trial(tmp_path: Path, dsn: str) -> Deployment:
    made = Deployment.empty(tmp_path, dsn)
    made.source("events", "axis: number\ncompleteness: inclusive\nscan: {incremental: 1s, full: 1h}\n")
    path = made.root / "penstock.yml"
    path.write_text(path.read_text() + NEVER)
    return made


@pytest.fixture
def scheduler(trial: Deployment, request: pytest.FixtureRequest) -> Iterator[Scheduler]:
    """One that has looked once: whatever it plans from now on, something called for."""
    trial.model("copy", "select n, value from {{ ref('raw.events') }}", getattr(request, "param", "interval: 10"))
    trial.land("events", range(10))
    with trial.opened() as workspace:
        apply(workspace)
        revisions = Revisions(workspace.project, workspace.environ)
        made = Scheduler(workspace.state, revisions, TableWatcher(workspace.environ), Metrics())
        made.round()
        yield made


def queued(trial: Deployment) -> int:
    return sum(task.state == "queued" for task in trial.tasks("copy"))


def more_rows_come(trial: Deployment, scheduler: Scheduler) -> None:
    lease = scheduler.state.queue.claim("w")
    assert lease is not None
    scheduler.round()
    trial.land("events", range(10, 20))
    trial.execute("update source set looked_at = null")


def a_round_that_cannot_enqueue(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: object) -> int:
        raise BusyError("somebody else has the lock")

    with monkeypatch.context() as patch:
        patch.setattr(Queue, "enqueue", busy)
        with pytest.raises(BusyError):
            scheduler.round()


def test_what_could_not_be_enqueued_is_planned_again_in_the_next_round(
    trial: Deployment, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    more_rows_come(trial, scheduler)
    a_round_that_cannot_enqueue(scheduler, monkeypatch)
    scheduler.round()
    assert queued(trial) == 1


def test_control_a_scheduler_that_forgets_it_waits_for_the_sweep(
    trial: Deployment, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    more_rows_come(trial, scheduler)
    a_round_that_cannot_enqueue(scheduler, monkeypatch)
    scheduler._later = {}
    scheduler.round()
    assert queued(trial) == 0


@pytest.mark.parametrize("scheduler", [DAILY], indirect=True)
def test_a_lane_that_is_called_for_while_its_last_task_waits_is_planned_once_somebody_took_that(
    trial: Deployment, scheduler: Scheduler
) -> None:
    def slot() -> None:
        trial.execute("update schedule set next_at = clock() - interval '1 minute' where lane = 'forward'")

    slot()
    scheduler.round()
    assert queued(trial) == 1
    trial.land("events", range(10, 20))
    trial.execute("update source set looked_at = null")
    slot()
    scheduler.round()
    assert queued(trial) == 1  # slow workers make no longer queue
    assert scheduler.state.queue.claim("w") is not None
    scheduler.round()
    assert queued(trial) == 1


def sweep(scheduler: Scheduler) -> None:
    scheduler._triggers._swept = None
    scheduler.round()


def test_a_sweep_plans_only_what_looks_different_than_when_nothing_was_to_do(
    trial: Deployment, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[str] = []

    def noted(seen: Observation, lanes: set[Lane]) -> tuple[Decision, ...]:
        planned.append(seen.model.name)
        return plan(seen, lanes=lanes)

    monkeypatch.setattr("penstock.runtime.plan.scheduler.plan", noted)
    assert scheduler.state.queue.claim("w") is not None
    sweep(scheduler)
    sweep(scheduler)
    assert planned == ["t.copy"]  # its only task is under way, and was so the second time
    trial.land("events", range(10, 20))
    trial.execute("update source set looked_at = null")
    sweep(scheduler)
    assert planned == ["t.copy", "t.copy"]
    assert queued(trial) == 1


def test_control_a_scheduler_that_takes_everything_for_the_same_orders_nothing_more(
    trial: Deployment, scheduler: Scheduler
) -> None:
    class Alike(dict[str, object]):
        def get(self, *_: object) -> object:
            class Same:
                __hash__ = None  # type: ignore[assignment]

                def __eq__(self, _: object) -> bool:
                    return True

            return Same()

    more_rows_come(trial, scheduler)
    scheduler._idle = Alike()  # type: ignore[assignment]
    sweep(scheduler)
    assert queued(trial) == 0
