"""Looking at sources while planning goes on: in threads of its own, in slices, and only where something moved."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from deltalake import DeltaTable
from deployment import Deployment, commit
from faults import Hang
from object_store import ObjectStore, object_store
from residents import covers, everything, serving, until
from table_watcher import TableWatcher

from penstock.embedded.polling import poll
from penstock.engine.commit import evict as evicting
from penstock.engine.log.store_client import StoreClient
from penstock.errors import SourceError
from penstock.runtime.observe import audit as runtime_audit
from penstock.runtime.observe import source_watcher
from penstock.runtime.observe import sources as observing
from penstock.runtime.observe.audit import STILL_LOOKING, Audited
from penstock.runtime.observe.source_watcher import BackgroundWatcher
from penstock.runtime.observe.sources import Observer, Seen, SourceObservation, keep
from penstock.runtime.place.workspace import Workspace, apply
from penstock.runtime.process.pool import Pool
from penstock.runtime.process.progress import Silent
from penstock.runtime.serve import roles
from penstock.runtime.serve import run as run_module
from penstock.values.intervals import ranges
from penstock.values.models import Source
from penstock.values.records import SourceRecord, StateView

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
        until(trial, lambda view: "raw.far" in view.sources and view.sources["raw.far"].snapshot == 0)


@contextmanager
def with_health(trial: Deployment) -> Iterator[Callable[[], int]]:
    """A resident process, and what its `/healthz` answers within two seconds."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"

    def health() -> int:
        with urlopen(f"http://{address}/healthz", timeout=2) as answer:
            return int(answer.status)

    with serving(trial, lambda workspace, stop: roles.up(workspace, stop, address)):
        yield health


COMMIT = f"far/_delta_log/{1:020d}.json"


def hang_at_the_next_commit(trial: Deployment, store: ObjectStore, tmp_path: Path) -> None:
    """Of a source that was seen and is at rest: everything is answered until its new commit is opened."""
    until(trial, lambda view: "raw.far" in view.sources and view.sources["raw.far"].snapshot == 0)
    until(trial, covers("copy", 10))
    store.hang(opening=COMMIT)
    store.asked()
    commit(tmp_path / "shelf/far", {"n": range(10, 20), "value": range(10)})


def test_health_answers_and_planning_goes_on_while_a_store_does_not_answer(
    trial: Deployment, store: ObjectStore, tmp_path: Path
) -> None:
    with with_health(trial) as health:
        hang_at_the_next_commit(trial, store, tmp_path)
        asked: list[str] = []
        while f"GET {COMMIT}" not in asked or f"HEAD {COMMIT}" not in asked[asked.index(f"GET {COMMIT}") :]:
            assert health() == 200
            asked += store.asked()
        trial.land("numbers", range(10, 20))
        until(trial, covers("copy", 20))
        assert health() == 200
        store.go_on()
        until(trial, lambda view: view.sources["raw.far"].snapshot == 1)


def test_control_a_commit_that_is_opened_without_asking_first_silences_health(
    trial: Deployment, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoreClient, "_await_answer", lambda *_: None)
    config = trial.root / "penstock.yml"
    config.write_text(config.read_text().replace("60s", "4s"))
    with trial.opened() as workspace:
        apply(workspace)
    with with_health(trial) as health:
        hang_at_the_next_commit(trial, store, tmp_path)
        longest, last, deadline = 0.0, time.monotonic(), time.monotonic() + 60
        while longest < 2.5 and last < deadline:
            with suppress(OSError):
                health()
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        store.go_on()
        assert longest >= 2.5


