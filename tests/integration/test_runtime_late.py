"""What others change in a source after it was read, and what of our tables is computed again because of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deployment import Deployment, commit
from inline_vectors import delete_by_vector

from penstock.engine.observe import changes
from penstock.engine.observe import file_rows as touched
from penstock.planner.change import source_changes
from penstock.planner.change.source_changes import classified
from penstock.runtime.observe.sources import Observer, SourceObservation
from penstock.runtime.redo.rerun import record, request
from penstock.runtime.work import attempt as work
from penstock.values.changes import UNCHANGED, Changed
from penstock.values.intervals import EVERYTHING, Interval, IntervalSet, ranges
from penstock.values.models import Source
from penstock.values.records import SourceRecord
from penstock.values.tasks import Order

COPY = "select n, value from {{ ref('raw.numbers') }}"
CHAIN = {
    "copy": (COPY, "interval: 10"),
    "pairs": ("select n, value + 1 as value from {{ ref('t.copy') }}", "interval: 20"),
    "sums": (
        "select n - n % 20 as n, sum(value) as value from {{ ref('t.pairs') }} group by 1",
        "interval: {max: 40, min: 1, align: 20}",
    ),
    "last": ("select n, value * 2 as value from {{ ref('t.sums') }}", "interval: 20"),
}


@pytest.fixture
def trial(tmp_path: Path, dsn: str) -> Deployment:
    """A chain of four over a hundred and twenty numbers."""
    made = Deployment.empty(tmp_path, dsn)
    made.source("numbers")
    for name, (sql, matter) in CHAIN.items():
        made.model(name, sql, matter)
    made.land("numbers", range(120))
    assert made.run().failed == 0
    return made


def table(trial: Deployment, name: str = "numbers") -> DeltaTable:
    return DeltaTable(str(trial.landing(name)))


def source(trial: Deployment, name: str = "numbers") -> SourceRecord:
    with trial.opened() as workspace:
        return workspace.state.views.whole().sources[f"raw.{name}"]


def again(trial: Deployment, name: str) -> IntervalSet:
    """What of a table was computed again."""
    repairs = [task for task in trial.tasks(name) if task.lane == "repair"]
    assert all(task.state == "succeeded" for task in repairs)
    return IntervalSet.of(chunk for task in repairs for chunk in task.order.chunks)


def is_right(trial: Deployment) -> bool:
    """Every table of the chain holds what its query gives of the source as it is now."""
    rows = [(row["n"], row["value"]) for row in table(trial).to_pyarrow_table().to_pylist()]
    covered = trial.covered("sums")
    sums: dict[int, int] = {}
    for n, value in rows:
        if n in covered:
            sums[n - n % 20] = sums.get(n - n % 20, 0) + value + 1
    assert trial.rows("copy") == sorted(rows)
    assert trial.rows("pairs") == sorted((n, value + 1) for n, value in rows)
    assert trial.rows("last") == sorted((n, total * 2) for n, total in sums.items())
    return trial.stale("copy") == trial.stale("last") == ranges()


def test_b_23_a_late_row_is_computed_into_the_chunks_it_belongs_to_and_into_no_others(trial: Deployment) -> None:
    trial.land("numbers", [57], factor=100)
    assert trial.run().failed == 0
    assert is_right(trial)
    assert again(trial, "copy") == ranges((50, 60))
    assert again(trial, "pairs") == again(trial, "last") == ranges((40, 60))
    assert again(trial, "sums") == ranges((40, 60))
    tasks = len(trial.tasks())
    assert trial.run().tasks == 0
    assert len(trial.tasks()) == tasks


def test_fresh_rows_cause_no_repair(trial: Deployment) -> None:
    for start in (120, 140):
        trial.land("numbers", range(start, start + 20))
        assert trial.run().failed == 0
    assert is_right(trial)
    assert {task.lane for task in trial.tasks()} <= {"forward", "backfill"}


def corrected(trial: Deployment) -> None:
    table(trial).update({"value": "0"}, predicate="n = 33 or n = 34")


def deleted_inside(trial: Deployment) -> None:
    table(trial).delete("n >= 35 and n < 37")


def merged(trial: Deployment) -> None:
    table(trial).delete("n = 36")
    trial.land("numbers", [36, 36], factor=3)
    table(trial).optimize.compact()


def restored(trial: Deployment) -> None:
    trial.land("numbers", [38], factor=3)
    trial.run()
    table(trial).restore(0)


@pytest.mark.parametrize("act", [corrected, deleted_inside, merged, restored])
def test_whatever_others_do_to_a_few_rows_one_chunk_is_computed_again(
    trial: Deployment, act: Callable[[Deployment], None]
) -> None:
    act(trial)
    assert trial.run().failed == 0
    assert is_right(trial)
    assert again(trial, "copy") == ranges((30, 40))
    assert again(trial, "last") == ranges((20, 40))


def tidied(trial: Deployment) -> None:
    table(trial).optimize.compact()
    table(trial).vacuum(0, dry_run=False, enforce_retention_duration=False)


def rewritten_alike(trial: Deployment) -> None:
    table(trial).update({"value": "value"}, predicate="n > 20")
    commit(trial.landing("numbers"), {"n": range(120), "value": [n * 7 for n in range(120)]}, mode="overwrite")


@pytest.mark.parametrize("act", [tidied, rewritten_alike])
def test_rows_that_are_only_stored_anew_cause_nothing(trial: Deployment, act: Callable[[Deployment], None]) -> None:
    act(trial)
    assert trial.run().tasks == 0
    assert source(trial).snapshot == table(trial).version()


def deleted_at_the_new_end(trial: Deployment) -> None:
    table(trial).delete("n >= 95")


def emptied(trial: Deployment) -> None:
    table(trial).delete()


def overwritten(trial: Deployment) -> None:
    commit(trial.landing("numbers"), {"n": range(25, 70), "value": [n * 5 for n in range(25, 70)]}, mode="overwrite")


@pytest.mark.parametrize("act", [deleted_at_the_new_end, emptied, overwritten])
def test_rows_that_are_gone_go_from_every_table(trial: Deployment, act: Callable[[Deployment], None]) -> None:
    act(trial)
    assert trial.run().failed == 0
    assert is_right(trial)


def test_older_files_of_the_same_table_are_everything(trial: Deployment, tmp_path: Path) -> None:
    kept = shutil.copytree(trial.landing("numbers"), tmp_path / "kept")
    for _ in range(2):
        trial.land("numbers", [5], factor=9)
    trial.run()
    shutil.rmtree(trial.landing("numbers"))
    shutil.copytree(kept, trial.landing("numbers"))
    with trial.opened() as workspace:
        view = workspace.state.views.whole()
        (observation,) = Observer(workspace.resolver, None, workspace.environ).look(["raw.numbers"], view)
    assert isinstance(observation, SourceObservation)
    assert (observation.record.snapshot, observation.changed.ranges) == (0, EVERYTHING)


# retention


def test_b_5_a_first_row_that_moves_up_causes_no_work(trial: Deployment) -> None:
    before = {name: trial.rows(name) for name in CHAIN}
    for first in range(7, 97, 30):
        table(trial).delete(f"n < {first}")
        assert trial.run().tasks == 0
        assert (source(trial).min_pos, source(trial).expired_pos) == (first, first)
    assert {name: trial.rows(name) for name in CHAIN} == before
    assert trial.covered("copy") == ranges((0, 120))
    trial.land("numbers", [113, 120])
    trial.run()
    assert again(trial, "copy") == ranges((110, 120))
    assert trial.rows("copy") == sorted([*before["copy"], (113, 113 * 7)])


def test_control_without_the_rule_for_retention_history_is_emptied(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_counts(found: changes.LogChanges, *_: object) -> source_changes.SourceChanges:
        return source_changes.SourceChanges(Changed(found.ranges), None)

    monkeypatch.setattr("penstock.runtime.observe.sources.classified", all_counts)
    table(trial).delete("n < 50")
    assert trial.run().tasks > 0
    assert len(trial.rows("copy")) == 70


def test_late_rows_and_retention_in_one_look(trial: Deployment) -> None:
    trial.land("numbers", [3, 77], factor=100)
    table(trial).delete("n < 20")
    assert trial.run().failed == 0
    assert again(trial, "copy") == ranges((70, 80))
    assert len(trial.rows("copy")) == 121


@pytest.fixture
def copied(tmp_path: Path, dsn: str) -> Deployment:
    """A copy of a hundred and twenty numbers, which lie in one file."""
    made = Deployment.empty(tmp_path, dsn)
    made.source("numbers")
    made.model("copy", COPY, "interval: 10")
    made.land("numbers", range(120))
    assert made.run().failed == 0
    return made


def positions(trial: Deployment) -> list[int]:
    return [row[0] for row in trial.rows("copy")]


def test_a_late_row_after_retention_does_not_make_it_a_delete_and_a_restore_undoes_it(copied: Deployment) -> None:
    table(copied).delete("n < 50")
    copied.land("numbers", [3], factor=100)
    assert copied.run().tasks == 0
    assert (source(copied).min_pos, source(copied).expired_pos) == (3, 50)
    table(copied).delete("n < 55")
    assert copied.run().tasks == 0
    assert source(copied).expired_pos == 55
    assert positions(copied) == list(range(120))
    table(copied).restore(0)
    assert copied.run().failed == 0
    assert source(copied).expired_pos is None
    copied.land("numbers", [5], factor=100)
    assert copied.run().failed == 0
    assert copied.rows("copy") == sorted(
        (row["n"], row["value"]) for row in table(copied).to_pyarrow_table().to_pylist()
    )


def test_a_late_row_above_what_has_expired_changes_no_row_that_looked_back_below_it(copied: Deployment) -> None:
    looks = "join {{ ref('raw.numbers') }} b on b.n > a.n - 5 and b.n <= a.n"
    copied.model(
        "rolling",
        f"select a.n, count(b.n) as value from {{{{ ref('raw.numbers') }}}} a {looks} group by a.n",
        "interval: 10\ndependencies: [{model: raw.numbers, before: 5}]",
    )
    copied.run()
    before = copied.rows("rolling")
    DeltaTable(str(copied.landing("numbers"))).delete("n < 50")
    copied.run()
    copied.land("numbers", [57, 65])
    copied.run()
    after = copied.rows("rolling")
    assert [row for row in after if row[0] < 60] == [row for row in before if row[0] < 60]
    assert [row for row in after if row[0] >= 60] != [row for row in before if row[0] >= 60], "others are repaired"
    shown = copied.status("t.rolling")
    assert shown["stale"] == [[50, 60]]
    assert "its rows before 50 have expired" in str(shown["reason"])


def test_rows_that_come_below_what_has_expired_are_counted_and_reported_and_nothing_is_computed(
    copied: Deployment,
) -> None:
    DeltaTable(str(copied.landing("numbers"))).delete("n < 50")
    copied.run()
    assert source(copied).expired_pos == 50
    assert source(copied).ignored_since is None, "what retention takes is not late"
    done = copied.tasks()
    copied.land("numbers", [3, 7])
    copied.run()
    first = source(copied)
    assert (first.ignored_rows, first.ignored_since is not None) == (2, True)
    copied.land("numbers", [8, 60])
    copied.run()
    assert (source(copied).ignored_rows, source(copied).ignored_since) == (3, first.ignored_since)
    shown = copied.status("raw.numbers")
    assert (shown["health"], shown["ignored_rows"]) == ("ok", 3)
    assert "3 rows came or changed before 50, which has expired: they are ignored" in str(shown["reason"])
    assert [chunk.start for task in copied.tasks()[len(done) :] for chunk in task.order.chunks] == [60]


def test_nothing_made_of_expired_rows_is_lost_when_nobody_can_tell_what_was_deleted(
    copied: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    table(copied).delete("n < 35")
    with monkeypatch.context() as patch:
        patch.setattr(touched.ReadBudget.__init__, "__defaults__", (100, 1000, 0, 2**20))
        assert copied.run().failed == 0
    assert source(copied).expired_pos == 35
    table(copied).delete("n < 55")
    table(copied).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert copied.run().failed == 0
    assert source(copied).expired_pos == 55
    assert positions(copied) == list(range(120))
    assert again(copied, "copy") == ranges()
    table(copied).delete("n < 65 or n = 77")
    table(copied).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert copied.run().failed == 0
    assert positions(copied) == [n for n in range(120) if n != 77]


def a_repair_whose_rows_expire_before_it_is_claimed(copied: Deployment) -> None:
    before = copied.rows("copy")
    with copied.opened() as workspace:
        record(workspace, request(workspace, workspace.project.graph.interval_model("t.copy"), 10, 20), "test")
        view = workspace.state.views.whole()
        order = Order("t.copy", "repair", (Interval(10, 20),), ("raw.numbers",), "asked for")
        assert workspace.state.queue.enqueue([order], {"t.copy": view.working["t.copy"].no}) == 1
    table(copied).delete("n < 50")
    assert copied.run().failed == 0
    assert copied.rows("copy") == before


def test_what_expired_since_it_was_planned_is_not_computed_from_nothing(copied: Deployment) -> None:
    a_repair_whose_rows_expire_before_it_is_claimed(copied)


def test_control_without_a_second_look_it_would_be(copied: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "recheck", lambda _, order: order)
    with pytest.raises(AssertionError):
        a_repair_whose_rows_expire_before_it_is_claimed(copied)


def test_rows_that_a_vector_hides_at_the_old_end_have_expired(copied: Deployment) -> None:
    delete_by_vector(copied.landing("numbers"), 0, 1, range(50))
    delete_by_vector(copied.landing("numbers"), 1, 2, [*range(60), 77])
    with copied.opened() as workspace:
        view = workspace.state.views.whole()
        known = view.sources["raw.numbers"]
        (observation,) = Observer(workspace.resolver, None, workspace.environ).look(["raw.numbers"], view)
    assert isinstance(observation, SourceObservation)
    assert (known.snapshot, observation.record.snapshot, observation.record.expired_pos) == (0, 2, 50)
    assert observation.changed.ranges == ranges((50, 60), (77, 78))


def deleted(*parts: tuple[int, int], first: int | None, perhaps: tuple[int, int] = (0, 0)) -> changes.CommitChanges:
    return changes.CommitChanges(told(*parts, perhaps), only_deletes=True, taken=ranges(*parts), first=first)


def other(*parts: tuple[int, int], rewinds: bool = False, first: int | None = None) -> changes.CommitChanges:
    return changes.CommitChanges(told(*parts), rewinds=rewinds, first=first)


def told(*parts: tuple[int, int]) -> Changed:
    return Changed(ranges(*parts), tuple((part, part.size) for part in ranges(*parts)))


@pytest.mark.parametrize(
    ("commits", "expired", "expected"),
    [
        ([deleted((0, 20), first=20)], None, (ranges(), 20)),
        ([deleted((0, 5), first=20)], None, (ranges(), 20)),
        ([deleted((0, 20), first=20), deleted((30, 31), first=20)], None, (ranges((30, 31)), 20)),
        ([deleted((0, 20), (30, 31), first=20)], None, (ranges((0, 20), (30, 31)), None)),
        ([deleted((0, 20), (90, 91), first=20)], None, (ranges((90, 91)), 20)),  # nobody has read it
        ([deleted((30, 31), first=20)], None, (ranges((30, 31)), None)),
        ([deleted((0, 50), first=None)], None, (ranges((0, 50)), None)),
        ([deleted((20, 25), first=25)], 20, (ranges(), 25)),
        ([deleted((3, 4), first=10)], 20, (ranges(), 20)),
        # what cannot be told
        ([deleted(first=20, perhaps=(0, 70))], None, (ranges((20, 70)), 20)),
        ([deleted(first=0, perhaps=(0, 70))], None, (ranges((0, 70)), None)),
        ([deleted((60, 61), first=20, perhaps=(0, 70))], None, (ranges((0, 70)), None)),
        # in their order
        ([other((5, 6), (40, 41)), deleted((0, 20), first=20)], None, (ranges((40, 41)), 20)),
        ([deleted((0, 20), first=20), other((3, 4), (50, 51))], None, (ranges((50, 51)), 20)),
        ([deleted((0, 5), first=5), other((5, 20))], None, (ranges((5, 20)), 5)),
        ([other((3, 4), (50, 51))], 20, (ranges((50, 51)), 20)),
        # rows that come back
        ([other((0, 20), rewinds=True, first=0)], 20, (ranges((0, 20)), None)),
        ([other((10, 25), rewinds=True, first=10)], 20, (ranges((10, 25)), 10)),
        ([other((30, 31), rewinds=True, first=20)], 20, (ranges((30, 31)), 20)),
        ([other((0, 50), rewinds=True, first=None)], 20, (ranges((20, 50)), 20)),
        ([deleted((0, 20), first=20), other((0, 20), rewinds=True, first=0)], None, (ranges((0, 20)), None)),
        ([other((0, 20), rewinds=True, first=0), deleted((0, 30), first=30)], 20, (ranges(), 30)),
    ],
)
def test_what_left_below_the_first_row_has_expired_and_what_left_above_was_deleted(
    commits: list[changes.CommitChanges], expired: int | None, expected: tuple[IntervalSet, int | None]
) -> None:
    now = classified(changes.LogChanges(tuple(commits)), expired, read=ranges((0, 80)))
    assert (now.changed.ranges, now.expired_pos) == expected
    assert all(part.start in now.changed.ranges for part, _ in now.changed.rows)


def test_a_delete_that_also_takes_newer_rows_is_no_retention(trial: Deployment) -> None:
    table(trial).delete("n < 20 or n = 77")
    assert trial.run().failed == 0
    assert again(trial, "copy") == ranges((0, 20), (70, 80))
    assert source(trial).expired_pos is None
    assert is_right(trial)


# looks that fail


def test_a_snapshot_is_not_kept_without_what_changed_up_to_it(trial: Deployment) -> None:
    before = source(trial).snapshot
    trial.land("numbers", [57], factor=100)
    log = trial.landing("numbers") / "_delta_log" / f"{1:020d}.json"
    table(trial).create_checkpoint()
    text = log.read_text()
    log.write_text("{nope")
    assert trial.run().tasks == 0
    assert source(trial).snapshot == before
    assert "cannot be read" in str(trial.status("raw.numbers")["last_error"])
    log.write_text(text)
    assert trial.run().failed == 0
    assert is_right(trial)
    assert trial.status("raw.numbers")["last_error"] is None


def test_control_a_look_that_tells_no_changes_leaves_wrong_rows(
    trial: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "log_changes", lambda *_, **__: changes.NO_CHANGES)
    trial.land("numbers", [57], factor=100)
    assert trial.run().tasks == 0
    with pytest.raises(AssertionError):
        is_right(trial)


# sources with bounds of their own, lookups, and files without a log


def test_late_rows_of_a_source_with_a_bounds_query_are_noticed(trial: Deployment) -> None:
    (trial.root / "models/external/numbers.yml").unlink()
    matter = f'location: "{trial.landing("numbers")}"\nposition: n\naxis: number\nscan: {{incremental: 0, full: 1h}}\n'
    query = "select min(n) as min, max(n) as max from {{ ref('raw.numbers') }} where n >= 0"
    trial.write("models/external/numbers.sql", f"---\n{matter}---\n{query}\n")
    trial.run()
    trial.land("numbers", [57], factor=100)
    table(trial).delete("n < 20")
    assert trial.run().failed == 0
    assert again(trial, "copy") == ranges((50, 60))
    assert source(trial).expired_pos == 20


@pytest.mark.parametrize("asked", [True, False])
def test_a_lookup_reopens_everything_for_those_who_ask(tmp_path: Path, dsn: str, asked: bool) -> None:
    trial = Deployment.empty(tmp_path, dsn)
    trial.source("numbers")
    trial.write("models/external/names.yml", f'location: "{trial.landing("names")}"\n')
    how = "{model: raw.names, on_change: rerun}" if asked else "raw.names"
    query = "select a.n, b.factor from {{ ref('raw.numbers') }} a cross join {{ ref('raw.names') }} b"
    trial.model("named", query, f"interval: 10\ndependencies: [raw.numbers, {how}]")
    trial.land("numbers", range(30))
    commit(trial.landing("names"), {"n": [1], "factor": [2]})
    assert trial.run().failed == 0
    commit(trial.landing("names"), {"n": [1], "factor": [3]}, mode="overwrite")
    assert trial.run().failed == 0
    assert [row[0] for row in trial.rows("named")] == [3 if asked else 2] * 30
    assert again(trial, "named") == (ranges((0, 30)) if asked else ranges())
    table(trial, "names").optimize.compact()
    assert trial.run().tasks == 0


def test_the_newest_stretch_of_what_was_made_of_other_files_is_computed_again_at_each_full_scan(
    tmp_path: Path, dsn: str
) -> None:
    trial = Deployment.empty(tmp_path, dsn)
    trial.source("numbers")
    trial.source(
        "told", "axis: number\nformat: csv\nexec: sh bounds.sh\nrecheck: 15\nscan: {incremental: 0, full: 1h}\n"
    )
    trial.write("bounds.sh", 'echo \'{"min": 0, "max": 59}\'\n')
    trial.model("copy", COPY, "interval: 10\ndependencies: [raw.numbers, raw.told]")
    trial.land("numbers", range(60))
    trial.run()
    assert trial.run().tasks == 0, "no full scan is due"
    assert again(trial, "copy") == ranges()
    trial.move_clock(3601)
    trial.run()
    assert again(trial, "copy") == ranges((40, 60))
    assert trial.run().tasks == 0


def test_what_was_read_of_a_source_reaches_beyond_what_was_made_of_it(trial: Deployment) -> None:
    looks = "interval: 20\ndependencies: [{model: raw.numbers, before: 5, after: 7}]"
    trial.model("wide", COPY, looks)
    trial.run()
    with trial.opened() as workspace:
        view, graph = workspace.state.views.whole(), workspace.project.graph
        numbers = graph.models["raw.numbers"]
        assert isinstance(numbers, Source)
        assert view.working["t.wide"].covered == ranges((0, 100))
        assert source_changes.consumed(numbers, graph, view) == ranges((-5, 120))
        assert source_changes.newest(numbers, graph, view, 15).ranges == ranges((105, 120))
        assert source_changes.newest(numbers, graph, view, 0) == UNCHANGED
