"""The rows by which two snapshots differ, whatever was committed, and readers that would leave something out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError
from fuzzing import effort
from hypothesis import given, seed
from hypothesis import strategies as st
from inline_vectors import hide_rows
from snapshot_differences import (
    FEED,
    Act,
    Bag,
    append,
    bag,
    changes,
    check,
    come_and_go,
    commit,
    compact,
    delete_all,
    head,
    merge,
    non_zero,
    rows,
    switch_feed,
    told,
    update,
    z_order,
)

from penstock.engine.log.handle import commits
from penstock.engine.observe import unequal_rows
from penstock.engine.refresh import change_log as change_log_module
from penstock.engine.refresh import read_changes, table_rows

Row = tuple[int | None, int, str | None]
drawn_rows = st.lists(
    st.tuples(st.sampled_from([0, 1, None]), st.integers(0, 3), st.sampled_from(["a", "b", None])), max_size=4
)
conditions = st.sampled_from(["n = 1", "n > 1", "p = 0", "p is null", "v = 'a'", "v is null and n < 3", "1 = 1"])
numbers = st.sets(st.integers(0, 9), min_size=1)
values = st.sampled_from([("v", "'a'"), ("v", "v"), ("v", "null"), ("n", "n + 1"), ("p", "1"), ("p", "null")])


def table_of(drawn: list[Row]) -> pa.Table:
    kinds = {"p": pa.int64(), "n": pa.int64(), "v": pa.string()}
    return pa.table({name: pa.array([row[at] for row in drawn], kind) for at, (name, kind) in enumerate(kinds.items())})


def merged(root: Path, drawn: list[Row], deletes: bool) -> None:
    once = {row[1]: row for row in drawn}
    joined = head(root).merge(table_of(list(once.values())), "s.n = t.n", source_alias="s", target_alias="t")
    (
        joined.when_matched_delete() if deletes else joined.when_matched_update_all()
    ).when_not_matched_insert_all().execute()


def hidden(root: Path, chosen: int, numbers: set[int]) -> None:
    """Rows of a live file, and no others of it, are hidden from now on."""
    live: dict[str, dict[str, Any]] = {}
    for version in range(head(root).version() + 1):
        for remove in commit(root, version, "remove"):
            live.pop(remove["path"], None)
        live.update({add["path"]: add for add in commit(root, version, "add")})
    files = [add for add in live.values() if json.loads(add["stats"])["numRecords"]]
    if not files:
        return
    add = files[chosen % len(files)]
    count = json.loads(add["stats"])["numRecords"]
    # no commit may take out and put in the same file with the same vector: each lies in a file of its own
    hide_rows(root, add, head(root).version() + 1, {number % count for number in numbers}, stored="u")


def replaced(root: Path, drawn: list[Row]) -> None:
    new = table_of([row for row in drawn if row[1] == 1])
    write_deltalake(str(root), new, mode="overwrite", predicate="n = 1")


def writes(**given: Any) -> Callable[[list[Row]], Act]:
    return lambda drawn: lambda root: write_deltalake(str(root), table_of(drawn), schema_mode="merge", **given)


drawn_acts = st.one_of(
    st.builds(writes(mode="append"), drawn_rows),
    st.builds(writes(mode="append"), drawn_rows),
    st.builds(writes(mode="overwrite"), drawn_rows),
    st.builds(lambda where: lambda root: head(root).delete(where), conditions),
    st.builds(lambda pair, where: lambda root: head(root).update(dict([pair]), predicate=where), values, conditions),
    st.builds(lambda drawn, deletes: lambda root: merged(root, drawn, deletes), drawn_rows, st.booleans()),
    st.builds(lambda drawn: lambda root: replaced(root, drawn), drawn_rows),
    st.builds(lambda at: lambda root: head(root).restore(at % (head(root).version() + 1)), st.integers(0, 9)),
    st.builds(lambda at, of: lambda root: hidden(root, at, of), st.integers(0, 9), numbers),
    st.sampled_from([compact, z_order, switch_feed]),
)  # fmt: skip


@effort(20)
@given(drawn_rows, st.lists(drawn_acts, min_size=2, max_size=6), st.booleans(), st.booleans())
@seed(20261118)
def test_whatever_was_committed_the_rows_by_which_snapshots_differ_are_told(
    first: list[Row], acts: list[Act], feed: bool, parted: bool
) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder, "table")
        partition = ["p"] if parted else None
        write_deltalake(str(root), table_of(first), partition_by=partition, configuration=FEED if feed else {})
        for act in acts:
            with suppress(DeltaError):  # delta-rs does not do everything
                act(root)
        bags = [bag(root, version, ["p", "n", "v"]) for version in range(head(root).version() + 1)]
        last = len(bags) - 1
        for after, upto in sorted({(start, end) for start in range(last) for end in (start + 1, last)}):
            expected = Counter(bags[upto])
            expected.subtract(bags[after])
            answer, narrow = changes(root, after, upto), changes(root, after, upto, columns=["n"])
            assert told(answer) == non_zero(expected)
            assert told(narrow) == by_number(expected)


def by_number(expected: Bag) -> Bag:
    counted: Bag = Counter()
    for row, count in expected.items():
        counted[row[1:2]] += count  # type: ignore[index]
    return non_zero(counted)


# controls: what would be missed


def gross(rows: pa.Table) -> pa.Table:
    return rows


def only_new_images(rows: pa.Table, left: unequal_rows.Leftover) -> None:
    old = pc.is_in(rows.column("_change_type"), pa.array(["delete", "update_preimage"]))
    left.add(rows.filter(pc.invert(old)).drop_columns(["_change_type"]), came=True)


def from_the_first(location: str, after: int, upto: int, storage: None) -> Iterator[object]:
    return commits(location, after - 1, upto, storage)


def without_removals(location: str, after: int, upto: int, storage: None) -> Iterator[object]:
    for found in commits(location, after, upto, storage):
        assert not isinstance(found, int)
        yield replace(found, removes=())


def vectors_unread(root: str, vector: object, storage: None) -> pa.Array:
    return pa.array([], pa.int64())


@pytest.mark.parametrize(
    ("place", "broken", "act"),
    [
        ((unequal_rows, "summed_rows"), gross, come_and_go),
        ((read_changes, "add_feed"), only_new_images, merge),
        ((change_log_module, "commits"), from_the_first, update),
        ((change_log_module, "commits"), without_removals, delete_all),
        ((table_rows, "hidden_rows"), vectors_unread, lambda root: hidden(root, 0, {1})),
    ],
    ids=["not netted", "new images only", "one commit too many", "no removals", "vectors unread"],
)
def test_control_a_reader_that_leaves_something_out_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: tuple[ModuleType, str], broken: object, act: Act
) -> None:
    write_deltalake(str(tmp_path), rows(range(20)), configuration=FEED)
    append(tmp_path)
    act(tmp_path)
    check(tmp_path, 1)
    monkeypatch.setattr(*place, broken)
    with pytest.raises(AssertionError):
        check(tmp_path, 1)
