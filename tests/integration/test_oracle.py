"""The oracle of the simulations: it is silent when all is well, and sees every way in which it is not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

import memory_engine
import pytest
from deployment import Deployment
from faults import Fault, Killed, raising
from memory_engine import MemoryEngine
from memory_observer import MemoryObserver, unknown
from memory_tables import Entry
from number_models import MODELS
from oracle import expected, holds
from rounds import Sure

from penstock.engine.values.job import Step
from penstock.planner.observations import Observations
from penstock.planner.readiness.plan import plan
from penstock.runtime.observe.sources import keep
from penstock.runtime.place.table_resolver import TableResolver
from penstock.runtime.place.workspace import apply, no_step
from penstock.runtime.plan.reconcile import reconcile
from penstock.runtime.work.attempt import AttemptContext, work
from penstock.state.store import State
from penstock.values.changes import UNCHANGED, Changed
from penstock.values.intervals import EVERYTHING, Interval, IntervalSet, ranges
from penstock.values.models import Source
from penstock.values.records import SourceRecord
from penstock.values.tasks import Order


@dataclass
class Trial:
    """One process that looks, plans and works on tables in memory."""

    resolver: TableResolver
    state: State
    engine: MemoryEngine = field(default_factory=MemoryEngine)

    @property
    def landing(self) -> str:
        source = self.resolver.graph.models["raw.numbers"]
        assert isinstance(source, Source)
        return self.resolver.source(source)

    def place(self, name: str) -> str:
        return self.resolver.table(self.state.views.whole().current[f"t.{name}"].location)

    def land(self, *positions: int, factor: int = 7) -> int:
        return self.engine.land(self.landing, [{"n": n, "value": n * factor} for n in positions])

    def look(self) -> None:
        observer, view = MemoryObserver(self.engine), self.state.views.whole()
        for observation in observer.look(self.resolver, ["raw.numbers"], view):
            keep(self.state.sources, observation)
        assert observer.audit(self.resolver, self.state, view) == ()

    def work(self, step: Step = no_step) -> int:
        """Plan and work until nothing is ready; how many tasks that took."""
        done = 0
        context = AttemptContext(lambda *_: self.resolver, self.state, self.engine, step, Sure())
        while True:
            view = reconcile(self.state, self.resolver, own_worker="w").view
            observations = Observations(self.resolver.graph, view)
            orders = [
                one
                for model in self.resolver.graph.interval_models
                for one in plan(observations.observation(model))
                if isinstance(one, Order)
            ]
            self.state.queue.enqueue(orders, {name: one.no for name, one in view.working.items()})
            lease = self.state.queue.claim("w")
            if lease is None:
                return done
            finished = work(context, lease)
            assert finished.outcome in ("succeeded", "released"), finished
            done += 1

    def reconcile(self, step: Step = no_step) -> int:
        self.look()
        return self.work(step)

    def wait(self, seconds: int) -> None:
        """The database's clock goes ahead: retries are due."""
        body = f"select clock_timestamp() + interval '{seconds} seconds'"
        self.state.database.connection.execute(
            f"create or replace function clock() returns timestamptz language sql volatile as $$ {body} $$".encode()
        )

    def accept_newest(self, model: str) -> None:
        """As if somebody else's commit had been ours."""
        self.state.database.connection.execute(
            "update generation set accepted_snapshot = accepted_snapshot + 1 where model = %s", (model,)
        )

    def violations(self) -> list[str]:
        return holds(self.engine, self.state, self.resolver)

    def covered(self, name: str) -> IntervalSet:
        found = self.state.views.whole().current[f"t.{name}"]
        return found.covered - found.stale


@pytest.fixture
def trial(tmp_path: Path, dsn: str) -> Iterator[Trial]:
    deployment = Deployment.empty(tmp_path, dsn)
    deployment.source("numbers")
    for name, (sql, matter) in MODELS.items():
        deployment.model(name, sql, matter)
    with deployment.opened() as workspace:
        apply(workspace)
        yield Trial(workspace.resolver, workspace.state)


