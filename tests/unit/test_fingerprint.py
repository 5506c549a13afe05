"""What makes a model another model, and what does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.project import unpack
from penstock.values.models import Chunking, Dependency, Fill, IntervalModel, Limits, Schedules, Source
from penstock.values.models.fingerprint import fingerprint, normalised
from penstock.values.models.source_format import source_format

MODEL = IntervalModel(
    name="shop.m",
    file="m.sql",
    sql="select at, count(*) as n from {{ ref('raw.a') }} where x = 'Big  one' group by at",
    position="at",
    axis="second",
    interval=Chunking(3600, 3600, 3600),
    dependencies=((Dependency("raw.a"),),),
)
SOURCE = Source(name="raw.a", file="a.yml", position="at", axis="second", location="./a", completeness="watermark")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT at,count( * ) AS n\n  FROM {{ref( 'raw.a' )}}\nWHERE x='Big  one' GROUP BY at ;",
        "-- a\nselect at, count(*) as n /* b */ from {{ ref('raw.a') }} {# c #} where x = 'Big  one' group by at",
    ],
)
def test_comments_spacing_and_letter_case_do_not_count(sql: str) -> None:
    assert fingerprint(replace(MODEL, sql=sql), {}) == fingerprint(MODEL, {})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("'Big  one'", "'big  one'"),
        ("'Big  one'", "'Big one'"),
        ("count(*)", "count(x)"),
        ("raw.a", "raw.b"),
        ("x =", "y ="),
        ("select", "select /*+ broadcast(a) */"),
        ("'Big  one'", "'-- x'"),
        ("{{ ref('raw.a') }}", "{{ ref('raw.a', all=True) }}"),
    ],
)
def test_what_the_query_says_counts(old: str, new: str) -> None:
    assert old in MODEL.sql
    assert fingerprint(replace(MODEL, sql=MODEL.sql.replace(old, new)), {}) != fingerprint(MODEL, {})


def test_a_template_tag_in_a_comment_still_counts() -> None:
    assert normalised("select 1 -- {% if a %}\n, 2 {% endif %}") != normalised("select 1 -- \n, 2 {% endif %}")


@pytest.mark.parametrize(
    ("a", "b"),
    [("'-- a'", "'-- b'"), ("r'\\' -- a", "r'\\' , a"), ("'it''s -- a'", "'it''s -- b'"), ("`-- a`", "`-- b`")],
)
def test_a_comment_inside_quotes_is_no_comment(a: str, b: str) -> None:
    assert normalised(f"select {a}") != normalised(f"select {b}")


def test_a_placeholder_inside_a_tag_does_not_end_it() -> None:
    sql = "select {{ ref('{{external}}.x') }}, 'a -- b'"
    assert normalised(sql) != normalised(sql.replace("-- b", "-- c"))


@given(st.lists(st.sampled_from(["select", "a", ",", "(", ")", "'x  y'", "{{ b }}", "1"]), max_size=12), st.data())
def test_any_spacing_and_notes_between_words_leave_the_words(words: list[str], data: st.DataObject) -> None:
    gaps = st.sampled_from([" ", "\n", "\t ", " /* n */ ", " -- n\n", " {# n #} "])
    spaced = "".join(word + data.draw(gaps) for word in words)
    assert normalised(spaced) == normalised(" ".join(words))


@pytest.mark.parametrize(
    "change",
    [
        {"position": "other"},
        {"axis": "block"},
        {"dependencies": ((Dependency("raw.b"),),)},
        {"dependencies": ((Dependency("raw.a", before=60),),)},
        {"dependencies": ((Dependency("raw.a", after=60),),)},
        {"dependencies": ((Dependency("raw.a"), Dependency("raw.b")),)},
        {"update_strategy": "append", "unique_key": ("at",)},
    ],
)
def test_what_decides_which_rows_are_seen_counts(change: dict[str, object]) -> None:
    assert fingerprint(replace(MODEL, **change), {}) != fingerprint(MODEL, {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"interval": Chunking(7200, 7200, 7200)},
        {"limits": Limits(1, 2)},
        {"schedules": Schedules("@hourly", "off")},
        {"fill": Fill("tail")},
        {"tags": ("a",)},
        {"description": "x"},
        {"file": "moved.sql"},
        {"cluster_by": ("x",)},
        {"retries": 9},
        {"env": {"UNUSED": "x"}},
    ],
)
def test_s0_59_and_r_11_how_and_when_it_runs_does_not_count(change: dict[str, object]) -> None:
    assert fingerprint(replace(MODEL, **change), {}) == fingerprint(MODEL, {})  # type: ignore[arg-type]


def test_the_key_of_an_append_counts_but_not_the_order_of_its_columns() -> None:
    facts = replace(MODEL, update_strategy="append", unique_key=("at", "n"))
    for change in ({"unique_key": ("n",)}, {"on_retract": "retract"}):
        assert fingerprint(replace(facts, **change), {}) != fingerprint(facts, {})  # type: ignore[arg-type]
    assert fingerprint(replace(facts, unique_key=("n", "at")), {}) == fingerprint(facts, {})


def test_a_source_is_another_one_elsewhere_but_not_with_another_lag() -> None:
    assert fingerprint(replace(SOURCE, location="./b"), {}) != fingerprint(SOURCE, {})
    assert fingerprint(replace(SOURCE, lag=60), {}) == fingerprint(SOURCE, {})


@pytest.mark.parametrize(
    "change",
    [
        {"position": "other"},
        {"axis": "block"},
        {"location": "./b"},
        {"format": source_format("parquet")},
        {"completeness": "inclusive"},
        {"bounds_sql": "select 1 as min, 2 as max"},
        {"exec": ("python", "bounds.py")},
    ],
)
def test_what_decides_which_rows_a_source_has_counts(change: dict[str, object]) -> None:
    assert fingerprint(replace(SOURCE, **change), {}) != fingerprint(SOURCE, {})  # type: ignore[arg-type]


def fingerprint_in_project(env: str, query: str, interval: str = "1h") -> str:
    files = {
        "penstock.yml": f"name: shop\ndatabases: {{external: raw, transformation: shop}}\n{env}\n",
        "models/external/a.yml": "location: x\nposition: at\n",
        "models/transformations/m.sql": f"---\ninterval: {interval}\nposition: at\n---\n{query}\n",
    }
    project = unpack({name: text.encode() for name, text in files.items()}, Path("/p"), {})
    return project.fingerprints["shop.m"]


@pytest.mark.parametrize(
    ("query", "counts"),
    [
        ("select at, '{{ env.A }}' as x from {{ ref('a') }}", True),
        ("select at, '{{ env['A'] }}' as x from {{ ref('a') }}", True),
        ("select at, '{{ env[var('name')] }}' as x from {{ ref('a') }}", True),
        ("select at, '{{ env.B }}' as x from {{ ref('a') }}", False),
        ("select at from {{ ref('a') }}", False),
    ],
)
def test_values_of_env_count_when_the_query_uses_them(query: str, counts: bool) -> None:
    one = fingerprint_in_project("env: {A: 1, B: 1}\nvars: {name: A}", query)
    other = fingerprint_in_project("env: {A: 2, B: 1}\nvars: {name: A}", query)
    assert (one != other) == counts


def test_values_of_var_count_when_the_query_uses_them() -> None:
    used, unused = (
        "select at, {{ var('v') }} as x from {{ ref('a') }}",
        "select at, {{ var('w') }} as x from {{ ref('a') }}",
    )
    assert fingerprint_in_project("vars: {v: 1, w: 1}", used) != fingerprint_in_project("vars: {v: 2, w: 1}", used)
    assert fingerprint_in_project("vars: {v: 1, w: 1}", unused) == fingerprint_in_project("vars: {v: 2, w: 1}", unused)


@pytest.mark.parametrize(
    ("query", "counts"),
    [
        ("select at, {{ self.interval }} as x from {{ ref('a') }}", True),
        ("select at, {{ self['interval'] }} as x from {{ ref('a') }}", True),
        ("select at, {{ self['inter' ~ 'val'] }} as x from {{ ref('a') }}", True),
        ("select at, '{{ self.name }}' as x from {{ ref('a') }}", False),
        ("select at from {{ ref('a') }}", False),
    ],
)
def test_the_size_of_chunks_counts_when_the_query_uses_it(query: str, counts: bool) -> None:
    assert (fingerprint_in_project("", query, "1h") != fingerprint_in_project("", query, "2h")) == counts
