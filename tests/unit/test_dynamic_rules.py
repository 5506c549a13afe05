"""One rule for each operation: the keys that its changes name, and the SQL of ordinary queries."""

from __future__ import annotations

from datetime import timedelta

import pytest
from dynamic_fuzz import INPUTS, START, settled

from penstock.planner.dynamic.plans import functions
from penstock.planner.dynamic.program import FullOnly, Incremental, Pushed, understand

A = frozenset({"a"})
AB = frozenset({"a", "b"})


def program(sql: str, *key: str) -> Incremental:
    found = understand(sql, INPUTS, key)
    assert isinstance(found, Incremental), found
    return found


def plain(sql: str | None) -> str | None:
    return sql and sql.replace("`", "")


def row(k: int | None, g: int | None = 0, x: int | None = 0, s: str | None = "a") -> tuple:
    return (k, g, x, s, None)


def other(k: int | None, h: int | None = 0, y: int | None = 0, s: str | None = "a") -> tuple:
    return (k, h, y, s)


@pytest.mark.parametrize(
    ("sql", "old", "new", "keys"),
    [
        pytest.param("select k from a where x > 0", [row(1, x=0)], [row(1, x=1), row(2)], {(1,)}, id="filter"),
        pytest.param("select k + 1 as n from a", [row(1)], [row(1), row(5)], {(6,)}, id="projection"),
        pytest.param(
            "select k, e from a lateral view explode(array(g, x)) made as e", [], [row(1, 2, 3)], {(1, 2), (1, 3)},
            id="explode",
        ),
        pytest.param("select k from a union all select h from b", [row(1)], [], {(1,)}, id="union all"),
        pytest.param("select k from a union select h from b", [row(1)], [], {(1,)}, id="union"),
        pytest.param("select distinct s from a", [row(1)], [row(1), row(2, s="b")], {("b",)}, id="distinct"),
        pytest.param("select k from a except select h from b", [row(1)], [], {(1,)}, id="except"),
        pytest.param("select k from a intersect all select h from b", [row(1)], [], {(1,)}, id="intersect all"),
        pytest.param("select g, count(*) as n from a group by g", [row(1, 4)], [row(1, 5)], {(4,), (5,)}, id="groups"),
        pytest.param(
            "select g, x, count(*) as n from a group by rollup (g, x)", [row(1, 4, 2)], [],
            {(4, 2), (4, None), (None, None)}, id="grouping sets",
        ),
        pytest.param("select k, sum(x) over (partition by g) as w from a", [row(1, 4)], [], {(4,)}, id="window"),
        pytest.param("select count(*) as n from a", [row(1)], [], {(1,)}, id="totals"),
    ],
)  # fmt: skip
def test_the_keys_of_one_changed_relation(sql: str, old: list, new: list, keys: set) -> None:
    assert settled(sql, {"a": tuple(old)}, {"a": tuple(new)})[1] == keys


JOINED = [(row(1, 4), row(2, 5)), (other(4),)]


@pytest.mark.parametrize(
    ("sql", "keys"),
    [
        pytest.param("select a.k, b.y from a join b on a.g = b.k", {(2, 7)}, id="inner"),
        pytest.param("select a.k, b.y from a left join b on a.g = b.k", {(2, 7), (2, None)}, id="left"),
        pytest.param("select a.k, b.y from b right join a on a.g = b.k", {(2, 7), (2, None)}, id="right"),
        pytest.param("select a.k, b.y from a full join b on a.g = b.k", {(2, 7), (2, None), (None, 7)}, id="full"),
        pytest.param("select k from a left semi join b on a.g = b.k", {(2,)}, id="semi"),
        pytest.param("select k from a left anti join b on a.g = b.k", {(2,)}, id="anti"),
        pytest.param("select k from a where exists (select 1 from b where b.k = a.g)", {(2,)}, id="exists"),
        pytest.param("select k from a where g in (select k from b)", {(2,)}, id="in"),
        pytest.param("select k from a where not exists (select 1 from b where b.k = a.g)", {(2,)}, id="not exists"),
        pytest.param("select k from a where g not in (select k from b)", {(2,)}, id="not in"),
        pytest.param(
            "select k, exists (select 1 from b where b.k = a.g) as e from a", {(2, 5)}, id="exists as a value"
        ),
        pytest.param("select a.k from a join b on a.g < b.k", {(1,)}, id="any condition"),
        pytest.param("select k, (select max(y) from b where b.k = a.g) as y from a", {(2, 5)}, id="scalar subquery"),
        pytest.param("select a.k, c.k as other from a join a c on a.g = c.k", set(), id="self join"),
    ],
)
def test_the_keys_of_a_changed_partner(sql: str, keys: set) -> None:
    old = {"a": JOINED[0], "b": JOINED[1]}
    assert settled(sql, old, {**old, "b": (other(4), other(5, y=7))})[1] == keys


