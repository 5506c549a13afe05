"""Schedulers and workers that stay: what wakes them, what they run, how they end."""

from __future__ import annotations

import os
import select
import shutil
import threading
import time
from pathlib import Path

import pytest
from deployment import Deployment
from faults import Fault, Hang
from postgres_server import own_server
from psycopg.conninfo import make_conninfo
from residents import covers, everything, serving, until

from penstock.answers.explain import explained
from penstock.answers.history import task_rows
from penstock.errors import StateError
from penstock.planner.policy import triggers
from penstock.runtime.place.workspace import apply
from penstock.runtime.plan import scheduler
from penstock.runtime.process.progress import Silent
from penstock.runtime.serve import roles
from penstock.runtime.serve.run import observe
from penstock.runtime.work import heartbeat as beating
from penstock.runtime.work import worker
from penstock.state.database.connection import Database
from penstock.state.database.roles import grant_reader
from penstock.state.sources import Sources
from penstock.values.intervals import Interval, ranges
from penstock.values.tasks import Order

QUICK = "axis: number\ncompleteness: inclusive\nscan: {incremental: 1s, full: 1h}\n"


@pytest.fixture
def trial(tmp_path: Path, dsn: str) -> Deployment:
    made = Deployment.empty(tmp_path, dsn)
    made.source("events", QUICK)
    return made


def settings(trial: Deployment, more: str) -> None:
    path = trial.root / "penstock.yml"
    path.write_text(path.read_text() + more)


def applied(trial: Deployment) -> None:
    with trial.opened() as workspace:
        apply(workspace)


def split_failures(trial: Deployment, child: str = "interval: 10") -> None:
    trial.model("parent", "select n, value from {{ ref('raw.events') }}")
    trial.model("child", "select n, value + 1 as value from {{ ref('t.parent') }}", child)


DAILY = 'interval: 10\nschedules: {forwardfill: "@every 1d", backfill: "@every 1d"}'


def test_b3_a_child_with_a_one_day_schedule_starts_on_its_parents_commit_ten_times(trial: Deployment) -> None:
    settings(trial, "scheduler: {sweep: 10 days}\n")
    split_failures(trial, DAILY)
    applied(trial)
    with everything(trial):
        for turn in range(1, 11):
            trial.land("events", range(turn * 10 - 10, turn * 10))
            until(trial, covers("child", turn * 10))
    assert len(trial.rows("child")) == 100


def test_b3_control_without_the_look_at_parents_the_child_waits_for_its_slot(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triggers, "_offers", lambda _: None)
    settings(trial, "scheduler: {sweep: 10 days}\n")
    split_failures(trial, DAILY)
    applied(trial)
    with everything(trial):
        trial.land("events", range(10))
        until(trial, covers("parent", 10))
        with pytest.raises(AssertionError, match="not in time"):
            until(trial, covers("child", 10), 3.0)


def test_a_schedule_over_a_source_waits_for_its_slot_and_then_takes_all_there_is(trial: Deployment) -> None:
    trial.model("slow", "select n, value from {{ ref('raw.events') }}", DAILY)
    trial.model("quick", "select n, value from {{ ref('raw.events') }}")
    applied(trial)
    trial.land("events", range(50))
    with everything(trial):
        until(trial, covers("quick", 50))
        assert not trial.covered("slow")
        trial.execute("update schedule set next_at = clock() - interval '3 days'")
        until(trial, lambda view: view.current["t.slow"].covered == ranges((0, 50)))
    assert [slot for (slot,) in trial.execute("select next_at > clock() from schedule")] == [True, True]


