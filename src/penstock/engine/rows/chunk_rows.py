"""Do a few small files hold the same rows as others, chunk by chunk, and where not?"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.engine.log.storage import Storage, place, reading
from penstock.engine.values.arrow_positions import stored_positions
from penstock.engine.values.column_types import arrow_type
from penstock.engine.values.positions import PositionField
from penstock.values.changes import joined
from penstock.values.intervals import Interval, IntervalSet

MOST_VALUES = 100_000
"""Beyond so many values Spark is quicker than Python."""

MOST_PLACES = 32
"""Places that differ are told apart up to so many: they go into the log, and consumers are asked for each."""

ChunkRows = Counter[tuple[int, str]]
"""Rows with their positions, spelled out."""


def chunk_rows(
    location: str,
    paths: Iterable[str],
    columns: Sequence[str],
    field: PositionField,
    chunks: Sequence[Interval],
    *,
    storage: Storage | None,
) -> dict[Interval, ChunkRows]:
    """The rows of each of the sorted chunks; a column that a file lacks is NULL there."""
    rows: dict[Interval, ChunkRows] = {chunk: Counter() for chunk in chunks}
    starts = [chunk.start for chunk in chunks]
    for path in paths:
        filesystem, inside = place(location, path, storage)
        with reading(location, path):
            table = pq.read_table(inside, filesystem=filesystem, partitioning=None)
        positions = stored_positions(table.column(field.name), field, f"{path} of {location}").to_pylist()
        values = [values_of(table, name) for name in columns]
        for position, *row in zip(positions, *values, strict=True):
            if position is None:
                continue
            number = bisect_right(starts, position) - 1
            if number >= 0 and position < chunks[number].end:
                rows[chunks[number]][position, repr(row)] += 1
    return rows


def differing(rows: ChunkRows, other: ChunkRows) -> IntervalSet:
    """The positions at which two chunks hold other rows."""
    return places(position for position, _ in [*(rows - other), *(other - rows)])


def places(positions: Iterable[int]) -> IntervalSet:
    """These positions, and what lies between them where they are many."""
    return joined(IntervalSet.of((position, position + 1) for position in set(positions)), MOST_PLACES)


def values_of(table: pa.Table, name: str) -> list[object]:
    """One column as values that are equal when Spark takes them for equal; NULLs where the file has no such column."""
    if name not in table.column_names:
        return [None] * table.num_rows
    column = table.column(name)
    kind = arrow_type(column.type)
    if kind is not None:
        return kind.values(column)
    values: list[object] = column.to_pylist()
    if pa.types.is_map(column.type):
        # two maps are equal whatever the order of their keys
        return [sorted(value, key=repr) if isinstance(value, list) else value for value in values]
    return values
