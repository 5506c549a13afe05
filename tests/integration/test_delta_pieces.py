"""The pieces that files are cut into."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.stage import file_parts as parts
from penstock.values.intervals import Interval, IntervalSet


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 6)), min_size=1, max_size=5),
    st.integers(0, 60_000_000),
    st.none() | st.integers(0, 10**10),
)
def test_pieces_are_cut_at_edges_of_chunks_and_never_span_a_gap(
    runs: list[tuple[int, int]], rows: int, size: int | None
) -> None:
    at, chunks = 0, list[Interval]()
    for gap, count in runs:
        at += gap * 10
        chunks += [Interval(at + 10 * one, at + 10 * one + 10) for one in range(count)]
        at += 10 * count
    run = IntervalSet.of(chunks)
    found = parts.pieces(run, chunks, rows, size)
    assert IntervalSet.of(found) == run
    assert all(one.end <= other.start for one, other in pairwise(found))
    edges = {edge for chunk in chunks for edge in (chunk.start, chunk.end)}
    assert {edge for one in found for edge in (one.start, one.end)} <= edges
    assert all(len(IntervalSet.of([one])) == 1 and run.covers(one) for one in found)
    assert len(found) <= parts.MOST_PIECES + len(run)
    if rows <= parts.PIECE_ROWS and (size or 0) <= parts.PIECE_BYTES:
        assert found == run.parts


def test_what_is_made_of_many_rows_is_many_files() -> None:
    hours = [Interval(at * 3600, at * 3600 + 3600) for at in range(200)]
    run = IntervalSet.of(hours)
    found = parts.pieces(run, hours, 10_000_000, None)
    assert [one.size for one in found] == [20 * 3600] * 10
    assert len(parts.pieces(run, hours, 10**9, None)) <= parts.MOST_PIECES
