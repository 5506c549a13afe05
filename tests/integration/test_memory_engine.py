"""What the engine in memory does beyond the contract: many threads, long queries, other programs."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from engine_harness import MemoryHarness, build, run, silently
from memory_engine import LABELS

from penstock.engine.values.job import InputRead
from penstock.errors import BadQueryError, ConflictError, EngineError, QueryError
from penstock.values.intervals import EVERYTHING, MIN_POSITION, Interval, IntervalSet, ranges

ENDLESS = "with recursive r(n) as (select 0 union all select n + 1 from r) select max(r.n) as n from r, {numbers}"


@pytest.fixture
def harness() -> MemoryHarness:
    made = MemoryHarness()
    made.land("numbers", [(n, n * 7) for n in range(400)])
    return made


def test_many_threads_publish_to_one_table_and_no_row_is_lost(harness: MemoryHarness) -> None:
    def attempt(start: int) -> None:
        job = build(harness, (start, start + 5))
        for number in range(1, 100):
            try:
                run(harness, replace(job, attempt=number))
            except ConflictError:
                continue
            return

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(attempt, range(0, 400, 5)))
    assert harness.rows("copy") == [(n, n * 7) for n in range(400)]
    assert harness.engine.snapshot(harness.location("copy")).version == 80


def test_a_query_that_runs_ends_when_its_attempt_is_cancelled(harness: MemoryHarness) -> None:
    job = build(harness, (0, 10), sql=ENDLESS)
    begun = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        attempt = pool.submit(harness.engine.stage, job, lambda _: begun.set())
        begun.wait()
        harness.engine.cancel(job.task, job.attempt)
        with pytest.raises(EngineError, match="cancelled"):
            attempt.result(timeout=30)


def test_nothing_is_committed_once_cancel_has_returned(harness: MemoryHarness) -> None:
    run(harness, build(harness, (0, 10)))
    job = build(harness, (10, 20))
    staged = harness.engine.stage(job, silently)

    def step(label: str) -> None:
        if label == "head loaded":
            harness.engine.cancel(job.task, job.attempt)

    with pytest.raises(EngineError, match="cancelled"):
        harness.engine.publish(staged, step)
    assert harness.engine.find_commit(job.location, job.task) is None


def test_the_steps_are_those_of_the_real_engine(harness: MemoryHarness) -> None:
    labels: list[str] = []
    run(harness, build(harness, (0, 10)), labels.append)
    run(harness, build(harness, (10, 20), sql="select n, value, 1 as one from {numbers}"), labels.append)
    staged = ["planned", "written", "staged"]
    first = [*staged, "table created", "head loaded", "delta committed"]
    assert labels == [*first, *staged, "head loaded", "columns added", "head loaded", "delta committed"]
    assert set(labels) == set(LABELS)


def test_an_attempt_is_staged_once(harness: MemoryHarness) -> None:
    job = build(harness, (0, 10))
    harness.engine.stage(job, silently)
    with pytest.raises(EngineError, match="stages once"):
        harness.engine.stage(job, silently)


def test_a_query_may_fail_for_its_text_or_for_its_data(harness: MemoryHarness) -> None:
    with pytest.raises(BadQueryError, match="no such column"):
        run(harness, build(harness, (0, 10), sql="select n, nowhere from {numbers}"))
    poisoned = "select n, case when n = 13 then raise_error('bad luck') else value end as value from {numbers}"
    run(harness, build(harness, (0, 10), sql=poisoned))
    with pytest.raises(QueryError) as caught:
        run(harness, build(harness, (10, 20), sql=poisoned))
    assert caught.value.divisible
    for sql in ("select n, count(*) from {numbers} group by n", "select n, value, value from {numbers}"):
        with pytest.raises(QueryError, match="no name for a stored column"):
            run(harness, build(harness, (0, 10), sql=sql))


def test_another_table_in_an_old_place_is_not_read_for_it(harness: MemoryHarness) -> None:
    job = build(harness, (0, 10))
    harness.engine.drop(harness.location("numbers"))
    with pytest.raises(EngineError, match="no such table"):
        run(harness, job)
    harness.land("numbers", [(1, 1)])
    with pytest.raises(EngineError, match="no such table"):
        run(harness, replace(job, attempt=2))


def changes(harness: MemoryHarness) -> list[tuple[IntervalSet, IntervalSet]]:
    return [(one.changed, one.expired) for one in harness.engine.snapshots(harness.location("few"))]


def test_others_change_rows_and_every_snapshot_remembers_where(harness: MemoryHarness) -> None:
    place, engine = harness.location("few"), harness.engine
    harness.land("few", [(n, n) for n in range(6)])
    assert engine.delete(place, ranges((3, 4), (100, 200))) == 1
    assert engine.delete(place, ranges((3, 4))) == 1  # nothing is there any more
    assert engine.replace_rows(place, ranges((4, 6)), [{"n": 4, "value": 40}]) == 2
    assert engine.delete(place, ranges((0, 2))) == 3
    harness.land("few", [(None, 9)])
    assert engine.compact(place) == 5
    assert engine.delete(place, EVERYTHING) == 6
    assert harness.rows("few") == []
    assert harness.rows("few", 5) == [(None, 9), (2, 2), (4, 40)]
    assert changes(harness) == [
        (ranges((0, 6)), ranges()),
        (ranges((3, 4)), ranges()),
        (ranges((4, 6)), ranges()),
        (ranges(), ranges((MIN_POSITION, 2))),  # the oldest only expire
        (ranges(), ranges()),
        (ranges(), ranges()),
        (ranges((2, 3), (4, 5)), ranges()),
    ]


def test_a_table_without_positions_is_read_whole(harness: MemoryHarness) -> None:
    place = harness.location("names")
    harness.engine.land(place, [{"id": 1, "name": "a"}], position=None)
    harness.engine.replace_rows(place, EVERYTHING, [{"id": 1, "name": "b"}])
    assert [row[1] for version in (0, 1) for row in harness.engine.rows(place, version)] == ["a", "b"]
    reads = [InputRead("names", "raw.names", harness.pin("names"))]
    assert harness.engine.query("select name from names", reads) == [{"name": "b"}]


def test_a_comparison_tells_which_chunks_differ(harness: MemoryHarness) -> None:
    job = build(harness, (0, 10), (10, 20))
    commit = run(harness, job)
    harness.land("copy", [(15, -1)])
    assert not harness.engine.compare(job, commit.snapshot).differing
    found = harness.engine.compare(job, commit.snapshot + 1)
    assert (found.rows_stored, found.rows_expected, found.missing, found.unexpected) == (21, 20, 0, 1)
    assert found.differing == {Interval(10, 20)}
