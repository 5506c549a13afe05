"""Which rows came and which went when files took the place of others?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.engine.observe.deletion_vectors import Part
from penstock.engine.observe.file_rows import LogScan, NoRowsToRead, opened, positions_in
from penstock.engine.rows.changed_ranges import either
from penstock.engine.rows.multisets import POSITION, WEIGHT, Sides, drop_pairs, equal_rows, summed_rows
from penstock.engine.rows.statistics import LEGACY
from penstock.engine.values.column_types import arrow_type
from penstock.engine.values.plain_types import plain_type

MOST_HELD_BYTES, FEW_HELD_BYTES = 512 * 2**20, 32 * 2**20
"""Rows that have not met their like yet are held up to so much, and at the end half of it are summed up.

While they are compared, all of it takes up to 4 times as much, or up to 5 times when rows differ in texts alone. Scans
at the same time hold few each; more than that is held by one of them at a time.
"""
_large_in_turn = Lock()
BATCH_ROWS, BATCH_BYTES = 65_536, 32 * 2**20
"""So much of a file is compared at once, and at most a piece more."""
PIECE_ROWS = 8192
"""So many rows are decoded at once: a file does not tell how much longer than on disk its rows are in memory."""
MOST_CHOICES = 16
"""Of so many files the first rows are looked at, to compare those with each other that belong together."""
FIRST_BYTES = 2**21
"""So much of a column is read for a first row: its dictionary and a page, which Spark and Arrow end at 1 MiB each."""
_STEP_BYTES = 2**16


class TooManyRows(Exception):  # noqa: N818  a finding, not a fault
    """More rows are left over than memory is given for."""


@dataclass(frozen=True, slots=True)
class _Source:
    part: Part
    footer: pq.FileMetaData
    schema: pa.Schema


def change_rows(scan: LogScan, gone: Sequence[Part], came: Sequence[Part], columns: Set[str]) -> pa.Table | None:
    """The rows that are not on both sides, each with its position and its weight: how often it came, or below 0 went.

    None when they cannot be compared: files are gone, not understood or more than the scan may read, or too many rows
    are left over. Rows without a position are left out. Nothing is opened that is beyond the budget.
    """
    sides = [sorted((part for part in parts if not part.is_empty), key=_place) for parts in (gone, came)]
    if not scan.budget.spend(size=sum(part.file.size for parts in sides for part in parts)):
        return None
    try:
        return _in_turn(lambda most_bytes: _compared(scan, sides, columns, most_bytes))
    except (NoRowsToRead, TooManyRows, pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return None


def feed_rows(scan: LogScan, feed: Sequence[Part], columns: Set[str], kind: str) -> pa.Table | None:
    """The same of the rows of a change feed, which tell by the column `kind` what they are."""
    if not scan.budget.spend(size=sum(part.file.size for part in feed)):
        return None
    try:
        return _in_turn(lambda most_bytes: _fed(scan, feed, columns, kind, most_bytes))
    except (NoRowsToRead, TooManyRows, pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, KeyError):
        return None


def rows_by_position(rows: pa.Table) -> pa.Table:
    """How many rows changed at each position: as many as came, or as went when those are more."""
    flat = pa.table({"position": rows.column(POSITION), "rows": rows.column(WEIGHT)})
    came = flat.filter(pc.greater(flat.column("rows"), 0))
    went = flat.filter(pc.less(flat.column("rows"), 0))
    return either(pa.table({"position": went.column("position"), "rows": pc.negate(went.column("rows"))}), came)


def _in_turn(compare: Callable[[int], pa.Table]) -> pa.Table:
    """At once with few rows held, as nearly always; else once more with many, when nobody else does."""
    try:
        return compare(FEW_HELD_BYTES)
    except TooManyRows:
        with _large_in_turn:
            return compare(MOST_HELD_BYTES)


def _compared(scan: LogScan, sides: Sequence[Sequence[Part]], columns: Set[str], most_bytes: int) -> pa.Table:
    sources = [[_source(scan, part, columns) for part in parts] for parts in sides]
    schema = _common([source.schema for side in sources for source in side])
    old, new = (_Stream(scan, side, schema) for side in sources)
    left = _Leftover(most_bytes)
    while old.has_rows(new.held) and new.has_rows(old.held):
        for rows, is_new in zip(_unequal(old, new), (False, True), strict=True):
            left.add(rows, came=is_new)
    for stream, is_new in ((old, False), (new, True)):
        while stream.has_rows(_NO_ROWS):
            left.add(stream.take(stream.held.num_rows), came=is_new)
    return left.netted()


def _fed(scan: LogScan, feed: Sequence[Part], columns: Set[str], kind: str, most_bytes: int) -> pa.Table:
    sources = [_source(scan, part, {*columns, kind}) for part in feed]
    schema = _common([source.schema for source in sources])
    left = _Leftover(most_bytes)
    for source in sources:
        for rows in _batches(scan, source, schema):
            old = pc.is_in(rows.column(kind), pa.array(["delete", "update_preimage"]))
            bare = rows.drop_columns([kind])
            left.add(bare.filter(old), came=False)
            left.add(bare.filter(pc.invert(old)), came=True)
    return left.netted()


@dataclass(slots=True)
class _Stream:
    """The rows of several files, one file after the other."""

    scan: LogScan
    sources: list[_Source]
    """Those that wait."""
    schema: pa.Schema
    held: pa.Table = field(init=False)
    _batches: Iterator[pa.Table] = field(default_factory=lambda: iter(()))
    _firsts: dict[str, pa.Table] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.held = _NO_ROWS

    def has_rows(self, others: pa.Table) -> bool:
        """Whether rows are left; the next ones are `held`. `others` are those that they will be compared with."""
        while not self.held.num_rows:
            rows = next(self._batches, None)
            if rows is not None:
                self.held = rows
            elif self.sources:
                self._batches = _batches(self.scan, self._next(others.slice(0, 1)), self.schema)
            else:
                return False
        return True

    def _next(self, other: pa.Table) -> _Source:
        """The file that begins with the other row, if one does: a large file may come back as several, in any order."""
        if other.num_rows and 1 < len(self.sources) <= MOST_CHOICES:
            for number, source in enumerate(self.sources):
                first = self._first(source)
                if first.num_rows and equal_rows(_bare(first), _bare(other))[0].as_py():
                    return self.sources.pop(number)
        return self.sources.pop(0)

    def _first(self, source: _Source) -> pa.Table:
        """No row when the scan may not read more."""
        path = source.part.file.path
        if path not in self._firsts:
            paid = self.scan.budget.spend(size=_first_bytes(source.footer))
            self._firsts[path] = _first_row(self.scan, source, self.schema) if paid else _NO_ROWS
        return self._firsts[path]

    def take(self, count: int) -> pa.Table:
        taken, self.held = self.held.slice(0, count), self.held.slice(count)
        return taken


def _unequal(old: _Stream, new: _Stream) -> tuple[pa.Table, pa.Table]:
    """The next rows of both that are not the same one by one: an UPDATE leaves rows in their order.

    All of them when most are not: what has moved is found by its neighbours.
    """
    count = min(old.held.num_rows, new.held.num_rows)
    went, came = old.take(count), new.take(count)
    same = equal_rows(_bare(went), _bare(came))
    if 2 * pc.sum(same).as_py() < count:
        return went, came
    differ = pc.invert(same)
    return went.filter(differ), came.filter(differ)


def _bare(rows: pa.Table) -> pa.Table:
    return rows.drop_columns([POSITION])


@dataclass(slots=True)
class _Leftover:
    """Rows that have not met their like yet; now and then those that have since are let go."""

    most_bytes: int
    _gone: list[pa.Table] = field(default_factory=list)
    _came: list[pa.Table] = field(default_factory=list)
    _bytes: int = 0
    _settled: int = 0

    def add(self, rows: pa.Table, *, came: bool) -> None:
        if not rows.num_rows:
            return
        (self._came if came else self._gone).append(rows)
        self._bytes += rows.nbytes
        if self._bytes > self._settled + max(self._settled, self.most_bytes // 2):
            self._settle()
            if self._bytes > self.most_bytes // 2:
                raise TooManyRows

    def netted(self) -> pa.Table:
        self._settle()
        if self._bytes > self.most_bytes // 2:
            raise TooManyRows
        left = [
            rows.append_column(WEIGHT, pa.repeat(pa.scalar(weight, pa.int64()), rows.num_rows))
            for weight, side in ((-1, self._gone), (1, self._came))
            for rows in side
        ]
        return summed_rows(pa.concat_tables(left)) if left else _NO_ROWS

    def _settle(self) -> None:
        if self._gone and self._came:
            sides = Sides(_emptied(self._gone), _emptied(self._came))
            drop_pairs(sides)
            self._gone, self._came = [sides.gone], [sides.came]
            self._bytes = sides.gone.nbytes + sides.came.nbytes
        self._settled = self._bytes


def _emptied(rows: list[pa.Table]) -> pa.Table:
    table = pa.concat_tables(rows)
    rows.clear()
    return table


_NO_ROWS = pa.table({POSITION: pa.array([], pa.int64()), WEIGHT: pa.array([], pa.int64())})


def _place(part: Part) -> tuple[int, str]:
    return part.file.start, part.file.path


def _source(scan: LogScan, part: Part, columns: Set[str]) -> _Source:
    with opened(scan, part.file.path) as file:
        if LEGACY in (file.metadata.metadata or {}):
            raise NoRowsToRead
        wanted = columns - part.file.partition.keys()
        inside = [column for column in file.schema_arrow if column.name in wanted]
        outside = [pa.field(name, pa.string()) for name in part.file.partition]
        return _Source(part, file.metadata, pa.schema([*inside, *outside]).remove_metadata())


def _batches(scan: LogScan, source: _Source, schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of a file with a position, in the columns of all; what it has not is NULL."""
    at = 0
    with opened(scan, source.part.file.path, source.footer) as file:
        for rows in _joined(_pieces(file, source, _piece_rows(source.footer))):
            yield _with_positions(scan, source.part.after(at), rows, schema)
            at += rows.num_rows


