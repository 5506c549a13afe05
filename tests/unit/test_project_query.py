"""What a query is: one SELECT, grouped or not, and whether chunks may share it."""

from __future__ import annotations

from collections import defaultdict
from importlib.metadata import version

import pytest
import sqlglot
import yaml
from hypothesis import given
from hypothesis import strategies as st

from penstock.project.queries.analysis import Analysis, Facts, QueryProblem, digest
from penstock.project.queries.query import analyse, check_bounds, one_select
from penstock.project.reading import toolchain

HOUR = Facts(position="hour", axis="second", align=3600, input_position="ordered_at", obstacle=None)
BLOCK = Facts(position="p", axis="block", align=100, input_position="n", obstacle=None)


def analysed(query: str, facts: Facts = HOUR) -> Analysis:
    return analyse(query.replace("INPUT", "`penstock_in_0`"), facts)


WIDENS = [
    "select date_trunc('hour', ordered_at) as hour, count(*) as n from INPUT group by all",
    "select date_trunc('hour', ordered_at) as hour, country, sum(x) from INPUT group by 1, 2",
    "select date_trunc('hour', o.ordered_at) as hour, c, count(distinct x) from INPUT o group by hour, c having c > 1",
    "select date_trunc('minute', ordered_at) hour, avg(x) from INPUT group by date_trunc('minute', ordered_at)",
    "select timestamp_seconds(floor(unix_timestamp(ordered_at) / 300) * 300) as hour, max(x) from INPUT group by 1",
    "select cast(floor(unix_seconds(ordered_at) / 300) * 300 as timestamp) as hour, min(x) from INPUT group by 1",
    "select date_trunc('second', date_trunc('minute', ordered_at)) as hour, count(*) from INPUT group by 1",
    "select ordered_at as hour, upper(x) as y from INPUT where z like 'a%' and w in (1, 2) or v is null",
    "select ordered_at as hour, case when x > 1 then coalesce(y, 0) else y end from INPUT order by y",
    "select ordered_at, ordered_at as hour, count(*) from INPUT group by ordered_at",
]  # fmt: skip
KEPT_APART = [
    ("select date_trunc('week', ordered_at) as hour, count(*) from INPUT group by 1", "rounded down to a fixed length"),
    ("select date_trunc('hour', ordered_at) as hour, now() from INPUT", "now()"),
    ("select ordered_at as hour, unix_timestamp() from INPUT", "current_timestamp()"),
    ("select ordered_at as hour, rand() from INPUT", "rand()"),
    ("select ordered_at as hour, uuid() from INPUT", "uuid()"),
    ("select ordered_at as hour, current_date() from INPUT", "current_date()"),
    ("select ordered_at as hour, monotonically_increasing_id() from INPUT", "monotonically_increasing_id()"),
    ("select ordered_at as hour, my_function(x) from INPUT", "my_function()"),
    ("select ordered_at as hour, first(x) from INPUT group by 1", "first()"),
    ("select ordered_at as hour, percentile_approx(x, 0.5) from INPUT group by 1", "is not known"),
    ("select ordered_at as hour, row_number() over (order by x) from INPUT", "window"),
    ("select distinct ordered_at as hour from INPUT", "DISTINCT"),
    ("select ordered_at as hour from INPUT limit 3", "LIMIT"),
    ("select ordered_at as hour from INPUT union all select ordered_at from INPUT", "not a plain SELECT"),
    ("select a.ordered_at as hour from INPUT a join INPUT b using (x)", "JOINS"),
    ("select a.ordered_at as hour from INPUT a, INPUT b", "JOINS"),
    ("with q as (select * from INPUT) select ordered_at as hour from q", "WITH"),
    ("select ordered_at as hour from INPUT where x in (select max(x) from INPUT)", "sub-query"),
    ("select ordered_at as hour from (select * from INPUT)", "exactly one table"),
    ("select ordered_at as hour from INPUT lateral view explode(x) t as y", "LATERALS"),
    ("select ordered_at as hour from INPUT tablesample (10 percent)", "exactly one table"),
    ("select ordered_at as hour, explode(x) from INPUT", "explode()"),
    ("select max(ordered_at) as hour from INPUT", "rounded down to a fixed length"),
    ("select country, max(ordered_at) as hour from INPUT group by country", "rounded down to a fixed length"),
    ("select ordered_at + interval 1 hour as hour from INPUT", "rounded down to a fixed length"),
    ("select x.ordered_at as hour from INPUT o", "rounded down to a fixed length"),
    ("select date_trunc('hour', ordered_at) as hour, count(*) from INPUT group by rollup(1)", "does not group by hour"),
    ("select date_trunc('hour', ordered_at) as hour, count(*) from INPUT group by 1 with rollup", "ROLLUP"),
    ("select date_trunc('hour', ordered_at) as hour, country from INPUT group by country", "does not group by hour"),
    ("select date_trunc('day', ordered_at) as hour, count(*) from INPUT group by 1", "steps of 86400, which do not"),
    ("select * from INPUT", "rounded down to a fixed length"),
]  # fmt: skip


