"""Which names may a template use, what does each give, and does that differ between chunks?

A new function or variable is one more entry of `TABLE`; no other module has to know of it. What an entry does not say
is taken for the worst: a query that uses the name is neither shared by chunks nor compared by `verify`.

A name gives what follows from the project and from the chunk, and never reads a clock: the attempts of a task must run
the same query. What only an attempt knows (its lane, the start of its task) is a field of `ChunkQuery`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from penstock.project.keys.settings import KINDS, Kind, Settings
from penstock.project.reading.documents import Plain
from penstock.project.templates.context import ChunkQuery, ScanQuery
from penstock.project.templates.lookups import Missing, Mistake, Names, Span
from penstock.project.templates.outline import Outline
from penstock.values.intervals import Interval
from penstock.values.models import IntervalModel, Model
from penstock.values.models.axis import SECOND

Varies = Literal["never", "task", "bounds", "chunk"]
"""What a name gives is the same for all chunks of a model; for all chunks of one task; for all chunks but for their
bounds, which stand as they are in the text that it prints; or may be anything in every chunk."""

_COLUMN = re.compile(r"([A-Za-z_]\w*|`[^`]+`)(\.([A-Za-z_]\w*|`[^`]+`))*")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MOMENT = 253_402_300_800
"""Positions from the year 10000 on, which no literal can show."""
_FIRST_MOMENT = -62_135_596_800


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateName:
    """One name that a template may use."""

    in_models: Callable[[ChunkQuery], object] | None = None
    """What it gives in the query of a model; None instead of a function: it is not known there."""
    in_scans: Callable[[ScanQuery], object] | None = None
    """The same for the bounds query of a source."""
    varies: Varies = "chunk"
    members: frozenset[str] = frozenset()
    """Which members vary with the bounds alone; none: it is a function."""
    settings: Callable[[Outline, Model, Settings], Mapping[str, object]] = lambda *_: {}
    """The values of the project that a template sees by it: when one changes, so does the meaning of the model."""


def _ref(query: ChunkQuery | ScanQuery) -> Callable[..., str]:
    return query.ref


def _bounds(label: str) -> Callable[[ChunkQuery], Span]:
    return lambda query: Span(label, _span(query.bounds, query.context.axis))


def _in_bounds(query: ChunkQuery) -> Callable[..., str]:
    def in_bounds(column: str, type: str = "timestamp") -> str:  # noqa: A002  # the users' word
        return _condition(column, type, query.bounds, query.context.axis)

    return in_bounds


def _task(query: ChunkQuery) -> Names:
    return Names("task", {"start": query.task_start, "direction": query.lane})


def _dep(query: ChunkQuery) -> Names:
    """Dependencies by database and table; the default databases by their placeholders too."""
    context = query.context
    databases: dict[str, dict[str, object]] = {}
    for name in dict.fromkeys(member for group in context.groups for member in group):
        database, table = name.split(".")
        position = context.positions.get(name) or Missing(f"{name} has no position")
        facts = {"name": name, "database": database, "table": table, "position": position, "partition": position}
        databases.setdefault(database, {})[table] = Names(f"dep['{database}']['{table}']", facts)
    members: dict[str, object] = {name: Names(f"dep['{name}']", tables) for name, tables in databases.items()}
    for kind, database in context.databases.items():
        if database in members:
            members[f"{{{{{kind}}}}}"] = members[database]
    return Names("dep", members)


def _self(query: ChunkQuery | ScanQuery) -> Names:
    context = query.context
    database, table = context.name.split(".")
    position = context.position or Missing(f"{context.name} has no position")
    interval = context.interval if context.interval is not None else Missing(f"{context.name} has no interval")
    elsewhere = Missing("self.relation is for bounds queries of sources")
    facts = {
        "name": context.name,
        "database": database,
        "table": table,
        "position": position,
        "partition": position,
        "axis": context.axis,
        "interval": interval,
        "relation": query.relation if isinstance(query, ScanQuery) else elsewhere,
    }
    return Names("self", facts)


def _own_interval(outline: Outline, model: Model, _: Settings) -> dict[str, object]:
    members = outline.members("self")
    if not isinstance(model, IntervalModel) or (members is not None and "interval" not in members):
        return {}
    return {"self.interval": model.interval.max}


def _env(query: ChunkQuery | ScanQuery) -> Names:
    return Names("env", query.context.env)


def _env_values(outline: Outline, model: Model, _: Settings) -> dict[str, object]:
    members = outline.members("env")
    return {f"env.{key}": text for key, text in model.env.items() if members is None or key in members}


def _var(query: ChunkQuery | ScanQuery) -> Callable[..., Plain]:
    values = query.context.vars

    def var(name: str, default: Plain = None) -> Plain:
        if name in values:
            return values[name]
        if default is None:
            raise Mistake(f"there is no var {name!r}; add it to vars: in penstock.yml or give a default")
        return default

    return var


def _var_values(outline: Outline, _: Model, settings: Settings) -> dict[str, object]:
    names = outline.constants("var")
    return {f"var.{key}": value for key, value in settings.vars.items() if names is None or key in names}


def _cache(query: ScanQuery) -> Names:
    scan, unknown = query.scan, "is not known in the first scan; use it inside {% if cache.is_incremental_scan %}"
    facts = {
        "is_incremental_scan": not scan.is_full,
        "is_full_scan": scan.is_full,
        "previous_min": Missing(f"cache.previous_min {unknown}") if scan.previous_min is None else scan.previous_min,
        "previous_max": Missing(f"cache.previous_max {unknown}") if scan.previous_max is None else scan.previous_max,
    }
    return Names("cache", facts)


def _database(kind: Kind) -> TemplateName:
    def value(query: ChunkQuery | ScanQuery) -> str | None:
        return query.context.databases.get(kind)

    def setting(_: Outline, __: Model, settings: Settings) -> dict[str, object]:
        return {kind: settings.databases[kind]} if kind in settings.databases else {}

    return TemplateName(in_models=value, in_scans=value, varies="never", settings=setting)


_EDGES = frozenset({"start", "end", "start_time", "end_time"})
TABLE: dict[str, TemplateName] = {
    "ref": TemplateName(in_models=_ref, in_scans=_ref, varies="never"),
    "bounds": TemplateName(in_models=_bounds("bounds"), varies="bounds", members=_EDGES),
    "range": TemplateName(in_models=_bounds("range"), varies="bounds", members=_EDGES),
    "in_bounds": TemplateName(in_models=_in_bounds, varies="bounds"),
    "task": TemplateName(in_models=_task, varies="task"),
    "dep": TemplateName(in_models=_dep, varies="never"),
    "self": TemplateName(in_models=_self, in_scans=_self, varies="never", settings=_own_interval),
    "env": TemplateName(in_models=_env, in_scans=_env, varies="never", settings=_env_values),
    "var": TemplateName(in_models=_var, in_scans=_var, varies="never", settings=_var_values),
    "cache": TemplateName(in_scans=_cache),
    **{kind: _database(kind) for kind in KINDS},
}


def names_in_models() -> frozenset[str]:
    return frozenset(name for name, entry in TABLE.items() if entry.in_models is not None)


def names_in_scans() -> frozenset[str]:
    return frozenset(name for name, entry in TABLE.items() if entry.in_scans is not None)


def values_given(sql: str, query: ChunkQuery | ScanQuery) -> dict[str, object]:
    """What the names in `sql` give; one that stands nowhere in it is not made: `dep` may hold a whole project."""
    values = {name: _value(entry, query) for name, entry in TABLE.items() if name in sql}
    return {name: value for name, value in values.items() if value is not None}


def _value(entry: TemplateName, query: ChunkQuery | ScanQuery) -> object:
    if isinstance(query, ScanQuery):
        return None if entry.in_scans is None else entry.in_scans(query)
    return None if entry.in_models is None else entry.in_models(query)


def varying(names: Iterable[str], *allowed: Varies) -> list[str]:
    """Those of `names` that may vary in another way than `allowed`; a name without an entry varies in every way."""
    return sorted(name for name in names if name not in TABLE or TABLE[name].varies not in allowed)


def shows_bounds_only(name: str, outline: Outline) -> bool:
    """Whether all that the template does with `name` is to print the bounds of its chunk."""
    entry = TABLE.get(name)
    if entry is None or entry.varies != "bounds" or name not in outline.printed:
        return False
    members = [use.member for use in outline.uses[name]]
    return set(members) <= entry.members if entry.members else set(members) == {None}


def settings_seen(outline: Outline, model: Model, settings: Settings) -> dict[str, object]:
    """The values of the project that a template sees."""
    seen: dict[str, object] = {}
    for name in outline.names & TABLE.keys():
        seen |= TABLE[name].settings(outline, model, settings)
    return seen


def moment(position: int) -> str:
    """A timestamp that means the same in every session time zone."""
    if not _FIRST_MOMENT <= position < _LAST_MOMENT:
        return f"timestamp_seconds({position})"
    return f"timestamp'{(_EPOCH + timedelta(seconds=position)).strftime('%Y-%m-%dT%H:%M:%SZ').rjust(20, '0')}'"


def _span(bounds: Interval, axis: str) -> dict[str, object]:
    only = Missing(f"start_time and end_time exist on the axis {SECOND!r} only; this axis is {axis!r}")
    timed = axis == SECOND
    return {
        "start": bounds.start,
        "end": bounds.end,
        "key": bounds.key,
        "start_time": moment(bounds.start) if timed else only,
        "end_time": moment(bounds.end) if timed else only,
    }


def _condition(column: str, type: str, bounds: Interval, axis: str) -> str:  # noqa: A002  # the users' word
    if not _COLUMN.fullmatch(column):
        raise Mistake(f"in_bounds({column!r}): give the name of a column")
    if type not in ("timestamp", "bigint"):
        raise Mistake(f"in_bounds(type={type!r}): it is 'timestamp' or 'bigint'")
    timed = axis == SECOND and type == "timestamp"
    start, end = (moment(p) if timed else str(p) for p in (bounds.start, bounds.end))
    return f"({column} >= {start} and {column} < {end})"
