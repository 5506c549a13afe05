"""Which stretches are cheaper to compute again together than apart?"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.values.intervals import Interval, IntervalSet

QUERY_BYTES = 4 * 2**20
"""One more query, with its part of a task, takes as long as reading so much."""
CHUNK_BYTES = QUERY_BYTES // 8
"""One more chunk of a query that does many: rows to compare, a file, a digest and progress to keep."""

FEW_RUNS, RUN_BYTES = 16, 16 * CHUNK_BYTES
"""Each further run that stands alone is a file to write, and a hole in those that hold its neighbours."""


@dataclass(frozen=True, slots=True)
class Price:
    """What it costs to compute a stretch of one model."""

    size: int
    """The longest chunk."""
    per_position: float
    """Bytes that are read; 0 when that is unknown."""
    shares: bool
    """One query does many chunks."""

    @property
    def chunk(self) -> int:
        return CHUNK_BYTES if self.shares else QUERY_BYTES

    def of(self, runs: IntervalSet) -> float:
        """Everything that computing `runs` takes, as bytes."""
        chunks = sum(-(-(end - start) // self.size) for start, end in runs.pairs)
        return runs.size * self.per_position + chunks * self.chunk + max(len(runs) - FEW_RUNS, 0) * RUN_BYTES

    def joins(self, left: int, gap: int, right: int) -> bool:
        """Whether two stretches are computed sooner with the gap between them than without."""
        whole = left + gap + right
        if whole > self.size and not self.per_position:
            return False  # of rows that were not counted, one chunk at most
        # long runs fill their chunks but for the last: they count by their length
        counts = [max(length / self.size, 1.0) for length in (left, right, whole)]
        return gap * self.per_position < (counts[0] + counts[1] - counts[2]) * self.chunk


def rounded(wanted: IntervalSet, room: IntervalSet, price: Price) -> IntervalSet:
    """`wanted` with those gaps that are cheaper to compute than to leave out; gaps lie within `room`."""
    edges: list[int] = []
    for start, end in zip(wanted.edges[::2], wanted.edges[1::2], strict=True):
        joined = (
            bool(edges)
            and price.joins(edges[-1] - edges[-2], start - edges[-1], end - start)
            and room.covers(Interval(edges[-1], start))
        )
        if joined:
            edges[-1] = end
        else:
            edges += (start, end)
    ranges = IntervalSet(tuple(edges))
    if price.per_position and len(ranges) > 1:
        # what pays for no gap alone may pay for all of them
        whole = _filled(ranges, room)
        return whole if price.of(whole) < price.of(ranges) else ranges
    return ranges


def _filled(wanted: IntervalSet, room: IntervalSet) -> IntervalSet:
    hull = IntervalSet((wanted.edges[0], wanted.edges[-1]))
    gaps = (pair for pair in (hull - wanted).pairs if room.covers(Interval(*pair)))
    return IntervalSet.of((*wanted.pairs, *gaps))
