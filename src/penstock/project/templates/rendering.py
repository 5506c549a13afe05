"""What SQL does a model run for one interval, and what does a source ask for its bounds?"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from penstock.project.keys.names import UnresolvedName, resolve
from penstock.project.reading.documents import Plain
from penstock.project.templates.context import Ref, RefUse, ScanContext, TemplateContext
from penstock.project.templates.words import Missing, Mistake, Names, Span
from penstock.values.intervals import Interval
from penstock.values.models.axis import SECOND

_COLUMN = re.compile(r"([A-Za-z_]\w*|`[^`]+`)(\.([A-Za-z_]\w*|`[^`]+`))*")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MOMENT = 253_402_300_800
"""Positions from the year 10000 on, which no literal can show."""
_FIRST_MOMENT = -62_135_596_800

STAND_IN = Interval(3_905_718_264_530_917_000, 6_402_915_873_061_428_000)
"""The bounds in a text that many chunks share: their own edges are put in the places where these are found."""


class Inputs:
    """A `Ref` for the engine: each different use is the temporary view `penstock_in_<its place in uses>`."""

    def __init__(self) -> None:
        self.uses: list[RefUse] = []

    def __call__(self, use: RefUse) -> str:
        if use not in self.uses:
            self.uses.append(use)
        return f"`penstock_in_{self.uses.index(use)}`"


def render_model(
    sql: str, scene: TemplateContext, bounds: Interval, *, choices: Sequence[str], ref: Ref, task_start: int, lane: str
) -> str:
    """The query of one interval. `choices` is the member used of each dependency group."""

    def chosen(name: str, all: bool = False) -> str:  # noqa: A002  # the users' word
        model = _found(name, scene)
        for group, choice in zip(scene.groups, choices, strict=True):
            if model in group:
                return ref(RefUse(choice or model, all, absent=not choice))
        raise Mistake(f"ref({name!r}) is not among the dependencies of {scene.name}")

    return _rendered(
        sql, _model_names(sql, scene, bounds, chosen, Names("task", {"start": task_start, "direction": lane}))
    )


def references(sql: str, scene: TemplateContext, bounds: Interval, lane: str) -> tuple[str, ...]:
    """The names that `ref()` is called with when the query of one interval is made, whether they exist or not."""
    called: list[str] = []

    def noted(name: str, all: bool = False) -> str:  # noqa: A002  # the users' word
        called.append(name)
        return "`penstock_in_0`"

    _rendered(sql, _model_names(sql, scene, bounds, noted, Names("task", {"start": 0, "direction": lane})))
    return tuple(dict.fromkeys(called))


def _model_names(
    sql: str, scene: TemplateContext, bounds: Interval, ref: Callable[..., str], task: Names
) -> dict[str, object]:
    span = _span(bounds, scene.axis)
    return {
        **_common(scene),
        "ref": ref,
        "bounds": Span("bounds", span),
        "range": Span("range", span),
        "in_bounds": lambda column, type="timestamp": _in_bounds(column, type, bounds, scene.axis),  # noqa: A006
        "task": task,
        # Made only when asked for: in a trial it holds every model of the project.
        **({"dep": _dep(scene)} if "dep" in sql else {}),
    }


def render_scan(sql: str, scene: TemplateContext, scan: ScanContext, ref: Ref) -> str:
    """The query for the bounds of a source; there only the source itself can be read."""

    def own(name: str) -> str:
        if _found(name, scene) != scene.name:
            raise Mistake(f"a bounds query reads its own table only: ref({scene.name!r})")
        return ref(RefUse(scene.name, all=True))

    unknown = "is not known in the first scan; use it inside {% if cache.is_incremental_scan %}"
    cache = {
        "is_incremental_scan": not scan.is_full,
        "is_full_scan": scan.is_full,
        "previous_min": Missing(f"cache.previous_min {unknown}") if scan.previous_min is None else scan.previous_min,
        "previous_max": Missing(f"cache.previous_max {unknown}") if scan.previous_max is None else scan.previous_max,
    }
    names = {**_common(scene, relation=ref(RefUse(scene.name, all=True))), "ref": own, "cache": Names("cache", cache)}
    return _rendered(sql, names)


def _rendered(sql: str, names: Mapping[str, object]) -> str:
    from penstock.project.templates.templates import rendered  # noqa: PLC0415  # most commands render nothing and need no Jinja

    return rendered(sql, names)


MODEL_NAMES = frozenset(
    {"ref", "bounds", "range", "in_bounds", "task", "dep", "self", "env", "var", "external", "transformation"}
)
SCAN_NAMES = frozenset({"ref", "cache", "self", "env", "var", "external", "transformation"})


def moment(position: int) -> str:
    """A timestamp that means the same in every session time zone."""
    if not _FIRST_MOMENT <= position < _LAST_MOMENT:
        return f"timestamp_seconds({position})"
    return f"timestamp'{(_EPOCH + timedelta(seconds=position)).strftime('%Y-%m-%dT%H:%M:%SZ').rjust(20, '0')}'"


def _common(scene: TemplateContext, relation: str | None = None) -> dict[str, object]:
    def var(name: str, default: Plain = None) -> Plain:
        if name in scene.vars:
            return scene.vars[name]
        if default is None:
            raise Mistake(f"there is no var {name!r}; add it to vars: in penstock.yml or give a default")
        return default

    database, table = scene.name.split(".")
    own = {
        "name": scene.name,
        "database": database,
        "table": table,
        "position": scene.position or Missing(f"{scene.name} has no position"),
        "partition": scene.position or Missing(f"{scene.name} has no position"),
        "axis": scene.axis,
        "interval": scene.interval if scene.interval is not None else Missing(f"{scene.name} has no interval"),
        "relation": relation or Missing("self.relation is for bounds queries of sources"),
    }
    defaults: dict[str, object] = {str(kind): database for kind, database in scene.databases.items()}
    return {"self": Names("self", own), "env": Names("env", scene.env), "var": var, **defaults}


def _dep(scene: TemplateContext) -> Names:
    """Dependencies by database and table; the default databases by their placeholders too."""
    databases: dict[str, dict[str, object]] = {}
    for name in dict.fromkeys(member for group in scene.groups for member in group):
        database, table = name.split(".")
        position = scene.positions.get(name) or Missing(f"{name} has no position")
        facts = {"name": name, "database": database, "table": table, "position": position, "partition": position}
        databases.setdefault(database, {})[table] = Names(f"dep['{database}']['{table}']", facts)
    made: dict[str, object] = {name: Names(f"dep['{name}']", tables) for name, tables in databases.items()}
    for kind, database in scene.databases.items():
        if database in made:
            made[f"{{{{{kind}}}}}"] = made[database]
    return Names("dep", made)


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


def _in_bounds(column: str, type: str, bounds: Interval, axis: str) -> str:  # noqa: A002  # the users' word
    if not _COLUMN.fullmatch(column):
        raise Mistake(f"in_bounds({column!r}): give the name of a column")
    if type not in ("timestamp", "bigint"):
        raise Mistake(f"in_bounds(type={type!r}): it is 'timestamp' or 'bigint'")
    timed = axis == SECOND and type == "timestamp"
    start, end = (moment(p) if timed else str(p) for p in (bounds.start, bounds.end))
    return f"({column} >= {start} and {column} < {end})"


def _found(name: str, scene: TemplateContext) -> str:
    try:
        known = {*scene.positions, *scene.stand_ins} if scene.stand_ins else scene.positions
        model = resolve(name, known, scene.databases)
        return scene.stand_ins.get(model, model)
    except UnresolvedName as error:
        raise Mistake(f"ref({name!r}): {error}") from None