@pytest.mark.parametrize("query", WIDENS)
def test_chunks_share_a_query_that_provably_gives_the_same_rows(query: str) -> None:
    found = analysed(query)
    assert found.widens, found.widens_reason


@pytest.mark.parametrize(("query", "reason"), KEPT_APART)
def test_chunks_do_not_share_what_cannot_be_proven(query: str, reason: str) -> None:
    found = analysed(query)
    assert not found.widens
    assert reason in found.widens_reason


def test_a_star_carries_the_position_along() -> None:
    facts = Facts(position="ordered_at", axis="second", align=3600, input_position="ordered_at", obstacle=None)
    assert analysed("select *, x + 1 as y from INPUT where x > 0", facts).widens
    assert not analysed("select * except (ordered_at) from INPUT", facts).widens


def test_floors_of_other_axes_are_buckets_too() -> None:
    assert analysed("select floor(n / 50) * 50 as p, count(*) from INPUT group by 1", BLOCK).widens
    assert not analysed("select floor(n / 30) * 30 as p, count(*) from INPUT group by 1", BLOCK).widens
    assert not analysed("select floor(n / 50) * 20 as p, count(*) from INPUT group by 1", BLOCK).widens
    assert not analysed("select date_trunc('hour', n) as p, count(*) from INPUT group by 1", BLOCK).widens


def test_an_obstacle_of_the_model_is_the_reason() -> None:
    facts = Facts(
        position="hour", axis="second", align=3600, input_position="ordered_at", obstacle="it mentions bounds"
    )
    assert analysed(WIDENS[0], facts).widens_reason == "it mentions bounds"


@pytest.mark.parametrize(
    ("query", "grouped"),
    [
        ("select ordered_at as hour from INPUT", False),
        ("select distinct ordered_at as hour from INPUT", False),
        ("select ordered_at as hour, sum(x) over (partition by y) from INPUT", False),
        ("select ordered_at as hour from INPUT group by 1", True),
        ("select max(ordered_at) as hour from INPUT", True),
        ("with q as (select ordered_at as hour, count(*) from INPUT group by 1) select * from q", True),
        ("select ordered_at as hour, sum(count(*)) over () from INPUT group by 1", True),
    ],
)
def test_b22_grouping_is_seen_wherever_it_stands(query: str, grouped: bool) -> None:
    assert analysed(query).grouped == grouped


@pytest.mark.parametrize(
    ("query", "line", "said"),
    [
        ("", 1, "no query"),
        ("-- only a comment\n", 1, "no query"),
        ("select 1 as hour;\n\n update x set y = 1", 3, "second statement (UPDATE …)"),
        ("\nmerge into x using y on true", 2, "starts with 'MERGE'"),
        ("selct 1", 1, "starts with 'SELCT'"),
        ("select 'a", 1, "cannot be read"),
        ("select 1 as hour\nfrom\n  raw.orders", 3, "reads raw.orders directly"),
        ("select 1 as hour from delta.`/some/path`", 1, "directly"),
        ("select (1 as hour", 1, "not valid SQL"),
        ("select 1 as x", 1, "no column 'hour'"),
        ("select ordered_at as hour,\n  x,\nfrom INPUT", 2, "nothing stands between ',' and 'from'"),
        ("select ordered_at as hour, greatest(x, ) as y from INPUT", 1, "between ',' and ')'"),
        ("select ordered_at as hour from INPUT group by 1,", 1, "between ',' and the end"),
    ],
)
def test_s0_49_a_model_is_one_select_over_what_it_refs(query: str, line: int, said: str) -> None:
    with pytest.raises(QueryProblem) as caught:
        analysed(query)
    assert caught.value.line == line
    assert said in caught.value.message


