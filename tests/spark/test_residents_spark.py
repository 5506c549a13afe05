"""Schedulers and workers that stay, with real Spark: what stops a job, what ends a worker, what two attempts share."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deployment import Deployment, commit
from faults import Fault
from network import Proxy
from postgres_server import PostgresServer
from residents import covers, serving, until

from penstock.engine.spark.session import Session
from penstock.engine.stage.staging import group
from penstock.planner.change.source_changes import SourceChanges
from penstock.runtime.observe.sources import Observer
from penstock.runtime.place.workspace import apply
from penstock.runtime.serve import roles
from penstock.runtime.work import heartbeat as beating
from penstock.values.changes import UNCHANGED
from penstock.values.intervals import ranges
from penstock.values.records import AttemptRecord, StateView

COPY = "select n, value from {{ ref('raw.events') }}"
SOON_SECONDS = 30.0
"""Much less than a lease, and than the slow query would take."""
VAIN_SECONDS = 240.0
"""Ends a wait that is in vain: on a busy machine a JVM may take a minute to start."""
CONFIG = "worker: {concurrency: 1, shutdown_timeout: 1s}\nscheduler: {sweep: 3 seconds, repair_delay: 1 second}\n"

pytestmark = pytest.mark.timeout(900)


def sleeping(milliseconds: int) -> str:
    """A query that takes so long for each of its rows, and burns nothing meanwhile."""
    return (
        "select n, value from {{ ref('raw.events') }} "
        f"where java_method('java.lang.Thread', 'sleep', {milliseconds}L) is not null or n is not null"
    )


@pytest.fixture
def trial(deployment: Deployment) -> Deployment:
    deployment.write("penstock.yml", (deployment.root / "penstock.yml").read_text() + CONFIG)
    deployment.source("events", "axis: number\nscan: {incremental: 1s, full: 1h}\n")
    deployment.land("events", range(10))
    return deployment


def begin(trial: Deployment, slow: str, matter: str = "") -> None:
    trial.model("copy", COPY)
    trial.model("slow", slow, f"interval: 10\n{matter}")
    with trial.opened() as workspace:
        apply(workspace)


def attempts(trial: Deployment, name: str) -> list[AttemptRecord]:
    with trial.opened() as workspace:
        tasks = workspace.state.history.tasks(f"t.{name}", False, True, 100)
        return [one for task in reversed(tasks) for one in workspace.state.history.attempts([task.id])[task.id]]


def eventually(holds: Callable[[], object], seconds: float = SOON_SECONDS) -> None:
    """Spark tells nobody when a job begins or ends."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "not in time"
        threading.Event().wait(0.05)


def jobs(session: Session) -> list[int]:
    return list(session.spark().sparkContext.statusTracker().getActiveJobsIds())


def slow_runs(trial: Deployment, session: Session) -> bool:
    """Whether Spark is at the rows of the slow model."""
    tracker = session.spark().sparkContext.statusTracker()
    groups = [group(task.uuid, task.attempt) for task in trial.tasks("slow")]
    return bool({job for one in groups for job in tracker.getJobIdsForGroup(one)} & set(tracker.getActiveJobsIds()))


def goes_on(trial: Deployment) -> None:
    """The worker does another task on the same session."""
    with trial.opened() as workspace:
        workspace.state.control.pause("t.slow", "test")
    trial.land("events", range(10, 20))
    until(trial, covers("copy", 20))
    assert trial.rows("copy") == [(n, n * 7) for n in range(20)]


def test_a_time_limit_stops_the_job_and_the_next_task_runs_in_the_same_session(
    trial: Deployment, session: Session
) -> None:
    begin(trial, sleeping(60_000), "timeout: 1s\nretries: 0")
    with serving(trial, roles.up):
        until(trial, lambda view: view.work["t.slow"].dead_tasks == 1)
        assert not jobs(session)
        goes_on(trial)
    [ended] = attempts(trial, "slow")
    assert (ended.outcome, ended.error_class) == ("failed", "engine")
    assert "t.slow (models/transformations/slow.sql): not done after 1 s, given up" in str(ended.error)


