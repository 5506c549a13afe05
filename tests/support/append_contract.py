"""What every engine promises of models that only ever add rows; a test file gives the fixture `workbench`."""

from __future__ import annotations

import pytest
from engine_contract import NONE, OTHER, numbers, published, stored
from workbenches import COPY, Workbench, build, run, silently

from penstock.engine.commit.publish import FileSetChanged
from penstock.engine.values.job import Job
from penstock.errors import QueryError
from penstock.values.intervals import Interval, ranges

FIVES = "select n, n % 5 as value from {numbers}"
HALVES = "select n, nullif(n % 2, 1) as value from {numbers}"
MIXED = "select n, n % 2 as value, n % 3 as other from {numbers}"
WITHOUT_15 = "select n, value from {numbers} where n <> 15"
FORKED = "select n, value + case when n = 15 then 1 else 0 end as value from {numbers}"
"""The blocks after a reorganisation: 15 is another block, so its hash is another."""


def appending(bench: Workbench, *chunks: tuple[int, int], key: tuple[str, ...] = ("value",), **more: object) -> Job:
    return build(bench, *chunks, unique_key=key, **more)  # type: ignore[arg-type]


class Died(Exception):  # noqa: N818  it stands for a crash
    pass


class AppendContract:
    """Every test has forty numbers to read: n from 0 to 39, and seven times n."""

    @pytest.fixture(autouse=True)
    def _forty_numbers(self, workbench: Workbench) -> None:
        workbench.land("numbers", numbers(*range(40)))

    # only what is not stored yet

    def test_an_append_adds_the_rows_of_its_chunks(self, workbench: Workbench) -> None:
        commit = run(workbench, appending(workbench, (0, 10), (10, 20)))
        assert [(c.interval, c.rows, c.changed) for c in commit.chunks] == [
            (Interval(0, 10), 10, True),
            (Interval(10, 20), 10, True),
        ]
        assert (commit.snapshot, commit.written, commit.changed) == (1, True, ranges((0, 20)))
        assert stored(workbench) == numbers(*range(20))

    def test_a_replay_adds_no_row_and_makes_no_commit(self, workbench: Workbench) -> None:
        first = run(workbench, appending(workbench, (0, 10), (10, 20)))
        again = run(workbench, appending(workbench, (0, 10), (10, 20)))
        assert (again.snapshot, again.written, bool(again.changed)) == (first.snapshot, False, False)
        assert [c.rows for c in again.chunks] == [10, 10]
        assert stored(workbench) == numbers(*range(20))

    def test_of_a_replay_only_what_is_new_is_added(self, workbench: Workbench) -> None:
        run(workbench, appending(workbench, (0, 10), (10, 20), key=("n", "value")))
        workbench.land("numbers", [(14, -1)])
        commit = run(workbench, appending(workbench, (0, 10), (10, 20), key=("n", "value")))
        assert [(c.rows, c.changed) for c in commit.chunks] == [(10, False), (11, True)]
        assert commit.changed == ranges((14, 15))
        assert stored(workbench) == sorted([*numbers(*range(20)), (14, -1)])

    def test_the_stored_row_wins(self, workbench: Workbench) -> None:
        run(workbench, appending(workbench, (0, 10), key=("n",)))
        assert not run(workbench, appending(workbench, (0, 10), key=("n",), sql=OTHER)).written
        assert stored(workbench) == numbers(*range(10))

    def test_a_key_is_looked_for_in_the_rows_of_other_intervals(self, workbench: Workbench) -> None:
        run(workbench, appending(workbench, (0, 3), sql=FIVES))
        run(workbench, appending(workbench, (30, 40), sql=FIVES))
        assert not run(workbench, appending(workbench, (10, 20), sql=FIVES)).written
        assert stored(workbench) == [(0, 0), (1, 1), (2, 2), (33, 3), (34, 4)]

    def test_of_rows_with_one_key_in_a_result_the_first_is_taken(self, workbench: Workbench) -> None:
        commit = run(workbench, appending(workbench, (10, 20), (20, 30), sql=FIVES))
        assert stored(workbench) == [(10, 0), (11, 1), (12, 2), (13, 3), (14, 4)]
        assert [(c.rows, c.changed) for c in commit.chunks] == [(10, True), (10, False)]
        workbench.land("numbers", [(35, -1), (35, -2), (35, -3)])
        run(workbench, appending(workbench, (35, 36), key=("n",)))
        assert [row for row in stored(workbench) if row[0] == 35] == [(35, -3)]

    def test_a_null_is_a_key_like_any_other(self, workbench: Workbench) -> None:
        run(workbench, appending(workbench, (0, 10), sql=HALVES))
        assert stored(workbench) == [(0, 0), (1, None)]
        assert not run(workbench, appending(workbench, (10, 20), sql=HALVES)).written

    def test_a_key_of_several_columns_is_one_key(self, workbench: Workbench) -> None:
        run(workbench, appending(workbench, (0, 4), sql=MIXED, key=("value", "other")))
        run(workbench, appending(workbench, (4, 20), sql=MIXED, key=("value", "other")))
        assert [row[:1] for row in stored(workbench)] == [(n,) for n in range(6)]
        nulls = "select n, nullif(n % 2, 1) as value, nullif(n % 3, 2) as other from {numbers}"
        for chunk in ((0, 20), (20, 40)):
            run(workbench, appending(workbench, chunk, sql=nulls, key=("value", "other"), table="nulls"))
        assert len(workbench.rows("nulls")) == 6

    def test_files_that_straddle_the_chunk_are_left_alone(self, workbench: Workbench) -> None:
        run(workbench, appending(workbench, (0, 30), sql=WITHOUT_15))
        staged = workbench.engine.stage(appending(workbench, (10, 20)), silently)
        assert (staged.replaced, staged.kept) == ((), ())
        published(workbench.engine.publish(staged, silently))
        assert stored(workbench) == numbers(*range(30))

    def test_an_empty_result_adds_nothing(self, workbench: Workbench) -> None:
        assert not run(workbench, appending(workbench, (0, 10), sql=NONE)).written
        run(workbench, appending(workbench, (0, 10)))
        commit = run(workbench, appending(workbench, (0, 10), sql=NONE))
        assert (commit.written, bool(commit.changed)) == (False, False)
        assert stored(workbench) == numbers(*range(10))

    def test_a_column_more_is_added_with_the_rows(self, workbench: Workbench) -> None:
        run(workbench, appending(workbench, (0, 2)))
        run(workbench, appending(workbench, (0, 4), sql="select n, value, n + 1 as more from {numbers}"))
        assert stored(workbench) == [(None, 0, 0), (None, 1, 7), (3, 2, 14), (4, 3, 21)]

    # what is no longer given

    def test_what_vanished_is_kept(self, workbench: Workbench) -> None:
        run(workbench, appending(workbench, (0, 30)))
        assert not run(workbench, appending(workbench, (10, 20), sql=WITHOUT_15)).written
        assert stored(workbench) == numbers(*range(30))

    def test_what_vanished_is_retracted_where_that_is_asked_for(self, workbench: Workbench) -> None:
        run(workbench, appending(workbench, (0, 30), retract=True))
        commit = run(workbench, appending(workbench, (10, 20), sql=WITHOUT_15, retract=True))
        assert (commit.written, commit.changed) == (True, ranges((15, 16)))
        assert stored(workbench) == numbers(*(n for n in range(30) if n != 15))
        assert not run(workbench, appending(workbench, (10, 20), sql=WITHOUT_15, retract=True)).written

    def test_what_is_still_given_stays_as_it_is_stored(self, workbench: Workbench) -> None:
        run(workbench, appending(workbench, (0, 20), key=("n",), retract=True))
        less = "select n, value + 1 as value from {numbers} where n <> 15"
        commit = run(workbench, appending(workbench, (10, 20), key=("n",), sql=less, retract=True))
        assert commit.changed == ranges((15, 16))
        assert stored(workbench) == numbers(*(n for n in range(20) if n != 15))

    def test_an_empty_result_retracts_its_chunk_and_nothing_else(self, workbench: Workbench) -> None:
        run(workbench, appending(workbench, (0, 30), retract=True))
        workbench.land("copy", [(None, -1)])
        run(workbench, appending(workbench, (10, 20), sql=NONE, retract=True))
        assert stored(workbench) == [(None, -1), *numbers(*range(10), *range(20, 30))]

    def test_a_key_that_moves_within_the_scope_moves_in_one_commit(self, workbench: Workbench) -> None:
        run(workbench, appending(workbench, (10, 12), (12, 14), sql="select n, n as value from {numbers} where n = 11",
                                 retract=True))  # fmt: skip
        moved = "select n, n - 1 as value from {numbers} where n = 12"
        commit = run(workbench, appending(workbench, (10, 12), (12, 14), sql=moved, retract=True))
        assert (commit.snapshot, commit.changed) == (2, ranges((11, 13)))
        assert stored(workbench) == [(12, 11)]

    @pytest.mark.parametrize("retract", [False, True])
    def test_b46a_an_alert_of_an_orphaned_block_is_kept_or_retracted(self, workbench: Workbench, retract: bool) -> None:
        """The key names the block by its hash: alerts of the new block are added, those of the orphan may stay."""
        run(workbench, appending(workbench, (10, 20), retract=retract))
        commit = run(workbench, appending(workbench, (10, 20), sql=FORKED, retract=retract))
        assert commit.changed == ranges((15, 16))
        orphan, alert = (15, 105), (15, 106)
        assert (alert in stored(workbench), orphan in stored(workbench)) == (True, not retract)
        assert not run(workbench, appending(workbench, (10, 20), sql=FORKED, retract=retract)).written

    # all or nothing

    @pytest.mark.parametrize("bad", ["n + 100", "nullif(n, 15)"])
    def test_b53_one_bad_row_among_good_ones_publishes_nothing(self, workbench: Workbench, bad: str) -> None:
        run(workbench, appending(workbench, (0, 10)))
        sql = f"select case when n = 15 then {bad} else n end as n, value from {{numbers}}"
        with pytest.raises(QueryError, match="outside"):
            run(workbench, appending(workbench, (10, 14), (14, 20), (20, 30), sql=sql))
        assert stored(workbench) == numbers(*range(10))

    def test_the_query_must_give_the_columns_of_the_key(self, workbench: Workbench) -> None:
        run(workbench, appending(workbench, (0, 10)))
        with pytest.raises(QueryError, match="'value'"):
            run(workbench, appending(workbench, (10, 20), sql="select n from {numbers}"))

    # once and only once

    def test_two_writers_of_the_same_keys_leave_one_row_of_each(self, workbench: Workbench) -> None:
        jobs = [appending(workbench, (0, 10), sql=FIVES), appending(workbench, (10, 20), sql=FIVES)]
        first, second = (workbench.engine.stage(job, silently) for job in jobs)
        assert published(workbench.engine.publish(first, silently)).written
        assert isinstance(workbench.engine.publish(second, silently), FileSetChanged)
        again = workbench.engine.restage(second, silently)
        assert not published(workbench.engine.publish(again, silently)).written
        assert stored(workbench) == [(n, n) for n in range(5)]

    def test_a_commit_between_look_up_and_publishing_makes_it_look_again(self, workbench: Workbench) -> None:
        run(workbench, appending(workbench, (0, 10)))
        staged = workbench.engine.stage(appending(workbench, (10, 20)), silently)
        workbench.land("copy", [(99, 105), (98, -1)])
        changed = workbench.engine.publish(staged, silently)
        assert isinstance(changed, FileSetChanged)
        assert changed.version == 2
        workbench.land("numbers", [(12, -5)])  # only the look-up is done again, not the query
        again = workbench.engine.restage(staged, silently)
        assert published(workbench.engine.publish(again, silently)).changed == ranges((10, 15), (16, 20))
        rest = [row for row in numbers(*range(20)) if row[0] != 15]
        assert stored(workbench) == [*rest, (98, -1), (99, 105)]

    def test_a_commit_that_comes_while_publishing_makes_it_look_again(self, workbench: Workbench) -> None:
        run(workbench, appending(workbench, (0, 10)))
        staged = workbench.engine.stage(appending(workbench, (10, 20)), silently)
        landed: list[str] = []

        def step(label: str) -> None:
            if label == "head loaded" and not landed:
                landed.append(label)
                workbench.land("copy", [(99, 105)])

        assert isinstance(workbench.engine.publish(staged, step), FileSetChanged)

    def test_rows_left_out_are_added_when_the_stored_ones_are_gone(self, workbench: Workbench) -> None:
        run(workbench, appending(workbench, (0, 20), retract=True))
        staged = workbench.engine.stage(appending(workbench, (10, 20)), silently)
        run(workbench, appending(workbench, (0, 20), sql=NONE, retract=True))
        assert isinstance(workbench.engine.publish(staged, silently), FileSetChanged)
        again = workbench.engine.restage(staged, silently)
        assert published(workbench.engine.publish(again, silently)).written
        assert stored(workbench) == numbers(*range(10, 20))

    def test_what_was_committed_before_a_crash_is_adopted(self, workbench: Workbench) -> None:
        job = appending(workbench, (0, 10))

        def step(label: str) -> None:
            if label == "delta committed":
                raise Died

        with pytest.raises(Died):
            run(workbench, job, step)
        workbench.land("numbers", [(5, -1)])
        again = appending(workbench, (0, 10), task=job.task, attempt=2)
        found = run(workbench, again)
        assert (found.adopted, found.snapshot, found.changed) == (True, 1, ranges((0, 10)))
        assert stored(workbench) == numbers(*range(10))

    # what an audit finds

    def test_stored_facts_equal_their_query_by_key(self, workbench: Workbench) -> None:
        run(workbench, appending(workbench, (0, 10), (10, 20), key=("n",)))
        for sql in (COPY, OTHER):
            found = workbench.compare(appending(workbench, (0, 10), (10, 20), key=("n",), sql=sql, retract=True))
            assert (found.rows_stored, found.rows_expected, found.missing, found.unexpected) == (20, 20, 0, 0)

    def test_an_audit_finds_missing_facts_and_those_that_should_be_gone(self, workbench: Workbench) -> None:
        run(workbench, appending(workbench, (0, 10), (10, 20), sql=WITHOUT_15))
        missing = workbench.compare(appending(workbench, (0, 10), (10, 20)))
        assert (missing.missing, missing.unexpected, missing.differing) == (1, 0, {Interval(10, 20)})
        less = "select n, value from {numbers} where n <> 15 and n <> 3"
        kept = workbench.compare(appending(workbench, (0, 10), (10, 20), sql=less))
        assert (kept.missing, kept.unexpected, kept.differing) == (0, 0, frozenset())
        gone = workbench.compare(appending(workbench, (0, 10), (10, 20), sql=less, retract=True))
        assert (gone.missing, gone.unexpected, gone.differing) == (0, 1, {Interval(0, 10)})

    def test_an_audit_finds_a_key_that_is_stored_twice(self, workbench: Workbench) -> None:
        run(workbench, appending(workbench, (0, 10)))
        workbench.land("copy", [(4, 21)])
        found = workbench.compare(appending(workbench, (0, 10)))
        assert (found.missing, found.unexpected, found.differing) == (0, 1, {Interval(0, 10)})

    def test_an_audit_finds_a_key_wherever_it_is_stored(self, workbench: Workbench) -> None:
        run(workbench, appending(workbench, (0, 10), sql=FIVES))
        run(workbench, appending(workbench, (10, 20), sql=FIVES))
        found = workbench.compare(appending(workbench, (10, 20), sql=FIVES, retract=True))
        assert (found.rows_stored, found.rows_expected, found.missing, found.unexpected) == (0, 5, 0, 0)


class AppendControls:
    """Without the mechanism that keeps it, a key is stored twice."""

    @pytest.fixture(autouse=True)
    def _forty_numbers(self, workbench: Workbench) -> None:
        workbench.land("numbers", numbers(*range(40)))

    def test_with_a_blind_look_up_a_replay_stores_every_row_twice(
        self, workbench: Workbench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run(workbench, appending(workbench, (0, 10)))
        workbench.blind(monkeypatch)
        run(workbench, appending(workbench, (0, 10)))
        assert len(stored(workbench)) == 20

    def test_without_the_look_at_the_head_two_writers_store_a_key_twice(
        self, workbench: Workbench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        workbench.trust(monkeypatch)
        some = [
            workbench.engine.stage(appending(workbench, chunk, sql=FIVES), silently) for chunk in ((0, 10), (10, 20))
        ]
        for staged in some:
            published(workbench.engine.publish(staged, silently))
        assert len(stored(workbench)) == 10
