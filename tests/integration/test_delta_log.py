"""Snapshots read from logs as other programs write them."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.engine.log import handle, storage
from penstock.engine.log import snapshot as log
from penstock.engine.log.handle import UnreadableLog
from penstock.engine.rows.statistics import footer, position_range
from penstock.engine.values.files import PositionColumn, TableSnapshot
from penstock.errors import EngineError, SourceError
from penstock.values.intervals import ranges

AT = PositionColumn("at", "second")
TEN = 1767261600
"""2026-01-01T10:00:00Z"""
STATS: dict[str, Any] = {
    "numRecords": 3,
    "minValues": {"at": "2026-01-01T10:00:00.123Z"},
    "maxValues": {"at": "2026-01-01T10:00:05.999Z"},
    "nullCount": {"at": 0},
}


def field(name: str, type_: object, **metadata: object) -> dict[str, object]:
    return {"name": name, "type": type_, "nullable": True, "metadata": metadata}


def features(*names: str) -> dict[str, object]:
    return {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [*names], "writerFeatures": [*names]}


def write_log(
    root: Path,
    *,
    protocol: dict[str, object] | None = None,
    fields: list[dict[str, object]] | None = None,
    configuration: dict[str, str] | None = None,
    partitions: tuple[str, ...] = (),
    **add: object,
) -> Path:
    """A table of one commit with one file, every action spelled by hand."""
    schema = {"type": "struct", "fields": fields or [field("at", "timestamp"), field("v", "long")]}
    metadata = {
        "id": "table-1",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": partitions,
        "configuration": configuration or {},
    }
    action = {"path": "a%20b.parquet", "partitionValues": {}, "size": 9, "modificationTime": 1, "dataChange": True}
    lines = [
        {"protocol": protocol or {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": metadata},
        {"add": {**action, "stats": json.dumps(STATS), **add}},
    ]
    (root / "_delta_log").mkdir(parents=True)
    (root / "_delta_log" / f"{0:020d}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return root


def snapshot(root: Path, position: PositionColumn | None = AT) -> TableSnapshot:
    seen = log.snapshot(str(root), position)
    assert seen is not None
    return seen


def test_a_snapshot_has_decoded_paths_and_positions(tmp_path: Path) -> None:
    seen = snapshot(write_log(tmp_path))
    (file,) = seen.files
    assert (file.path, file.size, file.rows, file.low, file.high, file.nulls) == ("a b.parquet", 9, 3, TEN, TEN + 5, 0)
    assert (seen.version, seen.table_id, seen.needs_delta_reader) == (0, "table-1", None)
    assert handle.latest_version(str(tmp_path)) == 0
    assert seen.meeting(ranges((TEN + 5, TEN + 6))) and not seen.meeting(ranges((TEN + 6, TEN + 9)))


def test_no_table_is_none_and_no_error(tmp_path: Path) -> None:
    assert log.snapshot(str(tmp_path / "nothing"), AT) is None
    assert handle.latest_version(str(tmp_path / "nothing")) is None
    (tmp_path / "_delta_log").mkdir()
    assert log.snapshot(str(tmp_path), AT) is None


def test_older_snapshots_stay_readable_and_future_ones_are_an_error(tmp_path: Path) -> None:
    for n in range(3):
        write_deltalake(tmp_path, pa.table({"at": [n]}), mode="append")
    blocks = PositionColumn("at", "block")
    old = log.snapshot(str(tmp_path), blocks, version=1)
    assert old is not None and sorted(file.low or 0 for file in old.files) == [0, 1]
    with pytest.raises(UnreadableLog, match="snapshot 7"):
        log.snapshot(str(tmp_path), blocks, version=7)


@pytest.mark.parametrize("stats", [None, "{nope", "{}", json.dumps({"numRecords": 3, "minValues": {"at": "x"}})])
def test_without_statistics_a_file_may_hold_anything(tmp_path: Path, stats: str | None) -> None:
    (file,) = snapshot(write_log(tmp_path, stats=stats)).files
    assert file.low is None and file.high is None
    assert file.meets(ranges((0, 1))) and not file.inside(ranges((0, 2**62)))


@pytest.mark.parametrize(
    ("kind", "low", "high", "positions"),
    [
        ("timestamp", "2026-01-01T20:00:00.000+10:00", "2026-01-01T10:00:01.000Z", (TEN, TEN + 1)),
        ("timestamp", "1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.000Z", (-1, 0)),
        ("timestamp_ntz", "2026-01-01T10:00:00.123", "2026-01-01 10:00:01.123", (TEN, TEN + 1)),
        ("date", "1969-12-31", "2026-01-01", (-86400, TEN - 36000)),
        ("long", -(2**62), 2**62, (-(2**62), 2**62)),
        ("byte", -1, 0, (-1, 0)),
    ],
)
def test_statistics_of_every_kind_become_positions(
    tmp_path: Path, kind: str, low: object, high: object, positions: tuple[int, int]
) -> None:
    stats = {"numRecords": 2, "minValues": {"at": low}, "maxValues": {"at": high}, "nullCount": {"at": 1}}
    protocol = features("timestampNtz") if kind == "timestamp_ntz" else None
    seen = snapshot(write_log(tmp_path, protocol=protocol, fields=[field("at", kind)], stats=json.dumps(stats)))
    assert (seen.files[0].low, seen.files[0].high, seen.files[0].nulls) == (*positions, 1)
    assert seen.needs_delta_reader is None


def test_a_missing_position_column_is_reported_with_those_that_are_there(tmp_path: Path) -> None:
    root = write_log(
        tmp_path, fields=[field("at", "timestamp"), field("s", "string"), field("n", {"type": "struct", "fields": []})]
    )
    with pytest.raises(SourceError, match=r"no column 'when'.* at, s, n"):
        log.snapshot(str(root), PositionColumn("when", "second"))
    with pytest.raises(SourceError, match=r"no column 'n.at'"):
        log.snapshot(str(root), PositionColumn("n.at", "second"))
    with pytest.raises(SourceError, match="'s' is a string"):
        log.snapshot(str(root), PositionColumn("s", "second"))
    with pytest.raises(SourceError, match="'n' is a struct"):
        log.snapshot(str(root), PositionColumn("n", "second"))
    with pytest.raises(SourceError, match="'block' need an integer"):
        log.snapshot(str(root), PositionColumn("at", "block"))
    assert snapshot(root, PositionColumn("AT", "second")).files[0].low == TEN


def test_tables_that_parquet_alone_cannot_show_say_why(tmp_path: Path) -> None:
    mapped = [field("at", "timestamp", **{"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"})]
    stats = json.dumps(STATS).replace('"at"', '"col-1"')
    mapping = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}
    parts = [field("at", "timestamp"), field("p", "timestamp")]
    cases: dict[str, tuple[dict[str, Any], str]] = {
        "widened": ({"protocol": features("typeWidening")}, "type widening"),
        "variant": ({"protocol": features("variantType")}, "the table feature variantType"),
        "mapped": (
            {"protocol": features("columnMapping"), "fields": mapped, "configuration": mapping, "stats": stats},
            "column mapping by name",
        ),
        "absolute": ({"path": "file:///elsewhere/a.parquet"}, "the absolute path"),
        "globs": ({"path": "a[1].parquet"}, "the path"),
        "hidden": ({"path": "_a.parquet"}, "the path"),
        "looks partitioned": ({"path": "x=1/a.parquet"}, "partition values"),
        "timestamps": (
            {"fields": parts, "partitions": ("p",), "partitionValues": {"p": "2026-01-01 00:00:00"}},
            "the partition column p of type timestamp",
        ),
    }
    for name, (table, why) in cases.items():
        seen = snapshot(write_log(tmp_path / name, **table))
        assert (seen.needs_delta_reader or "").startswith(why), name
        assert seen.files[0].low == TEN, name


@pytest.mark.parametrize("other", ["vacuumProtocolCheck", "deletionVectors"])
def test_features_that_leave_the_files_alone_need_nothing(tmp_path: Path, other: str) -> None:
    root = write_log(tmp_path, protocol=features("timestampNtz", "v2Checkpoint", other))
    assert snapshot(root).needs_delta_reader is None


def test_a_vector_that_cannot_be_read_counts_for_every_file(tmp_path: Path) -> None:
    vector = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 4,
        "sizeInBytes": 40,
        "cardinality": 6,
    }
    seen = snapshot(write_log(tmp_path, protocol=features("deletionVectors"), deletionVector=vector))
    assert seen.files[0].has_deletion_vector and seen.needs_delta_reader == "deletion vectors"


@pytest.mark.parametrize("protocol", [features("notYetInvented"), {"minReaderVersion": 9, "minWriterVersion": 9}])
def test_a_log_that_needs_more_is_left_to_spark(tmp_path: Path, protocol: dict[str, object]) -> None:
    with pytest.raises(UnreadableLog, match="without Spark"):
        log.snapshot(str(write_log(tmp_path, protocol=protocol)), AT)


def test_a_torn_log_is_an_error_in_one_line(tmp_path: Path) -> None:
    write_log(tmp_path)
    (tmp_path / "_delta_log" / f"{1:020d}.json").write_text('{"add":')
    with pytest.raises(UnreadableLog) as caught:
        log.snapshot(str(tmp_path), AT)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (["x=y/ z", "%é", None], {"x=y/ z", "%é", None}),
        ([date(2026, 1, 1), None], {"2026-01-01", None}),
        ([-1, 7], {"-1", "7"}),
    ],
)
def test_hive_partitions_with_odd_values_are_read_from_the_paths(
    tmp_path: Path, values: list[object], texts: set[str | None]
) -> None:
    write_deltalake(tmp_path, pa.table({"at": list(range(len(values))), "p": values}), partition_by=["p"])
    seen = snapshot(tmp_path)
    assert {file.partition["p"] for file in seen.files} == texts
    assert seen.needs_delta_reader is None
    assert all((tmp_path / file.path).is_file() for file in seen.files)


def test_the_position_may_be_a_partition_column(tmp_path: Path) -> None:
    days = [date(1969, 12, 31), date(1970, 1, 2), None]
    write_deltalake(tmp_path, pa.table({"at": days, "v": [1, 2, 3]}), partition_by=["at"])
    files = sorted(snapshot(tmp_path).files, key=lambda file: (file.low is None, file.low))
    assert [(file.low, file.high, file.nulls) for file in files] == [
        (-86400, -86400, 0),
        (86400, 86400, 0),
        (None, None, 1),
    ]


def test_partition_values_that_the_path_does_not_show_need_the_delta_reader(tmp_path: Path) -> None:
    fields = [field("at", "timestamp"), field("p", "string")]
    root = write_log(tmp_path, fields=fields, partitions=("p",), partitionValues={"p": "x"}, path="p=y/a.parquet")
    assert (snapshot(root).needs_delta_reader or "").startswith("partition values")


def test_classic_checkpoints_give_the_same_snapshot(tmp_path: Path) -> None:
    for n in range(3):
        write_deltalake(tmp_path, pa.table({"at": [n]}), mode="append")
    before = snapshot(tmp_path)
    DeltaTable(tmp_path).create_checkpoint()
    for n in range(2):
        (tmp_path / "_delta_log" / f"{n:020d}.json").unlink()
    after = snapshot(tmp_path)
    assert sorted(after.files, key=lambda file: file.path) == sorted(before.files, key=lambda file: file.path)
    assert sorted(file.low or 0 for file in after.files) == [0, 1, 2]


def test_v2_checkpoints_with_sidecars_are_read(tmp_path: Path) -> None:
    write_log(tmp_path, protocol=features("v2Checkpoint"))
    folder = tmp_path / "_delta_log"
    protocol, metadata, add = (json.loads(line) for line in (folder / f"{0:020d}.json").read_text().splitlines())
    (folder / "_sidecars").mkdir()
    action = pa.struct(
        [
            ("path", pa.string()),
            ("partitionValues", pa.map_(pa.string(), pa.string())),
            ("size", pa.int64()),
            ("modificationTime", pa.int64()),
            ("dataChange", pa.bool_()),
            ("stats", pa.string()),
        ]
    )
    removal = pa.struct([("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_())])
    rows = {"add": pa.array([{**add["add"], "partitionValues": []}], action), "remove": pa.array([None], removal)}
    pq.write_table(pa.table(rows), folder / "_sidecars" / "s.parquet")
    size = (folder / "_sidecars" / "s.parquet").stat().st_size
    sidecar = {"sidecar": {"path": "s.parquet", "sizeInBytes": size, "modificationTime": 1}}
    lines = [{"checkpointMetadata": {"version": 0}}, protocol, metadata, sidecar]
    name = f"{0:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / f"{0:020d}.json").unlink()
    (folder / f"{1:020d}.json").write_text('{"commitInfo":{}}\n')
    seen = snapshot(tmp_path)
    assert (seen.version, [file.low for file in seen.files], seen.needs_delta_reader) == (1, [TEN], None)


def test_locations_with_spaces_and_as_urls_are_the_same_table(tmp_path: Path) -> None:
    root = tmp_path / "a folder é"
    moment = datetime(2026, 1, 1, 10, tzinfo=UTC)
    write_deltalake(root, pa.table({"at": pa.array([moment], pa.timestamp("us", "UTC"))}))
    by_url = log.snapshot(root.as_uri(), AT)
    assert by_url is not None and by_url.files == snapshot(root).files
    assert handle.commit_at(root.as_uri(), 0) == handle.commit_at(str(root), 0) is not None
    shutil.rmtree(root)
    assert log.snapshot(str(root), AT) is None


def test_files_of_an_object_store_are_opened_by_delta_rs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "a folder"
    write_deltalake(root, pa.table({"at": [5, 6]}))
    by_path = handle.commit_at(str(root), 0)
    monkeypatch.setattr(storage, "local_path", lambda _: None)
    assert handle.commit_at(root.as_uri(), 0) == by_path is not None
    assert handle.commit_at(root.as_uri(), 1) is None
    (file,) = snapshot(root).files
    found = position_range(footer(root.as_uri(), file.path), AT)
    assert found is not None and (found.low, found.high) == (5, 6)
    with pytest.raises(EngineError, match="gone"):
        footer(root.as_uri(), "gone.parquet")
