"""What is served, before, while and after a changed model is built anew?"""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from deployment import Deployment, commit, served
from faults import Fault, Killed, raising

from penstock.answers.changes import needs_consent, planned_changes
from penstock.errors import EngineError
from penstock.planner.readiness.observation import Observation
from penstock.runtime.place.definitions import definitions
from penstock.runtime.place.workspace import apply
from penstock.runtime.process.progress import Silent
from penstock.runtime.serve import run
from penstock.values.intervals import ranges

COPY = "select n, value from {{ ref('raw.numbers') }}"
TWICE = "select n, 2 * value as value from {{ ref('raw.numbers') }}"
BEYOND = "select n, value + 1 as value from {{ ref('t.copy') }}"
LAST = "select n, value + 1 as value from {{ ref('t.beyond') }}"
ASIDE = "select n, value from {{ ref('raw.numbers') }}"
OLD = {"copy": (7, 0), "beyond": (7, 1), "last": (7, 2), "aside": (7, 0)}
NEW = {"copy": (14, 0), "beyond": (14, 1), "last": (14, 2), "aside": (7, 0)}


@pytest.fixture
def trial(tmp_path: Path, dsn: str) -> Deployment:
    """A chain of three models, and one beside it."""
    made = Deployment.empty(tmp_path, dsn)
    made.source("numbers")
    made.model("copy", COPY)
    made.model("beyond", BEYOND)
    made.model("last", LAST, "interval: 20")
    made.model("aside", ASIDE)
    made.land("numbers", range(40))
    made.run()
    return made


def holds(trial: Deployment, wanted: dict[str, tuple[int, int]], upto: int = 40) -> bool:
    with trial.opened() as workspace:
        return all(
            served(workspace, name) == [(n, n * factor + more) for n in range(upto)]
            for name, (factor, more) in wanted.items()
        )


def changes(trial: Deployment) -> dict[str, str]:
    with trial.opened() as workspace:
        return {str(row["model"]): str(row["change"]) for row in planned_changes(workspace)}


class Watcher(Silent):
    """Looks at what is served after every attempt."""

    def __init__(self, trial: Deployment) -> None:
        self.trial = trial
        self.seen: list[str] = []
        self.notes: list[str] = []

    def finished(self, result: object) -> None:
        self.seen.append("old" if holds(self.trial, OLD) else "new" if holds(self.trial, NEW) else "mixed")

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_changed_query_rebuilds_its_model_and_all_that_read_it(trial: Deployment) -> None:
    trial.model("copy", TWICE)
    assert changes(trial) == {
        "raw.numbers": "unchanged",
        "t.copy": "rebuild",
        "t.beyond": "rebuild",
        "t.last": "rebuild",
        "t.aside": "unchanged",
    }
    with trial.opened() as workspace:
        found = workspace.state.projects.changes(definitions(workspace.project))
    reasons = {change.model: change.reason for change in found}
    assert reasons["t.copy"] == "its definition changed"
    assert reasons["t.last"] == "it reads t.copy, which is rebuilt"
    with trial.opened() as workspace:
        assert len(needs_consent(workspace, found)) == 3


def test_what_a_rebuild_does_not_bring_back_is_said_by_plan_and_before_it_is_applied(trial: Deployment) -> None:
    DeltaTable(str(trial.landing("numbers"))).delete("n < 15")
    trial.run()
    trial.model("copy", TWICE)
    with trial.opened() as workspace:
        reasons = {row["model"]: row["reason"] for row in planned_changes(workspace)}
        asked = needs_consent(workspace, workspace.state.projects.changes(definitions(workspace.project)))
    loss = "their source rows have expired"
    assert reasons["t.copy"] == f"its definition changed; its rows before 20 are lost: {loss}"
    assert reasons["t.beyond"] == f"it reads t.copy, which is rebuilt; its rows before 20 are lost: {loss}"
    assert reasons["t.last"] == f"it reads t.copy, which is rebuilt; its rows before 20 are lost: {loss}"
    assert reasons["t.aside"] == "same definition"
    assert set(asked) == {f"{name}: rebuild ({reasons[name]})" for name in ("t.copy", "t.beyond", "t.last")}


def test_a_model_that_never_held_a_row_is_rebuilt_without_a_question(trial: Deployment) -> None:
    trial.model("broken", "select n, 1 / (value - value) as value from {{ ref('raw.numbers') }}")
    assert trial.run("broken").failed > 0
    trial.model("broken", COPY)
    with trial.opened() as workspace:
        found = workspace.state.projects.changes(definitions(workspace.project))
        assert {one.model: one.change for one in found}["t.broken"] == "rebuild"
        assert needs_consent(workspace, found) == []


def test_comments_and_another_interval_rebuild_nothing(trial: Deployment) -> None:
    trial.model("copy", f"-- the same\n{COPY}", "interval: 20")
    assert set(changes(trial).values()) == {"unchanged"}


