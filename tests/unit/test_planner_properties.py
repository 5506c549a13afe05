"""Do plans keep their promises whatever the inputs, the settings and the history are?"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from importlib import import_module
from typing import Literal

import pytest
from fuzzing import effort
from hypothesis import given
from hypothesis import strategies as st

from penstock.planner.readiness.batches import Caps
from penstock.planner.readiness.explain import explain
from penstock.planner.readiness.lanes import repairable
from penstock.planner.readiness.observation import Input, Observation, Wait
from penstock.planner.readiness.plan import plan, recheck
from penstock.planner.readiness.ready import gaps, ready
from penstock.values.intervals import EVERYTHING, MIN_POSITION, NOTHING, Interval, IntervalSet
from penstock.values.models import Chunking, Dependency, Fill, IntervalModel, Limits, Schedules
from penstock.values.tasks import Lane, Order

EXAMPLES = effort(20)
positions = st.integers(-5, 60)
sets = st.lists(st.tuples(positions, positions), max_size=6).map(IntervalSet.of)
looks = st.sampled_from([0, 0, 0, 3, 8])


@st.composite
def chunkings(draw: st.DrawFn) -> Chunking:
    align = draw(st.integers(1, 9))
    kind = draw(st.sampled_from(["strict", "partial", "aligned"]))
    if kind == "strict":
        return Chunking(align, align, align)
    if kind == "partial":
        most = draw(st.integers(2, 15))
        return Chunking(most, draw(st.integers(0, most - 1)), 1)
    most = align * draw(st.integers(1, 3))
    return Chunking(most, draw(st.integers(0, most - 1)), align)


@st.composite
def inputs(draw: st.DrawFn, name: str) -> Input:
    kind: Literal["source", "interval", "lookup"] = draw(st.sampled_from(["source", "interval", "interval", "lookup"]))
    if kind == "lookup":
        return Input(name, kind, draw(st.sampled_from([EVERYTHING, NOTHING])), None, "never run")
    if kind == "interval":
        available = draw(sets)
        return Input(name, kind, available, available.first, "not built yet")
    first, size = draw(positions), draw(st.integers(0, 50))
    if size == 0:
        return Input(name, kind, NOTHING, None, "no rows yet")
    expired = draw(st.none() | st.integers(-5, first))
    return Input(name, kind, IntervalSet((MIN_POSITION, first + size)), first, expired=expired)


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    names = [f"t.m{i}" for i in range(draw(st.integers(0, 4)))]
    groups: list[tuple[Dependency, ...]] = []
    for name in names:
        optional = draw(st.integers(0, 5)) == 0
        dependency = Dependency(name, before=draw(looks), after=draw(looks), optional=optional)
        if groups and draw(st.booleans()):
            groups[-1] = (*groups[-1], dependency)
        else:
            groups.append((dependency,))
    low, high = draw(st.none() | positions), draw(st.none() | positions)
    if low is not None and high is not None and low >= high:
        low, high = None, None
    off = draw(st.sampled_from([Schedules(), Schedules(), Schedules(forwardfill="off"), Schedules(backfill="off")]))
    model = IntervalModel(
        name="t.model",
        file="t.sql",
        sql="",
        position="p",
        axis="block",
        interval=draw(chunkings()),
        dependencies=tuple(groups),
        widens=draw(st.booleans()),
        limits=Limits(low, high),
        schedules=off,
        fill=Fill(
            draw(st.sampled_from(["head", "tail"])),
            draw(st.booleans()),
            draw(st.sampled_from([0, 0, 4])),
            draw(st.sampled_from(["newest", "oldest"])),
        ),
    )
    covered = draw(sets)
    return Observation(
        model,
        {name: draw(inputs(name)) for name in names},
        covered,
        draw(sets) & covered,
        draw(st.just(NOTHING) | sets),
        draw(st.just(NOTHING) | sets),
    )


def ordered(seen: Observation, most: int = 2000, caps: Caps | None = None) -> list[Order]:
    decisions = plan(seen, most) if caps is None else plan(seen, most, caps)
    assert decisions
    return [one for one in decisions if isinstance(one, Order)]


def chunks_of(orders: list[Order]) -> list[tuple[str, Interval, tuple[str, ...]]]:
    return [(order.lane, chunk, order.choices) for order in orders for chunk in order.chunks]


def in_strict_order(seen: Observation) -> Observation:
    return replace(seen, model=replace(seen.model, fill=replace(seen.model.fill, allow_gap_skipping=False)))


def is_there(
    seen: Observation, group: tuple[Dependency, ...], member: Dependency, chunk: Interval, *, again: bool = False
) -> bool:
    """Position by position: does `member` have all that `chunk` reads, or did it when it was first computed?"""
    one = seen.inputs[member.model]
    if again and len(group) == 1 and one.kind == "source":
        return one.expired is None or chunk.start - member.before >= one.expired
    needed = set(range(chunk.start, chunk.end + member.after))
    needed |= {p for p in range(chunk.start - member.before, chunk.start) if one.first is None or p >= one.first}
    begin = None
    if len(group) > 1 and one.kind == "source" and one.first is not None:
        align = seen.model.interval.align
        others = [first for m in group if (first := seen.inputs[m.model].first) is not None]
        begin = one.first // align * align if one.first == min(others) else one.first
    return all(p in one.available and (begin is None or p >= begin) for p in needed)


def is_ready(seen: Observation, chunk: Interval, *, again: bool = False) -> bool:
    return all(
        (any(one.optional for one in group) and not (again and has_expired(seen, group)))
        or any(is_there(seen, group, one, chunk, again=again) for one in group)
        for group in seen.model.dependencies
    )


def has_expired(seen: Observation, group: tuple[Dependency, ...]) -> bool:
    """What was made of rows that are gone is not made again, even where the query could do without them."""
    one = seen.inputs[group[0].model]
    return len(group) == 1 and one.kind == "source" and one.expired is not None


@EXAMPLES
@given(observations(), st.sets(st.sampled_from(["forward", "repair", "backfill"])))
def test_only_the_lanes_that_were_asked_for_get_orders_and_the_waits_stay(seen: Observation, lanes: set[Lane]) -> None:
    whole, some = plan(seen), plan(seen, lanes=lanes)
    assert [one for one in some if isinstance(one, Order)] == [
        one for one in whole if isinstance(one, Order) and one.lane in lanes
    ]
    assert [one for one in some if isinstance(one, Wait)] == [one for one in whole if isinstance(one, Wait)]


@EXAMPLES
@given(observations())
def test_orders_never_overlap_work_in_flight_or_each_other(seen: Observation) -> None:
    taken: Counter[int] = Counter()
    for _, chunk, _ in chunks_of(ordered(seen)):
        taken.update(range(chunk.start, chunk.end))
    assert all(count == 1 for count in taken.values())
    assert not any(p in seen.in_flight or p in seen.failed for p in taken)


@EXAMPLES
@given(observations())
def test_every_planned_chunk_is_ready_and_reads_the_first_member_that_has_it_all(seen: Observation) -> None:
    for lane, chunk, choices in chunks_of(ordered(seen)):
        again = lane == "repair"
        assert is_ready(seen, chunk, again=again)
        # what a repair computes beside what is covered is complete by itself
        assert not again or all(is_ready(seen, part) for part in IntervalSet((chunk.start, chunk.end)) - seen.covered)
        assert chunk.size <= max(seen.model.interval.max, seen.model.interval.align)
        for group, choice in zip(seen.model.dependencies, choices, strict=True):
            full = [m.model for m in group if is_there(seen, group, m, chunk, again=again)]
            assert choice == full[0] if full else any(m.optional for m in group)


@EXAMPLES
@given(observations())
def test_planning_again_while_the_orders_are_in_flight_gives_none(seen: Observation) -> None:
    orders = ordered(seen)
    running = IntervalSet.of(chunk for order in orders for chunk in order.chunks)
    assert ordered(replace(seen, in_flight=seen.in_flight | running)) == []


@EXAMPLES
@given(observations(), st.integers(1, 5), st.integers(1, 5))
def test_any_batching_asks_for_the_same_chunks_as_one_by_one(seen: Observation, widened: int, listed: int) -> None:
    # in strict order forward gives one batch at a time, so there its size decides how much that is
    seen = replace(seen, model=replace(seen.model, fill=replace(seen.model.fill, allow_gap_skipping=True)))
    one_by_one = chunks_of(ordered(seen, caps=Caps(1, 1)))
    assert Counter(chunks_of(ordered(seen, caps=Caps(widened, listed)))) == Counter(one_by_one)
    assert Counter(chunks_of(ordered(seen))) == Counter(one_by_one)


@EXAMPLES
@given(observations(), st.integers(0, 4))
def test_b15_explain_and_plan_agree_about_every_position(seen: Observation, offset: int) -> None:
    planned = {p: chunk for _, chunk, _ in chunks_of(ordered(seen)) for p in range(chunk.start, chunk.end)}
    for at in range(-30 + offset, 90, 5):
        said = explain(seen, at)
        assert said.reason
        assert (said.decision == "enqueue") == (at in planned)
        assert said.chunk is not None
        assert said.chunk.start <= at < said.chunk.end
        if at in planned:
            assert said.chunk == planned[at]
            assert all(check.why for check in said.readiness_checks)


@EXAMPLES
@given(observations())
def test_a_paused_model_waits_and_so_says_explain(seen: Observation) -> None:
    paused = replace(seen, paused=True)
    assert [one.reason for one in plan(paused)] == ["paused"]
    assert explain(paused, None).decision == "wait"


@EXAMPLES
@given(observations())
def test_orders_pass_their_recheck_until_something_changes(seen: Observation) -> None:
    for order in ordered(seen):
        assert recheck(seen, order) == order
        assert isinstance(recheck(replace(seen, in_flight=seen.in_flight | order.scope), order), Wait)


@EXAMPLES
@given(observations(), st.integers(1, 5), st.integers(1, 5))
def test_orders_pass_their_recheck_while_all_the_others_are_in_flight(
    seen: Observation, widened: int, listed: int
) -> None:
    seen = in_strict_order(seen)
    orders = ordered(seen, caps=Caps(widened, listed))
    running = seen.in_flight | IntervalSet.of(chunk for order in orders for chunk in order.chunks)
    for order in orders:
        assert recheck(replace(seen, in_flight=running - order.scope), order) == order


@EXAMPLES
@given(observations(), st.integers(1, 5))
def test_in_strict_order_what_fails_is_the_last_that_forward_did(seen: Observation, listed: int) -> None:
    """Whatever is given to workers, whichever of them fails: forward leaves no gap above the first that failed."""
    seen = replace(in_strict_order(seen), in_flight=NOTHING, failed=NOTHING)
    first = [order for order in ordered(seen, caps=Caps(listed, listed)) if order.lane == "forward"]
    assert len(first) <= 1
    if first:
        failed = replace(seen, failed=first[0].scope)
        later = [order for order in ordered(failed) if order.lane == "forward"]
        assert all(chunk.start < first[0].chunks[0].start for _, chunk, _ in chunks_of(later))


@EXAMPLES
@given(observations())
def test_strict_plans_hold_every_ready_cell_that_is_missing_or_stale(seen: Observation) -> None:
    grid = seen.model.interval.align
    model = replace(
        seen.model,
        interval=Chunking(grid, grid, grid),
        schedules=Schedules(),
        fill=Fill(buffer=0, allow_gap_skipping=True),
    )
    seen = replace(seen, model=model)
    firsts = [one.first for one in seen.inputs.values() if one.first is not None]
    low, high = model.limits.min, model.limits.max
    if not firsts or all(
        one.kind != "source" for group in model.dependencies for m in group for one in [seen.inputs[m.model]]
    ):
        return
    planned = {chunk for _, chunk, _ in chunks_of(ordered(seen))}
    top = 60 if high is None else high
    for start in range(min(firsts) // grid * grid, top, grid):
        begin = start if low is None else max(start, low)
        end = start + grid if high is None else min(start + grid, high)
        if begin >= end or not is_ready(seen, Interval(begin, end)):
            continue
        if any(p in seen.stale for p in range(begin, end)) and not is_ready(seen, Interval(begin, end), again=True):
            continue  # it expired: once covered, it is not made again
        bounded = any(
            not any(m.optional for m in group) and all(seen.inputs[m.model].kind != "lookup" for m in group)
            for group in model.dependencies
        )
        cell = set(range(start, start + grid))
        busy = any(p in seen.in_flight or p in seen.failed for p in cell)
        todo = any(p not in seen.covered or p in seen.stale for p in range(begin, end))
        if bounded:
            assert (Interval(begin, end) in planned) == (todo and not busy)


@EXAMPLES
@given(observations())
def test_b39_doing_what_is_planned_leaves_no_gap_and_no_stale_range(seen: Observation) -> None:
    model = replace(
        seen.model,
        schedules=Schedules(),
        fill=replace(seen.model.fill, allow_gap_skipping=True),
        interval=_any_size(seen),
    )
    seen = replace(seen, model=model, in_flight=NOTHING, failed=NOTHING)
    for _ in range(200):
        orders = ordered(seen, most=3)
        if not orders:
            break
        done = IntervalSet.of(chunk for order in orders for chunk in order.chunks)
        seen = replace(seen, covered=seen.covered | done, stale=seen.stale - done)
    assert gaps(seen) == NOTHING
    assert repairable(seen) == NOTHING


def _any_size(seen: Observation) -> Chunking:
    found = seen.model.interval
    return found if found.strict else replace(found, min=0)


@EXAMPLES
@given(observations())
def test_looking_in_small_windows_changes_nothing(seen: Observation) -> None:
    whole, whole_ready = chunks_of(ordered(seen)), ready(seen)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("penstock.planner.readiness.ready"), "_PARTS_AT_ONCE", 1)
        assert ready(seen) == whole_ready
        assert Counter(chunks_of(ordered(seen))) == Counter(whole)


def test_hulls_in_place_of_sets_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control of readiness: they plan chunks over holes."""
    holed = Input("t.a", "interval", IntervalSet((0, 10, 20, 30)), 0)
    model = IntervalModel(
        name="t.model",
        file="t.sql",
        sql="",
        position="p",
        axis="block",
        interval=Chunking(30, 30, 30),
        dependencies=((Dependency("t.a"),),),
    )
    seen = Observation(model, {"t.a": holed})
    assert ordered(seen) == []
    module = import_module("penstock.planner.readiness.ready")
    honest = module._places

    def hull(*arguments: object) -> IntervalSet:
        found: IntervalSet = honest(*arguments)
        return IntervalSet((found.edges[0], found.edges[-1])) if found else found

    monkeypatch.setattr(module, "_places", hull)
    planned = [chunk for _, chunk, _ in chunks_of(ordered(seen))]
    assert planned == [Interval(0, 30)]
    assert not all(is_ready(seen, chunk) for chunk in planned)
