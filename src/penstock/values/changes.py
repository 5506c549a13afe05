"""Where rows of a table changed, and how many: what a commit did, and what several did together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.values.intervals import EVERYTHING, NOTHING, Interval, IntervalSet

MOST_PARTS = 1000
"""A change is stored with every consumer: beyond so many parts the nearest ones become one."""

RowCounts = tuple[tuple[Interval, int], ...]
"""How many rows changed somewhere in each part."""


@dataclass(frozen=True, slots=True)
class Changed:
    """Where rows of a table are no longer what they were, and how many of them where that is known."""

    ranges: IntervalSet
    rows: RowCounts = ()

    def __bool__(self) -> bool:
        return bool(self.ranges)


UNCHANGED = Changed(NOTHING)
ANYTHING = Changed(EVERYTHING)


@dataclass(frozen=True, slots=True)
class CommitChanges:
    """Where rows differ because of one commit."""

    changed: Changed
    only_deletes: bool = False
    taken: IntervalSet = NOTHING
    """Where a commit that only deletes certainly took rows; elsewhere in `changed` it perhaps did."""
    first: int | None = None
    """The lowest position there is after a commit that only deletes or that rewinds; None: there are no rows."""
    rewinds: bool = False
    """Rows may be back that had left."""


@dataclass(frozen=True, slots=True)
class LogChanges:
    """Where rows differ, as the commits between two snapshots tell."""

    commits: tuple[CommitChanges, ...] = ()
    """Those that changed rows, oldest first."""

    @property
    def changed(self) -> Changed:
        """By commits that changed rows in any other way than deleting them."""
        return merged(commit.changed for commit in self.commits if not commit.only_deletes)

    @property
    def left(self) -> tuple[Changed, ...]:
        """By each commit that only deleted rows."""
        return tuple(commit.changed for commit in self.commits if commit.only_deletes)

    @property
    def ranges(self) -> IntervalSet:
        return IntervalSet.of(part for commit in self.commits for part in commit.changed.ranges)


NO_CHANGES = LogChanges()


def merged(changes: Iterable[Changed]) -> Changed:
    """What several commits changed, in no more parts than one may have."""
    several = list(changes)
    parts = IntervalSet.of(part for change in several for part in change.ranges)
    return Changed(joined(parts, MOST_PARTS), merged_counts(change.rows for change in several))


def merged_counts(several: Iterable[RowCounts]) -> RowCounts:
    """One after the other: a row that changed twice counts twice."""
    rows: Counter[Interval] = Counter()
    for counts in several:
        for part, count in counts:
            rows[part] += count
    return few(rows.items())


def few(counts: Iterable[tuple[Interval, int]]) -> RowCounts:
    """Neighbours become one until there are few enough."""
    ordered = sorted(counts)
    size = -(-len(ordered) // MOST_PARTS) or 1
    groups = [ordered[at : at + size] for at in range(0, len(ordered), size)]
    return tuple((_around(part for part, _ in group), sum(count for _, count in group)) for group in groups)


def rows_within(counts: RowCounts, changed: IntervalSet, scope: IntervalSet) -> int | None:
    """How many of the `changed` rows are in `scope`; None when they were not counted, or not exactly enough."""
    known = IntervalSet.of(part for part, _ in counts)
    met = [(IntervalSet((part.start, part.end)), count) for part, count in counts]
    met = [(part, count) for part, count in met if part & scope]
    if not met or (changed & scope) - known or any(part - scope for part, _ in met):
        return None
    return sum(count for _, count in met)


def joined(parts: IntervalSet, most: int) -> IntervalSet:
    """The same positions and more, in at most `most` parts: the narrowest gaps are filled."""
    if len(parts) <= most:
        return parts
    gaps = list(zip(parts.edges[1:-1:2], parts.edges[2::2], strict=True))
    widest = sorted(sorted(gaps, key=lambda gap: gap[0] - gap[1])[: most - 1])
    return IntervalSet((parts.edges[0], *(edge for gap in widest for edge in gap), parts.edges[-1]))


def _around(parts: Iterable[Interval]) -> Interval:
    several = list(parts)
    return Interval(several[0].start, max(part.end for part in several))
