"""A run may be killed at every step of a commit: the next one makes the tables exact, with one commit a task."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.intervals import ranges
from penstock.runtime.workspace import Workspace, open_workspace
from penstock.state.records import Generation

CHILD = Path(__file__).with_name("child.py")
STEPS = ("claimed", "intended", "computed", "files written", "staged", "locked", "table created", "head loaded",
         "delta committed", "recorded", "published")  # fmt: skip


@dataclass(frozen=True)
class Trial:
    """A project of two models over one source, and processes that work on it."""

    root: Path

    def child(self, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(CHILD), str(self.root), *options],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def finish(self, *options: str) -> dict[str, object]:
        done = self.child(*options)
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        assert isinstance(answer, dict)
        return answer

    def write(self, positions: range, factor: int = 7, mode: Literal["append", "overwrite"] = "append") -> None:
        values = [position * factor for position in positions]
        rows = pa.table({"n": pa.array(positions, pa.int64()), "value": pa.array(values, pa.int64())})
        write_deltalake(str(self.root / "landing"), rows, mode=mode)

    @contextmanager
    def opened(self) -> Iterator[Workspace]:
        with open_workspace(self.root, dict(os.environ)) as workspace:
            yield workspace

    @contextmanager
    def stopped_at(self, step: str, *options: str) -> Iterator[subprocess.Popen[str]]:
        """A child that has been stopped at a step; it goes on and ends when the block is left."""
        command = [sys.executable, str(CHILD), str(self.root), "--stop", step, *options]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
        _, status = os.waitpid(child.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        try:
            yield child
        finally:
            child.send_signal(signal.SIGCONT)
            child.wait(60)

    def is_exact(self, upto: int, factor: int = 7) -> bool:
        """Both tables hold exactly their rows, and no task has two commits."""
        wanted = [(n, n * factor) for n in range(upto)]
        with self.opened() as workspace:
            current = workspace.state.world().current
            return all(
                _rows(workspace, one) == wanted and _most_commits(workspace, one) == 1 for one in current.values()
            )


def _rows(workspace: Workspace, generation: Generation) -> list[tuple[int, int]]:
    table = DeltaTable(workspace.site.table(generation.location), version=generation.accepted_snapshot)
    return sorted((row["n"], row["value"]) for row in table.to_pyarrow_table().to_pylist())


def _most_commits(workspace: Workspace, generation: Generation) -> int:
    """How many commits the task has that has most."""
    found: Counter[str] = Counter()
    for file in Path(workspace.site.table(generation.location), "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        found.update(action["txn"]["appId"] for action in actions if "txn" in action)
    return max(found.values())


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    model = "---\ninterval: {}\nposition: n\n---\nselect n, value from {{{{ ref('{}') }}}}\n"
    files = {
        "penstock.yml": "name: trial\ndatabases: {external: raw, transformation: t}\nworker: {concurrency: 1}\n",
        "models/external/numbers.yml": "location: ./landing\nposition: n\naxis: number\n",
        "models/transformations/copy.sql": model.format(10, "raw.numbers"),
        "models/transformations/again.sql": model.format(20, "t.copy"),
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    made = Trial(tmp_path)
    made.write(range(40))
    return made


@pytest.mark.parametrize("step", STEPS)
def test_a_run_killed_at_any_step_is_finished_by_the_next(trial: Trial, step: str) -> None:
    assert trial.child("--die", step).returncode == -9
    answer = trial.finish()
    assert answer["failed"] == 0
    assert trial.is_exact(40)


def test_every_step_is_reached_by_a_run_that_nobody_kills(trial: Trial) -> None:
    assert set(STEPS) <= set(trial.finish()["steps"])  # type: ignore[arg-type]


def test_without_adoption_a_killed_commit_is_made_twice(trial: Trial) -> None:
    # else the second attempt sees that its rows are there already, and writes nothing
    for model in trial.root.glob("models/transformations/*.sql"):
        model.write_text(model.read_text().replace("position: n\n", "position: n\ndeduplicate: false\n"))
    assert trial.child("--die", "delta committed").returncode == -9
    trial.finish("--break", "adoption")
    assert not trial.is_exact(40)


def sleeps_through_its_lease(trial: Trial, *options: str) -> subprocess.Popen[str]:
    """One worker is stopped before it publishes; its lease runs out, another does the task; then the first wakes."""
    with trial.stopped_at("staged", *options) as sleeper:
        with trial.opened() as workspace:
            move_clock(workspace, "1 hour")
        trial.finish()
    return sleeper


def move_clock(workspace: Workspace, by: str) -> None:
    """The database's clock goes ahead, for everybody who asks for it."""
    body = f"select clock_timestamp() + interval '{by}'"
    workspace.state.database.connection.execute(
        f"create or replace function clock() returns timestamptz language sql volatile as $$ {body} $$"
    )


def test_a_worker_that_slept_through_its_lease_changes_nothing(trial: Trial) -> None:
    sleeper = sleeps_through_its_lease(trial)
    assert sleeper.returncode == 0
    assert trial.is_exact(40)
    with trial.opened() as workspace:
        assert all(task.attempt <= 2 and task.state == "succeeded" for task in workspace.state.tasks(None, False, True))


def test_without_the_fence_the_sleeper_tries_to_publish(trial: Trial) -> None:
    sleeper = sleeps_through_its_lease(trial, "--break", "fence")
    assert sleeper.returncode != 0  # only the database's own constraint still stops it


def repaired_while_others_compact(trial: Trial, *options: str) -> bool:
    """A repair is staged, then somebody rewrites the table's files, then the repair publishes."""
    trial.finish()
    trial.write(range(40), factor=9, mode="overwrite")
    with trial.opened() as workspace:
        workspace.state.invalidate("t.copy", ranges((0, 10)), "test", "test")
        workspace.state.invalidate("t.again", ranges((0, 20)), "test", "test")
        location = workspace.site.table(workspace.state.world().current["t.copy"].location)
    with trial.stopped_at("staged", *options):
        table = DeltaTable(location)
        table.optimize.compact()
    with trial.opened() as workspace:
        copy = workspace.state.world().current["t.copy"]
        return _rows(workspace, copy) == [(n, n * (9 if n < 10 else 7)) for n in range(40)]


def test_files_that_moved_under_a_repair_are_noticed(trial: Trial) -> None:
    assert repaired_while_others_compact(trial)


def test_without_the_liveness_check_old_rows_stay_visible(trial: Trial) -> None:
    assert not repaired_while_others_compact(trial, "--break", "liveness")
