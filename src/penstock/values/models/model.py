"""What does a project declare?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from penstock.values.models.source_format import DELTA, SourceFormat

ModelType = Literal["source", "interval", "dynamic", "full"]
LagWord = Literal["downstream", "on_upstream", "manual"]
OnSchemaChange = Literal["add_columns", "fail", "rebuild"]
DEFAULT_TARGET_LAG = 300
"""Seconds; for a dynamic table of a project that says nothing about it."""
_EMPTY: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Chunking:
    """How long one chunk may be, and where its edges may stand."""

    max: int
    min: int
    align: int

    @property
    def strict(self) -> bool:
        return self.min == self.max


@dataclass(frozen=True, slots=True)
class Limits:
    min: int | None = None
    max: int | None = None


@dataclass(frozen=True, slots=True)
class Fill:
    direction: Literal["head", "tail"] = "head"
    allow_gap_skipping: bool = True
    buffer: int = 0
    backfill: Literal["newest", "oldest"] = "newest"


@dataclass(frozen=True, slots=True)
class Schedules:
    """None: on every change upstream; `off`: never."""

    forwardfill: str | None = None
    backfill: str | None = None

    def of(self, lane: str) -> str | None:
        return {"forward": self.forwardfill, "backfill": self.backfill}.get(lane)


@dataclass(frozen=True, slots=True)
class Dependency:
    """One input, and how far beyond its own interval a model looks into it."""

    model: str
    before: int = 0
    after: int = 0
    optional: bool = False
    finality: int | None = None
    on_change: Literal["ignore", "rerun"] = "ignore"


Group = tuple[Dependency, ...]
"""One member: it is needed. Several: the first that covers the whole chunk is used."""


@dataclass(frozen=True, slots=True)
class Slices:
    """How one large refresh is cut."""

    allowed: bool = True
    threshold: int = 10_000_000
    """Rows above which it is cut."""
    most: int = 16


@dataclass(frozen=True, slots=True)
class Check:
    """A rule the new rows must keep before they are published."""

    kind: str
    argument: Mapping[str, object]
    severity: Literal["error", "warn"] = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseTable:
    """What is said of every table."""

    name: str
    file: str
    description: str = ""
    tags: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    timeout_seconds: int = 1800
    retries: int = 3

    @property
    def database(self) -> str:
        return self.name.split(".")[0]

    @property
    def table(self) -> str:
        return self.name.split(".")[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(BaseTable):
    """A table that others write."""

    position: str | None = None
    axis: str | None = None
    axis_declared: bool = False
    """False: `second` is assumed, and holds only when the position is a date or a timestamp."""
    location: str | None = None
    format: SourceFormat = DELTA
    lag: int = 0
    recheck: int | None = None
    completeness: Literal["watermark", "inclusive"] | None = None
    incremental_scan_seconds: int = 10
    full_scan_seconds: int = 300
    bounds_sql: str | None = None
    exec: tuple[str, ...] | None = None

    type: Literal["source"] = "source"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformation(BaseTable):
    """What is said of every table that a query makes."""

    sql: str
    dependencies: tuple[Group, ...]
    stand_ins: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    """A disabled member of a group, and a member of that group which is left: `ref()` of the first reads the second."""
    max_inflight: int = 4
    cluster_by: tuple[str, ...] = ()
    deduplicate: bool = True
    checks: tuple[Check, ...] = ()
    on_schema_change: OnSchemaChange = "add_columns"

    @property
    def inputs(self) -> tuple[Dependency, ...]:
        """Every member of every group."""
        return tuple(dependency for group in self.dependencies for dependency in group)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalModel(Transformation):
    """A table built range by range."""

    position: str
    axis: str
    interval: Chunking
    widens: bool = False
    """One query over many chunks gives the same rows as one query per chunk."""
    widens_reason: str = ""
    tagged: bool = False
    """For that the query gets the chunk as a column of each row."""
    schedules: Schedules = Schedules()
    limits: Limits = Limits()
    fill: Fill = Fill()
    update_strategy: Literal["replace", "append"] = "replace"
    unique_key: tuple[str, ...] = ()
    """Columns that tell appended rows apart; only `append` has them."""
    on_retract: Literal["keep", "retract"] = "keep"
    """What becomes of a stored row with a key that the query no longer gives."""
    manage: Literal["engine", "user"] = "engine"

    type: Literal["interval"] = "interval"


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicModel(Transformation):
    """A table kept fresh from the keys that changed."""

    target_lag: int | LagWord = DEFAULT_TARGET_LAG
    """In seconds."""
    refresh_strategy: Literal["auto", "affected_keys", "full", "incremental"] = "auto"
    cardinality_threshold: float = 0.3
    """The share of its keys above which a refresh computes all of them."""
    key: tuple[str, ...] = ()
    """Empty: it follows from the query."""
    slices: Slices = Slices()
    timed: bool = False
    """The query reads the clock: its rows may change although no input does."""

    type: Literal["dynamic"] = "dynamic"

    @property
    def by_hand(self) -> bool:
        """It is refreshed when somebody asks for it, and only then."""
        return self.target_lag == "manual"

    @property
    def position(self) -> None:
        """It has none: its rows are told apart by their keys."""

    @property
    def axis(self) -> None:
        """None either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FullModel(Transformation):
    """A table that is replaced whole, by a schedule. It is declared and checked; building it comes later."""

    schedule: str
    update_strategy: Literal["replace", "append"] = "replace"
    unique_key: tuple[str, ...] = ()
    on_retract: Literal["keep", "retract"] = "keep"
    slices: Slices = Slices()

    type: Literal["full"] = "full"


Model = Source | IntervalModel | DynamicModel
"""What this release builds. It is closed: what differs by type is a `match`, and mypy names each that lacks a case."""
Declared = Model | FullModel
"""What a project may declare."""
