"""The rows by which two snapshots of a table differ, against both read in full."""

from __future__ import annotations

import json
import shutil
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.exceptions import DeltaError
from deltalake.schema import PrimitiveType
from fuzzing import effort
from hypothesis import given, seed
from hypothesis import strategies as st
from inline_vectors import delete_by_vector, hide_rows
from object_store import object_store

from penstock.engine.log.handle import TableMissing, commits
from penstock.engine.observe import unequal_rows
from penstock.engine.refresh import change_log as change_log_module
from penstock.engine.refresh import read_changes, table_rows
from penstock.engine.refresh.change_log import ChangeLog, change_log
from penstock.engine.refresh.change_size import ChangeSize, change_size
from penstock.engine.refresh.changed_rows import ChangedRows, FewRows, ManyRows, Unchanged, changed_rows
from penstock.engine.refresh.reinitialize import Reinitialize
from penstock.engine.rows.multisets import WEIGHT

FEED = {"delta.enableChangeDataFeed": "true"}
Bag = Counter[object]


def head(root: Path) -> DeltaTable:
    return DeltaTable(str(root))


def spelled(value: object) -> object:
    """Numbers with a fraction by their bits."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, dict):
        return tuple((key, spelled(inner)) for key, inner in value.items())
    return tuple(spelled(inner) for inner in value) if isinstance(value, list | tuple) else value


def bag(root: Path, version: int, columns: list[str]) -> Bag:
    """A snapshot as delta-rs reads it; a column that it has not is NULL."""
    rows = pa.table(DeltaTable(str(root), version=version).scan()).to_pylist()
    return Counter(spelled([row.get(name) for name in columns]) for row in rows)


def difference(root: Path, after: int, upto: int, columns: list[str]) -> Bag:
    now = bag(root, upto, columns)
    now.subtract(bag(root, after, columns))
    return non_zero(now)


def non_zero(counts: Bag) -> Bag:
    return Counter({row: count for row, count in counts.items() if count})


def changes(root: Path, after: int = 0, upto: int | None = None, **asked: object) -> ChangedRows:
    table = head(root)
    version = table.version() if upto is None else upto
    return changed_rows(str(root), str(table.metadata().id), after, version, **asked)  # type: ignore[arg-type]


def told(answer: ChangedRows) -> Bag:
    if isinstance(answer, Unchanged):
        return Counter()
    assert isinstance(answer, FewRows), answer
    weights = answer.rows.column(WEIGHT).to_pylist()
    rows = answer.rows.drop_columns([WEIGHT]).to_pylist()
    assert 0 not in weights
    assert answer.inserts_only == (min(weights) > 0)
    counted = Counter({spelled(list(row.values())): weight for row, weight in zip(rows, weights, strict=True)})
    assert len(counted) == len(weights), "one of each"
    return counted


def check(root: Path, after: int = 0, upto: int | None = None, columns: list[str] | None = None) -> ChangedRows:
    answer = changes(root, after, upto, columns=columns)
    version = head(root).version() if upto is None else upto
    names = [field.name for field in DeltaTable(str(root), version=version).schema().fields]
    expected = difference(root, after, version, [name for name in names if columns is None or name in columns])
    assert told(answer) == expected
    return answer


def rows(numbers: range | list[int], text: str = "a") -> pa.Table:
    return pa.table({"p": [n % 3 for n in numbers], "n": pa.array(numbers, pa.int64()), "v": [text for _ in numbers]})


@pytest.fixture(
    params=[(feed, parted) for feed in (False, True) for parted in (False, True)],
    ids=["files", "files partitioned", "feed", "feed partitioned"],
)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Forty rows in two files, or in six."""
    feed, parted = request.param
    place = tmp_path / "table"
    partition = ["p"] if parted else None
    write_deltalake(str(place), rows(range(20)), configuration=FEED if feed else {}, partition_by=partition)
    write_deltalake(str(place), rows(range(20, 40)), mode="append")
    return place


def append(root: Path) -> None:
    write_deltalake(str(root), rows([7, 50, 50, 51]), mode="append")


def delete(root: Path) -> None:
    head(root).delete("n = 3 or n > 30")


def delete_all(root: Path) -> None:
    head(root).delete()


def update(root: Path) -> None:
    head(root).update({"v": "'new'"}, predicate="n = 3 or n = 22")


def update_to_the_same(root: Path) -> None:
    head(root).update({"v": "v"}, predicate="n > 10")


