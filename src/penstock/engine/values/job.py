"""What is the engine asked to compute, and what did it stage?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from penstock.engine.values.files import PositionColumn
from penstock.values.intervals import Interval, IntervalSet
from penstock.values.models import Check
from penstock.values.models.source_format import DELTA, SourceFormat
from penstock.values.tasks import Frontier, Pin

Step = Callable[[str], None]
"""Called with the label of every step of an attempt, right after it was done; tests crash there."""


@dataclass(frozen=True, slots=True)
class Digest:
    """What the rows of one chunk add up to; equal multisets have equal digests."""

    rows: int
    sum_a: int
    sum_b: int


@dataclass(frozen=True, slots=True)
class Tags:
    """The chunks that share a query, and how far beyond its chunk each of them looks into an input."""

    chunks: tuple[Interval, ...]
    """Sorted and disjoint."""
    before: int = 0
    after: int = 0


@dataclass(frozen=True, slots=True)
class InputRead:
    """One relation that a query reads: a table at a snapshot, cut to a window."""

    view: str
    name: str
    pin: Pin
    format: SourceFormat = DELTA
    position: PositionColumn | None = None
    window: IntervalSet | None = None
    """None: the whole table."""
    tags: Tags | None = None
    """Each row once for every chunk that reads it, with that chunk's start in the column `TAG`."""


@dataclass(frozen=True, slots=True)
class Rendering:
    """One SELECT and the intervals that its rows belong to."""

    intervals: tuple[Interval, ...]
    """Sorted and disjoint; the chunks themselves when they are told apart by tags."""
    sql: str
    inputs: tuple[InputRead, ...]
    tagged: bool = False
    """Each row says by the column `TAG` which chunk it was made for."""

    @property
    def scope(self) -> IntervalSet:
        return IntervalSet.of(self.intervals)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableJob:
    """What every attempt says of the table that it writes."""

    model: str
    location: str
    position: PositionColumn | None
    chunks: tuple[Interval, ...]
    frontier: Frontier
    task: UUID
    attempt: int
    generation: str
    epoch: int
    cluster_by: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    deduplicate: bool = True
    digests: Mapping[Interval, Digest]
    """What the chunks held when they were last published, where that is known."""
    add_columns: bool = True
    """New columns of the query may be added to the table; else they fail the attempt."""
    timeout_seconds: int = 1800
    file: str | None = None
    """Where its author wrote the query."""

    @property
    def moment(self) -> datetime | None:
        """The moment that its rows will be of; None: when it fixed its inputs."""
        return None

    @property
    def about(self) -> str:
        """Whose fault a mistake in the query or its rows is."""
        return self.model if self.file is None else f"{self.model} ({self.file})"

    @property
    def scope(self) -> IntervalSet:
        return IntervalSet.of(self.chunks)

    @property
    def inputs(self) -> tuple[InputRead, ...]:
        """Every relation that its queries read."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(TableJob):
    """Everything an attempt needs to compute its rows. Renderings are disjoint and together make up the chunks."""

    position: PositionColumn
    renderings: tuple[Rendering, ...]
    cut: bool
    """The query looks beyond its interval: drop the rows outside. Else a row outside fails the attempt."""
    unique_key: tuple[str, ...] = ()
    """Only rows whose key is not stored anywhere are added. Empty: the rows of the chunks are replaced."""
    retract: bool = False
    """With a key: stored rows of the chunks that the query no longer gives are removed."""

    @property
    def inputs(self) -> tuple[InputRead, ...]:
        return tuple(read for rendering in self.renderings for read in rendering.inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshJob(TableJob):
    """Everything that the refresh of a table without positions needs."""

    position: None = None
    sql: str
    """The query; it reads the views of `reads`."""
    reads: tuple[InputRead, ...]
    now: datetime
    """What the query takes for the present."""
    before: RefreshedFrom | None
    """None: nothing is stored yet."""
    strategy: Literal["auto", "affected_keys", "full", "incremental"] = "auto"
    threshold: float = 0.3
    """The share of the keys above which all of them are computed."""
    key: tuple[str, ...] = ()
    """What its author says tells the rows apart."""
    asked: bool = False
    """Somebody asks for all rows: what is stored may be wrong."""
    timed: bool = False
    """The query reads the clock."""

    @property
    def moment(self) -> datetime:
        return self.now

    @property
    def inputs(self) -> tuple[InputRead, ...]:
        return self.reads


AnyJob = Job | RefreshJob


@dataclass(frozen=True, slots=True)
class RefreshedFrom:
    """What is stored: the rows of one snapshot, made from others."""

    snapshot: int
    frontier: Frontier
    """With the places where the tables lie now."""
    now: datetime
    """What the query took for the present then."""


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A Parquet file written under the table's root that no snapshot shows yet."""

    path: str
    size: int
    rows: int
    stats_json: str
    """Delta statistics, rounded outwards."""
    low: int | None = None
    high: int | None = None
    """The positions of its rows, both inclusive and exact; None when it has no row with a position."""
    nulls: int | None = None


@dataclass(frozen=True, slots=True)
class StagedChunk:
    interval: Interval
    rows: int
    digest: Digest | None
    changed: bool
    differs: IntervalSet | None = None
    """The positions whose rows are others than before; None: that is known of the whole chunk only."""


@dataclass(frozen=True, slots=True)
class HeadMoved:
    """Another commit is the newest one than when the head was loaded: load it again, without the lock."""
