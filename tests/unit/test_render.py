"""Templates: every variable, the sandbox, and the text that reaches Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fuzzing import effort
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ProjectError
from penstock.project import Inputs, Project, RefUse, ScanContext, moment, render, render_bounds, unpack
from penstock.project.templates.lookups import Span, TemplateProblem
from penstock.project.templates.templates import rendered
from penstock.values.intervals import Interval
from penstock.values.models import IntervalModel, Source

CONFIG = """name: shop
databases: {external: raw, transformation: shop}
env: {CURRENCY: EUR, PLACE: project}
vars: {limit: 3, word: deep}
"""
DAY = Interval(1_767_225_600, 1_767_312_000)


def project_with(query: str, keys: str = "", axis: str = "second") -> Project:
    front = f"---\ninterval: 3600\nposition: at\nenv: {{PLACE: model}}\n{keys}---\n"
    files = {
        "penstock.yml": CONFIG,
        "models/external/orders.yml": f"location: x\nposition: ordered_at\naxis: {axis}\n",
        "models/external/backup.yml": f"location: x\nposition: saved_at\naxis: {axis}\n",
        "models/external/customers.yml": "location: x\n",
        "models/transformations/m.sql": f"{front}{query}\n",
    }
    return unpack({name: text.encode() for name, text in files.items()}, Path("/p"), {})


def named(use: RefUse) -> str:
    return f"<{use.model}{' all' if use.all else ''}{' absent' if use.absent else ''}>"


def text_of(
    project: Project, choices: Sequence[str] = ("raw.orders",), bounds: Interval = DAY, lane: str = "forward"
) -> str:
    model = project.graph.models["shop.m"]
    assert isinstance(model, IntervalModel)
    return render(model, project, bounds, choices, named, 1_767_400_000, lane).strip()


GOLDEN = [
    ("{{ bounds.start }}", "1767225600"),
    ("{{ bounds.end }}", "1767312000"),
    ("{{ range.start }}", "1767225600"),
    ("{{ range.end }}", "1767312000"),
    ("'{{ bounds.key }} {{ range.key }}'", "'1767225600_1767312000 1767225600_1767312000'"),
    ("{{ bounds.start_time }}", "timestamp'2026-01-01T00:00:00Z'"),
    ("{{ bounds.end_time }}", "timestamp'2026-01-02T00:00:00Z'"),
    ("{{ range.start_time }}", "timestamp'2026-01-01T00:00:00Z'"),
    ("{{ range.end_time }}", "timestamp'2026-01-02T00:00:00Z'"),
    ("{{ in_bounds('c') }}", "(c >= timestamp'2026-01-01T00:00:00Z' and c < timestamp'2026-01-02T00:00:00Z')"),
    ("{{ in_bounds('o.c', type='bigint') }}", "(o.c >= 1767225600 and o.c < 1767312000)"),
    ("'{{ self.database }}'", "'shop'"),
    ("'{{ self.table }}'", "'m'"),
    ("'{{ self.name }}'", "'shop.m'"),
    ("'{{ self.position }}'", "'at'"),
    ("'{{ self.partition }}'", "'at'"),
    ("{{ self.interval }}", "3600"),
    ("'{{ self.axis }}'", "'second'"),
    ("{{ task.start }}", "1767400000"),
    ("'{{ task.direction }}'", "'forward'"),
    ("'{{ dep['raw']['orders'].database }}'", "'raw'"),
    ("'{{ dep['raw']['orders'].table }}'", "'orders'"),
    ("'{{ dep.raw.orders.partition }}'", "'ordered_at'"),
    ("'{{ dep['{{external}}']['orders'].position }}'", "'ordered_at'"),
    ("'{{ dep[external]['orders'].name }}'", "'raw.orders'"),
    ("'{{ external }} {{ transformation }}'", "'raw shop'"),
    ("'{{ env.CURRENCY }}'", "'EUR'"),
    ("'{{ env.PLACE }}'", "'model'"),
    ("{{ var('limit') + 1 }}", "4"),
    ("'{{ var('word') }}'", "'deep'"),
    ("{{ var('nothing', 7) }}", "7"),
    ("{% for n in range(3) %}{{ n }}{% endfor %}", "012"),
]


@pytest.mark.parametrize(("written", "shown"), GOLDEN)
def test_s0_46_every_variable_of_a_model_renders(written: str, shown: str) -> None:
    project = project_with(f"select {written} as x, ordered_at as at from {{{{ ref('raw.orders') }}}}")
    assert text_of(project) == f"select {shown} as x, ordered_at as at from <raw.orders>"


def test_s1_15_a_dependency_is_reached_by_its_name_and_by_its_placeholder_alike() -> None:
    fields = " ".join("{{{{ dep['{0}']['orders']." + field + " }}}}" for field in ("database", "table", "position"))
    plain, placeholder = (
        text_of(
            project_with(f"select '{fields.format(name)}' as x, ordered_at as at from {{{{ ref('{name}.orders') }}}}")
        )
        for name in ("raw", "{{external}}")
    )
    assert plain == placeholder
    assert "'raw orders ordered_at'" in plain


@pytest.mark.parametrize("lane", ["forward", "backfill", "repair"])
def test_b26_the_direction_is_the_lane(lane: str) -> None:
    project = project_with("select '{{ task.direction }}' as x, ordered_at as at from {{ ref('orders') }}")
    assert f"'{lane}'" in text_of(project, lane=lane)


def test_a_ref_reads_the_member_chosen_of_its_group() -> None:
    keys = "dependencies: [[raw.orders, raw.backup]]\n"
    project = project_with(
        "select at from {{ ref('raw.orders') }} union all select at from {{ ref('raw.backup') }}", keys
    )
    assert text_of(project, ["raw.orders"]).count("<raw.orders>") == 2
    assert text_of(project, ["raw.backup"]).count("<raw.backup>") == 2


def test_an_optional_input_without_data_is_told_apart() -> None:
    keys = "dependencies: [raw.orders, {model: raw.backup, optional: true}]\n"
    project = project_with("select a.at from {{ ref('raw.orders') }} a, {{ ref('raw.backup') }} b", keys)
    assert text_of(project, ["raw.orders", ""]).endswith("from <raw.orders> a, <raw.backup absent> b")


def test_a_whole_table_can_be_read() -> None:
    project = project_with("select a.at from {{ ref('orders') }} a, {{ ref('orders', all=True) }} b")
    assert text_of(project).endswith("from <raw.orders> a, <raw.orders all> b")


def test_the_engine_gets_one_view_per_different_use() -> None:
    project = project_with(
        "select a.at from {{ ref('orders') }} a, {{ ref('raw.orders') }} b, {{ ref('orders', all=True) }} c"
    )
    model = project.graph.models["shop.m"]
    assert isinstance(model, IntervalModel)
    inputs = Inputs()
    sql = render(model, project, DAY, ["raw.orders"], inputs, 0, "forward")
    assert sql.strip() == "select a.at from `penstock_in_0` a, `penstock_in_0` b, `penstock_in_1` c"
    assert inputs.uses == [RefUse("raw.orders"), RefUse("raw.orders", all=True)]


def test_on_another_axis_bounds_are_plain_numbers() -> None:
    project = project_with(
        "select ordered_at as at from {{ ref('orders') }} where {{ in_bounds('ordered_at') }}", axis="block"
    )
    assert text_of(project, bounds=Interval(5, 9)).endswith("where (ordered_at >= 5 and ordered_at < 9)")
    with pytest.raises(
        ProjectError, match="start_time and end_time exist on the axis 'second' only; this axis is 'block'"
    ):
        project_with("select {{ bounds.start_time }} as at from {{ ref('orders') }}", axis="block")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("{{ nope }}", "the template uses 'nope', which is undefined"),
        ("{{ bounds.middle }}", "bounds has no 'middle'"),
        ("{{ bounds }}", "bounds is not a value"),
        ("{{ self.relation }}", "self.relation is for bounds queries"),
        ("{{ cache.is_full_scan }}", "'cache', which is undefined"),
        ("{{ dep['raw']['ordes'].table }}", "did you mean 'orders'?"),
        ("{{ dep['raw']['customers'].table }}", "dep['raw'] has no 'customers'"),
        ("{{ env.CURENCY }}", "did you mean 'CURRENCY'?"),
        ("{{ in_bounds('a b') }}", "give the name of a column"),
        ("{{ in_bounds('c', type='date') }}", "it is 'timestamp' or 'bigint'"),
        ("{% include 'x' %}", "the template fails"),
        ("{{ ref() }}", "the template fails"),
        ("{{ 1 / 0 }}", "division by zero"),
    ],
)
def test_b26_what_a_template_cannot_say_is_an_error_at_load_time(written: str, said: str) -> None:
    with pytest.raises(ProjectError) as caught:
        project_with(f"select ordered_at as at from {{{{ ref('orders') }}}}\n-- {written}")
    assert said in caught.value.message
    assert caught.value.line in (7, 8)


@pytest.mark.parametrize(
    "written",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ ref.__globals__ }}",
        "{{ bounds._values }}",
        "{{ self._values }}",
        "{{ 'a' * 1000000000 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ 'a'.ljust(1000000000) }}",
        "{{ 'a' | center(1000000000) }}",
        "{{ 10 ** 1000000000 }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{% for a in range(1000000000) %}{% endfor %}",
        "{% for a in range(1000) %}{% for b in range(1000) %}{% endfor %}{% endfor %}",
        "{% for a in range(50000) %}{{ 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' }}{% endfor %}",
        "{{ lipsum(1000) }}",
        "{{ env.update({}) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ 'a'|attr('ljust')(1000000000) }}",
        "{{ (1).to_bytes(1000000000, 'big') }}",
        "{{ [1]|batch(1000000000, 0)|list }}",
        "{{ 1.5|round(1000000000, 'ceil') }}",
        "{% set l = range(400)|list %}{% for a in l %}{% for b in l %}{% endfor %}{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(40) }}",
    ],
)
def test_templates_are_sandboxed_and_bounded(written: str) -> None:
    with pytest.raises(ProjectError):
        project_with(f"select ordered_at as at from {{{{ ref('orders') }}}} -- {written}")


DOUBLING = [
    "{% set n.s = n.s ~ n.s %}",
    "{% set n.s = n.s + n.s %}",
    "{% set n.s = [n.s, n.s]|join %}",
    "{% set n.s = [n.s, n.s]|map('upper')|join(',') %}",
    "{% set n.s = ''.join([n.s, n.s]) %}",
    "{% set n.s = n.s|replace('a', 'aa') %}",
    "{% set n.s = n.s.replace('a', 'aa') %}",
    "{% set n.s %}{{ n.s }}{{ n.s }}{% endset %}",
    "{% set n.s = twice(n.s) %}",
    "{% set n.s = [n.s, n.s]|string %}",
    "{% set n.s = ([n.s, n.s] ~ '') %}",
    "{% set n.s = {'x': n.s, 'y': n.s}|string %}",
    "{% set n.l = n.l + n.l %}",
    "{% set n.l = [n.l, n.l] %}{% set x = n.l|string %}",
    "{% set n.l = [n.l, n.l]|sum(start=[]) %}",
    "{% set n.i = n.i * n.i %}",
]


@pytest.mark.parametrize("doubled", DOUBLING)
def test_nothing_inside_a_template_can_be_doubled_without_end(doubled: str) -> None:
    begin = "{% macro twice(s) %}{{ s }}{{ s }}{% endmacro %}{% set n = namespace(s='aaaa', l=[1, 2, 3, 4], i=7) %}"
    loop = f"{begin}{{% for i in range(22) %}}{doubled}{{% endfor %}}"
    with pytest.raises(TemplateProblem, match=r"more than 256000 characters|for small numbers|for numbers"):
        rendered(loop, {"range": Span("range", {})})


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("{{ ['a', 1]|join(', ') }}", "a, 1"),
        ("{{ ', '.join(['a', 'b']) }}", "a, b"),
        ("{{ [n, n]|join('-', attribute='s') }}", "x-x"),
        ("{{ 'a-b-c'|replace('-', '', 1) }} {{ 'a-b'.replace('-', '+') }}", "ab-c a+b"),
        ("{{ range(20000)|join(',')|length }}", "108889"),
        ("{{ 1 + 2 }} {{ [1] + [2] }} {{ 'a' + 'b' }} {{ 'a' ~ 1 ~ none }}", "3 [1, 2] ab a1None"),
        ("{{ 7.255|round(2) }} {{ 7.251|round(2, 'ceil') }} {{ [1, 2]|sum }} {{ 3 * 4 }}", "7.25 7.26 3 12"),
        ("{% macro m(a) %}{{ a|default('none') }} {{ a is defined }}{% endmacro %}{{ m(n.nothing) }}", "none False"),
        ("{% for a in ['x', 'y'] %}{{ loop.index }}{{ a }}{{ '' if loop.last else ',' }}{% endfor %}", "1x,2y"),
        ("{% for a in ['x']|map('upper') %}{{ a }}{{ loop.length }}{% else %}none{% endfor %}", "X1"),
        ("{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(1) }}{% set b %}{{ m(2) }}{% endset %}{{ b }}", "<1><2>"),
    ],
)
def test_limits_leave_ordinary_templates_alone(written: str, shown: str) -> None:
    assert rendered("{% set n = namespace(s='x') %}" + written, {"range": Span("range", {})}) == shown


def test_a_template_that_fails_later_names_its_file_and_line() -> None:
    project = project_with(
        "select ordered_at as at\nfrom {{ ref('orders') }}\n{% if bounds.end < 0 %}{{ 1 / 0 }}{% endif %}"
    )
    with pytest.raises(ProjectError) as caught:
        text_of(project, bounds=Interval(-20, -10))
    assert (caught.value.file, caught.value.line) == ("models/transformations/m.sql", 8)


# Bounds queries of sources

BOUNDS = """---
location: x
position: at
---
select min(at) as min, max(at) as max from {{ self.relation }}
{% if cache.is_incremental_scan %}where at < {{ cache.previous_min }} or at > {{ cache.previous_max }}{% endif %}
-- {{ cache.is_full_scan }} {{ self.name }} {{ ref(self.database ~ '.' ~ self.table) }} {{ env.CURRENCY }}
"""


@pytest.mark.parametrize(
    ("scan", "shown"),
    [
        (ScanContext(True), ["<raw.b all>", "", "-- True raw.b <raw.b all> EUR"]),
        (ScanContext(True, 5, 9), ["<raw.b all>", "", "-- True raw.b <raw.b all> EUR"]),
        (ScanContext(False, 5, 9), ["<raw.b all>", "where at < 5 or at > 9", "-- False raw.b <raw.b all> EUR"]),
    ],
)
def test_s1_7_a_bounds_query_renders_for_both_kinds_of_scan(scan: ScanContext, shown: list[str]) -> None:
    project = unpack({"penstock.yml": CONFIG.encode(), "models/external/b.sql": BOUNDS.encode()}, Path("/p"), {})
    source = project.graph.models["raw.b"]
    assert isinstance(source, Source)
    lines = render_bounds(source, project, scan, named).strip().split("\n")
    assert lines == [f"select min(at) as min, max(at) as max from {shown[0]}", *shown[1:]]


# Moments


@given(st.integers(-62_135_596_800, 253_402_300_799))
def test_a_moment_is_the_same_instant_in_every_time_zone(position: int) -> None:
    shown = moment(position)
    assert shown.startswith("timestamp'")
    read = datetime.fromisoformat(shown.removeprefix("timestamp'").removesuffix("'"))
    assert read.tzinfo is not None
    assert (read - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() == position


def test_a_moment_beyond_the_calendar_is_a_number_of_seconds() -> None:
    assert moment(253_402_300_800) == "timestamp_seconds(253402300800)"
    assert moment(-62_135_596_801) == "timestamp_seconds(-62135596801)"


ON_BLOCKS = "select ordered_at as at from {{ ref('orders') }} where {{ in_bounds('p') }}"


def hits(project: Project, bounds: Interval, p: int) -> bool:
    condition = text_of(project, bounds=bounds).split(" where ")[1]
    return bool(eval(condition, {}, {"p": p}))


@effort(15)
@given(st.integers(-(10**6), 10**6), st.integers(1, 100), st.integers(1, 100))
def test_b22_neighbouring_bounds_share_no_row_and_lose_none(start: int, first: int, second: int) -> None:
    project = project_with(ON_BLOCKS, axis="block")
    middle, end = start + first, start + first + second
    for p in (start - 1, start, middle - 1, middle, end - 1, end):
        found = hits(project, Interval(start, middle), p) + hits(project, Interval(middle, end), p)
        assert found == (start <= p < end)


def test_negative_control_inclusive_bounds_count_a_row_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def inclusive(column: str, _type: str, bounds: Interval, _axis: str) -> str:
        return f"({column} >= {bounds.start} and {column} <= {bounds.end})"

    monkeypatch.setattr("penstock.project.templates.names._condition", inclusive)
    project = project_with(ON_BLOCKS, axis="block")
    assert hits(project, Interval(0, 10), 10) + hits(project, Interval(10, 20), 10) == 2
