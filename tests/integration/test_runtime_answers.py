"""Do status, explain, tasks, plan, verify and query answer in the fields that scripts read?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deployment import Deployment, commit

from penstock.answers.changes import planned_changes
from penstock.answers.explain import explained
from penstock.answers.history import task_rows
from penstock.answers.pairs import listed
from penstock.answers.query import query
from penstock.answers.status import status
from penstock.answers.verify import Verified, verify
from penstock.errors import UnknownModelError, UsageError
from penstock.project.templates.names import TABLE
from penstock.runtime.place.workspace import Workspace
from penstock.values.intervals import ranges

STATUS = {
    "name", "type", "desired", "health", "reason", "generation", "location", "snapshot", "axis", "coverage", "gaps",
    "available", "stale", "stale_since", "stale_seconds", "permanent_gaps", "expired_before", "ignored_rows",
    "ignored_since", "cursor", "inputs",
    "data_timestamp", "lag_seconds", "target_lag_seconds", "tasks", "last_error",
}  # fmt: skip
TASK = {
    "id", "model", "lane", "scope", "state", "attempt", "reason", "strategy", "strategy_reason", "spark_jobs",
    "rows_written", "rows_read", "keys_affected", "seconds", "snapshot", "error",
}  # fmt: skip
EXPLAIN = {"model", "type", "decision", "reason", "checks", "reopened", "strategy", "key", "strategy_reason"}
HOUR = 3600


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory, dsn: str) -> Deployment:
    """On the axis of seconds: `hourly` is built, `failing` has a dead chunk, `late` was never applied."""
    made = Deployment.empty(tmp_path_factory.mktemp("answers"), dsn)
    made.source("events", "axis: second\n")
    made.source("never", "axis: second\n")
    commit(made.landing("events"), {"n": range(0, 10 * HOUR, 600), "value": range(60)})
    made.model("hourly", "select n, value from {{ ref('raw.events') }}", "interval: 1 hour")
    made.model("failing", "select n, 100 / (value - 20) as value from {{ ref('raw.events') }}", "interval: 1 hour")
    made.model("starved", "select n, value from {{ ref('raw.never') }}", "interval: 1 hour")
    made.model("newest", "select n, value from {{ ref('raw.events') }}", "interval: 1 hour\nschedules: {backfill: off}")
    made.run()
    made.model("late", "select n, value from {{ ref('t.hourly') }}", "interval: 2 hours")
    return made


@pytest.fixture
def workspace(trial: Deployment) -> Iterator[Workspace]:
    with trial.opened() as opened:
        yield opened


def shown(workspace: Workspace, name: str) -> dict[str, object]:
    view = workspace.state.views.whole()
    inputs = workspace.state.history.newest_inputs([generation.no for generation in view.current.values()])
    answer = status(workspace.resolver, view, (name,), inputs=inputs)
    json.dumps(answer, default=listed)
    (row,) = answer["models"]  # type: ignore[misc]
    assert set(row) == STATUS
    return dict(row)


# status


def test_status_names_the_project_the_revision_and_the_moment(workspace: Workspace) -> None:
    answer = status(workspace.resolver, workspace.state.views.whole(), ())
    assert set(answer) == {"project", "revision", "at", "workers", "models"}
    assert answer["project"] == "trial"
    assert datetime.fromisoformat(str(answer["at"])).utcoffset() == timedelta(0)
    assert len(answer["models"]) == 7  # type: ignore[arg-type]


def test_status_of_a_built_model(trial: Deployment, workspace: Workspace) -> None:
    row = shown(workspace, "t.hourly")
    assert (row["type"], row["desired"], row["health"], row["axis"]) == ("interval", "active", "ok", "second")
    assert row["coverage"] == row["available"] == [[0, 9 * HOUR]]
    assert row["gaps"] == row["stale"] == row["permanent_gaps"] == []
    assert row["stale_since"] is row["stale_seconds"] is row["expired_before"] is None
    assert (row["cursor"], row["inputs"]) == (9 * HOUR, {"raw.events": 0})
    assert row["snapshot"] == DeltaTable(str(row["location"])).version()
    assert str(row["location"]).endswith(str(row["generation"]))
    assert row["data_timestamp"] == "1970-01-01T09:00:00+00:00"
    assert isinstance(row["lag_seconds"], int)
    assert row["tasks"] == {"queued": 0, "running": 0, "retrying": 0, "dead": 0}
    assert row["last_error"] is row["target_lag_seconds"] is None


def test_status_of_a_model_that_was_never_applied(workspace: Workspace) -> None:
    row = shown(workspace, "t.late")
    assert [row[key] for key in ("generation", "location", "snapshot", "data_timestamp", "lag_seconds")] == [None] * 5
    assert row["coverage"] == row["available"] == row["stale"] == []
    assert (row["health"], row["gaps"]) == ("lagging", [[0, 8 * HOUR]])
    assert row["cursor"] is row["inputs"] is None


def test_status_of_a_model_with_a_dead_chunk(workspace: Workspace) -> None:
    row = shown(workspace, "t.failing")
    assert row["health"] == "failing"
    assert row["coverage"] == [[0, 3 * HOUR], [4 * HOUR, 9 * HOUR]]
    assert row["tasks"]["dead"] == 1  # type: ignore[index]
    assert "Divide by zero" in str(row["last_error"])


def test_status_of_a_model_without_data(workspace: Workspace) -> None:
    row = shown(workspace, "t.starved")
    assert (row["health"], row["snapshot"], row["coverage"], row["gaps"]) == ("blocked", None, [], [])
    assert "raw.never" in str(row["reason"])


def test_status_says_what_nothing_will_ever_fill(workspace: Workspace) -> None:
    row = shown(workspace, "t.newest")
    ((gap, why),) = row["permanent_gaps"]  # type: ignore[misc]
    assert gap == [0, 8 * HOUR]
    assert "backfill is off" in why


def test_status_of_sources(workspace: Workspace) -> None:
    row = shown(workspace, "raw.events")
    assert (row["type"], row["health"], row["axis"], row["snapshot"]) == ("source", "ok", "second", 0)
    # the newest second may still be filling
    assert row["available"] == [[0, 10 * HOUR - 600]]
    assert row["coverage"] == row["gaps"] == row["stale"] == []
    assert row["cursor"] is row["inputs"] is row["expired_before"] is None
    absent = shown(workspace, "raw.never")
    assert (absent["available"], absent["snapshot"], absent["data_timestamp"]) == ([], None, None)
    assert absent["last_error"] is not None


# explain


def told(workspace: Workspace, name: str, at: str | None = None) -> dict[str, object]:
    answer = explained(workspace, name, at)
    json.dumps(answer, default=listed)
    assert set(answer) >= EXPLAIN
    for check in answer["checks"]:  # type: ignore[attr-defined]
        assert set(check) == {"dependency", "rule", "value", "ok", "why"}
    return answer


def test_explain_of_the_next_chunk_says_for_whom_it_waits(workspace: Workspace) -> None:
    answer = told(workspace, "t.hourly")
    assert (answer["model"], answer["type"], answer["decision"]) == ("t.hourly", "interval", "wait")
    assert answer["chunk"] == [9 * HOUR, 10 * HOUR]
    assert "raw.events" in str(answer["reason"])
    assert [check["ok"] for check in answer["checks"]] == [False]  # type: ignore[attr-defined]


def test_explain_of_a_covered_chunk_says_so(workspace: Workspace) -> None:
    answer = told(workspace, "hourly", "1970-01-01 02:30")
    assert (answer["decision"], answer["chunk"]) == ("wait", [2 * HOUR, 3 * HOUR])
    assert "covered" in str(answer["reason"])


def test_explain_of_a_chunk_that_is_ready_says_so(workspace: Workspace) -> None:
    answer = told(workspace, "late", "100")
    assert (answer["decision"], answer["chunk"]) == ("enqueue", [0, 2 * HOUR])
    assert all(check["ok"] for check in answer["checks"])  # type: ignore[attr-defined]


def test_explain_of_a_dead_chunk_says_that_it_failed(workspace: Workspace) -> None:
    answer = told(workspace, "failing", str(3 * HOUR))
    assert answer["decision"] == "wait"
    assert "failed" in str(answer["reason"])


def test_explain_of_a_source_says_what_was_observed(workspace: Workspace) -> None:
    answer = told(workspace, "raw.events")
    assert (answer["type"], answer["decision"], answer["chunk"]) == ("source", "wait", None)


def test_explain_of_an_unknown_model_or_position_is_a_clear_error(workspace: Workspace) -> None:
    with pytest.raises(UnknownModelError, match=r"t\.hourly"):
        explained(workspace, "nope", None)
    with pytest.raises(UsageError):
        explained(workspace, "t.hourly", "yesterday-ish")


# tasks


def test_tasks_are_rows_with_integer_positions(workspace: Workspace) -> None:
    rows = task_rows(workspace, None, False, True)
    json.dumps(rows)
    assert all(set(row) >= TASK for row in rows)
    done = [row for row in rows if row["model"] == "t.hourly"]
    assert {row["state"] for row in done} == {"succeeded"}
    parts = [part for row in done for part in row["scope"]["ranges"]]  # type: ignore[index]
    assert sorted(parts) == [[0, 8 * HOUR], [8 * HOUR, 9 * HOUR]]
    assert all(row["scope"]["type"] == "interval" for row in rows)  # type: ignore[index]
    assert sum(row["rows_written"] for row in done) == 54  # type: ignore[misc]
    assert all(isinstance(row["snapshot"], int) and row["error"] is None for row in done)


def test_the_tasks_of_a_strict_model_name_their_partitions(workspace: Workspace) -> None:
    rows = [row["scope"] for row in task_rows(workspace, "hourly", False, True)]
    newest, rest = sorted(rows, key=lambda scope: scope["partition_count"])  # type: ignore[index]
    assert newest["partitions"] == [f"{8 * HOUR}_{9 * HOUR}"]  # type: ignore[index]
    assert rest["partitions"] == [f"{i * HOUR}_{(i + 1) * HOUR}" for i in range(8)]  # type: ignore[index]


def test_failed_tasks_are_told_apart(workspace: Workspace) -> None:
    (dead,) = task_rows(workspace, None, True, False)
    assert (dead["model"], dead["state"], dead["snapshot"]) == ("t.failing", "dead", None)
    assert "Divide by zero" in str(dead["error"])


def test_without_history_only_what_is_open_is_shown(workspace: Workspace) -> None:
    assert {row["state"] for row in task_rows(workspace, None, False, False)} <= {
        "queued",
        "running",
        "retrying",
        "dead",
    }
    assert task_rows(workspace, "hourly", False, False) == []


# plan, verify, query


def test_plan_rows_say_what_would_change_and_how_much_there_is_to_do(workspace: Workspace) -> None:
    rows = {row["model"]: row for row in planned_changes(workspace)}
    json.dumps(list(rows.values()))
    assert all(set(row) == {"model", "change", "type", "reason", "intervals"} for row in rows.values())
    assert (rows["t.late"]["change"], rows["t.late"]["intervals"]) == ("new", 4)
    assert (rows["t.hourly"]["change"], rows["t.hourly"]["intervals"]) == ("unchanged", 0)
    assert rows["raw.events"]["type"] == "source"


def test_query_reads_what_is_accepted(workspace: Workspace) -> None:
    assert query(workspace, "select count(*) as rows, max(n) as n from t.hourly") == [{"rows": 54, "n": 31800}]
    joined = "with x as (select n from hourly) select count(*) as rows from x join raw.events e on x.n = e.n"
    assert query(workspace, joined) == [{"rows": 54}]
    hidden = "with late as (select 1 as one) select count(*) as rows, max(late.one) as one from hourly, late"
    assert query(workspace, hidden) == [{"rows": 54, "one": 1}]


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("select * from t.hourli", "there is no table t.hourli in this project"),
        ("select * from late", "has no rows yet"),
        ("delete from t.hourly", "SELECT"),
        ("select 1; select 2", "exactly one SELECT"),
        ("selec 1 fro", "cannot be read|SELECT"),
        ("select * from t.hourly version as of 1", "AS OF|accepted now"),
    ],
)
def test_query_refuses_what_it_cannot_answer(workspace: Workspace, sql: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        query(workspace, sql)


# with a project of their own, from here on


def test_of_many_partitions_the_first_are_named_and_all_are_counted(tmp_path: Path, dsn: str) -> None:
    made = Deployment.empty(tmp_path, dsn)
    made.source("numbers")
    made.model("strict", "select n, '{{ bounds.key }}' as key from {{ ref('raw.numbers') }}", "interval: 2")
    made.model("cursor", "select n, value from {{ ref('raw.numbers') }}", "interval: {max: 50, min: 0}")
    made.land("numbers", range(50))
    made.run()
    assert all(key == f"{n - n % 2}_{n - n % 2 + 2}" for key, n in made.rows("strict"))  # type: ignore[operator]
    with made.opened() as workspace:
        scopes = [row["scope"] for row in task_rows(workspace, "strict", False, True)]
        assert sum(scope["partition_count"] for scope in scopes) == 25  # type: ignore[index]
        assert max(len(scope["partitions"]) for scope in scopes) == 20  # type: ignore[index]
        assert all("partitions" not in row["scope"] for row in task_rows(workspace, "cursor", False, True))  # type: ignore[operator]
        assert shown(workspace, "t.cursor")["cursor"] == 50
    # new rows move the cursor; a repair does not, and is seen while it waits
    made.land("numbers", range(50, 53))
    made.run("cursor")
    made.land("numbers", [7])
    with made.opened() as workspace:
        workspace.state.invalidations.invalidate("t.cursor", ranges((0, 10)), "rerun", "alice")
        row = shown(workspace, "t.cursor")
        assert (row["cursor"], row["stale"], row["inputs"]) == (53, [[0, 10]], {"raw.numbers": 1})
        assert isinstance(row["stale_seconds"], int)
        assert datetime.fromisoformat(str(row["stale_since"])).utcoffset() == timedelta(0)
        (why,) = explained(workspace, "cursor", "3")["reopened"]  # type: ignore[misc]
        assert (why["why"], why["state"], why["open"]) == ("rerun by alice", "open", [[0, 10]])
        assert explained(workspace, "cursor", None)["reopened"] == [why]
    made.run("cursor")
    assert made.status("t.cursor")["cursor"] == 53
    assert not made.stale("cursor")
    with made.opened() as workspace:
        late, asked = explained(workspace, "cursor", "7")["reopened"]  # type: ignore[misc]
    assert late["why"] == "commit 2 of raw.numbers changed 1 row of this interval"
    assert (late["state"], asked["state"]) == ("repaired", "repaired")


def models_of(verified: Verified) -> list[dict[str, object]]:
    """As the JSON has them."""
    models = verified.as_json()["models"]
    assert isinstance(models, list)
    return models


def test_verify_tells_wrong_from_behind(tmp_path: Path, dsn: str) -> None:
    made = Deployment.empty(tmp_path, dsn)
    made.source("numbers")
    made.write("models/external/extra.yml", f'location: "{made.landing("extra")}"\n')
    made.model(
        "copy",
        "select a.n, value + plus as value from {{ ref('raw.numbers') }} a join {{ ref('raw.extra') }} b on a.n = b.n",
    )
    made.land("numbers", range(40))
    commit(made.landing("extra"), {"n": range(60), "plus": [1] * 60})
    made.run()
    # a lookup moves on, which reopens nothing: what is stored was right once
    DeltaTable(str(made.landing("extra"))).update({"plus": "0"}, predicate="n = 5")
    made.land("numbers", range(40, 45))
    made.run()
    with made.opened() as workspace:
        [row] = models_of(verify(workspace, workspace.interval_models(()), None, None))
        assert (row["missing"], row["unexpected"], row["wrong"], row["behind"]) == (1, 1, [], [[0, 10]])
        assert (row["rows_stored"], row["rows_expected"], row["unverifiable"]) == (40, 40, [])
        [row] = models_of(verify(workspace, workspace.interval_models(()), 10, 40))
        assert (row["rows_stored"], row["wrong"], row["behind"]) == (30, [], [])
        json.dumps(row)
        # the state is made to believe in a snapshot with rows that no query gave
        place = workspace.resolver.table(workspace.state.views.whole().current["t.copy"].location)
        DeltaTable(place).delete("n = 25")
        current = workspace.state.views.whole().current["t.copy"]
        assert current.accepted_snapshot is not None
        workspace.state.generations.accept_snapshot(current.no, current.accepted_snapshot, DeltaTable(place).version())
        [row] = models_of(verify(workspace, workspace.interval_models(()), 10, 40))
        assert (row["missing"], row["unexpected"], row["wrong"]) == (1, 0, [[20, 30]])


def test_verify_does_not_compare_what_may_differ_every_time(
    tmp_path: Path, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Deployment.empty(tmp_path, dsn)
    made.source("numbers")
    made.model("copy", "select n, {{ bounds.start }} + {{ task.start }} as value from {{ ref('raw.numbers') }}")
    made.land("numbers", range(20))
    made.run()
    with made.opened() as workspace:
        [row] = models_of(verify(workspace, workspace.interval_models(()), None, None))
        reasons = {why for _, why in row["unverifiable"]}
        assert (row["missing"], reasons) == (0, {"the query uses task, so its rows may differ at every run"})
        monkeypatch.setitem(TABLE, "task", replace(TABLE["task"], varies="never"))  # the control
        [row] = models_of(verify(workspace, workspace.interval_models(()), None, None))
        assert (row["missing"], row["unverifiable"]) == (20, [])


def test_verify_does_not_compare_rows_whose_source_rows_have_expired(tmp_path: Path, dsn: str) -> None:
    made = Deployment.empty(tmp_path, dsn)
    made.source("numbers")
    made.model("copy", "select n, value from {{ ref('raw.numbers') }}")
    made.model(
        "rolling",
        "select n, value from {{ ref('raw.numbers') }}",
        "interval: 10\ndependencies: [{model: raw.numbers, before: 5}]",
    )
    made.land("numbers", range(40))
    made.run()
    DeltaTable(str(made.landing("numbers"))).delete("n < 10")
    assert made.run().tasks == 0
    with made.opened() as workspace:
        copy, rolling = models_of(verify(workspace, workspace.interval_models(()), None, None))
        assert (copy["rows_stored"], copy["unexpected"], copy["wrong"], copy["behind"]) == (30, 0, [], [])
        assert copy["unverifiable"] == [[[0, 10], "its source rows have expired"]]
        assert [pair for pair, _ in rolling["unverifiable"]] == [[0, 10], [10, 20]]
        assert verify(workspace, workspace.interval_models(()), None, None).differences == 0


def test_verify_asks_for_the_applied_project(trial: Deployment) -> None:
    with trial.opened() as workspace, pytest.raises(UsageError):
        verify(workspace, workspace.interval_models(()), None, None)
