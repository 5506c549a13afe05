"""Templates that only print: what is read without Jinja is what Jinja reads."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.project.reading.limits import MAX_CHARACTERS
from penstock.project.templates import jinja, plain, templates
from penstock.project.templates.context import TemplateContext
from penstock.project.templates.lookups import TemplateProblem
from penstock.project.templates.plain import plain_template
from penstock.project.templates.rendering import Inputs, render_model
from penstock.values.intervals import Interval

SCENE = TemplateContext(
    name="shop.orders",
    position="at",
    axis="second",
    interval=60,
    groups=(("raw.a",), ("raw.b",)),
    positions={"raw.a": "at", "raw.b": None, "shop.orders": "at"},
    databases={"external": "raw", "transformation": "shop"},
    env={"CURRENCY": "EUR", "EMPTY": ""},
    vars={"least": 10, "names": ["a", "b"], "long": "x" * (MAX_CHARACTERS // 2)},
)
PRINTED = (
    "{{ ref('raw.a') }}", '{{ref("b")}}', "{{ ref('raw.b', all=True) }}", "{{ ref( 'a' , all = false ) }}",
    "{{ bounds.start }}", "{{ range.end_time }}", "{{\n bounds.end\n}}", "{{ in_bounds('at') }}",
    "{{ in_bounds('at', type='bigint') }}", "{{ var('least') }}", "{{ var('names') }}", "{{ env.CURRENCY }}",
    "{{ env.EMPTY }}", "{{ self.position }}", "{{ self.database }}", "{{ task.direction }}", "{{ task.start }}",
    "{{ external }}", "{{ transformation }}",
)  # fmt: skip
ODD = (
    "{{ ref('raw.zzz') }}", "{{ ref('raw.a', type='x') }}", "{{ var('none') }}", "{{ env.NONE }}", "{{ bounds }}",
    "{{ bounds.nothing }}", "{{ self.relation }}", "{{ cache.previous_min }}", "{{ in_bounds('a b') }}",
    "{{ nobody }}", "{{ bounds.start + 1 }}", "{{ ref('a') | upper }}", "{{- ref('a') -}}", "{{ 'ref' }}",
    "{{ ref('a', True) }}", "{{ ref('a\\'b') }}", "{{ ref('a}}b') }}", "{{ ref(var('x')) }}", "{{ external.x }}",
    "{{ bounds['start'] }}", "{{ env['CURRENCY'] }}", "{{ dep['raw']['a'].name }}", "{% set x = 1 %}", "{# no #}",
    "{{ self }}", "{{ ref }}", "{{ var('long') }}{{ var('long') }}", "{{ env.__class__ }}", "{{ bounds._values }}",
    "{{ ref ('a') }}", "{{ bounds . start }}", "{{ external('x') }}", "{{ external.upper }}", "{{ ref.x }}",
    "{{ var('none', default='x') }}", "{{ self('x') }}", "{{ range('x') }}", "{{ dep.raw }}", "{{ in_bounds }}",
)  # fmt: skip
BETWEEN = ("select ", "\n", " ", "", "{", "}", "}}", "{{", "'", '"', "-- {", "%}", "#}", "\r\n", "æ", "`a`")
pieces = st.lists(st.sampled_from(PRINTED + BETWEEN), max_size=8) | st.lists(
    st.sampled_from(PRINTED + ODD + BETWEEN), max_size=8
)


def told(source: str, reader: object) -> object:
    """What a reading says of a template, or what it refuses it for, and what it makes of it."""
    try:
        outline = reader.outline(source)  # type: ignore[attr-defined]
        return outline.names, outline.lines, outline.uses, outline.printed
    except TemplateProblem as problem:
        return problem.message, problem.line


def made(source: str, reader: object, monkeypatch: pytest.MonkeyPatch) -> object:
    inputs = Inputs()
    with monkeypatch.context() as patch:
        patch.setattr(templates, "rendered", reader.rendered)  # type: ignore[attr-defined]
        try:
            text = render_model(
                source, SCENE, Interval(60, 120), choices=["raw.a", "raw.b"], ref=inputs, task_start=7, lane="repair"
            )
        except TemplateProblem as problem:
            return problem.message, problem.line
    return re.sub("0x[0-9a-f]+", "", text), inputs.uses  # where a function lies is chance


@given(pieces.map("".join))
def test_whatever_is_written_reads_and_renders_as_jinja_does_it(source: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        assert told(source, templates) == told(source, jinja)
        assert made(source, templates, patch) == made(source, jinja, patch)


def test_a_name_that_also_stands_alone_is_not_only_printed() -> None:
    source = "{{ bounds.start }} {{ bounds }} {{ range.end }}"
    assert templates.outline(source).printed == jinja.outline(source).printed == {"range"}


@pytest.mark.parametrize("source", PRINTED)
def test_ordinary_prints_need_no_jinja(source: str) -> None:
    found = plain_template(f"select 1 from {source} where 1")
    assert found is not None


@pytest.mark.parametrize("source", [one for one in ODD if "long" not in one])
def test_the_rest_is_jinjas(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(source, templates) == told(source, jinja)
    assert made(source, templates, monkeypatch) == made(source, jinja, monkeypatch)


def test_what_is_too_long_is_refused_in_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "{{ var('long') }}" * 3
    assert plain_template(source) is not None
    assert made(source, templates, monkeypatch) == made(source, jinja, monkeypatch)


def test_control_a_reader_that_takes_any_brace_for_its_own_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "_PRINTED", re.compile(plain._PRINTED.pattern.removeprefix(r"(?<!\{)"), re.ASCII))
    source = "select {{{ ref('raw.a') }} control"
    assert told(source, templates) != told(source, jinja)
