"""How do the rows of a file become rows of its table: typed, in its columns, without those that vectors hide?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from penstock.engine.log.deletion_vector import DeletionVector, hidden_rows
from penstock.engine.observe.change_rows import CHANGE_TYPE
from penstock.engine.observe.deletion_vectors import NO_MASK, Part
from penstock.engine.observe.file_rows import NoRowsToRead, TableFiles
from penstock.engine.observe.unequal_rows import OpenedPart
from penstock.engine.refresh.changed_files import ChangedFile
from penstock.engine.values.column_types import arrow_type, cast_column
from penstock.engine.values.files import DataFile
from penstock.engine.values.plain_types import plain_type
from penstock.errors import SourceError

_ROW = "__penstock_row"
"""Stands for the rows of a table of which no column is asked for: they are only counted."""


@dataclass(frozen=True, slots=True)
class TableReader:
    """Rows in some columns of a table; a column that a file has not is NULL."""

    files: TableFiles
    schema: pa.Schema
    of_feed: bool = False

    def names(self, opened_part: OpenedPart) -> list[str]:
        """NoRowsToRead when the file spells one otherwise than the table: it is not simply missing."""
        there, file = opened_part.schema.names, opened_part.part.file
        wanted = {name for name in self.schema.names if name not in file.partition}
        if self.of_feed:
            wanted.add(CHANGE_TYPE)
        spelled = {name.casefold() for name in there}
        missing = wanted.difference(there)
        if CHANGE_TYPE in missing or any(name.casefold() in spelled for name in missing):
            raise NoRowsToRead(file.path)
        # without any column Arrow would not say how many rows there are
        return [name for name in there if name in wanted] or there[:1]

    def bytes(self, opened_part: OpenedPart) -> int:
        """So much of a file its columns are."""
        footer, names = opened_part.footer, set(self.names(opened_part))
        groups = (footer.row_group(number) for number in range(footer.num_row_groups))
        chunks = (group.column(number) for group in groups for number in range(group.num_columns))
        return sum(chunk.total_compressed_size for chunk in chunks if chunk.path_in_schema.split(".")[0] in names)

    def fitted(self, part: Part, rows: pa.Table) -> pa.Table:
        partition, count = part.file.partition, rows.num_rows
        columns: dict[str, pa.ChunkedArray | pa.Array] = {}
        for column in self.schema:
            if column.name in partition:
                value = partition_value(partition[column.name], column.type)
                columns[column.name] = pa.repeat(value, count)
            elif column.name in rows.column_names:
                columns[column.name] = _cast(rows.column(column.name), column.type)
            else:
                columns[column.name] = pa.nulls(count, column.type)
        if not columns:
            columns[_ROW] = pa.repeat(pa.scalar(0, pa.int8()), count)
        if self.of_feed:
            columns[CHANGE_TYPE] = rows.column(CHANGE_TYPE).cast(pa.string())
        return part.of(pa.table(columns))

    def finished(self, rows: pa.Table) -> pa.Table:
        return rows.drop_columns([_ROW]) if _ROW in rows.column_names else rows


def arrow_schema(table: DeltaTable, names: Sequence[str]) -> pa.Schema:
    """The named columns of a table, in the types that rows are compared in."""
    schema = pa.schema(table.schema().to_arrow())
    return pa.schema([pa.field(name, plain_type(schema.field(name).type)) for name in names])


def part_of(files: TableFiles, file: ChangedFile) -> Part:
    """The rows of a file that changed; NoRowsToRead when a vector's file is gone."""
    data = DataFile(file.path, file.size or 0, file.rows, None, None, None, file.partition or {})
    hidden = None if file.hidden is None else _numbers(files, file.hidden)
    if file.among is None:
        return Part(data) if hidden is None else Part(data, pc.invert(_mask(hidden)))
    among = _numbers(files, file.among)
    chosen = among if hidden is None else among.filter(pc.invert(pc.is_in(among, hidden)))
    return Part(data, _mask(chosen), rest=False)


def partition_value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """The value of a partition column, as the log spells it; NoRowsToRead when it cannot be one."""
    known = arrow_type(kind)
    try:
        return pa.scalar(known.text_value(text) if text and known is not None else None, kind)
    except (ValueError, pa.ArrowException) as error:
        raise NoRowsToRead(f"the partition value {text!r}") from error


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if column.type == kind:
        return column
    if pa.types.is_nested(kind):
        return column.cast(kind, safe=False)  # Spark has no nanoseconds
    return cast_column(column, kind)


def _numbers(files: TableFiles, vector: DeletionVector) -> pa.Array:
    try:
        return hidden_rows(files.location, vector, files.storage)
    except FileNotFoundError as error:
        raise NoRowsToRead(vector.path) from error
    except OSError as error:
        raise SourceError(
            f"cannot read {vector.path} of {files.location}: {error}", hint="check the rights, or look again later"
        ) from error


def _mask(numbers: pa.Array) -> pa.BooleanArray:
    """True at these places."""
    if not len(numbers):
        return NO_MASK
    last = pc.max(numbers).as_py()
    return pc.is_valid(pc.inverse_permutation(numbers, max_index=last, output_type=pa.int32()))
