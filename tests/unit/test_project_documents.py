"""YAML 1.2 with lines, shapes of values, and the published JSON schema."""

from __future__ import annotations

import json
import re

import pytest
from fuzzing import effort
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from penstock.errors import ProjectErrors, UnknownModelError, nearest
from penstock.project import schema
from penstock.project.keys.keys import PROJECT, SCHEDULE
from penstock.project.reading.documents import Items, Node, Scalar, Table, merged, read_document
from penstock.project.reading.problems import Problems, Where
from penstock.values.models.axis import DURATION, duration


def read(text: str, first_line: int = 1) -> Node:
    problems = Problems()
    node = read_document(text, "f.yml", problems, first_line)
    problems.raise_if_any()
    assert node is not None
    return node


def plain(node: Node | None) -> object:
    match node:
        case Scalar():
            return node.value
        case Items():
            return [plain(item) for item in node.items]
        case Table():
            return {key: plain(item) for key, item in node.entries.items()}
        case None:
            return None


def mistakes(text: str, first_line: int = 1) -> list[tuple[int | None, str]]:
    problems = Problems()
    read_document(text, "f.yml", problems, first_line)
    try:
        problems.raise_if_any()
    except ProjectErrors as errors:
        return [(error.line, error.message) for error in errors.errors]
    return []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NO", "NO"),
        ("off", "off"),
        ("yes", "yes"),
        ("2026-01-01", "2026-01-01"),
        ("2026-01-01 10:00", "2026-01-01 10:00"),
        ("1:30", "1:30"),
        ("true", True),
        ("false", False),
        ("~", None),
        ("null", None),
        ("", None),
        ("08", 8),
        ("-12", -12),
        ("0o17", 15),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("'5'", "5"),
        ('"true"', "true"),
        ("<<", "<<"),
    ],
)
def test_plain_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    found = plain(read(f"key: {text}"))
    assert found == {"key": value}
    assert type(found["key"]) is type(value)  # type: ignore[index]


def test_every_node_knows_its_line() -> None:
    node = read("a: 1\nb:\n  - x\n  - {c: y}\n", first_line=5)
    assert isinstance(node, Table)
    assert node.at("b") == Where("f.yml", 6)
    items = node.get("b")
    assert isinstance(items, Items)
    assert [item.where.line for item in items.items] == [7, 8]


def test_a_key_that_stands_twice_is_an_error_that_names_both_lines() -> None:
    assert mistakes("a: 1\nb: 2\na: 3\n") == [(3, "the key 'a' stands twice; it is also on line 1")]


@pytest.mark.parametrize(
    "text", ["d:\n  - {{external}}.x\n", "d: x\ne: {{ external }}.x\n", "d: 1\ne: [{{external}}.x]\n"]
)
def test_b27_an_unquoted_placeholder_is_an_error_that_says_to_quote_it(text: str) -> None:
    found = mistakes(text, first_line=3)
    assert [line for line, _ in found] == [4]
    assert "must be quoted" in found[0][1]


def test_every_unquoted_placeholder_is_reported() -> None:
    assert [line for line, _ in mistakes("d:\n  - {{external}}.x\n  - {{transformation}}.y\n")] == [2, 3]


def test_a_quoted_placeholder_is_text() -> None:
    assert plain(read('d: ["{{external}}.x"]')) == {"d": ["{{external}}.x"]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 'x", "not valid YAML"),
        ("a: *b", "undefined alias"),
        ("a: &a [*a]", "refers to itself"),
        ("a: !thing 3", "'!thing' is not supported"),
        ("a: 1\n---\nb: 2", "more than one YAML document"),
        ("? [a]\n: b", "must be plain text"),
    ],
)
def test_what_is_no_plain_yaml_is_an_error_with_a_line(text: str, said: str) -> None:
    found = mistakes(text)
    assert len(found) == 1
    assert said in found[0][1]
    assert found[0][0] is not None


def test_aliases_cannot_blow_up() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 8)]
    assert any("refers to itself too often" in said for _, said in mistakes("\n".join(lines)))