def move(root: Path) -> None:
    head(root).update({"p": "p + 1"}, predicate="n > 35")


def merge(root: Path) -> None:
    joined = head(root).merge(rows([5, 60], "m"), "s.n = t.n", source_alias="s", target_alias="t")
    joined.when_matched_update_all().when_not_matched_insert_all().execute()


def merge_that_deletes(root: Path) -> None:
    joined = head(root).merge(rows(range(15)), "s.n = t.n", source_alias="s", target_alias="t")
    joined.when_matched_delete().execute()


def overwrite(root: Path) -> None:
    write_deltalake(str(root), rows([*range(10), 25, 60]), mode="overwrite")


def replace_where(root: Path) -> None:
    write_deltalake(str(root), rows([0, 30, 33], "r"), mode="overwrite", predicate="p = 0")


def compact(root: Path) -> None:
    head(root).optimize.compact()


def z_order(root: Path) -> None:
    head(root).optimize.z_order(["v"])


def restore(root: Path) -> None:
    head(root).restore(0)


def nothing_new(root: Path) -> None:
    write_deltalake(str(root), rows([]), mode="append")


def switch_feed(root: Path) -> None:
    now = head(root).metadata().configuration.get("delta.enableChangeDataFeed", "false")
    head(root).alter.set_table_properties({"delta.enableChangeDataFeed": "false" if now == "true" else "true"})


ACTS = [
    append, delete, delete_all, update, update_to_the_same, move, merge, merge_that_deletes, overwrite, replace_where,
    compact, z_order, restore, nothing_new, switch_feed,
]  # fmt: skip


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


def back(root: Path) -> None:
    head(root).update({"v": "'a'"})


def delete_and_insert(root: Path) -> None:
    head(root).delete("n = 3")
    write_deltalake(str(root), rows([3]), mode="append")


def there_and_back(root: Path) -> None:
    update(root)
    back(root)


def remove_all_and_restore(root: Path) -> None:
    delete_all(root)
    head(root).restore(1)


def come_and_go(root: Path) -> None:
    write_deltalake(str(root), rows([50, 51]), mode="append")
    compact(root)
    head(root).delete("n >= 50")


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


