"""What becomes of a run in which something goes wrong?"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier

import pytest
from deployment import Deployment, Heard, commit
from faults import Fault, Killed, raising
from fuzzing import FUZZ

from penstock.answers import status as runtime_status
from penstock.answers.explain import explained
from penstock.answers.status import Condition
from penstock.errors import EngineError, QueryError
from penstock.runtime.place.workspace import apply
from penstock.runtime.plan.reconcile import reconcile
from penstock.runtime.process.progress import Finished, Silent
from penstock.runtime.serve.run import Summary, _Run, run
from penstock.values.intervals import Interval, ranges
from penstock.values.tasks import Order

CHILD = Path(__file__).parent.parent / "crash" / "child.py"
COPY = "select n, value from {{ ref('raw.numbers') }}"
ONE_BAD_ROW = "select n, 100 / (n - 17) as share from {{ ref('raw.numbers') }}"
UPWARDS = "interval: 10\nfill: {direction: tail}"


@pytest.fixture
def trial(tmp_path: Path, dsn: str) -> Deployment:
    made = Deployment.empty(tmp_path, dsn)
    made.source("numbers")
    made.land("numbers", range(80))
    return made


def copied(upto: int, factor: int = 7) -> list[tuple[object, ...]]:
    return [(n, n * factor) for n in range(upto)]


# the query or its data is at fault


def test_one_bad_chunk_of_a_batch_is_dead_and_its_neighbours_are_done(trial: Deployment) -> None:
    trial.model("share", ONE_BAD_ROW, UPWARDS)
    summary = trial.run()
    assert summary.failed == 1
    assert summary.intervals == 7
    assert "Divide by zero" in summary.errors[0]
    assert trial.covered("share") == ranges((0, 10), (20, 80))
    assert [row[0] for row in trial.rows("share")] == [n for n in range(80) if not 10 <= n < 20]
    (dead,) = (task for task in trial.tasks("share") if task.state == "dead")
    assert dead.order.scope == ranges((10, 20))


def test_a_dead_chunk_shows_in_status_with_its_error(trial: Deployment) -> None:
    trial.model("share", ONE_BAD_ROW, UPWARDS)
    trial.run()
    shown = trial.status("t.share")
    assert shown["health"] == "failing"
    assert "Divide by zero" in str(shown["reason"])
    assert shown["tasks"] == {"queued": 0, "running": 0, "retrying": 0, "dead": 1}


def test_the_next_run_tries_a_dead_chunk_again_once(trial: Deployment) -> None:
    trial.model("share", ONE_BAD_ROW, UPWARDS)
    trial.run()
    before = len(trial.tasks("share"))
    again = trial.run()
    assert (again.tasks, again.failed) == (0, 1)
    assert [task.attempt for task in trial.tasks("share")[before:]] == [1]
    assert trial.status("t.share")["tasks"]["dead"] == 1  # type: ignore[index]


def test_a_dead_chunk_is_forgotten_once_its_cause_is_fixed(trial: Deployment) -> None:
    trial.model("share", ONE_BAD_ROW, UPWARDS)
    trial.run()
    trial.model("share", ONE_BAD_ROW.replace("17", "1000"), UPWARDS)
    assert trial.run().failed == 0
    shown = trial.status("t.share")
    assert (shown["health"], shown["last_error"]) == ("ok", None)
    assert shown["coverage"] == [[0, 80]]


def test_a_child_is_built_where_its_parent_is_not_dead(trial: Deployment) -> None:
    trial.model("share", ONE_BAD_ROW, UPWARDS)
    trial.model("child", "select n, share from {{ ref('t.share') }}", "interval: 10")
    assert trial.run().failed == 1
    assert trial.covered("child") == ranges((0, 10), (20, 80))


def test_a_model_with_a_gap_or_a_stale_range_that_nothing_works_on_is_never_ok(trial: Deployment) -> None:
    trial.model("share", ONE_BAD_ROW, UPWARDS)
    trial.model("child", "select n, share from {{ ref('t.share') }}", "interval: 10")
    trial.run()
    shown = trial.status("t.child")
    assert shown["health"] == "blocked"
    assert str(shown["reason"]).startswith("gap [10, 20): waiting for t.share: ")
    with trial.opened() as workspace:
        workspace.state.control.pause("t.share", "test")
        workspace.state.invalidations.invalidate("t.share", ranges((30, 40)), "test", "test")
        workspace.state.invalidations.invalidate("t.child", ranges((30, 40)), "test", "test")
    shown = trial.status("t.child")
    assert (shown["health"], shown["stale"]) == ("blocked", [[30, 40]])
    assert str(shown["reason"]).startswith("stale: waiting for t.share: ")


def resting_beside_a_gap(trial: Deployment) -> Mapping[str, object]:
    """What is said of a model with a gap that waits for a parent, while nothing is under way."""
    trial.model("share", ONE_BAD_ROW, UPWARDS)
    trial.model("child", "select n, share from {{ ref('t.share') }}", "interval: 10")
    trial.run()
    shown = trial.status("t.child")
    assert shown["tasks"] == {"queued": 0, "running": 0, "retrying": 0, "dead": 0}
    assert shown["coverage"] == [[0, 10], [20, 80]]
    return shown


def test_negative_control_without_the_rule_a_model_with_a_gap_is_ok(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but that rule keeps `ok` away from a gap: neither its tasks nor its errors would."""
    assert resting_beside_a_gap(trial)["health"] == "blocked"
    monkeypatch.setattr(runtime_status, "_resting", lambda seen, waits: Condition("ok", "up to date"))
    assert trial.status("t.child")["health"] == "ok"


