"""How do covered and stale change when a result is published, and when a range is invalidated?"""

from __future__ import annotations

from typing import NamedTuple

from penstock.values.intervals import IntervalSet


class Coverage(NamedTuple):
    """Stale always lies within covered."""

    covered: IntervalSet
    stale: IntervalSet


def published(covered: IntervalSet, stale: IntervalSet, done: IntervalSet, lost: IntervalSet) -> Coverage:
    """After `done` was computed; `lost` is what was invalidated after the inputs of that attempt were fixed."""
    # what was lost meanwhile was computed from old rows: it is covered, and it is stale
    return Coverage(covered | done, (stale - done) | (done & lost))


def invalidated(covered: IntervalSet, stale: IntervalSet, changed: IntervalSet) -> Coverage:
    return Coverage(covered, stale | (changed & covered))
