"""Which queries can chunks share when rows carry their chunk, and what do they look like then?"""

from __future__ import annotations

import pytest

from penstock.project.queries.sharing import Share, Unshareable, shared
from penstock.project.templates.rendering import PLACEHOLDER_BOUNDS
from penstock.project.templates.templates import outline
from penstock.values.intervals import Interval
from penstock.values.tasks import TAG

START, END = PLACEHOLDER_BOUNDS.start, PLACEHOLDER_BOUNDS.end
CHUNKS = (Interval(0, 10), Interval(10, 20))


def made(sql: str, chunks: tuple[Interval, ...] = CHUNKS) -> str:
    """Over the positioned inputs a and b and the lookup l; the tag is spelled T."""
    return shared(sql, frozenset("ab"), Share(chunks, lambda tag: f"({tag} + 10)")).replace(TAG, "T")


SHARED = [
    (
        "select country, hour, count(*) as n from a group by country, hour",
        "SELECT country, hour, COUNT(*) AS n, a.T AS T FROM a AS a GROUP BY country, hour, a.T",
    ),
    ("select p, sum(x) as x from a group by all", "SELECT p, SUM(x) AS x, a.T AS T FROM a AS a GROUP BY ALL"),
    ("select *, 1 as y from a", "SELECT * EXCEPT (T), 1 AS y, a.T AS T FROM a AS a"),
    ("select distinct k from a u", "SELECT DISTINCT k, u.T AS T FROM a AS u"),
    (
        "select u.p, v.x from a u left join b v on u.k = v.k or u.x = 1",
        "SELECT u.p, v.x, u.T AS T FROM a AS u LEFT JOIN b AS v ON u.T = v.T AND (u.k = v.k OR u.x = 1)",
    ),
    (
        "select u.p, v.x from a u full join b v using (k)",
        "SELECT u.p, v.x, COALESCE(u.T, v.T) AS T FROM a AS u FULL JOIN b AS v USING (k, T)",
    ),
    (
        "select u.p from l right join b u on l.k = u.k",
        "SELECT u.p, u.T AS T FROM l AS l RIGHT JOIN b AS u ON l.k = u.k",
    ),
    (
        "select u.p from a u, l, b v where u.k = l.k",
        "SELECT u.p, u.T AS T FROM a AS u CROSS JOIN l AS l JOIN b AS v ON u.T = v.T WHERE u.k = l.k",
    ),
    (
        "select u.p from a u left semi join b on u.x = b.x join l on l.k = u.k right join b v using (x)",
        "SELECT u.p, v.T AS T FROM a AS u LEFT SEMI JOIN b AS b ON u.T = b.T AND (u.x = b.x) "
        "JOIN l AS l ON l.k = u.k RIGHT JOIN b AS v USING (x, T)",
    ),
    (
        "select p, sum(x) over (order by p) as s from a",
        "SELECT p, SUM(x) OVER (PARTITION BY a.T ORDER BY p) AS s, a.T AS T FROM a AS a",
    ),
    (
        "with q(p) as (select p from a) select p from q intersect select p from b",
        "WITH q(p, T) AS (SELECT p, a.T AS T FROM a AS a) SELECT p, q.T AS T FROM q AS q INTERSECT "
        "SELECT p, b.T AS T FROM b AS b",
    ),
    (
        "select p, y from a lateral view outer explode(ys) e as y where k in (select k from l)",
        "SELECT p, y, a.T AS T FROM a AS a LATERAL VIEW OUTER EXPLODE(ys) e AS y WHERE k IN (SELECT k FROM l AS l)",
    ),
]
APART = [
    ("select max(p) as p from a", "aggregates without GROUP BY"),
    ("select p from a limit 3", "LIMIT"),
    ("select p from l", "reads no input by position"),
    ("select p from a union all select p from l", "one side of its UNION"),
    ("select l.k as p from l left join a on l.k = a.k", "keeps rows of a lookup"),
    ("select a.p from a full join l on l.k = a.k", "keeps rows of a lookup"),
    ("select l.k as p from l left semi join a on l.k = a.k", "keeps rows of a lookup"),
    ("select p from a natural join b", "METHOD"),
    ("select p from a where x in (select x from b)", "a sub-query in an expression"),
    ("select p from a where exists (select 1 as one from b where b.k = a.k)", "a sub-query in an expression"),
    ("select p from a where x > (select avg(x) from b)", "aggregates without GROUP BY"),
    ("select p, rand() as r from a", "rand()"),
    ("select p, current_timestamp() as r from a", "current_timestamp()"),
    ("select p, current_date as r from a", "the time of the query"),
    ("select p, unix_timestamp() as r from a", "unix_timestamp()"),
    ("select p, first(x) as x from a group by p", "first()"),
    ("select p, collect_list(x) as x from a group by p", "collect_list()"),
    ("select p, my.own(x) as x from a", "a function of a database"),
    ("select p, count(*) as n from a group by rollup(p)", "ROLLUP"),
    ("select p, count(*) as n from a group by p with cube", "CUBE"),
    ("select p, sum(x) over w as s from a window w as (order by p)", "WINDOWS"),
    ("select p from a tablesample (10 percent)", "TABLESAMPLE"),
    ("select p, struct(*) as s from a", "a star in an expression"),
    ("select * from a join b using (k)", "a star over several inputs"),
    ("select p, x + 1 from a", "has no name"),
    ("select a.p from a right join b on a.k = b.k join b c using (x)", "USING after one with ON"),
    ("select a.p from a, b left join b c using (x)", "USING after one with ON"),
    ("select a.p from a, b right join l on true", "beside a RIGHT or FULL one"),
    ("select p from a, (values (1)) v", "VALUES"),
    ("select p from a, lateral (select a.x)", "rows that are made in the query"),
    ("select p from a qualify rank() over (order by p) = 1", "QUALIFY"),
    ("select p from a sort by p", "SORT"),
    (f"select p from a where s = '{START}'", "in a text or a name"),
    (f"with c as (select {START} as s) select p from a, c", "bounds where it reads no input"),
    (f"select p, count(*) as n from a group by p, {START}", "groups by a number"),
    ("select extract(hour from t) as p from a", "syntax that only Spark knows"),
]


