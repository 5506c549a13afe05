"""Why a chunk waits: what was checked for it, and what is missing."""

from __future__ import annotations

from penstock.planner.readiness.lanes import LaneWork
from penstock.planner.readiness.observation import ReadinessCheck
from penstock.planner.readiness.ready import Availability, optional
from penstock.planner.readiness.words import length, place, span, spans
from penstock.values.intervals import MAX_POSITION, Interval, IntervalSet


def readiness_checks(work: LaneWork, chunk: Interval) -> tuple[ReadinessCheck, ...]:
    """One check per member of each dependency group, then those about the model's own settings."""
    checks: list[ReadinessCheck] = []
    for group in work.ready_at(chunk).groups:
        chosen = False
        for offer in group:
            checks.append(_readiness_check(offer, group, chunk, work.seen.model.axis, passed_over=chosen))
            chosen = chosen or checks[-1].ok
    return (*checks, *_own(work, chunk))


def empty_inputs(work: LaneWork) -> tuple[str, ...]:
    """A sentence for each dependency group that has nothing at all."""
    return tuple(
        _waiting(group, [offer.input.why_empty or "nothing is there yet" for offer in group])
        for group in work.ready.groups
        if not optional(group) and not any(offer.counted for offer in group)
    )


def why_unbounded(work: LaneWork) -> str | None:
    """The reason when neither an input nor a limit says where to begin or to end."""
    if work.ready.low is None:
        return "no input has a position, so limits.min must say where to begin"
    return None if work.ready.high is not None else "no input has a position, so limits.max must say where to end"


def reason_to_wait(work: LaneWork, chunk: Interval) -> str:
    """Why `chunk` is not planned. Only asked when it is not: that the lanes did not yield it is what decides."""
    seen, axis = work.seen, work.seen.model.axis
    where = span(chunk, axis)
    if seen.stopped is not None:
        return seen.stopped
    if done := _done(work, chunk):
        return done
    checks = (
        (_outside, _blocked) if work.reopened(chunk) else (_outside, _blocked, _too_short, _out_of_order, _lane_off)
    )
    for check in checks:
        if why := check(work, chunk):
            return why
    if seen.failed.outward(work.ready.grid.cell).within(chunk.start, chunk.end):
        return f"{where} shares a cell with a range that failed; it is tried again when its cause is fixed"
    return f"waiting for {where} to be complete: {_missing(work, chunk)}"


def held_words(name: str, cancelled: IntervalSet, axis: str) -> str:
    return f"cancelled: {spans(cancelled, axis)} is not planned until penstock resume {name}"


def _done(work: LaneWork, chunk: Interval) -> str:
    seen, axis = work.seen, work.seen.model.axis
    if cancelled := seen.cancelled.within(chunk.start, chunk.end):
        return held_words(seen.model.name, cancelled, axis)
    if failed := seen.failed.within(chunk.start, chunk.end):
        return f"failed: {spans(failed, axis)} is not tried again until its cause is fixed (see the failed tasks)"
    if running := seen.in_flight.within(chunk.start, chunk.end):
        return f"already being worked on: {spans(running, axis)}"
    if not seen.covered.covers(chunk):
        return ""
    stale = seen.stale.within(chunk.start, chunk.end)
    return "" if stale else f"up to date: {span(chunk, axis)} is covered"


def _outside(work: LaneWork, chunk: Interval) -> str:
    limits, axis = work.seen.model.limits, work.seen.model.axis
    if limits.min is not None and chunk.start < limits.min:
        return f"outside the limits: limits.min is {place(limits.min, axis)}"
    if limits.max is not None and chunk.end > limits.max:
        return f"outside the limits: limits.max is {place(limits.max, axis)}"
    return ""


def _blocked(work: LaneWork, chunk: Interval) -> str:
    ready = work.ready_at(chunk)
    axis, low, end = work.seen.model.axis, ready.low, ready.inputs_end
    reasons = [
        _waiting(group, [_lacking(offer, chunk, axis) for offer in group])
        for group in ready.groups
        if not optional(group) and not any(offer.covers(chunk) for offer in group)
    ]
    if reasons:
        return "; ".join(reasons)
    if (unbounded := why_unbounded(work)) is not None:
        return unbounded
    if low is not None and chunk.start < low:
        return f"nothing to compute: the inputs begin at {place(low, axis)}"
    if ready.high is not None and chunk.end > ready.high:
        buffer = work.seen.model.fill.buffer
        has = "nothing" if end is None else place(end, axis)
        return (
            f"stays {length(buffer, axis)} behind its inputs (buffer): needs them up to "
            f"{place(chunk.end + buffer, axis)}, has {has}"
        )
    return ""


def _too_short(work: LaneWork, chunk: Interval) -> str:
    least, fresh = work.ready.grid.least, work.fresh(chunk)
    if least <= 1 or fresh >= least or work.closed(chunk):
        return ""
    axis = work.seen.model.axis
    return f"waiting for at least {length(least, axis)} (interval.min), has {length(fresh, axis)}"


def _out_of_order(work: LaneWork, chunk: Interval) -> str:
    model, cursor = work.seen.model, work.cursor
    if model.fill.allow_gap_skipping or cursor is None or chunk.end <= work.split:
        return ""
    said = "in strict order (allow_gap_skipping is false): what"
    if work.unfinished is not None:
        return f"{said} ends at {place(work.unfinished, model.axis)} is still being worked on"
    repair = work.repair.part_at(work.split)
    if repair is not None and repair.end > cursor:
        return f"{said} ends at {place(repair.end, model.axis)} is repaired first"
    return f"{said} begins at {place(cursor, model.axis)} comes first" if chunk.start > cursor else ""