def commit(root: Path, version: int, action: str) -> list[dict[str, Any]]:
    lines = (root / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    return [found[action] for line in lines if action in (found := json.loads(line))]


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


# what cannot be read any more


def expired(answer: ChangedRows, what: str) -> None:
    assert isinstance(answer, Reinitialize)
    assert answer.code == "HISTORY_EXPIRED"
    assert what in answer.reason


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


# any commits

Row = tuple[int | None, int, str | None]
Act = Callable[[Path], None]
drawn_rows = st.lists(
    st.tuples(st.sampled_from([0, 1, None]), st.integers(0, 3), st.sampled_from(["a", "b", None])), max_size=4
)
conditions = st.sampled_from(["n = 1", "n > 1", "p = 0", "p is null", "v = 'a'", "v is null and n < 3", "1 = 1"])
numbers = st.sets(st.integers(0, 9), min_size=1)
values = st.sampled_from([("v", "'a'"), ("v", "v"), ("v", "null"), ("n", "n + 1"), ("p", "1"), ("p", "null")])


def table_of(drawn: list[Row]) -> pa.Table:
    kinds = {"p": pa.int64(), "n": pa.int64(), "v": pa.string()}
    return pa.table({name: pa.array([row[at] for row in drawn], kind) for at, (name, kind) in enumerate(kinds.items())})


def merged(root: Path, drawn: list[Row], deletes: bool) -> None:
    once = {row[1]: row for row in drawn}
    joined = head(root).merge(table_of(list(once.values())), "s.n = t.n", source_alias="s", target_alias="t")
    (
        joined.when_matched_delete() if deletes else joined.when_matched_update_all()
    ).when_not_matched_insert_all().execute()


def hidden(root: Path, chosen: int, numbers: set[int]) -> None:
    """Rows of a live file, and no others of it, are hidden from now on."""
    live: dict[str, dict[str, Any]] = {}
    for version in range(head(root).version() + 1):
        for remove in commit(root, version, "remove"):
            live.pop(remove["path"], None)
        live.update({add["path"]: add for add in commit(root, version, "add")})
    files = [add for add in live.values() if json.loads(add["stats"])["numRecords"]]
    if not files:
        return
    add = files[chosen % len(files)]
    count = json.loads(add["stats"])["numRecords"]
    # no commit may take out and put in the same file with the same vector: each lies in a file of its own
    hide_rows(root, add, head(root).version() + 1, {number % count for number in numbers}, stored="u")


def writes(**given: Any) -> Callable[[list[Row]], Act]:
    return lambda drawn: lambda root: write_deltalake(str(root), table_of(drawn), schema_mode="merge", **given)


drawn_acts = st.one_of(
    st.builds(writes(mode="append"), drawn_rows),
    st.builds(writes(mode="append"), drawn_rows),
    st.builds(writes(mode="overwrite"), drawn_rows),
    st.builds(lambda where: lambda root: head(root).delete(where), conditions),
    st.builds(lambda pair, where: lambda root: head(root).update(dict([pair]), predicate=where), values, conditions),
    st.builds(lambda drawn, deletes: lambda root: merged(root, drawn, deletes), drawn_rows, st.booleans()),
    st.builds(lambda at: lambda root: head(root).restore(at % (head(root).version() + 1)), st.integers(0, 9)),
    st.builds(lambda at, of: lambda root: hidden(root, at, of), st.integers(0, 9), numbers),
    st.sampled_from([compact, z_order, switch_feed]),
)  # fmt: skip


@effort(20)
@given(drawn_rows, st.lists(drawn_acts, min_size=2, max_size=6), st.booleans(), st.booleans())
@seed(20261118)
def test_whatever_was_committed_the_rows_by_which_snapshots_differ_are_told(
    first: list[Row], acts: list[Act], feed: bool, parted: bool
) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder, "table")
        partition = ["p"] if parted else None
        write_deltalake(str(root), table_of(first), partition_by=partition, configuration=FEED if feed else {})
        for act in acts:
            with suppress(DeltaError):  # delta-rs does not do everything
                act(root)
        bags = [bag(root, version, ["p", "n", "v"]) for version in range(head(root).version() + 1)]
        last = len(bags) - 1
        for after, upto in sorted({(start, end) for start in range(last) for end in (start + 1, last)}):
            expected = Counter(bags[upto])
            expected.subtract(bags[after])
            answer, narrow = changes(root, after, upto), changes(root, after, upto, columns=["n"])
            assert told(answer) == non_zero(expected)
            assert told(narrow) == by_number(expected)


def by_number(expected: Bag) -> Bag:
    counted: Bag = Counter()
    for row, count in expected.items():
        counted[row[1:2]] += count  # type: ignore[index]
    return non_zero(counted)


# controls: what would be missed


def gross(rows: pa.Table) -> pa.Table:
    return rows


def only_new_images(rows: pa.Table, left: unequal_rows.Leftover) -> None:
    old = pc.is_in(rows.column("_change_type"), pa.array(["delete", "update_preimage"]))
    left.add(rows.filter(pc.invert(old)).drop_columns(["_change_type"]), came=True)


def from_the_first(location: str, after: int, upto: int, storage: None) -> Iterator[object]:
    return commits(location, after - 1, upto, storage)


def without_removals(location: str, after: int, upto: int, storage: None) -> Iterator[object]:
    for found in commits(location, after, upto, storage):
        assert not isinstance(found, int)
        yield replace(found, removes=())


def vectors_unread(root: str, vector: object, storage: None) -> pa.Array:
    return pa.array([], pa.int64())


@pytest.mark.parametrize(
    ("place", "broken", "act"),
    [
        ((unequal_rows, "summed_rows"), gross, come_and_go),
        ((read_changes, "add_feed"), only_new_images, merge),
        ((change_log_module, "commits"), from_the_first, update),
        ((change_log_module, "commits"), without_removals, delete_all),
        ((table_rows, "hidden_rows"), vectors_unread, lambda root: hidden(root, 0, {1})),
    ],
    ids=["not netted", "new images only", "one commit too many", "no removals", "vectors unread"],
)
def test_control_a_reader_that_leaves_something_out_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: tuple[ModuleType, str], broken: object, act: Act
) -> None:
    write_deltalake(str(tmp_path), rows(range(20)), configuration=FEED)
    append(tmp_path)
    act(tmp_path)
    check(tmp_path, 1)
    monkeypatch.setattr(*place, broken)
    with pytest.raises(AssertionError):
        check(tmp_path, 1)


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
