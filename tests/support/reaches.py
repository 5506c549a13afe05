"""What of a consumer differs when its parent does, in the simplest of ways?"""

from __future__ import annotations

from penstock.values.intervals import NOTHING, IntervalSet


def same(child: str, parent: str, changed: IntervalSet) -> IntervalSet:
    return changed


def none(child: str, parent: str, changed: IntervalSet) -> IntervalSet:
    return NOTHING