def test_an_unchanged_maximum_changes_no_row_that_is_compared_with_it() -> None:
    sql = "select k from a where x >= (select max(y) from b)"
    old = {"a": (row(1, x=3), row(2, x=1)), "b": (other(1, y=2),)}
    assert settled(sql, old, {**old, "b": (other(1, y=2), other(2, y=1))})[1] == set()


def test_ordinary_aggregates_are_refreshed_by_ordinary_sql() -> None:
    sums = program("select g, sum(x) as total from a where s = 'a' group by g")
    assert plain(sums.keys(A)) == "SELECT DISTINCT t1.g AS key_0 FROM a__changes AS t1 WHERE t1.s = 'a'"
    assert plain(sums.rows()) == (
        "SELECT t1.g AS g, SUM(t1.x) AS total FROM a AS t1 LEFT SEMI JOIN penstock_keys AS t2 "
        "ON t1.g IS NOT DISTINCT FROM t2.key_0 WHERE t1.s = 'a' GROUP BY t1.g"
    )
    assert sums.keys(frozenset({"b"})) is None
    assert sums.keys(frozenset()) is None


def test_a_dimension_finds_its_facts_and_a_fact_needs_no_dimension() -> None:
    joined = program("select a.g, b.s, count(*) as n from a join b on a.g = b.k group by a.g, b.s", "g")
    assert plain(joined.keys(A)) == "SELECT DISTINCT t1.g AS key_0 FROM a__changes AS t1"
    found = "SELECT DISTINCT t1.g AS key_0 FROM a AS t1 LEFT SEMI JOIN b__changes AS t2 ON t1.g = t2.k"
    assert plain(joined.keys(frozenset({"b"}))) == found


def test_a_key_is_looked_up_in_every_relation_that_has_it() -> None:
    joined = program("select a.k, b.y from a join b on a.k = b.k where b.y > 0", "k")
    assert joined.pushed == (Pushed("a", "k", 0, None), Pushed("b", "k", 0, None))
    days = program("select date_trunc('day', ts) as day, count(*) as n from a group by 1")
    assert days.pushed == (Pushed("a", "ts", 0, "day"),)
    twice = program("select a.k from a join a other on a.k = other.g", "k")
    assert twice.pushed == ()


def test_old_rows_are_read_only_where_old_results_are_a_key() -> None:
    assert program("select g, count(*) as n from a group by g having count(*) > 1").reads_old == frozenset()
    histogram = "select n, count(*) as m from (select g, count(*) as n from a group by g) q group by n"
    assert program(histogram).reads_old == A
    groups = "(select g, count(*) as n from a group by g)"
    kept = f"select l.g, l.n, r.n as m from {groups} l join {groups} r on l.g = r.g"
    assert program(kept).reads_old == frozenset()


def test_a_rolling_filter_reads_a_range_of_what_enters_and_leaves_it() -> None:
    rolling = program("select g, count(*) as n from a where ts >= now() - interval 1 day group by g")
    assert rolling.timed
    text = plain(rolling.keys(frozenset(), START, START + timedelta(hours=1)))
    assert text is not None
    assert "a__changes" not in text
    assert "t1.ts >= CAST('2026-03-01 00:00:00.000000Z' AS TIMESTAMP) - INTERVAL '1' DAY AND t1.ts < " in text
    assert rolling.keys(frozenset(), START, START) is None
    with pytest.raises(ValueError, match="no time is given"):
        rolling.full()


@pytest.mark.parametrize(
    ("sql", "shape", "key", "hidden"),
    [
        ("select g, sum(x) as v from a group by g", "aggregate", ("g",), ()),
        ("select k, x from a", "projection", ("k", "x"), ()),
        ("select a.k, b.y from a join b on a.g = b.k", "join", ("k", "y"), ()),
        ("select distinct s from a", "distinct", ("s",), ()),
        ("select count(*) as n from a", "ungrouped aggregate", (), ()),
        (
            "select k, rank() over (partition by g order by x) as r from a",
            "window",
            ("__penstock_k0",),
            ("__penstock_k0",),
        ),
        ("select b.s, max(x) as m from a join b on a.g = b.k group by b.s", "aggregate of join", ("s",), ()),
        ("select k from a union all select k from b", "union", ("k",), ()),
    ],
)
def test_what_a_table_is_called_and_by_what_its_rows_are_replaced(
    sql: str, shape: str, key: tuple[str, ...], hidden: tuple[str, ...]
) -> None:
    found = program(sql)
    assert (found.shape, found.key, found.hidden) == (shape, key, hidden)


