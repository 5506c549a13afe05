"""What should be done now for one model, and what has to wait?"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import islice

from penstock.planner.readiness.batches import CAPS, Caps, lane_orders
from penstock.planner.readiness.explain import next_chunk, why_nothing
from penstock.planner.readiness.lanes import LaneWork, cursor, lane_work
from penstock.planner.readiness.observation import Observation, Wait
from penstock.planner.readiness.waits import held_words, readiness_checks, reason_to_wait
from penstock.planner.readiness.words import place, span, spans
from penstock.values.intervals import MIN_POSITION, NOTHING, Interval, IntervalSet
from penstock.values.tasks import LANES, Lane, Order

Decision = Order | Wait
_WINDOWS_FOR_A_REASON = 16
"""How far below the cursor a blocked gap is looked for: it is only said, nothing depends on it."""


def plan(
    seen: Observation, most: int = 2000, caps: Caps = CAPS, lanes: Collection[Lane] = LANES
) -> tuple[Decision, ...]:
    """Every order of `lanes` that can be given now, at most `most`, forward first; and what waits, with its reason."""
    work = lane_work(seen)
    if seen.stopped is not None:
        return (Wait(seen.model.name, seen.stopped),)
    orders = _shared({lane: lane_orders(work, lane, caps) for lane in LANES if lane in lanes}, most)
    # a lane that was not asked for does not wait because of that
    forward = orders["forward"] if "forward" in lanes else [*islice(lane_orders(work, "forward", caps), 1)]
    return *(order for lane in orders for order in orders[lane]), *_waits(work, moving=bool(forward))


def _shared(offered: Mapping[Lane, Iterator[Order]], most: int) -> dict[Lane, list[Order]]:
    """At most so many: a quarter for each lane but forward, so that a long catch-up starves none; then what is left."""
    orders: dict[Lane, list[Order]] = {lane: [] for lane in offered}
    rounds = [(lane, most // 4) for lane in offered if lane != "forward"] + [(lane, most) for lane in offered]
    for lane, share in rounds:
        left = most - sum(map(len, orders.values()))
        orders[lane] += islice(offered[lane], min(share, left))
    return orders


def recheck(seen: Observation, order: Order) -> Order | Wait:
    """`order` if it still holds, right before it runs; `seen.in_flight` must not hold the order itself."""
    work, axis = lane_work(seen), seen.model.axis
    if _is_done(seen, order.scope):
        return Wait(seen.model.name, f"up to date: {spans(order.scope, axis)} is covered", order.lane)
    for chunk in order.chunks:
        if why := _objection(work, chunk, order.lane):
            return Wait(seen.model.name, why, order.lane, chunk, readiness_checks(work, chunk))
    if (gap := _gap_below(work, order)) is not None:
        why = f"in strict order (allow_gap_skipping is false): what lies below {place(gap.start, axis)} comes first"
        return Wait(seen.model.name, why, order.lane, gap, readiness_checks(work, gap))
    if _holds(work, order):
        return order
    fresh = {work.ready_for(order.lane).choices(chunk) for chunk in order.chunks}
    if len(fresh) == 1 and (choices := fresh.pop()) is not None:
        return replace(order, choices=choices)
    return Wait(seen.model.name, "its chunks must read different inputs now: plan again", order.lane)


def permanent_gaps(seen: Observation) -> tuple[tuple[Interval, str], ...]:
    """What lies below the cursor and nothing will ever fill, with the reason."""
    if not _leaves_gaps(seen):
        return ()
    work = lane_work(seen)
    axis = seen.model.axis
    first = seen.covered.first
    gaps = []
    for part in _permanent(work):
        why = "backfill is off, and forward skipped it while it was not ready"
        if first is None or part.end <= first or part.end == work.split:
            why = f"backfill is off, and forward began at {place(part.end, axis)}"
        gaps.append((part, why))
    return tuple(gaps)


def _leaves_gaps(seen: Observation) -> bool:
    """Forward may continue, and no backfill fills what it left out."""
    return seen.model.schedules.backfill == "off" and seen.model.schedules.forwardfill != "off"


def _permanent(work: LaneWork) -> IntervalSet:
    if not _leaves_gaps(work.seen):
        return IntervalSet()
    if work.ready.low is None or work.cursor is None or work.ready.low >= work.split:
        return IntervalSet()
    below = IntervalSet((work.ready.low, work.split))
    return below - work.seen.covered - work.busy - work.repair


def _waits(work: LaneWork, *, moving: bool) -> Iterator[Wait]:
    seen, name, axis = work.seen, work.seen.model.name, work.seen.model.axis
    if not moving:
        chunk = next_chunk(work)
        if chunk is None:
            yield Wait(name, why_nothing(work))
        else:
            yield Wait(name, reason_to_wait(work, chunk), "forward", chunk, readiness_checks(work, chunk))
    if seen.cancelled:
        yield Wait(name, held_words(name, seen.cancelled, axis))
    if failed := seen.failed - seen.cancelled:
        yield Wait(name, f"failed: {spans(failed, axis)} is not tried again until its cause is fixed")
    if seen.stale and (stale := seen.stale - work.repair - work.busy):
        last = Interval(*stale.edges[-2:])
        yield Wait(name, f"stale: {reason_to_wait(work, last)}", "repair", last, readiness_checks(work, last))
    if permanent := _permanent(work):
        yield Wait(name, f"backfill is off, so nothing will fill {spans(permanent, axis)}", "backfill", permanent=True)
    elif (blocked := _newest_blocked(work)) is not None:
        why = f"gap {span(blocked, axis)}: {reason_to_wait(work, blocked)}"
        yield Wait(name, why, "backfill", blocked, readiness_checks(work, blocked))


def _newest_blocked(work: LaneWork) -> Interval | None:
    if work.seen.model.schedules.backfill == "off":
        return None
    for window in islice(work.ready.windows(MIN_POSITION, work.split, newest_first=True), _WINDOWS_FOR_A_REASON):
        if blocked := work.blocked(window):
            last = Interval(*blocked.edges[-2:])
            return Interval(max(last.start, last.end - work.ready.grid.size), last.end)
    return None


def _objection(work: LaneWork, chunk: Interval, lane: Lane) -> str:
    seen, readiness = work.seen, work.ready_for(lane)
    running = seen.in_flight.within(chunk.start, chunk.end)
    inside = (
        readiness.low is not None
        and readiness.low <= chunk.start
        and readiness.high is not None
        and chunk.end <= readiness.high
    )
    ready = inside and not running and readiness.choices(chunk) is not None
    if ready and readiness is not work.ready:
        # where it reaches beyond what was complete once, the inputs must reach now
        beyond = IntervalSet((chunk.start, chunk.end)) - seen.covered.within(chunk.start, chunk.end)
        ready = not (beyond and beyond - work.ready.ready_in(chunk))
    return reason_to_wait(work, chunk) if seen.stopped is not None or not ready else ""


def _is_done(seen: Observation, scope: IntervalSet) -> bool:
    start, end = scope.edges[0], scope.edges[-1]
    return not scope - (seen.covered.within(start, end) - seen.stale.within(start, end))


def _gap_below(work: LaneWork, order: Order) -> Interval | None:
    """The first chunk that strict order forbids: below it something is neither done nor part of the order."""
    if order.lane != "forward" or work.seen.model.fill.allow_gap_skipping:
        return None
    # what others work on is not done yet, so it counts for nothing here
    reached = cursor(replace(work.seen, in_flight=NOTHING), work.ready)
    for chunk in sorted(order.chunks):
        if reached is None or chunk.start > reached:
            return chunk
        reached = max(reached, chunk.end)
    return None


def _holds(work: LaneWork, order: Order) -> bool:
    """The members the order was planned with still cover every chunk."""
    groups = work.ready_for(order.lane).groups
    if len(groups) != len(order.choices):
        return False
    for group, choice in zip(groups, order.choices, strict=True):
        offer = next((offer for offer in group if offer.dependency.model == choice), None)
        if offer is None and (choice or not any(o.dependency.optional for o in group)):
            return False
        if offer is not None and not offer.dependency.optional and not all(offer.covers(c) for c in order.chunks):
            return False
    return True
