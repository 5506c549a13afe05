"""Tables that others wrote: our reader shows the rows that Spark's own Delta reader shows, whichever way it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.engine.log import snapshot as log
from penstock.engine.spark import read
from penstock.engine.spark.portable import portable, position_kind
from penstock.engine.values.files import TableSnapshot
from penstock.engine.values.job import InputRead
from penstock.engine.values.predicate import inside, quoted
from penstock.values.intervals import IntervalSet
from penstock.values.models.source_format import source_format

if TYPE_CHECKING:
    from conftest import Bench

ROWS = (
    "select /*+ coalesce(1) */ timestamp_seconds(1767225600 + id * 600) at, id, cast(id as string) name from range(144)"
)
WINDOW = IntervalSet.of([(1767225600 + 7200, 1767225600 + 5 * 3600)])
INTEGERS = IntervalSet.of([(20, 50), (90, 95)])
DAYS = IntervalSet.of([(1767225600 + 86400, 1767225600 + 4 * 86400)])


@dataclass(frozen=True)
class Kind:
    """One kind of foreign table: how it comes about, and which way we must take to read it."""

    make: Callable[[Bench, str], None]
    position: str = "at"
    axis: str = "second"
    window: IntervalSet = WINDOW
    rows: int = 18
    by_delta: str | None = None
    """A word of the reason why Parquet alone cannot show it."""


def _sql(bench: Bench, *statements: str) -> None:
    for statement in statements:
        bench.sql(statement)


def _create(bench: Bench, name: str, columns: str, more: str = "") -> str:
    bench.sql(f"create table delta.`{bench.path(name)}` ({columns}) using delta {more}")
    return f"delta.`{bench.path(name)}`"


def _plain(bench: Bench, name: str) -> None:
    bench.write(name, ROWS)


def _by_delta_rs(bench: Bench, name: str) -> None:
    at = bench.moments(1767225600, 600, 144)
    for part in (range(72), range(72, 144)):
        rows = pa.table({"at": at.take(list(part)), "id": pa.array(part), "name": pa.array(map(str, part))})
        write_deltalake(bench.path(name), rows, mode="append")


def _deletion_vectors(bench: Bench, name: str) -> None:
    bench.write(name, ROWS, **{"delta.enableDeletionVectors": "true"})
    bench.sql(f"delete from delta.`{bench.path(name)}` where id % 4 = 1")


def _column_mapping(bench: Bench, name: str) -> None:
    table = _create(
        bench, name, "at timestamp, id bigint, name string", "tblproperties ('delta.columnMapping.mode' = 'name')"
    )
    _sql(bench, f"insert into {table} {ROWS}", f"alter table {table} rename column name to label",
         f"alter table {table} add column extra int", f"alter table {table} drop column id")  # fmt: skip


def _hive_partitions(bench: Bench, name: str) -> None:
    bench.write(
        name,
        "select /*+ coalesce(1) */ cast(at as date) day, if(id % 5 = 0, null, id % 5) five, at, id, name from "
        f"({ROWS.replace('* 600', '* 3600')})",
        partition="day,five",
    )


def _partition_is_position(bench: Bench, name: str) -> None:
    bench.write(
        name,
        "select /*+ coalesce(1) */ date_from_unix_date(20454 + cast(id % 8 as int)) day, id from range(80)",
        partition="day",
    )


def _odd_partitions(bench: Bench, name: str) -> None:
    odd = "array('a b', 'c/d', 'e=f', '100%', 'ü', 'g:h', '', '[x]', '{y}', 'z*', '__HIVE_DEFAULT_PARTITION__')"
    bench.write(
        name,
        f"select /*+ coalesce(1) */ at, id, element_at({odd}, cast(id % 11 as int) + 1) odd from ({ROWS})",
        partition="odd",
    )


def _escaped_partitions(bench: Bench, name: str) -> None:
    odd = "array('a b', 'c/d', 'e=f', '100%', 'ü', 'g:h', '', '007')"
    bench.write(
        name,
        f"select /*+ coalesce(1) */ at, id, element_at({odd}, cast(id % 8 as int) + 1) odd from ({ROWS})",
        partition="odd",
    )


def _timestamp_partitions(bench: Bench, name: str) -> None:
    bench.write(name, f"select /*+ coalesce(1) */ date_trunc('hour', at) hour, at, id from ({ROWS})", partition="hour")


def _typed_partitions(bench: Bench, name: str) -> None:
    bench.write(
        name,
        "select /*+ coalesce(1) */ at, id, id % 2 = 0 flag, cast(id % 3 / 2 as decimal(5, 2)) price, "
        f"cast(id % 2 as double) ratio from ({ROWS})",
        partition="flag,price,ratio",
    )


def _added_columns(bench: Bench, name: str) -> None:
    bench.write(name, ROWS)
    more = ROWS.replace("range(144)", "range(144, 160)")
    bench.write(name, f"select *, id * 1.5D ratio, struct(id a, name b) pair from ({more})", mergeSchema="true")
    write_deltalake(bench.path(name), pa.table({"id": pa.array([7777])}), mode="append", schema_mode="merge")


def _widened_types(bench: Bench, name: str) -> None:
    table = _create(bench, name, "at timestamp, id int, f float", "tblproperties ('delta.enableTypeWidening' = 'true')")
    _sql(bench, f"insert into {table} select at, cast(id as int), 1.5F from ({ROWS})",
         f"alter table {table} alter column id type bigint", f"alter table {table} alter column f type double",
         f"insert into {table} select at, id + 5000000000, 2.5D from ({ROWS})")  # fmt: skip


def _classic_checkpoint(bench: Bench, name: str) -> None:
    _by_delta_rs(bench, name)
    DeltaTable(bench.path(name)).create_checkpoint()
    bench.put(name, at=bench.moments(1767225600 + 7300, 1, 1), id=pa.array([999]), name=pa.array(["late"]))


def _v2_checkpoint(bench: Bench, name: str) -> None:
    properties = "'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2'"
    table = _create(bench, name, "at timestamp, id bigint, name string", f"tblproperties ({properties})")
    for part in range(3):
        bench.sql(f"insert into {table} select * from ({ROWS}) where id % 3 = {part}")
    assert list((bench.root / name / "_delta_log").glob("*.checkpoint.*.*")), "no V2 checkpoint was written"


def _without_zone(bench: Bench, name: str) -> None:
    bench.write(name, f"select cast(at as timestamp_ntz) at, id from ({ROWS})")


def _dates(bench: Bench, name: str) -> None:
    bench.write(name, "select date_from_unix_date(20454 + cast(id as int)) day, id from range(30)")


def _decimals(bench: Bench, name: str) -> None:
    bench.write(
        name,
        "select id slot, cast(id as decimal(9,2)) a, cast(id / 7 as decimal(18,6)) b, "
        "cast(id as decimal(38,10)) * -1.000001BD c, cast(id as smallint) d, cast(id as tinyint) e from range(120)",
    )


def _nested(bench: Bench, name: str) -> None:
    bench.write(
        name,
        "select id slot, struct(id a, struct(cast(id as string) c, cast(null as int) d) b) s, "
        "array(struct(id x), null) l, map('k', id, 'n', null) m, map(id, array(id, null)) ml, "
        "if(id % 2 = 0, null, cast(array() as array<int>)) n, encode(cast(id as string), 'utf-8') bin from range(120)",
    )


def _no_statistics(bench: Bench, name: str) -> None:
    table = _create(
        bench, name, "at timestamp, id bigint, name string", "tblproperties ('delta.dataSkippingNumIndexedCols' = '0')"
    )
    bench.sql(f"insert into {table} {ROWS}")


def _null_positions(bench: Bench, name: str) -> None:
    bench.write(name, ROWS)
    bench.write(name, "select cast(null as timestamp) at, 1L id, 'nowhere' name")


def _odd_names(bench: Bench, name: str) -> None:
    bench.write(name, f"select at, id, name as `Order-Nr`, id as `a.b`, id as `x``y`, name as `größe` from ({ROWS})")


def _column_defaults(bench: Bench, name: str) -> None:
    features = "tblproperties ('delta.feature.allowColumnDefaults' = 'supported')"
    table = _create(bench, name, "at timestamp, id bigint default 5, name char(5) not null", features)
    bench.sql(f"insert into {table} {ROWS}")


def _generated(bench: Bench, name: str) -> None:
    table = _create(
        bench, name, "at timestamp, id bigint, name string, day date generated always as (cast(at as date))"
    )
    bench.sql(f"insert into {table} (at, id, name) {ROWS}")


def _clustered(bench: Bench, name: str) -> None:
    table = _create(bench, name, "at timestamp, id bigint, name string", "cluster by (id)")
    bench.sql(f"insert into {table} {ROWS}")


KINDS = {
    "plain": Kind(_plain),
    "by_delta_rs": Kind(_by_delta_rs),
    "deletion_vectors": Kind(_deletion_vectors, rows=13, by_delta="deletion vectors"),
    "column_mapping": Kind(_column_mapping, by_delta="column mapping"),
    "hive_partitions": Kind(_hive_partitions, rows=3),
    "partition_is_position": Kind(_partition_is_position, position="day", window=DAYS, rows=30),
    "odd_partitions": Kind(_odd_partitions, by_delta="the path"),
    "escaped_partitions": Kind(_escaped_partitions),
    "timestamp_partitions": Kind(_timestamp_partitions, by_delta="partition column"),
    "typed_partitions": Kind(_typed_partitions, by_delta="partition column"),
    "added_columns": Kind(_added_columns),
    "widened_types": Kind(_widened_types, rows=36, by_delta="type widening"),
    "classic_checkpoint": Kind(_classic_checkpoint, rows=19),
    "v2_checkpoint": Kind(_v2_checkpoint),
    "without_zone": Kind(_without_zone),
    "dates": Kind(_dates, position="day", window=DAYS, rows=3),
    "decimals": Kind(_decimals, position="slot", axis="slot", window=INTEGERS, rows=35),
    "nested": Kind(_nested, position="slot", axis="slot", window=INTEGERS, rows=35),
    "no_statistics": Kind(_no_statistics),
    "null_positions": Kind(_null_positions),
    "odd_names": Kind(_odd_names, by_delta="column mapping"),
    "column_defaults": Kind(_column_defaults, by_delta="char"),
    "generated": Kind(_generated),
    "clustered": Kind(_clustered),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_foreign_table_is_read_right_both_ways(bench: Bench, name: str) -> None:
    kind = KINDS[name]
    if name == "odd_names":
        bench.sql(
            f"create table delta.`{bench.path(name)}` (at timestamp, id bigint, `Order-Nr` string, `a.b` bigint, "
            "`x``y` bigint, `größe` string) using delta tblproperties ('delta.columnMapping.mode' = 'name')"
        )
    kind.make(bench, name)
    whole = bench.input(name, kind.position, kind.axis)
    cut = replace(whole, window=kind.window)
    seen = log.snapshot(whole.pin.location, whole.position)
    assert seen is not None
    reason = read.needs_delta_reader(seen, seen.files)
    if kind.by_delta is None:
        assert reason is None
    else:
        assert reason is not None
        assert kind.by_delta in reason
    everything, expected = _expected(bench, cut)
    assert bench.read(whole) == everything
    ours = bench.read(cut)
    assert ours == expected
    assert len(ours) == kind.rows
    assert 0 < len(ours) < len(everything)


def _expected(bench: Bench, wanted: InputRead) -> tuple[list[str], list[str]]:
    """All rows by Spark's Delta reader, and those in the window by a predicate that knows nothing of files."""
    assert wanted.position is not None
    assert wanted.window is not None
    within = inside(wanted.position.name, position_kind(wanted, wanted.position), wanted.window)
    with bench.session.attempt(f"test/{uuid4()}") as attempt:
        whole = attempt.spark.sql(f"select * from {portable(replace(wanted, window=None))}")
        columns = ", ".join(map(quoted, whole.columns))
        text = f"to_json(struct({columns}), map('ignoreNullFields', 'false'))"
        rows = whole.selectExpr(f"{text} as j", f"coalesce({within}, false) as i").collect()
    return sorted(row[0] for row in rows), sorted(row[0] for row in rows if row[1])


