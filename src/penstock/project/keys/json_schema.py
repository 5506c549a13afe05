"""How do editors check project files?"""

from __future__ import annotations

from penstock.project.keys.keys import PROJECT, REQUIRED, SPELLINGS, keys_of
from penstock.project.keys.shapes import Json, object_schema


def schema() -> dict[str, Json]:
    """The JSON schema of `penstock.yml`, of sources and of the front matter of transformations."""
    types: dict[str, Json] = {kind: _model(kind) for kind in REQUIRED}
    built: list[Json] = [{"$ref": f"#/$defs/{kind}"} for kind in REQUIRED if kind != "source"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Penstock project files",
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in ("project", "source", "transformation")],
        "$defs": {"project": PROJECT.schema(), **types, "transformation": {"anyOf": built}},
    }


def _model(kind: str) -> dict[str, Json]:
    model = object_schema(keys_of(kind), ())
    model["properties"] = {**_properties(model), "type": {"const": kind}, "external": {"const": kind == "source"}}
    spellings = {key: (key, *others) for key, others in SPELLINGS if key in _properties(model)}
    rules: list[Json] = []
    for names in spellings.values():
        rules += [{"not": {"required": [first, second]}} for first in names for second in names if first < second]
    for key in REQUIRED[kind]:
        rules.append({"anyOf": [{"required": [name]} for name in spellings.get(key, (key,))]})
    return {**model, "allOf": rules} if rules else model


def _properties(model: dict[str, Json]) -> dict[str, Json]:
    properties = model["properties"]
    return dict(properties) if isinstance(properties, dict) else {}
