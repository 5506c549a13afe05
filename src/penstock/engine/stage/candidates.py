"""Which live files can hold one of some keys, as far as statistics tell?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.log.handle import open_table
from penstock.engine.log.storage import Storage
from penstock.engine.values.column_types import column_type
from penstock.engine.values.files import DataFile, TableSnapshot
from penstock.engine.values.job import StagedFile


@dataclass(frozen=True, slots=True)
class Span:
    """What one column of a file may hold. Without bounds: nothing but NULLs."""

    least: Any
    greatest: Any
    nulls: bool

    def meets(self, other: Span) -> bool:
        if self.nulls and other.nulls:
            return True
        if self.least is None or other.least is None:
            return False
        try:
            return bool(self.least <= other.greatest and other.least <= self.greatest)
        except TypeError:  # of two kinds: then statistics tell nothing
            return True


Box = tuple[Span | None, ...]
"""The key columns of one file; None: anything may be there."""


def able_to_hold(
    snapshot: TableSnapshot,
    new: Sequence[StagedFile],
    key: Sequence[tuple[str, str]],
    storage: Storage | None,
) -> tuple[DataFile, ...]:
    """The live files that may hold a key of the new rows; `key` gives each column with its type as Delta spells it."""
    if not new or not snapshot.files:
        return ()
    wanted = [_box_of_staged(file, key) for file in new]
    live = _live_boxes(snapshot, key, storage)
    return tuple(file for file in snapshot.files if any(_meet(live.get(file.path), box) for box in wanted))


def _meet(live: Box | None, new: Box) -> bool:
    if live is None:
        return True
    return all(a is None or b is None or a.meets(b) for a, b in zip(live, new, strict=True))


def _box_of_staged(file: StagedFile, key: Sequence[tuple[str, str]]) -> Box:
    said = json.loads(file.stats_json, parse_float=Decimal)
    sides = [said.get(side, {}) for side in ("minValues", "maxValues", "nullCount")]
    return tuple(_span(*(side.get(name) for side in sides), rows=file.rows, kind=kind) for name, kind in key)


def _live_boxes(snapshot: TableSnapshot, key: Sequence[tuple[str, str]], storage: Storage | None) -> Mapping[str, Box]:
    table = open_table(snapshot.location, version=snapshot.version, storage=storage)
    if table is None:
        return {}
    actions = pa.table(table.get_add_actions(flatten=False))
    rows = actions.column("num_records").to_pylist()
    columns: list[list[Span | None]] = []
    for name, kind in key:
        sides = [_statistics(actions, group, name) for group in ("min", "max", "null_count")]
        per_file = zip(*sides, rows, strict=True)
        columns.append([_span(*side, rows=count, kind=kind) for *side, count in per_file])
    return dict(zip(map(unquote, actions.column("path").to_pylist()), zip(*columns, strict=True), strict=True))


def _statistics(actions: pa.Table, group: str, name: str) -> list[Any]:
    unknown: list[Any] = [None] * actions.num_rows
    if group not in actions.column_names or actions.column(group).type.get_field_index(name) < 0:
        return unknown
    try:
        return list(pc.struct_field(actions.column(group), [name]).to_pylist())
    except (ValueError, OverflowError):  # moments that Python has no value for
        return unknown


def _span(least: Any, greatest: Any, nulls: int | None, *, rows: int | None, kind: str) -> Span | None:
    if nulls is not None and nulls == rows:
        return Span(None, None, nulls=True)
    known = column_type(kind)
    if known is None or least is None or greatest is None:
        return None
    try:
        bounds = known.log_bounds(least, greatest)
    except (TypeError, ValueError, ArithmeticError):
        return None
    return None if bounds is None else Span(*bounds, nulls != 0)
