"""What every engine promises of models that only ever add rows; a test file gives the fixture `harness`."""

from __future__ import annotations

import pytest
from engine_contract import NONE, OTHER, numbers, published, stored
from engine_harness import COPY, EngineHarness, build, run, silently

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


def appending(
    harness: EngineHarness, *chunks: tuple[int, int], key: tuple[str, ...] = ("value",), **settings: object
) -> Job:
    return build(harness, *chunks, unique_key=key, **settings)  # type: ignore[arg-type]


class Died(Exception):  # noqa: N818  it stands for a crash
    pass


class AppendContract:
    """Every test has forty numbers to read: n from 0 to 39, and seven times n."""

    @pytest.fixture(autouse=True)
    def _forty_numbers(self, harness: EngineHarness) -> None:
        harness.land("numbers", numbers(*range(40)))

    # only what is not stored yet

    def test_an_append_adds_the_rows_of_its_chunks(self, harness: EngineHarness) -> None:
        commit = run(harness, appending(harness, (0, 10), (10, 20)))
        assert [(c.interval, c.rows, c.changed) for c in commit.chunks] == [
            (Interval(0, 10), 10, True),
            (Interval(10, 20), 10, True),
        ]
        assert (commit.snapshot, commit.written, commit.changed) == (1, True, ranges((0, 20)))
        assert stored(harness) == numbers(*range(20))

    def test_a_replay_adds_no_row_and_makes_no_commit(self, harness: EngineHarness) -> None:
        first = run(harness, appending(harness, (0, 10), (10, 20)))
        again = run(harness, appending(harness, (0, 10), (10, 20)))
        assert (again.snapshot, again.written, bool(again.changed)) == (first.snapshot, False, False)
        assert [c.rows for c in again.chunks] == [10, 10]
        assert stored(harness) == numbers(*range(20))

    def test_of_a_replay_only_what_is_new_is_added(self, harness: EngineHarness) -> None:
        run(harness, appending(harness, (0, 10), (10, 20), key=("n", "value")))
        harness.land("numbers", [(14, -1)])
        commit = run(harness, appending(harness, (0, 10), (10, 20), key=("n", "value")))
        assert [(c.rows, c.changed) for c in commit.chunks] == [(10, False), (11, True)]
        assert commit.changed == ranges((14, 15))
        assert stored(harness) == sorted([*numbers(*range(20)), (14, -1)])

    def test_the_stored_row_wins(self, harness: EngineHarness) -> None:
        run(harness, appending(harness, (0, 10), key=("n",)))
        assert not run(harness, appending(harness, (0, 10), key=("n",), sql=OTHER)).written
        assert stored(harness) == numbers(*range(10))

    def test_a_key_is_looked_for_in_the_rows_of_other_intervals(self, harness: EngineHarness) -> None:
        run(harness, appending(harness, (0, 3), sql=FIVES))
        run(harness, appending(harness, (30, 40), sql=FIVES))
        assert not run(harness, appending(harness, (10, 20), sql=FIVES)).written
        assert stored(harness) == [(0, 0), (1, 1), (2, 2), (33, 3), (34, 4)]

    def test_of_rows_with_one_key_in_a_result_the_first_is_taken(self, harness: EngineHarness) -> None:
        commit = run(harness, appending(harness, (10, 20), (20, 30), sql=FIVES))
        assert stored(harness) == [(10, 0), (11, 1), (12, 2), (13, 3), (14, 4)]
        assert [(c.rows, c.changed) for c in commit.chunks] == [(10, True), (10, False)]
        harness.land("numbers", [(35, -1), (35, -2), (35, -3)])
        run(harness, appending(harness, (35, 36), key=("n",)))
        assert [row for row in stored(harness) if row[0] == 35] == [(35, -3)]

    def test_a_null_is_a_key_like_any_other(self, harness: EngineHarness) -> None:
        run(harness, appending(harness, (0, 10), sql=HALVES))
        assert stored(harness) == [(0, 0), (1, None)]
        assert not run(harness, appending(harness, (10, 20), sql=HALVES)).written

    def test_a_key_of_several_columns_is_one_key(self, harness: EngineHarness) -> None:
        run(harness, appending(harness, (0, 4), sql=MIXED, key=("value", "other")))
        run(harness, appending(harness, (4, 20), sql=MIXED, key=("value", "other")))
        assert [row[:1] for row in stored(harness)] == [(n,) for n in range(6)]
        nulls = "select n, nullif(n % 2, 1) as value, nullif(n % 3, 2) as other from {numbers}"
        for chunk in ((0, 20), (20, 40)):
            run(harness, appending(harness, chunk, sql=nulls, key=("value", "other"), table="nulls"))
        assert len(harness.rows("nulls")) == 6

    def test_files_that_straddle_the_chunk_are_left_alone(self, harness: EngineHarness) -> None:
        run(harness, appending(harness, (0, 30), sql=WITHOUT_15))
        staged = harness.engine.stage(appending(harness, (10, 20)), silently)
        assert (staged.replaced, staged.kept) == ((), ())
        published(harness.engine.publish(staged, silently))
        assert stored(harness) == numbers(*range(30))

    def test_an_empty_result_adds_nothing(self, harness: EngineHarness) -> None:
        assert not run(harness, appending(harness, (0, 10), sql=NONE)).written
        run(harness, appending(harness, (0, 10)))
        commit = run(harness, appending(harness, (0, 10), sql=NONE))
        assert (commit.written, bool(commit.changed)) == (False, False)
        assert stored(harness) == numbers(*range(10))

    def test_a_column_more_is_added_with_the_rows(self, harness: EngineHarness) -> None:
        run(harness, appending(harness, (0, 2)))
        run(harness, appending(harness, (0, 4), sql="select n, value, n + 1 as more from {numbers}"))
        assert stored(harness) == [(None, 0, 0), (None, 1, 7), (3, 2, 14), (4, 3, 21)]

    # what is no longer given

    def test_what_vanished_is_kept(self, harness: EngineHarness) -> None:
        run(harness, appending(harness, (0, 30)))
        assert not run(harness, appending(harness, (10, 20), sql=WITHOUT_15)).written
        assert stored(harness) == numbers(*range(30))

    def test_what_vanished_is_retracted_where_that_is_asked_for(self, harness: EngineHarness) -> None:
        run(harness, appending(harness, (0, 30), retract=True))
        commit = run(harness, appending(harness, (10, 20), sql=WITHOUT_15, retract=True))
        assert (commit.written, commit.changed) == (True, ranges((15, 16)))
        assert stored(harness) == numbers(*(n for n in range(30) if n != 15))
        assert not run(harness, appending(harness, (10, 20), sql=WITHOUT_15, retract=True)).written

    def test_what_is_still_given_stays_as_it_is_stored(self, harness: EngineHarness) -> None:
        run(harness, appending(harness, (0, 20), key=("n",), retract=True))
        less = "select n, value + 1 as value from {numbers} where n <> 15"
        commit = run(harness, appending(harness, (10, 20), key=("n",), sql=less, retract=True))
        assert commit.changed == ranges((15, 16))
        assert stored(harness) == numbers(*(n for n in range(20) if n != 15))

    def test_an_empty_result_retracts_its_chunk_and_nothing_else(self, harness: EngineHarness) -> None:
        run(harness, appending(harness, (0, 30), retract=True))
        harness.land("copy", [(None, -1)])
        run(harness, appending(harness, (10, 20), sql=NONE, retract=True))
        assert stored(harness) == [(None, -1), *numbers(*range(10), *range(20, 30))]

    def test_a_key_that_moves_within_the_scope_moves_in_one_commit(self, harness: EngineHarness) -> None:
        run(harness, appending(harness, (10, 12), (12, 14), sql="select n, n as value from {numbers} where n = 11",
                                 retract=True))  # fmt: skip
        moved = "select n, n - 1 as value from {numbers} where n = 12"
        commit = run(harness, appending(harness, (10, 12), (12, 14), sql=moved, retract=True))
        assert (commit.snapshot, commit.changed) == (2, ranges((11, 13)))
        assert stored(harness) == [(12, 11)]

    @pytest.mark.parametrize("retract", [False, True])
    def test_b46a_an_alert_of_an_orphaned_block_is_kept_or_retracted(
        self, harness: EngineHarness, retract: bool
    ) -> None:
        """The key names the block by its hash: alerts of the new block are added, those of the orphan may stay."""
        run(harness, appending(harness, (10, 20), retract=retract))
        commit = run(harness, appending(harness, (10, 20), sql=FORKED, retract=retract))
        assert commit.changed == ranges((15, 16))
        orphan, alert = (15, 105), (15, 106)
        assert (alert in stored(harness), orphan in stored(harness)) == (True, not retract)
        assert not run(harness, appending(harness, (10, 20), sql=FORKED, retract=retract)).written

    # all or nothing

    @pytest.mark.parametrize("bad", ["n + 100", "nullif(n, 15)"])
    def test_b53_one_bad_row_among_good_ones_publishes_nothing(self, harness: EngineHarness, bad: str) -> None:
        run(harness, appending(harness, (0, 10)))
        sql = f"select case when n = 15 then {bad} else n end as n, value from {{numbers}}"
        with pytest.raises(QueryError, match="outside"):
            run(harness, appending(harness, (10, 14), (14, 20), (20, 30), sql=sql))
        assert stored(harness) == numbers(*range(10))

    def test_the_query_must_give_the_columns_of_the_key(self, harness: EngineHarness) -> None:
        run(harness, appending(harness, (0, 10)))
        with pytest.raises(QueryError, match="'value'"):
            run(harness, appending(harness, (10, 20), sql="select n from {numbers}"))

    # once and only once

    def test_two_writers_of_the_same_keys_leave_one_row_of_each(self, harness: EngineHarness) -> None:
        jobs = [appending(harness, (0, 10), sql=FIVES), appending(harness, (10, 20), sql=FIVES)]
        first, second = (harness.engine.stage(job, silently) for job in jobs)
        assert published(harness.engine.publish(first, silently)).written
        assert isinstance(harness.engine.publish(second, silently), FileSetChanged)
        again = harness.engine.restage(second, silently)
        assert not published(harness.engine.publish(again, silently)).written
        assert stored(harness) == [(n, n) for n in range(5)]

    def test_a_commit_between_look_up_and_publishing_makes_it_look_again(self, harness: EngineHarness) -> None:
        run(harness, appending(harness, (0, 10)))
        staged = harness.engine.stage(appending(harness, (10, 20)), silently)
        harness.land("copy", [(99, 105), (98, -1)])
        changed = harness.engine.publish(staged, silently)
        assert isinstance(changed, FileSetChanged)
        assert changed.version == 2
        harness.land("numbers", [(12, -5)])  # only the look-up is done again, not the query
        again = harness.engine.restage(staged, silently)
        assert published(harness.engine.publish(again, silently)).changed == ranges((10, 15), (16, 20))
        rest = [row for row in numbers(*range(20)) if row[0] != 15]
        assert stored(harness) == [*rest, (98, -1), (99, 105)]

    def test_a_commit_that_comes_while_publishing_makes_it_look_again(self, harness: EngineHarness) -> None:
        run(harness, appending(harness, (0, 10)))
        staged = harness.engine.stage(appending(harness, (10, 20)), silently)
        landed: list[str] = []

        def step(label: str) -> None:
            if label == "head loaded" and not landed:
                landed.append(label)
                harness.land("copy", [(99, 105)])

        assert isinstance(harness.engine.publish(staged, step), FileSetChanged)

    def test_rows_left_out_are_added_when_the_stored_ones_are_gone(self, harness: EngineHarness) -> None:
        run(harness, appending(harness, (0, 20), retract=True))
        staged = harness.engine.stage(appending(harness, (10, 20)), silently)
        run(harness, appending(harness, (0, 20), sql=NONE, retract=True))
        assert isinstance(harness.engine.publish(staged, silently), FileSetChanged)
        again = harness.engine.restage(staged, silently)
        assert published(harness.engine.publish(again, silently)).written
        assert stored(harness) == numbers(*range(10, 20))

    def test_what_was_committed_before_a_crash_is_adopted(self, harness: EngineHarness) -> None:
        job = appending(harness, (0, 10))

        def step(label: str) -> None:
            if label == "delta committed":
                raise Died

        with pytest.raises(Died):
            run(harness, job, step)
        harness.land("numbers", [(5, -1)])
        again = appending(harness, (0, 10), task=job.task, attempt=2)
        commit = run(harness, again)
        assert (commit.adopted, commit.snapshot, commit.changed) == (True, 1, ranges((0, 10)))
        assert stored(harness) == numbers(*range(10))

    # what an audit finds

    def test_stored_keyed_rows_equal_their_query_by_key(self, harness: EngineHarness) -> None:
        run(harness, appending(harness, (0, 10), (10, 20), key=("n",)))
        for sql in (COPY, OTHER):
            comparison = harness.compare(appending(harness, (0, 10), (10, 20), key=("n",), sql=sql, retract=True))
            assert (comparison.rows_stored, comparison.rows_expected, comparison.missing, comparison.unexpected) == (
                20,
                20,
                0,
                0,
            )

    def test_verification_finds_missing_keyed_rows_and_those_that_should_be_gone(self, harness: EngineHarness) -> None:
        run(harness, appending(harness, (0, 10), (10, 20), sql=WITHOUT_15))
        missing = harness.compare(appending(harness, (0, 10), (10, 20)))
        assert (missing.missing, missing.unexpected, missing.differing) == (1, 0, {Interval(10, 20)})
        less = "select n, value from {numbers} where n <> 15 and n <> 3"
        kept = harness.compare(appending(harness, (0, 10), (10, 20), sql=less))
        assert (kept.missing, kept.unexpected, kept.differing) == (0, 0, frozenset())
        gone = harness.compare(appending(harness, (0, 10), (10, 20), sql=less, retract=True))
        assert (gone.missing, gone.unexpected, gone.differing) == (0, 1, {Interval(0, 10)})

    def test_an_audit_finds_a_key_that_is_stored_twice(self, harness: EngineHarness) -> None:
        run(harness, appending(harness, (0, 10)))
        harness.land("copy", [(4, 21)])
        comparison = harness.compare(appending(harness, (0, 10)))
        assert (comparison.missing, comparison.unexpected, comparison.differing) == (0, 1, {Interval(0, 10)})

    def test_an_audit_finds_a_key_wherever_it_is_stored(self, harness: EngineHarness) -> None:
        run(harness, appending(harness, (0, 10), sql=FIVES))
        run(harness, appending(harness, (10, 20), sql=FIVES))
        comparison = harness.compare(appending(harness, (10, 20), sql=FIVES, retract=True))
        assert (comparison.rows_stored, comparison.rows_expected, comparison.missing, comparison.unexpected) == (
            0,
            5,
            0,
            0,
        )


class AppendControls:
    """Without the mechanism that keeps it, a key is stored twice."""

    @pytest.fixture(autouse=True)
    def _forty_numbers(self, harness: EngineHarness) -> None:
        harness.land("numbers", numbers(*range(40)))

    def test_with_a_blind_look_up_a_replay_stores_every_row_twice(
        self, harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run(harness, appending(harness, (0, 10)))
        harness.blind(monkeypatch)
        run(harness, appending(harness, (0, 10)))
        assert len(stored(harness)) == 20

    def test_without_the_look_at_the_head_two_writers_store_a_key_twice(
        self, harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        harness.trust(monkeypatch)
        some = [harness.engine.stage(appending(harness, chunk, sql=FIVES), silently) for chunk in ((0, 10), (10, 20))]
        for staged in some:
            published(harness.engine.publish(staged, silently))
        assert len(stored(harness)) == 10
