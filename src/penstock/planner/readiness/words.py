"""How does the planner say positions, ranges and lengths?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.values.intervals import MAX_POSITION, MIN_POSITION, Interval, IntervalSet
from penstock.values.models.axis import SECOND, shown
from penstock.values.tasks import Lane


@dataclass(frozen=True, slots=True)
class LaneWords:
    """Why a lane computes something."""

    chunk: str
    """After a range."""
    order: str
    """With the places of a start and an end."""


LANE_WORDS: Mapping[Lane, LaneWords] = {
    "forward": LaneWords("is new", "new positions from {start} to {end}"),
    "repair": LaneWords("is stale", "an input changed or a rerun was requested between {start} and {end}"),
    "backfill": LaneWords("was never built", "never built between {start} and {end}"),
}
_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def place(position: int, axis: str) -> str:
    if position == MIN_POSITION:
        return "the beginning"
    return "the end" if position == MAX_POSITION else shown(position, axis)


def span(interval: Interval, axis: str) -> str:
    return f"[{place(interval.start, axis)}, {place(interval.end, axis)})"


def spans(ranges: IntervalSet, axis: str, most: int = 3) -> str:
    """The newest few ranges, and how many more there are."""
    count = len(ranges)
    newest = [
        span(Interval(*ranges.edges[2 * i : 2 * i + 2]), axis) for i in range(count - 1, max(count - most, 0) - 1, -1)
    ]
    return ", ".join(newest) + (f" and {count - most} more" if count > most else "")


def length(count: int, axis: str) -> str:
    if axis != SECOND:
        return f"{count} position" + ("" if count == 1 else "s")
    size, unit = next((known for known in _UNITS if count % known[0] == 0), _UNITS[-1])
    return f"{count // size} {unit}" + ("" if count == size else "s")
