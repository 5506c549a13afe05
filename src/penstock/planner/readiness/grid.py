"""Where may the edges of a model's chunks stand, and how is a run of positions cut into chunks?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.values.intervals import Interval, down, up
from penstock.values.models import Chunking

Reach = Callable[[int], int]
"""From an edge of a chunk to the furthest place its other edge may have."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The cells a model computes whole, and how many positions one chunk has."""

    cell: int
    size: int
    """The longest chunk, in whole cells."""
    least: int
    """New positions an open end must have before it is worth a chunk."""
    partial: bool
    """The newest cell may be computed before it is full."""

    @classmethod
    def of(cls, chunking: Chunking) -> Grid:
        cell = max(chunking.align, 1)
        size = max(cell, chunking.max // cell * cell)
        # a strict cell is full by the time it is allowed; only the limits make it shorter, and no waiting changes that
        whole = chunking.strict and cell >= chunking.max
        return cls(cell, size, 1 if whole else max(chunking.min, 1), not chunking.strict)

    def down(self, position: int) -> int:
        return down(position, self.cell)

    def up(self, position: int) -> int:
        return up(position, self.cell)

    def upwards(self, run: Interval, reach: Reach | None = None, near: int | None = None) -> Iterator[Interval]:
        """`run` in chunks, oldest first, their edges on the grid; those below the one that holds `near` left out."""
        start = run.start
        if near is not None and reach is None and near >= (edge := self.down(start + self.size)):
            start = edge + (near - edge) // self.size * self.size
        while start < run.end:
            end = min(self.down(start + self.size), run.end)
            if reach is not None and (furthest := reach(start)) < end:
                end = self.down(furthest)
            yield Interval(start, end)
            start = end

    def downwards(self, run: Interval, reach_back: Reach | None = None, near: int | None = None) -> Iterator[Interval]:
        """`run` in chunks, newest first, their edges on the grid; those above the one that holds `near` left out."""
        end = run.end
        if near is not None and reach_back is None and near < (edge := self.up(end - self.size)):
            end = edge - (edge - 1 - near) // self.size * self.size
        while end > run.start:
            start = max(self.up(end - self.size), run.start)
            if reach_back is not None and (furthest := reach_back(end)) > start:
                start = self.up(furthest)
            yield Interval(start, end)
            end = start
