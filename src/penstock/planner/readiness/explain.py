"""Why is a chunk computed now, or why does it wait?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.planner.readiness.batches import lane_orders
from penstock.planner.readiness.lanes import LaneWork, lane_work
from penstock.planner.readiness.observation import Observation, ReadinessCheck
from penstock.planner.readiness.waits import empty_inputs, readiness_checks, reason_to_wait, why_unbounded
from penstock.planner.readiness.words import LANE_WORDS, place, span
from penstock.values.intervals import Interval, IntervalSet
from penstock.values.tasks import LANES, IntervalLane


@dataclass(frozen=True, slots=True)
class Explanation:
    """The planner's own words about one chunk."""

    model: str
    decision: Literal["enqueue", "wait"]
    reason: str
    readiness_checks: tuple[ReadinessCheck, ...] = ()
    chunk: Interval | None = None
    """None: nothing is there that a chunk could be cut from."""
    lane: IntervalLane | None = None
    choices: tuple[str, ...] = ()


def explain(seen: Observation, at: int | None = None) -> Explanation:
    """The chunk that holds `at`; without it the next forward chunk, else the newest gap."""
    work = lane_work(seen)
    planned = None if seen.stopped is not None else _default(work) if at is None else planned_at(work, at)
    if planned is not None:
        return _enqueued(work, *planned)
    chunk = next_chunk(work) if at is None else waiting_at(work, at)
    if chunk is None:
        return Explanation(seen.model.name, "wait", why_nothing(work))
    return Explanation(seen.model.name, "wait", reason_to_wait(work, chunk), readiness_checks(work, chunk), chunk)


def planned_at(work: LaneWork, at: int) -> tuple[IntervalLane, Interval] | None:
    """The chunk that the lanes yield for `at`, found without going through all of them."""
    for lane in LANES:
        run = work.run_at(lane, at)
        if run is None:
            continue
        if lane == "forward" and not work.seen.model.fill.allow_gap_skipping:
            # only the first order of the run is given
            first = next(lane_orders(work, lane), None)
            if first is None or not first.chunks[0].start <= at < first.chunks[-1].end:
                continue
        for chunk in work.cut(run, lane, near=at):
            if chunk.start <= at < chunk.end:
                return lane, chunk
    return None


def next_chunk(work: LaneWork) -> Interval | None:
    """What forward computes next, ready or not; None when it is done for good, off, or does not know where."""
    start = work.cursor if work.cursor is not None else work.ready.low
    limits, grid = work.seen.model.limits, work.ready.grid
    if start is None or work.seen.model.schedules.forwardfill == "off":
        return None
    if limits.max is not None and start >= limits.max:
        return None
    end = start + grid.least if grid.partial else grid.down(start) + grid.size
    low = grid.down(start) if limits.min is None else max(grid.down(start), limits.min)
    return Interval(low, end if limits.max is None else min(end, limits.max))


def why_nothing(work: LaneWork) -> str:
    """Why there is no chunk to speak of."""
    seen, axis = work.seen, work.seen.model.axis
    if seen.stopped is not None:
        return seen.stopped
    if reasons := empty_inputs(work):
        return "; ".join(reasons)
    if (unbounded := why_unbounded(work)) is not None:
        return unbounded
    if work.cursor is None or work.ready.low is None:
        return "nothing is ready yet: not even the first chunk is complete"
    if seen.model.limits.max is not None and work.cursor >= seen.model.limits.max:
        return f"up to date: limits.max, {place(seen.model.limits.max, axis)}, was reached"
    return f"up to date: {place(work.cursor, axis)} was reached"


def _default(work: LaneWork) -> tuple[IntervalLane, Interval] | None:
    if (chunk := next(work.chunks("forward"), None)) is not None:
        return "forward", chunk
    if next_chunk(work) is not None:
        return None
    for lane in LANES:
        if (chunk := next(work.chunks(lane), None)) is not None:
            return lane, chunk
    return None


def waiting_at(work: LaneWork, at: int) -> Interval:
    """The chunk to speak of when none is planned for `at`."""
    following = next_chunk(work)
    if following is not None and following.start <= at < following.end:
        return following
    short = next((run for lane in LANES if (run := work.run_at(lane, at)) is not None), None)
    return short if short is not None and short.size < work.ready.grid.least else _around(work, at)


def _around(work: LaneWork, at: int) -> Interval:
    """The chunk that would hold `at` if it could be computed: what is missing around it, cut to size."""
    grid, limits = work.ready.grid, work.seen.model.limits
    low, high = grid.down(at), grid.down(at) + grid.size
    if grid.cell < grid.size:
        done = work.seen.covered | work.seen.in_flight | work.seen.failed
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


def _enqueued(work: LaneWork, lane: IntervalLane, chunk: Interval) -> Explanation:
    seen = work.seen
    reason = f"{span(chunk, seen.model.axis)} {LANE_WORDS[lane].chunk} and everything it reads is there"
    choices = work.ready_for(lane).choices(chunk) or ()
    return Explanation(seen.model.name, "enqueue", reason, readiness_checks(work, chunk), chunk, lane, choices)
