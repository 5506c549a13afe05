"""Files that nobody can read any more go, and no other."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deployment import Deployment
from faults import Fault, Killed, raising

from penstock.engine.commit import sweep as sweeping
from penstock.engine.commit.sweep import discard, sweep
from penstock.engine.log import handle
from penstock.errors import QueryError
from penstock.values.intervals import ranges

LONG_AGO = time.time() - 8 * 86_400
TASK = uuid4()


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())})


def staged(root: Path, name: str, age: float = LONG_AGO) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows(1), path)
    os.utime(path, (age, age))
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A file of ours that went long ago, one that went just now and one that is live, all of them old."""
    root, ours = tmp_path / "table", str(uuid4())
    for number in range(3):
        write_deltalake(str(root), rows(number), mode="overwrite")
    for file in (root / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        for action in actions:
            for kind in action.keys() & {"add", "remove"}:
                action[kind]["path"] = f"{ours}/1/{action[kind]['path']}"
            if file.name == f"{1:020d}.json" and "remove" in action:
                action["remove"]["deletionTimestamp"] = int(LONG_AGO * 1000)
            if file.name < f"{2:020d}.json" and "commitInfo" in action:
                action["commitInfo"]["timestamp"] = int(LONG_AGO * 1000)
        file.write_text("".join(json.dumps(action) + "\n" for action in actions))
    (root / ours / "1").mkdir(parents=True)
    for path in [*root.glob("*.parquet")]:
        os.utime(path, (LONG_AGO, LONG_AGO))
        path.rename(root / ours / "1" / path.name)
    return root


def held(root: Path, version: int) -> list[int]:
    return sorted(DeltaTable(str(root), version=version).to_pyarrow_table().column("n").to_pylist())


def test_old_files_go_that_no_recent_snapshot_shows(table: Path) -> None:
    left = staged(table, f"{TASK}/1/part.parquet"), staged(table, f"{TASK}/2/deep/part.parquet")
    young = staged(table, f"{uuid4()}/1/part.parquet", time.time())
    assert sweep(str(table)) == 3, "two that no commit names, and the one that went long ago"
    assert [one.exists() for one in (*left, young)] == [False, False, True]
    assert not (table / str(TASK)).exists()
    assert (held(table, 1), held(table, 2)) == ([1], [2])
    assert sweep(str(table)) == 0
    with pytest.raises(FileNotFoundError):
        held(table, 0)


def theirs(root: Path) -> list[Path]:
    """What other people keep below a table of ours: an export, a table, a file beside ours, a folder of that name."""
    write_deltalake(str(root / "nested"), rows(7))
    (nested,) = (root / "nested").glob("*.parquet")
    os.utime(nested, (LONG_AGO, LONG_AGO))
    return [nested, *(staged(root, name) for name in ("export/a.parquet", "a.parquet", f"{TASK}/export/a.parquet"))]


def test_what_others_keep_there_is_left_alone(table: Path) -> None:
    kept, left = theirs(table), staged(table, f"{TASK}/1-7/part.parquet")
    assert sweep(str(table)) == 2
    assert not left.exists()
    assert [path for path in kept if not path.exists()] == []


def test_control_without_the_look_at_whose_files_they_are_those_of_others_go(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = theirs(table)
    monkeypatch.setattr(sweeping, "_STAGED", re.compile(""))
    sweep(str(table))
    assert [path for path in kept if path.exists()] == []


def test_no_commit_is_opened_however_many_there_are(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    DeltaTable(str(table)).create_checkpoint()
    monkeypatch.setattr(handle, "read_text", None)
    assert sweep(str(table)) == 1
    assert (held(table, 2), DeltaTable(str(table)).version()) == ([2], 2)


def test_a_checkpoint_tells_what_went_when_although_the_commits_are_gone(table: Path) -> None:
    left = staged(table, f"{TASK}/1/part.parquet")
    recent = [Path(path) for path in DeltaTable(str(table), version=1).file_uris()]
    DeltaTable(str(table)).create_checkpoint()
    for file in (table / "_delta_log").glob("*.json"):
        file.unlink()
    assert sweep(str(table)) == 2
    assert not left.exists()
    assert [path.exists() for path in recent] == [True]


def test_a_table_whose_retention_somebody_set_is_left_to_them(table: Path) -> None:
    DeltaTable(str(table)).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 30 days"})
    assert sweep(str(table)) == 0
    assert held(table, 0) == [0]


@pytest.mark.parametrize("lost", ["live", "recent"])
def test_a_sweep_that_forgets_what_is_needed_is_found_out(
    table: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    def broken(seen: DeltaTable) -> list[str]:
        if lost == "recent":
            return seen.vacuum(retention_hours=0, dry_run=True, full=True, enforce_retention_duration=False)
        return [str(path) for path in pa.table(seen.get_add_actions()).column("path").to_pylist()]

    monkeypatch.setattr(sweeping, "_removable", broken)
    sweep(str(table))
    with pytest.raises(FileNotFoundError):
        held(table, 2 if lost == "live" else 1)


def test_an_attempt_leaves_those_of_others_alone(tmp_path: Path) -> None:
    paths = [staged(tmp_path, f"{TASK}/{name}/part.parquet") for name in ("1", "1-7", "2", "11")]
    discard(str(tmp_path), TASK, 1)
    assert [path.exists() for path in paths] == [False, False, True, True]
    discard(str(tmp_path), TASK, 11, others=True)
    assert [path.exists() for path in paths] == [False, False, False, True]
    discard(str(tmp_path), TASK, 11)
    assert not (tmp_path / str(TASK)).exists()
    discard(str(tmp_path), TASK, 11)


# as tasks leave them


@pytest.fixture
def trial(tmp_path: Path, dsn: str) -> Deployment:
    made = Deployment.empty(tmp_path, dsn)
    made.source("numbers")
    made.model("copy", "select n, value from {{ ref('raw.numbers') }}")
    made.land("numbers", range(40))
    return made


def unnamed(trial: Deployment) -> list[Path]:
    """The files of the table that no commit ever named."""
    root = Path(trial.place("copy"))
    log = [json.loads(line) for file in (root / "_delta_log").glob("*.json") for line in file.read_text().splitlines()]
    named = {str(action["add"]["path"]) for action in log if "add" in action}
    return [path for path in root.rglob("*.parquet") if str(path.relative_to(root)) not in named]


def test_rows_that_come_out_equal_leave_no_file(trial: Deployment) -> None:
    trial.run()
    assert trial.rerun("copy", 0, 40).tasks > 0
    assert unnamed(trial) == []


def test_an_attempt_that_fails_leaves_no_file(trial: Deployment) -> None:
    trial.run()
    trial.land("numbers", range(40, 60))
    failing = Fault("files written", raising(QueryError("no")), times=99)
    assert trial.run(step=failing).failed
    assert "files written" in failing.seen
    assert unnamed(trial) == []


def test_what_a_killed_attempt_staged_goes_with_the_next_that_publishes(trial: Deployment) -> None:
    trial.run()
    trial.land("numbers", range(40, 50))
    with pytest.raises(Killed):
        trial.run(step=Fault("staged", raising(Killed())))
    assert unnamed(trial)
    trial.run()
    assert unnamed(trial) == []
    assert len(trial.rows("copy")) == 50


def test_what_another_attempt_staged_stays_when_the_next_wrote_nothing(trial: Deployment) -> None:
    """The log does not keep that attempt from committing its files, should it only have been slow."""
    trial.run()
    with trial.opened() as workspace:
        workspace.state.invalidations.invalidate("t.copy", ranges((0, 10)), "test", "test")
    with pytest.raises(Killed):
        trial.run(step=Fault("staged", raising(Killed())))
    slow = unnamed(trial)
    assert slow
    assert trial.run().failed == 0
    assert unnamed(trial) == slow


def test_a_commit_that_nobody_accepted_keeps_its_files(trial: Deployment) -> None:
    with pytest.raises(Killed):
        trial.run(step=Fault("delta committed", raising(Killed())))
    assert trial.run().failed == 0
    assert len(trial.rows("copy")) == 40
