"""Which keys does Penstock know, where, and for what type of model?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.project.keys.shapes import (
    FLAG,
    IDENTIFIER,
    LENGTH,
    NAME,
    PLAIN,
    SHARE,
    TEXT,
    TIME,
    WHOLE,
    Choice,
    Either,
    Key,
    Later,
    ListOf,
    MapOf,
    Parsed,
    Shape,
    TableOf,
    integer,
    text,
)
from penstock.project.reading.limits import MAX_NAME, MAX_SCHEMA_NAME, MAX_SPAN
from penstock.values.models import ModelType

TYPES: tuple[ModelType, ...] = ("source", "interval", "dynamic", "full")
_SOURCE = frozenset({"source"})
_INTERVAL = frozenset({"interval"})
_DYNAMIC = frozenset({"dynamic"})
_FULL = frozenset({"full"})
_BUILT = _INTERVAL | _DYNAMIC | _FULL
_ALL = _SOURCE | _BUILT


def _schedule(also: str = "") -> Shape:
    from penstock.planner.policy import cadence  # noqa: PLC0415  # the planner comes with it, and few projects have schedules

    return Parsed(f"a schedule: {cadence.WRITTEN_AS}{also}", cadence.PATTERN, cadence.parse)


def _schedule_or_off() -> Shape:
    schedule = _schedule(", or off")
    return Either((Choice(("off",)), schedule), schedule.expected)


SCHEDULE = Later(_schedule)
SCHEDULE_OR_OFF = Later(_schedule_or_off)

_DEPENDENCY_NAME = text(
    'a model\'s name such as raw.orders, orders or "{{external}}.orders"',
    rf"(\{{\{{ *(external|transformation) *\}}\}}\.{IDENTIFIER}|{IDENTIFIER}(\.{IDENTIFIER})?)",
)
_DEPENDENCY = TableOf(
    (
        Key("model", _DEPENDENCY_NAME, "the model that is read"),
        Key("before", LENGTH, "how far before its own interval the query looks"),
        Key("after", LENGTH, "how far after its own interval the query looks"),
        Key("optional", FLAG, "does not limit what is ready"),
        Key("finality", LENGTH, "how old a position must be before it counts as final"),
        Key("on_change", Choice(("ignore", "rerun")), "whether a changed lookup reopens what was built with it"),
    ),
    required=("model",),
)
_MEMBER = Either((_DEPENDENCY_NAME, _DEPENDENCY), "a model's name or a mapping with model, before, after, …")
DEPENDENCIES = ListOf(Either((_MEMBER, ListOf(_MEMBER)), "a model's name, a mapping, or a list of them (an OR group)"))

COLUMNS = Either((NAME, ListOf(NAME)), "a column's name or a list of them")
_COMMAND = Either((TEXT, ListOf(TEXT)), "a command, as text or as a list of words")
_SEVERITY = Key("severity", Choice(("error", "warn")), "error stops the rows from being published")
CHECK_SHAPES: Mapping[str, Shape] = {
    "not_null": COLUMNS,
    "unique": COLUMNS,
    "accepted_values": TableOf((Key("column", NAME), Key("values", ListOf(PLAIN))), required=("column", "values")),
    "relationships": TableOf(
        (Key("column", NAME), Key("to", _DEPENDENCY_NAME), Key("field", NAME)), ("column", "to", "field")
    ),
    "row_count": TableOf((Key("min", integer(0, MAX_SPAN)), Key("max", integer(0, MAX_SPAN)))),
    "expression": TEXT,
}
"""What each check is given; `engine/stage/checks.py` says which rows break it."""
_CHECK = TableOf((*(Key(*kind) for kind in CHECK_SHAPES.items()), _SEVERITY), one_of=tuple(CHECK_SHAPES))

POSITION = Either(
    (WHOLE, text("a time", r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.]+)?(Z|[+-][0-9]{2}:?[0-9]{2})?")),
    "a position: a whole number, or on the axis second a time such as 2026-01-01 10:00",
)
_SCAN = TableOf(
    (
        Key("incremental", TIME, "how often to look beyond the known bounds"),
        Key("full", TIME, "how often to look at all of it"),
    )
)
_CACHE = TableOf((Key("incremental_scan_interval", TIME), Key("full_scan_interval", TIME)))
_INTERVAL_TABLE = TableOf(
    (
        Key("max", LENGTH, "the longest chunk"),
        Key("min", LENGTH, "the shortest chunk; 0 allows any"),
        Key("align", LENGTH, "chunk edges snap to multiples of this"),
        Key("type", NAME, "another spelling of axis"),
    ),
    required=("max",),
)
_INTERVAL_SHAPE = Either(
    (*LENGTH.shapes, _INTERVAL_TABLE), "a length such as 1 hour or 3600, or a mapping with max, min and align"
)
_FILL = TableOf(
    (
        Key("direction", Choice(("head", "tail")), "start at the newest or at the oldest data"),
        Key("allow_gap_skipping", FLAG),
        Key("buffer", LENGTH, "how far to stay behind what is ready"),
        Key("backfill", Choice(("newest", "oldest")), "which gap first"),
    )
)
_SCHEDULES = TableOf((Key("forwardfill", SCHEDULE_OR_OFF), Key("backfill", SCHEDULE_OR_OFF)))
_LAG_WORDS = Choice(("downstream", "on_upstream", "manual"))

MODEL_KEYS: tuple[Key, ...] = (
    Key("type", Choice(TYPES), "checked against what follows from the other keys", _ALL),
    Key("external", FLAG, "must agree with the folder", _ALL),
    Key("database", NAME, "default: the project's database of that kind", _ALL),
    Key("table", NAME, "default: the file's stem", _ALL),
    Key("description", TEXT, "what the table holds", _ALL),
    Key("tags", ListOf(PLAIN), "for choosing models", _ALL),
    Key("env", MapOf(PLAIN, IDENTIFIER), "for templates and scripts", _ALL),
    Key("enabled", FLAG, "false leaves the model out", _ALL),
    Key("position", NAME, "the column that carries the position", _SOURCE | _INTERVAL),
    Key("partition", NAME, "another spelling of position", _SOURCE | _INTERVAL),
    Key("axis", NAME, "what positions count: second, block, …", _SOURCE | _INTERVAL),
    Key("location", TEXT, "where the table is", _SOURCE),
    Key("format", NAME, "delta, or any format Spark reads", _SOURCE),
    Key("lag", LENGTH, "newest positions to ignore", _SOURCE),
    Key("recheck", LENGTH, "how much of the newest covered range to recompute at each full scan", _SOURCE),
    Key("completeness", Choice(("watermark", "inclusive")), "is the largest position already complete?", _SOURCE),
    Key("scan", _SCAN, "how often to look", _SOURCE),
    Key("cache", _CACHE, "another spelling of scan", _SOURCE),
    Key("ttl", TIME, "another spelling of scan: both intervals at once", _SOURCE),
    Key("exec", _COMMAND, "a program instead of a query", _SOURCE | _INTERVAL | _FULL),
    Key("interval", _INTERVAL_SHAPE, "how long one chunk is", _INTERVAL),
    Key("schedules", _SCHEDULES, "default: on every change upstream", _INTERVAL),
    Key("dependencies", DEPENDENCIES, "default: read from ref()", _BUILT),
    Key(
        "limits",
        TableOf((Key("min", POSITION), Key("max", POSITION))),
        "the first and last position to build",
        _INTERVAL,
    ),
    Key("fill", _FILL, "where to start and which gap first", _INTERVAL),
    Key("update_strategy", Choice(("replace", "append")), "default: replace", _INTERVAL | _FULL),
    Key("unique_key", COLUMNS, "what makes a row the same row", _INTERVAL | _FULL),
    Key("on_retract", Choice(("keep", "retract")), "for append", _INTERVAL | _FULL),
    Key("max_inflight", integer(1), "attempts at a time", _BUILT),
    Key("cluster_by", COLUMNS, "how rows are laid out in files", _BUILT),
    Key(
        "target_lag",
        Either((_LAG_WORDS, *TIME.shapes), f"a duration, {_LAG_WORDS.expected}"),
        "how old it may get",
        _DYNAMIC,
    ),
    Key("refresh_strategy", Choice(("auto", "affected_keys", "full", "incremental")), "default: auto", _DYNAMIC),
    Key("cardinality_threshold", SHARE, "share of keys above which a refresh is full", _DYNAMIC),
    Key("deduplicate", FLAG, "skip writes that would change nothing", _BUILT),
    Key("key", COLUMNS, "the row key where none can be derived", _DYNAMIC),
    Key("allow_parallel_refresh", FLAG, "cut one large refresh into slices", _DYNAMIC | _FULL),
    Key("parallel_threshold", integer(1), "rows above which it is cut", _DYNAMIC | _FULL),
    Key("max_parallelism", integer(1), "slices at most", _DYNAMIC | _FULL),
    Key("schedule", SCHEDULE, "when to build it", _FULL),
    Key("columns", MapOf(TEXT, IDENTIFIER), "the schema of what a program prints", _INTERVAL | _FULL),
    Key("checks", ListOf(_CHECK), "rules the new rows must keep", _BUILT),
    Key("manage", Choice(("engine", "user")), "who creates the table", _BUILT),
    Key("on_schema_change", Choice(("add_columns", "fail", "rebuild")), "default: add_columns", _BUILT),
    Key("live", FLAG, "one stable table, no generations", _BUILT),
    Key("timeout", TIME, "for one attempt", _ALL),
    Key("retries", integer(0), "after a failure that may pass", _ALL),
)
BY_NAME = {key.name: key for key in MODEL_KEYS}
REQUIRED: dict[str, tuple[str, ...]] = {
    "source": (),
    "interval": ("interval", "position"),
    "dynamic": (),
    "full": ("schedule",),
}
SPELLINGS = (("position", ("partition",)), ("scan", ("cache", "ttl")))
"""Keys that say the same: at most one of each may be written."""


def keys_of(kind: str) -> tuple[Key, ...]:
    return tuple(key for key in MODEL_KEYS if kind in key.types)


_DEFAULTS = (
    "target_lag",
    "timeout",
    "retries",
    "max_inflight",
    "deduplicate",
    "on_schema_change",
    "schedules",
    "fill",
    "scan",
)
_SCHEMA_NAME = text(
    f"a name of letters, digits and _, {MAX_SCHEMA_NAME} at most", rf"[A-Za-z_][A-Za-z0-9_]{{0,{MAX_SCHEMA_NAME - 1}}}"
)
_PROJECT_NAME = text(
    f"a name of letters, digits, _ and -, {MAX_NAME} at most", rf"[A-Za-z][A-Za-z0-9_-]{{0,{MAX_NAME - 1}}}"
)
_PATHS = Either((TEXT, ListOf(TEXT)), "a path or a list of them")
_GLOB = TableOf((Key("pattern", TEXT), Key("concurrency", integer(1))), required=("pattern",))
TARGET = TableOf(
    (
        Key("state", TEXT, "postgresql://…; without it an embedded PostgreSQL is used"),
        Key("schema", _SCHEMA_NAME, "the PostgreSQL schema of this deployment"),
        Key("spark", TableOf((Key("master", TEXT), Key("conf", MapOf(PLAIN)))), "how Spark is started"),
        Key("storage", MapOf(PLAIN), "credentials and endpoint of the object store"),
        Key("warehouse", TEXT, "where the tables that Penstock builds are stored"),
    ),
    nullable=True,
)
# An override may name a part of the interval only: the rest stays as the model's file says.
_OVERRIDE_INTERVAL = Either((*LENGTH.shapes, TableOf(_INTERVAL_TABLE.keys)), _INTERVAL_SHAPE.expected)
OVERRIDE = TableOf(
    tuple(replace(key, shape=_OVERRIDE_INTERVAL) if key.name == "interval" else key for key in MODEL_KEYS)
)
PROJECT = TableOf(
    (
        Key("name", _PROJECT_NAME, "the project's name"),
        Key("warehouse", TEXT, "where the tables that Penstock builds are stored"),
        Key("databases", TableOf((Key("external", NAME), Key("transformation", NAME))), "default databases"),
        Key("paths", TableOf((Key("external", _PATHS), Key("transformation", _PATHS))), "where model files are"),
        Key("defaults", TableOf(tuple(BY_NAME[name] for name in _DEFAULTS)), "for every model that does not say"),
        Key("env", MapOf(PLAIN, IDENTIFIER), "for templates and scripts"),
        Key("vars", MapOf(PLAIN, IDENTIFIER), "for var() in templates"),
        Key("overrides", MapOf(OVERRIDE), "front-matter keys by model name"),
        Key(
            "worker",
            TableOf(
                (
                    Key("concurrency", integer(1)),
                    Key("models", ListOf(Either((TEXT, _GLOB), "a glob or a mapping with pattern and concurrency"))),
                    Key("tags", ListOf(PLAIN)),
                    Key("shutdown_timeout", TIME),
                )
            ),
            "what one worker does",
        ),
        Key(
            "scheduler",
            TableOf(
                (
                    Key("sweep", TIME, "how often all models are planned, in case a notification was lost"),
                    Key(
                        "repair_delay",
                        TIME,
                        "the longest time that changes are collected before they are repaired",
                    ),
                    Key("retention", TIME, "how long finished tasks are kept; at least 1 hour"),
                )
            ),
            "how often to look",
        ),
        Key("web", TableOf((Key("address", TEXT),)), "where the web page is served"),
        Key("logging", Choice(("debug", "info", "warning", "error")), "default: info"),
        Key("targets", MapOf(TARGET, "[A-Za-z][A-Za-z0-9_-]*"), "deployments; the first is the default"),
    ),
    required=("name",),
)
