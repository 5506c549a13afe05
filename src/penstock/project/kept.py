"""Serialises a project, for the cache and for the database, and reads it back.

Nothing that came from the environment is written: a location or a value of `env` is kept as it was typed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from penstock.project.keys import values
from penstock.project.reading.problems import Notice
from penstock.values.models import DynamicModel, Graph, IntervalModel, Model, Source

KINDS: Mapping[str, type[Model]] = {"source": Source, "interval": IntervalModel, "dynamic": DynamicModel}
_OWN_ENV = "own_env"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Typed:
    """What stands in a model's file where `${NAME}` may stand."""

    location: str | None
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Meaning:
    """What the files of a project mean."""

    graph: Graph
    fingerprints: Mapping[str, str]
    warnings: tuple[Notice, ...]


def written(meaning: Meaning, typed: Mapping[str, Typed]) -> object:
    return {
        "models": [_model_written(model, typed[model.name]) for model in meaning.graph.models.values()],
        "fingerprints": dict(meaning.fingerprints),
        "warnings": [plain(notice) for notice in meaning.warnings],
    }


def read(record: object, project_env: Mapping[str, str], environ: Mapping[str, str]) -> Meaning | None:
    """None: this is not what `written` makes."""
    if not isinstance(record, dict):
        return None
    try:
        models = [_model_read(entry, project_env, environ) for entry in record["models"]]
        return Meaning(
            graph=Graph({model.name: model for model in models}),
            fingerprints={model.name: str(record["fingerprints"][model.name]) for model in models},
            warnings=tuple(value_of(Notice, entry) for entry in record["warnings"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _model_written(model: Model, typed: Typed) -> dict[str, object]:
    record = plain(model)
    assert isinstance(record, dict)  # noqa: S101
    record.pop("env", None)
    if isinstance(model, Source) and typed.location is not None:
        record["location"] = typed.location
    return {**record, "type": model.type, _OWN_ENV: dict(typed.env)}


def _model_read(record: dict[str, Any], project_env: Mapping[str, str], environ: Mapping[str, str]) -> Model:
    entries = dict(record)
    own = entries.pop(_OWN_ENV)
    entries["env"] = {**project_env, **{name: values.expanded(text, environ) for name, text in own.items()}}
    if entries.get("location") is not None:
        entries["location"] = values.expanded(entries["location"], environ)
    return value_of(KINDS[entries["type"]], entries)


def plain(value: object) -> object:
    """`value` as JSON has it; fields that have their default are left out."""
    if is_dataclass(value):
        items = ((field, getattr(value, field.name)) for field in fields(value))
        return {field.name: plain(item) for field, item in items if field.default is MISSING or field.default != item}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def value_of(kind: type[T], record: Mapping[str, object]) -> T:
    """The dataclass that `plain` made `record` of."""
    entries = dict(record)
    for name, reader in _readers(kind).items():
        if name in entries:
            entries[name] = reader(entries[name])
    return kind(**entries)


_READERS: dict[type, dict[str, Callable[[Any], Any]]] = {}


def _readers(kind: type) -> dict[str, Callable[[Any], Any]]:
    """How to read the fields that JSON has no word for."""
    if kind not in _READERS:
        hints = get_type_hints(kind)
        readers = {field.name: _reader(hints[field.name]) for field in fields(kind)}
        _READERS[kind] = {name: reader for name, reader in readers.items() if reader is not None}
    return _READERS[kind]


def _reader(hint: Any) -> Callable[[Any], Any] | None:
    if is_dataclass(hint):
        return lambda record: value_of(hint, record)  # type: ignore[arg-type]
    if hint is object:
        return _tuples
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        readers = [reader for part in inner if (reader := _reader(part)) is not None]
        if len(readers) > 1:
            raise TypeError(f"{hint} cannot be told apart when it is read back")
        return (lambda stored: None if stored is None else readers[0](stored)) if readers else None
    if origin is tuple:
        item = _reader(inner[0])
        return tuple if item is None else lambda stored: tuple(map(item, stored))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        read_value = _reader(inner[1])
        return None if read_value is None else lambda stored: {key: read_value(part) for key, part in stored.items()}
    return None


def _tuples(value: object) -> object:
    """Lists are tuples again, at any depth: models hold no others."""
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
