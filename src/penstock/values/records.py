"""What does the control plane remember?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal
from uuid import UUID

from penstock.errors import ErrorClass
from penstock.values.intervals import NOTHING, Interval, IntervalSet
from penstock.values.tasks import Cost, Frontier, Lane, Order, TaskState

GenerationState = Literal["building", "current", "retired", "purged"]
Cause = Literal["source", "parent", "rerun", "manual", "audit"]
"""Why something is recomputed: rows of a source or of a model (`parent`) changed, or a person or the audit said so."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A model as a revision declares it, in the words the database stores."""

    name: str
    type: str
    fingerprint: str
    axis: str | None
    position: str | None
    config: Mapping[str, object]
    """What people may want to see; JSON."""
    edges: tuple[tuple[str, int, int, int, int, bool], ...] = ()
    """(parent, group number, ordinal in it, before, after, optional)"""
    max_inflight: int = 4
    retries: int = 3
    schedules: tuple[tuple[Lane, str], ...] = ()
    """Lanes with a cadence of their own."""


@dataclass(frozen=True, slots=True)
class Change:
    """What applying a revision does to one model."""

    model: str
    change: Literal["new", "rebuild", "forward_only", "unchanged", "removed"]
    type: str
    reason: str


@dataclass(frozen=True, slots=True)
class GenerationHead:
    """One physical build of a model's table, without what it holds: cheap to read at any size."""

    no: int
    id: UUID
    model: str
    fingerprint: str
    state: GenerationState
    location: str
    """As stored: relative to the warehouse when it lies inside."""
    epoch: int
    accepted_snapshot: int | None
    audited_snapshot: int | None
    """Every commit up to this one is ours, or was audited."""
    data_timestamp: datetime | None


@dataclass(frozen=True, slots=True)
class Generation(GenerationHead):
    """One physical build of a model's table, with what it holds."""

    covered: IntervalSet
    stale: IntervalSet


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """The last good observation of a source, and the last error after it."""

    model: str
    table_id: str | None
    snapshot: int | None
    schema_hash: str | None
    columns: Mapping[str, str]
    min_pos: int | None
    end_pos: int | None
    bytes: int | None
    rows: int | None
    full_scan_at: datetime | None
    incremental_scan_at: datetime | None
    observed_at: datetime | None
    error: str | None
    expired_pos: int | None = None
    """Rows below have left at the old end, as retention takes them: what was made of them stays as it is."""
    only_spark: str | None = None
    """Why its log can only be read by Spark; None: it tells by itself, or there is none."""
    change_feed: bool | None = None
    """Whether the change feed of such a table is on."""
    ignored_rows: int | None = None
    """How many rows came or changed below what has expired, if that is known."""
    ignored_since: datetime | None = None
    """When that was first seen; None: never."""
    looked_at: datetime | None = None
    """When somebody last began to look at it."""


@dataclass(frozen=True, slots=True)
class ScheduleRecord:
    """One lane with a cadence of its own."""

    model: str
    lane: Lane
    spec: str
    next_at: datetime
    last_slot: datetime | None


@dataclass(frozen=True, slots=True)
class Slot:
    """One time at which a lane comes up, and the next one."""

    model: str
    lane: Lane
    at: datetime
    next_at: datetime


@dataclass(frozen=True, slots=True)
class Work:
    """What is going on for one model."""

    in_flight: IntervalSet = NOTHING
    dead: IntervalSet = NOTHING
    """Scopes of dead and cancelled tasks that are held: not to be planned yet."""
    cancelled: IntervalSet = NOTHING
    """Of these, what was cancelled."""
    waiting: frozenset[Lane] = frozenset()
    """Lanes with tasks that are unclaimed."""
    queued: int = 0
    running: int = 0
    retrying: int = 0
    dead_tasks: int = 0
    """Held or not: those whose scope nothing has covered since."""
    last_error: str | None = None


@dataclass(frozen=True, slots=True)
class Reopened:
    """That some of a generation is to be computed again."""

    since: datetime
    """The oldest invalidation that is still open."""
    gathers: bool
    """Only rows of sources changed, and more may follow: a resident scheduler lets it wait a little."""
    latest: datetime
    """The newest invalidation that is still open."""


