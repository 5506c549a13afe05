"""Why is a chunk computed now, or why does it wait?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.planner.readiness.batches import lane_orders
from penstock.planner.readiness.checks import empty_inputs, reason_to_wait, verdicts, why_unbounded
from penstock.planner.readiness.lanes import Work, work
from penstock.planner.readiness.observation import Observation, Verdict
from penstock.planner.readiness.words import LANE_WORDS, place, span
from penstock.values.intervals import Interval, IntervalSet
from penstock.values.tasks import LANES, Lane


@dataclass(frozen=True, slots=True)
class Explanation:
    """The planner's own words about one chunk."""

    model: str
    decision: Literal["enqueue", "wait"]
    reason: str
    verdicts: tuple[Verdict, ...] = ()
    chunk: Interval | None = None
    """None: nothing is there that a chunk could be cut from."""
    lane: Lane | None = None
    choices: tuple[str, ...] = ()


def explain(seen: Observation, at: int | None = None) -> Explanation:
    """The chunk that holds `at`; without it the next forward chunk, else the newest gap."""
    one = work(seen)
    planned = None if seen.stopped is not None else _default(one) if at is None else planned_at(one, at)
    if planned is not None:
        return _enqueued(one, *planned)
    chunk = next_chunk(one) if at is None else waiting_at(one, at)
    if chunk is None:
        return Explanation(seen.model.name, "wait", why_nothing(one))
    return Explanation(seen.model.name, "wait", reason_to_wait(one, chunk), verdicts(one, chunk), chunk)


def planned_at(one: Work, at: int) -> tuple[Lane, Interval] | None:
    """The chunk that the lanes yield for `at`, found without going through all of them."""
    for lane in LANES:
        run = one.run_at(lane, at)
        if run is None:
            continue
        if lane == "forward" and not one.seen.model.fill.allow_gap_skipping:
            # only the first order of the run is given
            first = next(lane_orders(one, lane), None)
            if first is None or not first.chunks[0].start <= at < first.chunks[-1].end:
                continue
        for chunk in one.cut(run, lane, near=at):
            if chunk.start <= at < chunk.end:
                return lane, chunk
    return None


def next_chunk(one: Work) -> Interval | None:
    """What forward computes next, ready or not; None when it is done for good, off, or does not know where."""
    start = one.frontier if one.frontier is not None else one.ready.low
    limits, grid = one.seen.model.limits, one.ready.grid
    if start is None or one.seen.model.schedules.forwardfill == "off":
        return None
    if limits.max is not None and start >= limits.max:
        return None
    end = start + grid.least if grid.partial else grid.down(start) + grid.size
    low = grid.down(start) if limits.min is None else max(grid.down(start), limits.min)
    return Interval(low, end if limits.max is None else min(end, limits.max))


def why_nothing(one: Work) -> str:
    """Why there is no chunk to speak of."""
    seen, axis = one.seen, one.seen.model.axis
    if seen.stopped is not None:
        return seen.stopped
    if reasons := empty_inputs(one):
        return "; ".join(reasons)
    if (unbounded := why_unbounded(one)) is not None:
        return unbounded
    if one.frontier is None or one.ready.low is None:
        return "nothing is ready yet: not even the first chunk is complete"
    if seen.model.limits.max is not None and one.frontier >= seen.model.limits.max:
        return f"up to date: limits.max, {place(seen.model.limits.max, axis)}, was reached"
    return f"up to date: {place(one.frontier, axis)} was reached"


def _default(one: Work) -> tuple[Lane, Interval] | None:
    if (chunk := next(one.chunks("forward"), None)) is not None:
        return "forward", chunk
    if next_chunk(one) is not None:
        return None
    for lane in LANES:
        if (chunk := next(one.chunks(lane), None)) is not None:
            return lane, chunk
    return None


def waiting_at(one: Work, at: int) -> Interval:
    """The chunk to speak of when none is planned for `at`."""
    following = next_chunk(one)
    if following is not None and following.start <= at < following.end:
        return following
    short = next((run for lane in LANES if (run := one.run_at(lane, at)) is not None), None)
    return short if short is not None and short.size < one.ready.grid.least else _around(one, at)


def _around(one: Work, at: int) -> Interval:
    """The chunk that would hold `at` if it could be computed: what is missing around it, cut to size."""
    grid, limits = one.ready.grid, one.seen.model.limits
    low, high = grid.down(at), grid.down(at) + grid.size
    if grid.cell < grid.size:
        done = one.seen.covered | one.seen.in_flight | one.seen.failed
        if (held := done.part_at(at)) is not None:
            # as its own lanes would have cut it from where it begins
            start = held.start + (at - held.start) // grid.size * grid.size
            return Interval(start, min(start + grid.size, held.end))
        near = IntervalSet((at - grid.size, at + grid.size)) - done
        part = near.part_at(at) or Interval(at, at + 1)
        origin = max(part.start, at - grid.size + 1)
        low, high = grid.down(origin), min(max(grid.down(origin) + grid.size, at + 1), max(part.end, at + 1))
    if limits.min is not None and low < limits.min <= at:
        low = limits.min
    if limits.max is not None and at < limits.max < high:
        high = limits.max
    return Interval(low, high)


def _enqueued(one: Work, lane: Lane, chunk: Interval) -> Explanation:
    seen = one.seen
    reason = f"{span(chunk, seen.model.axis)} {LANE_WORDS[lane].chunk} and everything it reads is there"
    choices = one.ready_for(lane).choices(chunk) or ()
    return Explanation(seen.model.name, "enqueue", reason, verdicts(one, chunk), chunk, lane, choices)
