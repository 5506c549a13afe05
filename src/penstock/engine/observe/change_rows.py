"""Which rows came and which went when files took the place of others, and at which positions?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.observe.deletion_vectors import Part
from penstock.engine.observe.file_rows import LogScan, NoRowsToRead, TableFiles, positions_in
from penstock.engine.observe.unequal_rows import (
    Leftover,
    OpenedPart,
    TooManyRows,
    add_unequal,
    batches,
    in_turn,
    opened_part,
)
from penstock.engine.rows.changed_ranges import either
from penstock.engine.rows.multisets import POSITION, WEIGHT
from penstock.engine.values.column_types import arrow_type, cast_column
from penstock.engine.values.plain_types import plain_type

CHANGE_TYPE = "_change_type"
_WENT = pa.array(["delete", "update_preimage"])
_NO_ROWS = pa.table({POSITION: pa.array([], pa.int64()), WEIGHT: pa.array([], pa.int64())})


def change_rows(scan: LogScan, gone: Sequence[Part], came: Sequence[Part], columns: Set[str]) -> pa.Table | None:
    """The rows that are not on both sides, each with its position and its weight: how often it came, or below 0 went.

    None when they cannot be compared: files are gone, not understood or more than the scan may read, or too many rows
    are left over. Rows without a position are left out. Nothing is opened that is beyond the budget.
    """
    sides = [sorted((part for part in parts if not part.is_empty), key=_place) for parts in (gone, came)]
    if not scan.budget.spend(size=sum(part.file.size for parts in sides for part in parts)):
        return None
    try:
        return in_turn(lambda most_bytes: _compared(scan, sides, columns, most_bytes))
    except (NoRowsToRead, TooManyRows, pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return None


def feed_rows(scan: LogScan, feed: Sequence[Part], columns: Set[str]) -> pa.Table | None:
    """The same of the rows of a change feed."""
    if not scan.budget.spend(size=sum(part.file.size for part in feed)):
        return None
    try:
        return in_turn(lambda most_bytes: _fed(scan, feed, columns, most_bytes))
    except (NoRowsToRead, TooManyRows, pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, KeyError):
        return None


def rows_by_position(rows: pa.Table) -> pa.Table:
    """How many rows changed at each position: as many as came, or as went when those are more."""
    flat = pa.table({"position": rows.column(POSITION), "rows": rows.column(WEIGHT)})
    came = flat.filter(pc.greater(flat.column("rows"), 0))
    went = flat.filter(pc.less(flat.column("rows"), 0))
    return either(pa.table({"position": went.column("position"), "rows": pc.negate(went.column("rows"))}), came)


def add_feed(rows: pa.Table, left: Leftover) -> None:
    """Add rows of a change feed to those left over; they say themselves what they are."""
    old = pc.is_in(rows.column(CHANGE_TYPE), _WENT)
    bare = rows.drop_columns([CHANGE_TYPE])
    left.add(bare.filter(old), came=False)
    left.add(bare.filter(pc.invert(old)), came=True)


@dataclass(frozen=True, slots=True)
class PositionReader:
    """Rows with their positions, in the columns and types of all files; what one has not is NULL."""

    scan: LogScan
    schema: pa.Schema

    @property
    def files(self) -> TableFiles:
        return self.scan

    def names(self, opened_part: OpenedPart) -> list[str]:
        there = set(opened_part.schema.names) - opened_part.part.file.partition.keys()
        return [name for name in self.schema.names if name in there]

    def fitted(self, part: Part, rows: pa.Table) -> pa.Table:
        positions = positions_in(self.scan, part.file, rows)
        if positions is None:
            raise NoRowsToRead
        kept = part.of(_fitted(rows, part.file.partition, self.schema).append_column(POSITION, positions))
        return kept.filter(pc.is_valid(kept.column(POSITION))) if kept.column(POSITION).null_count else kept


def position_reader(scan: LogScan, parts: Sequence[OpenedPart], columns: Set[str]) -> PositionReader:
    """NoRowsToRead when no type holds the values of all."""
    return PositionReader(scan, _common([_schema(part, columns) for part in parts]))


def _compared(scan: LogScan, sides: Sequence[Sequence[Part]], columns: Set[str], most_bytes: int) -> pa.Table:
    opened = [[opened_part(scan, part) for part in parts] for parts in sides]
    left = Leftover(most_bytes)
    add_unequal(position_reader(scan, [part for side in opened for part in side], columns), opened, left)
    rows = left.netted()
    return _NO_ROWS if rows is None else rows


def _fed(scan: LogScan, feed: Sequence[Part], columns: Set[str], most_bytes: int) -> pa.Table:
    opened = [opened_part(scan, part) for part in feed]
    reader = position_reader(scan, opened, {*columns, CHANGE_TYPE})
    left = Leftover(most_bytes)
    for part in opened:
        for rows in batches(reader, part):
            add_feed(rows, left)
    rows = left.netted()
    return _NO_ROWS if rows is None else rows


def _place(part: Part) -> tuple[int, str]:
    return part.file.start, part.file.path


def _schema(part: OpenedPart, columns: Set[str]) -> pa.Schema:
    wanted = columns - part.part.file.partition.keys()
    inside = [column for column in part.schema if column.name in wanted]
    outside = [pa.field(name, pa.string()) for name in part.part.file.partition]
    return pa.schema([*inside, *outside]).remove_metadata()


def _fitted(rows: pa.Table, partition: Mapping[str, str | None], schema: pa.Schema) -> pa.Table:
    columns = []
    for column in schema:
        if column.name in partition:
            columns.append(pa.repeat(pa.scalar(partition[column.name], pa.string()), rows.num_rows))
        elif column.name in rows.column_names:
            columns.append(cast_column(rows.column(column.name), column.type))
        else:
            columns.append(pa.nulls(rows.num_rows, column.type))
    return pa.table(columns, schema=schema)


def _common(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """All columns of all files, in one type each; NoRowsToRead when there is none that holds the values of all."""
    types: dict[str, pa.DataType] = {}
    for column in (column for schema in schemas for column in schema):
        kind = plain_type(column.type)
        known = types.get(column.name, kind)
        wide = known if known == kind or pa.types.is_null(kind) else kind if pa.types.is_null(known) else None
        types[column.name] = wide or _wider(known, kind)
    return pa.schema(types.items())


def _wider(kind: pa.DataType, other: pa.DataType) -> pa.DataType:
    known = arrow_type(kind)
    wide = known.common(kind, other) if known is not None and known is arrow_type(other) else None
    if wide is None:
        raise NoRowsToRead
    return wide
