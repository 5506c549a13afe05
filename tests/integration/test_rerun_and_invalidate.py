"""What do rerun and invalidate say, record and compute, as they are typed?"""

from __future__ import annotations

import getpass
import itertools
import json
import re
from collections.abc import Callable

import pytest
import typer
from arrow_engine import ArrowEngine
from deltalake import DeltaTable
from deployment import Deployment, commit
from faults import Fault, Killed, raising

from penstock.answers.explain import explained
from penstock.cli import inspect
from penstock.cli.options import Options
from penstock.cli.rerun import Invalidating, Rerunning, invalidate, rerun
from penstock.engine.commit.reset import Emptying, empty
from penstock.errors import UnknownModelError, UsageError
from penstock.runtime.redo.rerun import record, request
from penstock.runtime.redo.reset import reset, resettable
from penstock.values.intervals import NOTHING, ranges

WORDS = {5: "plain", 15: "it's", 25: 'a "b"; c', 33: None}
_FACTORS = itertools.count(2)
NAMES = ("copy", "child", "rest", "last")


class Typed:
    """Types commands in a deployment, without a process of their own; what they print is read back."""

    def __init__(self, trial: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
        self.trial, self._capsys = trial, capsys

    def rerun(self, name: str, **asked: object) -> str:
        rerun(self._options(False), name, Rerunning(**asked))  # type: ignore[arg-type]
        return self._capsys.readouterr().out

    def rerun_json(self, name: str, **asked: object) -> dict[str, object]:
        rerun(self._options(True), name, Rerunning(**asked))  # type: ignore[arg-type]
        return dict(json.loads(self._capsys.readouterr().out))

    def invalidate(self, name: str, **asked: object) -> str:
        invalidate(self._options(False), name, self._wish(asked))
        return self._capsys.readouterr().out

    def invalidate_json(self, name: str, **asked: object) -> dict[str, object]:
        invalidate(self._options(True), name, self._wish(asked))
        return dict(json.loads(self._capsys.readouterr().out))

    def _options(self, as_json: bool) -> Options:
        return Options(project=self.trial.root, json=as_json, environ=self.trial.environ)

    @staticmethod
    def _wish(asked: dict[str, object]) -> Invalidating:
        given = {"start": None, "end": None, "where": None, "reason": "reorg", "key": None, "no_wait": False}
        return Invalidating(**(given | asked))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory, dsn: str) -> Deployment:
    """copy (10) -> child (20) -> rest (the remainder by 7, always 1) -> last; every test leaves it quiet and right."""
    made = Deployment.empty(tmp_path_factory.mktemp("rerun"), dsn)
    made.source("numbers")
    made.model("copy", "select n, value, word from {{ ref('raw.numbers') }}")
    made.model("child", "select n, value + 1 as value from {{ ref('t.copy') }}", "interval: 20")
    made.model("rest", "select n, value % 7 as value from {{ ref('t.child') }}")
    made.model("last", "select n, value from {{ ref('t.rest') }}")
    made.land("numbers", range(60), word=[WORDS.get(n, "x") for n in range(60)])
    made.run()
    return made


