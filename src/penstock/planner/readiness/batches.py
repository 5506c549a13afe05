"""Which chunks does one attempt do together?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from penstock.planner.readiness.lanes import LaneWork
from penstock.planner.readiness.words import LANE_WORDS
from penstock.values.intervals import Interval, IntervalSet
from penstock.values.models.axis import shown
from penstock.values.tasks import IntervalLane, Order


@dataclass(frozen=True, slots=True)
class Caps:
    """How much one order may hold; it always holds at least one chunk."""

    widened: int = 1024
    """Chunks of an order whose query may run over many at once, next to each other or not."""
    listed: int = 32
    """Chunks of an order that has a query for each of them."""
    bytes: float = float(2**30)


CAPS = Caps()
_MOST_CHUNKS = 65_536
"""Of one lane in one plan; what is left comes with the next."""


def lane_orders(work: LaneWork, lane: IntervalLane, caps: Caps = CAPS) -> Iterator[Order]:
    """The orders of one lane. In strict order forward gives one at a time: should it fail, nothing is above it."""
    planned = orders(work, lane, islice(work.chunks(lane), _MOST_CHUNKS), caps)
    one_at_a_time = lane == "forward" and not work.seen.model.fill.allow_gap_skipping
    return islice(planned, 1) if one_at_a_time else planned


def orders(work: LaneWork, lane: IntervalLane, chunks: Iterable[Interval], caps: Caps = CAPS) -> Iterator[Order]:
    """`chunks` in orders, in their sequence; all chunks of an order read the same members."""
    model, readiness = work.seen.model, work.ready_for(lane)
    most = caps.widened if model.widens else caps.listed
    batch: list[Interval] = []
    batch_choices: tuple[str, ...] = ()
    weight = 0.0
    fixed = None if readiness.varies else tuple(group[0].dependency.model for group in readiness.groups)
    per_position = work.bytes_per_position(fixed or ())
    # what a chunk looks back to is read for each that does
    look = max((dependency.before + dependency.after for dependency in model.inputs), default=0)
    for chunk in chunks:
        choices = fixed if fixed is not None else readiness.choices(chunk)
        if choices is None:
            continue
        if choices != batch_choices:
            per_position = work.bytes_per_position(choices)
        chunk_bytes = (chunk.size + look) * per_position
        fits = len(batch) < most and weight + chunk_bytes <= caps.bytes and choices == batch_choices
        if batch and not fits:
            yield _order(work, lane, batch, batch_choices)
            batch, weight = [], 0.0
        batch.append(chunk)
        batch_choices, weight = choices, weight + chunk_bytes
    if batch:
        yield _order(work, lane, batch, batch_choices)


def _order(work: LaneWork, lane: IntervalLane, batch: list[Interval], choices: tuple[str, ...]) -> Order:
    chunks = tuple(sorted(batch))
    axis = work.seen.model.axis
    start, end = shown(chunks[0].start, axis), shown(chunks[-1].end, axis)
    reason = LANE_WORDS[lane].order.format(start=start, end=end)
    return Order(work.seen.model.name, lane, chunks, choices, reason + _together(work, chunks))


def _together(work: LaneWork, chunks: tuple[Interval, ...]) -> str:
    """Said where more is computed again than what is stale."""
    stale = work.repair & IntervalSet.of(chunks)
    extra = len(stale) - len(IntervalSet.of(chunks))
    if extra <= 0:
        return ""
    return f": {len(stale)} changed ranges; neighbouring ranges are computed together"