def test_rows_outside_of_the_interval_fail_the_attempt_and_nothing_is_published(trial: Deployment) -> None:
    trial.model("shifted", "select n + {{ bounds.end }} as n, value from {{ ref('raw.numbers') }}", UPWARDS)
    summary = trial.run()
    assert 3 <= summary.failed <= 5
    [said] = summary.errors
    assert "outside" in said
    assert trial.rows("shifted") == []


def test_what_its_author_has_to_mend_names_the_model_and_its_file(trial: Deployment) -> None:
    trial.model("copy", COPY, "interval: 80")
    summary = trial.run(step=Fault("staged", raising(QueryError("two columns are named a"))))
    [said] = summary.errors
    assert "t.copy (models/transformations/copy.sql): two columns are named a" in said


def test_a_query_that_cannot_be_understood_is_not_tried_again(trial: Deployment) -> None:
    trial.model("typo", "select n, valeu from {{ ref('raw.numbers') }}", "interval: 80")
    assert trial.run().failed == 1
    (task,) = trial.tasks("typo")
    assert (task.state, task.attempt) == ("dead", 1)
    assert "valeu" in str(task.error)


def test_a_template_that_fails_for_one_chunk_is_not_tried_again(trial: Deployment) -> None:
    trial.model("odd", "select n, {{ 100 // (bounds.start - 30) }} as odd from {{ ref('raw.numbers') }}", UPWARDS)
    summary = trial.run()
    assert (summary.failed, summary.intervals) == (1, 7)
    assert trial.covered("odd") == ranges((0, 30), (40, 80))
    assert all(task.attempt == 1 for task in trial.tasks("odd"))


# every interval fails alike

ALL_BAD = "select n, value / (n - n) as share from {{ ref('raw.numbers') }}"


def hundreds(trial: Deployment) -> Deployment:
    trial.land("numbers", range(80, 3000))
    return trial


def attempts(trial: Deployment) -> int:
    return sum(task.attempt for task in trial.tasks())


