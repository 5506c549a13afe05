"""Queries, scans of bounds and comparisons: Spark is asked, nothing is written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.engine.spark.allowed_classes import EXPRESSIONS
from penstock.engine.spark.portable import portable
from penstock.engine.spark.query import Limits, query
from penstock.engine.spark.scan import scan
from penstock.engine.stage.compare import compare
from penstock.engine.values.files import PositionColumn
from penstock.engine.values.job import Job
from penstock.errors import PenstockError, QueryError, SourceError, UsageError
from penstock.values.intervals import Interval, IntervalSet
from penstock.values.models.source_format import source_format

if TYPE_CHECKING:
    from conftest import Bench

Hourly = Callable[..., Job]
PARQUET = source_format("parquet")
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
        "at": "2026-01-01T00:00:00+00:00", "price": "1.10", "raw": "6162", "name": "ü", "nested": {"a": [1, None]},
        "d": "2026-01-02", "n": "NaN", "m": {"k": 1}, "big": "12345678901234567890.5",
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


REFLECTED = "('java.lang.System', 'getenv', 'HOME')"
ATTACKS = {
    "select transform(id) using 'touch {mark}; cat' as (x) from v": "ScriptTransformation",
    f"select reflect{REFLECTED}": "reflect",
    f"select java_method{REFLECTED}": "java_method",
    f"select try_reflect{REFLECTED}": "try_reflect",
    f"select system.builtin.reflect{REFLECTED}": "reflect",
    f"select * from values (reflect{REFLECTED})": "reflect",
    f"select * from v where exists (select 1 from v x where x.id = v.id and reflect{REFLECTED} = '')": "reflect",
    f"with c as (select reflect{REFLECTED} x) select * from c": "reflect",
    f"select transform(array(1), x -> reflect{REFLECTED})": "reflect",
    f"select sum(id) over w from v window w as (order by reflect{REFLECTED})": "reflect",
    f"select * from v, lateral (select reflect{REFLECTED} y)": "reflect",
    f"select id from v group by id having max(reflect{REFLECTED}) = ''": "reflect",
    f"select distinct unix_seconds(at) from v where at is not null and (\nreflect{REFLECTED} = '/root'\n)": "reflect",
    "select input_file_name() from v": "input_file_name",
    "select current_user()": "current_user",
    "select from_protobuf(cast('a' as binary), 'm', '{mark}')": "from_protobuf",
    "select * from table_changes_by_path('{path}', 0)": "table_changes_by_path",
    "select * from python_worker_logs()": "python_worker_logs",
    "select * from identifier(concat('v', ''))": "PlanWithUnresolvedIdentifier",
    "select * from v version as of 0": "RelationTimeTravel",
    "execute immediate 'select 1'": "UnresolvedExecuteImmediate",
    "begin select 1; end": "SingleStatement",
    "explain select 1": "ExplainCommand",
    "select * from range(100000000)": "range would make 100,000,000 elements",
    "select sequence(1, 100000000)": "sequence would make 100,000,000 elements",
    "select size(sequence(1, 10000 * 10000))": "sequence",
    "select explode(sequence(1, 100000000))": "sequence",
    "select sequence(timestamp'2000-01-01', timestamp'2026-01-01', interval 1 second)": "sequence",
    "select repeat('x', 1000000000)": "repeat",
    "select array_repeat(1, 100000000)": "array_repeat",
    "select lpad('x', 1000000000, 'y')": "lpad",
    "select space(100000000)": "space",
    "select repeat('x', length(repeat('y', 1000000000)))": "repeat would make 1,000,000,000 elements",
    "select * from values (size(sequence(1, 100000000)))": "sequence (in VALUES)",
    "select from_xml('<a/>', 'a int', map('rowValidationXSDPath', 'file://{path}'))": "from_xml",
    "select schema_of_xml('<a/>', map('rowValidationXSDPath', 'file://{path}'))": "schema_of_xml",
}


@pytest.mark.parametrize(("sql", "named"), ATTACKS.items())
def test_a_query_runs_no_program_and_reads_nothing_else(bench: Bench, sql: str, named: str) -> None:
    bench.put("t", id=pa.array([1]), at=bench.moments(bench.START, 1, 1))
    text = sql.replace("{mark}", bench.path("mark")).replace("{path}", bench.path("t"))
    with pytest.raises(UsageError, match=re.escape(named)):
        query(bench.session, text, [bench.input("t", None, view="v")])
    assert not Path(bench.path("mark")).exists()


def test_without_the_rules_a_query_does_run_programs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.engine.spark.query.permitted", lambda spark, sql, views: spark.sql(sql))
    bench.put("t", id=pa.array([1]))
    text = f"select transform(id) using 'touch {bench.path('mark')}; cat' as (x) from v"
    query(bench.session, text, [bench.input("t", None, view="v")])
    assert Path(bench.path("mark")).exists()


def test_a_query_sees_no_setting_and_no_environment(bench: Bench) -> None:
    sql = "select '${env:HOME}' a, '${system:user.name}' b, '${spark.hadoop.fs.s3a.secret.key}' c"
    (row,) = query(bench.session, sql, [])
    assert list(row.values()) == ["${env:HOME}", "${system:user.name}", "${spark.hadoop.fs.s3a.secret.key}"]


ORDINARY = [
    "select * from v",
    "select count(*) n from v",
    "select a.id, b.x from v a join v b on a.id = b.id left join v c using (id)",
    "select id, row_number() over (partition by x order by at desc) r, lag(x) over w l from v window w as"
    " (order by id)",
    "with a as (select * from v), b as (select * from a where id > 0) select * from a union all select * from b",
    "select id from v except select 1 intersect select x from v",
    "select id, e from v lateral view outer explode(array(1, 2)) l as e",
    "select id, posexplode(array(1, 2)) from v",
    "select * from (select id, x from v) pivot (sum(x) for id in (0, 1, 2))",
    "select * from v unpivot (val for name in (id, x))",
    "select from_json('{\"a\":1}', 'a int').a, get_json_object('{\"a\":1}', '$.a') g, to_json(struct(id)) j from v",
    "select transform(array(id), e -> e + 1) t, filter(array(id), e -> e > 1) f, aggregate(array(id), 0L, (a,"
    " e) -> a + e) a"
    " from v",
    "select * from v tablesample (50 percent)",
    "select date_trunc('hour', at) h, at + interval 1 day p, datediff(current_date(), date'2026-01-01') d,"
    " extract(year from at) y, to_date('2026-01-01') t, date_format(at, 'yyyy') f from v",
    "select id, x, sum(x) s, grouping(id) g from v group by cube (id, x)",
    "select id % 2 k, count(*) c from v group by all having c > 0 order by c desc limit 3 offset 0",
    "select case when id > 1 then 'a' else 'b' end c, coalesce(null, id) o, nullif(id, 1) n, id between 1 and"
    " 2 b from v",
    "select * from v where id = (select max(id) from v) or x in (select x from v where x > 3)",
    "select percentile_approx(x, 0.5) p, approx_count_distinct(id) a, collect_set(id) s, max_by(id, x) m, stddev(x) d,"
    " median(x) e, count_if(id > 1) i, listagg(cast(id as string), ',') l from v",
    "select * from values (1, 'a'), (2, 'b') as t(a, b)",
    "select id from range(10)",
    "select id a, a + 1 b from v",
    "select * except (x) from v",
    "select sequence(1, 10) a, sequence(date'2026-01-01', date'2026-12-31', interval 1 day) b,"
    " sequence(to_date('2018-01-01'), to_date('2018-03-01'), interval 1 month) c, repeat('x', 10) d,"
    " lpad('a', 5, '0') e",
    "select /*+ broadcast(a) */ a.id from v a join v b on a.id = b.id",
    "select v.id, l.z from v, lateral (select v.id + 1 as z) l",
    "from v |> where id > 0 |> aggregate sum(x) as s group by id",
    "with recursive r(n) as (select 1 union all select n + 1 from r where n < 5) select * from r",
    "select try_cast('x' as int) c, cast(id as decimal(10, 2)) d, round(1.55, 1) r, ceil(1.2) u, 7 div 2 i,"
    " pow(2, 3) p from v",
    "select concat_ws(',', 'a', 'b') a, upper('x') b, split('a,b', ',')[0] c, trim(' x ') d,"
    " regexp_extract('a1', '[0-9]', 0) e,"
    " md5('x') f, left('abc', 1) g, 'a' || 'b' h, 'abc' like 'a%' i, startswith('abc', 'a') j",
    "select window(at, '1 hour').start w, count(*) n from v group by window(at, '1 hour')",
    "select id from v qualify row_number() over (order by id) = 1",
    "select named_struct('a', 1).a s, map('a', 1)['a'] m, arrays_zip(array(1), array(2)) z,"
    " sort_array(array(2, 1)) o, hash(id) h"
    " from v",
]


@pytest.mark.parametrize("sql", ORDINARY)
def test_ordinary_queries_are_answered(bench: Bench, sql: str) -> None:
    bench.put("t", id=pa.array([1, 2]), x=pa.array([3, 4]), at=bench.moments(bench.START, 1, 2))
    assert query(bench.session, sql, [bench.input("t", None, view="v")]) is not None


def test_every_function_of_this_spark_is_allowed_or_refused_on_purpose(bench: Bench) -> None:
    register = bench.session.spark()._jsparkSession.sessionState().functionRegistry()
    names = register.listFunction()
    refused = set()
    for number in range(names.size()):
        name = names.apply(number)
        if register.lookupFunction(name).get().getClassName() not in EXPRESSIONS:
            refused.add(str(name.funcName()))
    assert refused == {
        "reflect", "java_method", "try_reflect", "input_file_name", "input_file_block_start", "input_file_block_length",
        "current_user", "session_user", "user", "current_path", "measure", "from_avro", "to_avro", "schema_of_avro",
        "from_protobuf", "to_protobuf", "from_xml", "schema_of_xml",
    }  # fmt: skip


def test_a_query_gives_so_many_rows_and_bytes_and_no_more(bench: Bench) -> None:
    assert len(query(bench.session, "select id from range(7)", [], limits=Limits(rows=7))) == 7
    with pytest.raises(UsageError, match="more than 6 rows"):
        query(bench.session, "select id from range(7)", [], limits=Limits(rows=6))
    with pytest.raises(UsageError, match="larger than 1 MiB"):
        query(bench.session, "select repeat('x', 500000) t from range(9)", [], limits=Limits(size_bytes=2**20))


def test_a_query_that_fails_says_why(bench: Bench) -> None:
    with pytest.raises(QueryError, match="CAST_INVALID_INPUT"):
        query(bench.session, "select cast(concat('x', id) as int) n from range(3)", [])


def test_a_query_that_takes_too_long_is_given_up(bench: Bench) -> None:
    # it looks up every thousand numbers, so it can be cancelled; one that cannot costs the JVM
    endless = "select sum(a.id * e.n) s from range(1000000) a lateral view explode(sequence(1, 20000)) e as n"
    with pytest.raises(UsageError, match="not done after 2 s"):
        query(bench.session, endless, [], limits=Limits(seconds=2))
    assert query(bench.session, "select 1 a", []) == [{"a": 1}]


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
    assert scan(bench.session, bench.path("p"), PARQUET, at) == (bench.START, bench.START + 4)
    assert scan(bench.session, bench.path("none"), PARQUET, at) == (None, None)
    sql = "select max(at) as max, min(at) as min from penstock_in_0"
    assert scan(bench.session, bench.path("p"), PARQUET, at, sql=sql) == (bench.START, bench.START + 4)


@pytest.mark.parametrize("sql", ["select 1", "select 1, 2 union all select 3, 4", "select 'a', 'b'", "select x, 1",
                                 "drop view penstock_in_0"])  # fmt: skip
def test_a_wrong_bounds_query_is_a_source_error(bench: Bench, sql: str) -> None:
    with bench.session.attempt("test/scan") as attempt:
        attempt.spark.range(3).write.parquet(bench.path("p"))
    with pytest.raises((SourceError, UsageError)):
        scan(bench.session, bench.path("p"), PARQUET, PositionColumn("id", "slot"), sql=sql)


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
