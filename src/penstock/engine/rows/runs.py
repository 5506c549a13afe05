"""Which stretches of rows stand in both tables, in the same order but in other places?

Who writes a file anew often moves blocks of rows and leaves the rows of a block in their order. Anchors find the
blocks: rows that a column's value alone selects, so that it selects the same ones in both tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.rows.flat import whole
from penstock.engine.rows.hints import column_numbers, is_number, row_hints, scattered

ANCHOR_EVERY = 64
"""About one row in so many is an anchor."""
FEWEST_ROWS = 2 * ANCHOR_EVERY
"""Shorter ones are more work than their rows one by one."""
_SAMPLE_ROWS = 4096
_MOST_UNEVEN = 8
"""A column is of use when it selects up to so many times more or fewer rows."""


@dataclass(frozen=True, slots=True)
class Run:
    """So many rows from these places on are likely to be the same, one by one."""

    old: int
    new: int
    rows: int


def common_runs(old: pa.Table, new: pa.Table) -> list[Run]:
    """Runs that have no row in common in either table."""
    column = _telling_column(old)
    if column is None:
        return []
    places = [_anchors(table, column) for table in (old, new)]
    if not all(_is_even(len(at), table.num_rows) for at, table in zip(places, (old, new), strict=True)):
        return []
    anchors = pa.concat_tables([old.take(places[0]), new.take(places[1])])
    hints = row_hints(anchors, texts=True).to_pylist()
    at_old, at_new = (numbers.to_pylist() for numbers in places)
    by_hint = dict(zip(hints, at_old, strict=False))
    pairs = ((by_hint[hint], at) for hint, at in zip(hints[len(at_old) :], at_new, strict=True) if hint in by_hint)
    return _apart(run for run in _runs(pairs) if run.rows >= FEWEST_ROWS)


def _runs(pairs: Iterator[tuple[int, int]]) -> Iterator[Run]:
    """From the first to the last of the anchors that are equally far from each other in both."""
    for _, group in groupby(pairs, key=lambda pair: pair[1] - pair[0]):
        first, *_, last = [*group] * 2
        yield Run(*first, last[0] - first[0] + 1)


def _apart(runs: Iterator[Run]) -> list[Run]:
    """Those of the new table are apart already; equal rows may have led two of them to the same old ones."""
    kept: list[Run] = []
    for run in sorted(runs, key=lambda run: run.old):
        if not kept or kept[-1].old + kept[-1].rows <= run.old:
            kept.append(run)
    return kept


def _telling_column(rows: pa.Table) -> str | None:
    """The number or time with the most values among the first rows."""
    sample = rows.slice(0, _SAMPLE_ROWS)
    kinds = {field.name: field.type for field in sample.schema}
    names = [name for name, kind in kinds.items() if is_number(kind)]
    return max(names, key=lambda name: pc.count_distinct(sample.column(name)).as_py(), default=None)


def _anchors(rows: pa.Table, column: str) -> pa.Array:
    numbers = column_numbers(whole(rows.column(column)), texts=False)
    chosen = pc.less(scattered(numbers), pa.scalar(2**64 // ANCHOR_EVERY, pa.uint64()))
    return pc.indices_nonzero(chosen)


def _is_even(anchors: int, rows: int) -> bool:
    return rows <= anchors * ANCHOR_EVERY * _MOST_UNEVEN and anchors * ANCHOR_EVERY <= rows * _MOST_UNEVEN
