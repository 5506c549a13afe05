"""Which positions do values stand for, as Arrow holds them? No other module converts them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.values.column_types import PositionType, arrow_type
from penstock.engine.values.positions import PositionField
from penstock.errors import EngineError


def positions(column: pa.ChunkedArray, kind: PositionType) -> pa.ChunkedArray | None:
    """The position of every value, NULL where there is none; None when the column is not of that type."""
    scale = kind.position_scale(column.type)
    if scale is None:
        return None
    integers = _integers(column)
    scaled = integers if scale.times == 1 else pc.multiply(integers, scale.times)
    return scaled if scale.per == 1 else floor_divided(scaled, scale.per)


def stored_positions(column: pa.ChunkedArray, field: PositionField, file: str) -> pa.ChunkedArray:
    """The same of a file that must have them; an EngineError names it when it has not."""
    at = positions(column, field.kind)
    if at is None:
        raise EngineError(f"{file}: its column {field.name} is a {column.type} and tells no position")
    return at


def raw_position(raw: int, kind: pa.DataType) -> int | None:
    """The position of one integer of a column of that Arrow type; None when it tells none."""
    known = arrow_type(kind)
    scale = known.position_scale(kind) if isinstance(known, PositionType) else None
    return None if scale is None else raw * scale.times // scale.per


def maybe_rounded_up(column: pa.ChunkedArray, kind: PositionType) -> list[bool]:
    """Whether each value is the first of its position where there are finer ones: a moment rounded up looks so."""
    scale = kind.position_scale(column.type)
    if scale is None or scale.per == 1:
        return [False] * len(column)
    integers = _integers(column)
    first = pc.equal(pc.multiply(floor_divided(integers, scale.per), scale.per), integers)
    return list(pc.fill_null(first, False).to_pylist())


def floor_divided(values: pa.ChunkedArray, by: int) -> pa.ChunkedArray:
    """Rounded down, also below 0; Arrow itself rounds towards 0."""
    quotient = pc.divide(values, by)
    too_high = pc.greater(pc.multiply(quotient, by), values)
    return pc.subtract(quotient, pc.cast(too_high, pa.int64()))


def _integers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_integer(column.type):
        column = column.cast(f"int{column.type.bit_width}")  # times and dates have no cast to another width
    return column.cast(pa.int64())