def test_workers_run_what_was_applied_and_not_what_lies_on_their_disk(trial: Deployment, tmp_path: Path) -> None:
    trial.model("copy", "select n, value from {{ ref('raw.events') }}")
    applied(trial)
    trial.land("events", range(20))
    other = tmp_path / "elsewhere"
    other.mkdir()
    for name in ("penstock.yml", "models"):
        source = trial.root / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, other / name)
    elsewhere = Deployment.__new__(Deployment)
    Deployment.__init__(elsewhere, trial.root, trial.dsn)
    elsewhere.root = other
    (other / "models/transformations/copy.sql").write_text(
        "---\nposition: n\ninterval: 10\n---\nselect n, value * 1000 as value from {{ ref('raw.events') }}\n"
    )
    with serving(elsewhere, roles.worker), serving(elsewhere, roles.scheduler):
        until(trial, covers("copy", 20))
    assert trial.rows("copy") == [(n, n * 7) for n in range(20)]
    assert len(trial.execute("select distinct fingerprint from generation")) == 1


def test_a_schedule_that_is_added_later_is_noticed_while_running(trial: Deployment) -> None:
    trial.model("copy", "select n, value from {{ ref('raw.events') }}", DAILY)
    applied(trial)
    trial.land("events", range(20))
    with everything(trial):
        until(trial, lambda view: "raw.events" in view.sources and view.sources["raw.events"].end_pos == 20)
        trial.model(
            "copy",
            "select n, value from {{ ref('raw.events') }}",
            'interval: 10\nschedules: {backfill: "off", forwardfill: "@every 1s"}',
        )
        applied(trial)
        until(trial, covers("copy", 20))


def test_a_model_that_is_added_later_is_built_while_running(trial: Deployment) -> None:
    trial.model("first", "select n, value from {{ ref('raw.events') }}")
    applied(trial)
    trial.land("events", range(20))
    with everything(trial):
        until(trial, covers("first", 20))
        trial.model("second", "select n, value from {{ ref('t.first') }}")
        applied(trial)
        until(trial, covers("second", 20))


def test_a_rebuilt_model_takes_over_while_running(trial: Deployment) -> None:
    trial.model("copy", "select n, value from {{ ref('raw.events') }}")
    applied(trial)
    trial.land("events", range(20))
    with everything(trial):
        until(trial, covers("copy", 20))
        trial.model("copy", "select n, value * 2 as value from {{ ref('raw.events') }}")
        applied(trial)
        until(trial, lambda view: view.working["t.copy"].state == "current" and covers("copy", 20)(view))
    assert trial.rows("copy") == [(n, n * 14) for n in range(20)]