@pytest.fixture
def built(trial: Trial) -> Trial:
    """Eighty-five numbers, and every table that can be made of them."""
    trial.land(*range(85))
    trial.reconcile()
    return trial


def test_tables_that_were_just_built_are_what_their_queries_give(built: Trial) -> None:
    assert built.covered("copy") == ranges((0, 80))
    assert built.covered("buckets") == ranges((0, 85))
    assert built.covered("totals") == ranges((0, 80))
    assert built.engine.rows(built.place("totals")) == [(0, 7 * 780), (40, 7 * 2380)]
    assert built.violations() == []


def test_late_rows_and_corrections_reach_every_table(built: Trial) -> None:
    built.land(13, 85, factor=100)
    assert [text.split(" ")[0] for text in built.violations()] == ["t.buckets", "t.copy"]
    assert built.reconcile()
    built.engine.replace_rows(built.landing, ranges((42, 44)), [{"n": 42, "value": 1}])
    built.engine.delete(built.landing, ranges((70, 71)))
    assert built.reconcile()
    assert built.violations() == []
    assert built.engine.rows(built.place("totals")) == [(0, 7 * 780 + 1300), (40, 7 * (2380 - 42 - 43 - 70) + 1)]


def test_what_only_expires_is_not_computed_again(built: Trial) -> None:
    built.engine.delete(built.landing, ranges((0, 25)))
    assert built.reconcile() == 0
    assert built.violations() == []
    assert built.covered("copy") == ranges((0, 80))


def test_compaction_changes_nothing(built: Trial) -> None:
    built.land(85)
    built.reconcile()
    for place in (built.landing, built.place("copy"), built.place("buckets")):
        built.engine.compact(place)
    assert built.reconcile() == 0
    assert built.violations() == []
    built.land(13, 86)
    built.reconcile()
    assert built.violations() == []


@pytest.mark.parametrize("label", memory_engine.LABELS)
def test_an_attempt_that_dies_anywhere_leaves_nothing_wrong(trial: Trial, label: str) -> None:
    trial.land(*range(85))
    trial.look()
    fault = Fault(label, raising(Killed()))
    if label == "columns added":
        trial.work(fault)
        assert label not in fault.seen
        return
    with pytest.raises(Killed):
        trial.work(fault)
    assert trial.violations() == []
    trial.wait(600)
    trial.reconcile()
    assert not any(work.in_flight for work in trial.state.views.whole().work.values())
    assert trial.covered("copy") == ranges((0, 80))
    assert trial.violations() == []


def test_rows_that_another_program_changed_are_seen_and_repaired(built: Trial) -> None:
    place = built.place("copy")
    built.engine.replace_rows(place, ranges((5, 6)), [{"n": 5, "value": -1}])
    assert built.violations() == []  # what is served is the snapshot we accepted
    built.reconcile()
    assert built.violations() == []
    assert built.engine.rows(place, window=ranges((5, 6))) == [(5, 35)]


def test_a_wrong_row_is_seen(built: Trial) -> None:
    built.engine.replace_rows(built.place("copy"), ranges((5, 6)), [{"n": 5, "value": -1}])
    built.accept_newest("t.copy")
    wrong, behind, looks_back = built.violations()
    assert wrong.startswith("t.copy [0, 10) of [0, 10)") and "1 rows such as (('n', 5), ('value', 35)) missing" in wrong
    assert behind.startswith("t.rolling [0, 20)") and "t.copy has changed since" in behind
    assert looks_back.startswith("t.rolling [20, 40)")


def test_a_row_where_nothing_was_computed_is_seen(built: Trial) -> None:
    built.engine.land(built.place("copy"), [{"n": 500, "value": 1}])
    built.accept_newest("t.copy")
    (stray,) = built.violations()
    assert stray.startswith("t.copy: rows outside of everything covered: 1 rows")


def test_a_served_snapshot_that_is_gone_is_seen(built: Trial) -> None:
    built.engine.drop(built.place("totals"))
    (gone,) = built.violations()
    assert gone.startswith("t.totals: what is served is gone")


