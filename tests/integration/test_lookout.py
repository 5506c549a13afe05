"""Looking at sources while planning goes on: in threads of its own, in slices, and only where something moved."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from deployment import Deployment, commit
from object_store import ObjectStore, object_store
from residents import covers, everything, until

from penstock.intervals import ranges
from penstock.runtime import observing, roles
from penstock.runtime.lookout import Lookout
from penstock.runtime.observing import Observer, Seen, Sight, TableEyes, keep
from penstock.runtime.pool import Pool
from penstock.runtime.workspace import Workspace, apply
from penstock.state.records import SourceRecord, World

SOON = "axis: number\ncompleteness: inclusive\nscan: {incremental: 1s, full: 1h}\n"
COPY = "select n, value from {{ ref('raw.numbers') }}"


@pytest.fixture
def trial(tmp_path: Path, dsn: str) -> Deployment:
    made = Deployment.empty(tmp_path, dsn)
    made.source("numbers", SOON)
    made.model("copy", COPY)
    made.land("numbers", range(10))
    return made


@pytest.fixture
def store(trial: Deployment, tmp_path: Path) -> Iterator[ObjectStore]:
    """Where another source lies, far away."""
    commit(tmp_path / "shelf/far", {"n": range(10), "value": range(10)})
    with object_store(tmp_path / "shelf") as made:
        trial.source("far", SOON, made.location("far"))
        config = trial.root / "penstock.yml"
        words = ", ".join(f'{key}: "{value}"' for key, value in {**made.options, "timeout": "60s"}.items())
        config.write_text(config.read_text().replace("{test: {", f"{{test: {{storage: {{{words}}}, "))
        with trial.opened() as workspace:
            apply(workspace)
        yield made


# in threads of its own


def test_a_source_that_does_not_answer_stops_nobody_else(trial: Deployment, store: ObjectStore) -> None:
    store.hang()
    with everything(trial):
        until(trial, covers("copy", 10))
        assert trial.status("raw.far")["snapshot"] is None
        trial.land("numbers", range(10, 20))
        until(trial, covers("copy", 20))
        store.go_on()
        until(trial, lambda world: "raw.far" in world.sources and world.sources["raw.far"].snapshot == 0)


def test_control_with_looks_inside_the_round_nothing_is_planned_until_it_answers(
    trial: Deployment, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roles, "Lookout", lambda environ, _: waiting_eyes(environ))
    store.hang()
    with everything(trial):
        with pytest.raises(AssertionError, match="not in time"):
            until(trial, covers("copy", 10), seconds=4)
        store.go_on()
        until(trial, covers("copy", 10))


def waiting_eyes(environ: dict[str, str]) -> TableEyes:
    class Waiting(TableEyes):
        def glance(self) -> float:
            return 1.0

    return Waiting(environ)


def test_what_hangs_is_told_once_and_costs_no_place() -> None:
    pool, gate, done = Pool(1, 0.05), threading.Event(), threading.Event()
    pool.begin("stuck", gate.wait)
    pool.begin("next", done.set)
    assert not done.wait(0.1)
    assert pool.hanging() == ["stuck"]
    assert done.wait(10)
    assert pool.hanging() == []
    gate.set()
    while pool.busy("stuck"):
        time.sleep(0.001)
    again = threading.Event()
    pool.begin("again", again.set)
    assert again.wait(10)


# in slices


def looked(workspace: Workspace, seconds: float = 1e9) -> Iterator[Sight]:
    observer = Observer(workspace.site, None, workspace.environ)
    for seen in observer.look(["raw.numbers"], workspace.state.world(), seconds):
        assert isinstance(seen, Sight)
        yield seen


def source(workspace: Workspace) -> SourceRecord:
    return workspace.state.world().sources["raw.numbers"]


def test_a_long_log_is_walked_in_slices_and_each_that_was_kept_is_not_walked_again(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial.run()
    monkeypatch.setattr(observing, "FIRST_SLICE", 2)
    monkeypatch.setattr(observing, "next_slice", lambda commits, _: commits)
    for n in range(7):
        trial.land("numbers", [n], factor=9)
    with trial.opened() as workspace:
        slices = looked(workspace)
        for upto in (2, 4):
            keep(workspace.state, next(slices))
            assert source(workspace).snapshot == upto
        slices.close()  # as a process that is killed here
        rest = list(looked(workspace))
        assert [sight.record.snapshot for sight in rest] == [6, 7]
        assert [sight.more for sight in rest] == [True, False]
        assert [sight.changed.ranges for sight in rest] == [ranges((4, 6)), ranges((6, 7))]
        for sight in rest:
            keep(workspace.state, sight)
    assert trial.run().failed == 0
    assert trial.rows("copy") == sorted([(n, n * 7) for n in range(10)] + [(n, n * 9) for n in range(7)])


def test_control_a_slice_that_is_kept_without_its_changes_is_never_repaired(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial.land("numbers", range(10, 20))
    trial.run()
    monkeypatch.setattr(observing, "FIRST_SLICE", 2)
    for n in (0, 1, 10, 11):
        trial.land("numbers", [n], factor=9)
    with trial.opened() as workspace:
        first = next(looked(workspace))
        workspace.state.record_source(first.record, first.known.snapshot, expected_table=first.known.table_id)
    trial.run()
    repaired = [(n, n * 9) for n in (10, 11)]
    assert trial.rows("copy") == sorted([(n, n * 7) for n in range(20)] + repaired)


def test_a_look_ends_after_its_time_and_says_that_there_is_more(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial.run()
    monkeypatch.setattr(observing, "FIRST_SLICE", 2)
    for n in range(7):
        trial.land("numbers", [n], factor=9)
    with trial.opened() as workspace:
        (sight,) = looked(workspace, seconds=0)
        assert (sight.record.snapshot, sight.more) == (2, True)


# only where something moved


@dataclass
class Watch:
    """A lookout whose time the test keeps."""

    workspace: Workspace
    rung: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lookout = Lookout(self.workspace.environ, lambda: self.rung.append(True))

    def world(self) -> World:
        return self.workspace.state.world()

    def due(self) -> set[str]:
        return set(self.lookout.periods(self.workspace.site, self.world()))

    def look(self) -> list[Seen]:
        world = self.world()
        found = list(self.lookout.look(self.workspace.site, self.due(), world))
        self.wait()
        found += self.lookout.look(self.workspace.site, (), world)
        for seen in found:
            if isinstance(seen, Sight):
                keep(self.workspace.state, seen)
        self.due()
        return found

    def glance(self) -> None:
        for one in self.lookout._watched.values():
            one.due, one.marked = 0.0, min(one.marked, time.monotonic() - 1.0)
        self.lookout.glance()
        self.wait()

    def wait(self) -> None:
        deadline = time.monotonic() + 60
        while self.lookout._pool._begun:
            assert time.monotonic() < deadline
            time.sleep(0.001)


@pytest.fixture
def watch(trial: Deployment) -> Iterator[Watch]:
    with trial.opened() as workspace:
        apply(workspace)
        made = Watch(workspace)
        made.look()
        made.look()
        yield made


def test_a_source_at_rest_is_not_looked_at_and_a_commit_is_seen_at_a_glance(trial: Deployment, watch: Watch) -> None:
    assert watch.due() == set()
    watch.rung.clear()
    watch.glance()
    assert not watch.rung
    assert watch.due() == set()
    trial.land("numbers", range(10, 20))
    watch.glance()
    assert watch.rung
    assert watch.due() == {"raw.numbers"}
    (seen,) = watch.look()
    assert isinstance(seen, Sight)
    assert seen.record.snapshot == 1


def again(trial: Deployment) -> None:
    shutil.rmtree(trial.landing("numbers"))
    time.sleep(0.02)  # a file system's clock ticks
    trial.land("numbers", range(10), factor=9)


def gone(trial: Deployment) -> None:
    shutil.rmtree(trial.landing("numbers"))


@pytest.mark.parametrize("act", [again, gone])
def test_a_table_that_was_replaced_by_one_with_as_many_commits_or_by_nothing_is_looked_at(
    trial: Deployment, watch: Watch, act: Callable[[Deployment], None]
) -> None:
    known = source(watch.workspace)
    act(trial)
    watch.glance()
    (seen,) = watch.look()
    assert isinstance(seen, Sight)
    assert seen.record.error is not None or seen.record.table_id != known.table_id


def test_a_source_far_away_that_rests_costs_two_small_requests(trial: Deployment, store: ObjectStore) -> None:
    with trial.opened() as workspace:
        apply(workspace)
        watch = Watch(workspace)
        watch.look()
        watch.look()
        assert watch.due() == set()
        for one in watch.lookout._watched.values():
            one.due = 0.0
        store.asked()
        watch.lookout.glance()
        watch.wait()
        assert store.asked() == ["GET list", f"HEAD far/_delta_log/{1:020d}.json"]
