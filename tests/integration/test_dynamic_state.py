"""Dynamic tables in the database: what is remembered of a refresh, and when a scheduler orders the next one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deployment import Deployment
from table_watcher import TableWatcher

from penstock.planner.dynamic.snapshots import Held
from penstock.planner.observations import Observations
from penstock.runtime.observe.audit import AuditState
from penstock.runtime.place.revisions import Revisions
from penstock.runtime.place.table_resolver import TableResolver
from penstock.runtime.place.workspace import Workspace, apply
from penstock.runtime.plan.scheduler import Scheduler
from penstock.runtime.process.metrics import Metrics
from penstock.values.models import DynamicModel
from penstock.values.records import RefreshRecord, StateView, TaskRecord
from penstock.values.tasks import WHOLE, ChunkResult, Commit, Cost, Frontier, Lease

LAG = 300


class Watcher(TableWatcher):
    """Looks at sources only: the files of the table are left out here."""

    def audit(self, resolver: TableResolver, state: AuditState, view: StateView) -> Iterator[str | None]:
        return iter(())


@dataclass
class Trial:
    """A dynamic table over a source, its scheduler, and a worker that needs no Spark."""

    deployment: Deployment
    workspace: Workspace
    scheduler: Scheduler

    def orders(self) -> int:
        """One round; how many tasks wait after it."""
        self.scheduler.round()
        return sum(task.state == "queued" for task in self.tasks())

    def tasks(self) -> list[TaskRecord]:
        return self.deployment.tasks("total")

    def claim(self) -> Lease:
        lease = self.workspace.state.queue.claim("w")
        assert lease is not None
        return lease

    def pins(self) -> Frontier:
        model = self.workspace.project.graph.models["t.total"]
        assert isinstance(model, DynamicModel)
        read = Observations(self.workspace.project.graph, self.workspace.state.views.whole()).refresh(model).snapshots
        assert not isinstance(read, Held)
        return read

    def publish(self, lease: Lease, moment: datetime, snapshot: int = 1) -> None:
        attempts, read = self.workspace.state.attempts, self.pins()
        epoch = attempts.intend(lease, read, None, "staging")
        chunk = ChunkResult(WHOLE, 1, True, (1, 2, 3))
        with attempts.publishing(lease) as publication:
            publication.record(
                Commit(snapshot, (chunk,), read, epoch, written=True, moment=moment),
                Cost(seconds=1.0, keys=3),
                "affected_keys",
                (),
                "FEW_KEYS: 3 of 10 keys changed",
            )

    def refresh(self, moment: datetime | None = None, snapshot: int = 1) -> None:
        """What a scheduler ordered is done."""
        self.publish(self.claim(), moment or self.now, snapshot)

    def land(self, start: int) -> None:
        self.deployment.land("events", range(start, start + 10))
        self.look()

    def look(self) -> None:
        """The source may be looked at again at once."""
        self.deployment.execute("update source set looked_at = null")

    @property
    def now(self) -> datetime:
        return self.workspace.state.views.whole().at

    @property
    def record(self) -> RefreshRecord:
        return self.workspace.state.views.whole().refreshed["t.total"]


@pytest.fixture
def trial(tmp_path: Path, dsn: str, request: pytest.FixtureRequest) -> Iterator[Trial]:
    made = Deployment.empty(tmp_path, dsn)
    made.source("events")
    lag = getattr(request, "param", f"{LAG}s")
    made.write(
        "models/transformations/total.sql",
        f"---\ntarget_lag: {lag}\n---\nselect sum(value) as total from {{{{ ref('raw.events') }}}}\n",
    )
    made.land("events", range(10))
    with made.opened() as workspace:
        apply(workspace)
        revisions = Revisions(workspace.project, workspace.environ)
        yield Trial(made, workspace, Scheduler(workspace.state, revisions, Watcher(workspace.environ), Metrics()))


def test_a_table_that_was_never_built_is_ordered_once_until_it_is_built(trial: Trial) -> None:
    assert trial.workspace.state.views.whole().refreshed == {}
    assert trial.orders() == 1
    assert trial.orders() == 1  # queued
    lease = trial.claim()
    assert (lease.order.lane, lease.order.chunks, lease.order.reason) == ("refresh", (WHOLE,), "never built")
    assert trial.orders() == 0  # running
    trial.publish(lease, trial.now)
    assert trial.orders() == 0  # up to date
    assert [task.state for task in trial.tasks()] == ["succeeded"]


def test_an_accepted_refresh_is_what_the_rows_were_made_from(trial: Trial) -> None:
    trial.orders()
    moment = datetime(2026, 1, 1, 12, tzinfo=UTC)
    trial.refresh(moment)
    record = trial.record
    assert record.inputs["raw.events"].snapshot == 0
    assert record.data_timestamp == moment
    assert 0 <= record.seconds < 60


def test_why_a_refresh_was_done_as_it_was_is_kept_with_its_task(trial: Trial) -> None:
    trial.orders()
    trial.refresh()
    (task,) = trial.tasks()
    assert (task.strategy, task.strategy_reason) == ("affected_keys", "FEW_KEYS: 3 of 10 keys changed")
    assert task.cost.keys == 3


def test_a_changed_source_is_followed_when_the_lag_ends_and_not_before(trial: Trial) -> None:
    trial.orders()
    trial.refresh()
    trial.land(10)
    assert trial.orders() == 0
    trial.deployment.move_clock(LAG - 30)
    assert trial.orders() == 0
    trial.deployment.move_clock(LAG + 1)
    assert trial.orders() == 1
    assert trial.orders() == 1
    assert trial.tasks()[-1].reason == "raw.events changed"
    trial.refresh(snapshot=2)
    assert trial.record.inputs["raw.events"].snapshot == 1
    assert trial.orders() == 0


def test_a_scheduler_wakes_up_when_a_refresh_is_due(trial: Trial) -> None:
    trial.orders()
    trial.refresh()
    trial.land(10)
    trial.scheduler.round()
    due = trial.scheduler._refresh_at
    assert due is not None
    assert (due - trial.now).total_seconds() == pytest.approx(LAG, abs=30)
    trial.deployment.move_clock((due - trial.now).total_seconds() - 0.5)
    assert trial.scheduler.round() <= 0.5


@pytest.mark.parametrize("trial", ["on_upstream"], indirect=True)
def test_a_table_that_follows_its_inputs_is_ordered_by_the_round_that_sees_the_commit(trial: Trial) -> None:
    trial.orders()
    trial.refresh()
    assert trial.orders() == 0
    trial.land(10)
    assert trial.orders() == 1


@pytest.mark.parametrize("trial", ["manual"], indirect=True)
def test_a_table_that_is_refreshed_by_hand_is_not_ordered_by_a_scheduler(trial: Trial) -> None:
    assert trial.orders() == 0
    trial.land(10)
    assert trial.orders() == 0


@pytest.mark.parametrize("trial", ["on_upstream"], indirect=True)
def test_a_paused_table_is_ordered_once_it_goes_on(trial: Trial) -> None:
    trial.orders()
    trial.refresh()
    trial.workspace.state.control.pause("t.total", "a person")
    trial.land(10)
    assert trial.orders() == 0
    trial.workspace.state.control.resume("t.total", "a person")
    assert trial.orders() == 1


def test_while_nothing_changes_a_table_gets_no_older_than_the_last_look_at_its_source(trial: Trial) -> None:
    trial.orders()
    trial.refresh(datetime(2026, 1, 1, tzinfo=UTC))
    trial.look()
    trial.orders()
    trial.deployment.move_clock(10 * LAG)
    row = trial.deployment.status("t.total")
    assert isinstance(row["lag_seconds"], int)
    trial.look()
    assert trial.orders() == 0
    row = trial.deployment.status("t.total")
    assert (row["health"], row["target_lag_seconds"]) == ("ok", LAG)
    assert isinstance(row["lag_seconds"], int)
    assert row["lag_seconds"] < LAG


def test_nine_of_ten_of_the_last_refreshes_took_at_most_as_long_as_is_remembered(trial: Trial) -> None:
    trial.orders()
    trial.refresh(trial.now - timedelta(days=1))
    for number in range(2, 12):
        trial.land(number * 10)
        assert trial.orders() == 1
        trial.refresh(trial.now - timedelta(days=1), snapshot=number)
    trial.deployment.execute(
        "update attempt a set ended_at = a.started_at + make_interval(secs => n.number) "
        "from (select id, row_number() over (order by id) as number from task) n where n.id = a.task"
    )
    assert trial.record.seconds == pytest.approx(10.0)  # of 1 to 11 seconds
    trial.deployment.execute(
        "update attempt set outcome = 'failed', error_class = 'engine' "
        "where task in (select id from task order by id limit 2)"
    )
    assert trial.record.seconds == pytest.approx(10.2)  # of 3 to 11: what failed does not count
