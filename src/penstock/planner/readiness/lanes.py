"""Which runs of cells are to be computed, in which lane, in which order?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

from penstock.planner.readiness.observation import Observation
from penstock.planner.readiness.ready import Readiness, gaps, joined, readiness, repair_readiness
from penstock.planner.readiness.rounding import Price, rounded
from penstock.values.intervals import MAX_POSITION, MIN_POSITION, NOTHING, Interval, IntervalSet
from penstock.values.tasks import IntervalLane, Lane


@dataclass(frozen=True, slots=True)
class LaneWork:
    """One model's observation with all that follows from it and every lane needs."""

    seen: Observation
    ready: Readiness
    repairs: Readiness
    """The same for what is covered and stale."""
    cursor: int | None
    """Forward goes on here; None when nothing was ever done and nothing is ready."""
    split: int
    """Forward computes what lies above, backfill what lies below."""
    busy: IntervalSet
    """Whole cells that are being worked on, or whose last attempt failed for good."""
    repair: IntervalSet
    """Whole cells that are stale and ready. No other lane computes them, so that lanes never overlap."""
    repair_padding: IntervalSet
    """Whole cells around them that are covered and could be computed again, too."""

    def runs(self, lane: IntervalLane) -> Iterator[Interval]:
        """Runs of wanted cells, in the order in which they should be done."""
        match lane:
            case "forward":
                yield from self._forward()
            case "repair":
                yield from reversed(self.repair_spans())
            case "backfill":
                if self.seen.model.schedules.backfill != "off":
                    newest_first = self.seen.model.fill.backfill == "newest"
                    yield from self._wanted_runs(MIN_POSITION, self.split, newest_first=newest_first)
            case _:
                assert_never(lane)

    def run_at(self, lane: IntervalLane, at: int) -> Interval | None:
        """The run of a lane that holds `at`, found without going through all of them."""
        match lane:
            case "repair":
                return self.repair_spans().part_at(at)
            case "forward":
                if at < self.split or self.cursor is None:
                    return None
                if not self.seen.model.fill.allow_gap_skipping:
                    run = next(self.runs("forward"), None)
                    return run if run is not None and run.start <= at < run.end else None
                windows = self.ready.windows(self.split, MAX_POSITION)
            case "backfill":
                if at >= self.split or self.seen.model.schedules.backfill == "off":
                    return None
                windows = self.ready.windows(MIN_POSITION, self.split)
            case _:
                assert_never(lane)
        window = next((window for window in windows if window.start <= at < window.end), None)
        return None if window is None else self.wanted(window).part_at(at)

    def repair_spans(self) -> IntervalSet:
        """What the repair lane computes: what is stale, with the gaps that are cheaper to compute than to leave out."""
        if len(self.repair) <= 1:
            return self.repair
        model, size = self.seen.model, self.ready.grid.size
        return rounded(self.repair, self.repair_padding, Price(size, self.bytes_per_position(), model.widens))

    def bytes_per_position(self, choices: tuple[str, ...] | None = None) -> float:
        """What one position of the inputs holds; without `choices`, of the first member of each group."""
        names = choices if choices is not None else tuple(group[0].model for group in self.seen.model.dependencies)
        inputs = self.seen.inputs
        return sum(inputs[name].bytes_per_position for name in set(names) if name in inputs)

    def ready_for(self, lane: Lane) -> Readiness:
        return self.repairs if lane == "repair" else self.ready

    def ready_at(self, chunk: Interval) -> Readiness:
        """What decides about `chunk`: whether it is computed for the first time or again."""
        return self.repairs if self.reopened(chunk) else self.ready

    def reopened(self, chunk: Interval) -> bool:
        return bool(self.seen.stale.within(chunk.start, chunk.end)) and self.seen.covered.covers(chunk)

    def chunks(self, lane: IntervalLane) -> Iterator[Interval]:
        for run in self.runs(lane):
            yield from self.cut(run, lane)

    def cut(self, run: Interval, lane: IntervalLane, near: int | None = None) -> Iterator[Interval]:
        """The chunks of `run` (from the one that holds `near` on), less one at its end that has to wait for more."""
        readiness = self.ready_for(lane)
        grid, splits = readiness.grid, readiness.splits
        if run.end <= grid.down(run.start) + grid.cell and (grid.least <= 1 or lane == "repair"):
            yield run
            return
        if lane == "forward" or (lane == "backfill" and self.seen.model.fill.backfill == "oldest"):
            pieces = grid.upwards(run, readiness.reach if splits else None, near)
        else:
            pieces = grid.downwards(run, readiness.reach_back if splits else None, near)
        if grid.least <= 1 or lane == "repair" or self.closed(run):
            yield from pieces
            return
        for piece in pieces:
            if piece.end < run.end or self.fresh(piece) >= grid.least:
                yield piece

    def closed(self, run: Interval) -> bool:
        """What follows `run` is done, being done or not to be done: waiting makes it no longer."""
        seen, end = self.seen, run.end
        return (
            end in (seen.model.limits.max, self.split) or end in seen.covered or end in self.busy or end in self.repair
        )

    def fresh(self, piece: Interval) -> int:
        """How many positions of `piece` were never computed."""
        return piece.size - self.seen.covered.within(piece.start, piece.end).size

    def wanted(self, window: Interval) -> IntervalSet:
        """Cells of `window` that are ready, have missing positions, and are in no task or other lane."""
        start, end = window.start, window.end
        places = self.ready.places(window)
        covered = self.seen.covered.within(start, end)
        if places == covered:
            return NOTHING
        allowed = self.ready.on_grid(places)
        missing = (allowed - covered).outward(self.ready.grid.cell) & allowed
        return missing - self.busy.within(start, end) - self.repair.within(start, end)

    def blocked(self, window: Interval) -> IntervalSet:
        """Positions of `window` that are missing and not ready."""
        whole = IntervalSet((window.start, window.end))
        missing = whole - self.seen.covered.within(window.start, window.end) - self.ready.allowed(window)
        return missing - self.busy.within(window.start, window.end)

    def _wanted_runs(self, start: int, end: int, *, newest_first: bool) -> Iterator[Interval]:
        for window in self.ready.windows(start, end, newest_first=newest_first):
            wanted = self.wanted(window)
            yield from reversed(wanted) if newest_first else wanted

    @property
    def unfinished(self) -> int | None:
        """Where the work in flight ends, if forward has come no further without it: strict order waits for that."""
        low, tip = self.ready.low, self.ready.tip
        if low is None or tip is None:
            return None
        end, done = (ranges.end_below(tip) for ranges in (self.seen.in_flight, self.seen.covered))
        return None if end is None or end <= low or (done is not None and end <= done) else end

    def _forward(self) -> Iterator[Interval]:
        if self.cursor is None or self.split == MAX_POSITION:
            return
        runs = self._wanted_runs(self.split, MAX_POSITION, newest_first=False)
        if self.seen.model.fill.allow_gap_skipping:
            yield from runs
            return
        first = next(runs, None) if self.unfinished is None else None
        if first is not None and first.start <= self.cursor:
            yield first


