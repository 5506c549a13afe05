"""Which of many rows, each with a weight, are left when equal ones cancel each other out?"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.flat import flat_table, whole

# names that no table has; a position follows from the other columns of its row
POSITION, WEIGHT = "__penstock_position", "__penstock_weight"
_FACTOR = 0x9E3779B97F4A7C15


def equal_rows(one: pa.Table, other: pa.Table) -> pa.ChunkedArray:
    """Whether each row is the same as the one at its place in the other table, of the same columns and length."""
    found = pa.chunked_array([pa.repeat(pa.scalar(True), one.num_rows)])
    mine, theirs = flat_table(one), flat_table(other)
    for a, b in zip(mine.columns, theirs.columns, strict=True):
        same = pc.equal(a, b)
        if same.null_count:
            same = pc.or_(pc.fill_null(same, False), pc.and_(pc.is_null(a), pc.is_null(b)))
        found = pc.and_(found, same)
    return found


def without_pairs(rows: pa.Table) -> pa.Table:
    """The rows without most of those that another one cancels out; what is left still adds up to the same.

    A sum over a row's columns only says which two may be equal; they go when they really are.
    """
    sums = whole(_sums(rows))
    order = pc.sort_indices(sums)
    sums, weights = sums.take(order), whole(rows.column(WEIGHT)).take(order)
    alike = pc.equal(sums.slice(1), sums.slice(0, len(sums) - 1))
    no = pa.array([False])
    before, after = pa.concat_arrays([no, alike]), pa.concat_arrays([alike, no])
    later = pa.concat_arrays([after.slice(1), no])
    opposite = pc.equal(pc.add(weights.slice(1), weights.slice(0, len(weights) - 1)), 0)
    two = pc.and_(pc.and_not(pc.and_not(after, before), later), pa.concat_arrays([opposite, no]))
    bare = rows.drop_columns([POSITION, WEIGHT])
    seconds = pa.concat_arrays([no, two.slice(0, len(two) - 1)])
    equal = equal_rows(bare.take(order.filter(two)), bare.take(order.filter(seconds)))
    equal = whole(equal)
    left = pc.invert(pc.or_(two, seconds))
    again = [order.filter(some).filter(pc.invert(equal)) for some in (two, seconds)]
    return rows.take(pa.concat_arrays([order.filter(left), *again]))


def summed_rows(rows: pa.Table) -> pa.Table:
    """One of each of the rows whose weights do not add up to 0, with their sum."""
    bare = rows.drop_columns([WEIGHT])
    flat = flat_table(bare.drop_columns([POSITION]))
    marked = flat.append_column("weight", rows.column(WEIGHT)).append_column("at", _numbers(rows.num_rows))
    summed = marked.group_by(flat.column_names, use_threads=False).aggregate([("weight", "sum"), ("at", "min")])
    summed = summed.filter(pc.not_equal(summed.column("weight_sum"), 0))
    kept = bare.take(summed.column("at_min"))
    return kept.append_column(WEIGHT, summed.column("weight_sum")).combine_chunks()


def _numbers(count: int) -> pa.Array:
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count)), 1)


def _sums(rows: pa.Table) -> pa.ChunkedArray:
    """A number per row, the same for equal rows; columns that no number is at hand for are left out."""
    found = pa.chunked_array([pa.repeat(pa.scalar(0, pa.uint64()), rows.num_rows)])
    factor = pa.scalar(_FACTOR, pa.uint64())
    for column in flat_table(rows.drop_columns([POSITION, WEIGHT])).columns:
        number = _number(column)
        if number is not None:
            found = pc.add(pc.multiply(found, factor), pc.multiply(pc.fill_null(number, 7), factor))
    return found


def _number(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        encoded = whole(column).dictionary_encode()
        return encoded.indices.cast(pa.uint64())
    if pa.types.is_decimal(kind):
        return None
    if pa.types.is_boolean(kind):
        return column.cast(pa.uint64())
    if pa.types.is_temporal(kind):
        column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    return column.cast(pa.int64()).cast(pa.uint64(), safe=False)
