"""Which rows of two sides are left when equal ones cancel each other out?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.rows.flat import flat_table, whole
from penstock.engine.rows.hints import row_hints, scattered
from penstock.engine.rows.runs import Run, common_runs

# names that no table has; a position follows from the other columns of its row
POSITION, WEIGHT, HINT = "__penstock_position", "__penstock_weight", "__penstock_hint"
MOST_ROUNDS = 8
FEW_ROWS = 50_000
"""So many rows are grouped in no time."""
FEW_SHARE = 8
"""Another round is worth it when at least one row in so many met its like in the last one."""
_BATCH_ROWS = 65_536
"""Of so many rows at a time all columns fit into the cache, and the memory is used again."""


def equal_rows(rows: pa.Table, other: pa.Table) -> pa.ChunkedArray:
    """Whether each row is the same as the one at its place in the other table, of the same columns and length."""
    equal = None
    for a, b in zip(flat_table(rows).columns, flat_table(other).columns, strict=True):
        same = pc.equal(a, b)
        if same.null_count:
            same = pc.or_(pc.fill_null(same, False), pc.and_(pc.is_null(a), pc.is_null(b)))
        equal = same if equal is None else pc.and_(equal, same)
    return pa.chunked_array([pa.repeat(pa.scalar(True), rows.num_rows)]) if equal is None else equal


@dataclass(slots=True)
class Sides:
    """Rows that went and rows that came. Nobody else keeps them, so that memory is free once they met."""

    gone: pa.Table
    came: pa.Table

    def fewer(self) -> int:
        return min(int(rows.num_rows) for rows in (self.gone, self.came))


def drop_pairs(sides: Sides) -> None:
    """Take out most of the rows that are in both; what is left of them still differs by the same."""
    if sides.fewer() >= FEW_ROWS:
        _drop_runs(sides)
    if sides.fewer() >= FEW_ROWS:
        _drop_by_hints(sides)


def _drop_runs(sides: Sides) -> None:
    """Rows go with the equal one at their place in a run, if they are equal."""
    gone, came = sides.gone, sides.came
    runs = common_runs(row_values(gone), row_values(came))
    left: tuple[list[pa.Table], list[pa.Table]] = ([], [])
    for batch in _batched(runs):
        pair = [
            pa.concat_tables([rows.slice(start, run.rows) for start, run in zip(starts, batch, strict=True)])
            for rows, starts in ((gone, [run.old for run in batch]), (came, [run.new for run in batch]))
        ]
        differ = pc.invert(equal_rows(*(row_values(rows) for rows in pair)))
        for side, rows in zip(left, pair, strict=True):
            side.append(rows.filter(differ))
    sides.gone = _outside(gone, [(run.old, run.rows) for run in runs], left[0])
    sides.came = _outside(came, sorted((run.new, run.rows) for run in runs), left[1])


def _batched(runs: Sequence[Run]) -> Iterator[list[Run]]:
    batch: list[Run] = []
    rows = 0
    for run in runs:
        batch.append(run)
        rows += run.rows
        if rows >= _BATCH_ROWS:
            yield batch
            batch, rows = [], 0
    if batch:
        yield batch


def _outside(rows: pa.Table, runs: Sequence[tuple[int, int]], others: list[pa.Table]) -> pa.Table:
    """The rows before, between and behind the runs, and those others; the memory of the rest is free then."""
    ends = [0, *(start + count for start, count in runs)]
    starts = [*(start for start, _ in runs), rows.num_rows]
    between = [rows.slice(end, start - end) for end, start in zip(ends, starts, strict=True)]
    return pa.concat_tables([*between, *others]).combine_chunks() if runs else rows


def _drop_by_hints(sides: Sides) -> None:
    """A hint only says which two rows may be equal. They go when all of their values are: no hint can hide a change."""
    sides.gone, sides.came = (
        rows.append_column(HINT, row_hints(row_values(rows), texts=False)) for rows in (sides.gone, sides.came)
    )
    if _rounds(sides):
        hints = row_hints(row_values(pa.concat_tables([sides.gone, sides.came])), texts=True)
        count = sides.gone.num_rows
        sides.gone = _set_hints(sides.gone, hints.slice(0, count))
        sides.came = _set_hints(sides.came, hints.slice(count))
        _rounds(sides)
    sides.gone, sides.came = (rows.drop_columns([HINT]) for rows in (sides.gone, sides.came))


def _set_hints(rows: pa.Table, hints: pa.Array) -> pa.Table:
    return rows.set_column(rows.column_names.index(HINT), HINT, hints)


def summed_rows(rows: pa.Table) -> pa.Table:
    """One of each of the rows whose weights do not add up to 0, with their sum."""
    sums = _sums(rows)
    return rows.drop_columns([WEIGHT]).take(sums.column("at")).append_column(WEIGHT, sums.column("weight"))


def _sums(rows: pa.Table) -> pa.Table:
    """The number of the first of each, and the sum."""
    flat = flat_table(row_values(rows.drop_columns([WEIGHT])))
    marked = flat.append_column("weight", rows.column(WEIGHT)).append_column("at", _numbers(rows.num_rows))
    summed = marked.group_by(flat.column_names, use_threads=False).aggregate([("weight", "sum"), ("at", "min")])
    sums = pa.table({"at": summed.column("at_min"), "weight": summed.column("weight_sum")})
    return sums.filter(pc.not_equal(sums.column("weight"), 0))


def _numbers(count: int) -> pa.Array:
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count)), 1)


def _rounds(sides: Sides) -> bool:
    """Whether many of the rows that are left have the same hint without being equal."""
    for number in range(MOST_ROUNDS):
        fewer = sides.fewer()
        if fewer < FEW_ROWS:
            break
        alike, equal = _round(sides, number)
        if equal * FEW_SHARE < fewer:
            return bool((alike - equal) * FEW_SHARE > fewer)
    return False


def _round(sides: Sides, number: int) -> tuple[int, int]:
    """Let rows of both sides meet in places that their hints give; equal ones go. How many were alike and equal.

    A place keeps one row, so that some do not meet. Each round has other places.
    """
    gone = sides.gone = sides.gone.combine_chunks()
    bits = gone.num_rows.bit_length() + 1
    hints, values = whole(gone.column(HINT)), row_values(gone)
    at_place = _last_at(_places(hints, bits, number), 2**bits)
    left, met, alike = [], [], 0
    for start in range(0, sides.came.num_rows, _BATCH_ROWS):
        batch = sides.came.slice(start, _BATCH_ROWS)
        theirs = whole(batch.column(HINT))
        meets = at_place.take(_places(theirs, bits, number))
        likely = pc.fill_null(pc.equal(hints.take(meets), theirs), False)
        candidates = pc.indices_nonzero(likely)
        meets = meets.take(candidates)
        same = whole(equal_rows(values.take(meets), row_values(batch).take(candidates)))
        alike += len(candidates)
        met.append(meets.filter(same))
        left.append(batch.filter(_without(candidates.filter(same), batch.num_rows)))
    meets = pa.concat_arrays(met)
    taken = _last_at(meets, gone.num_rows)
    # a row that went may have met several that are equal to it: it takes one of them along
    others = pc.not_equal(taken.take(meets), _numbers(len(meets)))
    sides.came = pa.concat_tables([*left, gone.take(meets.filter(others))])
    sides.gone = gone.filter(pc.is_null(taken))
    return alike, len(meets)


def row_values(rows: pa.Table) -> pa.Table:
    """The columns that the table has, and the weight."""
    return rows.select([name for name in rows.column_names if name not in (POSITION, HINT)])


def _without(numbers: pa.Array, count: int) -> pa.Array:
    return pc.is_null(_last_at(numbers.cast(pa.int32()), count))


def _last_at(places: pa.Array, count: int) -> pa.Array:
    """By place, the number of the last row that has it; NULL where none has."""
    return pc.inverse_permutation(places, max_index=count - 1, output_type=pa.int32())


def _places(hints: pa.Array, bits: int, number: int) -> pa.Array:
    return pc.shift_right(scattered(hints, number), pa.scalar(64 - bits, pa.uint64())).cast(pa.int32())
