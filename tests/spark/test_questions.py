"""Queries, scans of bounds and comparisons: Spark is asked, nothing is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.engine.compare import compare
from penstock.engine.files import PositionColumn
from penstock.engine.job import Job
from penstock.engine.portable import portable
from penstock.engine.query import query
from penstock.engine.scan import scan
from penstock.errors import PenstockError, QueryError, SourceError, UsageError
from penstock.intervals import Interval, IntervalSet

if TYPE_CHECKING:
    from conftest import Bench

Hourly = Callable[..., Job]
HOUR = 3600


def test_a_query_gives_rows_that_json_can_show(bench: Bench) -> None:
    bench.put(
        "t",
        at=bench.moments(bench.START, 0.5, 2),
        price=pa.array([Decimal("1.10"), None]),
        raw=pa.array([b"ab", b""]),
        name=pa.array(["ü", "x"]),
        nested=pa.array([{"a": [1, None]}, None]),
    )
    more = "date'2026-01-02' d, cast('nan' as double) n, map('k', 1) m, 12345678901234567890.5BD big"
    sql = f"select *, {more} from v order by at"
    rows = query(bench.session, sql, [bench.input("t", None, view="v")])
    assert rows[0] == {
        "at": "2026-01-01T00:00:00+00:00", "price": 1.1, "raw": "6162", "name": "ü", "nested": {"a": [1, None]},
        "d": "2026-01-02", "n": "nan", "m": {"k": 1}, "big": "12345678901234567890.5",
    }  # fmt: skip
    assert rows[1]["at"] == "2026-01-01T00:00:00.500000+00:00"
    assert rows[1]["price"] is None
    assert json.dumps(rows)


@pytest.mark.parametrize(
    "sql",
    [
        "drop table v",
        "create table x using delta as select 1",
        "insert into v select 1",
        "with c as (select 1 as id) insert into v select * from c",
        "select 1; select 2",
        "set spark.sql.ansi.enabled = false",
        "delete from v",
        "show tables",
        "select * from parquet.`{path}`",
        "select * from delta.`{path}`",
        "select * from elsewhere",
        "select * from",
    ],
)
def test_a_query_is_one_select_over_registered_tables(bench: Bench, sql: str) -> None:
    bench.put("t", id=pa.array([1]))
    with pytest.raises(PenstockError) as caught:
        query(bench.session, sql.replace("{path}", bench.path("t")), [bench.input("t", None, view="v")])
    assert isinstance(caught.value, (UsageError, QueryError))
    assert DeltaTable(bench.path("t")).version() == 0


def test_two_columns_of_one_name_need_an_alias(bench: Bench) -> None:
    with pytest.raises(UsageError, match="several columns named a"):
        query(bench.session, "select 1 a, 2 a", [])


def test_a_scan_finds_the_bounds_of_other_formats(bench: Bench) -> None:
    with bench.session.attempt("test/scan") as attempt:
        attempt.spark.sql(
            f"select timestamp_micros({bench.START}000000 + id * 1500000) at from range(4)"
        ).write.parquet(bench.path("p"))
        attempt.spark.range(0).selectExpr("cast(id as timestamp) at").write.parquet(bench.path("none"))
    at = PositionColumn("at", "second")
    assert scan(bench.session, bench.path("p"), "parquet", at) == (bench.START, bench.START + 4)
    assert scan(bench.session, bench.path("none"), "parquet", at) == (None, None)
    sql = "select max(at) as max, min(at) as min from penstock_in_0"
    assert scan(bench.session, bench.path("p"), "parquet", at, sql=sql) == (bench.START, bench.START + 4)


@pytest.mark.parametrize("sql", ["select 1", "select 1, 2 union all select 3, 4", "select 'a', 'b'", "select x, 1",
                                 "drop view penstock_in_0"])  # fmt: skip
def test_a_wrong_bounds_query_is_a_source_error(bench: Bench, sql: str) -> None:
    with bench.session.attempt("test/scan") as attempt:
        attempt.spark.range(3).write.parquet(bench.path("p"))
    with pytest.raises((SourceError, UsageError)):
        scan(bench.session, bench.path("p"), "parquet", PositionColumn("id", "slot"), sql=sql)


@pytest.fixture
def built(bench: Bench, six_hours: Path) -> Hourly:
    import shutil

    for name in ("events", "hours"):
        shutil.copytree(six_hours / name, bench.root / name)
    return lambda *hours, **more: bench.hourly(bench, *hours, **more)


def test_equal_rows_compare_equal_and_others_are_counted(bench: Bench, built: Hourly) -> None:
    latest = DeltaTable(bench.path("hours")).version()
    third = Interval(bench.START + 2 * HOUR, bench.START + 3 * HOUR)
    same = compare(bench.session, built(0, 1, 3, 4, 5), latest)
    assert (same.rows_stored, same.rows_expected, same.missing, same.unexpected) == (15, 15, 0, 0)
    assert (same.differing, same.samples) == (frozenset(), ())
    found = compare(bench.session, built(1, 2), latest)
    assert (found.rows_stored, found.rows_expected, found.missing, found.unexpected) == (6, 6, 3, 3)
    assert found.differing == {third}
    assert {sample["difference"] for sample in found.samples} <= {"missing", "unexpected"}
    assert json.dumps(found.samples, default=str)


def test_rows_are_compared_as_bags(bench: Bench) -> None:
    bench.put("d", slot=pa.array([1, 1, 2]), x=pa.array([0.1, 0.1, 5.0]))
    reads = [bench.input("d", "slot", "slot")]
    bench.run(bench.job("bag", "slot", "select * from {d}", [(0, 3)], reads, axis="slot"))
    once = bench.job("bag", "slot", "select distinct * from {d}", [(0, 3)], reads, axis="slot")
    found = compare(bench.session, once, 1)
    assert (found.missing, found.unexpected) == (0, 1)


def test_doubles_are_compared_at_twelve_digits(bench: Bench) -> None:
    bench.put("f", slot=pa.array([1, 2, 3]), x=pa.array([0.3, 1e20, -0.0]))
    reads = [bench.input("f", "slot", "slot")]
    bench.run(bench.job("close", "slot", "select * from {f}", [(0, 9)], reads, axis="slot"))
    near = "select slot, case slot when 1 then 0.1D + 0.2D when 2 then x * (1 + 4e-16D) else 0D end x from {f}"
    job = bench.job("close", "slot", near, [(0, 9)], reads, axis="slot")
    assert compare(bench.session, job, 1).differing == frozenset()
    edge = bench.job("close", "slot", "select slot, x * 1.0000000000049D x from {f}", [(0, 9)], reads, axis="slot")
    assert compare(bench.session, edge, 1).missing <= 2
    far = bench.job("close", "slot", "select slot, x * 1.0000001D x from {f}", [(0, 9)], reads, axis="slot")
    assert compare(bench.session, far, 1).missing == 2


def test_the_portable_form_gives_the_same_rows_in_any_time_zone(bench: Bench) -> None:
    bench.put("t", at=bench.moments(bench.START, 600, 144))
    window = IntervalSet.of(
        [(bench.START + HOUR, bench.START + 2 * HOUR), (bench.START + 5 * HOUR, bench.START + 6 * HOUR)]
    )
    wanted = replace(bench.input("t", "at"), window=window)
    with bench.session.attempt("test/portable") as attempt:
        attempt.spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        pasted = attempt.spark.sql(f"select count(*) from {portable(wanted)} t").collect()
    assert pasted[0][0] == len(bench.read(wanted)) == 12