def test_a_cancelled_task_ends_its_job_within_seconds_and_its_worker_goes_on(
    trial: Deployment, session: Session
) -> None:
    begin(trial, sleeping(60_000))
    with serving(trial, roles.up):
        eventually(lambda: slow_runs(trial, session), VAIN_SECONDS)
        [task] = trial.tasks("slow")
        with trial.opened() as workspace:
            assert workspace.state.control.cancel_task(task.id, "test")
        eventually(lambda: not jobs(session))
        goes_on(trial)
    assert [one.outcome for one in attempts(trial, "slow")] == ["cancelled"]


def seen(trial: Deployment) -> StateView:
    with trial.opened() as workspace:
        return workspace.state.views.whole()


@contextmanager
def cut_off(
    trial: Deployment, server: PostgresServer, session: Session, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Proxy, Fault]]:
    """A worker whose Spark job runs, and whose network is in our hands; its leases are short."""
    monkeypatch.setattr(beating, "HEARTBEAT_SECONDS", 0.3)
    monkeypatch.setattr(beating, "LEASE_SECONDS", 4.0)
    monkeypatch.setattr(beating, "MARGIN_SECONDS", 2.0)
    steps = Fault("none", lambda: None)
    begin(trial, sleeping(60_000))
    with Proxy("127.0.0.1", server.port) as proxy, serving(trial, roles.scheduler):
        far = copy.copy(trial)
        far.environ = {**trial.environ, "PENSTOCK_STATE": server.dsn_at(proxy.host, proxy.port)}
        with serving(far, roles.worker, steps):
            eventually(lambda: slow_runs(trial, session), VAIN_SECONDS)
            steps.seen.clear()
            with trial.opened() as workspace:
                workspace.state.control.pause("t.slow", "test")
            try:
                yield proxy, steps
            finally:
                proxy.heal()


@pytest.mark.parametrize("how", ["cut", "hang"])
def test_a_worker_that_cannot_extend_its_lease_stops_its_job_and_never_begins_the_commit(
    trial: Deployment, server: PostgresServer, session: Session, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    with cut_off(trial, server, session, monkeypatch) as (proxy, steps):
        getattr(proxy, how)()
        eventually(lambda: not jobs(session))
        proxy.heal()
        goes_on(trial)
        assert "locked" not in steps.seen[: steps.seen.index("claimed")]
    assert "t.slow" not in seen(trial).current or not trial.covered("slow")


def test_control_without_the_watch_a_job_outlives_its_lease_while_the_network_hangs(
    trial: Deployment, server: PostgresServer, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beating.Heartbeat, "_watch", lambda _: None)
    with cut_off(trial, server, session, monkeypatch) as (proxy, _):
        proxy.hang()
        with pytest.raises(AssertionError, match="not in time"):
            eventually(lambda: not jobs(session), 5)
        session.spark().sparkContext.cancelAllJobs()


# two attempts at once


class Meeting:
    """Lets two attempts write their files before either publishes."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.armed = False
        self.written = 0
        self._lock = threading.Lock()
        self._barrier = threading.Barrier(2, act)

    def __call__(self, label: str) -> None:
        if label != "written" or not self.armed:
            return
        with self._lock:
            self.written += 1
            meets = self.written <= 2
        if meets:
            self._barrier.wait(VAIN_SECONDS)


@pytest.mark.parametrize("foreign", [False, True])
def test_two_attempts_that_need_the_same_file_both_succeed(
    trial: Deployment, foreign: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program may append in between: its rows are noticed and go."""
    # what the log tells would be one repair of both ranges; here they are asked for one after the other
    monkeypatch.setattr(Observer, "_between", lambda *_: SourceChanges(UNCHANGED, None))
    trial.write("penstock.yml", (trial.root / "penstock.yml").read_text().replace("concurrency: 1", "concurrency: 2"))
    trial.model("copy", COPY, "interval: 10\nmax_inflight: 2")
    trial.land("events", range(10, 40))
    with trial.opened() as workspace:
        apply(workspace)

    def append() -> None:
        if foreign:
            commit(trial.place("copy"), {"n": [5, 35], "value": [1, 1]})

    meeting = Meeting(append)
    with serving(trial, roles.up, meeting):
        until(trial, lambda view: view.current["t.copy"].covered == ranges((0, 40)))
        landing = DeltaTable(str(trial.landing("events")))
        landing.update({"value": "n * 9"}, predicate="n < 10 or n >= 20 and n < 30")
        until(trial, lambda view: view.sources["raw.events"].snapshot == landing.version())
        meeting.armed = True
        with trial.opened() as workspace:
            workspace.state.invalidations.invalidate("t.copy", ranges((20, 30)), "corrected", "test")
            eventually(lambda: meeting.written, VAIN_SECONDS)
            workspace.state.invalidations.invalidate("t.copy", ranges((0, 10)), "corrected", "test")
        wanted = [(n, n * 9 if n < 10 or 20 <= n < 30 else n * 7) for n in range(40)]
        eventually(lambda: trial.rows("copy") == wanted and not trial.stale("copy"), VAIN_SECONDS)
    assert meeting.written >= 3, "nobody had to keep other rows again"
    repairs = [task for task in trial.tasks("copy") if task.order.lane == "repair"]
    assert [(task.state, task.attempt) for task in repairs] == [("succeeded", 1)] * len(repairs)
    assert [task.order.scope for task in repairs[:2]] == [ranges((20, 30)), ranges((0, 10))]
    assert len(repairs) == 2 or foreign
    assert trial.most_commits("copy") == 1


# processes with a JVM of their own


class Command:
    """One command line in a process of its own."""

    def __init__(self, trial: Deployment, *words: str) -> None:
        self._log = trial.root / f"{words[0]}-{time.monotonic_ns()}.log"
        command = [sys.executable, "-m", "penstock.cli.main", "--verbose", "--project", str(trial.root), *words]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, env=trial.environ, stdout=log, stderr=subprocess.STDOUT)

    def text(self) -> str:
        return self._log.read_text(errors="replace")

    def says(self, word: str) -> None:
        eventually(lambda: word in self.text() or self.process.poll() is not None, VAIN_SECONDS)
        assert word in self.text(), self.text()[-3000:]

    def jvm(self) -> int:
        [found] = [pid for pid, parent in _javas().items() if parent == self.process.pid]
        return found

    def ends(self) -> int:
        return self.process.wait(VAIN_SECONDS)

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()  # its JVM ends by itself
            self.process.wait()


