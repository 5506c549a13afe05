"""Do the planner's rules give exact tables when real runs follow them?"""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from arrow_engine import ArrowEngine
from deployment import Deployment, commit, served
from faults import Fault, Killed, raising

from penstock.answers.verify import verify
from penstock.errors import StateError
from penstock.runtime.place.workspace import apply, open_workspace
from penstock.runtime.process.progress import Silent
from penstock.runtime.redo.reset import reset, resettable
from penstock.runtime.serve.run import run
from penstock.state.store import State
from penstock.values.intervals import Interval, ranges

COPY = "select n, value from {{ ref('raw.numbers') }}"
LOOK_BACK = """
select a.n, sum(b.value) as total from {{ ref('t.copy') }} a
join {{ ref('t.copy') }} b on b.n > a.n - 25 and b.n <= a.n
group by a.n
"""
BUCKETS = "select n - n % 10 as n, sum(value) as value, count(*) as rows from {{ ref('raw.numbers') }} group by 1"


@pytest.fixture
def trial(tmp_path: Path, dsn: str) -> Deployment:
    made = Deployment.empty(tmp_path, dsn)
    made.source("numbers")
    return made


def copied(start: int, end: int, factor: int = 7) -> list[tuple[object, ...]]:
    return [(n, n * factor) for n in range(start, end)]


def differences(trial: Deployment) -> int:
    """What `verify` finds when it computes everything again."""
    with trial.opened() as workspace:
        return verify(workspace, workspace.interval_models(()), None, None).differences


# look-back


def rolling(upto: int, first: int = 0) -> list[tuple[object, ...]]:
    return [(n, sum(m * 7 for m in range(max(first, n - 24), n + 1))) for n in range(first, upto)]


@pytest.fixture
def looking_back(trial: Deployment) -> Deployment:
    # a query that mentions its bounds is computed chunk by chunk, at most 32 in a task: the parent comes in three
    trial.model("copy", COPY + " where n >= {{ bounds.start }}", "interval: 4\nfill: {backfill: newest}")
    trial.model("rolling", LOOK_BACK, "interval: 10\ndependencies: [{model: t.copy, before: 25}]")
    trial.land("numbers", range(200))
    return trial


def test_a_look_back_into_a_parent_that_is_backfilled_newest_first_ends_exact(looking_back: Deployment) -> None:
    assert looking_back.run().failed == 0
    assert looking_back.rows("rolling") == rolling(200)
    assert differences(looking_back) == 0


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_look_back_ends_exact_however_often_the_run_is_killed(looking_back: Deployment, after: int) -> None:
    for _ in range(3):
        with suppress(Killed):
            looking_back.run(step=Fault("published", raising(Killed()), after=after))
        assert set(looking_back.rows("rolling")) <= set(rolling(200))
    looking_back.run()
    assert looking_back.rows("rolling") == rolling(200)


def test_a_chunk_waits_for_the_look_back_that_its_parent_has_not_built_yet(looking_back: Deployment) -> None:
    looking_back.model("copy", COPY, "interval: 10\nschedules: {backfill: off}")
    looking_back.run()
    assert looking_back.covered("copy") == ranges((190, 200))
    assert looking_back.rows("rolling") == rolling(200, 190)
    looking_back.model("copy", COPY, "interval: 10")
    looking_back.run()
    assert looking_back.rows("copy") == copied(0, 200)


def test_a_rerun_of_the_parent_reaches_as_far_as_the_look_back(looking_back: Deployment) -> None:
    looking_back.run()
    before = looking_back.chunks("rolling")
    commit(
        looking_back.landing("numbers"),
        {"n": range(200), "value": [n * (9 if n == 50 else 7) for n in range(200)]},
        mode="overwrite",
    )
    looking_back.rerun("copy", 50, 51)
    now = looking_back.chunks("rolling")
    for chunk in before:
        now.remove(chunk)
    assert now == [(50, 60), (60, 70), (70, 80)], "one row of the parent's chunk differs, not all of it"
    assert differences(looking_back) == 0