def test_an_idle_process_is_woken_to_stop(trial: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a heartbeat, a turn or a round: none of them would come before the test gives up."""
    split_failures(trial)
    applied(trial)
    with everything(trial) as resident:
        until(trial, lambda view: "raw.events" in view.sources)
        for module, name in (
            (beating, "HEARTBEAT_SECONDS"),
            (worker, "IDLE_SECONDS"),
            (scheduler, "LONGEST_PAUSE_SECONDS"),
        ):
            monkeypatch.setattr(module, name, 10_000.0)
        resident.end()
    assert resident.error is None


def test_what_does_not_end_in_time_is_handed_back_and_others_do_it(trial: Deployment) -> None:
    settings(trial, "worker: {shutdown_timeout: 1s}\n")
    trial.model("copy", "select n, value from {{ ref('raw.events') }}")
    applied(trial)
    trial.land("events", range(10))
    hang = Hang()
    with serving(trial, roles.scheduler):
        with serving(trial, roles.worker, Fault("staged", hang)) as stopped:
            assert hang.reached.wait(30)
            stopped.stop.ask()
            until(trial, lambda view: view.work["t.copy"].queued == 1)
            hang.go_on.set()
        with serving(trial, roles.worker):
            until(trial, covers("copy", 10))
    [task] = trial.tasks("copy")
    assert (task.state, task.attempt) == ("succeeded", 2)
    assert trial.most_commits("copy") == 1


def test_a_running_task_is_finished_before_its_worker_stops(trial: Deployment) -> None:
    trial.model("copy", "select n, value from {{ ref('raw.events') }}")
    applied(trial)
    trial.land("events", range(10))
    hang = Hang()
    with serving(trial, roles.scheduler), serving(trial, roles.worker, Fault("staged", hang)) as stopped:
        assert hang.reached.wait(30)
        stopped.stop.ask()
        hang.go_on.set()
        stopped.end()
    [task] = trial.tasks("copy")
    assert (task.state, task.attempt) == ("succeeded", 1)


def test_a_paused_model_waits_and_goes_on_when_resumed(trial: Deployment) -> None:
    split_failures(trial)
    applied(trial)
    with trial.opened() as workspace:
        workspace.state.control.pause("t.child", "test")
    trial.land("events", range(10))
    with everything(trial):
        until(trial, covers("parent", 10))
        assert not trial.tasks("child")
        with trial.opened() as workspace:
            workspace.state.control.resume("t.child", "test")
        until(trial, covers("child", 10))


def test_a_cancelled_task_ends_in_its_worker_and_stays_away_until_it_is_resumed(trial: Deployment) -> None:
    trial.model("copy", "select n, value from {{ ref('raw.events') }}")
    applied(trial)
    trial.land("events", range(10))
    hang = Hang()
    with everything(trial, Fault("intended", hang)):
        assert hang.reached.wait(30)
        [task] = trial.tasks("copy")
        with trial.opened() as workspace:
            assert workspace.state.control.cancel_task(task.id, "test")
        deadline = time.monotonic() + 30
        while (task.uuid, 1) not in trial.engine.cancelled:  # told to the worker by a notification
            assert time.monotonic() < deadline
            threading.Event().wait(0.05)
        hang.go_on.set()
        trial.land("events", range(10, 20))
        until(trial, lambda view: view.current["t.copy"].covered == ranges((10, 20)))
        with trial.opened() as workspace:
            assert workspace.state.control.resume_task(task.id, "test")
        until(trial, lambda view: view.current["t.copy"].covered == ranges((0, 20)))


def test_globs_and_tags_choose_what_a_worker_does(trial: Deployment) -> None:
    settings(trial, 'worker: {models: ["t.a*"], tags: [heavy]}\n')
    trial.model("alpha", "select n, value from {{ ref('raw.events') }}", "interval: 10\ntags: [heavy]")
    trial.model("aside", "select n, value from {{ ref('raw.events') }}")
    trial.model("beta", "select n, value from {{ ref('raw.events') }}", "interval: 10\ntags: [heavy]")
    applied(trial)
    trial.land("events", range(10))
    with everything(trial):
        until(trial, covers("alpha", 10))
        until(trial, lambda view: bool(view.work["t.beta"].queued and view.work["t.aside"].queued))
    assert not trial.covered("beta")
    assert not trial.covered("aside")


def test_a_worker_measures_the_sources_that_no_log_describes(trial: Deployment) -> None:
    trial.write(
        "models/external/measured.sql",
        f'---\nlocation: "{trial.landing("measured")}"\nposition: n\n{QUICK}---\n'
        "select min(n) as min, max(n) as max from {{ ref('raw.measured') }}\n",
    )
    trial.model("copy", "select n, value from {{ ref('raw.measured') }}")
    trial.land("measured", range(20))
    trial.land("events", range(1))
    applied(trial)
    with everything(trial):
        until(trial, covers("copy", 20))
    assert trial.engine.scans


def test_control_without_asking_for_scans_such_a_source_is_never_seen(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sources, "ask_scan", lambda *_: None)
    trial.write(
        "models/external/measured.sql",
        f'---\nlocation: "{trial.landing("measured")}"\nposition: n\n{QUICK}---\n'
        "select min(n) as min, max(n) as max from {{ ref('raw.measured') }}\n",
    )
    trial.model("copy", "select n, value from {{ ref('raw.measured') }}")
    trial.land("measured", range(20))
    trial.land("events", range(1))
    applied(trial)
    with everything(trial), pytest.raises(AssertionError, match="not in time"):
        until(trial, covers("copy", 20), 4.0)


def test_a_crash_of_the_database_costs_no_running_task_its_attempt(tmp_path: Path) -> None:
    with own_server() as server:
        trial = Deployment.empty(tmp_path / "project", server.dsn)
        trial.source("events", QUICK)
        trial.model("copy", "select n, value from {{ ref('raw.events') }}")
        applied(trial)
        trial.land("events", range(10))
        hang = Hang()
        with everything(trial, Fault("staged", hang)):
            assert hang.reached.wait(30)
            server.crash()
            server.start()
            # the worker is known again: its heartbeat notices the loss of its connection, not the end of 30 s
            until(
                trial, lambda _: bool(trial.execute("select 1 from worker where server = pg_postmaster_start_time()"))
            )
            hang.go_on.set()
            until(trial, covers("copy", 10))
        [task] = trial.tasks("copy")
        assert (task.state, task.attempt) == ("succeeded", 1)


def test_control_a_heartbeat_that_does_not_hear_its_connection_end_is_away_until_its_next_beat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Database, "wait_for_word", lambda _, wake, seconds: select.select([wake], [], [], seconds))
    with own_server() as server:
        trial = Deployment.empty(tmp_path / "project", server.dsn)
        trial.source("events", QUICK)
        trial.model("copy", "select n, value from {{ ref('raw.events') }}")
        applied(trial)
        with everything(trial):
            until(trial, lambda _: bool(trial.execute("select 1 from worker")))
            server.crash()
            server.start()
            with pytest.raises(AssertionError, match="not in time"):
                known = "select 1 from worker where server = pg_postmaster_start_time()"
                until(trial, lambda _: bool(trial.execute(known)), 5.0)


def test_what_was_paused_or_cancelled_is_said_to_be_so(trial: Deployment) -> None:
    trial.model("copy", "select n, value from {{ ref('raw.events') }}")
    trial.land("events", range(40))
    trial.run()
    trial.land("events", range(40, 60))
    with trial.opened() as workspace:
        observe(workspace, Silent())
        number = workspace.state.views.whole().working["t.copy"].no
        order = Order("t.copy", "forward", (Interval(40, 50),), ("raw.events",), "new rows")
        workspace.state.queue.enqueue([order], {"t.copy": number})
        assert workspace.state.control.cancel_model("t.copy", "test") == 1
    told = trial.status("t.copy")
    assert told["health"] == "suspended"
    assert told["reason"] == "cancelled: [40, 50) is not planned until penstock resume t.copy"
    with trial.opened() as workspace:
        workspace.state.control.pause("t.copy", "test")
    told = trial.status("t.copy")
    assert (told["desired"], told["health"]) == ("paused", "suspended")
    assert told["reason"] == "paused until penstock resume t.copy"
    with trial.opened() as workspace:
        workspace.state.control.resume("t.copy", "test")
    assert trial.status("t.copy")["health"] == "lagging"


def test_a_reader_role_answers_status_explain_and_tasks(trial: Deployment) -> None:
    trial.model("copy", "select n, value from {{ ref('raw.events') }}")
    trial.land("events", range(20))
    trial.run()
    role = f"looks_{os.getpid()}"
    trial.execute(f"create role {role} login")
    try:
        with trial.opened() as workspace:
            grant_reader(workspace.state.database, role)
        trial.environ["PENSTOCK_STATE"] = make_conninfo(trial.dsn, options=f"-c role={role}")
        with trial.opened() as workspace:
            assert trial.status("t.copy")["health"] == "ok"
            assert explained(workspace, "t.copy", None)["decision"] == "wait"
            assert task_rows(workspace, None, False, True)
            with pytest.raises(StateError, match="refuses"):
                workspace.state.control.pause("t.copy", "test")
    finally:
        trial.environ["PENSTOCK_STATE"] = trial.dsn
        trial.execute(f"drop owned by {role}")
        trial.execute(f"drop role {role}")
