"""What does a table consist of that lives in memory and nowhere else?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from penstock.values.intervals import EVERYTHING, MIN_POSITION, NOTHING, IntervalSet
from penstock.values.tasks import Commit

Row = tuple[object, ...]
Multiset = Counter[Row]
"""Rows as (name, value) pairs in the order of the names; a NULL is left out, so that a column more makes no row new."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows and the names of their columns."""

    columns: tuple[str, ...]
    rows: Sequence[Row]

    def canonical(self) -> Iterator[Row]:
        order = sorted((name, place) for place, name in enumerate(self.columns))
        for row in self.rows:
            yield tuple([(name, row[place]) for name, place in order if row[place] is not None])

    def multiset(self) -> Multiset:
        return Counter(self.canonical())

    def arranged(self, columns: tuple[str, ...]) -> Sequence[Row]:
        """The same rows with other columns; those they lack are NULL."""
        if columns == self.columns:
            return self.rows
        places = [self.columns.index(name) if name in self.columns else None for name in columns]
        return [tuple([None if place is None else row[place] for place in places]) for row in self.rows]


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """Some rows that never change. `low` and `high` are positions, both inclusive; None: no row has a position."""

    path: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    at: int | None
    """Which of the columns carries the position."""
    low: int | None
    high: int | None
    nulls: int

    @classmethod
    def of(cls, path: str, content: Rows, position: str | None) -> MemoryFile:
        at = None if position is None else content.columns.index(position)
        positions = positions_of(content.rows, at)
        low, high = (min(positions), max(positions)) if positions else (None, None)
        return cls(path, content.columns, tuple(content.rows), at, low, high, len(content.rows) - len(positions))

    def meets(self, window: IntervalSet) -> bool:
        """Whether the file may hold a row inside `window`."""
        if self.low is None or self.high is None:
            return bool(self.rows)
        return bool(window.within(self.low, self.high + 1))

    def inside(self, window: IntervalSet) -> bool:
        """Whether every row of the file lies inside one part of `window`."""
        if self.low is None or self.high is None or self.nulls:
            return False
        part = window.part_at(self.low)
        return part is not None and self.high < part.end

    def cut(self, window: IntervalSet | None) -> Rows:
        """The rows inside `window`; None is everywhere, and even there rows are that have no position."""
        if window is None or self.inside(window):
            return Rows(self.columns, self.rows)
        at = self.at
        assert at is not None, "a table without positions cannot be cut"
        if len(window) == 1:
            start, end = window.edges
            return Rows(self.columns, [r for r in self.rows if isinstance(p := r[at], int) and start <= p < end])
        return Rows(self.columns, [r for r in self.rows if isinstance(p := r[at], int) and p in window])

    def split(self, window: IntervalSet) -> tuple[list[Row], list[Row]]:
        """The rows inside `window`, and all others; rows without a position are everywhere and nowhere else."""
        if window == EVERYTHING:
            return list(self.rows), []
        if self.at is None:
            return [], list(self.rows)
        inside: list[Row] = []
        outside: list[Row] = []
        for row in self.rows:
            position = row[self.at]
            (inside if isinstance(position, int) and position in window else outside).append(row)
        return inside, outside

    def unplaced(self) -> list[Row]:
        """The rows without a position."""
        return list(self.rows) if self.at is None else [row for row in self.rows if row[self.at] is None]


@dataclass(frozen=True, slots=True)
class Entry:
    """What the log says about one commit."""

    operation: str
    task: UUID | None = None
    attempt: int | None = None
    generation: str | None = None
    commit: Commit | None = None


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """A table as one commit left it."""

    version: int
    columns: tuple[str, ...]
    files: tuple[MemoryFile, ...]
    entry: Entry
    changed: IntervalSet = NOTHING
    """Where this commit brought or took rows."""
    expired: IntervalSet = NOTHING
    """Where it took rows at the old end only: they are gone, but nobody says that they were wrong."""
    reach: int = MIN_POSITION
    """No snapshot up to this one ever had a row at or above."""

    def meeting(self, window: IntervalSet | None) -> tuple[MemoryFile, ...]:
        if window is None:
            return self.files
        if not window:
            return ()
        start, end = window.edges[0], window.edges[-1]
        # most files lie far away: a look at two numbers spares them the rest
        near = [f for f in self.files if f.low is None or f.high is None or (f.low < end and f.high >= start)]
        return tuple([file for file in near if file.meets(window)])

    def read(self, window: IntervalSet | None = None) -> Rows:
        rows: list[Row] = []
        for file in self.meeting(window):
            rows += file.cut(window).arranged(self.columns)
        return Rows(self.columns, rows)

    @property
    def low(self) -> int | None:
        return min((file.low for file in self.files if file.low is not None), default=None)

    @property
    def high(self) -> int | None:
        return max((file.high for file in self.files if file.high is not None), default=None)

    @property
    def rows(self) -> int:
        return sum(len(file.rows) for file in self.files)


@dataclass(slots=True)
class MemoryTable:
    """All snapshots of one table; whoever appends holds the engine's lock."""

    id: str
    position: str | None
    snapshots: list[MemorySnapshot] = field(default_factory=list)
    commits: dict[UUID, Commit] = field(default_factory=dict)
    """The last commit of every task."""

    @property
    def head(self) -> MemorySnapshot:
        return self.snapshots[-1]

    def append(
        self,
        columns: tuple[str, ...],
        kept: Iterable[MemoryFile],
        added: Sequence[MemoryFile],
        entry: Entry,
        *,
        changed: IntervalSet = NOTHING,
        expired: IntervalSet = NOTHING,
    ) -> MemorySnapshot:
        """One commit: the files that stay, and those that are new."""
        before = self.head.reach if self.snapshots else MIN_POSITION
        highest = max((file.high for file in added if file.high is not None), default=MIN_POSITION - 1)
        files = (*kept, *added)
        snapshot = MemorySnapshot(
            len(self.snapshots), columns, files, entry, changed, expired, reach=max(before, highest + 1)
        )
        self.snapshots.append(snapshot)
        if entry.task is not None and entry.commit is not None:
            self.commits[entry.task] = entry.commit
        return snapshot


def positions_of(rows: Iterable[Row], at: int | None) -> list[int]:
    return [] if at is None else [position for row in rows if isinstance(position := row[at], int)]
