"""The rows by which two snapshots of a table differ, against both read in full."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import Field, write_deltalake
from deltalake.schema import PrimitiveType
from inline_vectors import delete_by_vector
from object_store import object_store
from snapshot_differences import (
    ACTS,
    FEED,
    append,
    begun,
    changes,
    check,
    come_and_go,
    commit,
    compact,
    delete,
    delete_all,
    difference,
    expired,
    head,
    merge,
    merge_that_deletes,
    move,
    nothing_new,
    overwrite,
    replace_where,
    restore,
    rows,
    spelled,
    switch_feed,
    there_and_back,
    told,
    update,
    update_to_the_same,
    z_order,
)

from penstock.engine.refresh.change_log import ChangeLog, change_log
from penstock.engine.refresh.change_size import change_size
from penstock.engine.refresh.changed_rows import FewRows, ManyRows, Unchanged, changed_rows
from penstock.engine.refresh.reinitialize import Reinitialize
from penstock.engine.rows.multisets import WEIGHT


@pytest.fixture(
    params=[(feed, parted) for feed in (False, True) for parted in (False, True)],
    ids=["files", "files partitioned", "feed", "feed partitioned"],
)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    feed, parted = request.param
    return begun(tmp_path / "table", feed=feed, parted=parted)


@pytest.mark.parametrize("act", ACTS)
def test_one_commit_changes_the_rows_by_which_the_snapshots_differ(root: Path, act: Callable[[Path], None]) -> None:
    act(root)
    check(root, head(root).version() - 1)
    check(root, 0)
    check(root, 0, columns=["n"])
    check(root, 0, columns=["p"])


@pytest.mark.parametrize("act", [compact, z_order, nothing_new, switch_feed])
def test_commits_that_change_no_row_are_told_from_the_log(root: Path, act: Callable[[Path], None]) -> None:
    act(root)
    for file in root.rglob("*.parquet"):
        file.unlink()
    assert changes(root, 1) == Unchanged("no commit changed a row")
    assert changes(root, head(root).version()) == Unchanged("the same snapshot")
    assert changes(root, 1, most_bytes=0) == Unchanged("no commit changed a row")


# several commits


@pytest.mark.parametrize("acts", [
    (update, compact, delete),
    (append, compact, merge, z_order, restore),
    (switch_feed, update, switch_feed, merge),
    (overwrite, append, replace_where, delete_all, append),
    (append, delete_all, restore),
    (move, merge_that_deletes, update_to_the_same, overwrite),
], ids=lambda acts: ", ".join(act.__name__ for act in acts))  # fmt: skip
def test_commits_count_together(root: Path, acts: tuple[Callable[[Path], None], ...]) -> None:
    for act in acts:
        act(root)
    last = head(root).version()
    for after in range(last + 1):
        check(root, after)


def delete_and_insert(root: Path) -> None:
    head(root).delete("n = 3")
    write_deltalake(str(root), rows([3]), mode="append")


def remove_all_and_restore(root: Path) -> None:
    delete_all(root)
    head(root).restore(1)


@pytest.mark.parametrize("act", [delete_and_insert, there_and_back, remove_all_and_restore, come_and_go])
def test_rows_that_went_and_came_back_are_no_change(root: Path, act: Callable[[Path], None]) -> None:
    act(root)
    assert isinstance(changes(root, 1), Unchanged)
    check(root, 1)
    between = check(root, 1, head(root).version() - 1)
    assert act is remove_all_and_restore or isinstance(between, FewRows)


def test_only_the_columns_that_are_asked_for_count(root: Path) -> None:
    update(root)
    assert changes(root, 1, columns=["n", "p"]) == Unchanged("the rows that came are equal to those that went")
    assert isinstance(changes(root, 1, columns=["V"]), FewRows)
    answer = check(root, 1, columns=["n", "v"])
    assert isinstance(answer, FewRows)
    assert answer.rows.column_names == ["n", "v", WEIGHT]


def test_without_any_column_the_rows_are_counted(root: Path) -> None:
    merge(root)
    for answer, count in ((changes(root, 1, columns=[]), 1), (changes(root, 0, columns=[]), 21)):
        assert isinstance(answer, FewRows)
        assert answer.rows.to_pydict() == {WEIGHT: [count]}
    update(root)
    assert isinstance(changes(root, 2, columns=[]), Unchanged)


def test_the_feed_of_an_update_by_delta_rs_is_not_believed(tmp_path: Path) -> None:
    """It leaves out a row that becomes equal to another one. Once it no longer does, it can be believed."""
    write_deltalake(str(tmp_path), rows([4, 5]).drop_columns(["p"]), configuration=FEED)
    head(tmp_path).update({"n": "5"}, predicate="n = 4")
    assert commit(tmp_path, 1, "cdc")
    feed = pa.table(head(tmp_path).load_cdf(1, 1))
    assert list(zip(feed.column("n").to_pylist(), feed.column("_change_type").to_pylist(), strict=True)) == [
        (4, "update_preimage")
    ]
    check(tmp_path)
    assert told(changes(tmp_path)) == {spelled([4, "a"]): -1, spelled([5, "a"]): 1}


def test_only_the_feeds_of_known_writers_are_believed(root: Path) -> None:
    merge(root)
    log = root / "_delta_log" / f"{2:020d}.json"
    given = str(root), str(head(root).metadata().id), 1, 2
    text, own = log.read_text(), commit(root, 2, "commitInfo")[0]["engineInfo"]
    feed = bool(commit(root, 2, "cdc"))
    for writer, known in (
        (own, True),
        ("Apache-Spark/4.2.0 Delta-Lake/4.4.0", True),
        ("trino-480", False),
        ("", False),
    ):
        log.write_text(text.replace(own, writer))
        found = change_log(*given)
        assert isinstance(found, ChangeLog)
        assert bool(found.files.feed) is (known and feed)
        check(root, 1)


# values of every type

PAIR = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.struct([("z", pa.decimal128(9, 2))])))])
MOMENT = datetime(2026, 1, 1, 12, 30, 1, 250_001, tzinfo=UTC)
EVERY: dict[str, tuple[pa.DataType, list[object]]] = {
    "byte": (pa.int8(), [1, -1, None]),
    "whole": (pa.int32(), [1, -1, None]),
    "f": (pa.float64(), [0.0, -0.0, 1.5, float("nan"), float("inf"), None]),
    "small": (pa.float32(), [0.5, -0.0, float("nan"), None]),
    "d": (pa.decimal128(12, 3), [Decimal("1.500"), Decimal("-0.001"), None]),
    "s": (pa.string(), ["a", "A b/ü=%", "null", None]),
    "b": (pa.binary(), [b"a", b"\0", None]),
    "o": (pa.bool_(), [True, False, None]),
    "day": (pa.date32(), [date(1969, 12, 31), date(2026, 1, 1), None]),
    "at": (pa.timestamp("us", "UTC"), [MOMENT, MOMENT.replace(microsecond=0), None]),
    "ntz": (pa.timestamp("us"), [MOMENT.replace(tzinfo=None), None]),
    "pair": (PAIR, [{"x": 1, "y": [{"z": Decimal("1.50")}, None]}, {"x": None, "y": None}, {"x": 1, "y": []}, None]),
    "texts": (pa.list_(pa.string()), [["a", None], [], None]),
    "map": (pa.map_(pa.string(), pa.list_(pa.int64())), [[("k", [1, None])], [], None]),
}


def typed(name: str, values: list[object]) -> pa.Table:
    numbers = pa.array(range(len(values)), pa.int64())
    return pa.table({"n": numbers, "k": pa.array(values, EVERY[name][0])})


@pytest.mark.parametrize("feed", [False, True], ids=["files", "feed"])
@pytest.mark.parametrize("name", EVERY)
def test_values_of_every_type_are_told(tmp_path: Path, name: str, feed: bool) -> None:
    kind, values = EVERY[name]
    write_deltalake(str(tmp_path), typed(name, [*values, *values]), configuration=FEED if feed else {})
    head(tmp_path).update({"n": "n + 100"}, predicate="n % 2 = 0")
    head(tmp_path).delete("n = 1")
    write_deltalake(str(tmp_path), typed(name, values), mode="append")
    for after in range(4):
        for columns in (None, ["k"]):
            answer = check(tmp_path, after, columns=columns)
            assert isinstance(answer, Unchanged) or answer.rows.schema.field("k").type == kind  # type: ignore[union-attr]


@pytest.mark.parametrize("feed", [False, True], ids=["files", "feed"])
@pytest.mark.parametrize(
    "name", [name for name, (kind, _) in EVERY.items() if not pa.types.is_nested(kind) and name != "b"]
)
def test_partition_columns_have_their_type(tmp_path: Path, name: str, feed: bool) -> None:
    kind, values = EVERY[name]
    # delta-rs has no partitions of these values
    kept = [value for value in values if repr(value) not in ("nan", "inf", "Decimal('-0.001')")]
    configuration = FEED if feed else {}
    write_deltalake(str(tmp_path), typed(name, [*kept, *kept]), partition_by=["k"], configuration=configuration)
    head(tmp_path).update({"n": "n + 100"}, predicate="n % 2 = 0")
    head(tmp_path).delete("n = 1")
    for after in range(3):
        answer = check(tmp_path, after)
        assert isinstance(answer, Unchanged) or answer.rows.schema.field("k").type == kind  # type: ignore[union-attr]


def test_partitions_by_bytes_are_left_to_spark(tmp_path: Path) -> None:
    """Writers spell them in several ways."""
    write_deltalake(str(tmp_path), typed("b", [None]), partition_by=["k"])
    write_deltalake(str(tmp_path), typed("b", [b"a", None]), mode="append")
    assert isinstance(changes(tmp_path), ManyRows)
    check(tmp_path, columns=["n"])


def test_files_of_other_writers_have_the_types_of_the_table(tmp_path: Path) -> None:
    """Wider texts, nanoseconds, times of old Spark: all are the same values."""
    at = pa.array([1_000_000, None], pa.timestamp("us", "UTC"))
    table = pa.table({"n": pa.array([1, 2], pa.int64()), "at": at, "s": ["a", "b"], "l": [["x"], None]})
    write_deltalake(str(tmp_path), table)
    write_deltalake(str(tmp_path), table, mode="overwrite")
    (file,) = {file for file in tmp_path.glob("*.parquet") if file.name in commit(tmp_path, 1, "add")[0]["path"]}
    odd = table.cast(
        pa.schema(
            [
                ("n", pa.int32()),
                ("at", pa.timestamp("ns", "+00:00")),
                ("s", pa.large_string()),
                ("l", pa.large_list(pa.large_string())),
            ]
        )
    )
    pq.write_table(odd.set_column(2, "s", odd.column("s").dictionary_encode()), file)
    assert isinstance(changes(tmp_path, 0, 1), Unchanged)
    pq.write_table(odd, file, use_deprecated_int96_timestamps=True)
    assert isinstance(changes(tmp_path, 0, 1), Unchanged)
    pq.write_table(odd.slice(1), file)
    assert sum(told(changes(tmp_path, 0, 1)).values()) == -1


# deletion vectors


@pytest.mark.parametrize("stored", ["i", "u", "p"])
def test_rows_that_vectors_hide_are_gone(tmp_path: Path, stored: str) -> None:
    write_deltalake(str(tmp_path), rows(range(20)))
    write_deltalake(str(tmp_path), rows(range(20, 25)), mode="append")
    delete_by_vector(tmp_path, 0, 2, [1, 3], stored=stored)
    delete_by_vector(tmp_path, 2, 3, [1, 3, 19], stored=stored)
    delete_by_vector(tmp_path, 1, 4, [0, 1, 2, 3, 4], stored=stored)
    delete_by_vector(tmp_path, 3, 5, [3, 19], stored=stored)  # a row is back
    for after in range(6):
        for upto in range(after, 6):
            check(tmp_path, after, upto)
    assert told(changes(tmp_path, 2, 3)) == {spelled([1, 19, "a"]): -1}
    assert told(changes(tmp_path, 3, 5))[spelled([1, 1, "a"])] == 1


def test_a_vector_that_is_gone_makes_the_changes_unknown(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), rows(range(20)))
    delete_by_vector(tmp_path, 0, 1, [1, 3], stored="u")
    (vector,) = tmp_path.rglob("deletion_vector*")
    vector.unlink()
    expired(changes(tmp_path), "deletion_vector")


# other schemas


@pytest.mark.parametrize("feed", [False, True], ids=["files", "feed"])
def test_a_column_that_came_is_null_in_the_rows_of_before(tmp_path: Path, feed: bool) -> None:
    write_deltalake(str(tmp_path), rows(range(20)), configuration=FEED if feed else {})
    head(tmp_path).delete("n = 4")
    wider = rows([50, 51]).append_column("more", pa.array([{"x": 1}, None]))
    write_deltalake(str(tmp_path), wider, mode="append", schema_mode="merge")
    head(tmp_path).update({"v": "'u'"}, predicate="n in (5, 50)")
    for after in range(4):
        check(tmp_path, after)
    assert isinstance(changes(tmp_path, 0, 3, columns=["p"]), FewRows)


def test_a_column_that_is_added_changes_no_row(root: Path) -> None:
    head(root).alter.add_columns([Field("more", PrimitiveType("string"))])
    assert changes(root, 1) == Unchanged("no commit changed a row")
    assert changes(root, 1, columns=["more"]) == Unchanged("no commit changed a row")


def other_schema(root: Path, table: pa.Table) -> None:
    write_deltalake(str(root), table, mode="overwrite", schema_mode="overwrite")


@pytest.mark.parametrize("feed", [False, True], ids=["files", "feed"])
def test_columns_of_another_kind_cannot_be_compared(tmp_path: Path, feed: bool) -> None:
    root, table = tmp_path, rows(range(20, 25))
    write_deltalake(str(root), rows(range(20)), configuration=FEED if feed else {})
    append(root)
    between = f"in {root} between snapshots 1 and 2"
    other_schema(root, table.set_column(1, "n", table.column("n").cast(pa.int32())))
    assert changes(root, 1) == Reinitialize("SCHEMA_CHANGED", f"the column n was long and became integer {between}")
    assert isinstance(check(root, 1, columns=["p", "v"]), FewRows)
    other_schema(root, table.drop_columns(["v"]))
    assert changes(root, 2, columns=["p", "v"]) == Reinitialize(
        "SCHEMA_CHANGED", f"the column v is gone in {root} between snapshots 2 and 3"
    )
    other_schema(root, table)
    answer = changes(root, 1)
    assert isinstance(answer, Reinitialize) and answer.code == "SCHEMA_CHANGED", "it was another one in between"
    check(root, 1, columns=["p"])


def test_mapped_columns_are_left_to_spark(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), rows(range(20)))
    write_deltalake(str(tmp_path), rows(range(3)), mode="append")
    text = (tmp_path / "_delta_log" / f"{0:020d}.json").read_text()
    mapped = text.replace('"configuration":{}', '"configuration":{"delta.columnMapping.mode":"name"}')
    assert text != mapped
    (tmp_path / "_delta_log" / f"{0:020d}.json").write_text(mapped)
    answer = changes(tmp_path)
    assert isinstance(answer, Reinitialize) and answer.code == "NOT_READABLE"
    assert "its columns are mapped" in answer.reason


def test_columns_of_types_that_arrow_does_not_know_are_left_to_spark(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), rows(range(20)))
    (metadata,) = commit(tmp_path, 0, "metaData")
    schema = json.loads(metadata["schemaString"])
    schema["fields"].append({"name": "any", "type": "variant", "nullable": True, "metadata": {}})
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["variantType"]}
    actions = [
        {"protocol": {**protocol, "writerFeatures": ["variantType"]}},
        {"metaData": {**metadata, "schemaString": json.dumps(schema)}},
    ]
    written = "\n".join(json.dumps(action) for action in actions)
    (tmp_path / "_delta_log" / f"{1:020d}.json").write_text(written)
    assert isinstance(changes(tmp_path, columns=["n"]), Unchanged)
    assert changes(tmp_path) == Reinitialize(
        "NOT_READABLE", f"only Spark can read {tmp_path} between snapshots 0 and 1: the column any is of type variant"
    )


def test_tables_in_an_object_store_are_read(tmp_path: Path) -> None:
    root = tmp_path / "table"
    write_deltalake(str(root), rows(range(20)), configuration=FEED)
    append(root)
    delete_by_vector(root, 1, 2, [0, 2], stored="u")
    merge(root)
    with object_store(tmp_path) as store:
        given = (store.location("table"), str(head(root).metadata().id))
        answer = changed_rows(*given, 0, 3, storage=store.options)
        assert told(answer) == difference(root, 0, 3, ["p", "n", "v"])
        assert change_size(*given, 0, 3, store.options) == change_size(str(root), given[1], 0, 3)
        next(root.rglob("_change_data/*.parquet")).unlink()
        expired(changed_rows(*given, 0, 3, storage=store.options), "is gone")
        shutil.rmtree(root / "ab")
        expired(changed_rows(*given, 1, 2, storage=store.options), "deletion_vector")
