"""Which flat columns are equal exactly when the values are?"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

_BITS = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def flat_table(rows: pa.Table) -> pa.Table:
    """Columns that Arrow can group by; two rows are the same when all of them are.

    Numbers with a fraction count by their bits: NaN is NaN, and 0.0 is not -0.0, since a query can tell these apart.
    """
    columns: dict[str, pa.Array] = {}
    for number, column in enumerate(rows.columns):
        columns.update({f"{number}.{part}": values for part, values in enumerate(_flat(whole(column)))})
    return pa.table(columns)


def whole(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _flat(values: pa.Array) -> Iterator[pa.Array]:
    kind = values.type
    if pa.types.is_floating(kind):
        yield values.view(_BITS[kind.bit_width])
    elif pa.types.is_struct(kind):
        yield values.is_valid()
        for child in values.flatten():
            yield from _flat(child)
    elif pa.types.is_map(kind):
        pair = pa.struct([pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)])
        yield from _flat(values.cast(pa.list_(pair)))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lengths = pc.list_value_length(values).cast(pa.int32())
        yield lengths
        ends = _ends(pc.fill_null(lengths, 0))
        for child in _flat(values.flatten()):
            yield from _by_list(child, ends)
    else:
        yield values


def _by_list(child: pa.Array, ends: pa.Array) -> Iterator[pa.Array]:
    """The elements of each list as one piece of bytes, after which of them are there."""
    yield _cut(child.is_valid().cast(pa.uint8()), ends)
    child = pc.fill_null(child, _nothing(child.type)) if child.null_count else child
    if pa.types.is_boolean(child.type):
        child = child.cast(pa.uint8())
    if not (pa.types.is_string(child.type) or pa.types.is_binary(child.type)):
        yield _cut(child, ends)
        return
    lengths = pc.binary_length(child)
    yield _cut(lengths, ends)
    _, offsets, data = child.buffers()
    first = struct.unpack_from("<i", offsets, 4 * child.offset)[0] if len(child) else 0
    yield _pieces(_ends(lengths).take(ends), None if data is None else data.slice(first))


def _cut(child: pa.Array, ends: pa.Array) -> pa.Array:
    width = child.type.bit_width // 8
    data = child.buffers()[1]
    start = child.offset * width
    return _pieces(pc.multiply(ends, pa.scalar(width, pa.int32())), None if data is None else data.slice(start))


def _pieces(ends: pa.Array, data: pa.Buffer | None) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, ends.buffers()[1], data or pa.py_buffer(b"")])


def _ends(lengths: pa.Array) -> pa.Array:
    """Where each piece ends, after a 0; beyond 2 GiB in one batch Arrow refuses."""
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum_checked(lengths.cast(pa.int32()))])


def _nothing(kind: pa.DataType) -> pa.Scalar:
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pa.scalar("" if pa.types.is_string(kind) else b"", kind)
    if pa.types.is_boolean(kind):
        return pa.scalar(False)
    return pa.scalar(0, pa.int8()).cast(kind) if pa.types.is_integer(kind) else _zero(kind)


def _zero(kind: pa.DataType) -> pa.Scalar:
    """Nought of a date, a time or a decimal."""
    try:
        width = kind.bit_width // 8
    except ValueError:  # of a type without values
        raise pa.ArrowNotImplementedError(f"{kind} has no nought") from None
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(b"\0" * width)])[0]