def test_the_old_tables_serve_until_the_new_ones_take_over_together(trial: Deployment) -> None:
    trial.model("copy", TWICE)
    watcher = Watcher(trial)
    assert trial.run(progress=watcher).failed == 0
    assert watcher.seen[:4] == ["old"] * 4
    assert "mixed" not in watcher.seen
    assert watcher.notes == ["the rebuilt t.beyond, t.copy, t.last replaced the old tables"]
    assert holds(trial, NEW)


def test_all_of_a_rebuild_takes_over_in_one_transaction(trial: Deployment) -> None:
    trial.model("copy", TWICE)
    trial.run()
    done = trial.execute("select subject from audit where action = 'cutover'")
    assert done == [("t.beyond, t.copy, t.last",)]
    states = trial.execute("select model, state, count(*) from generation group by model, state order by model, state")
    assert states == [
        ("t.aside", "current", 1),
        ("t.beyond", "current", 1),
        ("t.beyond", "retired", 1),
        ("t.copy", "current", 1),
        ("t.copy", "retired", 1),
        ("t.last", "current", 1),
        ("t.last", "retired", 1),
    ]


def test_while_a_model_is_rebuilt_readers_and_builders_see_different_tables(trial: Deployment) -> None:
    trial.model("copy", TWICE)
    with trial.opened() as workspace:
        apply(workspace)
        view = workspace.state.views.whole()
        serving = workspace.resolver.pin("t.copy", view, serving=True)
        assert serving is not None
        assert serving.generation == str(view.current["t.copy"].id)
        assert workspace.resolver.pin("t.copy", view) is None
        assert view.working["t.copy"].state == "building"


@pytest.mark.parametrize("after", [0, 2, 4])
def test_a_rebuild_that_is_killed_leaves_the_old_tables_serving(trial: Deployment, after: int) -> None:
    trial.model("copy", TWICE)
    with pytest.raises(Killed):
        trial.run(step=Fault("recorded", raising(Killed()), after=after))
    assert holds(trial, OLD)
    assert set(changes(trial).values()) == {"unchanged"}
    assert trial.run().failed == 0
    assert holds(trial, NEW)


def test_a_rebuild_that_fails_leaves_the_old_tables_serving(trial: Deployment) -> None:
    trial.model("copy", "select n, 100 / (n - 17) as value from {{ ref('raw.numbers') }}")
    assert trial.run().failed == 1
    assert holds(trial, OLD)
    trial.model("copy", TWICE)
    assert trial.run().failed == 0
    assert holds(trial, NEW)


def test_new_rows_that_arrive_during_a_rebuild_are_in_the_new_tables(trial: Deployment) -> None:
    trial.model("copy", TWICE)
    with pytest.raises(Killed):
        trial.run(step=Fault("recorded", raising(Killed()), after=1))
    trial.land("numbers", range(40, 60))
    trial.run()
    assert holds(trial, NEW, 60)


def test_a_rebuild_that_is_taken_back_leaves_everything_as_it_was(trial: Deployment) -> None:
    before = {name: trial.place(name) for name in OLD}
    trial.model("copy", TWICE)
    with pytest.raises(Killed):
        trial.run(step=Fault("recorded", raising(Killed())))
    trial.model("copy", COPY)
    assert trial.run().failed == 0
    assert holds(trial, OLD)
    assert {name: trial.place(name) for name in OLD} == before


def test_a_rebuild_of_a_rebuild_serves_only_the_last(trial: Deployment) -> None:
    trial.model("copy", TWICE)
    with pytest.raises(Killed):
        trial.run(step=Fault("recorded", raising(Killed())))
    trial.model("copy", TWICE.replace("2", "3"))
    trial.run()
    assert holds(trial, {"copy": (21, 0), "beyond": (21, 1), "last": (21, 2)})


def test_a_changed_child_is_rebuilt_from_its_parent_as_it_is(trial: Deployment) -> None:
    before = trial.place("copy")
    trial.model("last", LAST.replace("1", "5"), "interval: 20")
    assert changes(trial)["t.beyond"] == "unchanged"
    trial.run()
    assert holds(trial, OLD | {"last": (7, 6)})
    assert trial.place("copy") == before


def test_a_model_with_an_engine_error_during_its_rebuild_is_tried_again(trial: Deployment) -> None:
    trial.model("last", LAST.replace("1", "5"), "interval: 20")
    assert trial.run(step=Fault("computed", raising(EngineError("a hiccup")))).failed == 0
    assert holds(trial, {"last": (7, 6)})


def test_a_run_of_the_parent_alone_does_not_cut_over_without_the_children(trial: Deployment) -> None:
    trial.model("copy", TWICE)
    trial.run("copy")
    assert holds(trial, OLD)
    trial.run()
    assert holds(trial, NEW)


