"""How is a pinned read spelled so that it can be pasted into any Spark session?"""

from __future__ import annotations

from contextlib import suppress

from penstock.engine.log.handle import FeatureUnsupported
from penstock.engine.log.storage import Storage
from penstock.engine.observe.source_log import source_log
from penstock.engine.values.column_types import LONG, TIMESTAMP, PositionType
from penstock.engine.values.files import PositionColumn
from penstock.engine.values.job import InputRead
from penstock.engine.values.positions import position_field
from penstock.engine.values.predicate import inside, quoted
from penstock.values.intervals import Interval, IntervalSet
from penstock.values.models.axis import SECOND


def portable(read: InputRead, storage: Storage | None = None) -> str:
    """A relation with the same rows as the pinned read."""
    pinned = "" if read.pin.snapshot is None else f" {read.format.version_clause} {read.pin.snapshot}"
    text = f"select * from {read.format.name}.{quoted(read.pin.location)}{pinned}"
    if read.window is not None and read.position is not None:
        text += f" where {inside(read.position.name, position_kind(read, read.position, storage), read.window)}"
    return f"({text})"


def cut(sql: str, own: InputRead, interval: Interval, storage: Storage | None = None) -> str:
    """The rows of a query that belong to one interval of the table `own`."""
    if own.position is None:
        return sql
    return cut_to(sql, own.position, position_kind(own, own.position, storage), IntervalSet.of([interval]))


def cut_to(sql: str, position: PositionColumn, kind: PositionType, window: IntervalSet) -> str:
    """The rows of a query whose position lies in `window`."""
    return f"select * from (\n{sql}\n) where {inside(position.name, kind, window)}"


def position_kind(read: InputRead, position: PositionColumn, storage: Storage | None = None) -> PositionType:
    """The kind of the position column: as the log says, else what is usual on its axis."""
    if read.pin.snapshot is not None:
        with suppress(FeatureUnsupported):
            log = source_log(read.format)
            table = log.snapshot(read.pin.location, position, version=read.pin.snapshot, storage=storage)
            if table is not None:
                return position_field(table.schema_json, position).kind
    return TIMESTAMP if position.axis == SECOND else LONG
