"""Which positions are in a set, and what do two sets have in common?"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain

MIN_POSITION = -(2**63)
"""Stands for "since ever"; no row has it."""
MAX_POSITION = 2**63 - 1
"""Stands for "without end"; no row has it."""


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """Positions `start <= p < end`. Never empty."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if self.start >= self.end:
            raise ValueError(f"empty interval [{self.start}, {self.end})")

    def __str__(self) -> str:
        return f"[{self.start}, {self.end})"

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def key(self) -> str:
        """The name of a partition: what a query and a task call it."""
        return f"{self.start}_{self.end}"


@dataclass(frozen=True, slots=True)
class IntervalSet:
    """A set of positions, as the sorted edges `start, end, start, end, …` of its disjoint, non-touching parts.

    Flat edges make the complement a shift by one and let every operation slice what it does not need to look at,
    so that a set of a million parts is cut in milliseconds.
    """

    edges: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.edges) % 2:
            raise ValueError("an interval set needs an even number of edges")

    @classmethod
    def of(cls, parts: Iterable[Interval | tuple[int, int]]) -> IntervalSet:
        """The union of `parts`, in any order, overlapping or not; empty ones are ignored."""
        pairs = ((p.start, p.end) if isinstance(p, Interval) else p for p in parts)
        return cls(_touching_joined(sorted([pair for pair in pairs if pair[0] < pair[1]])))

    @property
    def parts(self) -> tuple[Interval, ...]:
        return tuple(self)

    @property
    def pairs(self) -> Iterator[tuple[int, int]]:
        """Start and end of every part: several times quicker than to make a value of each."""
        return zip(self.edges[::2], self.edges[1::2], strict=True)

    @property
    def first(self) -> int | None:
        return self.edges[0] if self.edges else None

    @property
    def end(self) -> int | None:
        return self.edges[-1] if self.edges else None

    @property
    def size(self) -> int:
        return sum(self.edges[1::2]) - sum(self.edges[::2])

    def __bool__(self) -> bool:
        return bool(self.edges)

    def __len__(self) -> int:
        return len(self.edges) // 2

    def __iter__(self) -> Iterator[Interval]:
        for i in range(0, len(self.edges), 2):
            yield Interval(self.edges[i], self.edges[i + 1])

    def __reversed__(self) -> Iterator[Interval]:
        for i in range(len(self.edges) - 2, -1, -2):
            yield Interval(self.edges[i], self.edges[i + 1])

    def __contains__(self, position: int) -> bool:
        return bisect_right(self.edges, position) % 2 == 1

    def __str__(self) -> str:
        return ", ".join(str(part) for part in self) or "nothing"

    def covers(self, interval: Interval) -> bool:
        at = bisect_right(self.edges, interval.start)
        return at % 2 == 1 and interval.end <= self.edges[at]

    def part_at(self, position: int) -> Interval | None:
        """The part that holds `position`."""
        at = bisect_right(self.edges, position)
        return Interval(self.edges[at - 1], self.edges[at]) if at % 2 else None

    def within(self, start: int, end: int) -> IntervalSet:
        """What lies in `[start, end)`, found by two look-ups."""
        if start >= end:
            return NOTHING
        lo, hi = bisect_right(self.edges, start), bisect_left(self.edges, end)
        inside = self.edges[lo:hi]
        if lo % 2:
            inside = (start, *inside)
        if hi % 2:
            inside = (*inside, end)
        return IntervalSet(inside)

    def end_below(self, limit: int) -> int | None:
        """The end of the highest part when everything from `limit` on is ignored."""
        at = bisect_left(self.edges, limit)
        if at % 2:
            return limit
        return self.edges[at - 1] if at else None

    def outward(self, grid: int) -> IntervalSet:
        """The whole cells `[k * grid, (k + 1) * grid)` that hold a position of this set."""
        if self.on(grid):
            return self
        return IntervalSet(_touching_joined([(down(start, grid), up(end, grid)) for start, end in self.pairs]))

    def on(self, grid: int) -> bool:
        """Whether every edge is a multiple of `grid`; asked of all of them at the speed of C."""
        return grid == 1 or not any(map(grid.__rmod__, self.edges))

    def complement(self) -> IntervalSet:
        edges = self.edges
        left = edges[1:] if edges and edges[0] == MIN_POSITION else (MIN_POSITION, *edges)
        return IntervalSet(left[:-1] if left and left[-1] == MAX_POSITION else (*left, MAX_POSITION))

    def __and__(self, other: IntervalSet) -> IntervalSet:
        few, many = (self, other) if len(self) <= len(other) else (other, self)
        if len(few) * 16 <= len(many):
            return IntervalSet(_sliced(few, many))
        return IntervalSet(_swept((few, many)))

    def __or__(self, other: IntervalSet) -> IntervalSet:
        if not self or not other:
            return self or other
        return (self.complement() & other.complement()).complement()

    def __sub__(self, other: IntervalSet) -> IntervalSet:
        return self & other.complement() if other else self