@pytest.mark.parametrize("more", ["", ", {{ bounds.start }} as began"], ids=["widened", "union"])
def test_what_fails_in_all_of_300_chunks_is_suspended_after_a_few_attempts(trial: Deployment, more: str) -> None:
    hundreds(trial).model("share", ALL_BAD.replace(" as share", f" as share{more}"), UPWARDS)
    summary = trial.run()
    assert 0 < summary.failed <= 12
    assert attempts(trial) <= 12
    [said] = summary.errors
    assert said.startswith("t.share suspended until its query or an input changes, or penstock resume ")
    assert "every interval fails with the same error: " in said
    assert "Divide by zero" in said
    shown = trial.status("t.share")
    assert (shown["health"], shown["tasks"]["queued"]) == ("suspended", 0)  # type: ignore[index]
    assert "Divide by zero" in str(shown["reason"])
    assert shown["coverage"] == []
    with trial.opened() as workspace:
        told = explained(workspace, "t.share", None)
    assert (told["decision"], told["reason"]) == ("wait", shown["reason"])


def test_a_bad_chunk_of_300_is_still_found_and_the_rest_is_done(trial: Deployment) -> None:
    hundreds(trial).model("share", ONE_BAD_ROW.replace("17", "1717"), UPWARDS)
    summary = trial.run()
    assert (summary.failed, summary.intervals) == (1, 299)
    assert trial.covered("share") == ranges((0, 1710), (1720, 3000))
    assert attempts(trial) <= 25


def test_the_next_run_tries_a_suspended_model_again_and_ends_as_soon(trial: Deployment) -> None:
    hundreds(trial).model("share", ALL_BAD, UPWARDS)
    trial.run()
    before = attempts(trial)
    assert trial.run().failed
    assert 0 < attempts(trial) - before <= 12


def test_a_suspended_model_goes_on_with_another_query(trial: Deployment) -> None:
    hundreds(trial).model("share", ALL_BAD, UPWARDS)
    trial.run()
    trial.model("share", "select n, value / 7 as share from {{ ref('raw.numbers') }}", UPWARDS)
    assert trial.run().failed == 0
    shown = trial.status("t.share")
    assert (shown["health"], shown["last_error"], shown["coverage"]) == ("ok", None, [[0, 3000]])


def test_storage_that_fails_everywhere_is_said_once(trial: Deployment) -> None:
    trial.model("copy", COPY, UPWARDS + "\nretries: 0")
    summary = trial.run(step=Fault("staged", raising(EngineError("no space")), times=1000))
    assert [error.count("no space") for error in summary.errors] == [1]
    assert "suspended until a pause is over" in summary.errors[0]
    assert attempts(trial) <= 6
    assert trial.status("t.copy")["health"] == "suspended"
    assert trial.run().failed == 0
    assert trial.rows("copy") == copied(80)


# the engine is at fault


def test_ranges_that_failed_alike_are_one_error() -> None:
    summary = Summary()
    for number in (1, 2, 5):
        order = Order("t.copy", "forward", (Interval(10 * number, 10 * number + 10),), (), "")
        summary.add(Finished(order, "dead", 0.1, error=f"cannot read part-{number}.parquet"), "number")
    summary.add(Finished(order, "dead", 0.1, error="no space"), "number")
    assert (summary.failed, len(summary.errors)) == (4, 2)
    assert summary.errors[0].startswith("t.copy [50, 60), [10, 30): cannot read")


def test_an_engine_error_is_retried_and_succeeds(trial: Deployment) -> None:
    trial.model("copy", COPY, "interval: 80")
    fault = Fault("computed", raising(EngineError("the disk hiccuped")))
    summary = trial.run(step=fault)
    assert (summary.tasks, summary.failed) == (1, 0)
    (task,) = trial.tasks("copy")
    assert (task.state, task.attempt, task.error) == ("succeeded", 2, None)
    assert trial.rows("copy") == copied(80)


def test_an_engine_error_that_stays_uses_up_its_retries(trial: Deployment) -> None:
    trial.model("copy", COPY, "interval: 80\nretries: 0")
    summary = trial.run(step=Fault("computed", raising(EngineError("the disk is gone")), times=9))
    assert summary.failed == 1
    assert "the disk is gone" in summary.errors[0]
    assert trial.run().failed == 0
    assert trial.rows("copy") == copied(80)


