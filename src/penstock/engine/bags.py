"""Do a few small files hold the same rows as others, chunk by chunk?"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.engine.positions import DAY, MICROS, PositionField
from penstock.engine.storage import Storage, place
from penstock.intervals import Interval

MOST_VALUES = 100_000
"""Beyond so many values Spark is quicker than Python."""

Bag = Counter[str]


def bags(
    location: str,
    paths: Iterable[str],
    columns: Sequence[str],
    field: PositionField,
    chunks: Sequence[Interval],
    *,
    storage: Storage | None,
) -> dict[Interval, Bag]:
    """The rows of each of the sorted chunks, spelled out; a column that a file lacks is NULL there."""
    found: dict[Interval, Bag] = {chunk: Counter() for chunk in chunks}
    starts = [chunk.start for chunk in chunks]
    for path in paths:
        filesystem, inside = place(location, path, storage)
        table = pq.read_table(inside, filesystem=filesystem, partitioning=None)
        positions = positions_of(table.column(field.name), field)
        values = [_values(table, name) for name in columns]
        for position, *row in zip(positions, *values, strict=True):
            if position is None:
                continue
            number = bisect_right(starts, position) - 1
            if number >= 0 and position < chunks[number].end:
                found[chunks[number]][repr(row)] += 1
    return found


def positions_of(column: pa.ChunkedArray, field: PositionField) -> list[int | None]:
    """The position of every row."""
    match field.kind:
        case "integer":
            return list(column.cast(pa.int64()).to_pylist())
        case "date":
            return [None if day is None else day * DAY for day in column.cast(pa.int32()).to_pylist()]
        case "timestamp" | "timestamp_ntz":
            micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
            return [None if value is None else value // MICROS for value in micros]


def _values(table: pa.Table, name: str) -> list[object]:
    if name not in table.column_names:
        return [None] * table.num_rows
    column = table.column(name)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    values: list[object] = column.to_pylist()
    if pa.types.is_map(column.type):
        # two maps are equal whatever the order of their keys
        return [sorted(value, key=repr) if isinstance(value, list) else value for value in values]
    return values