@pytest.fixture
def typed(trial: Deployment, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Typed:
    monkeypatch.setattr("penstock.engine.delta.DeltaEngine", lambda *_: ArrowEngine())
    capsys.readouterr()
    return Typed(trial, capsys)


@pytest.fixture
def since(trial: Deployment) -> Callable[[str], list[tuple[int, int]]]:
    """The chunks of a model that were computed since the test began."""
    before = {name: trial.chunks(name) for name in NAMES}

    def again(name: str) -> list[tuple[int, int]]:
        now = trial.chunks(name)
        for chunk in before[name]:
            now.remove(chunk)
        return now

    return again


Since = Callable[[str], list[tuple[int, int]]]


def correct(trial: Deployment, where: str, value: str | None = None) -> None:
    """Somebody changes rows of the source, to what they never were before."""
    new = value or f"n * 7 * {next(_FACTORS)}"
    DeltaTable(str(trial.landing("numbers"))).update({"value": new}, predicate=where)


def is_right(trial: Deployment) -> bool:
    """Every table equals its query over the source as it is now."""
    rows = DeltaTable(str(trial.landing("numbers"))).to_pyarrow_table().to_pylist()
    copy = sorted((row["n"], row["value"]) for row in rows)
    found = [(row[0], row[1]) for row in trial.rows("copy")]
    child = [(n, value + 1) for n, value in copy]
    rest = [(n, value % 7) for n, value in child]
    return found == copy and trial.rows("child") == child and trial.rows("rest") == trial.rows("last") == rest


# rerun


def test_rerun_says_what_it_computes_again_and_who_may_follow(typed: Typed) -> None:
    said = typed.rerun("copy", start="15", end="25")
    assert "t.copy" in said
    assert "10 .. 30" in said
    assert "where rows change: t.child, t.rest, t.last" in said
    assert "2 intervals" in said
    assert said.index("10 .. 30") < said.index("2 intervals")


def test_rerun_in_json_has_what_it_computed_again_and_the_fields_of_run(typed: Typed) -> None:
    answer = typed.rerun_json("copy", start="15", end="25")
    assert answer["recompute"] == [{"model": "t.copy", "ranges": [[10, 30]], "chunks": 2}]
    fields = {"tasks", "intervals", "refreshes", "spark_jobs", "spark_started", "failed", "seconds"}
    assert set(answer) == {"recompute", *fields}
    assert (answer["intervals"], answer["failed"]) == (2, 0)


def test_rerun_that_is_only_recorded_is_done_by_the_next_run(typed: Typed, trial: Deployment, since: Since) -> None:
    answer = typed.rerun_json("copy", start="15", end="25", no_wait=True)
    assert answer == {"recompute": [{"model": "t.copy", "ranges": [[10, 30]], "chunks": 2}], "recorded": True}
    assert trial.stale("copy") == ranges((10, 30))
    assert since("copy") == []
    trial.run()
    assert since("copy") == [(10, 20), (20, 30)]


@pytest.mark.parametrize("eager", [False, True])
def test_a_process_that_ends_after_recording_loses_nothing(trial: Deployment, since: Since, eager: bool) -> None:
    with trial.opened() as workspace:
        copy = workspace.project.graph.interval_model("t.copy")
        record(workspace, request(workspace, copy, 15, 25, eager=eager), "alice")
    with pytest.raises(Killed):
        trial.run(step=Fault("claimed", raising(Killed())))
    assert trial.run().failed == 0
    assert since("copy") == [(10, 20), (20, 30)]
    assert since("last") == ([(0, 10), (10, 20), (20, 30), (30, 40)] if eager else [])
    assert not any(trial.stale(name) for name in NAMES)


def test_an_eager_cascade_marks_everything_below_and_computes_each_once(
    typed: Typed, trial: Deployment, since: Since
) -> None:
    correct(trial, "n = 12")
    answer = typed.rerun_json("copy", start="12", end="13", cascade="eager")
    assert answer["recompute"] == [
        {"model": "t.copy", "ranges": [[10, 20]], "chunks": 1},
        {"model": "t.child", "ranges": [[0, 20]], "chunks": 1},
        {"model": "t.rest", "ranges": [[0, 20]], "chunks": 2},
        {"model": "t.last", "ranges": [[0, 20]], "chunks": 2},
    ]
    assert {name: since(name) for name in NAMES} == {
        "copy": [(10, 20)],
        "child": [(0, 20)],
        "rest": [(0, 10), (10, 20)],
        "last": [(0, 10), (10, 20)],
    }
    assert is_right(trial)


def test_a_lazy_cascade_gives_the_same_rows_with_less_work(typed: Typed, trial: Deployment, since: Since) -> None:
    correct(trial, "n = 12")
    typed.rerun("copy", start="12", end="13", cascade="lazy")
    assert is_right(trial)
    assert since("last") == []


@pytest.mark.parametrize(
    ("where", "computed"),
    [
        ('word = "it\'s"', [(10, 20)]),
        ("word = 'a \"b\"; c'", [(20, 30)]),
        ("word is null", [(30, 40)]),
        ("word <> 'x'", [(0, 10), (10, 20), (20, 30)]),
        ("n in (9, 10) and value >= 0", [(0, 10), (10, 20)]),
    ],
)
def test_where_takes_the_chunks_whose_stored_rows_meet_it(
    trial: Deployment, where: str, computed: list[tuple[int, int]]
) -> None:
    with trial.opened() as workspace:
        copy = workspace.project.graph.interval_model("t.copy")
        assert request(workspace, copy, None, None, where=where).scope == ranges(*computed)


def test_explain_says_who_asked_for_what(typed: Typed, trial: Deployment, since: Since) -> None:
    where = "word is null"
    typed.rerun("copy", where=where)
    assert since("copy") == [(30, 40)]
    with trial.opened() as workspace:
        newest = explained(workspace, "copy", "30")["reopened"][0]  # type: ignore[index]
        assert not [one for one in explained(workspace, "copy", "50")["reopened"] if one["where"]]  # type: ignore[attr-defined]
    assert newest["why"] == f"rerun by {getpass.getuser()} where {where}"
    assert (newest["state"], newest["ranges"], newest["open"]) == ("repaired", [[30, 40]], [])


def test_status_and_explain_show_people_what_is_open(
    typed: Typed, trial: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    typed.rerun("copy", start="12", end="13", no_wait=True)
    options = Options(project=trial.root, environ=trial.environ)
    inspect.status(options, "copy", gaps=False)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("t.copy")]
    assert re.search(r"0 \.\. 60 +60 +1 range, oldest \d+ s ", line)
    inspect.explain(options, "copy", "12")
    assert re.search(rf"reopened: rerun by {getpass.getuser()}, [-0-9: ]+, open\n", capsys.readouterr().out)
    trial.run()
    inspect.explain(options, "copy", "12")
    assert re.search(r"reopened: rerun by .*, repaired [-0-9: ]+\n", capsys.readouterr().out)


def test_where_and_a_range_must_both_hold(typed: Typed, since: Since) -> None:
    typed.rerun("copy", where="word <> 'x'", start="20")
    assert since("copy") == [(20, 30)]


def test_where_that_nothing_meets_records_nothing(typed: Typed, trial: Deployment) -> None:
    assert "no row of t.copy there matches word = 'nobody'" in typed.rerun("copy", where="word = 'nobody'")
    before = trial.execute("select count(*) from invalidation")
    assert typed.rerun_json("copy", where="word = 'nobody'") == {"recompute": [], "recorded": False}
    assert trial.execute("select count(*) from invalidation") == before


def test_where_that_cannot_be_asked_is_a_clear_error(typed: Typed, trial: Deployment) -> None:
    for where in ("select 1", "n = 1; delete from t.copy", "nothing = 1", "n in (select n from t.copy)"):
        with pytest.raises(UsageError, match="--where"):
            typed.rerun("copy", where=where)
    assert not trial.stale("copy")


def test_a_rerun_of_a_source_says_what_to_do_instead(typed: Typed) -> None:
    with pytest.raises(UsageError) as caught:
        typed.rerun("raw.numbers")
    assert "penstock invalidate raw.numbers" in str(caught.value.hint)


def test_failed_ranges_are_tried_again_and_nothing_else(typed: Typed, trial: Deployment) -> None:
    correct(trial, "n = 15", "-1")
    trial.model("share", "select n, 100 / (value + 1) as share from {{ ref('raw.numbers') }}")
    assert trial.run().failed == 1
    assert trial.covered("share") == ranges((0, 10), (20, 60))
    before = trial.chunks("share")
    with pytest.raises(typer.Exit):
        typed.rerun("share", failed=True)
    correct(trial, "n = 15", "0")
    assert "retrying 1 failed range of t.share" in typed.rerun("share", failed=True)
    now = trial.chunks("share")
    for chunk in before:
        now.remove(chunk)
    assert now == [(10, 20)]
    assert "nothing of t.share has failed" in typed.rerun("share", failed=True)
    trial.forget("share")
    trial.run()
    assert is_right(trial)


# reset


def test_a_reset_asks_first(typed: Typed, trial: Deployment) -> None:
    before = trial.current("copy").accepted_snapshot
    with pytest.raises(UsageError, match="emptied") as caught:
        typed.rerun("copy", reset=True)
    assert caught.value.hint == "repeat it with --yes"
    assert trial.current("copy").accepted_snapshot == before


def test_a_report_of_rows_that_no_log_has_shown_is_an_invalidation(
    typed: Typed, trial: Deployment, since: Since
) -> None:
    typed.invalidate("raw.numbers", start="32", end="33", key="nothing happened")
    assert since("copy") == [(30, 40)]
    correct(trial, "n = 32")
    trial.run()
    typed.invalidate("raw.numbers", start="32", end="33")
    assert since("copy") == [(30, 40)] * 3


def test_a_reset_builds_the_table_once_more_and_repairs_those_who_read_it(
    typed: Typed, trial: Deployment, since: Since
) -> None:
    DeltaTable(str(trial.landing("numbers"))).delete("n >= 40 and n < 50")
    correct(trial, "n = 51")
    answer = typed.rerun_json("copy", reset=True, yes=True)
    assert answer["recompute"] == [{"model": "t.copy", "ranges": [[0, 60]], "chunks": 6}]
    assert since("copy") == [(start, start + 10) for start in range(0, 60, 10)]
    assert is_right(trial)
    assert trial.covered("copy") == ranges((0, 60))
    assert not any(trial.stale(name) for name in NAMES)
    assert trial.run().tasks == 0


def test_a_reset_that_the_database_never_heard_of_is_healed(trial: Deployment) -> None:
    with trial.opened(Fault("emptied", raising(Killed()))) as workspace, pytest.raises(Killed):
        copy = workspace.project.graph.interval_model("t.copy")
        reset(workspace, resettable(workspace, copy), "alice")
    assert len(DeltaTable(trial.place("copy")).to_pyarrow_table()) == 0
    held = len(trial.rows("copy"))
    assert held  # what was accepted is still served
    assert trial.run().failed == 0
    assert is_right(trial)
    assert len(DeltaTable(trial.place("copy")).to_pyarrow_table()) == held
    ((reason,),) = trial.execute("select reason from invalidation where actor = 'audit'")
    assert str(reason).startswith("a reset that did not finish emptied it at snapshot ")


def test_negative_control_a_reset_without_its_note_loses_rows(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit goes by the note: one that names no ranges passes for a commit that changed nothing."""

    def silent(location: str, emptying: Emptying, storage: object, head: object) -> object:
        return empty(location, Emptying(emptying.task, emptying.model, emptying.generation, NOTHING), None)

    monkeypatch.setattr("penstock.runtime.redo.reset.empty", silent)
    with trial.opened(Fault("emptied", raising(Killed()))) as workspace, pytest.raises(Killed):
        copy = workspace.project.graph.interval_model("t.copy")
        reset(workspace, resettable(workspace, copy), "alice")
    trial.run()
    assert not trial.stale("copy")
    trial.rerun("copy", 0, 10)
    assert len(trial.rows("copy")) == 10  # nobody noticed, and the next commit stands on the emptied table
    trial.rerun("copy")
    assert is_right(trial)


# invalidate


def test_a_change_that_was_seen_and_reported_is_computed_once(typed: Typed, trial: Deployment, since: Since) -> None:
    correct(trial, "n >= 12 and n < 14")
    said = typed.invalidate("raw.numbers", start="12", end="14", key="reorg-12")
    assert "t.copy" in said
    assert "where rows change: t.child, t.rest, t.last" in said
    assert since("copy") == [(10, 20)]
    assert is_right(trial)
    assert "reorg-12 is already recorded" in typed.invalidate("raw.numbers", start="12", end="14", key="reorg-12")
    again = typed.invalidate("raw.numbers", start="12", end="14", key="reported once more")
    assert "have read snapshot 8 already" in again
    assert "penstock rerun t.copy" in again
    assert since("copy") == [(10, 20)]


def test_a_key_that_was_recorded_for_another_range_is_refused(typed: Typed, trial: Deployment, since: Since) -> None:
    typed.invalidate("raw.numbers", start="12", end="14", key="reorg-a")
    typed.invalidate("raw.numbers", where="n = 15", key="reorg-b")
    done = since("copy")
    for key, asked in (
        ("reorg-a", {"start": "30", "end": "40"}),
        ("reorg-a", {"start": "12", "end": "15"}),
        ("reorg-a", {"where": "n = 12"}),
        ("reorg-b", {"start": "15", "end": "16"}),
        ("reorg-b", {"where": "n = 16"}),
    ):
        with pytest.raises(UsageError, match=f"the key {key} was recorded for") as refused:
            typed.invalidate("raw.numbers", key=key, **asked)
        assert refused.value.exit_code == 2
        assert "another --key" in str(refused.value.hint)
    assert "already recorded" in typed.invalidate("raw.numbers", where="n = 15", key="reorg-b")
    assert since("copy") == done


def test_invalidate_in_json_says_what_is_computed_again(typed: Typed, trial: Deployment) -> None:
    correct(trial, "n = 12")
    answer = typed.invalidate_json("numbers", start="12", end="13", key="k", no_wait=True)
    assert answer == {"recompute": [{"model": "t.copy", "ranges": [[10, 20]], "chunks": 1}], "recorded": True}
    assert typed.invalidate_json("numbers", start="12", end="13", key="k") == {"recompute": [], "recorded": True}
    trial.run()
    assert is_right(trial)


def test_invalidate_with_a_condition_asks_for_what_the_rows_are_in(typed: Typed, trial: Deployment) -> None:
    correct(trial, "n = 33")
    answer = typed.invalidate_json("numbers", where="word is null", no_wait=True)
    assert answer["recompute"] == [{"model": "t.copy", "ranges": [[30, 40]], "chunks": 1}]
    trial.run()
    assert "no row of raw.numbers there matches n < 0" in typed.invalidate("numbers", where="n < 0")


def test_invalidating_a_model_of_ours_asks_those_who_read_it(typed: Typed, since: Since) -> None:
    answer = typed.invalidate_json("t.copy", start="5", end="6")
    assert answer["recompute"] == [{"model": "t.child", "ranges": [[0, 20]], "chunks": 1}]
    assert (since("copy"), since("child"), since("rest")) == ([], [(0, 20)], [])
    assert "t.last has no consumers" in typed.invalidate("t.last", start="5", end="6")


def test_invalidate_of_what_is_not_there_is_a_clear_error(typed: Typed) -> None:
    with pytest.raises(UnknownModelError) as caught:
        typed.invalidate("raw.numbres", start="1", end="2")
    assert caught.value.hint == "did you mean raw.numbers?"
    with pytest.raises(UsageError, match="say which positions"):
        typed.invalidate("raw.numbers")
    with pytest.raises(UsageError, match="--reason"):
        typed.invalidate("raw.numbers", start="1", end="2", reason=" ")


def test_a_lookup_whose_changes_are_ignored_says_so(typed: Typed, trial: Deployment) -> None:
    trial.write("models/external/names.yml", f'location: "{trial.landing("names")}"\n')
    commit(trial.landing("names"), {"n": [1], "name": ["one"]})
    trial.model("named", "select a.n, name from {{ ref('raw.numbers') }} a join {{ ref('raw.names') }} b on a.n = b.n")
    trial.run()
    assert "ignore its changes" in typed.invalidate("raw.names")
    with pytest.raises(UsageError, match="no position"):
        typed.invalidate("raw.names", start="1", end="2")
    trial.forget("named")
    (trial.root / "models/external/names.yml").unlink()
    trial.run()


# last: the old rows are gone for good


def test_what_was_made_of_rows_that_left_stays_and_a_rerun_says_so(
    typed: Typed, trial: Deployment, since: Since
) -> None:
    assert is_right(trial)
    held = trial.rows("copy")
    DeltaTable(str(trial.landing("numbers"))).delete("n < 15")
    assert trial.run().tasks == 0
    assert trial.status("raw.numbers")["expired_before"] == 15
    said = typed.rerun("copy", start="5", end="35")
    assert "0 .. 20 is not recomputed" in said
    assert "20 .. 40" in said
    assert since("copy") == [(20, 30), (30, 40)]
    with pytest.raises(UsageError, match="have expired; its rows are kept") as caught:
        typed.rerun("copy", start="5", end="6")
    assert caught.value.hint == "penstock rerun t.copy --reset builds it from the rows that are left"
    assert "no consumer of raw.numbers has computed" in typed.invalidate("raw.numbers", start="2", end="4")
    with pytest.raises(UsageError, match="before 20 are lost"):
        typed.rerun("copy", reset=True)
    assert trial.rows("copy") == held
    assert not any(trial.stale(name) for name in NAMES)