def test_a_table_that_somebody_else_keeps_changing_is_a_conflict_that_costs_no_retry(trial: Deployment) -> None:
    trial.model("copy", COPY, "interval: 80\nretries: 0")
    trial.run()
    place = trial.place("copy")
    with trial.opened() as workspace:
        workspace.state.invalidations.invalidate("t.copy", ranges((0, 80)), "test", "test")
    fault = Fault("locked", lambda: commit(place, {"n": [5], "value": [0]}), times=6)
    summary = trial.run(step=fault)
    assert (summary.tasks, summary.failed) == (1, 0)
    repair = trial.tasks("copy")[-1]
    assert repair.attempt == 2
    assert trial.rows("copy") == copied(80)


def test_an_attempt_whose_worker_vanished_is_finished_by_the_next_run(trial: Deployment) -> None:
    trial.model("copy", COPY, "interval: 80")
    with pytest.raises(Killed):
        trial.run(step=Fault("staged", raising(Killed())))
    assert trial.tasks("copy")[0].state == "running"
    assert trial.run().failed == 0
    (task,) = trial.tasks("copy")
    assert (task.state, task.attempt) == ("succeeded", 2)
    assert trial.rows("copy") == copied(80)


def test_a_commit_whose_acceptance_was_lost_is_adopted_and_not_made_twice(trial: Deployment) -> None:
    trial.model("copy", COPY, "interval: 80")
    trial.model("child", "select n, value from {{ ref('t.copy') }}", "interval: 20")
    with pytest.raises(Killed):
        trial.run(step=Fault("delta committed", raising(Killed())))
    assert trial.rows("copy") == []
    trial.run()
    assert trial.rows("copy") == trial.rows("child") == copied(80)
    assert trial.most_commits("copy") == 1
    assert trial.tasks("copy")[0].strategy == "adopted"


# somebody paused it


def queue_and_pause(trial: Deployment) -> None:
    """A task waits, nobody has taken it, and its model is paused."""
    trial.model("copy", COPY, "interval: 80")
    with trial.opened() as workspace:
        apply(workspace)
        generations = {name: one.no for name, one in workspace.state.views.whole().working.items()}
        order = Order("t.copy", "forward", (Interval(0, 80),), ("raw.numbers",), "test")
        assert workspace.state.queue.enqueue([order], generations) == 1
        workspace.state.control.pause("t.copy", "test")


@pytest.mark.timeout(60)
def test_a_run_does_not_wait_for_the_queued_tasks_of_a_paused_model(trial: Deployment) -> None:
    queue_and_pause(trial)
    trial.model("child", "select n, value from {{ ref('t.copy') }}", "interval: 20")
    heard = Heard()
    summary = trial.run(progress=heard)
    assert (summary.tasks, summary.failed) == (0, 0)
    assert heard.notes == ["t.copy is paused: its 1 waiting task stays until penstock resume t.copy"]
    with trial.opened() as workspace:
        workspace.state.control.resume("t.copy", "test")
    assert trial.run().failed == 0
    assert trial.rows("copy") == trial.rows("child") == copied(80)


def test_a_run_says_of_a_paused_model_that_nothing_is_computed(trial: Deployment) -> None:
    trial.model("copy", COPY, "interval: 80")
    with trial.opened() as workspace:
        apply(workspace)
        workspace.state.control.pause("t.copy", "test")
    heard = Heard()
    assert trial.run(progress=heard).tasks == 0
    assert heard.notes == ["t.copy is paused: nothing of it is computed until penstock resume t.copy"]


def test_a_run_does_not_wait_for_storage_that_failed_in_it(trial: Deployment) -> None:
    trial.model("copy", COPY, UPWARDS + "\nretries: 0")
    with trial.opened(Fault("staged", raising(EngineError("no space")), times=1000)) as workspace:
        apply(workspace)
        began = workspace.state.views.whole().at
        run(workspace, workspace.interval_models(()), Silent())
        trial.move_clock(3600)
        assert reconcile(workspace.state, workspace.resolver, dead_since=began).view.suspended
        assert not reconcile(workspace.state, workspace.resolver).view.suspended


