"""How are the ranges of a set shown to scripts?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from penstock.values.intervals import MIN_POSITION, IntervalSet


class Pairs(Sequence[list[int]]):
    """`[[start, end], …]`, made when it is asked for: for people its ends and its length are enough."""

    __slots__ = ("_edges",)

    def __init__(self, edges: tuple[int, ...]) -> None:
        self._edges = edges

    def __len__(self) -> int:
        return len(self._edges) // 2

    @overload
    def __getitem__(self, at: int) -> list[int]: ...
    @overload
    def __getitem__(self, at: slice) -> list[list[int]]: ...
    def __getitem__(self, at: int | slice) -> list[int] | list[list[int]]:
        if isinstance(at, slice):
            return list(self)[at]
        place = range(len(self))[at]
        return [self._edges[2 * place], self._edges[2 * place + 1]]

    def __iter__(self) -> Iterator[list[int]]:
        return map(list, zip(self._edges[::2], self._edges[1::2], strict=True))

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, list | Pairs) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


def pairs(ranges: IntervalSet) -> Pairs:
    """Sorted, disjoint, half-open; what reaches back without end is not shown."""
    return Pairs(ranges.edges[2:] if ranges.first == MIN_POSITION else ranges.edges)


def listed(value: object) -> list[list[int]]:
    """`json.dumps(…, default=listed)`: pairs as a list, and nothing else that is no JSON."""
    if isinstance(value, Pairs):
        return list(value)
    raise TypeError(f"{type(value).__name__} is no JSON")