def _javas() -> dict[int, int]:
    """Every JVM that runs here, with its parent."""
    found = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            head, _, rest = file.read_text().rpartition(")")
            if head.endswith("(java") and rest.split()[0] != "Z":
                found[int(file.parent.name)] = int(rest.split()[1])
    return found


def test_a_worker_whose_jvm_is_killed_ends_with_3_and_others_do_its_task_at_once(trial: Deployment) -> None:
    begin(trial, sleeping(300))
    with (
        serving(trial, roles.scheduler),
        Command(trial, "worker", "--models", "t.copy") as idle,
        Command(trial, "worker", "--models", "t.slow") as busy,
    ):
        idle.says("task_succeeded")
        os.kill(idle.jvm(), signal.SIGKILL)
        busy.says(" planned ")
        os.kill(busy.jvm(), signal.SIGKILL)
        assert (idle.ends(), busy.ends()) == (3, 3)
        for one in (idle, busy):
            assert "Spark ended by itself" in one.text()
        eventually(lambda: attempts(trial, "slow")[0].outcome == "lost")  # not after the lease
        with serving(trial, roles.worker):
            until(trial, covers("slow", 10))
    assert [one.outcome for one in attempts(trial, "slow")] == ["lost", "succeeded"]
    assert len(trial.tasks("slow")) == 1
    assert trial.rows("slow") == trial.rows("copy") == [(n, n * 7) for n in range(10)]


def test_a_stopped_worker_hands_back_what_takes_too_long_and_leaves_no_jvm(trial: Deployment) -> None:
    begin(trial, sleeping(300))
    with serving(trial, roles.scheduler), Command(trial, "worker", "--models", "t.slow") as stopped:
        stopped.says(" planned ")
        jvm = stopped.jvm()
        stopped.process.terminate()
        assert stopped.ends() == 0, stopped.text()
        eventually(lambda: jvm not in _javas())
        assert [one.outcome for one in attempts(trial, "slow")] == ["released"]
        with serving(trial, roles.worker):
            until(trial, covers("slow", 10))
    assert [one.outcome for one in attempts(trial, "slow")] == ["released", "succeeded"]
    assert trial.rows("slow") == [(n, n * 7) for n in range(10)]
