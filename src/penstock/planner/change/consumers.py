"""What does a model offer its consumers, and what must they compute again when it changes?"""

from __future__ import annotations

from penstock.planner.readiness.observation import Input, Observation
from penstock.planner.readiness.ready import Readiness, readiness
from penstock.values.intervals import EVERYTHING, MAX_POSITION, MIN_POSITION, NOTHING, Interval, IntervalSet
from penstock.values.models import IntervalModel, Model


def positioned(parent: Model, axis: str) -> bool:
    """Whether a model on `axis` reads `parent` interval by interval; else it is a lookup, read whole."""
    return parent.position is not None and (parent.axis or axis) == axis


def affected(model: IntervalModel, parent: Model, changed: IntervalSet) -> IntervalSet:
    """The positions of `model` whose rows may differ because `changed` positions of `parent` do.

    Not the whole cells: new rows of an open cell concern nothing of it that was computed before.
    """
    ready = NOTHING
    lookup = not positioned(parent, model.axis)
    for dependency in model.inputs:
        if dependency.model != parent.name:
            continue
        if lookup:
            ready |= EVERYTHING if changed and dependency.on_change == "rerun" else NOTHING
        else:
            ready |= IntervalSet.of(_reached(part, dependency.before, dependency.after) for part in changed)
    low = MIN_POSITION if model.limits.min is None else model.limits.min
    return ready.within(low, MAX_POSITION if model.limits.max is None else model.limits.max)


def _reached(part: Interval, before: int, after: int) -> Interval:
    """A chunk reads `before` below itself and `after` above: seen from the input it is the other way round."""
    start = part.start if part.start == MIN_POSITION else part.start - after
    return Interval(start, part.end if part.end == MAX_POSITION else part.end + before)


def offered(seen: Observation, bytes_per_position: float = 0.0) -> Input:
    """The model of `seen` as an input of others.

    Below the first chunk it will ever have, a model is empty, not missing: else the day that holds the first hour
    would wait for hours that nobody computes.
    """
    ready = readiness(seen)
    # what was made of rows that have expired is not made again: stale or not, it is all there will ever be
    stale = seen.stale.within(ready.grid.up(_expired(ready)), MAX_POSITION)
    name, usable = seen.model.name, seen.covered - stale
    if not usable:
        why = "all of it is being recomputed" if seen.covered else "not built yet"
        return Input(name, "interval", NOTHING, None, why)
    # stale ranges count here: a look-back must wait for their repair, not stop short of them
    first = seen.covered.edges[0]
    low = ready.low
    if low is None:  # its inputs were emptied: nothing will ever come below what it holds
        low = first
    begun = first if seen.model.schedules.backfill == "off" else min(first, low)
    available = (usable | IntervalSet((MIN_POSITION, low))) - stale
    return Input(name, "interval", available, begun, bytes_per_position=bytes_per_position)


def _expired(ready: Readiness) -> int:
    """A chunk that begins below reads positions from which some lone source of the model has let rows go."""
    lone = [
        expired + group[0].dependency.before
        for group in ready.groups
        if len(group) == 1 and (expired := group[0].input.expired) is not None
    ]
    return max(lone, default=MIN_POSITION)
