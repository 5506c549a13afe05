"""What is one piece of work, and what did it read and write?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypedDict, get_args
from uuid import UUID

from penstock.values.intervals import MAX_POSITION, MIN_POSITION, Interval, IntervalSet

IntervalLane = Literal["forward", "repair", "backfill"]
LANES: tuple[IntervalLane, ...] = get_args(IntervalLane)
"""Those of interval models, in the order in which they are planned."""
Lane = Literal[IntervalLane, "refresh"]
WHOLE = Interval(MIN_POSITION, MAX_POSITION)
"""The one chunk of a table that has no positions."""
TaskState = Literal["queued", "running", "retrying", "succeeded", "dead", "cancelled", "superseded"]


TAG = "__penstock_tag"
"""In a query that many chunks share, the column with the start of the chunk that a row belongs to."""


@dataclass(frozen=True, slots=True)
class Pin:
    """One input at one snapshot. `table_id` tells a replaced table from a changed one."""

    location: str
    snapshot: int | None
    """None: the input is not a Delta table and is read as it is."""
    table_id: str | None = None
    generation: str | None = None


Frontier = Mapping[str, Pin]
"""The pinned inputs of one attempt, by model name."""


class PinRecord(TypedDict):
    """A pin as JSON has it, in the state database and in the notes of commits."""

    location: str
    snapshot: int | None
    table_id: str | None
    generation: str | None


def frontier_record(frontier: Frontier) -> dict[str, PinRecord]:
    return {
        name: PinRecord(location=pin.location, snapshot=pin.snapshot, table_id=pin.table_id, generation=pin.generation)
        for name, pin in frontier.items()
    }


def frontier_of(record: Mapping[str, PinRecord]) -> Frontier:
    return {name: Pin(**pin) for name, pin in record.items()}


@dataclass(frozen=True, slots=True)
class Order:
    """Work the planner asks for: chunks of one model that one attempt does together."""

    model: str
    lane: Lane
    chunks: tuple[Interval, ...]
    choices: tuple[str, ...]
    """The member used of each dependency group, in the model's order; '' for an optional group without data."""
    reason: str

    @property
    def scope(self) -> IntervalSet:
        return IntervalSet.of(self.chunks)


@dataclass(frozen=True, slots=True)
class Lease:
    """A claimed task: the holder of (task, attempt, token) may complete it."""

    task: int
    uuid: UUID
    attempt: int
    token: UUID
    worker: str
    generation: int
    order: Order
    max_attempts: int
    epoch: int
    """The generation's epoch when the task was claimed."""


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """What one chunk of an accepted attempt holds now."""

    interval: Interval
    rows: int
    changed: bool
    digest: tuple[int, int, int] | None = None
    """Row count and hash sums of the rows that were committed; an adopted commit brings its own."""
    differs: IntervalSet | None = None
    """The positions whose rows are others than before; None: that is known of the whole chunk only."""

    @property
    def parts(self) -> tuple[Interval, ...]:
        return (self.interval,) if self.differs is None else self.differs.parts


@dataclass(frozen=True, slots=True)
class Commit:
    """What an attempt brought about, as the Delta log says."""

    snapshot: int
    chunks: tuple[ChunkResult, ...]
    frontier: Frontier
    epoch: int
    written: bool
    """False: the new rows equal the stored ones and no Delta commit was needed."""
    adopted: bool = False
    """True: an earlier attempt of the same task had already committed it."""
    moment: datetime | None = None
    """The moment that the rows are of; None: when the attempt fixed its inputs."""

    @property
    def changed(self) -> IntervalSet:
        """Where rows are others than before."""
        return IntervalSet.of(part for chunk in self.chunks if chunk.changed for part in chunk.parts)


@dataclass(frozen=True, slots=True)
class Cost:
    """What an attempt took."""

    spark_jobs: int = 0
    rows_read: int = 0
    rows_written: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
    keys: int | None = None
    """How many keys a refresh computed; None: all, or it does not go by keys."""
