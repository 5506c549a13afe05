"""How many rows changed where, as far as anybody told?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from psycopg.types.json import Jsonb

from penstock.values.intervals import Interval, IntervalSet

Told = tuple[tuple[Interval, int], ...]
StoredTold = Sequence[tuple[int, int, int]]
MOST_COUNTS = 500
"""Numbers of rows kept of one invalidation; more of them become one that spans all."""


def stored(told: Told) -> Jsonb:
    return Jsonb([[part.start, part.end, rows] for part, rows in told])


def loaded(parts: StoredTold) -> Told:
    return tuple((Interval(start, end), rows) for start, end, rows in parts)


def together(tellings: Iterable[Told]) -> Told:
    """One after the other: a row that changed twice counts twice."""
    found: Counter[Interval] = Counter()
    for told in tellings:
        for part, rows in told:
            found[part] += rows
    if len(found) > MOST_COUNTS:
        whole = Interval(min(part.start for part in found), max(part.end for part in found))
        return ((whole, found.total()),)
    return tuple(sorted(found.items()))


def rows_within(told: Told, changed: IntervalSet, scope: IntervalSet) -> int | None:
    """How many of the `changed` rows are in `scope`; None when nobody told, or not exactly enough."""
    known = IntervalSet.of(part for part, _ in told)
    met = [(IntervalSet((part.start, part.end)), rows) for part, rows in told]
    met = [(part, rows) for part, rows in met if part & scope]
    if not met or (changed & scope) - known or any(part - scope for part, _ in met):
        return None
    return sum(rows for _, rows in met)
