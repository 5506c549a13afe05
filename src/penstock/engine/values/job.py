"""What is the engine asked to compute, and what did it stage?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
class Job:
    """Everything an attempt needs to compute its rows. Renderings are disjoint and together make up the chunks."""

    model: str
    location: str
    position: PositionColumn
    chunks: tuple[Interval, ...]
    renderings: tuple[Rendering, ...]
    cut: bool
    """The query looks beyond its interval: drop the rows outside. Else a row outside fails the attempt."""
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
    unique_key: tuple[str, ...] = ()
    """Only rows whose key is not stored anywhere are added. Empty: the rows of the chunks are replaced."""
    retract: bool = False
    """With a key: stored rows of the chunks that the query no longer gives are removed."""
    add_columns: bool = True
    """New columns of the query may be added to the table; else they fail the attempt."""
    timeout_seconds: int = 1800
    file: str | None = None
    """Where its author wrote the query."""

    @property
    def about(self) -> str:
        """Whose fault a mistake in the query or its rows is."""
        return self.model if self.file is None else f"{self.model} ({self.file})"

    @property
    def scope(self) -> IntervalSet:
        return IntervalSet.of(self.chunks)


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