keys = st.sampled_from("abc")
trees = st.recursive(
    st.integers() | st.booleans() | st.sampled_from(["NO", "off", "x y"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)


@effort(25)
@given(st.dictionaries(keys, trees))
def test_json_is_read_as_it_is(tree: dict[str, object]) -> None:
    assert plain(read(json.dumps(tree))) == tree


@effort(25)
@given(st.dictionaries(keys, trees), st.dictionaries(keys, trees))
def test_laying_one_mapping_over_another_keeps_what_only_one_has(
    below: dict[str, object], above: dict[str, object]
) -> None:
    both = plain(merged(read(json.dumps(below)), read(json.dumps(above))))
    assert isinstance(both, dict)
    assert both.keys() == below.keys() | above.keys()
    for key, value in both.items():
        if key not in above:
            assert value == below[key]
        elif not isinstance(above[key], dict) or not isinstance(below.get(key), dict):
            assert value == above[key]


units = st.sampled_from(
    ["s", "sec", "secs", "second", "seconds", "m", "min", "mins", "minutes", "h", "hour", "d", "days", "weeks"]
)
lengths = st.lists(st.tuples(st.integers(0, 999), st.sampled_from(["", " "]), units), min_size=1, max_size=3).map(
    lambda parts: " ".join(f"{n}{gap}{unit}" for n, gap, unit in parts)
)


@given(lengths)
def test_every_duration_the_pattern_accepts_has_a_length(text: str) -> None:
    assert re.fullmatch(DURATION, text)
    assert duration(text) >= 0


@given(st.text(alphabet="0123456789 smhdwx", max_size=8))
def test_the_pattern_of_durations_accepts_nothing_else(text: str) -> None:
    if re.fullmatch(DURATION, text):
        assert duration(text) >= 0


@pytest.mark.parametrize("text", ["5ms", "1 fortnight", "", "soon", "1.5 hours", "-1 hour"])
def test_what_is_no_duration_does_not_fit(text: str) -> None:
    assert not re.fullmatch(DURATION, text)


def fits_schedule(value: str) -> bool:
    node = read(f"s: {value}")
    assert isinstance(node, Table)
    inner = node.get("s")
    return inner is not None and SCHEDULE.clean(inner, "s", Problems()) is not None


@pytest.mark.parametrize(
    "value",
    [
        "'@every 1m'",
        "'@every 90 seconds'",
        "'@hourly'",
        "'@daily'",
        "'*/5 * * * *'",
        "0 3 * * 1-5",
        "60",
        "'0 0 1,15 JAN-MAR *'",
    ],
)
def test_schedules_may_be_intervals_descriptors_cron_or_seconds(value: str) -> None:
    assert fits_schedule(value)


@pytest.mark.parametrize(
    "value",
    [
        "'@every'",
        "'@fortnightly'",
        "'* * * *'",
        "'60 * * * *'",
        "'* 24 * * *'",
        "'* * 0 * *'",
        "'* * * 13 *'",
        "'*/0 * * * *'",
        "0",
        "off",
        "soon",
    ],
)
def test_other_schedules_are_refused(value: str) -> None:
    assert not fits_schedule(value)


def test_the_nearest_key_is_found_whatever_its_case() -> None:
    assert nearest("Intervall", ["interval", "limits"]) == "interval"
    assert nearest("raw.ordes", ["raw.orders", "raw.blocks"]) == "raw.orders"
    assert nearest("raw.xyz", ["raw.abc", "raw.orders"]) is None
    assert UnknownModelError("raw.xyz", ["raw.abc", "raw.orders"]).hint is None
    assert UnknownModelError("raw.Ordes", ["raw.orders"]).hint == "did you mean raw.orders?"


# One structural question, asked of the loader's table and of the JSON schema.

GOOD_PROJECT = [
    "{name: shop}",
    "{name: shop, targets: {dev: , prod: {state: 'x', spark: {conf: {a: 1}}}}}",
    "{name: shop, defaults: {timeout: 30 minutes, retries: 3, target_lag: downstream}}",
    "{name: shop, worker: {models: ['*', {pattern: a.*, concurrency: 2}]}}",
    "{name: shop, overrides: {a.b: {enabled: false, interval: {min: 0}}}}",
    "{name: shop, paths: {external: models, transformation: [a, b]}, env: {A: 1, B: x}}",
]
BAD_PROJECT = [
    "{}",
    "{nam: shop}",
    "{name: 3}",
    "{name: shop, targets: {dev: 3}}",
    "{name: shop, targets: {dev: {spark: local}}}",
    "{name: shop, worker: {concurrency: 0}}",
    "{name: shop, scheduler: {sweep: soon}}",
    "{name: shop, logging: loud}",
    "{name: shop, overrides: {a.b: {intervall: 3}}}",
    "{name: shop, env: {A: [1]}}",
    "{name: shop, databases: {external: 'a-b'}}",
    "{name: shop, defaults: {position: x}}",
]


@pytest.mark.parametrize(
    ("text", "good"), [(text, True) for text in GOOD_PROJECT] + [(text, False) for text in BAD_PROJECT]
)
def test_the_schema_of_project_files_agrees_with_the_loader(text: str, good: bool) -> None:
    node = read(text)
    problems = Problems()
    PROJECT.clean(node, "the project", problems)
    published = {**schema(), "anyOf": [{"$ref": "#/$defs/project"}]}
    assert (problems.count == 0) == good
    assert Draft202012Validator(published).is_valid(plain(node)) == good


def test_the_schema_is_a_valid_schema() -> None:
    Draft202012Validator.check_schema(schema())


def test_the_schema_tells_editors_what_each_key_is_for() -> None:
    definitions = schema()["$defs"]
    assert isinstance(definitions, dict)
    interval = definitions["interval"]
    assert isinstance(interval, dict)
    properties = interval["properties"]
    assert isinstance(properties, dict)
    assert all(isinstance(one, dict) and (one.get("description") or "const" in one) for one in properties.values())
