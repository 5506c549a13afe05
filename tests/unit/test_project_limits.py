"""What is too large, too deep or too long is an error that names its file and line, and soon."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType

import pytest
from written_project import BASE, CONFIG, ORDERS, SHOP, front, mistakes, one_model, read, written

from penstock.errors import ProjectError, ProjectErrors
from penstock.project import load
from penstock.project.queries.analysis import Facts, QueryProblem
from penstock.project.queries.query import analyse
from penstock.project.queries.sharing import Share, Unshareable, shared
from penstock.project.reading import depth, limits
from penstock.project.reading.limits import (
    MAX_BARE_JOINS,
    MAX_CHARACTERS,
    MAX_DIGITS,
    MAX_FILE_BYTES,
    MAX_NAME,
    MAX_NESTING,
    MAX_SECONDS,
)
from penstock.project.templates import jinja, sandbox
from penstock.project.templates.lookups import Span, TemplateProblem
from penstock.project.templates.templates import rendered
from penstock.values.intervals import Interval

QUERY = "select ordered_at as at from {{ ref('raw.orders') }}\n"
MANY = 5000


@contextmanager
def soon() -> Iterator[None]:
    """CPU of this thread, so that a busy machine does not decide."""
    began = time.thread_time()
    yield
    assert time.thread_time() - began < 2


DEEP = [
    ("template parentheses", "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}"),
    ("template lists", "{{ " + "[" * 3000 + "1" + "]" * 3000 + " }}"),
    ("template not", "{% if " + "not " * MANY + "1 %}{% endif %}"),
    ("template minus", "{{ " + "-" * MANY + "1 }}"),
    ("template plus", "{{ 1" + " + 1" * MANY + " }}"),
    ("template and", "{{ 1" + " and 1" * MANY + " }}"),
    ("template filters", "{{ 'a'" + "|upper" * MANY + " }}"),
    ("template members", "{{ self" + ".name" * MANY + " }}"),
    ("template conditions", "{{ " + "1 if 1 else " * MANY + "1 }}"),
    ("template ifs", "{% if 1 %}" * MANY + "{% endif %}" * MANY),
    ("template loops", "{% for a in [1] %}" * 30 + "{% endfor %}" * 30),
    ("types", "and cast(x as " + "array<" * 300 + "int" + ">" * 300 + ") is null"),
    ("joins", "and x in (select 1 from a " + "left join b " * 30 + ")"),
    ("digits", "{{ " + "7" * 10_000 + " }}"),
    ("hexadecimal digits", "{{ 0x" + "f" * 10_000 + " }}"),
    ("digits of SQL", "and x < " + "7" * 10_000),
    ("SQL parentheses", "and " + "(" * 3000 + "x" + ")" * 3000),
    ("SQL functions", "and " + "abs(" * 3000 + "x" + ")" * 3000),
    ("SQL sub-queries", "and x in " + "(select x from " * 500 + "{{ ref('raw.orders') }}" + ")" * 500),
    ("SQL not", "and " + "not " * MANY + "x"),
    ("SQL minus", "and " + "- " * MANY + "x"),
    ("SQL case", "and " + "case when a then " * MANY + "1" + " end" * MANY),
]


@pytest.mark.parametrize("deep", [text for _, text in DEEP], ids=[name for name, _ in DEEP])
def test_what_no_parser_can_hold_is_one_error_on_its_line(tmp_path: Path, deep: str) -> None:
    files = one_model(BASE, QUERY + "where ordered_at is not null\n" + deep)
    with soon():
        (found,) = mistakes(tmp_path, files)
    assert found.startswith("models/transformations/m.sql:7: ")
    assert len(found) < 300


def test_ordinary_nesting_is_within_the_limits(tmp_path: Path) -> None:
    deep = MAX_NESTING - 1
    condition = "where " + "(" * deep + "x" + ")" * deep + " > {{ " + "(" * 20 + "1" + ")" * 20 + " }}"
    condition += " and y in (" + ", ".join(map(str, range(2000))) + ") -- " + "(" * 500
    read(tmp_path, one_model(BASE, QUERY + condition + " and '" + "(" * 500 + "' <> z"))


NESTINGS = {
    "brackets": ("(", "x", ")"),
    "functions": ("coalesce(x, ", "y", ")"),
    "casts": ("cast(", "x", " as int)"),
    "lambdas": ("transform(x, e -> ", "e", ")"),
    "not and minus": ("not - (", "x", ")"),
    "case": ("case when x then y else ", "z", " end"),
    "sub-queries": ("(select y + ", "1", ")"),
    "lists": ("x in (", "1", ")"),
    "windows": ("sum(x) over (partition by ", "y", ")"),
}


@pytest.mark.parametrize("kind", NESTINGS)
def test_128_levels_of_sql_are_ordinary(tmp_path: Path, kind: str) -> None:
    assert MAX_NESTING >= 128
    opened, inner, closed = NESTINGS[kind]
    deep = opened * 128 + inner + closed * 128
    before = sys.getrecursionlimit()
    with soon():
        project = read(tmp_path, one_model(BASE, QUERY.replace(" as at", f" as at, {deep} as v")))
        assert len(project.graph.models) == 2
    assert sys.getrecursionlimit() == before


TEMPLATES = {
    "brackets": ("(", "1", ")", 126),
    "lists": ("[", "1", "]", 62),
    "calls": ("range(", "1", ")", 62),
    "operators": ("1 + (", "1", ")", 62),
    "not": ("not (", "1", ")", 62),
    "filters": ("(1|default(", "1", "))", 62),
}
"""How often each stands in `{{ }}` at most: 128 brackets, or 64 with what they stand in and what stands in them."""


@pytest.mark.parametrize("kind", TEMPLATES)
def test_a_template_may_be_as_deep_as_documented(kind: str) -> None:
    opened, inner, closed, most = TEMPLATES[kind]
    before = sys.getrecursionlimit()
    with soon():
        jinja._parsed("{{ " + opened * most + inner + closed * most + " }}").template()
    assert sys.getrecursionlimit() == before
    with soon(), pytest.raises(TemplateProblem, match="128 levels" if kind == "brackets" else "64 operators"):
        jinja._parsed("{{ " + opened * (most + 1) + inner + closed * (most + 1) + " }}")


def test_negative_control_without_room_documented_templates_are_too_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jinja, "deep", nullcontext)
    with pytest.raises(TemplateProblem, match="nested too deeply"):
        jinja._parsed("{{ " + "(" * 125 + "1" + ")" * 125 + " }}")


def test_chunks_share_a_query_of_128_levels() -> None:
    wide = "select at, " + "abs(" * 128 + "x" + ")" * 128 + " as v, count(*) as n from penstock_in_1 group by at, x"
    share = Share((Interval(0, 10), Interval(10, 20)), lambda tag: f"({tag} + 10)")
    assert "abs(" * 128 in shared(wide, frozenset({"penstock_in_1"}), share).lower()
    with pytest.raises(Unshareable, match="nested too deeply"):
        shared(wide.replace("abs(x", "abs(" + "not " * MANY + "x"), frozenset({"penstock_in_1"}), share)


@pytest.mark.parametrize(
    "long",
    [
        " + 1", " and x", " or x", " || 'a'", " union all select 1", "[1]", ".a", " is null", " = x",
        " is distinct from x", " at time zone 'UTC'", " collate UTF8_BINARY", " -> x", " - -x", " in (1)", " like 'x'",
    ],
)  # fmt: skip
def test_a_long_chain_is_read_or_refused_and_never_ends_the_process(tmp_path: Path, long: str) -> None:
    text = QUERY + "where ordered_at is not null\nand x" + long * 3000
    told: list[str] = []

    def loaded() -> None:  # in a thread, as a scheduler loads it: its stack is what the system gives
        try:
            read(tmp_path, one_model(BASE, text))
        except ProjectErrors as found:
            told.extend(f"{error.place}: {error.message}" for error in found.errors)

    thread = threading.Thread(target=loaded)
    thread.start()
    thread.join()
    for found in told:
        assert found.startswith("models/transformations/m.sql:7: ")
        assert len(found) < 300


def test_the_limit_of_python_is_raised_until_the_last_reader_is_done() -> None:
    before = sys.getrecursionlimit()
    inside, leave = threading.Event(), threading.Event()

    def read_slowly() -> None:
        with depth.deep():
            inside.set()
            leave.wait(30)

    other = threading.Thread(target=read_slowly)
    with depth.deep():
        other.start()
        assert inside.wait(30)
    assert sys.getrecursionlimit() == depth.FRAMES
    leave.set()
    other.join()
    assert sys.getrecursionlimit() == before


def test_negative_control_without_room_128_levels_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = Facts(position="a", axis="second", align=1, input_position=None, obstacle="none")
    sql = "select " + "(" * 128 + "1" + ")" * 128 + " as a"
    analyse(sql, facts)
    monkeypatch.setattr(depth, "deep", nullcontext)
    with pytest.raises(QueryProblem, match="nested too deeply"):
        analyse(sql, facts)


def test_brackets_are_counted_outside_of_texts_and_comments_only() -> None:
    inside = "(" * (MAX_NESTING + 1)
    for text in (f"'{inside}'", f'"{inside}"', f"`{inside}`", f"-- {inside}", f"/* {inside} */", "()" * 1000):
        assert limits.too_deep(text) is None, text
    assert limits.too_deep(f"1\n\n{inside}") == 3
    assert limits.too_deep("/*" * 100_000) is None


NESTED = "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(40) %}{% set n.a = [n.a, n.a] %}"
NESTED += "{% set n.b = [n.b, n.b] %}{% endfor %}"


@pytest.mark.parametrize(
    "heavy",
    [
        NESTED + "{{ n.a == n.b }}",
        NESTED.replace("[n.a, n.a]", "(n.a, n.a)").replace("[n.b, n.b]", "{'x': n.b, 'y': n.b}") + "{{ n.a == n.b }}",
        NESTED.replace("[n.a, n.a]", "(n.a, n.a)") + "{{ {n.a: 1} }}",
        NESTED.replace("[n.a, n.a]", "dict(x=n.a, y=n.a)") + "{{ n.a == n.b }}",
        NESTED + "{{ n.a in [n.b] }}",
        NESTED + "{{ n.a is eq n.b }}",
        NESTED.replace("[n.a, n.a]", "{'x': n.a, 'y': n.a}.items()") + "{{ n.a|string }}",
        NESTED.replace("[n.a, n.a]", "(n.a, n.a)|groupby(0)") + "{{ n.a == n.b }}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1, varargs, varargs) }}{% else %}{{ varargs|string }}{% endif %}"
        "{% endmacro %}{{ m(40) }}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1, a=kwargs, b=kwargs) }}{% else %}{{ kwargs|string }}{% endif %}"
        "{% endmacro %}{{ m(40) }}",
        "{% set s %}{% for i in range(20000) %}0123456789{% endfor %}{% endset %}"
        "{% set n = range(70000)|map('replace', '7', s)|list %}",
        "{% set a = range(20000)|list %}{% set b = range(50000)|select('in', a)|list %}",
        "{% set l = range(100)|list %}" + "{% for a in l %}" * 16 + "{% endfor %}" * 16,
        "{% set a = range(20000)|list %}{% set b = range(20000)|list %}"
        "{% for i in range(50000) %}{% if a == b %}{% endif %}{% endfor %}",
    ],
)
def test_a_template_cannot_work_for_long(heavy: str) -> None:
    with soon(), pytest.raises(TemplateProblem, match="more than"):
        rendered(heavy, {"range": Span("range", {})})


def namespaces(count: int) -> str:
    """Each holds the one before it twice; the last is printed."""
    return "{% set n = namespace(x=1) %}" + "{% set n = namespace(x=n, y=n) %}" * count + "{{ n }}"


def test_a_namespace_shows_nothing_of_what_it_holds() -> None:
    with soon():
        assert rendered(namespaces(40), {}) == "<Namespace>"


def test_negative_control_a_namespace_that_shows_all_doubles_at_every_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sandbox._Namespace, "__repr__")
    assert len(rendered(namespaces(10), {})) > 2**10


def test_a_filter_that_does_not_exist_is_named_with_its_line() -> None:
    with pytest.raises(TemplateProblem, match="No filter named 'nothing'") as caught:
        rendered("{{ 1 }}\n{{ 'a'|nothing }}", {})
    assert caught.value.line == 2


def test_a_constant_that_cannot_be_worked_out_is_an_error_too() -> None:
    rendered("{% if 1 %}{% endif %}", {})  # what this thread may still do does not count
    for constant in (f"'{'f' * 5000}'|int(base=16)", "1 if 1['a'] else 2", "[1]['a'] ~ 1"):
        with pytest.raises(TemplateProblem):
            rendered("{% set a = 1 %}{{ " + constant + " }}", {})


def test_slices_of_a_long_list_are_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_RENDER_SECONDS", 0.05)
    loop = "{% set a = range(20000)|list %}{% for i in range(5000) %}{% set b = a[:] %}{% endfor %}"
    with soon(), pytest.raises(TemplateProblem, match=r"works for more than 0\.05 second"):
        rendered(loop, {"range": Span("range", {})})


def test_comparisons_outside_of_loops_are_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_RENDER_SECONDS", 0.05)
    lists = {name: [str(n) for n in range(20000)] for name in "ab"}
    with soon(), pytest.raises(TemplateProblem, match=r"works for more than 0\.05 second") as caught:
        rendered("\n{% if a != b %}{% endif %}" * 1500, lists)
    assert 1 < caught.value.line < 1500


def test_negative_control_without_the_clock_a_loop_of_comparisons_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = "{% set a = range(20000)|list %}{% for i in range(2000) %}{% if a == a[:] %}{% endif %}{% endfor %}"
    monkeypatch.setattr(sandbox, "MAX_RENDER_SECONDS", 0.05)
    with pytest.raises(TemplateProblem, match=r"works for more than 0\.05 second"):
        rendered(loop, {"range": Span("range", {})})
    monkeypatch.setattr(sandbox._Budget, "spend", lambda budget, steps: None)
    rendered(loop, {"range": Span("range", {})})


def test_negative_control_without_weights_nested_lists_double_at_every_level(monkeypatch: pytest.MonkeyPatch) -> None:
    sixteen = NESTED.replace("range(40)", "range(16)") + "{% if n.a == n.b %}{% endif %}"
    with pytest.raises(TemplateProblem, match="more than 256000 characters"):
        rendered(sixteen, {"range": Span("range", {})})
    monkeypatch.setattr(sandbox, "_check", lambda size: None)
    monkeypatch.setattr(sandbox._Budget, "spend", lambda budget, steps: None)
    rendered(sixteen, {"range": Span("range", {})})


def test_negative_control_without_the_filters_of_ours_loops_take_no_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    loops = "{% set l = range(400)|list %}{% for a in l %}{% for b in l %}{% endfor %}{% endfor %}"
    with pytest.raises(TemplateProblem, match="more than 100000 steps"):
        rendered(loops, {"range": Span("range", {})})
    monkeypatch.setattr(sandbox.Guard, "_filtered", lambda guard, node, made: node)
    assert rendered(loops + "{# again #}", {"range": Span("range", {})}) == ""


def test_a_rendering_leaves_a_debugger_as_it_was() -> None:
    seen: list[str] = []

    def debugger(frame: FrameType, event: str, _: object) -> None:
        seen.append(event)

    before = sys.gettrace()
    sys.settrace(debugger)
    try:
        rendered("{{ 1 }}", {})
        assert sys.gettrace() is debugger
    finally:
        sys.settrace(before)


@pytest.mark.parametrize(
    "sly",
    [
        "{{ [1]|map(attribute='__class__')|list }}",
        "{{ [1]|map(attribute='__class__.__mro__')|list }}",
        "{{ ['a']|map('attr', '__class__')|list }}",
        "{{ [self]|sort(attribute='_values') }}",
        "{{ [1]|selectattr('__class__')|list }}",
        "{{ [[1]|first, 1|attr('__class__')] }}",
        "{{ [1]|map(attribute='nothing')|list }}",
        "{{ ['a', 'b']|random }}",
    ],
)
def test_neither_inner_nor_undefined_attributes_pass(tmp_path: Path, sly: str) -> None:
    (found,) = mistakes(tmp_path, one_model(BASE, QUERY + "-- " + sly))
    assert found.startswith("models/transformations/m.sql:")


@pytest.mark.parametrize("key", ["database", "table", "position", "axis"])
def test_names_have_a_length(tmp_path: Path, key: str) -> None:
    name = "n" * MAX_NAME
    keys = {"interval": "1h", "position": "at", "limits": "{min: 1970-01-02, max: 1970-01-03}", key: name}
    text = "".join(f"{one}: {value}\n" for one, value in keys.items())
    read(tmp_path, one_model(text, "select 1 as at, 2 as " + name)) if key != "axis" else None
    found = mistakes(tmp_path, one_model(text.replace(name, "n" * 5000), "select 1 as at"))
    assert len(found) == 1
    assert found[0].startswith("models/transformations/m.sql:")
    assert len(found[0]) < 300


def test_names_that_differ_in_case_only_are_one_table(tmp_path: Path) -> None:
    files = {"penstock.yml": CONFIG, "models/external/orders.yml": ORDERS, "models/external/more/Orders.yml": ORDERS}
    (found,) = mistakes(tmp_path, files)
    assert found == (
        "models/external/orders.yml:1: models/external/more/Orders.yml is the model raw.Orders and "
        "models/external/orders.yml is raw.orders: names that differ in letter case only are one table to Spark and "
        "to many file systems"
    )
    other = {**SHOP, "models/transformations/hourly2.sql": front("database: RAW\ntable: orders\n" + BASE)}
    (found,) = mistakes(tmp_path / "b", other)
    assert "raw.orders" in found
    assert "RAW.orders" in found


@pytest.mark.parametrize(
    "keys",
    [
        "interval: 99999999999999999999 days\nposition: at\n",
        "interval: 99999999999999999999\nposition: at\n",
        f"interval: {MAX_SECONDS + 1}\nposition: at\n",
        f"interval: 0x{'f' * 5000}\nposition: at\n",
        f"interval: {'9' * 5000} days\nposition: at\n",
        f"interval: {'9' * 5000}\nposition: at\n",
        "interval: {max: 1h, min: 20000000000 days, align: 1h}\nposition: at\n",
    ],
)
def test_lengths_fit_into_what_counts_them(tmp_path: Path, keys: str) -> None:
    (found,) = mistakes(tmp_path, one_model(keys))
    assert found.startswith("models/transformations/m.sql:2: ")
    assert len(found) < 400


@pytest.mark.parametrize(
    "keys",
    [
        "timeout: 20000000 weeks",
        "retries: 99999999999",
        "limits: {max: 9223372036854775808}",
        "max_inflight: 3000000000",
    ],
)
def test_numbers_fit_into_where_they_are_kept(tmp_path: Path, keys: str) -> None:
    (found,) = mistakes(tmp_path, one_model(BASE + keys + "\n"))
    assert found.startswith("models/transformations/m.sql:4: ")


def test_the_longest_length_is_fine(tmp_path: Path) -> None:
    read(tmp_path, one_model(f"interval: {MAX_SECONDS}\nposition: at\ntimeout: 1000 weeks\n"))


def test_a_large_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    root = written(tmp_path, SHOP)
    for name in ("models/transformations/large.sql", "models/external/large.yml"):
        with (root / name).open("wb") as file:
            file.truncate(50_000_000_000)  # a hole: whoever reads it runs out of memory
    (root / "models" / "external" / "pipe.yml").unlink(missing_ok=True)
    os.mkfifo(root / "models" / "external" / "pipe.yml")
    with soon():
        found = mistakes(root, {})
    assert found == [
        f"models/external/large.yml:1: the file has 50000000000 bytes; {MAX_FILE_BYTES} are the most",
        "models/external/pipe.yml:1: it is not a regular file",
        f"models/transformations/large.sql:1: the file has 50000000000 bytes; {MAX_FILE_BYTES} are the most",
    ]


def test_a_large_project_file_is_refused_too(tmp_path: Path) -> None:
    (tmp_path / "penstock.yml").write_text("#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(ProjectError, match="are the most") as caught:
        load(tmp_path, {})
    assert caught.value.place == "penstock.yml:1"


@pytest.mark.parametrize(
    "bomb",
    [
        "- " * 100_000,
        "? " * 100_000,
        "[" * 100_000,
        "{a: " * 50_000,
        "a: " + "7" * 10_000,
        "a: &a [1, 1]\n"
        + "".join(
            f"{c}: &{c} [*{p}, *{p}]\n" for p, c in zip("abcdefghijklmnopqrst", "bcdefghijklmnopqrstu", strict=True)
        ),
        "a: &a {b: *a}",
    ],
)
def test_a_small_text_cannot_become_a_large_document(tmp_path: Path, bomb: str) -> None:
    with soon():
        found = mistakes(tmp_path, {**SHOP, "models/external/bomb.yml": bomb})
    assert found[0].startswith("models/external/bomb.yml:")


def test_what_documentation_says_of_limits_is_so() -> None:
    text = (Path(__file__).parents[2] / "docs" / "projects.md").read_text()
    table = text[text.index("## How large") :]
    for limit in (
        MAX_FILE_BYTES,
        MAX_CHARACTERS,
        MAX_NESTING,
        limits.MAX_TREE,
        MAX_DIGITS,
        MAX_NAME,
        limits.MAX_SCRIPT_BYTES,
    ):
        assert f"{limit:,}" in table, limit


def test_ordinary_joins_and_types_are_within_the_limits(tmp_path: Path) -> None:
    joins = "".join(f" left join `penstock_x` as b{n} on b{n}.x = a.x" for n in range(60))
    crossed = "".join(f" cross join (select 1 as y{n}) as c{n}" for n in range(60))
    types = "cast(null as " + "map<string, array<" * 16 + "int" + ">>" * 16 + ")"
    for sql in (f"select 1 from a{joins}{crossed}", f"select {types}, a < b, b > c, 'join join' -- join"):
        assert limits.unreadable(sql) is None


def test_negative_control_without_the_limit_a_parser_begins_to_work_on_many_joins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bare = "select 1 as a from `penstock_in_0`" + " left join `penstock_in_0`" * (MAX_BARE_JOINS + 1)
    facts = Facts(position="a", axis="number", align=1, input_position=None, obstacle="none")
    with pytest.raises(QueryProblem, match="joins in a row"):
        analyse(bare, facts)
    monkeypatch.setattr(depth, "unreadable", lambda _: None)
    assert not analyse(bare, facts).grouped
