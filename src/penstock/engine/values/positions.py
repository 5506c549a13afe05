"""Which column carries positions?"""

from __future__ import annotations

import json
from dataclasses import dataclass

from penstock.engine.values.column_types import COLUMN_TYPES, PositionType, column_type
from penstock.engine.values.files import PositionColumn
from penstock.errors import SourceError
from penstock.values.models.axis import SECOND


@dataclass(frozen=True, slots=True)
class PositionField:
    """A position column as one table has it; `physical` is its name in the files and statistics."""

    name: str
    physical: str
    kind: PositionType


def position_field(schema_json: str, position: PositionColumn) -> PositionField:
    """The column of that schema (JSON as Delta spells it) that carries the positions."""
    fields = json.loads(schema_json)["fields"]
    named = [f for f in fields if f["name"] == position.name]
    named = named or [f for f in fields if f["name"].casefold() == position.name.casefold()]
    if len(named) != 1:
        raise SourceError(
            f"no column {position.name!r} to take positions from; the table has {', '.join(f['name'] for f in fields)}",
            hint="name a top-level column of the table in `position`",
        )
    field = named[0]
    kind = column_type(field["type"])
    if not isinstance(kind, PositionType) or not _fits(kind, position.axis):
        spelled = field["type"] if isinstance(field["type"], str) else field["type"]["type"]
        raise SourceError(
            f"column {field['name']!r} is a {spelled}; "
            f"positions on the axis {position.axis!r} need {fitting(position.axis)} column",
            hint="name another column in `position`, or another `axis`",
        )
    physical = field.get("metadata", {}).get("delta.columnMapping.physicalName", field["name"])
    return PositionField(field["name"], physical, kind)


def fitting(axis: str) -> str:
    """The types for an axis, for people."""
    kinds = [kind for kind in COLUMN_TYPES if isinstance(kind, PositionType) and _fits(kind, axis)]
    *words, last = dict.fromkeys(kind.word for kind in kinds)
    return f"{', '.join(words)} or {last}" if words else last


def _fits(kind: PositionType, axis: str) -> bool:
    return axis == SECOND or not kind.is_time