def test_what_failed_first_and_was_done_then_is_no_error_of_the_run(trial: Deployment) -> None:
    trial.model("copy", COPY)
    trial.run()
    summary = Summary(errors=["t.copy [0, 10): no space"])
    with trial.opened() as workspace:
        ended = _Run(
            workspace, workspace.interval_models(()), Silent(), lambda: pytest.fail("no work"), datetime.now(UTC)
        )
        ended._count_dead(workspace.state.views.whole(), summary)
    assert (summary.failed, summary.errors) == (0, [])


# a source is at fault


def test_a_run_tells_which_source_keeps_a_model_from_beginning(trial: Deployment) -> None:
    trial.source("elsewhere", location="/no/such/table")
    trial.model("starved", "select n, value from {{ ref('raw.elsewhere') }}")
    trial.model("child", "select n, value from {{ ref('t.starved') }}")
    trial.model("copy", COPY)
    heard = Heard()
    trial.run(progress=heard)
    assert heard.notes == ["t.starved cannot begin: raw.elsewhere: there is no table at /no/such/table"]
    assert trial.rows("copy") == copied(80)


def test_a_run_tells_of_a_lookup_that_is_not_there_but_not_of_models_that_have_begun(trial: Deployment) -> None:
    trial.write("models/external/names.yml", 'location: "/no/such/table"\n')
    trial.model("named", "select n, value from {{ ref('raw.numbers') }} join {{ ref('raw.names') }} using (n)")
    trial.model("copy", COPY)
    heard = Heard()
    trial.run(progress=heard)
    assert heard.notes == ["t.named cannot begin: raw.names: there is no table at /no/such/table"]
    shutil.rmtree(trial.landing("numbers"))
    heard = Heard()
    trial.run("copy", progress=heard)
    missing = f"there is no table at {trial.landing('numbers')}"
    assert heard.notes == [f"raw.numbers: {missing}; tables built from it are kept"]


# two at once


MANY = 400 if FUZZ else 160


def crowded(trial: Deployment) -> None:
    """Two models whose work comes in several tasks."""
    trial.land("numbers", range(80, MANY))
    trial.model("chunked", "select n, value, {{ bounds.start }} as began from {{ ref('raw.numbers') }}", "interval: 4")
    trial.model(
        "sums", "select {{ bounds.start }} as n, sum(value) as value from {{ ref('t.chunked') }}", "interval: 8"
    )


def is_exact(trial: Deployment) -> bool:
    once = [(start, start + 4) for start in range(0, MANY, 4)]
    sums = [(start, sum(n * 7 for n in range(start, start + 8))) for start in range(0, MANY, 8)]
    return (
        trial.rows("chunked") == sorted((n // 4 * 4, n, n * 7) for n in range(MANY))
        and trial.rows("sums") == sums
        and trial.chunks("chunked") == once
        and trial.chunks("sums") == [(start, start + 8) for start in range(0, MANY, 8)]
    )


def test_two_runs_in_one_process_share_the_work_and_compute_everything_once(trial: Deployment) -> None:
    crowded(trial)
    together = Barrier(2)

    def one() -> Summary:
        with trial.opened() as workspace:
            apply(workspace)
            together.wait(20)
            return run(workspace, workspace.interval_models(()), Silent())

    with ThreadPoolExecutor(2) as pool:
        first, second = (future.result() for future in [pool.submit(one), pool.submit(one)])
    assert first.failed + second.failed == 0
    assert first.intervals + second.intervals == MANY // 4 + MANY // 8
    assert is_exact(trial)


def test_two_processes_share_the_work_and_compute_everything_once(trial: Deployment) -> None:
    crowded(trial)
    command = [sys.executable, str(CHILD), str(trial.root)]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=trial.environ)
        for _ in range(2)
    ]
    for child in both:
        out, errors = child.communicate(timeout=240)
        assert child.returncode == 0, errors
        assert json.loads(out)["failed"] == 0
    assert is_exact(trial)
