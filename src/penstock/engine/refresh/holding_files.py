"""Which files may hold a row with one of these keys, as the log tells?"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.log.handle import open_table
from penstock.engine.log.storage import Storage

if TYPE_CHECKING:
    from penstock.engine.values.files import DataFile

MOST_KEYS = 200_000
"""Of more than that nearly every file holds one."""
_MILLISECOND = timedelta(milliseconds=1)
_DOUBLE = Decimal(2) ** -51
"""Relative to a number: more than what a double is off by."""


def holding(
    location: str,
    version: int,
    files: Sequence[DataFile],
    keys: Mapping[str, pa.ChunkedArray],
    storage: Storage | None = None,
) -> tuple[DataFile, ...]:
    """Those of `files` whose statistics allow, in every column of `keys`, one of its values."""
    columns = [name for name, values in keys.items() if len(values) <= MOST_KEYS]
    if not columns or not files:
        return tuple(files)
    table = open_table(location, version=version, storage=storage)
    if table is None:
        return tuple(files)
    actions = pa.table(table.get_add_actions(flatten=False))
    chosen = set(map(unquote, actions.column("path").to_pylist()))
    for name in columns:
        chosen &= _with_one_of(actions, name, keys[name])
    return tuple(file for file in files if file.path in chosen)


def _with_one_of(actions: pa.Table, column: str, values: pa.ChunkedArray) -> set[str]:
    """The paths of the files that may hold one of the values; of which the log says nothing, too."""
    paths = list(map(unquote, actions.column("path").to_pylist()))
    lows, highs, nulls = (_statistic(actions, group, column) for group in ("min", "max", "null_count"))
    if lows is None or highs is None:
        return set(paths)
    wants_null = values.null_count > 0
    try:
        known = {value.as_py() for value in values.unique() if value.is_valid}
        if any(value != value for value in known):  # noqa: PLR0124  NaN is in no statistics
            return set(paths)
        wanted = sorted(known)
        return {
            path
            for path, low, high, null in zip(paths, lows, highs, nulls or [None] * len(paths), strict=True)
            if _may_hold(low, high, null, wanted, wants_null=wants_null)
        }
    except TypeError:  # values that cannot be compared with those of the log
        return set(paths)


def _statistic(actions: pa.Table, group: str, column: str) -> list[object] | None:
    if group not in actions.column_names:
        return None
    struct = actions.column(group)
    index = struct.type.get_field_index(column)
    if index < 0 or pa.types.is_nested(struct.type.field(index).type):
        return None
    values: list[object] = pc.struct_field(struct, [column]).to_pylist()
    return values


def _may_hold(low: Any, high: Any, null: object, wanted: Sequence[Any], *, wants_null: bool) -> bool:
    if wants_null and null != 0:
        return True
    if low is None or high is None:
        return bool(wanted)  # only NULLs, or unknown
    at = bisect_left(wanted, _outwards(low, -1))
    return at < len(wanted) and bool(wanted[at] <= _outwards(high, 1))


def _outwards(bound: Any, way: int) -> Any:
    """Statistics have times in whole milliseconds, and decimals as doubles: a value may lie a little beyond."""
    try:
        if isinstance(bound, datetime):
            return bound + way * _MILLISECOND
        if isinstance(bound, Decimal):
            return bound + way * (abs(bound) * _DOUBLE + Decimal(1).scaleb(int(bound.as_tuple().exponent)))
    except OverflowError:  # the first or the last moment there is
        return bound
    return bound
