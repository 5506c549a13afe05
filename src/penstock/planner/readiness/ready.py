"""Where may a chunk of a model stand, given what its inputs hold?"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from penstock.planner.readiness.grid import Grid
from penstock.planner.readiness.observation import Input, Observation
from penstock.values.intervals import MAX_POSITION, MIN_POSITION, NOTHING, Interval, IntervalSet, intersection
from penstock.values.models import Dependency, Group, IntervalModel

_PARTS_AT_ONCE = 4096
"""Sets are looked at in windows of about this many parts, so that a question about a few does not cost a million."""


@dataclass(frozen=True, slots=True)
class Availability:
    """One member of a dependency group: what counts of it, and where a chunk may stand because of it."""

    dependency: Dependency
    input: Input
    counted: IntervalSet
    places: IntervalSet
    """A chunk lies within one part iff the chunk widened by before and after is counted."""

    def covers(self, chunk: Interval) -> bool:
        return self.places.covers(chunk)

    def need(self, chunk: Interval) -> Interval:
        """`chunk` widened by before and after; the look-back stops where the input begins."""
        start = chunk.start - self.dependency.before
        if self.input.first is not None:
            start = min(chunk.start, max(start, self.input.first))
        return Interval(start, chunk.end + self.dependency.after)


@dataclass(frozen=True, slots=True)
class Readiness:
    """Everything about the inputs of one model that decides where its chunks may stand."""

    model: IntervalModel
    grid: Grid
    groups: tuple[tuple[Availability, ...], ...]
    low: int | None
    """No chunk begins below; None: nothing says where to begin."""
    high: int | None
    """No chunk ends above; None: nothing says where to end."""
    inputs_end: int | None
    """Where the inputs end together, before buffer and limits; None when they never end or hold nothing."""
    tip: int | None
    """Where the ready positions end, after buffer and limits."""
    covered: IntervalSet
    splits: bool
    """Some needed group has a choice, so that a run may have to be cut where the choice changes."""

    @property
    def varies(self) -> bool:
        """Two chunks may read different members."""
        return any(len(group) > 1 or optional(group) for group in self.groups)

    def choices(self, chunk: Interval) -> tuple[str, ...] | None:
        """The member of each group that `chunk` would read; None when a group that is needed has none."""
        chosen = []
        for group in self.groups:
            name = _choice(group, chunk)
            if name is None:
                return None
            chosen.append(name)
        return tuple(chosen)

    def reach(self, start: int) -> int:
        """How far a chunk that begins at `start` may go with one member of each group."""
        ends = [
            max((part.end for offer in group if (part := offer.places.part_at(start))), default=start)
            for group in self.groups
            if not optional(group)
        ]
        return min(ends, default=MAX_POSITION)

    def reach_back(self, end: int) -> int:
        """How early a chunk that ends at `end` may begin with one member of each group."""
        starts = [
            min((part.start for offer in group if (part := offer.places.part_at(end - 1))), default=end)
            for group in self.groups
            if not optional(group)
        ]
        return max(starts, default=MIN_POSITION)

    def windows(self, start: int, end: int, *, newest_first: bool = False) -> Iterator[Interval]:
        """`[start, end)` in pieces that no run of wanted cells crosses."""
        if self.low is None or self.high is None:
            return
        start, end = max(start, self.low), min(end, self.high)
        if start >= end:
            return
        edges = [start, *_cuts(self, start, end), end]
        for at in range(len(edges) - 1, 0, -1) if newest_first else range(1, len(edges)):
            yield Interval(edges[at - 1], edges[at])

    def places(self, window: Interval) -> IntervalSet:
        """The positions of `window` that every needed group has; `allowed` are the cells among them."""
        whole = IntervalSet((window.start, window.end))
        sets = [_places(group, window, self) for group in self.groups if not optional(group)]
        return intersection([whole, *sets])

    def allowed(self, window: Interval) -> IntervalSet:
        """The cells of `window` that are ready, and the open one at the tip where partial chunks may be."""
        return self.on_grid(self.places(window))

    def ready_in(self, window: Interval) -> IntervalSet:
        """What is allowed of any stretch, also of one that reaches beyond the bounds."""
        if self.low is None or self.high is None:
            return NOTHING
        start, end = max(window.start, self.low), min(window.end, self.high)
        return self.allowed(Interval(start, end)) if start < end else NOTHING

    def on_grid(self, places: IntervalSet) -> IntervalSet:
        """The whole cells of `places`; they are cut short by the limits, and at the tip where partial chunks may be."""
        if places.on(self.grid.cell):
            return places
        cut_ends = {self.model.limits.max, self.tip if self.grid.partial else None}
        edges: list[int] = []
        for lower, upper in zip(places.edges[::2], places.edges[1::2], strict=True):
            start = lower if lower == self.low else self.grid.up(lower)
            end = upper if upper in cut_ends else self.grid.down(upper)
            if start < end:
                edges += (start, end)
        return IntervalSet(tuple(edges))


def readiness(seen: Observation) -> Readiness:
    model, grid = seen.model, Grid.of(seen.model.interval)
    groups = tuple(_offers(group, seen, grid) for group in model.dependencies)
    positioned = [offer for group in groups for offer in group if offer.input.kind != "lookup"]
    firsts = [offer.input.first for offer in positioned if offer.input.first is not None]
    lows = [grid.down(min(firsts))] if firsts else []
    if model.limits.min is not None:
        lows.append(model.limits.min)
    end = _end_below(groups, MAX_POSITION)
    if end == MAX_POSITION:
        end = _last_sign(positioned) if model.limits.max is None else model.limits.max
    high = None if end is None else _buffered(model, end)
    low = max(lows, default=None)
    tip = None if low is None or high is None else _end_below(groups, high)
    splits = any(len(group) > 1 and not optional(group) for group in groups)
    return Readiness(model, grid, groups, low, high, end, tip, seen.covered, splits)


def repair_readiness(seen: Observation, first_time: Readiness) -> Readiness:
    """The same for what was computed before: there a source was complete once, wherever it begins and ends now.

    Rows that were deleted since, even all of them, are read as they are now; only what was made of rows that have
    expired, its look-back included, is not made again.
    """
    first, end = seen.covered.first, seen.covered.end
    if first is None or end is None:
        return first_time
    groups = tuple(
        tuple(_complete_once(offer) for offer in group) if len(group) == 1 else group for group in first_time.groups
    )
    limits = first_time.model.limits
    low = first if first_time.low is None else min(first, first_time.low)
    high = end if first_time.high is None else max(end, first_time.high)
    low = low if limits.min is None else max(low, limits.min)
    high = high if limits.max is None else min(high, limits.max)
    return replace(first_time, groups=groups, low=low, high=high, tip=high)


def _complete_once(offer: Availability) -> Availability:
    if offer.input.kind != "source" or not offer.input.observed:
        return offer
    expired = offer.input.expired
    if expired is None:
        everywhere = IntervalSet((MIN_POSITION, MAX_POSITION))
        return replace(offer, counted=everywhere, places=everywhere)
    counted = IntervalSet((expired, MAX_POSITION))
    # rows were there below the first that is left: the look-back does not stop at it, and nothing is optional of it
    dependency, lost = replace(offer.dependency, optional=False), replace(offer.input, first=None)
    return Availability(dependency, lost, counted, _eroded(counted, None, dependency.before, dependency.after))


def _last_sign(positioned: list[Availability]) -> int | None:
    """Nothing that is needed ever ends: what does end is then the only sign of how far there is anything to do."""
    return max((end for offer in positioned if (end := offer.counted.end) not in (None, MAX_POSITION)), default=None)


def ready(seen: Observation) -> IntervalSet:
    """Every position that a chunk could be computed for now."""
    inputs = readiness(seen)
    return joined(inputs.allowed(window) for window in inputs.windows(MIN_POSITION, MAX_POSITION))


def gaps(seen: Observation) -> IntervalSet:
    """What is ready, not covered and not being worked on."""
    inputs = readiness(seen)
    return joined(_gaps(inputs, window) for window in inputs.windows(MIN_POSITION, MAX_POSITION)) - seen.in_flight


def _gaps(ready: Readiness, window: Interval) -> IntervalSet:
    places, covered = ready.places(window), ready.covered.within(window.start, window.end)
    return NOTHING if places == covered else ready.on_grid(places) - covered


def joined(pieces: Iterable[IntervalSet]) -> IntervalSet:
    """One set of sets that follow each other and may touch."""
    edges: list[int] = []
    for piece in pieces:
        touching = bool(edges and piece and edges[-1] == piece.edges[0])
        if touching:
            edges.pop()
        edges += piece.edges[1:] if touching else piece.edges
    return IntervalSet(tuple(edges))


def optional(group: tuple[Availability, ...]) -> bool:
    return any(offer.dependency.optional for offer in group)


def _buffered(model: IntervalModel, end: int) -> int:
    """Buffer keeps away from an end that moves; the limit is one that does not."""
    top = model.limits.max
    return top if top is not None and end >= top else end - model.fill.buffer


def _offers(group: Group, seen: Observation, grid: Grid) -> tuple[Availability, ...]:
    inputs = [seen.inputs.get(member.model) or _unseen(member.model) for member in group]
    firsts = [seen_input.first for seen_input in inputs if seen_input.first is not None]
    offers = []
    for member, seen_input in zip(group, inputs, strict=True):
        counted = seen_input.available
        if len(group) > 1 and seen_input.kind == "source" and seen_input.first is not None:
            # Below the first row of all members the whole group is empty, so the cell that holds it counts whole; below
            # the first row of a later member another one has rows, and this one would silently give none.
            counted = counted.within(
                grid.down(seen_input.first) if seen_input.first == min(firsts) else seen_input.first, MAX_POSITION
            )
        if member.finality and seen_input.kind != "lookup" and counted.end not in (None, MAX_POSITION):
            counted = counted.within(MIN_POSITION, counted.edges[-1] - member.finality)
        offers.append(
            Availability(member, seen_input, counted, _eroded(counted, seen_input.first, member.before, member.after))
        )
    return tuple(offers)


def _unseen(name: str) -> Input:
    return Input(name, "source", NOTHING, None, "never observed", observed=False)


def _eroded(counted: IntervalSet, first: int | None, before: int, after: int) -> IntervalSet:
    if not before and not after:
        return counted
    edges: list[int] = []
    for lower, upper in zip(counted.edges[::2], counted.edges[1::2], strict=True):
        clipped = lower == MIN_POSITION or (first is not None and lower <= first)
        start = lower if clipped else lower + before
        end = upper if upper == MAX_POSITION else upper - after
        if start < end:
            edges += (start, end)
    return IntervalSet(tuple(edges))


def _choice(group: tuple[Availability, ...], chunk: Interval) -> str | None:
    for offer in group:
        if offer.covers(chunk):
            return offer.dependency.model
    if not optional(group):
        return None
    for offer in group:
        need = offer.need(chunk)
        if offer.counted.within(need.start, need.end):
            return offer.dependency.model
    return ""


def _end_below(groups: tuple[tuple[Availability, ...], ...], limit: int) -> int | None:
    """Where the positions end that every needed group has, when those from `limit` on are ignored."""
    needed = [group for group in groups if not optional(group)]
    end = limit
    while True:
        lowest = end
        for group in needed:
            ends = [e for offer in group if (e := offer.places.end_below(lowest)) is not None]
            if not ends:
                return None
            lowest = max(ends)
        if lowest == end:
            return end
        end = lowest


def _places(group: tuple[Availability, ...], window: Interval, ready: Readiness) -> IntervalSet:
    """Where one group lets cells stand: each whole cell lies within one member, never within a patchwork of several."""
    if len(group) == 1:
        return group[0].places.within(window.start, window.end)
    places = NOTHING
    for offer in group:
        places |= _from_edges(offer.places.within(window.start, window.end), ready)
    return places


def _from_edges(places: IntervalSet, ready: Readiness) -> IntervalSet:
    """Parts that begin on the grid, or where everything begins."""
    starts, ends = places.edges[::2], places.edges[1::2]
    if not any(start % ready.grid.cell for start in starts):
        return places
    pairs = [(s if s == ready.low else ready.grid.up(s), e) for s, e in zip(starts, ends, strict=True)]
    return IntervalSet(tuple(edge for pair in pairs if pair[0] < pair[1] for edge in pair))


def _cuts(ready: Readiness, start: int, end: int) -> list[int]:
    """Positions inside `(start, end)` that no run crosses: holes of a needed group, and ends of covered cells."""
    cell, at = ready.grid.cell, set[int]()
    open_cell = None if ready.tip is None else ready.grid.down(ready.tip)
    for group in ready.groups:
        if optional(group):
            continue
        for offer in group:
            for _, hole in _sampled(offer.places, start, end):
                if not any(hole in other.places for other in group):
                    # a cell with a hole is no part of any run, so its lower edge is as good, and it stands on the grid
                    at.add(ready.grid.down(hole))
    for covered_start, covered_end in _sampled(ready.covered, start, end):
        edge = ready.grid.down(covered_end)
        if edge - cell >= covered_start:
            at.add(edge)
    # the open cell at the tip has a hole too, but may be computed
    return sorted(position for position in at if start < position < end and position != open_cell)


def _sampled(places: IntervalSet, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Every so many parts of `places` within `[start, end)`, one."""
    lo, hi = bisect_right(places.edges, start) // 2, bisect_left(places.edges, end) // 2
    for part in range(lo + _PARTS_AT_ONCE, hi, _PARTS_AT_ONCE):
        yield places.edges[2 * part], places.edges[2 * part + 1]