def _sliced(few: IntervalSet, many: IntervalSet) -> tuple[int, ...]:
    edges: list[int] = []
    for start, end in few.pairs:
        edges += many.within(start, end).edges
    return tuple(edges)


def _swept(sets: Sequence[IntervalSet]) -> tuple[int, ...]:
    """What all k `sets` share: the positions with k more starts than ends at or below them.

    Sorting the joined runs merges them at the speed of C, which no loop over the edges reaches.
    """
    starts = sorted(chain.from_iterable(ranges.edges[::2] for ranges in sets))
    ends = sorted(chain.from_iterable(ranges.edges[1::2] for ranges in sets))
    pairs = zip(starts[len(sets) - 1 :], ends, strict=False)
    return tuple([edge for pair in pairs if pair[0] < pair[1] for edge in pair])


def _touching_joined(pairs: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    edges: list[int] = []
    for start, end in pairs:
        if edges and start <= edges[-1]:
            edges[-1] = max(edges[-1], end)
        else:
            edges += (start, end)
    return tuple(edges)


def down(position: int, grid: int) -> int:
    """The edge of `grid` at or below `position`; an endless position has none and stays."""
    return position if position in (MIN_POSITION, MAX_POSITION) else position - position % grid


def up(position: int, grid: int) -> int:
    """The edge of `grid` at or above `position`; an endless position has none and stays."""
    return position if position in (MIN_POSITION, MAX_POSITION) else position + -position % grid


NOTHING = IntervalSet()
EVERYTHING = IntervalSet((MIN_POSITION, MAX_POSITION))


def ranges(*parts: tuple[int, int]) -> IntervalSet:
    return IntervalSet.of(parts)


def intersection(sets: Iterable[IntervalSet]) -> IntervalSet:
    """What all of `sets` have in common; everything when there are none."""
    common = EVERYTHING
    for ranges in sets:
        common &= ranges
    return common


def newest(sets: Sequence[IntervalSet]) -> list[IntervalSet]:
    """What each set has that none before it has, in one sweep over all edges."""
    parts: list[list[int]] = [[] for _ in sets]
    inside: set[int] = set()
    waiting: list[int] = []
    owner: int | None = None
    edges = sorted((edge, number) for number, ranges in enumerate(sets) for edge in ranges.edges)
    for at, (edge, number) in enumerate(edges):
        if number in inside:
            inside.discard(number)
        else:
            inside.add(number)
            heappush(waiting, number)
        if at + 1 < len(edges) and edges[at + 1][0] == edge:
            continue
        while waiting and waiting[0] not in inside:
            heappop(waiting)
        now = waiting[0] if waiting else None
        if now != owner:
            for changed in (owner, now):
                if changed is not None:
                    parts[changed].append(edge)
            owner = now
    return [IntervalSet(tuple(ranges)) for ranges in parts]
