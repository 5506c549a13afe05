"""The names a template may use: an entry of the table is all that a new one needs, and what it leaves out is safe."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from written_project import BASE, CONFIG, SHOP, mistakes, model, one_model, read

from penstock.project import Project, load, render, trial
from penstock.project.keys.settings import Settings
from penstock.project.templates.names import TABLE, TemplateName, varying
from penstock.project.templates.outline import Outline
from penstock.values.intervals import Interval
from penstock.values.models import Model

DOCS = Path(__file__).parents[2] / "docs" / "projects.md"
GREETED = one_model(BASE, "select ordered_at as at, '{{ greeting }}' as g from {{ ref('raw.orders') }}")
COUNTED = "select ordered_at as at, count(*) as n, {} as x from {{{{ ref('raw.orders') }}}} group by ordered_at"
UNSAID = TemplateName(in_models=lambda _: "hello")
SAID = replace(UNSAID, varies="never")


def greeted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: TemplateName, config: str = CONFIG) -> Project:
    monkeypatch.setitem(TABLE, "greeting", entry)
    return read(tmp_path, {**GREETED, "penstock.yml": config})


def test_a_name_without_an_entry_is_a_mistake(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, GREETED)
    assert found == "models/transformations/m.sql:5: the template uses 'greeting', which is undefined"


def test_an_entry_is_all_that_a_new_name_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = greeted(tmp_path, monkeypatch, SAID)
    m = model(project, "shop.m")
    text = render(m, project, Interval(0, 3600), ["raw.orders"], lambda use: use.model, 0, "forward")
    assert text.strip() == "select ordered_at as at, 'hello' as g from raw.orders"
    assert m.widens, m.widens_reason


def test_a_name_that_does_not_say_how_it_varies_keeps_chunks_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    m = model(greeted(tmp_path, monkeypatch, UNSAID), "shop.m")
    assert (m.widens, m.widens_reason) == (False, "its template does more with greeting than to print it")
    assert varying(["greeting", "nobody", "ref", "task", "bounds"], "never", "bounds") == ["greeting", "nobody", "task"]


def test_a_name_of_old_that_no_longer_says_it_keeps_chunks_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert model(read(tmp_path, SHOP), "shop.hourly").widens
    monkeypatch.setitem(TABLE, "ref", TemplateName(in_models=TABLE["ref"].in_models))
    apart = model(load(tmp_path, {}), "shop.hourly")
    assert (apart.widens, apart.widens_reason) == (False, "its template does more with ref than to print it")


@pytest.mark.parametrize(
    ("written", "shared"),
    [
        ("{{ bounds.start }}", True),
        ("{{ range.end + 1 }}", True),
        ("max({{ in_bounds('ordered_at') }})", True),
        ("'{{ bounds.key }}'", False),
        ("{{ bounds['start'] }}", False),
        ("{{ bounds.start * 2 }}", False),
        ("{% if bounds.start > 0 %}1{% else %}2{% endif %}", False),
        ("length('{{ range(3) }}')", False),
        ("'{{ in_bounds }}'", False),
        ("{% set x = in_bounds('ordered_at') %}1", False),
    ],
)
def test_bounds_are_shared_only_where_they_are_printed(tmp_path: Path, written: str, shared: bool) -> None:
    m = model(read(tmp_path, one_model(BASE, COUNTED.format(written))), "shop.m")
    assert (m.tagged, "does more with" in (m.widens_reason or "")) == (shared, not shared)


def test_negative_control_bounds_that_only_seem_printed_would_be_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "shows_bounds_only", lambda name, outline: True)
    branch = "{% if bounds.start > 0 %}1{% else %}2{% endif %}"
    assert model(read(tmp_path, one_model(BASE, COUNTED.format(branch))), "shop.m").tagged


def test_a_value_of_the_project_that_a_name_shows_makes_a_model_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen(_: Outline, __: Model, settings: Settings) -> Mapping[str, object]:
        return {"greeting": settings.vars["greeting"]}

    def prints(entry: TemplateName) -> set[str]:
        configs = [f"{CONFIG}vars: {{greeting: {word}}}\n" for word in ("hello", "hi")]
        return {greeted(tmp_path, monkeypatch, entry, config).fingerprints["shop.m"] for config in configs}

    assert len(prints(replace(SAID, settings=seen))) == 2
    assert len(prints(SAID)) == 1  # the control: nothing else looks at it


def test_a_name_is_known_only_where_it_is_said(tmp_path: Path) -> None:
    front = "---\nlocation: x\nposition: at\n---\nselect min(at) as min, max(at) as max from {{ self.relation }} -- "
    files = {"penstock.yml": CONFIG, "models/external/b.sql": front + "{{ bounds.start }}\n"}
    assert mistakes(tmp_path / "a", files) == [
        "models/external/b.sql:5: the template uses 'bounds', which is undefined"
    ]
    (found,) = mistakes(tmp_path / "b", one_model(BASE, COUNTED.format("{{ cache.previous_min }}")))
    assert "the template uses 'cache', which is undefined" in found


def test_every_name_is_in_the_documentation() -> None:
    text = DOCS.read_text(encoding="utf-8")
    table = text[text.index("## Templates") : text.index("## How large")]
    written = {name for row in table.splitlines() if row[:3] == "| `" for name in re.findall(r"`([a-z_]+)", row)}
    assert not TABLE.keys() - written, "add a row to the table under Templates in docs/projects.md"