@dataclass(frozen=True, slots=True)
class SuspensionRecord:
    """Every interval of a model failed alike."""

    model: str
    generation: int
    error: str
    since: datetime
    times: int
    """In a row, without a success between."""
    moved: bool
    """An input has changed since."""
    passing: bool = False
    """Storage or Spark failed, which may pass by itself."""


@dataclass(frozen=True, slots=True)
class RefreshRecord:
    """What the rows of a dynamic table were made from."""

    model: str
    inputs: Frontier
    data_timestamp: datetime | None
    """The moment that they are of."""
    seconds: float
    """How long nine of ten of its last refreshes took at most."""


@dataclass(frozen=True, slots=True)
class StateView:
    """Everything a round of planning looks at, read in one transaction."""

    at: datetime
    """The database's clock."""
    revision: str | None
    paused: frozenset[str]
    working: Mapping[str, Generation]
    """By model: the generation that is being built, else the current one."""
    current: Mapping[str, Generation]
    sources: Mapping[str, SourceRecord]
    work: Mapping[str, Work]
    """By model, for its working generation."""
    events: int
    """Completion events not handled yet."""
    schedules: tuple[ScheduleRecord, ...] = ()
    reopened: Mapping[str, Reopened] = field(default_factory=dict)
    """By model: since when something of its working generation is to be computed again; only those that have some."""
    suspended: Mapping[str, SuspensionRecord] = field(default_factory=dict)
    """By model, for its working generation; only those that are."""
    refreshed: Mapping[str, RefreshRecord] = field(default_factory=dict)
    """By dynamic table, for its working generation: its last accepted refresh."""


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """One task for people: what it is, how it went."""

    id: int
    uuid: UUID
    model: str
    lane: Lane
    order: Order
    state: TaskState
    attempt: int
    reason: str
    worker: str | None
    strategy: str | None
    cost: Cost
    snapshot: int | None
    error: str | None
    created_at: datetime
    finished_at: datetime | None
    strategy_reason: str | None = None
    """Why in that way, where there was a choice."""


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    task: int
    n: int
    worker: str
    outcome: str | None
    error_class: ErrorClass | None
    error: str | None
    snapshot: int | None
    inputs: Frontier
    cost: Cost
    started_at: datetime
    ended_at: datetime | None
    strategy: str | None = None
    followed_by: str | None = None
    """What became of the task after a failure."""
    log_tail: str | None = None


@dataclass(frozen=True, slots=True)
class CoverRecord:
    """One accepted chunk: by what, from which inputs, and what of it no later one has replaced."""

    interval: Interval
    left: IntervalSet
    task: int
    attempt: int
    snapshot: int
    rows: int
    digest: tuple[int, int, int] | None
    frontier: Frontier


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A worker whose connection is up."""

    id: str
    host: str | None
    pid: int | None
    since: datetime
    heartbeat: datetime
    role: str | None = None
    slots: int | None = None
    """How many tasks it does at a time."""
    stopping: bool = False
    tasks: int = 0
    """Running now."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a key was recorded for."""

    id: int
    ranges: IntervalSet
    row_filter: str | None


@dataclass(frozen=True, slots=True)
class ConsumerImpact:
    """What the consumers of a table were asked to compute again."""

    number: int | None
    """Of the invalidation; None while it was only asked what would be."""
    asked: Mapping[str, IntervalSet]
    """By consumer: what it holds from older rows, and what of it is being worked on right now."""
    recorded: Recorded | None = None
    """What was asked before by the same key: nothing was done."""


@dataclass(frozen=True, slots=True)
class ReopeningRecord:
    """Why some positions of one generation had to be computed again."""

    id: int
    model: str
    """What changed: an input, or the model itself."""
    cause: Cause
    reason: str
    actor: str
    snapshot: int | None
    """Of the input, with the change."""
    rows: int | None
    """How many rows changed in what the positions asked about are made of; None when the exact number is unknown."""
    ranges: IntervalSet
    """What was to be computed again of the positions asked about."""
    open: IntervalSet
    """What of it still is."""
    created_at: datetime
    closed_at: datetime | None
    row_filter: str | None