@pytest.mark.parametrize(
    ("step", "fails"),
    [("claimed", False), ("computed", True), ("staged", False), ("published", False), ("published", True)],
)
def test_a_run_of_an_older_revision_stops_and_fills_no_table_of_the_newer_one(
    trial: Deployment, step: str, fails: bool
) -> None:
    trial.land("numbers", range(40, 60))

    def another_revision() -> None:
        trial.model("copy", TWICE)
        with trial.opened() as workspace:
            apply(workspace)
        if fails:
            raise EngineError("a hiccup")

    watcher = Watcher(trial)
    assert trial.run(step=Fault(step, another_revision), progress=watcher).failed == 0
    assert watcher.notes[-1] == "another revision of the project was applied: this run ends here"
    with trial.opened() as workspace:
        built = workspace.state.views.whole().working
        assert not any(built[f"t.{name}"].covered for name in ("copy", "beyond", "last"))
    assert trial.run().failed == 0
    assert holds(trial, NEW, 60)


def test_a_run_that_does_not_ask_which_revision_is_active_fills_the_newer_tables(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "superseded", lambda *_: False)
    trial.land("numbers", range(40, 60))

    def another_revision() -> None:
        trial.model("copy", TWICE)
        with trial.opened() as workspace:
            apply(workspace)

    trial.run(step=Fault("published", another_revision))
    with trial.opened() as workspace:
        assert workspace.state.views.whole().working["t.copy"].covered
    assert not holds(trial, NEW, 60)  # the old query's rows are in the new table


# models that go and come back


def test_a_removed_model_is_no_longer_worked_on_and_its_table_stays(trial: Deployment) -> None:
    place = Path(trial.place("last"))
    trial.forget("last")
    assert changes(trial)["t.last"] == "removed"
    trial.land("numbers", range(40, 60))
    trial.run()
    with trial.opened() as workspace:
        assert "t.last" not in workspace.state.views.whole().current
    assert (place / "_delta_log").is_dir()
    assert changes(trial) == {
        "raw.numbers": "unchanged",
        "t.copy": "unchanged",
        "t.beyond": "unchanged",
        "t.aside": "unchanged",
    }


def test_a_model_that_comes_back_goes_on_with_its_old_table(trial: Deployment) -> None:
    place = trial.place("last")
    trial.forget("last")
    trial.run()
    trial.land("numbers", range(40, 60))
    trial.model("last", LAST, "interval: 20")
    assert changes(trial)["t.last"] == "unchanged"
    summary = trial.run()
    assert trial.place("last") == place
    assert holds(trial, OLD, 60)
    assert [task.order.scope for task in trial.tasks("last")][-1] == ranges((40, 60))
    assert summary.failed == 0


def test_a_model_that_comes_back_changed_is_rebuilt(trial: Deployment) -> None:
    trial.forget("last")
    trial.run()
    trial.model("last", LAST.replace("1", "5"), "interval: 20")
    assert changes(trial)["t.last"] == "rebuild"
    trial.run()
    assert holds(trial, OLD | {"last": (7, 6)})


def test_what_changed_while_a_model_was_away_is_repaired_when_it_is_back(trial: Deployment) -> None:
    trial.forget("last")
    trial.run()
    commit(trial.landing("numbers"), {"n": range(40), "value": [n * 9 for n in range(40)]}, mode="overwrite")
    with trial.opened() as workspace:
        workspace.state.invalidations.invalidate("t.copy", ranges((0, 40)), "test", "test")
    trial.run()
    trial.model("last", LAST, "interval: 20")
    trial.run()
    assert holds(trial, {"copy": (9, 0), "beyond": (9, 1), "last": (9, 2)})


def test_a_source_that_moved_rebuilds_all_that_read_it(trial: Deployment) -> None:
    trial.land("elsewhere", range(40), factor=3)
    trial.source("numbers", location=str(trial.landing("elsewhere")))
    assert set(changes(trial).values()) == {"rebuild"}
    trial.run()
    assert holds(trial, {"copy": (3, 0), "beyond": (3, 1), "last": (3, 2), "aside": (3, 0)})


def test_a_rebuild_from_a_source_that_is_not_there_takes_nothing_away(trial: Deployment) -> None:
    """A typo in `location` is another source: what is served stays until there is something to build it from."""
    before = trial.rows("copy")
    trial.source("numbers", location="/no/such/table")
    with trial.opened() as workspace:
        assert {row["model"]: row["intervals"] for row in planned_changes(workspace)}["t.copy"] == 0
    assert trial.run().failed == 0
    assert trial.rows("copy") == before
    trial.source("numbers")
    trial.run()
    assert trial.rows("copy") == before


def test_control_a_rebuild_from_nothing_would_take_over(trial: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Observation, "starving", ())
    with pytest.raises(AssertionError):
        test_a_rebuild_from_a_source_that_is_not_there_takes_nothing_away(trial)
