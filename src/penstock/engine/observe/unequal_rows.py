"""Which rows of two sides of files are not in both?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.engine.observe.deletion_vectors import Part
from penstock.engine.observe.file_rows import NoRowsToRead, TableFiles, opened
from penstock.engine.rows.multisets import WEIGHT, Sides, drop_pairs, equal_rows, row_values, summed_rows
from penstock.engine.rows.statistics import LEGACY

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

T = TypeVar("T")


class TooManyRows(Exception):  # noqa: N818  a finding, not a fault
    """More rows are left over than memory is given for."""


@dataclass(frozen=True, slots=True)
class OpenedPart:
    """Rows of a file whose footer was read."""

    part: Part
    footer: pq.FileMetaData
    schema: pa.Schema
    """Of the whole file."""


class RowReader(Protocol):
    """How the rows of all files become rows of the same columns."""

    @property
    def files(self) -> TableFiles: ...

    def names(self, opened_part: OpenedPart) -> list[str]:
        """The columns to read from a file, as the file names them."""

    def fitted(self, part: Part, rows: pa.Table) -> pa.Table:
        """Rows as they were read, only those of the part."""


def opened_part(files: TableFiles, part: Part) -> OpenedPart:
    with opened(files, part.file.path) as file:
        if LEGACY in (file.metadata.metadata or {}):
            raise NoRowsToRead(part.file.path)
        return OpenedPart(part, file.metadata, file.schema_arrow)


def in_turn(compare: Callable[[int], T]) -> T:
    """At once with few rows held, as nearly always; else once more with many, when nobody else does."""
    try:
        return compare(FEW_HELD_BYTES)
    except TooManyRows:
        with _large_in_turn:
            return compare(MOST_HELD_BYTES)


def add_unequal(reader: RowReader, sides: Sequence[Sequence[OpenedPart]], left: Leftover) -> None:
    """Add the rows of the old and the new side to those left over, but for equal ones that stand alike in both."""
    old, new = (Stream(reader, list(side)) for side in sides)
    while old.has_rows(new) and new.has_rows(old):
        for rows, is_new in zip(_unequal(old, new), (False, True), strict=True):
            left.add(rows, came=is_new)
    for stream, is_new in ((old, False), (new, True)):
        while stream.has_rows():
            left.add(stream.take(stream.held.num_rows), came=is_new)


@dataclass(slots=True)
class Stream:
    """The rows of several files, one file after the other."""

    reader: RowReader
    waiting: list[OpenedPart]
    held: pa.Table = field(default_factory=lambda: pa.table({}))
    """The next rows."""
    _batches: Iterator[pa.Table] = field(default_factory=lambda: iter(()))
    _firsts: dict[str, pa.Table | None] = field(default_factory=dict)

    def has_rows(self, other: Stream | None = None) -> bool:
        """Whether rows are left; the next ones are `held`. They will be compared with those of the other stream."""
        while not self.held.num_rows:
            rows = next(self._batches, None)
            if rows is not None:
                self.held = rows
            elif self.waiting:
                self._batches = batches(self.reader, self._next(other))
            else:
                return False
        return True

    def _next(self, other: Stream | None) -> OpenedPart:
        """The file that begins with the other row, if one does: a large file may come back as several, in any order."""
        if other is not None and other.held.num_rows and 1 < len(self.waiting) <= MOST_CHOICES:
            theirs = row_values(other.held.slice(0, 1))
            for number, part in enumerate(self.waiting):
                first = self.first(part)
                if first is not None and equal_rows(row_values(first), theirs)[0].as_py():
                    return self.waiting.pop(number)
        return self.waiting.pop(0)

    def first(self, part: OpenedPart) -> pa.Table | None:
        """The first row of a file, if there is one and the scan may read more."""
        path = part.part.file.path
        if path not in self._firsts:
            paid = self.reader.files.budget.spend(size=first_bytes(part.footer))
            self._firsts[path] = first_row(self.reader, part) if paid else None
        return self._firsts[path]

    def take(self, count: int) -> pa.Table:
        taken, self.held = self.held.slice(0, count), self.held.slice(count)
        return taken


def _unequal(old: Stream, new: Stream) -> tuple[pa.Table, pa.Table]:
    """The next rows of both that are not the same one by one: an UPDATE leaves rows in their order.

    All of them when most are not: what has moved is found by its neighbours.
    """
    count = min(old.held.num_rows, new.held.num_rows)
    went, came = old.take(count), new.take(count)
    same = equal_rows(row_values(went), row_values(came))
    if 2 * (pc.sum(same).as_py() or 0) < count:
        return went, came
    differ = pc.invert(same)
    return went.filter(differ), came.filter(differ)


@dataclass(slots=True)
class Leftover:
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

    def netted(self) -> pa.Table | None:
        """One of each row with its weight: how often it came, or below 0 went. None without any."""
        self._settle()
        if self._bytes > self.most_bytes // 2:
            raise TooManyRows
        left = [
            rows.append_column(WEIGHT, pa.repeat(pa.scalar(weight, pa.int64()), rows.num_rows))
            for weight, side in ((-1, self._gone), (1, self._came))
            for rows in side
        ]
        return summed_rows(pa.concat_tables(left)) if left else None

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


def batches(reader: RowReader, part: OpenedPart) -> Iterator[pa.Table]:
    """The rows of a part, in the reader's columns."""
    at = 0
    with opened(reader.files, part.part.file.path, part.footer) as file:
        for rows in _joined(_pieces(file, reader.names(part), piece_rows(part.footer))):
            yield reader.fitted(part.part.after(at), rows)
            at += rows.num_rows


def first_row(reader: RowReader, part: OpenedPart) -> pa.Table | None:
    with opened(reader.files, part.part.file.path, part.footer, step=_STEP_BYTES) as file:
        first = next(_pieces(file, reader.names(part), 1), None)
        rows = None if first is None else reader.fitted(part.part, pa.table(first))
        return None if rows is None or not rows.num_rows else rows


def first_bytes(footer: pq.FileMetaData) -> int:
    if not footer.num_row_groups:
        return 0
    group = footer.row_group(0)
    return sum(min(group.column(number).total_compressed_size, FIRST_BYTES) for number in range(group.num_columns))


def _pieces(file: pq.ParquetFile, names: list[str], count: int) -> Iterator[pa.RecordBatch]:
    pieces: Iterator[pa.RecordBatch] = file.iter_batches(batch_size=count, columns=names, use_threads=False)
    return pieces


def piece_rows(footer: pq.FileMetaData) -> int:
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
