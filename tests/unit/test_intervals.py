"""Do sets of ranges behave like the sets of positions they stand for?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.values.intervals import (
    EVERYTHING,
    MAX_POSITION,
    MIN_POSITION,
    NOTHING,
    Interval,
    IntervalSet,
    down,
    intersection,
    newest,
    ranges,
    up,
)

WORLD = range(-45, 60)
positions = st.integers(-40, 50)
interval_sets = st.lists(st.tuples(positions, positions), max_size=12).map(IntervalSet.of)
intervals = st.tuples(positions, positions).filter(lambda p: p[0] < p[1]).map(lambda p: Interval(*p))


def brute(found: IntervalSet) -> set[int]:
    return {p for p in WORLD if any(part.start <= p < part.end for part in found)}


def is_normal(found: IntervalSet) -> bool:
    return all(a < b for a, b in zip(found.edges, found.edges[1:], strict=False))


@given(interval_sets, interval_sets)
def test_union_intersection_and_difference_are_those_of_the_positions(a: IntervalSet, b: IntervalSet) -> None:
    for found, expected in ((a | b, brute(a) | brute(b)), (a & b, brute(a) & brute(b)), (a - b, brute(a) - brute(b))):
        assert brute(found) == expected
        assert is_normal(found)


@given(st.lists(interval_sets, min_size=1, max_size=4))
def test_what_many_sets_share_is_what_all_of_them_hold(sets: list[IntervalSet]) -> None:
    assert brute(intersection(sets)) == set.intersection(*(brute(one) for one in sets))
    assert is_normal(intersection(sets))


@given(interval_sets)
def test_the_complement_twice_is_the_set_itself(a: IntervalSet) -> None:
    assert a.complement().complement() == a
    assert brute(a.complement()) == set(WORLD) - brute(a)
    assert a | a.complement() == EVERYTHING
    assert a & a.complement() == NOTHING


@given(interval_sets, intervals)
def test_a_range_is_covered_iff_every_position_is(a: IntervalSet, interval: Interval) -> None:
    assert a.covers(interval) == (set(range(interval.start, interval.end)) <= brute(a))


@given(interval_sets, positions, positions)
def test_what_lies_within_two_positions_is_cut_exactly(a: IntervalSet, start: int, end: int) -> None:
    assert brute(a.within(start, end)) == brute(a) & set(range(start, end))
    assert is_normal(a.within(start, end))


@given(interval_sets, positions)
def test_a_position_is_found_with_its_part(a: IntervalSet, position: int) -> None:
    part = a.part_at(position)
    assert (position in a) == (part is not None) == (position in brute(a))
    assert part is None or (part.start <= position < part.end and part in a.parts)


@given(interval_sets, positions)
def test_the_end_below_a_limit_ignores_what_lies_above(a: IntervalSet, limit: int) -> None:
    assert a.end_below(limit) == max((p + 1 for p in brute(a) if p < limit), default=None)


@given(interval_sets, st.integers(1, 17))
def test_outward_takes_whole_cells_and_no_others(a: IntervalSet, grid: int) -> None:
    cells = {p // grid for p in brute(a)}
    assert brute(a.outward(grid)) == {p for p in WORLD if p // grid in cells}
    assert is_normal(a.outward(grid))


@given(positions, st.integers(1, 17))
def test_edges_of_a_grid_are_the_nearest_multiples(position: int, grid: int) -> None:
    assert down(position, grid) == position // grid * grid
    assert up(position, grid) == -(-position // grid) * grid


def test_endless_positions_are_on_every_grid() -> None:
    assert (down(MIN_POSITION, 7), up(MAX_POSITION, 7)) == (MIN_POSITION, MAX_POSITION)
    assert ranges((MIN_POSITION, 10)).outward(7) == ranges((MIN_POSITION, 14))


def test_touching_ranges_are_one() -> None:
    assert ranges((0, 5), (5, 9), (20, 10)) == ranges((0, 9))
    assert ranges((0, 5)) | ranges((5, 9)) == ranges((0, 9))


def test_an_empty_interval_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="empty interval"):
        Interval(3, 3)


def test_a_set_knows_its_size_and_its_ends() -> None:
    found = ranges((-5, 0), (10, 12))
    assert (found.size, found.first, found.end, len(found), str(found)) == (7, -5, 12, 2, "[-5, 0), [10, 12)")
    assert (NOTHING.first, NOTHING.end, str(NOTHING), bool(NOTHING)) == (None, None, "nothing", False)


def test_b2_a_hole_inside_the_range_is_not_covered() -> None:
    assert not ranges((200, 260), (300, 400)).covers(Interval(240, 360))
    assert ranges((240, 360)) == IntervalSet.of([Interval(240, 360)])
    assert ranges((240, 360)) - ranges((200, 260), (300, 400)) == ranges((260, 300))


def test_a_min_and_max_test_in_place_of_covers_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control of B-2."""
    monkeypatch.setattr(IntervalSet, "covers", lambda self, one: self.first <= one.start and one.end <= self.end)
    assert ranges((200, 260), (300, 400)).covers(Interval(240, 360))
    with pytest.raises(AssertionError):
        test_b2_a_hole_inside_the_range_is_not_covered()


def test_few_ranges_are_cut_out_of_many_the_same_way_as_many_out_of_many() -> None:
    many = IntervalSet(tuple(edge for i in range(5000) for edge in (10 * i, 10 * i + 5)))
    few = ranges((3, 21), (49_000, 60_000))
    shared = few & many
    assert shared.edges[:6] == (3, 5, 10, 15, 20, 21)
    assert shared | (many - few) == many


@given(st.lists(interval_sets, max_size=8))
def test_a_position_belongs_to_the_first_set_that_has_it(sets: list[IntervalSet]) -> None:
    seen = IntervalSet()
    for one, left in zip(sets, newest(sets), strict=True):
        assert left == one - seen
        seen |= one


@given(interval_sets)
def test_backwards_is_the_same_the_other_way_round(one: IntervalSet) -> None:
    assert list(reversed(one)) == list(one)[::-1]


def test_who_asks_for_the_last_parts_makes_no_more_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    many = IntervalSet(tuple(range(100_000)))
    sound = Interval.__post_init__
    monkeypatch.setattr(Interval, "__post_init__", lambda self: (made.append(1), sound(self))[1])
    assert next(iter(reversed(many))) == Interval(99_998, 99_999)
    assert len(made) == 2, "the one that was asked for and the one it is compared with"
