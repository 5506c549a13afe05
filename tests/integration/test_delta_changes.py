"""Where rows changed between two snapshots, as other programs write them with delta-rs."""

from __future__ import annotations

import json
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from fuzzing import effort
from hypothesis import given
from hypothesis import strategies as st
from inline_vectors import delete_by_vector

from penstock.engine.log.handle import UnreadableLog
from penstock.engine.observe import changes, rewrites
from penstock.engine.observe import deletion_vectors as vectors
from penstock.engine.observe import file_rows as touched
from penstock.engine.observe.changes import log_changes
from penstock.engine.rows import changed_ranges
from penstock.engine.values.files import PositionColumn
from penstock.errors import SourceError
from penstock.values.changes import UNCHANGED, LogChanges
from penstock.values.intervals import EVERYTHING, NOTHING, IntervalSet, ranges

N = PositionColumn("n", "number")
FEED = {"delta.enableChangeDataFeed": "true"}


def rows(positions: Iterable[int | None], factor: int = 7) -> pa.Table:
    given = list(positions)
    values = [None if n is None else n * factor for n in given]
    return pa.table({"n": pa.array(given, pa.int64()), "v": pa.array(values, pa.int64())})


def head(root: Path) -> DeltaTable:
    return DeltaTable(str(root))


@pytest.fixture(params=[False, True], ids=["files", "feed"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Forty rows in two files."""
    place = tmp_path / "table"
    write_deltalake(str(place), rows(range(20)), configuration=FEED if request.param else {})
    write_deltalake(str(place), rows(range(20, 40)), mode="append")
    return place


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    place = tmp_path / "table"
    write_deltalake(str(place), rows(range(40)))
    return place


def found(root: Path, after: int | None = None, consumed: IntervalSet = EVERYTHING) -> LogChanges:
    """What the last commit changed, or all commits after one."""
    upto = head(root).version()
    return log_changes(str(root), N, upto - 1 if after is None else after, upto, consumed=consumed)


def late(root: Path) -> None:
    write_deltalake(str(root), rows([13, 13, 35]), mode="append")


def fresh(root: Path) -> None:
    write_deltalake(str(root), rows(range(40, 50)), mode="append")


def overwrite(root: Path) -> None:
    write_deltalake(str(root), rows([*range(10), 25, 60]), mode="overwrite")


def replace_where(root: Path) -> None:
    write_deltalake(str(root), rows([11, 12], 9), mode="overwrite", predicate="n >= 10 and n < 15")


def update(root: Path) -> None:
    head(root).update({"v": "1"}, predicate="n = 20 or n = 23")


def update_to_the_same(root: Path) -> None:
    head(root).update({"v": "v"}, predicate="n > 10")


def move(root: Path) -> None:
    head(root).update({"n": "n + 100"}, predicate="n = 8")


def merge(root: Path) -> None:
    joined = head(root).merge(rows([5, 60], 9), "s.n = t.n", source_alias="s", target_alias="t")
    joined.when_matched_update_all().when_not_matched_insert_all().execute()


def merge_that_deletes(root: Path) -> None:
    joined = head(root).merge(rows(range(20)), "s.n = t.n", source_alias="s", target_alias="t")
    joined.when_matched_delete().execute()


def compact(root: Path) -> None:
    head(root).optimize.compact()


def z_order(root: Path) -> None:
    head(root).optimize.z_order(["v"])


def restore(root: Path) -> None:
    head(root).restore(0)


def nothing_new(root: Path) -> None:
    write_deltalake(str(root), rows([]), mode="append")


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (late, ranges((13, 14), (35, 36))),
        (fresh, ranges((40, 50))),
        (overwrite, ranges((10, 25), (26, 40), (60, 61))),
        (replace_where, ranges((10, 15))),
        (update, ranges((20, 21), (23, 24))),
        (update_to_the_same, NOTHING),
        (move, ranges((8, 9), (108, 109))),
        (merge, ranges((5, 6), (60, 61))),
        (merge_that_deletes, ranges((0, 20))),
        (compact, NOTHING),
        (z_order, NOTHING),
        (restore, ranges((20, 40))),
        (nothing_new, NOTHING),
    ],
)
def test_a_commit_changes_exactly_the_positions_whose_rows_differ(
    root: Path, act: Callable[[Path], None], expected: IntervalSet
) -> None:
    act(root)
    now = found(root)
    assert now.changed.ranges == expected
    assert now.left == ()


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("n = 7", ranges((7, 8))),
        ("n < 3", ranges((0, 3))),
        ("n < 20", ranges((0, 20))),
        ("n > 35", ranges((36, 40))),
        ("n < 3 or n = 25", ranges((0, 3), (25, 26))),
        (None, ranges((0, 40))),
    ],
)
def test_a_delete_is_told_apart_from_other_changes(root: Path, condition: str | None, expected: IntervalSet) -> None:
    head(root).delete(condition)
    now = found(root)
    (left,) = now.left
    assert (now.changed, left.ranges) == (UNCHANGED, expected)
    assert sum(count for _, count in left.rows) == expected.size


def test_a_row_that_becomes_equal_to_another_one_is_told(root: Path) -> None:
    """The change feed of delta-rs leaves it out."""
    head(root).update({"n": "9", "v": "63"}, predicate="n = 8")
    assert found(root).changed.ranges == ranges((8, 10))


def test_rows_are_counted_where_they_changed(root: Path) -> None:
    late(root)
    assert [(part.start, part.end, count) for part, count in found(root).changed.rows] == [(13, 14, 2), (35, 36, 1)]
    update(root)
    assert [(part.start, count) for part, count in found(root).changed.rows] == [(20, 1), (23, 1)]


def test_commits_add_up(root: Path) -> None:
    late(root)
    head(root).delete("n = 13")
    update(root)
    compact(root)
    now = found(root, 1)
    assert now.changed.ranges == ranges((13, 14), (20, 21), (23, 24), (35, 36))
    assert [one.ranges for one in now.left] == [ranges((13, 14))]
    assert found(root, head(root).version()) == changes.NO_CHANGES


# what cannot be read any more


def test_a_commit_that_is_gone_from_the_log_may_have_changed_anything(root: Path) -> None:
    late(root)
    compact(root)
    head(root).create_checkpoint()
    (root / "_delta_log" / f"{2:020d}.json").unlink()
    assert found(root, 1).changed.ranges == EVERYTHING
    assert found(root, 2) == changes.NO_CHANGES


def test_appends_are_still_reported_when_the_snapshot_before_them_is_gone(plain: Path) -> None:
    late(plain)
    head(plain).create_checkpoint()
    fresh(plain)
    (plain / "_delta_log" / f"{0:020d}.json").unlink()
    assert found(plain, 0).changed.ranges == ranges((13, 14), (35, 36), (40, 50))


def test_files_that_are_gone_count_with_the_range_of_their_statistics(root: Path) -> None:
    update(root)
    head(root).vacuum(0, dry_run=False, enforce_retention_duration=False)
    shutil.rmtree(root / "_change_data", ignore_errors=True)
    assert found(root, 1).changed.ranges == ranges((20, 40))


def test_a_file_that_is_gone_and_has_no_statistics_may_have_held_anything(plain: Path) -> None:
    write_deltalake(str(plain), rows(range(50, 60)), mode="append")
    spelled_again(plain, 1, lambda add: add.pop("stats"))
    assert found(plain).changed.ranges == ranges((50, 60)), "its footer tells"
    for file in plain.glob("*.parquet"):
        file.unlink()
    assert found(plain).changed.ranges == EVERYTHING


def test_a_file_that_cannot_be_opened_is_an_error_and_no_silence(plain: Path) -> None:
    late(plain)
    path = plain / str(actions(plain, 1, "add")[0]["path"])
    path.unlink()
    path.mkdir()
    with pytest.raises(SourceError):
        found(plain)


def test_a_log_that_is_no_json_is_an_error(plain: Path) -> None:
    late(plain)
    (plain / "_delta_log" / f"{1:020d}.json").write_text("{nope")
    with pytest.raises(UnreadableLog):
        log_changes(str(plain), N, 0, 1)


# what is not opened


def test_files_that_nobody_has_read_are_not_opened(plain: Path) -> None:
    write_deltalake(str(plain), rows([50, 70]), mode="append")
    for file in plain.glob("*.parquet"):
        file.unlink()
    now = found(plain, consumed=ranges((0, 50)))
    assert now.changed.ranges == ranges((50, 71))
    assert [(part.start, part.end, count) for part, count in now.changed.rows] == [(50, 71, 2)]


def test_beyond_the_cap_a_file_counts_with_its_range(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late(root)
    monkeypatch.setattr(touched.ReadBudget.__init__, "__defaults__", (2, 1000, 1000, 2**20))
    assert found(root).changed.ranges == ranges((13, 36))


def test_an_update_in_a_file_of_ordinary_size_is_reported_row_by_row(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), rows(range(60_000)))
    head(tmp_path).update({"v": "v + 1"}, predicate="n % 10000 = 7")
    now = found(tmp_path).changed
    assert now.ranges == IntervalSet.of((n, n + 1) for n in range(7, 60_000, 10_000))
    assert [count for _, count in now.rows] == [1] * 6
    order = pa.array(range(59_999, -1, -1))
    write_deltalake(str(tmp_path), rows([*range(59_999), 60_000]).take(order), mode="overwrite")
    back = [*range(7, 60_000, 10_000), 59_999, 60_000]
    assert found(tmp_path).changed.ranges == IntervalSet.of((n, n + 1) for n in back)


def test_vectors_beyond_the_budget_are_not_read(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delete_by_vector(plain, 0, 1, range(5, 7))
    assert deletes(plain)[0][1] == ranges((5, 7))
    monkeypatch.setattr(touched.ReadBudget.__init__, "__defaults__", (1000, 1000, 2**20, 0))
    assert deletes(plain)[0][1:] == (NOTHING, ranges((0, 40)))


def test_a_large_rewrite_without_a_feed_counts_with_its_positions(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touched.ReadBudget.__init__, "__defaults__", (1000, 1000, 10, 2**20))
    update(plain)
    assert found(plain).changed.ranges == ranges((0, 40))
    head(plain).delete("n = 7")
    assert [one.ranges for one in found(plain).left] == [ranges((7, 8))], "where rows only left, counting is enough"


def test_a_lookup_has_changed_as_soon_as_a_row_has(root: Path) -> None:
    compact(root)
    assert log_changes(str(root), None, 1, 2) == changes.NO_CHANGES
    fresh(root)
    assert log_changes(str(root), None, 1, 3).changed.ranges == EVERYTHING


def test_a_lookup_whose_columns_went_has_changed_wholly(plain: Path) -> None:
    (metadata,) = actions(plain, 0, "metaData")
    schema = json.loads(str(metadata["schemaString"]))

    def set_columns(version: int, fields: list[object]) -> None:
        now = {**metadata, "schemaString": json.dumps({**schema, "fields": fields})}
        (plain / "_delta_log" / f"{version:020d}.json").write_text(json.dumps({"metaData": now}))

    more = {"name": "w", "type": "long", "nullable": True, "metadata": {}}
    set_columns(1, [*schema["fields"], more])
    assert log_changes(str(plain), None, 0, 1) == changes.NO_CHANGES
    set_columns(2, schema["fields"])
    assert log_changes(str(plain), None, 0, 2).ranges == EVERYTHING


# where the first row is


def deletes(root: Path, after: int | None = None) -> list[tuple[int | None, IntervalSet, IntervalSet]]:
    """The first row after each commit that only deletes, what it certainly took, and what it may have taken."""
    return [(one.first, one.taken, one.changed.ranges) for one in found(root, after).commits if one.only_deletes]


def test_the_first_row_is_reported_for_every_delete_as_it_was_then(root: Path) -> None:
    head(root).delete("n < 3")
    write_deltalake(str(root), rows([1]), mode="append")
    head(root).delete("n = 7")
    compact(root)
    head(root).delete("n < 25")
    head(root).delete()
    seen = [first for first, _, _ in deletes(root, 1)]
    assert seen[0] == 3
    assert (seen[1] or 0) <= 7
    assert seen[2:] == [25, None]


def test_rows_hidden_by_vectors_are_not_the_first(plain: Path) -> None:
    delete_by_vector(plain, 0, 1, range(5))
    delete_by_vector(plain, 1, 2, [*range(5), 7])
    delete_by_vector(plain, 2, 3, [*range(10), 30])
    assert [first for first, _, _ in deletes(plain, 0)] == [5, 5, 10]
    assert [taken for _, taken, _ in deletes(plain, 0)] == [
        ranges((0, 5)),
        ranges((7, 8)),
        ranges((5, 7), (8, 10), (30, 31)),
    ]


def test_files_that_went_whole_at_the_old_end_are_not_opened(plain: Path) -> None:
    write_deltalake(str(plain), rows([50, 52, 53]), mode="append")
    write_deltalake(str(plain), rows([60, 61]), mode="append")
    head(plain).delete("n < 52")
    for name in actions(plain, 0, "add"):
        (plain / str(name["path"])).unlink()
    assert deletes(plain) == [(52, ranges((50, 52)), ranges((0, 40), (50, 52)))]


def test_retention_is_recognised_in_files_of_any_size(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touched.ReadBudget.__init__, "__defaults__", (1, 1000, 0, 2**20))
    head(plain).delete("n < 15")
    delete_by_vector(plain, 1, 2, range(5))
    delete_by_vector(plain, 2, 3, [*range(5), 9])
    below, hidden, inside = deletes(plain, 0)
    assert below == (15, ranges((0, 15)), ranges((0, 15)))
    assert hidden == (20, ranges((15, 20)), ranges((15, 20)))
    assert inside[1:] == (NOTHING, ranges((15, 40))), "one that may have taken any row counts with the whole file"


def test_of_files_that_are_gone_the_rows_went_that_are_not_left(plain: Path) -> None:
    head(plain).delete("n < 15 or n = 20")
    head(plain).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert deletes(plain, 0) == [(15, NOTHING, ranges((0, 15), (20, 21)))]
    before = head(plain).version()
    head(plain).delete("n = 25")
    head(plain).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert deletes(plain, before)[0][1:] == (NOTHING, ranges((15, 40))), "two rows may have been at one position"


def test_of_a_vector_that_cannot_be_read_the_first_row_is_reported_too_high(
    plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_deltalake(str(plain), rows([50]), mode="append")
    delete_by_vector(plain, 0, 2, range(5))
    monkeypatch.setattr(vectors, "vectors", lambda *_: None)
    monkeypatch.setattr(rewrites, "vectors", lambda *_: None)
    assert deletes(plain) == [(40, NOTHING, ranges((0, 40)))]


# kinds of tables

NOON = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp())
FAR = 2**61
MOMENTS = [datetime(2026, 1, 1, 12, tzinfo=UTC) + timedelta(seconds=s) for s in (-0.5, 0, 0.25, 3.999999)]


@pytest.mark.parametrize(
    ("column", "axis", "expected"),
    [
        (pa.array(MOMENTS, pa.timestamp("us", "UTC")), "second", ranges((NOON - 1, NOON + 1), (NOON + 3, NOON + 4))),
        (
            pa.array([moment.replace(tzinfo=None) for moment in MOMENTS], pa.timestamp("us")),
            "second",
            ranges((NOON - 1, NOON + 1), (NOON + 3, NOON + 4)),
        ),
        (pa.array([date(1969, 12, 31), date(1970, 1, 2)]), "second", ranges((-86400, -86399), (86400, 86401))),
        (pa.array([-5, 3, None], pa.int8()), "block", ranges((-5, -4), (3, 4))),
        (pa.array([None, None], pa.int32()), "block", NOTHING),
        (pa.array([-FAR, FAR], pa.int64()), "block", ranges((-FAR, 1 - FAR), (FAR, FAR + 1))),
    ],
    ids=["timestamp", "ntz", "date", "byte", "null", "extremes"],
)
@pytest.mark.parametrize("partitioned", [False, True])
def test_positions_of_every_type(
    tmp_path: Path, column: pa.Array, axis: str, expected: IntervalSet, partitioned: bool
) -> None:
    if partitioned and axis == "second" and pa.types.is_timestamp(column.type):
        expected = IntervalSet.of((p.start, p.end) for p in expected)
    table = pa.table({"a t": column, "v": pa.array(range(len(column)))})
    by = ["a t"] if partitioned else None
    write_deltalake(str(tmp_path), table.slice(0, 0), partition_by=by)
    write_deltalake(str(tmp_path), table, mode="append", partition_by=by)
    position = PositionColumn("a t", axis)
    assert log_changes(str(tmp_path), position, 0, 1).changed.ranges == expected
    head(tmp_path).delete("v >= 0")
    assert log_changes(str(tmp_path), position, 1, 2).ranges == expected
    spans = log_changes(str(tmp_path), position, 1, 2, consumed=NOTHING).ranges
    assert not expected - spans


def actions(root: Path, version: int, kind: str) -> list[dict[str, object]]:
    lines = (root / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    return [action[kind] for line in lines if kind in (action := json.loads(line))]


def spelled_again(root: Path, version: int, change: Callable[[dict[str, object]], object]) -> None:
    """The same commit as another writer might have spelled it."""
    file = root / "_delta_log" / f"{version:020d}.json"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for action in lines:
        for kind in ("add", "remove"):
            if kind in action:
                change(action[kind])
    file.write_text("".join(json.dumps(action) + "\n" for action in lines))


def test_encoded_and_absolute_paths_are_found(plain: Path, tmp_path: Path) -> None:
    for version, place in ((1, plain / "a b%.parquet"), (2, tmp_path / "else where.parquet")):
        write_deltalake(str(plain), rows([50 + version, 70]), mode="append")

        def moved(add: dict[str, object], place: Path = place) -> None:
            (plain / str(add["path"])).rename(place)
            add["path"] = "a%20b%25.parquet" if place.parent == plain else place.as_uri()

        spelled_again(plain, version, moved)
        assert log_changes(str(plain), N, version - 1, version).changed.ranges == ranges(
            (50 + version, 51 + version), (70, 71)
        )


def test_a_column_of_another_meaning_may_change_every_row(plain: Path) -> None:
    write_deltalake(str(plain), rows([50]).append_column("w", pa.array([1])), mode="append", schema_mode="merge")
    assert found(plain).changed.ranges == ranges((50, 51)), "a new column changes no row that is there"
    write_deltalake(str(plain), rows([50]), mode="overwrite", schema_mode="overwrite")
    assert found(plain).changed.ranges == EVERYTHING
    table = pa.table({"n": pa.array([datetime(2026, 1, 1, tzinfo=UTC)]), "v": pa.array([1])})
    write_deltalake(str(plain), table, mode="overwrite", schema_mode="overwrite")
    upto = head(plain).version()
    assert log_changes(str(plain), PositionColumn("n", "second"), upto - 1, upto).changed.ranges == EVERYTHING


def test_what_is_reported_stays_small_and_loses_no_position(tmp_path: Path) -> None:
    scattered = [n * n for n in range(3000)]
    write_deltalake(str(tmp_path), rows([0]))
    write_deltalake(str(tmp_path), rows(scattered, 0), mode="append")
    now = log_changes(str(tmp_path), N, 0, 1).changed
    assert len(now.ranges) == changed_ranges.MOST_PARTS
    assert all(n in now.ranges for n in scattered)
    assert now.ranges.covers(next(iter(ranges((0, 100)))))
    assert 2000 * 2000 + 1 not in now.ranges, "the widest gaps stay"
    assert len(now.rows) <= changed_ranges.MOST_PARTS
    assert sum(count for _, count in now.rows) == 3000
    assert all(part.start in now.ranges and part.end - 1 in now.ranges for part, _ in now.rows)


# all kinds of writers at random

Writer = tuple[str, int, int]
writers = st.lists(
    st.tuples(
        st.sampled_from(["append", "delete", "update", "merge", "replace", "overwrite", "compact", "restore", "same"]),
        st.integers(0, 30),
        st.integers(0, 6),
    ),
    min_size=1,
    max_size=5,
)


def act(root: Path, writer: Writer) -> None:
    what, start, length = writer
    inside = f"n >= {start} and n < {start + length}"
    new = rows([*range(start, start + length), start, None], 9)
    match what:
        case "append":
            write_deltalake(str(root), new, mode="append")
        case "delete":
            head(root).delete(inside)
        case "update":
            head(root).update({"v": "v + 1", "n": "n + 1"} if start % 2 else {"v": "v + 1"}, predicate=inside)
        case "same":
            head(root).update({"v": "v"}, predicate=inside)
        case "merge":
            unique = rows(range(start, start + length), 11)
            joined = head(root).merge(unique, "s.n = t.n", source_alias="s", target_alias="t")
            joined.when_matched_update_all().when_not_matched_insert_all().execute()
        case "replace":
            kept = rows(range(start, start + length, 2))
            write_deltalake(str(root), kept, mode="overwrite", predicate=inside if length else "n = -1")
        case "overwrite":
            write_deltalake(str(root), rows(range(length, 25)), mode="overwrite")
        case "compact":
            head(root).optimize.compact()
        case "restore":
            head(root).restore(min(start, head(root).version() - 1))


def content(root: Path, version: int) -> dict[int, Counter[object]]:
    found: dict[int, Counter[object]] = defaultdict(Counter)
    for row in DeltaTable(str(root), version=version).to_pyarrow_table().to_pylist():
        if row["n"] is not None:
            found[row["n"]][row["v"]] += 1
    return found


def differences(root: Path, after: int, upto: int) -> IntervalSet:
    old, new = content(root, after), content(root, upto)
    return IntervalSet.of((n, n + 1) for n in {*old, *new} if old.get(n) != new.get(n))


def check_writers(root: Path, feed: bool, done: list[Writer]) -> None:
    """Everything that differs is told, between any two snapshots; from one to the next, nothing else is."""
    shutil.rmtree(root, ignore_errors=True)
    write_deltalake(str(root), rows(range(20)), configuration=FEED if feed else {})
    write_deltalake(str(root), rows(range(10, 30)), mode="append")
    begun = head(root).version()
    for writer in done:
        act(root, writer)
    upto = head(root).version()
    for version in range(begun, upto):
        now = changes.log_changes(str(root), N, version, version + 1)
        differ = differences(root, version, version + 1)
        assert not differ - now.ranges, version
        # files that went whole at the old end are not opened
        first = max((one.first or 0 for one in now.commits if one.only_deletes), default=0)
        assert now.ranges.within(first, 99) == differ.within(first, 99), version
        firsts = [one.first for one in now.commits if one.only_deletes]
        assert firsts in ([], [min(content(root, version + 1), default=None)]) or min(differ.edges) >= first, version
    whole = changes.log_changes(str(root), N, begun, upto, consumed=ranges((5, 15)))
    assert not differences(root, begun, upto) - whole.ranges


@pytest.mark.parametrize("feed", [False, True])
def test_all_that_differs_between_two_snapshots_is_reported_and_nothing_else(tmp_path: Path, feed: bool) -> None:
    @effort(10)
    @given(writers)
    def holds(done: list[Writer]) -> None:
        check_writers(tmp_path / "table", feed, done)

    holds()


def test_a_reader_of_the_log_that_leaves_something_out_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Writer] = [("delete", 12, 3), ("update", 4, 2)]
    check_writers(tmp_path, True, done)
    removed, fed = rewrites._by_position, rewrites.feed_changes
    monkeypatch.setattr(changes, "feed_changes", lambda *_: True)
    with pytest.raises(AssertionError):
        check_writers(tmp_path, True, done)
    monkeypatch.setattr(changes, "feed_changes", fed)
    monkeypatch.setattr(rewrites, "_by_position", lambda *_: rewrites._NO_ROWS)
    with pytest.raises(AssertionError):
        check_writers(tmp_path, False, done)
    monkeypatch.setattr(rewrites, "_by_position", removed)
    check_writers(tmp_path, False, done)
