"""Nothing slow is done behind the lock: the head is loaded before, and only recognised there."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from deployment import Deployment, commit
from faults import Fault
from psycopg.errors import LockNotAvailable

from penstock.engine.commit import publish
from penstock.engine.commit import reset as reset_module
from penstock.engine.commit.evict import Table, evict, without
from penstock.engine.commit.publish import FileSetChanged, prepared
from penstock.engine.log import loaded as loaded_module
from penstock.engine.log.loaded import LoadedHead
from penstock.engine.log.snapshot import snapshot
from penstock.engine.rows.statistics import staged_file
from penstock.engine.stage.staged import Staged
from penstock.engine.values.files import PositionColumn
from penstock.engine.values.job import HeadMoved, Job, StagedChunk
from penstock.runtime.redo import reset as resetting
from penstock.runtime.redo.reset import reset, resettable
from penstock.runtime.work import attempt as work
from penstock.values.intervals import Interval, ranges
from penstock.values.tasks import Commit

POSITION = PositionColumn("n", "number")
COPY = "select n, value from {{ ref('raw.numbers') }}"


def rows(*positions: int) -> pa.Table:
    return pa.table({"n": pa.array(positions, pa.int64())})


def staged(root: Path, start: int, *positions: int, changed: bool = True) -> Staged:
    """Rows of one chunk of ten, in a table whose files each lie in such a chunk."""
    chunk = Interval(start, start + 10)
    job = Job(
        model="m.t",
        location=str(root),
        position=POSITION,
        chunks=(chunk,),
        renderings=(),
        cut=False,
        frontier={},
        task=uuid4(),
        attempt=1,
        generation="g",
        epoch=0,
        digests={},
    )
    path = f"{job.task}/1/new.parquet"
    (root / path).parent.mkdir(parents=True)
    pq.write_table(rows(*positions), root / path)
    seen = snapshot(str(root), POSITION)
    return Staged(
        job=job,
        base_version=None if seen is None else seen.version,
        schema_json=str(Schema.from_arrow(rows().schema).to_json()),
        files=(staged_file(str(root), path, POSITION),),
        kept=(),
        replaced=() if seen is None else tuple(file.path for file in seen.meeting(job.scope)),
        chunks=(StagedChunk(chunk, len(positions), None, changed),),
    )


def no_step(label: str) -> None:
    pass


def done(one: Staged) -> Commit:
    found = publish.publish(one, no_step)
    assert isinstance(found, Commit)
    return found


def loaded(one: Staged) -> Staged:
    ready = prepared(one)
    assert isinstance(ready, Staged)
    return ready


def stored(root: Path) -> list[int]:
    return sorted(DeltaTable(root).to_pyarrow_table().column("n").to_pylist())


@pytest.fixture
def table(tmp_path: Path) -> Path:
    done(staged(tmp_path, 0, 1, 2))
    return tmp_path


def test_behind_the_lock_no_log_is_read(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = loaded(staged(table, 10, 11))
    for slow in ("open_table", "read", "find_commit", "commit_at", "load_head"):
        monkeypatch.setattr(publish, slow, None)
    assert done(ready).snapshot == 2
    assert stored(table) == [1, 2, 11]


def test_a_commit_since_then_means_loading_again(table: Path) -> None:
    one = staged(table, 10, 11)
    ready = loaded(one)
    done(staged(table, 20, 21))
    assert publish.publish(ready, no_step) == HeadMoved()
    assert done(loaded(one)).snapshot == 3
    assert stored(table) == [1, 2, 11, 21]


def test_a_commit_right_after_the_check_is_never_overwritten(table: Path) -> None:
    ready = loaded(staged(table, 10, 11))

    def step(label: str) -> None:
        if label == "head loaded":
            write_deltalake(table, rows(35), mode="append")

    assert publish.publish(ready, step) == HeadMoved()
    assert stored(table) == [1, 2, 35]


def test_an_earlier_attempt_that_committed_late_is_adopted(table: Path) -> None:
    one = staged(table, 10, 11)
    ready = loaded(one)
    done(one)  # a worker that was only slow
    assert publish.publish(ready, no_step) == HeadMoved()
    again = done(loaded(one))
    assert (again.snapshot, again.adopted) == (2, True)
    assert stored(table) == [1, 2, 11]


def test_files_that_are_others_than_those_read_are_found_as_before(table: Path) -> None:
    one = staged(table, 0, 3)
    ready = loaded(one)
    write_deltalake(table, rows(4), mode="append")
    assert publish.publish(ready, no_step) == HeadMoved()
    assert isinstance(prepared(one), FileSetChanged), "which needs no lock to be seen"


def replaced(table: Path) -> Staged:
    """Something is ready to be published when another table with as many commits takes the place."""
    ready = loaded(staged(table, 0, 3))
    shutil.rmtree(table / "_delta_log")
    done(staged(table, 0, 7, 8))
    return ready


def test_another_table_in_the_same_place_is_not_taken_for_the_one_that_was_loaded(table: Path) -> None:
    assert publish.publish(replaced(table), no_step) == HeadMoved()
    assert stored(table) == [7, 8]


def test_control_without_the_check_rows_of_another_table_get_mixed_in(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LoadedHead, "is_head", lambda _: True)
    publish.publish(replaced(table), no_step)
    assert stored(table) != [7, 8]


def test_a_table_that_is_replaced_while_it_is_loaded_is_found_out(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, opened = staged(table, 0, 3), loaded_module.open_table

    def late(location: str, **some: object) -> DeltaTable | None:
        found = opened(location, **some)  # type: ignore[arg-type]
        monkeypatch.setattr(loaded_module, "open_table", opened)
        shutil.rmtree(table / "_delta_log")
        done(staged(table, 0, 7, 8))
        return found

    monkeypatch.setattr(loaded_module, "open_table", late)
    assert publish.publish(loaded(one), no_step) == HeadMoved()
    assert stored(table) == [7, 8]


def test_a_head_is_opened_once_where_nobody_came_between_and_twice_where_somebody_did(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, opened, times = staged(table, 10, 11), loaded_module.open_table, []

    def counted(location: str, **some: object) -> DeltaTable | None:
        times.append(location)
        return opened(location, **some)  # type: ignore[arg-type]

    monkeypatch.setattr(loaded_module, "open_table", counted)
    assert loaded(one).head is not None
    assert len(times) == 1
    write_deltalake(table, rows(35), mode="append")
    assert loaded(one).head is not None
    assert len(times) == 3


# rows that are taken out


def ready_to_evict(table: Path) -> Staged:
    write_deltalake(table, rows(35), mode="append")
    ready = without(Table(str(table), "m.t", "g", POSITION), ranges((30, 40)), 2)
    assert isinstance(ready, Staged)
    return ready


def test_rows_are_taken_out_without_reading_the_log_behind_the_lock(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = ready_to_evict(table)
    for slow in ("open_table", "read", "find_commit", "commit_at", "load_head"):
        monkeypatch.setattr(publish, slow, None)
    assert evict(ready) == 3
    assert stored(table) == [1, 2]


def replaced_before_it_is_evicted(table: Path) -> int | None:
    ready = ready_to_evict(table)
    shutil.rmtree(table / "_delta_log")
    done(staged(table, 0, 7, 8))
    write_deltalake(table, rows(35), mode="append")
    return evict(ready)


def test_nothing_is_taken_out_of_another_table_in_the_same_place(table: Path) -> None:
    assert replaced_before_it_is_evicted(table) is None
    assert stored(table) == [7, 8, 35]


def test_control_without_the_check_another_table_gets_the_commit(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoadedHead, "is_head", lambda _: True)
    assert replaced_before_it_is_evicted(table) == 3


def test_without_a_table_or_a_mark_of_it_the_head_is_loaded_behind_the_lock(table: Path, tmp_path: Path) -> None:
    assert loaded(staged(tmp_path / "new", 0, 1)).head is None
    DeltaTable(table).create_checkpoint()
    (table / "_delta_log" / f"{1:020d}.json").unlink()
    assert loaded(staged(table, 10, 11)).head is None


@pytest.fixture
def trial(tmp_path: Path, dsn: str) -> Deployment:
    made = Deployment.empty(tmp_path, dsn)
    made.source("numbers")
    made.land("numbers", range(20))
    made.model("copy", COPY, "interval: 20\nretries: 0")
    made.run()
    made.land("numbers", range(20, 40))
    return made


def test_a_head_that_keeps_moving_elsewhere_is_at_last_loaded_behind_the_lock(trial: Deployment) -> None:
    """Rows elsewhere do not meet the scope, so that nothing has to be staged again."""
    place = trial.place("copy")
    fault = Fault("locked", lambda: commit(place, {"n": [1000], "value": [0]}), times=work.LOAD_ROUNDS)
    assert trial.run(step=fault).failed == 0
    assert fault.seen.count("locked") == work.LOAD_ROUNDS + 1
    assert [row for row in trial.rows("copy") if row != (1000, 0)] == [(n, n * 7) for n in range(40)]


def test_a_head_that_moved_is_loaded_while_the_lock_is_free(trial: Deployment) -> None:
    place = trial.place("copy")
    fault = Fault("locked", lambda: commit(place, {"n": [1000], "value": [0]}))
    assert trial.run(step=fault).failed == 0
    assert fault.seen.count("locked") == 2
    assert trial.covered("copy").end == 40


def store_requests_behind_the_lock(trial: Deployment, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a reset asks of the log while nobody else can have the generation."""
    found: list[str] = []

    def recorded(name: str, asked: Callable[..., object]) -> Callable[..., object]:
        def asking(*given: Any, **named: Any) -> object:
            try:
                trial.execute("select from generation for update nowait")
            except LockNotAvailable:
                found.append(name)
            return asked(*given, **named)

        return asking

    for module in (reset_module, loaded_module):
        for name in ("open_table", "read"):
            monkeypatch.setattr(module, name, recorded(name, getattr(module, name)))
    with trial.opened() as workspace:
        reset(workspace, resettable(workspace, workspace.project.graph.interval_model("t.copy")), "alice")
    assert stored(Path(trial.place("copy"))) == []
    return found


def test_a_reset_reads_no_log_behind_the_lock(trial: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store_requests_behind_the_lock(trial, monkeypatch) == []


def test_control_a_reset_that_loads_the_head_behind_the_lock_is_seen(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resetting, "head_of", lambda *_: None)
    assert store_requests_behind_the_lock(trial, monkeypatch) == ["open_table", "read"]


def test_a_commit_before_the_lock_is_emptied_too(trial: Deployment) -> None:
    place = trial.place("copy")
    fault = Fault("locked", lambda: commit(place, {"n": [1000], "value": [0]}))
    with trial.opened(fault) as workspace:
        reset(workspace, resettable(workspace, workspace.project.graph.interval_model("t.copy")), "alice")
    assert fault.seen.count("locked") == 2
    assert stored(Path(place)) == []
    assert trial.run().failed == 0
    assert trial.rows("copy") == [(n, n * 7) for n in range(40)]
