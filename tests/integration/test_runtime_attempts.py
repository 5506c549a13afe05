"""Can people see who works, what was tried, and what it said?"""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta

import pytest
from deployment import Deployment, commit

from penstock.answers.history import task_rows
from penstock.answers.pairs import listed
from penstock.answers.status import status
from penstock.cli import inspect
from penstock.cli.options import Options

WORKER = {"id", "role", "host", "pid", "slots", "tasks", "stopping", "since", "heartbeat_at"}
ATTEMPT = {"n", "worker", "outcome", "error_class", "error", "log_tail", "started_at", "ended_at"}
LOG = '2026-11-16T02:40:00Z info  began task=1 reason="[new] data"\n2026-11-16T02:40:01Z error failed [bold]'


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory, dsn: str) -> Deployment:
    """`fine` is built in one attempt, `failing` has a dead chunk."""
    made = Deployment.empty(tmp_path_factory.mktemp("attempts"), dsn)
    made.source("events")
    commit(made.landing("events"), {"n": range(30), "value": range(30)})
    made.model("fine", "select n, value from {{ ref('raw.events') }}")
    made.model("failing", "select n, 100 / (value - 20) as value from {{ ref('raw.events') }}")
    made.run()
    done = "select id from task where model = 't.fine' and state = 'succeeded'"
    made.execute(f"update attempt set log_tail = '{LOG}' where task in ({done})")
    return made


def options(trial: Deployment, *, as_json: bool = False) -> Options:
    return Options(project=trial.root, json=as_json, environ=trial.environ)


# workers


def test_without_processes_no_workers_are_shown(trial: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
    inspect.status(options(trial, as_json=True), None, False)
    assert json.loads(capsys.readouterr().out)["workers"] == []
    inspect.status(options(trial), None, False)
    assert "worker" not in capsys.readouterr().out


def test_status_shows_who_is_up(trial: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
    with trial.opened() as one, trial.opened() as other:
        one.state.workers.register("first", {"host": "alpha", "pid": 11, "role": "worker", "slots": 2})
        other.state.workers.register("second", {"host": "beta", "pid": 12, "role": "scheduler", "slots": 0})
        workers = one.state.workers.alive()
        answer = status(one.resolver, one.state.views.whole(), (), workers)
        found = json.loads(json.dumps(answer, default=listed))["workers"]
        assert all(set(worker) == WORKER for worker in found)
        assert [(w["id"], w["role"], w["host"], w["pid"], w["slots"], w["tasks"], w["stopping"]) for w in found] == [
            ("first", "worker", "alpha", 11, 2, 0, False),
            ("second", "scheduler", "beta", 12, 0, 0, False),
        ]
        for worker in found:
            assert datetime.fromisoformat(worker["since"]).utcoffset() == timedelta(0)
            assert datetime.fromisoformat(worker["heartbeat_at"]).utcoffset() == timedelta(0)
        trial.execute("update worker set stopping = true, heartbeat_at = clock() - interval '9 s' where id = 'first'")
        inspect.status(options(trial), "fine", False)
        lines = capsys.readouterr().out.splitlines()
    assert lines[-3] == "1 scheduler, 1 worker:"
    assert re.fullmatch(r"  first \(pid 11\) worker, 0 of 2 tasks, heartbeat (9|1\d) s ago, stopping", lines[-2])
    assert re.fullmatch(r"  second \(pid 12\) scheduler, heartbeat \d+ s ago", lines[-1])


# attempts


def test_a_task_has_its_attempts(trial: Deployment) -> None:
    with trial.opened() as workspace:
        rows = task_rows(workspace, None, False, True)
    json.dumps(rows)
    attempts = [attempt for row in rows for attempt in row["attempts"]]  # type: ignore[attr-defined]
    assert all(set(attempt) >= ATTEMPT for attempt in attempts)
    assert all(datetime.fromisoformat(attempt["started_at"]).utcoffset() == timedelta(0) for attempt in attempts)
    done = [row for row in rows if row["state"] == "succeeded"]
    assert all(row["attempts"][-1]["outcome"] == "succeeded" for row in done)  # type: ignore[index]
    (dead,) = [row for row in rows if row["state"] == "dead"]
    (last,) = dead["attempts"]  # type: ignore[misc]
    assert (last["n"], last["outcome"], last["error_class"], last["followed_by"]) == (1, "failed", "user", "dead")
    assert "Divide by zero" in last["error"]


def test_attempts_of_what_failed_stand_below_the_table(trial: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
    inspect.tasks(options(trial), None, True, False, False)
    lines = capsys.readouterr().out.splitlines()
    heading = next(number for number, line in enumerate(lines) if re.fullmatch(r"task \d+ t\.failing \[20, 30\)", line))
    assert re.fullmatch(
        r"  attempt 1 by \S+: failed after \d+\.\d s: error in the query or its data; not retried; .*Divide by zero.*",
        lines[heading + 1],
    )
    assert len(lines) == heading + 2


def test_what_went_well_at_once_needs_no_more_lines(trial: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
    inspect.tasks(options(trial), "fine", False, True, False)
    out = capsys.readouterr().out
    assert "t.fine" in out
    assert "attempt 1" not in out
    assert "began" not in out


def test_logs_are_printed_when_asked_for(trial: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
    inspect.tasks(options(trial), "fine", False, True, True)
    out = capsys.readouterr().out
    assert re.search(r"^  attempt 1 by \S+: succeeded after", out, re.MULTILINE)
    assert "".join(f"    {line}\n" for line in LOG.splitlines()) in out


def test_json_has_the_logs_without_being_asked(trial: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
    inspect.tasks(options(trial, as_json=True), "fine", False, True, False)
    (row, *_) = json.loads(capsys.readouterr().out)["tasks"]
    assert row["attempts"][0]["log_tail"] == LOG


def test_what_is_left_out_of_a_long_list_is_said(trial: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
    inspect.tasks(options(trial, as_json=True), None, False, True, False)
    whole = json.loads(capsys.readouterr().out)
    assert (whole["total"], whole["truncated"]) == (len(whole["tasks"]), False)
    inspect.tasks(options(trial, as_json=True), None, False, True, False, limit=1)
    cut = json.loads(capsys.readouterr().out)
    assert cut == {"tasks": whole["tasks"][:1], "total": whole["total"], "truncated": True}
    inspect.tasks(options(trial), None, False, True, False, limit=1)
    assert f"showing the newest 1 of {whole['total']}; --limit shows more" in capsys.readouterr().out
    inspect.tasks(options(trial), None, False, True, False)
    assert "showing" not in capsys.readouterr().out