def test_a_change_without_an_event_is_seen(built: Trial) -> None:
    built.land(13)
    view = built.state.views.whole()
    for observation in MemoryObserver(built.engine).look(built.resolver, ["raw.numbers"], view):
        keep(built.state.sources, replace(observation, changed=UNCHANGED))
    assert built.work() == 0
    assert any(text.startswith("t.copy") and "raw.numbers has changed since" in text for text in built.violations())


def test_a_task_with_two_commits_is_seen(built: Trial) -> None:
    table = built.engine._tables[built.place("copy")]
    task = next(one.entry.task for one in table.snapshots if one.entry.task)
    table.append(table.head.columns, table.head.files, (), Entry("WRITE", task, 2))
    assert any("committed more than once" in text for text in built.violations())


def test_an_interval_is_computed_from_scratch_at_any_frontier(built: Trial) -> None:
    model = built.resolver.graph.interval_model("t.copy")
    before = built.resolver.pin("raw.numbers", built.state.views.whole())
    assert before is not None and before.snapshot == 0
    built.land(3)
    counts = []
    for snapshot in (0, 1):
        frontier = {"raw.numbers": replace(before, snapshot=snapshot)}
        counts.append(expected(built.engine, built.resolver, model, Interval(0, 10), frontier).total())
    assert counts == [10, 11]


class TestMemoryObserver:
    """What it says of a source, look by look."""

    def observed(self, trial: Trial, known: SourceRecord, **more: bool) -> tuple[SourceRecord, Changed]:
        source = trial.resolver.graph.models["raw.numbers"]
        assert isinstance(source, Source)
        now = trial.state.views.whole().at
        return MemoryObserver(trial.engine, **more).observe(trial.resolver, source, known, now)

    def test_first_sight_gives_bounds_and_no_change(self, trial: Trial) -> None:
        trial.land(3, 9)
        record, changed = self.observed(trial, unknown("raw.numbers"))
        assert (record.min_pos, record.end_pos, record.snapshot, record.rows) == (3, 10, 0, 2)
        assert not changed

    def test_rows_above_are_new_and_rows_below_are_changes(self, trial: Trial) -> None:
        trial.land(3, 9)
        first, _ = self.observed(trial, unknown("raw.numbers"))
        trial.land(1, 9, 12)
        trial.land(5)
        record, changed = self.observed(trial, first)
        assert (record.min_pos, record.end_pos, record.snapshot) == (1, 13, 2)
        assert changed.ranges == ranges((1, 2), (5, 6), (9, 10))
        assert self.observed(trial, first, late_only=False)[1].ranges == changed.ranges | ranges((12, 13))
        assert self.observed(trial, record)[1] == UNCHANGED

    def test_rows_that_come_back_below_an_end_that_shrank_are_changes(self, trial: Trial) -> None:
        trial.land(3, 9)
        first, _ = self.observed(trial, unknown("raw.numbers"))
        trial.engine.delete(trial.landing, ranges((9, 10)))
        shrunk, changed = self.observed(trial, first)
        assert (shrunk.end_pos, changed.ranges) == (4, ranges((9, 10)))
        trial.land(9)
        assert self.observed(trial, shrunk)[1].ranges == ranges((9, 10))

    def test_a_table_without_rows_has_no_bounds_and_one_that_is_missing_an_error(self, trial: Trial) -> None:
        assert self.observed(trial, unknown("raw.numbers"))[0].error is not None
        trial.engine.land(trial.landing, [], columns=["n", "value"])
        record, _ = self.observed(trial, unknown("raw.numbers"))
        assert (record.error, record.min_pos, record.end_pos, record.rows) == (None, None, None, 0)

    def test_another_table_in_its_place_is_everything(self, trial: Trial) -> None:
        trial.land(3, 9)
        first, _ = self.observed(trial, unknown("raw.numbers"))
        trial.engine.drop(trial.landing)
        trial.land(3, 9)
        record, changed = self.observed(trial, first)
        assert UUID(str(record.table_id)) != UUID(str(first.table_id))
        assert changed.ranges == EVERYTHING