def _first_row(scan: LogScan, source: _Source, schema: pa.Schema) -> pa.Table:
    with opened(scan, source.part.file.path, source.footer, step=_STEP_BYTES) as file:
        first = next(_pieces(file, source, 1), None)
        return _NO_ROWS if first is None else _with_positions(scan, source.part, pa.table(first), schema)


def _first_bytes(footer: pq.FileMetaData) -> int:
    if not footer.num_row_groups:
        return 0
    group = footer.row_group(0)
    return sum(min(group.column(number).total_compressed_size, FIRST_BYTES) for number in range(group.num_columns))


def _pieces(file: pq.ParquetFile, source: _Source, count: int) -> Iterator[pa.RecordBatch]:
    names = [name for name in source.schema.names if name not in source.part.file.partition]
    pieces: Iterator[pa.RecordBatch] = file.iter_batches(batch_size=count, columns=names, use_threads=False)
    return pieces


def _piece_rows(footer: pq.FileMetaData) -> int:
    size = sum(footer.row_group(number).total_byte_size for number in range(footer.num_row_groups))
    rows: int = BATCH_BYTES * footer.num_rows // max(size, 1)
    return max(min(PIECE_ROWS, rows), 1)


def _joined(pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Small pieces cost time to compare, large ones memory."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for piece in pieces:
        held.append(piece)
        rows, size = rows + piece.num_rows, size + piece.nbytes
        if rows >= BATCH_ROWS or size >= BATCH_BYTES:
            yield pa.table(pa.concat_batches(held))
            held, rows, size = [], 0, 0
    if held:
        yield pa.table(pa.concat_batches(held))


def _with_positions(scan: LogScan, part: Part, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    positions = positions_in(scan, part.file, rows)
    if positions is None:
        raise NoRowsToRead
    kept = part.of(_fitted(rows, part.file.partition, schema).append_column(POSITION, positions))
    return kept.filter(pc.is_valid(kept.column(POSITION))) if kept.column(POSITION).null_count else kept


def _fitted(rows: pa.Table, partition: Mapping[str, str | None], schema: pa.Schema) -> pa.Table:
    columns = []
    for column in schema:
        if column.name in partition:
            columns.append(pa.repeat(pa.scalar(partition[column.name], pa.string()), rows.num_rows))
        elif column.name in rows.column_names:
            columns.append(_cast(rows.column(column.name), column.type))
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


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    known = arrow_type(kind)
    return column.cast(kind) if known is None else known.cast(column, kind)


def _wider(kind: pa.DataType, other: pa.DataType) -> pa.DataType:
    known = arrow_type(kind)
    wide = known.common(kind, other) if known is not None and known is arrow_type(other) else None
    if wide is None:
        raise NoRowsToRead
    return wide
