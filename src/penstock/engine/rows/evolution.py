"""Do the columns of new rows fit the table, and which does the table lack?"""

from __future__ import annotations

import json
from collections.abc import Mapping

from deltalake import Field, Schema

from penstock.engine.rows.statistics import INDEXED_COLUMNS
from penstock.engine.values.files import PositionColumn
from penstock.engine.values.positions import position_field
from penstock.errors import QueryError, SourceError

_TYPES = {"string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary", "date", "timestamp"}
_TYPES |= {"timestamp_ntz"}
_FORBIDDEN = set(" ,;{}()\n\t=")
"""Delta refuses these in a column's name unless the table maps its columns."""


def storable(schema_json: str, position: PositionColumn) -> Schema:
    """The schema of a table for such rows: everything may be NULL, for a later query may well yield it."""
    fields = json.loads(schema_json)["fields"]
    seen: set[str] = set()
    for field in fields:
        _check_name(field["name"], seen)
        _check_type(field["name"], field["type"])
    try:
        position_field(schema_json, position)
    except SourceError as error:
        raise QueryError(f"the query's result: {error.message}", hint="select the position column") from error
    return Schema.from_json(json.dumps({"type": "struct", "fields": [_relaxed(field) for field in fields]}))


def indexed_columns(schema: Schema, position: PositionColumn) -> int:
    """How many leading columns need statistics so that the position is among them."""
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
                f"the column {name!r} is now {_shown(type_)}, but {_shown(ours[name])} in the table",
                hint="cast it, or rebuild the model",
            )
    new, gone = [n for n in theirs if n not in ours], [n for n in ours if n not in theirs]
    if (new or gone) and not may_add:
        what = f"the query has the new column {new[0]!r}" if new else f"the query lost the column {gone[0]!r}"
        raise QueryError(what, hint="`on_schema_change` forbids it: rebuild the model, or allow `add_columns`")
    return [field for field in rows.fields if field.name in new]


def _by_name(schema: Schema) -> Mapping[str, object]:
    return {field["name"]: _relaxed(field)["type"] for field in json.loads(schema.to_json())["fields"]}


def _shown(type_: object) -> str:
    return type_ if isinstance(type_, str) else json.dumps(type_)


def _check_name(name: str, seen: set[str]) -> None:
    if _FORBIDDEN & set(name) or not name:
        raise QueryError(f"{name!r} is no name for a stored column", hint="give the expression an alias with AS")
    if name.casefold() in seen:
        raise QueryError(f"the query has two columns {name!r}", hint="give one of them another alias")
    seen.add(name.casefold())


def _check_type(column: str, type_: object) -> None:
    match type_:
        case {"type": "struct", "fields": list(fields)}:
            for field in fields:
                _check_type(f"{column}.{field['name']}", field["type"])
        case {"type": "array", "elementType": element}:
            _check_type(column, element)
        case {"type": "map", "keyType": key, "valueType": value}:
            _check_type(column, key)
            _check_type(column, value)
        case str() if type_ in _TYPES or type_.startswith("decimal("):
            return
        case _:
            raise QueryError(f"the column {column!r} has the type {_shown(type_)}, which is not stored", hint="cast it")


def _relaxed(field: Mapping[str, object]) -> dict[str, object]:
    return {"name": field["name"], "type": _relaxed_type(field["type"]), "nullable": True, "metadata": {}}


def _relaxed_type(type_: object) -> object:
    match type_:
        case {"type": "struct", "fields": list(fields)}:
            return {"type": "struct", "fields": [_relaxed(field) for field in fields]}
        case {"type": "array", "elementType": element}:
            return {"type": "array", "elementType": _relaxed_type(element), "containsNull": True}
        case {"type": "map", "keyType": key, "valueType": value}:
            inner = {"keyType": _relaxed_type(key), "valueType": _relaxed_type(value)}
            return {"type": "map", **inner, "valueContainsNull": True}
        case _:
            return type_


def _leaf_names(field: Mapping[str, object]) -> list[str]:
    match field["type"]:
        case {"type": "struct", "fields": list(fields)}:
            return [f"{field['name']}.{name}" for inner in fields for name in _leaf_names(inner)]
        case _:
            return [str(field["name"])]
