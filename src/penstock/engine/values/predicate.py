"""How does SQL say that a row's position lies in a set of intervals?"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.values.column_types import LONG, PositionType
from penstock.engine.values.positions import PositionField
from penstock.values.intervals import MAX_POSITION, MIN_POSITION, Interval, IntervalSet

_MANY_PARTS = 4
"""Beyond so many parts a search tree is evaluated: a long OR of ranges costs seconds of code generation."""


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def inside(column: str, kind: PositionType, window: IntervalSet) -> str:
    """True for the rows whose position lies in `window`; the raw column is compared, so that files can be skipped."""
    if not window:
        return "false"
    name = quoted(column)
    parts = window.parts
    if len(parts) <= _MANY_PARTS:
        texts = [_between(name, kind, part) for part in parts]
        return texts[0] if len(texts) == 1 else "(" + " or ".join(f"({text})" for text in texts) + ")"
    hull = _between(name, kind, Interval(parts[0].start, parts[-1].end))
    leaves = ["false" if i % 2 == 0 else "true" for i in range(len(window.edges) + 1)]
    return f"{hull} and {_searched(name, kind, window.edges, leaves)}"


def index(column: str, kind: PositionType, intervals: Sequence[Interval], outside: str = "-1") -> str:
    """The number of the sorted, disjoint interval that holds the row's position; `outside` for any other row."""
    edges: list[int] = []
    leaves: list[str] = [outside]
    for number, interval in enumerate(intervals):
        if edges and edges[-1] == interval.start:
            leaves[-1] = str(number)
        else:
            edges.append(interval.start)
            leaves.append(str(number))
        edges.append(interval.end)
        leaves.append(outside)
    name = quoted(column)
    return f"if({name} is null, {outside}, {_searched(name, kind, edges, leaves)})"


def starts(column: str, kind: PositionType, intervals: Sequence[Interval]) -> str:
    """The start of the sorted, disjoint interval that holds the row's position; NULL for any other row."""
    edges: list[int] = []
    leaves: list[str] = ["null"]
    for interval in intervals:
        leaf = f"{LONG.literal(interval.start)}L"
        if edges and edges[-1] == interval.start:
            leaves[-1] = leaf
        else:
            edges.append(interval.start)
            leaves.append(leaf)
        edges.append(interval.end)
        leaves.append("null")
    name = quoted(column)
    return f"if({name} is null, cast(null as bigint), {_searched(name, kind, edges, leaves)})"


def as_position(field: PositionField) -> str:
    """SQL of the position of a row."""
    return field.kind.sql_position(quoted(field.name))


def _between(name: str, kind: PositionType, part: Interval) -> str:
    texts = []
    if part.start > MIN_POSITION:
        texts.append(f"{name} >= {kind.literal(part.start)}")
    if part.end < MAX_POSITION:
        texts.append(f"{name} < {kind.literal(part.end)}")
    return " and ".join(texts) or f"{name} is not null"


def _searched(name: str, kind: PositionType, edges: Sequence[int], leaves: Sequence[str]) -> str:
    """A balanced tree of comparisons: leaf i is the answer for positions from edge i-1 up to edge i."""
    if not edges:
        return leaves[0]
    middle = len(edges) // 2
    below = _searched(name, kind, edges[:middle], leaves[: middle + 1])
    above = _searched(name, kind, edges[middle + 1 :], leaves[middle + 1 :])
    if edges[middle] <= MIN_POSITION:
        return above
    if edges[middle] >= MAX_POSITION:
        return below
    return f"if({name} < {kind.literal(edges[middle])}, {below}, {above})"