def test_fresh_rows_of_an_open_bucket_never_cause_a_repair(trial: Deployment) -> None:
    trial.source("numbers")
    trial.model("buckets", BUCKETS, "interval: {max: 20, min: 0, align: 10}")
    for end in (25, 28, 33, 47):
        trial.land("numbers", range(end) if end == 25 else range(end - 3, end))
        assert trial.run().failed == 0
    assert {task.lane for task in trial.tasks()} <= {"forward", "backfill"}
    trial.land("numbers", [23], factor=9)
    trial.run()
    assert [task.order.scope for task in trial.tasks() if task.lane == "repair"] == [ranges((20, 30))]
    assert differences(trial) == 0


def test_what_others_publish_before_somebody_says_yes_to_a_reset_is_rebuilt_too(trial: Deployment) -> None:
    trial.source("numbers")
    trial.model("copy", COPY, "interval: 10")
    trial.land("numbers", range(20))
    trial.run()
    with trial.opened(Fault("emptied", raising(Killed()))) as workspace:
        asked = resettable(workspace, workspace.project.graph.interval_model("t.copy"))
        trial.land("numbers", range(20, 40))
        trial.run()
        with pytest.raises(Killed):
            reset(workspace, asked, "alice")
    trial.run()
    assert [row[0] for row in trial.rows("copy")] == list(range(40))


# OR groups and optional inputs


@pytest.fixture
def either(trial: Deployment) -> Deployment:
    trial.source("fast")
    trial.source("slow")
    trial.model(
        "either", "select n, value from {{ ref('raw.fast') }}", "interval: 10\ndependencies: [[raw.fast, raw.slow]]"
    )
    return trial


def test_the_second_member_is_read_until_the_first_one_appears(either: Deployment) -> None:
    either.land("slow", range(40), factor=9)
    assert either.run().failed == 0
    assert either.rows("either") == copied(0, 40, 9)
    either.land("fast", range(35, 60))
    either.land("slow", range(40, 50), factor=9)
    assert either.run().failed == 0
    assert either.rows("either") == copied(0, 40, 9) + copied(40, 60)


def test_a_first_member_counts_from_its_first_row(either: Deployment) -> None:
    either.land("fast", range(25, 40))
    either.land("slow", range(40), factor=9)
    assert either.run().failed == 0
    assert either.rows("either") == copied(0, 30, 9) + copied(30, 40)


def test_a_member_that_ends_early_leaves_the_rest_to_the_next(either: Deployment) -> None:
    either.land("fast", range(25))
    either.land("slow", range(40), factor=9)
    assert either.run().failed == 0
    assert either.rows("either") == copied(0, 20) + copied(20, 40, 9)


def test_a_group_without_any_member_waits_and_says_for_whom(either: Deployment) -> None:
    assert either.run().tasks == 0
    shown = either.status("t.either")
    assert shown["health"] == "blocked"
    assert "raw.fast" in str(shown["reason"])


def test_an_optional_input_limits_nothing_and_is_read_where_it_has_rows(trial: Deployment) -> None:
    trial.source("extra")
    trial.model(
        "joined",
        "select a.n, coalesce(b.value, -1) as value from {{ ref('raw.numbers') }} a "
        "left join {{ ref('raw.extra') }} b on a.n = b.n",
        "interval: 10\ndependencies: [raw.numbers, {model: raw.extra, optional: true}]",
    )
    trial.land("numbers", range(40))
    trial.land("extra", range(15))
    assert trial.run().failed == 0
    assert trial.rows("joined") == copied(0, 15) + [(n, -1) for n in range(15, 40)]


