"""Which files brought and took rows, by what commits say of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.engine.log.deletion_vector import DeletionVector
from penstock.engine.log.handle import LogCommit
from penstock.engine.refresh.changed_files import ChangedFiles, FileChanges

Action = dict[str, Any]


def file(path: str, rows: int | None = 10, *, changes: bool = True, vector: int | None = None, **more: Any) -> Action:
    action: Action = {"path": path, "size": 100, "partitionValues": {}, "dataChange": changes, **more}
    if rows is not None:
        action["stats"] = json.dumps({"numRecords": rows})
    if vector is not None:
        action["deletionVector"] = hiding(vector)
    return action


def hiding(rows: int) -> Action:
    return {"storageType": "i", "pathOrInlineDv": f"vector {rows}", "sizeInBytes": 30, "cardinality": rows}


def commit(
    adds: list[Action] | None = None, removes: list[Action] | None = None, feed: list[Action] | None = None, **info: Any
) -> LogCommit:
    return LogCommit(1, info, tuple(adds or ()), tuple(removes or ()), tuple(feed or ()))


def taken(*commits: LogCommit) -> ChangedFiles:
    changes = FileChanges()
    for one in commits:
        changes.take(one)
    return changes.changed()


def paths(files: ChangedFiles) -> tuple[list[str], list[str], list[str]]:
    came, went, feed = ([one.path for one in some] for some in (files.came, files.went, files.feed))
    return came, went, feed


def test_a_file_that_comes_and_goes_counts_for_nothing() -> None:
    changed = taken(commit([file("a"), file("b")]), commit([file("c")], [file("a"), file("old")]))
    assert paths(changed) == (["b", "c"], ["old"], [])
    assert not changed.inserts_only
    back = taken(commit([file("a")], [file("old")]), commit([file("old")], [file("a")]))
    assert back == ChangedFiles()
    assert back.inserts_only


def test_a_file_that_is_brought_back_counts_again_when_the_feed_said_how_it_went() -> None:
    merged = commit([file("b")], [file("a")], [file("cdc")])
    restored = commit([file("a")], [file("b")])
    assert paths(taken(commit([file("a")]), merged, restored)) == (["a", "a"], ["b"], ["cdc"])
    assert paths(taken(merged, restored)) == (["a"], ["b"], ["cdc"])


def test_names_are_decoded() -> None:
    assert paths(taken(commit([file("p=a%20b/x%2541")])))[0] == ["p=a b/x%41"]


def test_a_commit_with_change_files_counts_by_these() -> None:
    changed = taken(commit([file("b")], [file("a")], [file("cdc", None, changes=False)]))
    assert paths(changed) == ([], [], ["cdc"])
    assert (changed.bytes, changed.inserts_only) == (100, False)
    assert paths(taken(commit([file("a")]), commit([file("b")], [file("a")], [file("cdc")]))) == (["a"], [], ["cdc"])


def test_a_file_that_is_there_already_does_not_come_again() -> None:
    """As when its statistics are written anew."""
    assert paths(taken(commit([file("a")]), commit([file("a")])))[0] == ["a"]
    assert paths(taken(commit([file("a", changes=False)]), commit([file("a")])))[0] == []
    assert paths(taken(commit([], [file("a")]), commit([], [file("a")])))[1] == ["a"]


def test_rows_that_are_only_arranged_anew_count_as_they_came() -> None:
    gathered = commit([file("ab", 20, changes=False)], [file("a", changes=False), file("b", changes=False)])
    assert taken(gathered) == ChangedFiles()
    assert paths(taken(commit([file("a")]), gathered))[0] == ["a"]
    assert paths(taken(commit([file("a")]), commit([file("b")]), gathered))[0] == ["ab"]
    assert paths(taken(commit([file("a"), file("b")]), gathered, commit([], [file("ab")]))) == ([], [], [])
    fed = commit([file("b")], [], [file("cdc")])
    assert paths(taken(commit([file("a")]), fed, gathered)) == (["a"], [], ["cdc"])


def test_what_is_gathered_in_one_partition_does_not_depend_on_another() -> None:
    def at(path: str, partition: str, *, changes: bool = True) -> Action:
        return file(path, changes=changes, partitionValues={"p": partition})

    came = commit([at("a", "1"), at("b", "2")])
    gathered = commit(
        [at("A", "1", changes=False), at("B", "2", changes=False)],
        [at("a", "1", changes=False), at("b", "2", changes=False), at("old", "2", changes=False)],
    )
    assert paths(taken(came, gathered))[0] == ["b", "A"]
    unknown = commit(gathered.adds[:1], [at("a", "1", changes=False), file("old", changes=False, partitionValues=None)])
    assert paths(taken(came, unknown))[0] == ["a", "b"], "nobody knows what else was gathered"


def test_of_a_file_whose_vector_changed_the_rows_between_both_count() -> None:
    first = DeletionVector.of({"deletionVector": hiding(2)})
    second = DeletionVector.of({"deletionVector": hiding(5)})
    changed = taken(commit([file("a", vector=2)], [file("a", None)]))
    (went,) = changed.went
    assert (went.among, went.hidden, went.rows, changed.came) == (first, None, 2, ())
    changed = taken(commit([file("a", vector=5)], [file("a", None, vector=2)]))
    ((went,), (came,)) = changed.went, changed.came
    assert (went.among, went.hidden) == (second, first)
    assert (came.among, came.hidden) == (first, second)
    gone = taken(commit([file("a", vector=2)], [file("a", None)]), commit([], [file("a", None, vector=2)]))
    (went,) = gone.went
    assert (went.among, went.hidden) == (None, None)
    assert taken(commit([file("a", vector=10)])) == ChangedFiles(), "no row is left"


def test_files_without_a_row_are_left_out() -> None:
    assert taken(commit([file("a", 0)], [file("b", 0)])) == ChangedFiles()


@pytest.mark.parametrize(
    ("info", "rows"),
    [
        ({"operation": "UPDATE", "operationMetrics": {"numUpdatedRows": "3", "numCopiedRows": "90"}}, 6),
        ({"operation": "DELETE", "operationMetrics": {"num_deleted_rows": 4}}, 4),
        ({"operation": "MERGE", "operationMetrics": {"numTargetRowsInserted": "1", "numTargetRowsUpdated": "2"}}, 5),
        ({"operation": "MERGE", "operationMetrics": {"num_target_rows_deleted": 1, "num_target_rows_updated": 2}}, 5),
        ({"operation": "WRITE", "operationMetrics": {"numOutputRows": "1"}}, None),
        ({"operation": "UPDATE", "operationMetrics": {"numUpdatedRows": "many"}}, None),
        ({"operation": "UPDATE", "operationMetrics": {}}, None),
        ({"operation": "UPDATE"}, None),
        ({}, None),
    ],
)
def test_metrics_tell_how_many_rows_are_in_the_feed(info: Action, rows: int | None) -> None:
    one = commit([file("b")], [file("a")], [file("cdc")], **info)
    assert taken(one).fed_rows == rows
    assert taken(one, commit([file("c")]), one).fed_rows == (None if rows is None else 2 * rows)


def test_statistics_that_are_not_understood_tell_nothing() -> None:
    (came,) = taken(commit([{**file("a"), "stats": "{"}])).came
    assert came.rows is None
