"""Where did rows change, in a bounded number of ranges?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, count

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.values.arrow_positions import floor_divided
from penstock.values.changes import ANYTHING, MOST_PARTS, Changed, few, joined
from penstock.values.intervals import Interval, IntervalSet
from penstock.values.models.axis import SECOND

_TIMES = (1, 10, 60, 300, 900, 3600, 6 * 3600, 86_400)

Span = tuple[int, int, int]
"""Start, end and how many rows changed somewhere in it."""


@dataclass(slots=True)
class ChangedRanges:
    """Gathers changed positions one by one where they are known, else the stretches that hold them."""

    axis: str
    everything: bool = False
    _counted: list[pa.Table] = field(default_factory=list)
    _spans: list[Span] = field(default_factory=list)

    def add(self, counted: pa.Table) -> None:
        """Rows at positions: the columns `position` (no NULL) and `rows`."""
        if counted.num_rows:
            self._counted.append(counted)

    def add_span(self, span: Span) -> None:
        if span[0] < span[1]:
            self._spans.append(span)

    def changed(self) -> Changed:
        if self.everything:
            return ANYTHING
        counted = summed(pa.concat_tables(self._counted)) if self._counted else None
        parts = IntervalSet.of((start, end) for start, end, _ in self._spans)
        spans = list(self._spans)
        if counted is not None:
            parts |= _runs(counted.column("position"))
            spans += _cells(counted, self.axis)
        return Changed(joined(parts, MOST_PARTS), few((Interval(start, end), rows) for start, end, rows in spans))


def counts(positions: pa.ChunkedArray) -> pa.Table:
    """How many rows each position has; those without a position are left out."""
    table = pa.table({"position": positions, "rows": pa.repeat(pa.scalar(1, pa.int64()), len(positions))})
    return summed(table.filter(pc.is_valid(table.column("position"))))


def summed(counted: pa.Table) -> pa.Table:
    """One line per position, in order."""
    grouped = counted.group_by("position").aggregate([("rows", "sum")])
    table = pa.table({"position": grouped.column("position"), "rows": grouped.column("rows_sum")})
    return table.sort_by("position")


def differing(before: pa.Table, after: pa.Table) -> pa.Table:
    """The positions with more or fewer rows than before, and how many."""
    gone = pa.table({"position": before.column("position"), "rows": pc.negate(before.column("rows"))})
    both = summed(pa.concat_tables([after, gone]))
    table = pa.table({"position": both.column("position"), "rows": pc.abs(both.column("rows"))})
    return table.filter(pc.greater(table.column("rows"), 0))


def either(before: pa.Table, after: pa.Table) -> pa.Table:
    """The positions of both, with the greater number of rows."""
    both = pa.concat_tables([summed(before), summed(after)])
    grouped = both.group_by("position").aggregate([("rows", "max")])
    return pa.table({"position": grouped.column("position"), "rows": grouped.column("rows_max")})


def counted_at(rows: Mapping[int, int]) -> pa.Table:
    columns = {"position": pa.array(rows.keys(), pa.int64()), "rows": pa.array(rows.values(), pa.int64())}
    return pa.table(columns)


def _runs(positions: pa.ChunkedArray) -> IntervalSet:
    """Sorted, different positions as stretches without a gap; of very many gaps only the widest are kept."""
    flat = positions.combine_chunks()
    steps = pc.subtract(flat.slice(1), flat.slice(0, len(flat) - 1))
    last = pc.indices_nonzero(pc.greater(steps, 1))
    if len(last) >= MOST_PARTS:
        widest = pc.select_k_unstable(steps, k=MOST_PARTS - 1, sort_keys=[("", "descending")])
        last = widest.take(pc.sort_indices(widest))
    ends = [position + 1 for position in flat.take(last).to_pylist()]
    starts = flat.take(pc.add(last.cast(pa.int64()), 1)).to_pylist()
    inner = (edge for pair in zip(ends, starts, strict=True) for edge in pair)
    return IntervalSet((flat[0].as_py(), *inner, flat[-1].as_py() + 1))


def _cells(counted: pa.Table, axis: str) -> list[Span]:
    """How many rows changed in each cell of the finest grid that is coarse enough."""
    grids = chain(_TIMES if axis == SECOND else (), (10**power for power in count(6 if axis == SECOND else 0)))
    for grid in grids:
        cells = counted.append_column("cell", floor_divided(counted.column("position"), grid))
        grouped = cells.group_by("cell").aggregate([("position", "min"), ("position", "max"), ("rows", "sum")])
        if grouped.num_rows <= MOST_PARTS:
            ordered = grouped.sort_by("cell").to_pylist()
            return [(cell["position_min"], cell["position_max"] + 1, cell["rows_sum"]) for cell in ordered]
    raise AssertionError("every grid was too fine")