def _lane_off(work: LaneWork, chunk: Interval) -> str:
    if work.seen.model.schedules.backfill == "off" and chunk.start < work.split:
        return f"backfill is off: forward is already at {place(work.split, work.seen.model.axis)}"
    return ""


def _missing(work: LaneWork, chunk: Interval) -> str:
    axis, grid = work.seen.model.axis, work.ready.grid
    cell = Interval(grid.down(chunk.start), max(grid.up(chunk.end), grid.down(chunk.start) + 1))
    return _blocked(work, cell) or f"its cell is {span(cell, axis)}"


def _waiting(group: tuple[Availability, ...], whys: list[str]) -> str:
    if len(group) == 1:
        return f"waiting for {group[0].dependency.model}: {whys[0]}"
    each = "; ".join(f"{offer.dependency.model} {why}" for offer, why in zip(group, whys, strict=True))
    return f"waiting for one of {', '.join(offer.dependency.model for offer in group)}: {each}"


def _readiness_check(
    offer: Availability, group: tuple[Availability, ...], chunk: Interval, axis: str, *, passed_over: bool
) -> ReadinessCheck:
    name, need, waits = offer.dependency.model, span(offer.need(chunk), axis), not optional(group)
    if offer.covers(chunk):
        why = "it does, but an earlier member is used" if passed_over else "it does"
        if offer.input.kind == "lookup":
            return ReadinessCheck(name, "was observed", "it is read whole", True, why)
        return ReadinessCheck(name, f"covers {need}", _held(offer, chunk, axis), True, why)
    if not offer.counted:
        must = {"lookup": "be observed", "source": "have rows", "interval": "be built"}[offer.input.kind]
        value = offer.input.why_empty or "nothing yet"
    else:
        must, value = f"cover {need}", _lack(offer, chunk, axis)
    if waits:
        return ReadinessCheck(name, f"must {must}", value, False, _why_lacking(offer, chunk, axis) or value)
    return ReadinessCheck(name, f"may {must}", value, True, "optional: not waited for")


def _lack(offer: Availability, chunk: Interval, axis: str) -> str:
    """What of its need is not there, as shortly as it can be said."""
    lacking, end = _lacked(offer, chunk), offer.counted.end
    if lacking is None:
        return offer.input.why_empty or "nothing yet"
    if end is not None and _ends_early(offer, chunk):
        return f"ends at {place(end, axis)}{_lag(offer, axis)}"
    return f"lacks {span(lacking, axis)}"


def _ends_early(offer: Availability, chunk: Interval) -> bool:
    """All that is missing lies above what there is."""
    lacking, need, end = _lacked(offer, chunk), offer.need(chunk), offer.counted.end
    return lacking is not None and lacking.end == need.end and end is not None and end <= need.end != MAX_POSITION


def _lag(offer: Availability, axis: str) -> str:
    return f" (lag {length(offer.input.lag, axis)} applied)" if offer.input.lag else ""


def _held(offer: Availability, chunk: Interval, axis: str) -> str:
    if offer.input.kind == "source" and offer.counted.end == MAX_POSITION:
        return "was complete when it was computed"
    if offer.input.kind == "source" and offer.counted.end is not None:
        return f"has up to {place(offer.counted.end, axis)}"
    part = offer.counted.part_at(chunk.start)
    return "nothing there" if part is None else f"has {span(part, axis)}"


def _lacked(offer: Availability, chunk: Interval) -> Interval | None:
    need = offer.need(chunk)
    lacking = IntervalSet((need.start, need.end)) - offer.counted.within(need.start, need.end)
    return next(iter(lacking), None)


def _lacking(offer: Availability, chunk: Interval, axis: str) -> str:
    lacking, end = _lacked(offer, chunk), offer.counted.end
    if not offer.counted or lacking is None:
        return offer.input.why_empty or "nothing is there yet"
    if end is not None and _ends_early(offer, chunk):
        return f"needs up to {place(offer.need(chunk).end, axis)}, has {place(end, axis)}{_lag(offer, axis)}"
    why = _why_lacking(offer, chunk, axis)
    return f"{span(lacking, axis)} {why.removeprefix('it ')}" if why.startswith("it is not built") else why


def _why_lacking(offer: Availability, chunk: Interval, axis: str) -> str:
    """The cause beside the range that is missing; nothing where that range says it all."""
    lacking = _lacked(offer, chunk)
    if not offer.counted or lacking is None or _ends_early(offer, chunk):
        return ""
    if offer.input.expired is not None and lacking.start < offer.input.expired:
        gone = place(offer.input.expired, axis)
        lost = "recomputing would lose what was built from them (only --reset does that)"
        return f"its rows before {gone} have expired: {lost}"
    if offer.input.kind == "source":
        first, need = place(offer.counted.edges[0], axis), place(offer.need(chunk).start, axis)
        return f"its first row is at {first}, needs from {need}"
    return "it is not built yet, or is being recomputed"


def _own(work: LaneWork, chunk: Interval) -> tuple[ReadinessCheck, ...]:
    model, high = work.seen.model, work.ready.high
    checks = []
    if model.limits.min is not None or model.limits.max is not None:
        low = "the beginning" if model.limits.min is None else place(model.limits.min, model.axis)
        top = "the end" if model.limits.max is None else place(model.limits.max, model.axis)
        why = _outside(work, chunk)
        checks.append(ReadinessCheck(model.name, "within limits", f"{low} to {top}", not why, why or "it is"))
    if model.fill.buffer and high is not None:
        ok = chunk.end <= high
        rule = f"stays {length(model.fill.buffer, model.axis)} behind its inputs"
        why = "it does" if ok else f"may go up to {place(high, model.axis)} now"
        checks.append(ReadinessCheck(model.name, rule, f"up to {place(high, model.axis)}", ok, why))
    return tuple(checks)
