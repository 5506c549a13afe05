"""What does one snapshot of a table consist of?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.values.intervals import MIN_POSITION, IntervalSet

RUN = "__penstock_run"
"""Says of rows of several stretches which one they are in, so that no file has rows of two. It names folders."""


@dataclass(frozen=True, slots=True)
class PositionColumn:
    """The column that carries positions; on `second` a time or date column is floored to epoch seconds in UTC."""

    name: str
    axis: str


@dataclass(frozen=True, slots=True)
class DataFile:
    """A live file. `low` and `high` are positions, both inclusive and rounded outwards; None: the log does not say."""

    path: str
    """As the log spells it, decoded; relative to the table's root unless absolute."""
    size: int
    rows: int | None
    low: int | None
    high: int | None
    nulls: int | None
    partition: Mapping[str, str | None]
    has_deletion_vector: bool = False
    high_is_exact: bool = True
    """False: `high` may be one too large, because a maximum on a whole second may have been rounded up to it."""

    @property
    def start(self) -> int:
        """Where its rows begin at the earliest."""
        return MIN_POSITION if self.low is None else self.low

    def meets(self, window: IntervalSet) -> bool:
        """Whether the file may hold a row inside `window`; unknown bounds may hold anything."""
        if self.low is None or self.high is None:
            return self.rows != 0
        return bool(window.within(self.low, self.high + 1))

    def inside(self, window: IntervalSet) -> bool:
        """Whether every row of the file certainly lies inside one part of `window`."""
        if self.low is None or self.high is None or self.nulls != 0:
            return False
        part = window.part_at(self.low)
        return part is not None and self.high < part.end


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """One Delta snapshot, read from the log without Spark."""

    location: str
    version: int
    table_id: str
    schema_json: str
    """The schema as Delta and Spark spell it in JSON."""
    partition_columns: tuple[str, ...]
    files: tuple[DataFile, ...]
    needs_delta_reader: str | None
    """Why Parquet alone cannot show this snapshot (deletion vectors, column mapping, …); None when it can."""

    def meeting(self, window: IntervalSet | None) -> tuple[DataFile, ...]:
        if window is None:
            return self.files
        return tuple(file for file in self.files if file.meets(window))
