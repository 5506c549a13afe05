"""Which positions have the rows of a file that a commit added or removed?"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.engine.log.storage import Storage, place
from penstock.engine.rows.changed_ranges import Span
from penstock.engine.rows.statistics import LEGACY, PositionRange, footer, position_range
from penstock.engine.values.arrow_positions import positions
from penstock.engine.values.files import DataFile, PositionColumn
from penstock.engine.values.positions import PositionField
from penstock.errors import EngineError, SourceError
from penstock.values.intervals import MAX_POSITION, MIN_POSITION, IntervalSet

MOST_ROWS = 50_000_000
"""So many positions are read in one scan; the files after them count with their whole range."""
MOST_BYTES = 2**30
"""Files of so many bytes are compared row by row in one scan; those after them count with all their positions."""
MOST_MASK_BYTES = 64 * 2**20
"""Deletion vectors take one bit of memory per row."""
MOST_FOOTERS = 1000


@dataclass(slots=True)
class ReadBudget:
    """What may still be read in this scan."""

    rows: int = MOST_ROWS
    footers: int = MOST_FOOTERS
    size: int = MOST_BYTES
    """Bytes of files that are compared row by row."""
    masks: int = MOST_MASK_BYTES

    def spend(self, *, rows: int = 0, footers: int = 0, size: int = 0, masks: int = 0) -> bool:
        if rows > self.rows or footers > self.footers or size > self.size or masks > self.masks:
            return False
        self.rows -= rows
        self.footers -= footers
        self.size -= size
        self.masks -= masks
        return True


class TableFiles(Protocol):
    """The files of a table, and how much of them may still be read."""

    @property
    def location(self) -> str: ...

    @property
    def storage(self) -> Storage | None: ...

    @property
    def budget(self) -> ReadBudget: ...


@dataclass(frozen=True, slots=True)
class LogScan:
    """One scan of a table: where it lies, where its rows have their positions, what somebody has read of them."""

    location: str
    field: PositionField
    axis: str
    consumed: IntervalSet
    storage: Storage | None
    budget: ReadBudget

    @property
    def physical(self) -> PositionColumn:
        return PositionColumn(self.field.physical, self.axis)


def added_file(add: Mapping[str, Any], field: PositionField) -> DataFile:
    """A file as its own action in the log describes it."""
    try:
        stats = json.loads(add.get("stats") or "{}")
    except ValueError:
        stats = {}
    partition = add.get("partitionValues") or {}
    rows, size = stats.get("numRecords"), add.get("size") or 0
    low, high, nulls = _extent(stats, field)
    if field.physical in partition:
        low = high = _partition_position(partition, field)
        nulls = rows if not partition[field.physical] else 0
    vector = add.get("deletionVector") is not None
    return DataFile(unquote(str(add["path"])), size, rows, low, high, nulls, partition, vector)


def removed_file(remove: Mapping[str, Any], known: DataFile | None, field: PositionField) -> DataFile:
    """A removal rarely has statistics: what is known of the file from before counts."""
    own = added_file(remove, field)
    if known is None:
        return own
    # a snapshot names partition columns as people do, a log as the files do
    named = {field.physical if name == field.name else name: value for name, value in known.partition.items()}
    return replace(known, partition=own.partition or named, has_deletion_vector=own.has_deletion_vector)


def span(scan: LogScan, file: DataFile) -> Span | None:
    """From where to where a file may hold rows; None when it holds none that has a position."""
    rows = file.rows or 0
    if file.rows == 0 or (file.rows is not None and file.nulls == file.rows):
        return None
    if file.low is not None and file.high is not None:
        return file.low, file.high + 1, rows
    if scan.field.physical in file.partition and not file.partition[scan.field.physical]:
        return None
    extent = _from_footer(scan, file.path) if scan.budget.spend(footers=1) else None
    if extent is None:
        return MIN_POSITION, MAX_POSITION, rows
    return None if extent.low is None or extent.high is None else (extent.low, extent.high + 1, rows)


def rows_of(scan: LogScan, path: str, columns: Iterable[str] | None) -> pa.Table | None:
    """The rows of a file, or some columns of them; None when it is gone, too large or cannot be understood.

    A column that the file has not is left out.
    """
    try:
        with opened(scan, path) as file:
            metadata = file.metadata
            if LEGACY in (metadata.metadata or {}) or not scan.budget.spend(rows=metadata.num_rows):
                return None
            there = file.schema_arrow.names
            wanted = there if columns is None else [name for name in columns if name in there]
            if not wanted:
                return pa.table({"": pa.nulls(metadata.num_rows)})
            return file.read(columns=wanted)
    except NoRowsToRead:
        return None


def positions_by_batch(scan: LogScan, file: DataFile) -> Iterator[pa.ChunkedArray | None]:
    """The position of every row, a batch at a time, for files of any size; None when they cannot be read."""
    try:
        with opened(scan, file.path) as parquet:
            legacy = LEGACY in (parquet.metadata.metadata or {})
            if legacy or scan.field.physical not in parquet.schema_arrow.names:
                yield None
                return
            for batch in parquet.iter_batches(columns=[scan.field.physical]):
                yield positions_in(scan, file, pa.Table.from_batches([batch]))
    except NoRowsToRead:
        yield None


class NoRowsToRead(Exception):  # noqa: N818  a finding, not a fault
    """The file is gone, or holds what Arrow does not understand."""


@contextmanager
def opened(
    files: TableFiles, path: str, known: pq.FileMetaData | None = None, *, step: int = 0
) -> Iterator[pq.ParquetFile]:
    """A file of the table; what goes wrong while it is read is a finding, or somebody's to mend.

    Columns are read in steps of so many bytes, or else as much as a row group has of them. Nothing is fetched ahead.
    """
    try:
        filesystem, inside = place(files.location, path, files.storage)
        with filesystem.open_input_file(inside) as file:
            # nanoseconds, which old times are read in by default, end in 2262
            yield pq.ParquetFile(
                file, metadata=known, buffer_size=step, pre_buffer=False, coerce_int96_timestamp_unit="us"
            )
    except (FileNotFoundError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise NoRowsToRead(path) from error
    except OSError as error:
        raise SourceError(
            f"cannot read {path} of {files.location}: {error}", hint="check the rights, or look again later"
        ) from error


def positions_in(scan: LogScan, file: DataFile, rows: pa.Table) -> pa.ChunkedArray | None:
    """The position of every row, NULL where it has none; None when the column is not what it should be."""
    field = scan.field
    if field.physical in file.partition:
        position = _partition_position(file.partition, field)
        if position is None and file.partition[field.physical]:
            return None
        return pa.chunked_array([pa.repeat(pa.scalar(position, pa.int64()), rows.num_rows)])
    if field.physical not in rows.column_names:
        return pa.chunked_array([pa.nulls(rows.num_rows, pa.int64())])
    return positions(rows.column(field.physical), field.kind)


def _from_footer(scan: LogScan, path: str) -> PositionRange | None:
    """None when the file is gone or does not tell."""
    try:
        return position_range(footer(scan.location, path, scan.storage), scan.physical)
    except SourceError:
        return None
    except EngineError as error:
        if isinstance(error.__cause__, FileNotFoundError | pa.ArrowInvalid):
            return None
        raise SourceError(error.message, hint=error.hint) from error


def _extent(stats: Mapping[str, Any], field: PositionField) -> tuple[int | None, int | None, int | None]:
    def value(side: str) -> Any:
        values = stats.get(side)
        return values.get(field.physical) if isinstance(values, Mapping) else None

    low, high, nulls = value("minValues"), value("maxValues"), value("nullCount")
    return (
        None if low is None else field.kind.text_position(low),
        None if high is None else field.kind.text_position(high),
        nulls if isinstance(nulls, int) else None,
    )


def _partition_position(partition: Mapping[str, str | None], field: PositionField) -> int | None:
    value = partition[field.physical]
    return field.kind.text_position(value) if value else None
