"""What do the footers of a Parquet file say about its rows, in Delta's words and as positions?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.engine.log.storage import Storage, place
from penstock.engine.values.arrow_positions import raw_position
from penstock.engine.values.column_types import ColumnType, arrow_type
from penstock.engine.values.files import PositionColumn
from penstock.engine.values.job import StagedFile
from penstock.errors import EngineError, QueryError, SourceError

INDEXED_COLUMNS = 32
"""Delta's readers look at the statistics of this many leading columns."""
LEGACY = b"org.apache.spark.legacyDateTime"
"""Old Spark wrote times and dates in a calendar of its own, and marked the files."""


@dataclass(frozen=True, slots=True)
class Footer:
    path: str
    size: int
    metadata: pq.FileMetaData


@dataclass(frozen=True, slots=True)
class PositionRange:
    """The positions of a file's rows, both inclusive and exact. Without a row that has one: low and high are None."""

    low: int | None
    high: int | None
    nulls: int


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column without children and not inside a list or map; `index` is its place in the file."""

    path: tuple[str, ...]
    type: pa.DataType
    kind: ColumnType | None
    index: int


@dataclass(frozen=True, slots=True)
class Extent:
    """Least and greatest raw value of a column over all row groups, where the file knows."""

    least: object
    greatest: object
    nulls: int | None


def footer(location: str, path: str, storage: Storage | None = None) -> Footer:
    """The footer of a file of the table at `location`."""
    try:
        filesystem, inside = place(location, path, storage)
        with filesystem.open_input_file(inside) as file:
            return Footer(path, file.size(), pq.read_metadata(file))
    except (OSError, pa.ArrowInvalid) as error:
        raise EngineError(
            f"cannot read the footer of {path} in {location}: {error}", hint="check that the file is there and whole"
        ) from error


def staged_file(
    root: str, relative_path: str, position: PositionColumn | None, storage: Storage | None = None
) -> StagedFile:
    """A staged Parquet file with Delta statistics; `root` is the table's location."""
    read = footer(str(root), relative_path, storage)
    try:
        positions = None if position is None else position_range(read, position)
    except SourceError as error:
        raise QueryError(f"the new rows have no usable position: {error.message}", hint=error.hint) from error
    return StagedFile(
        path=relative_path,
        size=read.size,
        rows=read.metadata.num_rows,
        stats_json=delta_statistics(read, position),
        low=None if positions is None else positions.low,
        high=None if positions is None else positions.high,
        nulls=None if positions is None else positions.nulls,
    )


def position_range(read: Footer, position: PositionColumn) -> PositionRange | None:
    """The positions in a file, or None when its footer does not tell."""
    leaves = [leaf for leaf in _leaves(read.metadata) if len(leaf.path) == 1]
    named = [leaf for leaf in leaves if leaf.path[0] == position.name]
    named = named or [leaf for leaf in leaves if leaf.path[0].casefold() == position.name.casefold()]
    if len(named) != 1:
        raise SourceError(
            f"no column {position.name!r}; there are {', '.join(leaf.path[0] for leaf in leaves)}",
            hint="name a top-level column in `position`",
        )
    leaf, rows = named[0], read.metadata.num_rows
    extent = _extent(read.metadata, leaf)
    if extent.nulls == rows:
        return PositionRange(None, None, rows)
    if extent.nulls is None or not isinstance(extent.least, int) or not isinstance(extent.greatest, int):
        return None
    low, high = raw_position(extent.least, leaf.type), raw_position(extent.greatest, leaf.type)
    return None if low is None or high is None else PositionRange(low, high, extent.nulls)


def delta_statistics(read: Footer, position: PositionColumn | None) -> str:
    """Delta's statistics, rounded outwards: a maximum that is too small hides rows from every reader."""
    least: dict[tuple[str, ...], str] = {}
    greatest: dict[tuple[str, ...], str] = {}
    nulls: dict[tuple[str, ...], str] = {}
    for place_in_order, leaf in enumerate(_leaves(read.metadata)):
        is_position = position is not None and leaf.path[0].casefold() == position.name.casefold()
        if place_in_order >= INDEXED_COLUMNS and not is_position:
            continue
        extent = _extent(read.metadata, leaf)
        if extent.nulls is not None:
            nulls[leaf.path] = str(extent.nulls)
        if extent.least is None or _is_doubtful(leaf, read.metadata):
            continue
        low, high = rounded_down(extent.least, leaf.type), rounded_up(extent.greatest, leaf.type)
        # Both or neither: delta-rs's Arrow dataset hides every row from a filter on a column with one bound only.
        if low is not None and high is not None:
            least[leaf.path], greatest[leaf.path] = low, high
    parts = f'"minValues":{_tree(least)},"maxValues":{_tree(greatest)},"nullCount":{_tree(nulls)}'
    return f'{{"numRecords":{read.metadata.num_rows},{parts}}}'


