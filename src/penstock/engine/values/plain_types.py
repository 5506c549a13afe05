"""Which of Arrow's types that mean the same do we work with? Writers choose others, which not every function knows."""

from __future__ import annotations

import pyarrow as pa


def plain_table(rows: pa.Table) -> pa.Table:
    """The same rows in columns of plain types."""
    plain = pa.schema([pa.field(column.name, plain_type(column.type)) for column in rows.schema])
    return rows if plain.types == rows.schema.types else rows.cast(plain)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The one of several that mean the same; Spark has no nanoseconds."""
    types = pa.types
    if types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if types.is_nested(kind):
        return _nested(kind)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    binary = types.is_large_binary(kind) or types.is_binary_view(kind) or types.is_fixed_size_binary(kind)
    return pa.binary() if binary else kind


def _nested(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, plain_type(one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if hasattr(kind, "value_type"):
        return pa.list_(plain_type(kind.value_type))
    raise pa.ArrowNotImplementedError(f"{kind} is not known")
