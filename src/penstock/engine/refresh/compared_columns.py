"""In which columns can the rows of two snapshots and of all between them be compared with each other?"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping

from penstock.engine.values.schemas import nullable, shown

Columns = Mapping[str, object]
"""The type by name, as Delta spells it."""


def table_columns(schema_json: str) -> dict[str, object]:
    return {column["name"]: nullable(column["type"]) for column in json.loads(schema_json)["fields"]}


def wanted_columns(there: Columns, wanted: Collection[str] | None) -> list[str] | str:
    """The wanted columns as the table spells them, all of them unless told; or the one that it has not."""
    if wanted is None:
        return list(there)
    spelled = {name.casefold(): name for name in there}
    missing = next((name for name in wanted if name.casefold() not in spelled), None)
    if missing is not None:
        return missing
    asked = {name.casefold() for name in wanted}
    return [name for name in there if name.casefold() in asked]


def difference(steps: Iterable[Columns], wanted: Collection[str] | None) -> str | None:
    """What became of a wanted column from one schema to the next, so that its rows cannot be compared; else None.

    A column that came is NULL in the rows of before. One that has a wider type now is no longer the same: a query may
    tell 1 of one type from 1 of another, also in the rows that did not change.
    """
    asked = None if wanted is None else {name.casefold() for name in wanted}
    before: dict[str, object] = {}
    for columns in steps:
        now = {name: kind for name, kind in columns.items() if asked is None or name.casefold() in asked}
        for name, kind in before.items():
            if name not in now:
                return f"the column {name} was dropped or renamed"
            if now[name] != kind:
                return f"the column {name} was {shown(kind)} and became {shown(now[name])}"
        before = now
    return None
