"""How do counts of changed rows travel to PostgreSQL and back?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from psycopg.types.json import Jsonb

from penstock.values.changes import RowCounts, merged_counts
from penstock.values.intervals import Interval

StoredCounts = Sequence[tuple[int, int, int]]


def stored(several: Iterable[RowCounts]) -> Jsonb:
    """All of them as one."""
    return Jsonb([[part.start, part.end, rows] for part, rows in merged_counts(several)])


def loaded(counts: StoredCounts) -> RowCounts:
    return tuple((Interval(start, end), rows) for start, end, rows in counts)
