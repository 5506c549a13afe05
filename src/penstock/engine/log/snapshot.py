"""What does the Delta log say about one snapshot of a table?"""

from __future__ import annotations

import json
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from penstock.engine.log.handle import open_table, trouble
from penstock.engine.log.storage import Storage, is_absolute
from penstock.engine.values.arrow_positions import maybe_rounded_up, positions
from penstock.engine.values.column_types import COLUMN_TYPES, column_type
from penstock.engine.values.files import RUN, DataFile, PositionColumn, TableSnapshot
from penstock.engine.values.positions import PositionField, position_field

PLAIN_FEATURES = {"v2Checkpoint", "vacuumProtocolCheck", "deletionVectors", "columnMapping"}
"""Reader features that leave the Parquet files as they look; the last two are judged by their use."""
PLAIN_FEATURES |= {kind.feature for kind in COLUMN_TYPES if kind.feature is not None}
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


def snapshot(
    location: str,
    position: PositionColumn | None,
    *,
    version: int | None = None,
    storage: Storage | None = None,
) -> TableSnapshot | None:
    """One snapshot with its live files, the newest by default; None when there is no table."""
    table = open_table(location, version=version, storage=storage)
    return None if table is None else read(table, location, position)


def read(table: DeltaTable, location: str, position: PositionColumn | None) -> TableSnapshot:
    """The snapshot that an open handle stands on."""
    schema_json = table.schema().to_json()
    partition_columns = tuple(table.metadata().partition_columns)
    field = None if position is None else position_field(schema_json, position)
    try:
        actions = pa.table(table.get_add_actions(flatten=False))
        files = _files(actions, field, partition_columns, _deletion_vectors(table))
    except DeltaError as error:
        raise trouble(location, error) from error
    return TableSnapshot(
        location=location,
        version=table.version(),
        table_id=str(table.metadata().id),
        schema_json=schema_json,
        partition_columns=partition_columns,
        files=files,
        needs_delta_reader=_needs_delta_reader(table, schema_json, partition_columns, files),
    )


def _files(
    actions: pa.Table, field: PositionField | None, partition_columns: tuple[str, ...], vectors: frozenset[str] | None
) -> tuple[DataFile, ...]:
    count = actions.num_rows
    lows: list[int | None] = [None] * count
    highs, nulls, exact = list(lows), list(lows), [True] * count
    partitions = {name: _texts(_child(actions, "partition", name)) for name in partition_columns}
    rows: list[int | None] = actions.column("num_records").to_pylist()
    if field is not None and field.name in partition_columns:
        lows, _ = _positions(_child(actions, "partition", field.name), field, count)
        highs = list(lows)
        nulls = [n if low is None else 0 for n, low in zip(rows, lows, strict=True)]
    elif field is not None:
        lows, _ = _positions(_child(actions, "min", field.physical), field, count)
        highs, exact = _positions(_child(actions, "max", field.physical), field, count)
        counts = _child(actions, "null_count", field.physical)
        nulls = nulls if counts is None else counts.to_pylist()
    return tuple(
        DataFile(
            path=path,
            size=size,
            rows=rows[i],
            low=lows[i],
            high=highs[i],
            nulls=nulls[i],
            partition={name: texts[i] for name, texts in partitions.items()},
            has_deletion_vector=vectors is None or path in vectors,
            high_is_exact=exact[i],
        )
        for i, (path, size) in enumerate(
            zip(map(unquote, actions.column("path").to_pylist()), actions.column("size_bytes").to_pylist(), strict=True)
        )
    )


def _child(actions: pa.Table, group: str, name: str) -> pa.ChunkedArray | None:
    """One column of a statistics group; the log may have no such group, or statistics of the first columns only."""
    if group not in actions.column_names:
        return None
    struct = actions.column(group)
    if struct.type.get_field_index(name) < 0:
        return None
    return pc.struct_field(struct, [name])


def _positions(values: pa.ChunkedArray | None, field: PositionField, count: int) -> tuple[list[int | None], list[bool]]:
    """Positions, and whether each is exact: a whole second may be a moment rounded up to it."""
    at = None if values is None else positions(values, field.kind)
    if at is None:
        return [None] * count, [True] * count
    return at.to_pylist(), [not rounded for rounded in maybe_rounded_up(values, field.kind)]


def _texts(values: pa.ChunkedArray | None) -> list[str | None]:
    if values is None:
        return []
    return [None if value is None else str(value) for value in values.to_pylist()]


def _deletion_vectors(table: DeltaTable) -> frozenset[str] | None:
    """The paths of the live files with a deletion vector; None when any file may have one."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return frozenset()
    root = unquote(table.table_uri).rstrip("/") + "/"
    try:
        places = pa.table(table.deletion_vectors().read_all()).column("filepath").to_pylist()
    except DeltaError:
        return None
    paths = [unquote(path) for path in places]
    if not all(path.startswith(root) for path in paths):
        return None
    return frozenset(path.removeprefix(root) for path in paths)


def _needs_delta_reader(
    table: DeltaTable, schema_json: str, partition_columns: tuple[str, ...], files: tuple[DataFile, ...]
) -> str | None:
    features = set(table.protocol().reader_features or ())
    mapping = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    if mapping != "none":
        return f"column mapping by {mapping}"
    if "typeWidening" in features or "typeWidening-preview" in features:
        return "type widening"
    if unknown := sorted(features - PLAIN_FEATURES):
        return f"the table feature {unknown[0]}"
    if any(file.has_deletion_vector for file in files):
        return "deletion vectors"
    types = {field["name"]: field["type"] for field in json.loads(schema_json)["fields"]}
    for name in partition_columns:
        kind = column_type(types[name])
        if kind is None or not kind.same_in_paths:
            return f"the partition column {name} of type {types[name]}"
    return next((why for file in files if (why := odd_path(file, partition_columns))), None)


def odd_path(file: DataFile, partition_columns: tuple[str, ...]) -> str | None:
    """Why Spark would not find this file, or read other partition values from its path than the log has."""
    if is_absolute(file.path):
        return f"the absolute path {file.path}"
    *folders, name = file.path.split("/")
    if name.startswith(("_", ".")) or set(file.path) & set("*?[]{}\\"):
        return f"the path {file.path}"
    shown = [folder.partition("=") for folder in folders if "=" in folder and not folder.startswith(f"{RUN}=")]
    expected = [(column, file.partition[column]) for column in partition_columns]
    if [(unquote(column), _hive(value)) for column, _, value in shown] != expected:
        return f"partition values that are not in the path {file.path}"
    return None


def _hive(value: str) -> str | None:
    return None if value == _HIVE_NULL else unquote(value)