def test_names_are_shown_as_they_were_written() -> None:
    found = program("select K as OrderId, a.X, s `select` from a")
    assert found.columns == ("OrderId", "X", "select")
    assert program("select * except (ts) from a").columns == ("k", "g", "x", "s")


def test_added_rows_are_appended_by_the_deltas_of_both_sides() -> None:
    joined = program("select a.k, b.y from a join b on a.g = b.k")
    assert joined.monotone
    text = plain(joined.appended(AB))
    assert text is not None
    assert "a__changes AS t1 JOIN b AS t2" in text
    assert "a__old AS t3 JOIN b__changes AS t4" in text
    assert not program("select k from a left join b using (k)", "k").monotone
    with pytest.raises(ValueError, match="may change other rows"):
        program("select distinct k from a").appended(A)


REFUSED = {
    "select k, sum(x) over (order by k) as s from a": "WINDOW_WITHOUT_PARTITION_BY",
    "select k, rand() as r from a": "EXPRESSION_NOT_DETERMINISTIC",
    "select uuid() as u from a": "EXPRESSION_NOT_DETERMINISTIC",
    "select k from a order by k limit 3": "LIMIT",
    "with recursive r as (select 1 as n union all select n + 1 from r) select n from r": "RECURSIVE",
    "select my_function(k) as f from a": "FUNCTION_UNKNOWN",
    "select g, first(x) as f from a group by g": "ORDER_DEPENDENT",
    "select g, collect_list(x) as f from a group by g": "ORDER_DEPENDENT",
    "select g, any_value(x) as f from a group by g": "ORDER_DEPENDENT",
    "select q.v, count(*) as n from (select g, avg(x) as v from a group by g) q group by q.v": "FLOAT_KEY",
    "select m from d": "MAP_KEY",
    "select nothing from a": "NOT_RESOLVED",
    "select k from a, b": "NOT_RESOLVED",
    "select k from missing": "NOT_RESOLVED",
    "select k, count(*) from a group by k": "UNNAMED_COLUMN",
    "select k from a tablesample (10 percent)": "SAMPLE",
    "select * from values (1), (2) as t(n)": "INLINE_TABLE",
    "select (select x from b where b.k = a.k) as v from a": "SCALAR_SUBQUERY",
    "select k from a where (select max(b.y) from b where b.k < a.k) > 1": "CORRELATED_SUBQUERY",
    "select g in (select k from b) as e from a": "SUBQUERY_IN_EXPRESSION",
    "select a.k from a left join b on a.k = b.k and a.ts > now() - interval 1 hour * b.y": "TIME_IN_JOIN",
    "select frm k a": "SYNTAX_UNKNOWN",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_is_not_known_is_computed_whole_and_says_why(sql: str) -> None:
    found = understand(sql, {**INPUTS, "d": {"m": "map<string,int>"}})
    assert isinstance(found, FullOnly), found
    assert found.code == REFUSED[sql]
    assert found.reason
    assert not found.reason.endswith(".")


def test_a_declared_key_has_to_be_a_column() -> None:
    found = understand("select k from a", INPUTS, ("id",))
    assert isinstance(found, FullOnly)
    assert found.code == "KEY_MISSING"


def test_lists_become_deterministic_when_they_are_sorted() -> None:
    assert isinstance(understand("select g, sort_array(collect_set(x)) as v from a group by g", INPUTS), Incremental)
    listed = "select g, listagg(s, ',') within group (order by s) as v from a group by g"
    assert isinstance(understand(listed, INPUTS), Incremental)


def test_no_function_is_both_known_and_refused() -> None:
    known = functions.ROW_WISE | functions.AGGREGATES | functions.GENERATORS | functions.MOMENTS.keys()
    assert not known & (functions.VOLATILE | functions.IN_ARRIVAL_ORDER | functions.ORDERED)


def test_floats_that_are_summed_are_shown_and_are_no_key() -> None:
    floats = {"f": {"k": "int", "v": "double"}}
    found = understand("select k, sum(v) as total from f group by k", floats)
    assert isinstance(found, Incremental)
    assert found.key == ("k",)
    joined = understand(
        "select f.k, f.v, q.t from f join (select k, sum(v) as t from f group by k) q on f.k = q.k", floats
    )
    assert isinstance(joined, Incremental)
    assert joined.key == ("k", "v")
