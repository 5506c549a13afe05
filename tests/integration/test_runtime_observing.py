"""What is known of a source after a look at it, and after one that failed?"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deployment import Deployment

from penstock.answers.changes import planned_changes
from penstock.runtime.place.workspace import apply
from penstock.values.intervals import NOTHING, ranges

COPY = "select n, value from {{ ref('raw.numbers') }}"
ALWAYS = "scan: {incremental: 0, full: 0}\n"
PROGRAM = f"axis: number\nexec: sh bounds.sh\n{ALWAYS}timeout: 1s\n"
BOUNDS = """---
location: "{place}"
position: n
axis: number
---
select min(n) as min, max(n) as max from {{{{ ref('raw.numbers') }}}}
{{% if cache.is_incremental_scan %}} where n > {{{{ cache.previous_max }}}} {{% endif %}}
"""


@pytest.fixture
def trial(tmp_path: Path, dsn: str) -> Deployment:
    made = Deployment.empty(tmp_path, dsn)
    made.model("copy", COPY)
    return made


@pytest.fixture
def told(trial: Deployment) -> Deployment:
    """The bounds of the source come from a program, which has said 0..39 once."""
    trial.land("numbers", range(60))
    trial.source("numbers", PROGRAM)
    says(trial, '{"min": 0, "max": 39}')
    assert trial.run().failed == 0
    return trial


def says(trial: Deployment, text: str) -> None:
    trial.write("bounds.sh", f"echo '{text}'\n")


def seen(trial: Deployment) -> object:
    return trial.status("raw.numbers")["available"]


# by a program


def test_s0_48_a_program_tells_the_bounds(told: Deployment) -> None:
    assert seen(told) == [[0, 40]]
    assert told.covered("copy") == ranges((0, 40))
    assert told.status("raw.numbers")["health"] == "ok"


def test_what_a_program_tells_anew_is_worked_on(told: Deployment) -> None:
    says(told, '{"min": 0, "max": 59}')
    told.run()
    assert told.covered("copy") == ranges((0, 60))


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo '{min: 0'", 'must print {"min": …, "max": …}'),
        ("echo '[0, 59]'", 'must print {"min": …, "max": …}'),
        ("echo '{\"min\": 0}'", 'must print {"min": …, "max": …}'),
        ("echo no luck >&2; exit 3", "exit code 3: no luck"),
        ('echo \'{"min": 0.5, "max": 59}\'', "whole numbers"),
        ('echo \'{"min": "0", "max": "59"}\'', "whole numbers"),
        ('echo \'{"min": false, "max": true}\'', "whole numbers"),
        ('echo \'{"min": 60, "max": 5}\'', "minimum of 60 above its end"),
        ('echo \'{"min": 60, "max": null}\'', "gave no maximum"),
        ('echo \'{"min": null, "max": 59}\'', "gave no minimum"),
        ("exec sleep 30", "could not be run"),
    ],
)
def test_s0_48_b_8_a_bad_answer_keeps_the_old_bounds_and_shows_in_status(
    told: Deployment, script: str, why: str
) -> None:
    told.write("bounds.sh", script + "\n")
    summary = told.run()
    assert (summary.tasks, summary.failed) == (0, 0)
    shown = told.status("raw.numbers")
    assert shown["available"] == [[0, 40]]
    assert shown["health"] == "failing"
    assert why in str(shown["last_error"])
    assert shown["reason"] == shown["last_error"]


def test_a_program_that_is_not_there_is_an_error_of_the_source(trial: Deployment) -> None:
    trial.land("numbers", range(60))
    trial.source("numbers", "axis: number\nexec: no-such-program --at-all\n")
    assert trial.run().failed == 0
    assert "could not be run" in str(trial.status("raw.numbers")["last_error"])
    assert "could not be run" in str(trial.status("t.copy")["reason"])


def test_the_error_is_gone_after_the_next_good_answer(told: Deployment) -> None:
    told.write("bounds.sh", "exit 1\n")
    told.run()
    says(told, '{"min": 0, "max": 49}')
    told.run()
    shown = told.status("raw.numbers")
    assert (shown["health"], shown["last_error"]) == ("ok", None)
    assert shown["available"] == [[0, 50]]


def test_null_twice_means_that_there_are_no_rows(told: Deployment) -> None:
    says(told, '{"min": null, "max": null}')
    told.run()
    assert seen(told) == []
    assert told.status("raw.numbers")["reason"] == "it has no rows yet"
    assert told.covered("copy") == ranges((0, 40))


def test_b_9_a_single_row_at_position_0_is_a_row(trial: Deployment) -> None:
    trial.land("numbers", [0])
    trial.source("numbers", PROGRAM)
    trial.model("copy", COPY, "interval: 1")
    says(trial, '{"min": 0, "max": 0}')
    trial.run()
    assert seen(trial) == [[0, 1]]
    assert trial.rows("copy") == [(0, 0)]


def test_b_9_positions_below_0_are_positions(trial: Deployment) -> None:
    trial.land("numbers", range(-20, 1))
    trial.source("numbers")
    trial.run()
    assert seen(trial) == [[-20, 1]]
    assert trial.covered("copy") == ranges((-20, 0))


# from the log


def test_a_number_without_an_axis_is_an_error_that_says_what_to_add(trial: Deployment) -> None:
    trial.land("numbers", range(60))
    trial.source("numbers", "")
    summary = trial.run()
    assert (summary.tasks, summary.failed) == (0, 0)
    shown = trial.status("raw.numbers")
    assert shown["health"] == "blocked"
    assert "axis must be given" in str(shown["last_error"])
    assert "n is a long" in str(shown["last_error"])


def test_a_table_that_is_not_there_is_an_error_in_status_until_it_is(trial: Deployment) -> None:
    trial.source("numbers")
    summary = trial.run()
    assert (summary.tasks, summary.failed) == (0, 0)
    assert "there is no table at" in str(trial.status("raw.numbers")["last_error"])
    assert trial.status("t.copy")["health"] == "blocked"
    trial.land("numbers", range(20))
    trial.run()
    assert trial.status("raw.numbers")["last_error"] is None
    assert trial.covered("copy") == ranges((0, 20))


def test_one_source_that_cannot_be_read_holds_up_no_other(trial: Deployment) -> None:
    trial.source("numbers")
    trial.source("absent")
    trial.model("waits", "select n, value from {{ ref('raw.absent') }}")
    trial.land("numbers", range(20))
    assert trial.run().failed == 0
    assert trial.covered("copy") == ranges((0, 20))
    assert trial.status("t.waits")["coverage"] == []


def test_a_table_without_rows_is_observed_and_offers_nothing(trial: Deployment) -> None:
    trial.source("numbers")
    trial.land("numbers", range(5))
    DeltaTable(str(trial.landing("numbers"))).delete()
    trial.run()
    assert seen(trial) == []
    assert trial.status("raw.numbers")["health"] == "blocked"


def test_a_table_that_vanished_keeps_its_old_bounds(trial: Deployment) -> None:
    trial.source("numbers")
    trial.land("numbers", range(20))
    trial.run()
    shutil.rmtree(trial.landing("numbers"))
    assert trial.run().failed == 0
    shown = trial.status("raw.numbers")
    assert (shown["available"], shown["health"]) == ([[0, 20]], "failing")


def test_a_source_replaced_by_another_table_is_seen_as_that_table(trial: Deployment) -> None:
    trial.source("numbers")
    trial.land("numbers", range(20))
    trial.run()
    with trial.opened() as workspace:
        old = workspace.state.views.whole().sources["raw.numbers"]
    shutil.rmtree(trial.landing("numbers"))
    trial.land("numbers", range(40))
    trial.run()
    with trial.opened() as workspace:
        new = workspace.state.views.whole().sources["raw.numbers"]
    assert old.snapshot == new.snapshot == 0
    assert old.table_id != new.table_id
    assert (new.min_pos, new.end_pos) == (0, 40)


def test_what_was_built_from_a_replaced_table_is_built_again(trial: Deployment) -> None:
    trial.source("numbers")
    trial.model("child", "select n, value + 1 as value from {{ ref('t.copy') }}", "interval: 20")
    for factor in (7, 9, 7):
        shutil.rmtree(trial.landing("numbers"), ignore_errors=True)
        trial.land("numbers", range(40), factor=factor)
        assert trial.run().failed == 0
        assert trial.rows("copy") == [(n, n * factor) for n in range(40)]
        assert trial.rows("child") == [(n, n * factor + 1) for n in range(40)]


def test_lag_and_completeness_decide_where_a_source_ends(trial: Deployment) -> None:
    trial.land("numbers", range(40))
    trial.source("numbers", "axis: number\ncompleteness: watermark\nlag: 4\n")
    trial.run()
    assert seen(trial) == [[0, 35]]
    assert trial.covered("copy") == ranges((0, 30))


# by scans


@pytest.fixture
def scanned(trial: Deployment) -> Deployment:
    trial.write("models/external/numbers.sql", BOUNDS.format(place=trial.landing("numbers")))
    trial.land("numbers", range(101))
    trial.run()
    return trial


def is_incremental(sql: str) -> bool:
    return "where n >" in sql


def test_the_first_scan_is_a_full_one_and_the_next_has_to_be_due(scanned: Deployment) -> None:
    assert [is_incremental(sql) for sql in scanned.engine.scans] == [False]
    scanned.run()
    assert len(scanned.engine.scans) == 1
    assert seen(scanned) == [[0, 101]]


def test_b_7_an_incremental_scan_extends_the_bounds_and_forgets_nothing(scanned: Deployment) -> None:
    scanned.land("numbers", range(101, 111))
    scanned.move_clock(11)
    scanned.run()
    assert [is_incremental(sql) for sql in scanned.engine.scans] == [False, True]
    assert "n > 100" in scanned.engine.scans[1]
    assert seen(scanned) == [[0, 111]]
    assert scanned.covered("copy") == ranges((0, 110))


def test_b_8_an_incremental_scan_that_finds_nothing_keeps_the_bounds(scanned: Deployment) -> None:
    scanned.move_clock(11)
    scanned.run()
    assert len(scanned.engine.scans) == 2
    assert seen(scanned) == [[0, 101]]


def test_a_full_scan_is_due_again_and_may_shrink_the_bounds(scanned: Deployment) -> None:
    DeltaTable(str(scanned.landing("numbers"))).delete("n < 50")
    scanned.move_clock(11)
    scanned.run()
    assert seen(scanned) == [[0, 101]]
    scanned.move_clock(301)
    scanned.run()
    assert [is_incremental(sql) for sql in scanned.engine.scans] == [False, True, False]
    assert seen(scanned) == [[50, 101]]


def test_a_look_that_fails_keeps_the_bounds_and_is_repeated_at_once(scanned: Deployment) -> None:
    landing = scanned.landing("numbers")
    landing.rename(landing.with_name("away"))
    scanned.move_clock(301)
    assert scanned.run().failed == 0
    assert seen(scanned) == [[0, 101]]
    assert scanned.status("raw.numbers")["health"] == "failing"
    landing.with_name("away").rename(landing)
    scanned.run()
    assert scanned.status("raw.numbers")["health"] == "ok"
    assert len(scanned.engine.scans) == 2  # that a table is missing is seen in its log, not by a scan


def test_planning_scans_nothing(trial: Deployment) -> None:
    trial.write("models/external/numbers.sql", BOUNDS.format(place=trial.landing("numbers")))
    trial.land("numbers", range(101))
    with trial.opened() as workspace:
        rows = {row["model"]: row for row in planned_changes(workspace)}
    assert trial.engine.scans == []
    assert (rows["t.copy"]["change"], rows["t.copy"]["intervals"]) == ("new", 0)


def test_planning_looks_at_the_log_and_stores_nothing(trial: Deployment) -> None:
    trial.source("numbers")
    trial.land("numbers", range(60))
    with trial.opened() as workspace:
        rows = {row["model"]: row for row in planned_changes(workspace)}
        assert workspace.state.views.whole().sources == {}
        assert (rows["t.copy"]["change"], rows["t.copy"]["intervals"]) == ("new", 6)
        apply(workspace)
        assert workspace.state.views.whole().sources == {}


def test_planning_counts_late_rows_that_nobody_has_looked_at(trial: Deployment) -> None:
    trial.source("numbers")
    trial.model("sums", "select n, value from {{ ref('t.copy') }}")
    trial.land("numbers", range(60))
    trial.run()
    trial.land("numbers", [5, 35, 61])
    with trial.opened() as workspace:
        rows = {row["model"]: row["intervals"] for row in planned_changes(workspace)}
        assert (rows["t.copy"], rows["t.sums"]) == (2, 0)
        assert workspace.state.views.whole().working["t.copy"].stale == NOTHING
    assert trial.run("copy").intervals == 2
