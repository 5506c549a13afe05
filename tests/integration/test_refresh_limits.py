"""Changes that cannot be told any more, and those that are too large to be read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from snapshot_differences import (
    append,
    begun,
    changes,
    check,
    commit,
    compact,
    delete,
    delete_all,
    expired,
    head,
    merge,
    nothing_new,
    overwrite,
    rows,
    spelled,
    told,
    update,
)

from penstock.engine.log.handle import TableMissing
from penstock.engine.observe import unequal_rows
from penstock.engine.refresh import change_log as change_log_module
from penstock.engine.refresh.change_log import ChangeLog, change_log
from penstock.engine.refresh.change_size import ChangeSize, change_size
from penstock.engine.refresh.changed_rows import FewRows, ManyRows, changed_rows
from penstock.engine.refresh.reinitialize import Reinitialize


@pytest.fixture(
    params=[(feed, parted) for feed in (False, True) for parted in (False, True)],
    ids=["files", "files partitioned", "feed", "feed partitioned"],
)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    feed, parted = request.param
    return begun(tmp_path / "table", feed=feed, parted=parted)


def test_a_table_that_was_replaced_is_another_one(root: Path) -> None:
    old = str(head(root).metadata().id)
    DeltaTable.create(str(root), head(root).schema(), mode="overwrite")
    append(root)
    new = head(root).metadata().id
    assert changed_rows(str(root), old, 1, 3) == Reinitialize(
        "TABLE_REPLACED", f"{root} was replaced after snapshot 1: its id was {old} and is {new}"
    )
    shutil.rmtree(root)
    write_deltalake(str(root), rows(range(3)))
    answer = changed_rows(str(root), old, 0, 0)
    assert isinstance(answer, Reinitialize) and answer.code == "TABLE_REPLACED"


def test_a_snapshot_cannot_be_older_than_the_one_that_was_read(root: Path) -> None:
    assert changes(root, 1, 0) == Reinitialize(
        "SNAPSHOT_REWOUND", f"{root} is at snapshot 0, but was read at snapshot 1"
    )
    expired(changes(root, 1, 7), "snapshot 7")


def test_no_table_is_no_change(tmp_path: Path) -> None:
    with pytest.raises(TableMissing):
        changed_rows(str(tmp_path), "id", 0, 1)


def test_a_commit_that_is_gone_may_have_changed_anything(root: Path) -> None:
    for act in (append, update, compact):
        act(root)
    head(root).create_checkpoint()
    (root / "_delta_log" / f"{2:020d}.json").unlink()
    expired(changes(root, 1), f"commit 2 of {root} is gone from its log")
    assert isinstance(changes(root, 2), FewRows)


def test_a_snapshot_that_is_gone_is_only_missed_for_its_schema(root: Path) -> None:
    """A log may be cleaned up to the checkpoint that follows it."""
    update(root)
    head(root).create_checkpoint()
    for version in range(2):
        (root / "_delta_log" / f"{version:020d}.json").unlink()
    assert isinstance(changes(root, 1, 2), FewRows)
    head(root).alter.add_columns([Field("more", PrimitiveType("string"))])
    expired(changes(root, 1), f"snapshot 1 of {root} cannot be read any more")


def vacuum(root: Path) -> None:
    head(root).vacuum(0, dry_run=False, enforce_retention_duration=False)
    shutil.rmtree(root / "_change_data", ignore_errors=True)  # Spark sweeps it, delta-rs does not


@pytest.mark.parametrize("act", [update, delete, overwrite, merge])
def test_rows_that_were_swept_cannot_be_told(root: Path, act: Callable[[Path], None]) -> None:
    act(root)
    vacuum(root)
    expired(changes(root, 1), "is gone; the changes between snapshots 1 and")


def test_insertions_are_told_after_a_sweep(root: Path) -> None:
    update(root)
    append(root)
    append(root)
    vacuum(root)
    assert isinstance(check(root, 2), FewRows)


def test_files_that_were_gathered_with_older_ones_count_as_they_came(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), rows(range(20)), partition_by=["p"])
    for n in (90, 91, 93, 94):
        write_deltalake(str(tmp_path), rows([n]), mode="append")
    compact(tmp_path)
    log = change_log(str(tmp_path), str(head(tmp_path).metadata().id), 0, 5)
    assert isinstance(log, ChangeLog)
    assert len(log.files.came) == 4
    check(tmp_path)
    head(tmp_path).delete("p = 1")
    check(tmp_path)


def test_files_that_came_are_replaced_by_the_file_that_they_were_gathered_in(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), rows([0, 3]), partition_by=["p"])
    for n in (91, 94, 97):
        write_deltalake(str(tmp_path), rows([n]), mode="append")
    compact(tmp_path)
    log = change_log(str(tmp_path), str(head(tmp_path).metadata().id), 0, 4)
    assert isinstance(log, ChangeLog)
    (file,) = log.files.came
    assert file.rows == 3
    vacuum(tmp_path)
    assert isinstance(check(tmp_path, 0), FewRows)


@pytest.mark.parametrize("empty", [False, True], ids=["left out", "empty"])
@pytest.mark.parametrize("parted", [False, True], ids=["whole", "partitioned"])
def test_what_a_removal_leaves_out_is_known_from_before(tmp_path: Path, parted: bool, empty: bool) -> None:
    """Not every writer repeats the size and the partition of a file when it is removed."""
    write_deltalake(str(tmp_path), rows(range(20)), partition_by=["p"] if parted else None)
    delete_all(tmp_path)
    log = tmp_path / "_delta_log" / f"{1:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        for name in ("size", "partitionValues", "extendedFileMetadata"):
            action.get("remove", {}).pop(name, None)
        if empty and "remove" in action:
            action["remove"] |= {"partitionValues": {}, "size": 1000}
    log.write_text("\n".join(map(json.dumps, actions)))
    check(tmp_path)
    answer = changes(tmp_path, most_bytes=10)
    assert isinstance(answer, ManyRows)
    assert answer.size.rows == 20
    if parted or not empty:
        assert answer.size.bytes == sum(file.stat().st_size for file in tmp_path.rglob("*.parquet"))


def test_a_very_long_range_of_commits_is_not_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(root)
    append(root)
    monkeypatch.setattr(change_log_module, "MOST_COMMITS", 2)
    assert isinstance(changes(root, 1), FewRows)
    reason = f"{root} has 3 commits between snapshots 0 and 3; at most 2 are read"
    assert changes(root, 0) == Reinitialize("TOO_MANY_COMMITS", reason)


# too many rows, and how many


def test_more_than_may_be_read_is_left_to_spark(root: Path) -> None:
    merge(root)
    delete(root)
    size = change_size(str(root), str(head(root).metadata().id), 1, 3)
    assert isinstance(size, ChangeSize)
    answer = changes(root, 1, most_bytes=100)
    assert isinstance(answer, ManyRows)
    assert answer.columns == ("p", "n", "v")
    assert (answer.size, answer.inserts_only) == (size, False)
    assert answer.reason == f"{size.bytes} bytes of files, at most 100 are read"
    feed = head(root).metadata().configuration.get("delta.enableChangeDataFeed") == "true"
    files = answer.files.feed if feed else (*answer.files.came, *answer.files.went)
    assert all((root / file.path).is_file() and file.size and file.partition is not None for file in files)
    partitioned = bool(head(root).metadata().partition_columns)
    assert all(bool(file.partition) is partitioned for file in files)


def test_of_wide_files_only_the_wanted_columns_count(tmp_path: Path) -> None:
    wide = {"n": list(range(300)), "text": [f"{n * 7919:x}" * 50 for n in range(300)]}
    write_deltalake(str(tmp_path), pa.table(wide))
    write_deltalake(str(tmp_path), pa.table(wide).slice(0, 299), mode="overwrite")
    size = change_size(str(tmp_path), str(head(tmp_path).metadata().id), 0, 1)
    assert isinstance(size, ChangeSize)
    most = size.bytes // 2
    assert isinstance(changes(tmp_path, most_bytes=most), ManyRows)
    assert told(changes(tmp_path, columns=["n"], most_bytes=most)) == {spelled([299]): -1}
    answer = changes(tmp_path, columns=["text"], most_bytes=most)
    assert isinstance(answer, ManyRows)
    assert "bytes of columns" in answer.reason


def test_rows_that_memory_has_no_room_for_are_left_to_spark(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overwrite(root)
    for name in ("FEW_HELD_BYTES", "MOST_HELD_BYTES"):
        monkeypatch.setattr(unequal_rows, name, 100)
    answer = changes(root, 1)
    assert isinstance(answer, ManyRows)
    assert answer.reason == "more rows differ than memory is given for"


def test_a_file_that_arrow_does_not_understand_is_left_to_spark(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), rows(range(20)))
    append(tmp_path)
    path = tmp_path / commit(tmp_path, 1, "add")[0]["path"]
    table = pq.read_table(path).replace_schema_metadata({"org.apache.spark.legacyDateTime": ""})
    pq.write_table(table, path)
    answer = changes(tmp_path)
    assert isinstance(answer, ManyRows)
    assert answer.reason == f"Arrow does not understand {path.name}"
    pq.write_table(table.replace_schema_metadata().rename_columns(["P", "n", "v"]), path)
    answer = changes(tmp_path)
    assert isinstance(answer, ManyRows)
    assert answer.reason == f"Arrow does not understand {path.name}"
    assert isinstance(changes(tmp_path, columns=["n", "v"]), FewRows)


@pytest.mark.parametrize("act", [append, nothing_new, compact])
def test_only_insertions_are_told_from_the_log(root: Path, act: Callable[[Path], None]) -> None:
    act(root)
    for file in root.rglob("*.parquet"):
        file.unlink()
    log = change_log(str(root), str(head(root).metadata().id), 1, 2)
    assert isinstance(log, ChangeLog)
    assert log.files.inserts_only


def test_the_size_of_a_change_is_told_without_opening_a_file(root: Path) -> None:
    append(root)
    merge(root)
    feed = head(root).metadata().configuration.get("delta.enableChangeDataFeed") == "true"
    table = str(head(root).metadata().id)
    count = pa.table(head(root).scan()).num_rows
    for file in root.rglob("*.parquet"):
        file.unlink()
    size = change_size(str(root), table, 1, 3)
    assert isinstance(size, ChangeSize)
    assert size.table_rows == count == 45
    assert size.rows is not None
    assert size.rows == 4 + 3 if feed else size.rows > 7
    assert (size.bytes > 0, size.inserts_only) == (True, False)
    assert change_size(str(root), table, 3, 3) == ChangeSize(0, 0, 45, size.table_bytes, inserts_only=True)
    assert change_size(str(root), "other", 1, 3) == changed_rows(str(root), "other", 1, 3)
