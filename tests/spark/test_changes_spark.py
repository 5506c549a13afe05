"""Where rows changed between two snapshots, as Spark's own commands write them."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from fuzzing import FUZZ

from penstock.engine.observe import changes, rewrites
from penstock.engine.observe.changes import log_changes
from penstock.engine.values.files import PositionColumn
from penstock.values.changes import LogChanges
from penstock.values.intervals import EVERYTHING, NOTHING, IntervalSet, ranges

if TYPE_CHECKING:
    from conftest import Bench

AT = PositionColumn("at", "second")
AGAIN = "select timestamp_seconds(id) at, id * 9 v, cast(id % 2 as int) part from range"
WRITERS = {
    "late rows": f"insert into {{table}} {AGAIN}(7, 9)",
    "update": "update {table} set v = v + 1 where v % 70 = 21",
    "update to the same": "update {table} set v = v where v > 50",
    "delete inside": "delete from {table} where v = 77",
    "delete at the old end": "delete from {table} where at < timestamp_seconds(4)",
    "merge": f"""
        merge into {{table}} t using ({AGAIN}(28, 31)) s on s.at = t.at
        when matched and s.v > 260 then delete when matched then update set * when not matched then insert *""",
    "optimize": "optimize {table}",
    "z-order": "optimize {table} zorder by (v)",
    "replace where": f"""
        insert into {{table}} replace where at >= timestamp_seconds(15) and at < timestamp_seconds(18)
        {AGAIN}(15, 17)""",
    "purge": "reorg table {table} apply (purge)",
    "restore": "restore table {table} to version as of 3",
    "delete a file": "delete from {table} where at >= timestamp_seconds(20) and at < timestamp_seconds(30)",
    "insert overwrite": f"insert overwrite {{table}} {AGAIN}(12, 45)",
}
QUIET = ("update to the same", "optimize", "z-order", "purge")
RARE = ("z-order", "delete a file")
"""What others are much like: when fuzzing."""


@dataclass(frozen=True)
class Kind:
    properties: str
    partition: str = ""


KINDS = {
    "files": Kind("'delta.enableDeletionVectors' = 'false'"),
    "vectors": Kind("'delta.enableDeletionVectors' = 'true'"),
    "feed": Kind("'delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true'"),
    "mapped": Kind("'delta.columnMapping.mode' = 'name'", "partitioned by (part)"),
}
ALWAYS = tuple(KINDS) if FUZZ else ("vectors",)
"""Each takes a while: the others when fuzzing."""


def written(bench: Bench, kind: Kind) -> list[tuple[str, int]]:
    """A table after all writers: who made which snapshot."""
    table = f"delta.`{bench.path('t')}`"
    bench.sql(f"create table {table} (at timestamp, v bigint, part int) using delta {kind.partition}"
              f" tblproperties ({kind.properties})")  # fmt: skip
    for start in (0, 10, 20):
        text = AGAIN.replace("9", "7").replace("select", "select /*+ coalesce(1) */")
        bench.sql(f"insert into {table} {text}({start}, {start + 10})")
    made = []
    for name, text in WRITERS.items():
        if name in RARE and not FUZZ:
            continue
        bench.sql(text.format(table=table))
        made.append((name, DeltaTable(bench.path("t")).version()))
    return made


def contents(bench: Bench, versions: range) -> dict[int, dict[int, Counter[object]]]:
    """Spark's own reading of every snapshot."""
    one = "select {v} version, unix_seconds(at) n, v from delta.`{t}` version as of {v}"
    found: dict[int, dict[int, Counter[object]]] = {version: defaultdict(Counter) for version in versions}
    for version, n, v in bench.sql(" union all ".join(one.format(v=v, t=bench.path("t")) for v in versions)):
        assert isinstance(version, int)
        assert isinstance(n, int)
        found[version][n][v] += 1
    return found


@pytest.mark.parametrize("kind", [KINDS[name] for name in ALWAYS], ids=ALWAYS)
def test_what_spark_changed_is_reported_commit_by_commit_and_nothing_else(
    bench: Bench, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = written(bench, kind)
    last = made[-1][1]
    rows = contents(bench, range(3, last + 1))

    def differing(after: int, upto: int) -> IntervalSet:
        old, new = rows[after], rows[upto]
        return IntervalSet.of((n, n + 1) for n in {*old, *new} if old.get(n) != new.get(n))

    def told(after: int, upto: int) -> LogChanges:
        return log_changes(bench.path("t"), AT, after, upto)

    before = 3
    for name, version in made:
        now = told(before, version)
        assert now.ranges == differing(before, version), name
        assert bool(now.left) == name.startswith("delete"), name
        assert name not in QUIET or not now.changed, name
        before = version
    whole = log_changes(bench.path("t"), AT, 3, last, consumed=ranges((5, 15)))
    assert not differing(3, last) - whole.ranges
    assert whole.changed.ranges != EVERYTHING
    by_name = dict(made)
    update = by_name["update"]
    monkeypatch.setattr(rewrites, "vectors", lambda *_: None)  # superset, never less, without the vectors
    assert not differing(update - 1, update) - told(update - 1, update).changed.ranges
    monkeypatch.setattr(changes, "feed_changes", lambda *_: True)
    monkeypatch.setattr(changes, "file_changes", lambda *_: None)
    assert told(update - 1, update).changed.ranges == NOTHING != differing(update - 1, update)


def test_a_renamed_column_may_change_every_row_and_another_table_is_another_table(bench: Bench) -> None:
    table = f"delta.`{bench.path('t')}`"
    bench.sql(f"create table {table} (at timestamp, v bigint, w int) using delta"
              " tblproperties ('delta.columnMapping.mode' = 'name')")  # fmt: skip
    bench.sql(f"insert into {table} select timestamp_seconds(id), id, 1 from range(9)")
    bench.sql(f"alter table {table} add column x int")
    assert log_changes(bench.path("t"), AT, 1, 2) == changes.NO_CHANGES
    bench.sql(f"alter table {table} rename column v to u")
    assert log_changes(bench.path("t"), AT, 2, 3).changed.ranges == EVERYTHING
    first = DeltaTable(bench.path("t")).metadata().id
    bench.sql("drop table if exists changes_by_name")
    bench.sql(f"create table changes_by_name using delta location '{bench.path('t')}'")
    bench.sql(f"create or replace table changes_by_name using delta location '{bench.path('t')}' as {AGAIN}(9)")
    assert DeltaTable(bench.path("t")).metadata().id != first
    bench.sql("drop table changes_by_name")