def test_a_table_of_ours_that_does_not_answer_stops_no_planning(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial.write("penstock.yml", (trial.root / "penstock.yml").read_text() + "scheduler: {sweep: 1s}\n")
    trial.run()
    hang = Hang()

    def hanging(*_: object) -> object:
        hang()
        return SourceError("it did not answer")

    monkeypatch.setattr(source_watcher, "look_or_error", hanging)
    with everything(trial):
        assert hang.reached.wait(30)
        trial.land("numbers", range(10, 20))
        until(trial, covers("copy", 20))
        assert not hang.go_on.is_set()
        hang.go_on.set()


def test_taking_out_foreign_rows_stops_no_planning_while_the_table_does_not_answer(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial.write("penstock.yml", (trial.root / "penstock.yml").read_text() + "scheduler: {sweep: 1s}\n")
    trial.run()
    commit(trial.place("copy"), {"n": [5000], "value": [1]})
    hang, write = Hang(), evicting.without

    def hanging(*given: Any) -> object:
        hang()
        return write(*given)

    monkeypatch.setattr(evicting, "without", hanging)
    with everything(trial):
        assert hang.reached.wait(30)
        trial.land("numbers", range(10, 20))
        until(trial, covers("copy", 20))
        assert not hang.go_on.is_set()
        hang.go_on.set()
        until(trial, lambda _: len(DeltaTable(trial.place("copy")).to_pyarrow_table()) == 20)


@pytest.mark.parametrize("what", ["table", "source"])
def test_what_does_not_answer_for_long_is_reported(
    trial: Deployment, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    trial.write("penstock.yml", (trial.root / "penstock.yml").read_text() + "scheduler: {sweep: 1s}\n")
    trial.run()
    monkeypatch.setattr(source_watcher, "HANGING_SECONDS", 0.5)
    answer = threading.Event()
    problem = str({"found": "t.copy: its table has not answered for 0 seconds"})
    if what == "table":
        monkeypatch.setattr(source_watcher, "look_or_error", lambda *_: answer.wait(60) and SourceError("at last"))
    else:
        store.hang()
    with everything(trial):
        if what == "table":
            assert poll(lambda: problem in [str(vars(one).get("fields")) for one in caplog.records] or None, 30)
        else:
            until(trial, lambda view: "has not answered" in str(view.sources["raw.far"].error))
        trial.land("numbers", range(10, 20))
        until(trial, covers("copy", 20))
        answer.set()
        store.go_on()


def test_control_an_audit_inside_the_round_stops_planning_until_it_answers(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial.run()
    asked, answer = threading.Event(), threading.Event()

    def hanging(self: BackgroundWatcher, resolver: object, state: object, view: object) -> Iterator[None]:
        asked.set()
        answer.wait(60)
        yield None

    monkeypatch.setattr(BackgroundWatcher, "audit", hanging)
    with everything(trial):
        assert asked.wait(30)
        trial.land("numbers", range(10, 20))
        with pytest.raises(AssertionError, match="not in time"):
            until(trial, covers("copy", 20), seconds=4)
        answer.set()
        until(trial, covers("copy", 20))


def test_what_others_wrote_into_our_tables_is_found_by_the_threads(trial: Deployment) -> None:
    trial.run()
    commit(trial.place("copy"), {"n": [3], "value": [99]})
    with everything(trial):
        until(trial, lambda _: bool(trial.execute("select 1 from invalidation where actor = 'audit'")))
        until(trial, covers("copy", 10))
    assert trial.rows("copy") == [(n, n * 7) for n in range(10)]


def test_a_run_looks_at_all_sources_side_by_side(trial: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("more", "most"):
        trial.source(name, SOON)
        trial.land(name, range(10))
    together = threading.Barrier(3)
    look = Observer._slices

    def meeting(self: Observer, *given: Any) -> Iterator[SourceObservation]:
        together.wait(30)  # broken, if one waits for another
        return look(self, *given)

    monkeypatch.setattr(Observer, "_slices", meeting)
    assert trial.run().failed == 0
    with trial.opened() as workspace:
        assert {record.snapshot for record in workspace.state.views.whole().sources.values()} == {0}


def lookers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("penstock-look")]


def test_the_looks_of_a_run_leave_no_thread(trial: Deployment) -> None:
    for name in ("more", "most"):
        trial.source(name, SOON)
        trial.land(name, range(10))
    before = lookers()
    assert trial.run().failed == 0
    assert set(lookers()) <= set(before)


@pytest.mark.parametrize("fails", ["look", "keep"])
def test_a_run_that_ends_early_waits_for_the_looks_under_way(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    for n in range(6):
        trial.source(f"more_{n}", SOON)
        trial.land(f"more_{n}", range(10))
    monkeypatch.setattr(run_module, "THREADS", 2)
    failed, begun, ended = threading.Event(), list[str](), list[str]()
    first = iter([True])
    look = Observer._slices

    def fail(*_: object) -> None:
        failed.set()
        raise ZeroDivisionError

    def looking(self: Observer, source: Source, *given: Any) -> Iterator[SourceObservation]:
        if not next(first, False):
            begun.append(source.name)
            failed.wait(30)
            ended.append(source.name)
        elif fails == "look":
            fail()
        else:
            yield from look(self, source, *given)

    monkeypatch.setattr(Observer, "_slices", looking)
    monkeypatch.setattr(run_module, "keep", fail)
    before = lookers()
    with trial.opened() as workspace:
        apply(workspace)
        with pytest.raises(ZeroDivisionError):
            run_module.observe(workspace, Silent())
        assert set(lookers()) <= set(before)
        assert sorted(ended) == sorted(begun)


def test_control_with_looks_inside_the_round_nothing_is_planned_until_it_answers(
    trial: Deployment, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roles, "BackgroundWatcher", lambda environ, _: waiting_eyes(environ))
    store.hang()
    with everything(trial):
        with pytest.raises(AssertionError, match="not in time"):
            until(trial, covers("copy", 10), seconds=4)
        store.go_on()
        until(trial, covers("copy", 10))


def waiting_eyes(environ: dict[str, str]) -> TableWatcher:
    class Waiting(TableWatcher):
        def poll(self) -> float:
            return 1.0

    return Waiting(environ)


def test_what_hangs_is_reported_once_and_costs_no_place() -> None:
    pool, gate, done = Pool[str](1, 0.05), threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def hang() -> None:
        threads.append(threading.current_thread())
        gate.wait()

    pool.begin("stuck", hang)
    pool.begin("next", done.set)
    assert not done.wait(0.1)
    assert pool.hanging() == ["stuck"]
    assert done.wait(10)
    assert pool.hanging() == []
    gate.set()
    threads[0].join(10)  # another one is in its place
    assert not pool.busy("stuck")
    again = threading.Event()
    pool.begin("again", again.set)
    assert again.wait(10)


def test_who_fails_leaves_its_place_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    pool, done = Pool[str](1, 60.0), threading.Event()

    def fail() -> None:
        raise SystemExit

    pool.begin("fails", fail)
    pool.begin("waits", done.set)
    assert done.wait(10)
    assert not pool.busy("fails")


# in slices


def looked(workspace: Workspace, seconds: float = 1e9) -> Iterator[SourceObservation]:
    observer = Observer(workspace.resolver, None, workspace.environ)
    for seen in observer.look(["raw.numbers"], workspace.state.views.whole(), seconds):
        assert isinstance(seen, SourceObservation)
        yield seen


def source(workspace: Workspace) -> SourceRecord:
    return workspace.state.views.whole().sources["raw.numbers"]


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
            keep(workspace.state.sources, next(slices))
            assert source(workspace).snapshot == upto
        slices.close()  # as a process that is killed here
        rest = list(looked(workspace))
        assert [observation.record.snapshot for observation in rest] == [6, 7]
        assert [observation.has_newer for observation in rest] == [True, False]
        assert [observation.changed.ranges for observation in rest] == [ranges((4, 6)), ranges((6, 7))]
        for observation in rest:
            keep(workspace.state.sources, observation)
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
        workspace.state.sources.record(first.record, first.known.snapshot, expected_table=first.known.table_id)
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
        (observation,) = looked(workspace, seconds=0)
        assert (observation.record.snapshot, observation.has_newer) == (2, True)


# only where something moved


@dataclass
class Watch:
    """A watcher whose time the test keeps."""

    workspace: Workspace
    woken: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watcher = BackgroundWatcher(self.workspace.environ, lambda: self.woken.append(True))

    def view(self) -> StateView:
        return self.workspace.state.views.whole()

    def due(self) -> set[str]:
        return set(self.watcher.periods(self.workspace.resolver, self.view()))

    def look(self) -> list[Seen]:
        view = self.view()
        found = list(self.watcher.look(self.workspace.resolver, self.due(), view))
        self.wait()
        found += self.watcher.look(self.workspace.resolver, (), view)
        for seen in found:
            if isinstance(seen, SourceObservation):
                keep(self.workspace.state.sources, seen)
        self.due()
        return found

    def poll(self) -> None:
        for one in self.watcher._watched.values():
            one.due, one.marked = 0.0, min(one.marked, time.monotonic() - 1.0)
        self.watcher.poll()
        self.wait()

    def audit(self) -> Iterator[Audited]:
        return self.watcher.audit(self.workspace.resolver, self.workspace.state, self.view())

    def audited(self) -> None:
        for told in self.audit():
            if told is STILL_LOOKING:
                self.wait()

    def wait(self) -> None:
        deadline = time.monotonic() + 60
        while self.watcher._pool._begun or self.watcher._auditors._begun:
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


def test_a_source_at_rest_is_not_looked_at_and_a_commit_is_seen_by_a_poll(trial: Deployment, watch: Watch) -> None:
    assert watch.due() == set()
    watch.woken.clear()
    watch.poll()
    assert not watch.woken
    assert watch.due() == set()
    trial.land("numbers", range(10, 20))
    watch.poll()
    assert watch.woken
    assert watch.due() == {"raw.numbers"}
    (seen,) = watch.look()
    assert isinstance(seen, SourceObservation)
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
    watch.poll()
    (seen,) = watch.look()
    assert isinstance(seen, SourceObservation)
    assert seen.record.error is not None or seen.record.table_id != known.table_id


def test_a_source_far_away_that_rests_costs_two_small_requests(trial: Deployment, store: ObjectStore) -> None:
    with trial.opened() as workspace:
        apply(workspace)
        watch = Watch(workspace)
        watch.look()
        watch.look()
        assert watch.due() == set()
        for one in watch.watcher._watched.values():
            one.due = 0.0
        store.asked()
        watch.watcher.poll()
        watch.wait()
        assert store.asked() == ["GET list", f"HEAD far/_delta_log/{1:020d}.json"]


# what was seen of our own tables too long ago


def rebuilt(trial: Deployment) -> None:
    """The table is lost, and made anew: its snapshots are counted from the beginning."""
    shutil.rmtree(trial.place("copy"))
    assert trial.run().failed == 0


def snapshots(watch: Watch) -> tuple[int | None, int | None]:
    generation = watch.view().working["t.copy"]
    return generation.accepted_snapshot, generation.audited_snapshot


def audits(trial: Deployment) -> int:
    return len(trial.execute("select 1 from invalidation where actor = 'audit'"))


def begun(watch: Watch) -> Iterator[Audited]:
    """An audit whose looks are over and of which nothing followed."""
    audit = watch.audit()
    next(audit)
    watch.wait()
    return audit


def overwritten(trial: Deployment, times: int = 1) -> None:
    for _ in range(times):
        commit(trial.place("copy"), {"n": [3], "value": [99]})


def test_a_look_that_an_earlier_audit_left_behind_has_no_effect(trial: Deployment, watch: Watch) -> None:
    trial.run()
    overwritten(trial, times=5)
    begun(watch)  # and nobody asks it again, as when the database is away
    rebuilt(trial)
    before, known = snapshots(watch), audits(trial)
    watch.audited()
    assert (snapshots(watch), audits(trial)) == (before, known)
    overwritten(trial)
    watch.audited()
    assert audits(trial) == known + 1


def test_a_look_at_a_table_that_was_made_anew_since_has_no_effect(trial: Deployment, watch: Watch) -> None:
    trial.run()
    overwritten(trial, times=5)
    late = begun(watch)
    rebuilt(trial)
    before, known = snapshots(watch), audits(trial)
    assert list(late) == [None]
    assert (snapshots(watch), audits(trial)) == (before, known)


def test_control_without_a_second_look_at_what_is_accepted_it_has_one(
    trial: Deployment, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial.run()
    overwritten(trial, times=5)
    late = begun(watch)
    rebuilt(trial)
    known = audits(trial)
    monkeypatch.setattr(runtime_audit, "_as_seen", lambda _, table: table.generation)
    list(late)
    assert audits(trial) > known
