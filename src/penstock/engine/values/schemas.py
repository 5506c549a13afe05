"""What does a schema say, in the JSON of Delta and Spark?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from penstock.engine.values.column_types import column_type


def unknown_type(column: str, kind: object) -> tuple[str, object] | None:
    """The first part of a column whose type is not in the list, by its path; None when all are."""
    return next((part for part in _parts(column, kind) if column_type(part[1]) is None), None)


def nullable(kind: object) -> object:
    """The same type without notes, everything in it nullable: other files may lack what these have."""
    match kind:
        case {"type": "struct", "fields": list(fields)}:
            return {"type": "struct", "fields": [nullable_field(field) for field in fields]}
        case {"type": "array", "elementType": element}:
            return {"type": "array", "elementType": nullable(element), "containsNull": True}
        case {"type": "map", "keyType": key, "valueType": value}:
            inner = {"keyType": nullable(key), "valueType": nullable(value)}
            return {"type": "map", **inner, "valueContainsNull": True}
        case _:
            return kind


def nullable_field(field: Mapping[str, object]) -> dict[str, object]:
    return {"name": field["name"], "type": nullable(field["type"]), "nullable": True, "metadata": {}}


def spark_type(kind: object) -> str:
    """A type as SQL spells it."""
    match kind:
        case {"type": "struct", "fields": list(fields)}:
            inner = (f"{field['name']}:{spark_type(field['type'])}" for field in fields)
            return f"struct<{','.join(inner)}>"
        case {"type": "array", "elementType": element}:
            return f"array<{spark_type(element)}>"
        case {"type": "map", "keyType": key, "valueType": value}:
            return f"map<{spark_type(key)},{spark_type(value)}>"
        case _:
            return str(kind)


def shown(kind: object) -> str:
    """A type for people."""
    return kind if isinstance(kind, str) else json.dumps(kind)


def _parts(path: str, kind: object) -> Iterator[tuple[str, object]]:
    """The types that a type is made of."""
    match kind:
        case {"type": "struct", "fields": list(fields)}:
            for field in fields:
                yield from _parts(f"{path}.{field['name']}", field["type"])
        case {"type": "array", "elementType": element}:
            yield from _parts(path, element)
        case {"type": "map", "keyType": key, "valueType": value}:
            yield from _parts(path, key)
            yield from _parts(path, value)
        case _:
            yield path, kind