def lane_work(seen: Observation) -> LaneWork:
    ready = readiness(seen)
    cell = ready.grid.cell
    busy = seen.in_flight.outward(cell) | seen.failed.outward(cell)
    reached = cursor(seen, ready)
    split = MIN_POSITION if reached is None else ready.grid.down(reached)
    if seen.model.schedules.forwardfill == "off":
        split = MAX_POSITION
    repairs = repair_readiness(seen, ready) if seen.stale else ready
    repair, padding = _repair(seen, ready, repairs)
    return LaneWork(seen, ready, repairs, reached, split, busy, repair - busy, padding - busy)


def gaps_to_fill(seen: Observation) -> IntervalSet:
    """The gaps, less a rest at the tip that waits only because it is shorter than `interval.min`."""
    found, work = gaps(seen), lane_work(seen)
    readiness, tip = work.ready, work.ready.tip
    if tip is None or readiness.grid.least <= 1 or found.end != tip:
        return found
    run = work.run_at("forward", tip - 1)
    if run is None or work.closed(run):
        return found
    *_, newest = readiness.grid.upwards(run, readiness.reach if readiness.splits else None, near=tip - 1)
    return found if work.fresh(newest) >= readiness.grid.least else found - IntervalSet((newest.start, newest.end))


def repairable(seen: Observation) -> IntervalSet:
    """What is stale and could be computed now, also if a task works on it."""
    ready = readiness(seen)
    return _repair(seen, ready, repair_readiness(seen, ready))[0]


def cursor(seen: Observation, ready: Readiness) -> int | None:
    """The end of what was done below the tip; a never-run model begins at its newest chunk or at its oldest."""
    if ready.tip is None or ready.low is None:
        return None
    # what was done above the tip (a wrong unit, a lag that grew) says nothing about where to go on
    done = [end for ranges in (seen.covered, seen.in_flight) if (end := ranges.end_below(ready.tip)) is not None]
    if done and max(done) > ready.low:
        return max(done)
    head = seen.model.fill.direction == "head"
    for window in ready.windows(MIN_POSITION, MAX_POSITION, newest_first=head):
        if allowed := ready.allowed(window):
            return _newest_start(ready, allowed.edges[-2], allowed.edges[-1]) if head else allowed.first
    return None


def _newest_start(ready: Readiness, start: int, end: int) -> int:
    earliest = max(start, ready.grid.up(end - ready.grid.size))
    return max(earliest, ready.grid.up(ready.reach_back(end))) if ready.splits else earliest


def _repair(seen: Observation, ready: Readiness, repairs: Readiness) -> tuple[IntervalSet, IntervalSet]:
    """Whole cells that are stale and can be read again, as far as they are covered or ready anyway.

    And the covered cells in the same windows that can: no other lane computes those.
    """
    if not seen.stale:
        return NOTHING, NOTHING
    parts: list[IntervalSet] = []
    padding: list[IntervalSet] = []
    cell = ready.grid.cell
    for window in repairs.windows(ready.grid.down(seen.stale.edges[0]), ready.grid.up(seen.stale.edges[-1])):
        if stale := seen.stale.within(window.start, window.end):
            covered = seen.covered.within(window.start, window.end)
            whole = covered | ready.ready_in(window)
            # a cell of which some cannot be read is not computed from the rest
            possible = whole - (whole - repairs.places(window)).outward(cell)
            parts.append((stale & possible).outward(cell) & possible)
            # nor one of which forward or backfill will compute the rest
            padding.append(possible - (possible - covered).outward(cell))
    return joined(parts), joined(padding)