def test_an_optional_input_without_a_table_has_no_columns_so_its_reader_fails_at_once(trial: Deployment) -> None:
    trial.source("extra")
    trial.model(
        "joined",
        "select a.n, b.value from {{ ref('raw.numbers') }} a left join {{ ref('raw.extra') }} b on a.n = b.n",
        "interval: 10\ndependencies: [raw.numbers, {model: raw.extra, optional: true}]",
    )
    trial.land("numbers", range(20))
    summary = trial.run()
    assert summary.failed == 2
    assert "raw.extra, which has no table yet" in summary.errors[0]
    assert {task.attempt for task in trial.tasks("joined")} == {1}
    trial.land("extra", range(5))
    assert trial.run().failed == 0
    assert len(trial.rows("joined")) == 20


# where chunks begin and end


def test_lag_keeps_away_from_the_newest_rows(trial: Deployment) -> None:
    trial.source("numbers", "axis: number\nlag: 5\n")
    trial.model("copy", COPY)
    trial.land("numbers", range(44))
    trial.run()
    assert trial.rows("copy") == copied(0, 30)
    trial.land("numbers", range(44, 45))
    trial.run()
    assert trial.rows("copy") == copied(0, 40)


def test_spark_begins_to_start_when_work_was_planned_and_not_before(trial: Deployment) -> None:
    trial.source("numbers", "axis: number\nlag: 5\n")
    trial.model("copy", COPY)
    trial.land("numbers", range(9))
    trial.run()
    assert trial.engine.begun == 0
    began: list[int] = []
    trial.land("numbers", range(9, 44))
    trial.run(step=lambda label: began.append(trial.engine.begun))
    assert began[0] > 0
    before = trial.engine.begun
    trial.land("numbers", range(44, 45))
    trial.model("copy", COPY, "interval: 1000")
    trial.run()
    assert trial.engine.begun == before


def test_limits_cut_what_is_built(trial: Deployment) -> None:
    trial.model("copy", COPY, "interval: 10\nlimits: {min: 15, max: 33}")
    trial.land("numbers", range(60))
    trial.run()
    assert trial.rows("copy") == copied(15, 33)
    assert trial.run().tasks == 0
    assert "limits.max" in str(trial.status("t.copy")["reason"])


def test_the_first_chunk_is_the_aligned_one_that_holds_the_first_row(trial: Deployment) -> None:
    trial.model("copy", COPY)
    trial.land("numbers", range(17, 43))
    trial.run()
    assert trial.covered("copy") == ranges((10, 40))
    assert trial.rows("copy") == copied(17, 40)


def test_partial_chunks_follow_a_source_that_grows(trial: Deployment) -> None:
    trial.model("copy", COPY, "interval: {max: 20, min: 5}")
    had = 0
    for upto in (3, 7, 8, 13, 30, 31, 57, 58, 80):
        trial.land("numbers", range(had, upto))
        had = upto
        assert trial.run().failed == 0
        end = trial.covered("copy").end or 0
        assert upto - end < 5
        assert trial.rows("copy") == copied(0, end)
        assert trial.run().tasks == 0
    assert all(end - start <= 20 for start, end in trial.chunks("copy"))
    assert differences(trial) == 0


def test_with_min_0_every_new_row_is_taken_at_once(trial: Deployment) -> None:
    trial.model("copy", COPY, "interval: {max: 20, min: 0}")
    for upto in range(1, 8):
        trial.land("numbers", [upto - 1])
        trial.run()
        assert trial.rows("copy") == copied(0, upto)


def test_the_open_bucket_of_a_grouped_query_is_computed_again_until_it_is_full(trial: Deployment) -> None:
    trial.model("buckets", BUCKETS, "interval: {max: 20, min: 1, align: 10}")
    trial.model("copied", "select n, value from {{ ref('t.buckets') }}", "interval: 10")
    had = 0
    for upto in (3, 9, 10, 14, 25, 39, 40):
        trial.land("numbers", range(had, upto))
        had = upto
        assert trial.run().failed == 0
        wanted = [
            (start, min(10, upto - start), sum(n * 7 for n in range(start, min(upto, start + 10))))
            for start in range(0, upto, 10)
        ]
        assert trial.rows("buckets") == wanted
        assert trial.rows("copied") == [(n, value) for n, rows, value in wanted if rows == 10]


