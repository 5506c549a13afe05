"""What does a model offer its consumers, and what must they compute again when it changes?"""

from __future__ import annotations

from penstock.intervals import MAX_POSITION, MIN_POSITION, NOTHING, Interval, IntervalSet
from penstock.models import IntervalModel
from penstock.planner.observation import Input, Observation
from penstock.planner.ready import readiness


def affected(model: IntervalModel, parent: str, changed: IntervalSet) -> IntervalSet:
    """The positions of `model` whose rows may differ because `changed` positions of `parent` do."""
    found = NOTHING
    for dependency in model.inputs:
        if dependency.model == parent:
            reached = IntervalSet.of(_reached(part, dependency.before, dependency.after) for part in changed)
            found |= reached.outward(max(model.interval.align, 1))
    low = MIN_POSITION if model.limits.min is None else model.limits.min
    return found.within(low, MAX_POSITION if model.limits.max is None else model.limits.max)


def _reached(part: Interval, before: int, after: int) -> Interval:
    """A chunk reads `before` below itself and `after` above: seen from the input it is the other way round."""
    start = part.start if part.start == MIN_POSITION else part.start - after
    return Interval(start, part.end if part.end == MAX_POSITION else part.end + before)


def offered(seen: Observation, bytes_per_position: float = 0.0) -> Input:
    """The model of `seen` as an input of others.

    Below the first chunk it will ever have, a model is empty, not missing: else the day that holds the first hour
    would wait for hours that nobody computes.
    """
    name, usable = seen.model.name, seen.covered - seen.stale
    if not usable:
        why = "all of it is being recomputed" if seen.covered else "not built yet"
        return Input(name, "interval", NOTHING, None, why)
    low = readiness(seen).low
    # stale ranges count here: a look-back must wait for their repair, not stop short of them
    first = seen.covered.edges[0]
    if low is None:
        return Input(name, "interval", usable, first, bytes_per_position=bytes_per_position)
    begun = first if seen.model.schedules.backfill == "off" else min(first, low)
    available = (usable | IntervalSet((MIN_POSITION, low))) - seen.stale
    return Input(name, "interval", available, begun, bytes_per_position=bytes_per_position)
