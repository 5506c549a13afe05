"""Which rows of two sides are left when equal ones cancel each other out?"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.rows.flat import flat_table, whole

# names that no table has; a position follows from the other columns of its row
POSITION, WEIGHT, HINT = "__penstock_position", "__penstock_weight", "__penstock_hint"
_FACTOR = 0x9E3779B97F4A7C15
MOST_ROUNDS = 8
FEW_ROWS = 50_000
"""So many rows are grouped in no time."""
FEW_SHARE = 8
"""Another round is worth it when at least one row in so many met its like in the last one."""
_BATCH_ROWS = 65_536
"""Of so many rows at a time all columns fit into the cache, and the memory is used again."""


def equal_rows(one: pa.Table, other: pa.Table) -> pa.ChunkedArray:
    """Whether each row is the same as the one at its place in the other table, of the same columns and length."""
    found = None
    for a, b in zip(flat_table(one).columns, flat_table(other).columns, strict=True):
        same = pc.equal(a, b)
        if same.null_count:
            same = pc.or_(pc.fill_null(same, False), pc.and_(pc.is_null(a), pc.is_null(b)))
        found = same if found is None else pc.and_(found, same)
    return pa.chunked_array([pa.repeat(pa.scalar(True), one.num_rows)]) if found is None else found


def hinted(rows: pa.Table) -> pa.Table:
    """The rows with a number each that equal rows share, of the columns that give one at once."""
    return rows.append_column(HINT, _hints(rows.drop_columns([POSITION]), texts=False))


@dataclass(slots=True)
class Sides:
    """Rows that went and rows that came, with hints. Nobody else keeps them, so that memory is free once they met."""

    gone: pa.Table
    came: pa.Table


def drop_pairs(sides: Sides) -> None:
    """Take out most of the rows that are in both; what is left of them still differs by the same.

    A hint only says which two rows may be equal. They go when all of their values are, so that no hint can hide a
    change.
    """
    if _rounds(sides):
        hints = _hints(_values(pa.concat_tables([sides.gone, sides.came])), texts=True)
        count = sides.gone.num_rows
        sides.gone = _set_hints(sides.gone, hints.slice(0, count))
        sides.came = _set_hints(sides.came, hints.slice(count))
        _rounds(sides)
        sides.gone = hinted(sides.gone.drop_columns([HINT]))
        sides.came = hinted(sides.came.drop_columns([HINT]))


def _set_hints(rows: pa.Table, hints: pa.Array) -> pa.Table:
    return rows.set_column(rows.column_names.index(HINT), HINT, hints)


def summed_rows(rows: pa.Table) -> pa.Table:
    """One of each of the rows whose weights do not add up to 0, with their sum."""
    sums = _sums(rows)
    return rows.drop_columns([WEIGHT]).take(sums.column("at")).append_column(WEIGHT, sums.column("weight"))


def _sums(rows: pa.Table) -> pa.Table:
    """The number of the first of each, and the sum."""
    flat = flat_table(rows.drop_columns([WEIGHT, POSITION]))
    marked = flat.append_column("weight", rows.column(WEIGHT)).append_column("at", _numbers(rows.num_rows))
    summed = marked.group_by(flat.column_names, use_threads=False).aggregate([("weight", "sum"), ("at", "min")])
    sums = pa.table({"at": summed.column("at_min"), "weight": summed.column("weight_sum")})
    return sums.filter(pc.not_equal(sums.column("weight"), 0))


def _numbers(count: int) -> pa.Array:
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count)), 1)


def _rounds(sides: Sides) -> bool:
    """Whether many of the rows that are left have the same hint without being equal."""
    for number in range(MOST_ROUNDS):
        fewer = min(sides.gone.num_rows, sides.came.num_rows)
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
    hints, values = whole(gone.column(HINT)), _values(gone)
    at_place = _last_at(_places(hints, bits, number), 2**bits)
    left, met, alike = [], [], 0
    for start in range(0, sides.came.num_rows, _BATCH_ROWS):
        batch = sides.came.slice(start, _BATCH_ROWS)
        theirs = whole(batch.column(HINT))
        meets = at_place.take(_places(theirs, bits, number))
        likely = pc.fill_null(pc.equal(hints.take(meets), theirs), False)
        candidates = pc.indices_nonzero(likely)
        meets = meets.take(candidates)
        same = whole(equal_rows(values.take(meets), _values(batch).take(candidates)))
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


def _values(rows: pa.Table) -> pa.Table:
    return rows.drop_columns([POSITION, HINT])


def _without(numbers: pa.Array, count: int) -> pa.Array:
    return pc.is_null(_last_at(numbers.cast(pa.int32()), count))


def _last_at(places: pa.Array, count: int) -> pa.Array:
    """By place, the number of the last row that has it; NULL where none has."""
    return pc.inverse_permutation(places, max_index=count - 1, output_type=pa.int32())


def _places(hints: pa.Array, bits: int, number: int) -> pa.Array:
    """The upper bits of a product depend on all bits of the hint."""
    product = pc.multiply(hints, pa.scalar(_FACTOR * (2 * number + 1) % 2**64, pa.uint64()))
    return pc.shift_right(product, pa.scalar(64 - bits, pa.uint64())).cast(pa.int32())


def _hints(rows: pa.Table, *, texts: bool) -> pa.Array:
    """A number per row, the same for equal rows; columns that no number is at hand for are left out."""
    found = pa.repeat(pa.scalar(0, pa.uint64()), rows.num_rows)
    factor, half = pa.scalar(_FACTOR, pa.uint64()), pa.scalar(29, pa.uint64())
    # one column after the other, since each is copied
    for column in (part for name in rows.column_names for part in flat_table(rows.select([name])).columns):
        number = _number(whole(column), texts=texts)
        if number is not None:
            number = pc.fill_null(number, 7) if number.null_count else number
            product = pc.multiply(pc.add(found, number), factor)
            # without this, two columns would count by their sum alone
            found = pc.bit_wise_xor(product, pc.shift_right(product, half))
    return found


def _number(column: pa.Array, *, texts: bool) -> pa.Array | None:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return column.dictionary_encode().indices.cast(pa.uint64()) if texts else None
    if pa.types.is_boolean(kind):
        return column.cast(pa.uint64())
    if pa.types.is_decimal(kind) or pa.types.is_null(kind):
        return None
    if pa.types.is_temporal(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    return column.view(pa.uint64()) if kind.bit_width == 64 else column.cast(pa.int64()).view(pa.uint64())