def test_plain_tables_are_not_read_through_delta_and_prune_their_files(bench: Bench) -> None:
    _by_delta_rs(bench, "pruned")
    wanted = replace(bench.input("pruned", "at"), window=WINDOW)
    with bench.session.attempt("test/pruned") as attempt:
        planned = read.Reader(attempt.spark).planned(wanted)
        assert len(planned.files) == 1
        frame = read.Reader(attempt.spark).frame(planned)
        assert "delta" not in frame._jdf.queryExecution().executedPlan().toString().lower().replace("penstock", "")


def test_a_table_of_very_many_files_is_read_through_delta(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    _by_delta_rs(bench, "many")
    wanted = replace(bench.input("many", "at"), window=IntervalSet.of([(1767225600, 1767225600 + 86400)]))
    short = bench.read(wanted)
    monkeypatch.setattr(read, "MOST_FILES", 1)
    assert bench.read(wanted) == short
    assert len(short) == 144


def test_an_older_snapshot_is_read_as_it_was(bench: Bench) -> None:
    _by_delta_rs(bench, "ages")
    newest = bench.input("ages", None)
    assert len(bench.read(replace(newest, pin=replace(newest.pin, snapshot=0)))) == 72
    assert len(bench.read(newest)) == 144


def test_nothing_in_the_window_is_an_empty_relation_of_the_tables_columns(bench: Bench) -> None:
    _by_delta_rs(bench, "nothing")
    wanted = replace(bench.input("nothing", "at"), window=IntervalSet.of([(0, 10)]))
    with bench.session.attempt("test/nothing") as attempt:
        reader = read.Reader(attempt.spark)
        frame = reader.frame(reader.planned(wanted))
        assert (frame.columns, frame.collect()) == (["at", "id", "name"], [])
        assert attempt.jobs == 0


def test_a_window_of_many_parts_is_cut_exactly(bench: Bench) -> None:
    bench.put("slots", slot=pa.array(range(400)))
    window = IntervalSet.of([(start, start + 3) for start in range(0, 400, 10)])
    with bench.session.attempt("test/many") as attempt:
        reader = read.Reader(attempt.spark)
        frame = reader.frame(reader.planned(replace(bench.input("slots", "slot", "slot"), window=window)))
        assert sorted(row[0] for row in frame.collect()) == [slot for slot in range(400) if slot % 10 < 3]


def test_a_wrong_pruning_of_files_would_be_seen(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    _by_delta_rs(bench, "wrong")
    wanted = replace(bench.input("wrong", "at"), window=IntervalSet.of([(1767225600, 1767225600 + 86400)]))
    monkeypatch.setattr(TableSnapshot, "meeting", lambda self, _: self.files[:1])
    assert bench.read(wanted) != _expected(bench, wanted)[1]


@pytest.mark.parametrize("format_", ["parquet", "json", "orc"])
def test_other_formats_are_read_whole_and_cut(bench: Bench, format_: str) -> None:
    from penstock.engine.values.files import PositionColumn
    from penstock.values.tasks import Pin

    with bench.session.attempt(f"test/{format_}") as attempt:
        attempt.spark.range(100).selectExpr("cast(id as int) slot", "id").write.format(format_).option(
            "header", "true"
        ).save(bench.path(format_))
    pin, column = Pin(bench.path(format_), None), PositionColumn("slot", "slot")
    wanted = InputRead("v", "raw.v", pin, source_format(format_), column, IntervalSet.of([(10, 20)]))
    assert len(bench.read(wanted)) == 10