def rounded_down(value: object, type_: pa.DataType) -> str | None:
    """JSON of a value not above `value`; None when there is none."""
    kind = arrow_type(type_)
    return None if kind is None else kind.json_below(value, type_)


def rounded_up(value: object, type_: pa.DataType) -> str | None:
    """JSON of a value not below `value`; None when there is none."""
    kind = arrow_type(type_)
    return None if kind is None else kind.json_above(value, type_)


def _extent(metadata: pq.FileMetaData, leaf: Leaf) -> Extent:
    least: list[Any] = []
    greatest: list[Any] = []
    nulls: int | None = 0
    for group in range(metadata.num_row_groups):
        if metadata.row_group(group).num_rows == 0:
            continue
        column = metadata.row_group(group).column(leaf.index)
        stats = column.statistics if column.is_stats_set else None
        count = stats.null_count if stats is not None and stats.has_null_count else None
        nulls = None if nulls is None or count is None else nulls + count
        if count == metadata.row_group(group).num_rows:
            continue
        low = _value(stats.min_raw, leaf) if stats is not None and stats.has_min_max else None
        high = _value(stats.max_raw, leaf) if stats is not None and stats.has_min_max else None
        if low is None or high is None or _is_rebased(metadata, leaf):
            return Extent(None, None, None)
        least.append(low)
        greatest.append(high)
    if not least:
        return Extent(None, None, nulls)
    return Extent(min(least), max(greatest), nulls)


def _value(raw: object, leaf: Leaf) -> object:
    """A raw statistic as the column's own value; None for what we give no statistics of."""
    return None if leaf.kind is None else leaf.kind.footer_value(raw, leaf.type)


def _is_doubtful(leaf: Leaf, metadata: pq.FileMetaData) -> bool:
    return leaf.kind is not None and leaf.kind.may_be_nan and not _trusts_floats(metadata)


def _trusts_floats(metadata: pq.FileMetaData) -> bool:
    """Parquet's Java writer gives no bounds to a column with NaN; others leave NaN out, which Spark sorts last."""
    return (metadata.created_by or "").startswith("parquet-mr")


def _is_rebased(metadata: pq.FileMetaData, leaf: Leaf) -> bool:
    return leaf.kind is not None and leaf.kind.is_time and LEGACY in (metadata.metadata or {})


def _leaves(metadata: pq.FileMetaData) -> Iterator[Leaf]:
    index = 0
    for field in metadata.schema.to_arrow_schema():
        for path, type_ in _below((field.name,), field.type):
            if type_ is not None:
                yield Leaf(path, type_, arrow_type(type_), index)
            index += 1


def _below(path: tuple[str, ...], type_: pa.DataType) -> Iterator[tuple[tuple[str, ...], pa.DataType | None]]:
    """The leaf columns of a field in file order; those inside lists and maps come without a type."""
    if pa.types.is_struct(type_):
        for i in range(type_.num_fields):
            yield from _below((*path, type_.field(i).name), type_.field(i).type)
    elif pa.types.is_nested(type_):
        inner = (type_.key_type, type_.item_type) if pa.types.is_map(type_) else (type_.value_type,)
        for child in inner:
            for deeper, _ in _below(path, child):
                yield deeper, None
    else:
        yield path, type_


def _tree(texts: Mapping[tuple[str, ...], str]) -> str:
    """JSON objects within each other along the paths; the leaves are JSON already, so numbers keep every digit."""
    branches: dict[str, dict[tuple[str, ...], str]] = {}
    for path, text in texts.items():
        branches.setdefault(path[0], {})[path[1:]] = text
    inner = (f"{json.dumps(name)}:{below.get(()) or _tree(below)}" for name, below in branches.items())
    return "{" + ",".join(inner) + "}"