@pytest.mark.parametrize(
    "query",
    [
        "select 1 as hour;",
        "select ';' as hour -- ; select\n/* ; */ ;",
        "(select 1 as hour)",
        "from INPUT select ordered_at as hour",
        "with a as (select 1 as hour), b as (select * from a) select * from b",
        "select id as hour from range(10)",
        "select x.hour from INPUT o lateral view explode(xs) x as hour",
    ],
)
def test_other_spellings_of_one_select_are_fine(query: str) -> None:
    assert one_select(query.replace("INPUT", "`penstock_in_0`"))
    assert analysed(query)


def test_s0_47_a_bounds_query_has_the_columns_min_and_max() -> None:
    check_bounds("select min(a) as min, max(a) as MAX from anything.at_all")
    check_bounds("select * from anything")
    with pytest.raises(QueryProblem, match="no min and no max"):
        check_bounds("select a, b from c")


def test_a_digest_follows_everything_the_analysis_depends_on() -> None:
    assert digest("select 1", HOUR) == digest("select 1", HOUR)
    assert len({digest("select 1", HOUR), digest("select 2", HOUR), digest("select 1", BLOCK)}) == 3


def test_what_another_parser_or_another_analysis_proved_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest("select 1", HOUR)
    newer = {**toolchain.versions(), "sqlglot": "__version__ = '99.0.0'"}
    for name, changed in (("versions", lambda: newer), ("_content", lambda file: file.read_bytes() + b"# changed")):
        with monkeypatch.context() as patched:
            patched.setattr(toolchain, name, changed)
            toolchain.identity.cache_clear()
            assert digest("select 1", HOUR) != before
        toolchain.identity.cache_clear()
    assert digest("select 1", HOUR) == before


def test_every_library_that_reads_files_says_its_version() -> None:
    told = toolchain.versions()
    assert sqlglot.__version__ in told["sqlglot"]
    assert version("jinja2") in told["jinja2"]
    assert yaml.__version__ in told["yaml"]


# The rule itself, against brute force: buckets of `grain` over chunks of `align`.


def counted(rows: list[int], grain: int) -> dict[int, int]:
    counts: dict[int, int] = defaultdict(int)
    for row in rows:
        counts[row // grain * grain] += 1
    return counts


def apart(rows: list[int], grain: int, align: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start in range(0, 240, align):
        found += counted([row for row in rows if start <= row < start + align], grain).items()
    return sorted(found)


@given(st.lists(st.integers(0, 239)), st.integers(1, 12), st.sampled_from([6, 8, 12, 24, 60]))
def test_a_shared_query_gives_the_rows_of_one_query_per_chunk(rows: list[int], grain: int, align: int) -> None:
    facts = Facts(position="p", axis="block", align=align, input_position="n", obstacle=None)
    if analysed(f"select floor(n / {grain}) * {grain} as p, count(*) from INPUT group by 1", facts).widens:
        assert apart(rows, grain, align) == sorted(counted(rows, grain).items())


def test_negative_control_without_the_rule_about_steps_the_rows_differ() -> None:
    rows, grain, align = [4, 5, 6, 7], 4, 6
    facts = Facts(position="p", axis="block", align=align, input_position="n", obstacle=None)
    assert not analysed(f"select floor(n / {grain}) * {grain} as p, count(*) from INPUT group by 1", facts).widens
    assert apart(rows, grain, align) != sorted(counted(rows, grain).items())
