"""Rows that moved in blocks meet by the blocks, and nothing is lost or made up by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pyarrow as pa
import pytest
from fuzzing import effort
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.rows import multisets, runs
from penstock.engine.rows.hints import row_hints
from penstock.engine.rows.multisets import POSITION, Sides, drop_pairs
from penstock.engine.rows.runs import Run, common_runs

ROWS = 4000


def table(numbers: Sequence[int], changed: Sequence[int] = ()) -> pa.Table:
    values = [number % 7 + (number in changed) for number in numbers]
    return pa.table({"n": pa.array(numbers, pa.int64()), "v": pa.array(values, pa.int64())})


def positioned(rows: pa.Table) -> pa.Table:
    return rows.append_column(POSITION, rows.column("n"))


def multiset(rows: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(rows.column(name).to_pylist() for name in ("n", "v")), strict=True))


def in_blocks(numbers: Sequence[int], size: int, order: Random) -> list[int]:
    blocks = [numbers[at : at + size] for at in range(0, len(numbers), size)]
    order.shuffle(blocks)
    return [number for block in blocks for number in block]


def dropped(old: pa.Table, new: pa.Table) -> Sides:
    """What is left, which must differ as the two did."""
    sides = Sides(positioned(old), positioned(new))
    drop_pairs(sides)
    before, after = multiset(new), multiset(sides.came)
    before.subtract(multiset(old))
    after.subtract(multiset(sides.gone))
    assert {row: count for row, count in before.items() if count} == {row: n for row, n in after.items() if n}
    return sides


def only_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multisets, "FEW_ROWS", 1)
    monkeypatch.setattr(multisets, "_drop_by_hints", lambda _: None)


def test_most_rows_of_blocks_that_moved_are_gone_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    only_runs(monkeypatch)
    moved = in_blocks(range(ROWS), 1000, Random(3))
    left = dropped(table(range(ROWS)), table(moved, changed=[5, 1700, 1701]))
    assert 3 <= left.gone.num_rows < ROWS // 8
    assert left.came.num_rows == left.gone.num_rows


def test_rows_in_no_order_have_no_runs() -> None:
    mixed = in_blocks(range(ROWS), 1, Random(3))
    assert common_runs(table(range(ROWS)), table(mixed)) == []


def test_a_column_of_few_values_has_no_anchors() -> None:
    rows = pa.table({"v": pa.array([1] * ROWS)})
    assert common_runs(rows, rows) == []
    assert common_runs(pa.table({"t": ["a"] * ROWS}), pa.table({"t": ["a"] * ROWS})) == []


def drawn_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any numbers, also the same ones again, in blocks of any length."""
    only_runs(monkeypatch)
    monkeypatch.setattr(runs, "ANCHOR_EVERY", 2)
    monkeypatch.setattr(runs, "FEWEST_ROWS", 2)
    monkeypatch.setattr(runs, "_MOST_UNEVEN", 1000)
    monkeypatch.setattr(multisets, "_BATCH_ROWS", 5)

    @effort(200)
    @given(st.lists(st.integers(0, 12), max_size=60), st.integers(1, 9), st.lists(st.integers(0, 12), max_size=4),
           st.sets(st.integers(0, 12)), st.randoms(use_true_random=False))  # fmt: skip
    def holds(numbers: list[int], size: int, more: list[int], changed: set[int], order: Random) -> None:
        dropped(table(numbers), table([*in_blocks(numbers, size, order), *more], changed=[*changed]))

    holds()


def test_what_is_left_differs_as_before_whatever_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn_blocks(monkeypatch)


def test_control_runs_that_share_rows_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(found: object) -> list[Run]:
        return sorted(found, key=lambda run: run.old)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(runs, "_apart", kept)
    with pytest.raises((AssertionError, pa.ArrowInvalid, ExceptionGroup, IndexError, OverflowError)):
        drawn_blocks(monkeypatch)


def test_control_rows_of_a_run_that_are_not_compared_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        multisets, "equal_rows", lambda a, _: pa.chunked_array([pa.repeat(pa.scalar(True), a.num_rows)])
    )
    with pytest.raises(AssertionError):
        test_most_rows_of_blocks_that_moved_are_gone_at_once(monkeypatch)


def test_a_column_of_a_type_that_is_no_number_is_left_out_of_the_hints() -> None:
    numbers = pa.array([1, 2, 3], pa.int64())
    periods = pa.array([(1, 2, 3), (1, 2, 4), None], pa.month_day_nano_interval())
    amounts = pa.array([1, 2, None], pa.decimal128(9, 2))
    both = pa.table({"n": numbers, "period": periods, "amount": amounts})
    assert row_hints(both, texts=True) == row_hints(pa.table({"n": numbers}), texts=True)
    assert runs._telling_column(pa.table({"period": periods})) is None
