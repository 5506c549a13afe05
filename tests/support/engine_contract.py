"""What every engine promises, whatever it computes with; a test file gives the fixture `harness` and inherits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import uuid4

import pytest
from engine_harness import EngineHarness, build, run, silently

from penstock.engine.commit.publish import FileSetChanged
from penstock.engine.stage.staged import Staged
from penstock.engine.values.job import Digest
from penstock.errors import EngineError, QueryError
from penstock.values.intervals import Interval, ranges
from penstock.values.tasks import Commit

SUMS = "select n - n % 10 as n, sum(value) as value from {numbers} group by n - n % 10"
OTHER = "select n, value + 1 as value from {numbers}"
NONE = "select n, value from {numbers} where n < 0"
BEGUN = "select n, value + {start} as value from {numbers}"
ROLLING = (
    "select a.n, sum(b.value) as value from {numbers} a join {numbers} b on b.n > a.n - 3 and b.n <= a.n group by a.n"
)


def numbers(*positions: int, factor: int = 7) -> list[tuple[int | None, int]]:
    return [(n, n * factor) for n in positions]


def stored(harness: EngineHarness, snapshot: int | None = None) -> list[tuple[object, ...]]:
    return harness.rows("copy", snapshot)


def published(outcome: Commit | FileSetChanged) -> Commit:
    assert isinstance(outcome, Commit), outcome
    return outcome


def straddled(harness: EngineHarness) -> Staged:
    """Staged on three files; then they became one, and rows came."""
    for start in (0, 10, 20):
        run(harness, build(harness, (start, start + 10)))
    staged = harness.engine.stage(build(harness, (10, 20), sql=OTHER), silently)
    harness.compact("copy")
    harness.land("copy", [(15, -1), (25, -1)])
    return staged


class EngineContract:
    """Every test has forty numbers to read: n from 0 to 39, and seven times n."""

    @pytest.fixture(autouse=True)
    def _forty_numbers(self, harness: EngineHarness) -> None:
        harness.land("numbers", numbers(*range(40)))

    # exactly the scope, exactly once

    def test_an_attempt_writes_exactly_its_chunk(self, harness: EngineHarness) -> None:
        job = build(harness, (10, 20))
        commit = run(harness, job)
        assert stored(harness) == numbers(*range(10, 20))
        assert (commit.snapshot, commit.written, commit.adopted, commit.epoch) == (1, True, False, 3)
        assert commit.frontier == job.frontier
        assert [(chunk.interval, chunk.rows, chunk.changed) for chunk in commit.chunks] == [
            (Interval(10, 20), 10, True)
        ]
        assert stored(harness, snapshot=0) == []

    def test_an_attempt_replaces_its_chunk_and_nothing_else(self, harness: EngineHarness) -> None:
        for start in (0, 10, 20):
            run(harness, build(harness, (start, start + 10)))
        commit = run(harness, build(harness, (10, 20), sql=OTHER))
        assert commit.changed == ranges((10, 20))
        others = [(n, n * 7 + (10 <= n < 20)) for n in range(30)]
        assert stored(harness) == others

    def test_an_empty_result_removes_the_old_rows(self, harness: EngineHarness) -> None:
        run(harness, build(harness, (0, 10), (10, 20)))
        commit = run(harness, build(harness, (10, 20), sql=NONE))
        assert (commit.written, commit.changed) == (True, ranges((10, 20)))
        assert stored(harness) == numbers(*range(10))

    def test_an_empty_result_over_nothing_makes_the_table_and_no_commit(self, harness: EngineHarness) -> None:
        commit = run(harness, build(harness, (100, 110)))
        assert (commit.snapshot, commit.written, bool(commit.changed)) == (0, False, False)
        assert stored(harness) == []

    @pytest.mark.parametrize("widened", [True, False])
    def test_a_batch_gives_exactly_the_rows_of_its_chunks(self, harness: EngineHarness, widened: bool) -> None:
        chunks = ((0, 10), (10, 20), (30, 40))
        commit = run(harness, build(harness, *chunks, sql=SUMS, widened=widened))
        assert stored(harness) == [(0, 315), (10, 1015), (30, 2415)]
        assert [(chunk.interval.start, chunk.rows, chunk.changed) for chunk in commit.chunks] == [
            (0, 1, True),
            (10, 1, True),
            (30, 1, True),
        ]
        assert commit.snapshot == 1

    def test_every_query_of_a_batch_has_its_own_bounds(self, harness: EngineHarness) -> None:
        run(harness, build(harness, (0, 10), (20, 30), sql=BEGUN))
        assert stored(harness) == [(n, n * 7 + (n - n % 10)) for n in (*range(10), *range(20, 30))]

    def test_a_query_that_looks_beyond_its_chunk_is_cut_to_it(self, harness: EngineHarness) -> None:
        run(harness, build(harness, (10, 20), sql=ROLLING, look=3))
        assert stored(harness) == [(n, 7 * (n + n - 1 + n - 2)) for n in range(10, 20)]

    # rows that are there already

    def test_equal_rows_are_not_written(self, harness: EngineHarness) -> None:
        first = run(harness, build(harness, (0, 10), (10, 20)))
        second = run(harness, build(harness, (0, 10), (10, 20)))
        assert (second.snapshot, second.written, bool(second.changed)) == (first.snapshot, False, False)
        digests = {chunk.interval: Digest(*chunk.digest) for chunk in first.chunks if chunk.digest}
        third = run(harness, build(harness, (0, 10), (10, 20), digests=digests))
        assert (third.snapshot, third.written) == (first.snapshot, False)

    def test_equal_rows_are_written_where_that_is_asked_for(self, harness: EngineHarness) -> None:
        run(harness, build(harness, (0, 10)))
        assert run(harness, build(harness, (0, 10), deduplicate=False)).written

    def test_of_a_batch_only_the_chunk_that_differs_is_changed(self, harness: EngineHarness) -> None:
        run(harness, build(harness, (0, 10), (10, 20)))
        harness.land("numbers", numbers(14))
        task = uuid4()
        commit = run(harness, build(harness, (0, 10), (10, 20), task=task))
        assert [(chunk.interval.start, chunk.changed) for chunk in commit.chunks] == [(0, False), (10, True)]
        assert (commit.written, commit.changed) == (True, ranges((14, 15)))
        assert harness.engine.find_commit(harness.location("copy"), task) == replace(commit, adopted=True)
        assert stored(harness) == numbers(*sorted([*range(20), 14]))

    # mistakes

    def test_rows_outside_the_chunk_fail_the_attempt(self, harness: EngineHarness) -> None:
        run(harness, build(harness, (0, 30)))
        for sql in ("select n + 5 as n, value from {numbers}", "select nullif(n, 15) as n, value from {numbers}"):
            with pytest.raises(QueryError, match="outside"):
                run(harness, build(harness, (10, 20), sql=sql))
        assert stored(harness) == numbers(*range(30))

    def test_rows_of_one_chunk_in_the_query_of_another_fail_the_batch(self, harness: EngineHarness) -> None:
        sql = "select n + 10 as n, value from {numbers} where n < 5"
        with pytest.raises(QueryError, match="outside"):
            run(harness, build(harness, (0, 10), (10, 20), sql=sql))

    def test_a_wrong_query_is_its_authors_fault(self, harness: EngineHarness) -> None:
        for sql in ("select n, nowhere from {numbers}", "selec n from {numbers}", "select value from {numbers}"):
            with pytest.raises(QueryError):
                run(harness, build(harness, (0, 10), sql=sql))

    def test_a_snapshot_that_is_gone_is_the_engines_fault(self, harness: EngineHarness) -> None:
        job = build(harness, (0, 10))
        (rendering,) = job.renderings
        (read,) = rendering.inputs
        gone = replace(read, pin=replace(read.pin, snapshot=99))
        with pytest.raises(EngineError):
            run(harness, replace(job, renderings=(replace(rendering, inputs=(gone,)),)))

    # once and only once

    def test_a_task_that_committed_is_adopted_by_its_next_attempt(self, harness: EngineHarness) -> None:
        job = build(harness, (0, 10))
        first = run(harness, job)
        harness.land("numbers", numbers(5))
        again = build(harness, (0, 10), task=job.task, attempt=2, epoch=9)
        assert run(harness, again) == replace(first, adopted=True)
        assert harness.engine.find_commit(job.location, job.task) == replace(first, adopted=True)
        assert harness.engine.find_commit(job.location, uuid4()) is None
        assert harness.engine.find_commit(harness.location("nowhere"), job.task) is None
        assert stored(harness) == numbers(*range(10))

    def test_a_task_is_adopted_after_others_committed(self, harness: EngineHarness) -> None:
        job = build(harness, (0, 10))
        first = run(harness, job)
        run(harness, build(harness, (0, 10), sql=OTHER))
        assert harness.engine.find_commit(job.location, job.task) == replace(first, adopted=True)

    def test_publishing_twice_what_was_staged_once_adopts(self, harness: EngineHarness) -> None:
        staged = harness.engine.stage(build(harness, (0, 10)), silently)
        first = published(harness.engine.publish(staged, silently))
        assert harness.engine.publish(staged, silently) == replace(first, adopted=True)

    # others at the same table

    def test_disjoint_scopes_staged_from_one_snapshot_both_publish(self, harness: EngineHarness) -> None:
        run(harness, build(harness, (0, 10)))
        some = [harness.engine.stage(build(harness, chunk), silently) for chunk in ((10, 20), (20, 30))]
        outcomes = [published(harness.engine.publish(staged, silently)) for staged in some]
        assert [commit.snapshot for commit in outcomes] == [2, 3]
        assert stored(harness) == numbers(*range(30))

    def test_both_may_make_the_table(self, harness: EngineHarness) -> None:
        some = [harness.engine.stage(build(harness, chunk), silently) for chunk in ((10, 20), (20, 30))]
        assert [staged.base_version for staged in some] == [None, None]
        outcomes = [published(harness.engine.publish(staged, silently)) for staged in some]
        assert [commit.snapshot for commit in outcomes] == [1, 2]

    def test_a_file_that_straddles_the_scope_keeps_its_other_rows(self, harness: EngineHarness) -> None:
        run(harness, build(harness, (0, 30)))
        run(harness, build(harness, (10, 20), sql=NONE))
        assert stored(harness) == numbers(*range(10), *range(20, 30))

    def test_rows_without_a_position_stay_where_they_are(self, harness: EngineHarness) -> None:
        run(harness, build(harness, (0, 10)))
        harness.land("copy", [(None, -1), (5, -1), (15, -1)])
        run(harness, build(harness, (0, 10)))
        assert stored(harness) == [(None, -1), *numbers(*range(10)), (15, -1)]

    def test_when_the_files_moved_the_rows_to_keep_are_staged_again(self, harness: EngineHarness) -> None:
        staged = straddled(harness)
        changed = harness.engine.publish(staged, silently)
        assert isinstance(changed, FileSetChanged)
        assert (changed.version, len(changed.live)) == (5, 2)
        assert not set(changed.live) & set(staged.replaced)
        again = harness.engine.restage(staged, silently)
        assert set(again.replaced) == set(changed.live)
        commit = published(harness.engine.publish(again, silently))
        assert commit.changed == ranges((10, 20))
        middle = [(n, n * 7 + 1) for n in range(10, 20)]
        assert stored(harness) == sorted([*numbers(*range(10)), *middle, *numbers(*range(20, 30)), (25, -1)])

    def test_equal_rows_restore_what_another_program_damaged(self, harness: EngineHarness) -> None:
        first = run(harness, build(harness, (0, 10)))
        digests = {chunk.interval: Digest(*chunk.digest) for chunk in first.chunks if chunk.digest}
        staged = harness.engine.stage(build(harness, (0, 10), digests=digests), silently)
        harness.land("copy", [(5, -1)])
        assert isinstance(harness.engine.publish(staged, silently), FileSetChanged)
        again = harness.engine.restage(staged, silently)
        assert published(harness.engine.publish(again, silently)).written
        assert stored(harness) == numbers(*range(10))

    def test_a_commit_that_comes_between_elsewhere_costs_a_round_only(self, harness: EngineHarness) -> None:
        run(harness, build(harness, (0, 10)))
        staged = harness.engine.stage(build(harness, (10, 20)), silently)
        labels: list[str] = []

        def step(label: str) -> None:
            labels.append(label)
            if labels == ["head loaded"]:
                harness.land("copy", [(99, -1)])

        commit = published(harness.engine.publish(staged, step))
        assert labels == ["head loaded", "head loaded", "delta committed"]
        assert commit.snapshot == 3
        assert stored(harness) == [*numbers(*range(20)), (99, -1)]

    # what is read

    def test_a_pinned_read_does_not_see_later_rows(self, harness: EngineHarness) -> None:
        job = build(harness, (0, 10))
        harness.land("numbers", numbers(3, 4))
        run(harness, job)
        assert stored(harness) == numbers(*range(10))
        run(harness, build(harness, (0, 10)))
        assert stored(harness) == numbers(*sorted([*range(10), 3, 4]))

    def test_rows_that_come_while_an_attempt_runs_are_not_read(self, harness: EngineHarness) -> None:
        landed: list[str] = []

        def step(label: str) -> None:
            if not landed:
                landed.append(label)
                harness.land("numbers", numbers(3, 4))

        run(harness, build(harness, (0, 10)), step)
        assert landed
        assert stored(harness) == numbers(*range(10))

    def test_a_snapshot_once_read_never_changes(self, harness: EngineHarness) -> None:
        happenings: Sequence[Callable[[], object]] = (
            lambda: run(harness, build(harness, (0, 30))),
            lambda: run(harness, build(harness, (10, 20), sql=OTHER)),
            lambda: harness.land("copy", [(15, -1)]),
            lambda: harness.compact("copy"),
            lambda: run(harness, build(harness, (0, 10), sql=NONE)),
        )
        read: dict[int, list[tuple[object, ...]]] = {}
        for happening in happenings:
            happening()
            snapshot = harness.pin("copy").snapshot
            assert snapshot is not None
            read[snapshot] = stored(harness, snapshot=snapshot)
            for earlier, rows in read.items():
                assert stored(harness, snapshot=earlier) == rows
        assert len({str(rows) for rows in read.values()}) == 4  # compacting changes no row

    def test_a_column_more_is_null_in_older_rows(self, harness: EngineHarness) -> None:
        run(harness, build(harness, (0, 2)))
        run(harness, build(harness, (2, 4), sql="select n, value, n + 1 as more from {numbers}"))
        assert stored(harness) == [(None, 0, 0), (None, 1, 7), (3, 2, 14), (4, 3, 21)]
        with pytest.raises(QueryError, match="column"):
            run(harness, build(harness, (0, 2), sql="select n, value, 1 as b from {numbers}", add_columns=False))

    # ending early

    def test_a_cancelled_attempt_is_not_staged(self, harness: EngineHarness) -> None:
        job = build(harness, (0, 10))
        harness.engine.cancel(job.task, 1)
        with pytest.raises(EngineError):
            harness.engine.stage(job, silently)

    def test_an_attempt_that_is_cancelled_while_it_runs_ends_with_an_error(self, harness: EngineHarness) -> None:
        job = build(harness, (0, 10))
        labels: list[str] = []

        def step(label: str) -> None:
            labels.append(label)
            harness.engine.cancel(job.task, 1)

        with pytest.raises(EngineError):
            harness.engine.stage(job, step)
        assert labels

    def test_a_cancelled_attempt_is_not_published_but_the_next_one_is(self, harness: EngineHarness) -> None:
        run(harness, build(harness, (0, 10)))
        job = build(harness, (0, 10), sql=OTHER)
        staged = harness.engine.stage(job, silently)
        harness.engine.cancel(job.task, 1)
        with pytest.raises(EngineError):
            harness.engine.publish(staged, silently)
        with pytest.raises(EngineError):
            harness.engine.restage(staged, silently)
        assert harness.engine.find_commit(job.location, job.task) is None
        assert stored(harness) == numbers(*range(10))
        assert run(harness, replace(job, attempt=2)).written


class Controls:
    """Without the mechanism that keeps it, a promise is broken; both lie in what all Delta engines share."""

    @pytest.fixture(autouse=True)
    def _forty_numbers(self, harness: EngineHarness) -> None:
        harness.land("numbers", numbers(*range(40)))

    def test_without_adoption_a_task_commits_twice(
        self, harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        harness.forget(monkeypatch)
        job = build(harness, (0, 10))
        first = run(harness, job)
        harness.land("numbers", numbers(5))
        second = run(harness, build(harness, (0, 10), task=job.task, attempt=2))
        assert (second.adopted, second.snapshot) == (False, first.snapshot + 1)

    def test_without_the_look_at_the_files_rows_of_others_survive_in_the_scope(
        self, harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        harness.trust(monkeypatch)
        published(harness.engine.publish(straddled(harness), silently))
        assert (15, -1) in stored(harness)