@pytest.mark.parametrize(("query", "text"), SHARED)
def test_the_tag_goes_wherever_rows_meet(query: str, text: str) -> None:
    assert made(query) == text


@pytest.mark.parametrize(("query", "reason"), APART)
def test_what_cannot_carry_the_tag_is_refused_with_a_reason(query: str, reason: str) -> None:
    with pytest.raises(Unshareable) as refused:
        made(query)
    assert reason in str(refused.value)


def test_bounds_become_the_edges_of_the_rows_own_chunk() -> None:
    text = made(f"select p, {START - 5} as s from a where p < {END}")
    assert "CAST(a.T + -CAST(5 AS BIGINT) AS INT) AS s" in text
    assert "p < CAST((a.T + 10) + CAST(0 AS BIGINT) AS INT)" in text


def test_an_edge_has_the_type_that_its_number_has_in_a_text() -> None:
    late = (Interval(2**31, 2**31 + 10), Interval(2**31 + 10, 2**31 + 20))
    assert "AS INT)" not in made(f"select p, {START} as s from a", late)
    assert "AS BIGINT) AS s" in made(f"select p, {START} as s from a", late)


@pytest.mark.parametrize(
    ("template", "printed"),
    [
        ("{{ bounds.start }} {{ bounds.end - 3600 }}", True),
        ("{{ in_bounds('at', type='bigint') }}", True),
        ("{% if env.X %}{{ bounds.start }}{% endif %}", True),
        ("{% if bounds.start > 5 %}x{% endif %}", False),
        ("{{ bounds.start * 2 }}", False),
        ("{{ bounds.start | int }}", False),
        ("{{ bounds['start'] }}", False),
        ("{% set x = bounds.start %}{{ x }}", False),
        ("{% set x %}{{ bounds.start }}{% endset %}{{ x }}", False),
        ("{% for i in range(3) %}{{ i }}{% endfor %}", False),
        ("{{ in_bounds(env.COLUMN) }}", False),
    ],
)
def test_only_what_is_printed_and_nothing_else_can_be_found_again(template: str, printed: bool) -> None:
    found = outline(template)
    chunk_names = {"bounds", "range", "in_bounds"} & set(found.uses)
    assert (chunk_names <= found.printed) is printed
