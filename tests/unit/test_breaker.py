"""When a whole model is at fault: sequences of failures, and how many attempts it takes to be sure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.planner.policy.breaker import (
    MOST_ALIKE,
    Chunks,
    Failed,
    is_hopeless,
    pieces,
    probes,
    signature,
    tries_again,
)
from penstock.values.intervals import Interval

CAST = 't.a: [CAST_INVALID_INPUT] The value \'{}\' of the type "STRING" cannot be cast to "BIGINT"'


def cells(count: int) -> Chunks:
    return tuple(Interval(10 * n, 10 * n + 10) for n in range(count))


def fails(bad: Callable[[Interval], bool], batch: Chunks) -> tuple[int, bool, set[Interval]]:
    """Do a batch until nothing is left or it is hopeless: attempts, whether it was, and what succeeded."""
    queue: deque[tuple[int, Chunks, int | None]] = deque([(1, batch, None)])
    failures: list[Failed] = []
    done: set[Interval] = set()
    attempts, last = 0, 1
    while queue:
        task, chunks, split_from = queue.popleft()
        attempts += 1
        if not (wrong := [chunk for chunk in chunks if bad(chunk)]):
            done |= set(chunks)
            failures.clear()
            continue
        failure = Failed(task, chunks, CAST.format(wrong[0]), split_from)
        if is_hopeless(failure, failures, divisible=True):
            return attempts, True, done
        failures.append(failure)
        if len(chunks) > 1:
            for part in pieces(chunks, probing=split_from is None):
                last += 1
                queue.append((last, part, task))
    return attempts, False, done


def test_a_query_that_fails_in_all_of_300_chunks_is_known_after_four_attempts() -> None:
    assert fails(lambda _: True, cells(300)) == (4, True, set())


@pytest.mark.parametrize("at", [0, 1, 77, 149, 150, 151, 298, 299])
def test_a_single_bad_chunk_of_300_is_isolated_in_a_few_attempts(at: int) -> None:
    batch = cells(300)
    attempts, hopeless, done = fails(lambda chunk: chunk == batch[at], batch)
    assert not hopeless
    assert done == set(batch) - {batch[at]}
    assert attempts <= 24


@given(st.integers(2, 60).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), max_size=n))))
def test_as_long_as_an_end_or_the_middle_is_good_everything_good_gets_done(drawn: tuple[int, set[int]]) -> None:
    size, bad = drawn
    batch = cells(size)
    wrong = {batch[at] for at in bad}
    _, hopeless, done = fails(wrong.__contains__, batch)
    assert hopeless == wrong.issuperset(probes(batch))
    assert hopeless or done == set(batch) - wrong


@given(st.integers(2, 200), st.booleans())
def test_the_parts_of_a_batch_are_the_batch(size: int, probing: bool) -> None:
    batch = cells(size)
    parts = pieces(batch, probing=probing)
    assert sorted(chunk for part in parts for chunk in part) == list(batch)
    assert all(parts)
    assert len(parts) <= 5


def test_a_batch_of_two_is_known_by_both() -> None:
    assert fails(lambda _: True, cells(2)) == (3, True, set())


def test_chunks_that_were_planned_one_by_one_take_ten() -> None:
    alone = [Failed(n, (chunk,), CAST.format(n)) for n, chunk in enumerate(cells(MOST_ALIKE))]
    hopeless = [is_hopeless(one, alone[:n], divisible=True) for n, one in enumerate(alone)]
    assert hopeless == [False] * (MOST_ALIKE - 1) + [True]


def test_one_chunk_that_fails_again_and_again_speaks_for_itself_only() -> None:
    again = [Failed(n, cells(1), CAST.format(n)) for n in range(50)]
    assert not is_hopeless(again[-1], again[:-1], divisible=True)


def test_errors_that_differ_are_not_alike() -> None:
    batch = Failed(1, cells(2), "no such column: a")
    first = Failed(2, cells(2)[:1], "no such column: a", 1)
    assert is_hopeless(Failed(3, cells(2)[1:], "no such column: a", 1), [first, batch], divisible=True)
    assert not is_hopeless(Failed(3, cells(2)[1:], "no such column: b", 1), [first, batch], divisible=True)


def test_what_cannot_be_divided_is_known_at_once() -> None:
    assert is_hopeless(Failed(1, cells(9), "cannot be parsed"), [], divisible=False)


def test_alike_are_errors_that_differ_in_values_and_numbers_only() -> None:
    assert signature(CAST.format("N/A 2026-01-01")) == signature(CAST.format("it's [NOT_A] quote"))
    assert signature(CAST.format(1)) != signature(CAST.format(1).replace("CAST_INVALID_INPUT", "DIVIDE_BY_ZERO"))
    assert signature("cannot take 'a 7'") == signature("cannot take 'b'")
    assert signature("rows outside of [10, 20)") == signature("rows outside of [230, 240)")
    assert signature("no such column: a") != signature("no such column: b")
    outside = "t.a: rows lie outside of {}: hour is {} in one of them"
    batch = outside.format("[2026-01-01, 2026-01-01 05:00), [2026-01-03, 2026-01-04)", "2026-02-02 01:00")
    assert signature(batch) == signature(outside.format("[2026-01-01, 2026-01-02)", "2026-02-02"))
    assert signature(batch) == signature(outside.format("[10, 20)", "NULL"))
    footer = "cannot read the footer of part-00000-{}.snappy.parquet: Request ID: {}"
    assert signature(footer.format("8a1f-cc", "4X7QAB")) == signature(footer.format("77bd-f", "Z9"))
    assert signature("the disk is gone") == signature("the disk is gone\ntries that failed: 3")


def test_a_suspended_model_is_tried_when_an_input_moved_with_growing_pauses() -> None:
    since = datetime(2026, 1, 1, tzinfo=UTC)

    def pause(times: int, *, moved: bool = True, passing: bool = False) -> int:
        later = (since + timedelta(seconds=seconds) for seconds in range(10_000))
        found = (tries_again(since, times, now, moved=moved, passing=passing) for now in later)
        return next(seconds for seconds, tried in enumerate(found) if tried)

    assert [pause(times) for times in range(1, 9)] == [0, 30, 60, 120, 240, 480, 600, 600]
    assert [pause(times, moved=False, passing=True) for times in range(1, 7)] == [30, 60, 120, 240, 480, 600]
    assert [pause(times, passing=True) for times in range(1, 4)] == [0, 30, 60]
    assert not tries_again(since, 1, since + timedelta(days=9), moved=False, passing=False)
