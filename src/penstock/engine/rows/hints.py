"""A fast hash per row: equal rows have equal hashes."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.rows.flat import flat_table, whole

_FACTOR = 0x9E3779B97F4A7C15


def row_hints(rows: pa.Table, *, texts: bool) -> pa.Array:
    """A number per row, the same for equal rows; columns that no number is at hand for are left out."""
    hints = pa.repeat(pa.scalar(0, pa.uint64()), rows.num_rows)
    factor, half = pa.scalar(_FACTOR, pa.uint64()), pa.scalar(29, pa.uint64())
    # one column after the other, since each is copied
    for column in (part for name in rows.column_names for part in flat_table(rows.select([name])).columns):
        number = column_numbers(whole(column), texts=texts)
        if number is not None:
            number = pc.fill_null(number, 7) if number.null_count else number
            product = pc.multiply(pc.add(hints, number), factor)
            # without this, two columns would count by their sum alone
            hints = pc.bit_wise_xor(product, pc.shift_right(product, half))
    return hints


def scattered(numbers: pa.Array, number: int = 0) -> pa.Array:
    """Products whose upper bits depend on all bits of a number; other ones for each `number`."""
    return pc.multiply(numbers, pa.scalar(_FACTOR * (2 * number + 1) % 2**64, pa.uint64()))


def column_numbers(column: pa.Array, *, texts: bool) -> pa.Array | None:
    """A number per value, the same for equal ones; None when none is at hand."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return column.dictionary_encode().indices.cast(pa.uint64()) if texts else None
    if pa.types.is_boolean(kind):
        return column.cast(pa.uint64())
    if not is_number(kind):
        return None
    if pa.types.is_temporal(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    return column.view(pa.uint64()) if kind.bit_width == 64 else column.cast(pa.int64()).view(pa.uint64())


def is_number(kind: pa.DataType) -> bool:
    """Whether values are stored as one whole number, which times are too; a decimal or another type is not."""
    return pa.types.is_integer(kind) or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind))
