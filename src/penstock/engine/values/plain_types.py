"""Which of Arrow's types that mean the same do we work with? Writers choose others, which not every function knows."""

from __future__ import annotations

import pyarrow as pa

from penstock.engine.values.column_types import arrow_type


def plain_table(rows: pa.Table) -> pa.Table:
    """The same rows in columns of plain types."""
    plain = pa.schema([pa.field(column.name, plain_type(column.type)) for column in rows.schema])
    return rows if plain.types == rows.schema.types else rows.cast(plain)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The one of several that mean the same."""
    known = arrow_type(kind)
    if known is not None:
        return known.plain(kind)
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    return _nested(kind) if pa.types.is_nested(kind) else kind


def _nested(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if hasattr(kind, "value_type"):
        return pa.list_(plain_type(kind.value_type))
    raise pa.ArrowNotImplementedError(f"{kind} is not known")