def test_s0_59_another_interval_size_keeps_what_is_there_without_gap_or_overlap(trial: Deployment) -> None:
    trial.model("copy", COPY, "interval: 60")
    trial.model("child", "select n, value from {{ ref('t.copy') }}", "interval: 60")
    trial.land("numbers", range(200))
    trial.run()
    place = trial.place("copy")
    trial.model("copy", COPY, "interval: 120")
    trial.land("numbers", range(200, 500))
    assert trial.run().failed == 0
    assert trial.place("copy") == place
    assert trial.covered("copy") == trial.covered("child") == ranges((0, 480))
    assert trial.rows("copy") == trial.rows("child") == copied(0, 480)
    with trial.opened() as workspace:
        current = workspace.state.views.whole().current["t.copy"]
        kept = sorted(record.interval for record in workspace.state.history.covers(current.no, current.covered))
    assert all(one.end <= other.start for one, other in pairwise(kept))
    assert {Interval(0, 60), Interval(60, 120), Interval(240, 360)} <= set(kept)
    assert differences(trial) == 0


def test_s0_59_a_smaller_interval_keeps_what_is_there_too(trial: Deployment) -> None:
    trial.model("copy", COPY, "interval: 120")
    trial.land("numbers", range(200))
    trial.run()
    trial.model("copy", COPY, "interval: 60")
    assert trial.run().failed == 0
    assert trial.chunks("copy") == [(0, 120), (120, 180)]
    assert trial.rows("copy") == copied(0, 180)


def test_a_model_that_begins_at_the_newest_chunk_ends_with_all_of_it(trial: Deployment) -> None:
    trial.model("copy", COPY, "interval: 10\nfill: {direction: head}")
    trial.model("oldest", COPY, "interval: 10\nfill: {direction: tail, allow_gap_skipping: false}")
    trial.land("numbers", range(95))
    trial.run()
    assert trial.rows("copy") == trial.rows("oldest") == copied(0, 90)


# where the state is


def test_a_given_state_database_has_to_be_migrated_first(tmp_path: Path, dsn: str) -> None:
    made = Deployment(tmp_path, dsn, f"fresh_{os.getpid()}")
    made.source("numbers")
    made.model("copy", COPY)
    made.land("numbers", range(20))
    with pytest.raises(StateError) as refused:
        made.run()
    assert "penstock migrate" in str(refused.value.hint)
    assert State.migrated(dsn, made.schema)
    assert State.migrated(dsn, made.schema) == ()
    made.run()
    assert made.rows("copy") == copied(0, 20)
    made.execute(f"drop schema {made.schema} cascade")


def test_without_a_state_database_the_embedded_one_is_used_and_remembers(tmp_path: Path) -> None:
    root = tmp_path / "a project with spaces"
    files = {
        "penstock.yml": "name: trial\ndatabases: {external: raw, transformation: t}\n",
        "models/external/numbers.yml": "location: ./landing/numbers\nposition: n\naxis: number\n",
        "models/transformations/copy.sql": f"---\ninterval: 10\nposition: n\n---\n{COPY}\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    tasks = []
    for start, end in ((0, 20), (20, 50)):
        commit(root / "landing/numbers", {"n": range(start, end), "value": [n * 7 for n in range(start, end)]})
        with open_workspace(root, dict(os.environ)) as workspace:
            workspace.engine = ArrowEngine()  # type: ignore[assignment]
            apply(workspace)
            tasks.append(run(workspace, workspace.interval_models(()), Silent()).intervals)
            assert served(workspace, "copy") == copied(0, end)
            stored = workspace.state.views.whole().current["t.copy"].location
        assert not stored.startswith("/")
        assert (root / "warehouse" / stored / "_delta_log").is_dir()
    assert tasks == [2, 3]
