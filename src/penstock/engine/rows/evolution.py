"""Do the columns of new rows fit the table, and which does the table lack?"""

from __future__ import annotations

import json
from collections.abc import Mapping

from deltalake import Field, Schema

from penstock.engine.rows.statistics import INDEXED_COLUMNS
from penstock.engine.values.files import PositionColumn
from penstock.engine.values.positions import position_field
from penstock.engine.values.schemas import nullable, nullable_field, shown, unknown_type
from penstock.errors import QueryError, SourceError

_FORBIDDEN = set(" ,;{}()\n\t=")
"""Delta refuses these in a column's name unless the table maps its columns."""


def storable(schema_json: str, position: PositionColumn | None) -> Schema:
    """The schema of a table for such rows: everything may be NULL, for a later query may well yield it."""
    fields = json.loads(schema_json)["fields"]
    seen: set[str] = set()
    for field in fields:
        _check_name(field["name"], seen)
        _check_type(field["name"], field["type"])
    try:
        if position is not None:
            position_field(schema_json, position)
    except SourceError as error:
        raise QueryError(f"the query's result: {error.message}", hint="select the position column") from error
    return Schema.from_json(json.dumps({"type": "struct", "fields": [nullable_field(field) for field in fields]}))


def indexed_columns(schema: Schema, position: PositionColumn | None) -> int:
    """How many leading columns need statistics so that the position is among them."""
    if position is None:
        return INDEXED_COLUMNS
    leaves = [name for field in json.loads(schema.to_json())["fields"] for name in _leaf_names(field)]
    place = next((i for i, name in enumerate(leaves) if name.casefold() == position.name.casefold()), 0)
    return max(INDEXED_COLUMNS, place + 1)


def columns_to_add(table: Schema, rows: Schema, may_add: bool) -> list[Field]:
    """The columns that the table lacks; a QueryError names what does not fit.

    A column that the query lost stays in the table and is NULL in the new rows.
    """
    ours, theirs = _by_name(table), _by_name(rows)
    spelled = {name.casefold(): name for name in ours}
    for name, type_ in theirs.items():
        known = spelled.get(name.casefold())
        if known is not None and known != name:
            raise QueryError(f"the column {name!r} is spelled {known!r} in the table", hint="use the table's spelling")
        if known is not None and ours[known] != type_:
            raise QueryError(
                f"the column {name!r} is now {shown(type_)}, but {shown(ours[name])} in the table",
                hint="cast it, or rebuild the model",
            )
    new, gone = [n for n in theirs if n not in ours], [n for n in ours if n not in theirs]
    if (new or gone) and not may_add:
        what = f"the query has the new column {new[0]!r}" if new else f"the query lost the column {gone[0]!r}"
        raise QueryError(what, hint="`on_schema_change` forbids it: rebuild the model, or allow `add_columns`")
    return [field for field in rows.fields if field.name in new]


def _by_name(schema: Schema) -> Mapping[str, object]:
    return {field["name"]: nullable(field["type"]) for field in json.loads(schema.to_json())["fields"]}


def _check_name(name: str, seen: set[str]) -> None:
    if _FORBIDDEN & set(name) or not name:
        raise QueryError(f"{name!r} is no name for a stored column", hint="give the expression an alias with AS")
    if name.casefold() in seen:
        raise QueryError(f"the query has two columns {name!r}", hint="give one of them another alias")
    seen.add(name.casefold())


def _check_type(column: str, type_: object) -> None:
    odd = unknown_type(column, type_)
    if odd is not None:
        raise QueryError(f"the column {odd[0]!r} has the type {shown(odd[1])}, which is not stored", hint="cast it")


def _leaf_names(field: Mapping[str, object]) -> list[str]:
    match field["type"]:
        case {"type": "struct", "fields": list(fields)}:
            return [f"{field['name']}.{name}" for inner in fields for name in _leaf_names(inner)]
        case _:
            return [str(field["name"])]
