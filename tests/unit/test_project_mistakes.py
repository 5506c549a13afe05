"""Every mistake in one run, and the schema that finds the same ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzzing import effort
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from written_project import CONFIG, ORDERS, SHOP, front, mistakes, read

from penstock.errors import ProjectError, ProjectErrors
from penstock.project import schema, unpack
from penstock.values.models import IntervalModel, Schedules

# All mistakes at once


def hourly(keys: str, query: str = "select ordered_at as at from {{ ref('raw.orders') }}") -> str:
    return front(f"interval: 1h\nposition: at\n{keys}", query)


MISTAKES = {
    "models/external/typo.yml": (
        "locaton: x\n",
        "typo.yml:1: there is no key 'locaton'; did you mean 'location'?",
    ),
    "models/transformations/dbt.sql": (
        hourly("materialized: incremental\n"),
        "dbt.sql:4: there is no key 'materialized': Penstock has no materializations; see interval and target_lag",
    ),
    "models/external/flag.yml": (
        "external: false\n",
        "flag.yml:1: external: false disagrees",
    ),
    "models/external/twice.yml": (
        "location: x\nlocation: y\n",
        "twice.yml:2: the key 'location' stands twice",
    ),
    "models/external/value.yml": (
        "position: at\nlag: soon\n",
        "value.yml:2: lag: 'soon' is not a duration: write 30s, 5 minutes, 1 hour, 1 day or a number",
    ),
    "models/transformations/unquoted.sql": (
        hourly("dependencies:\n  - {{external}}.orders\n"),
        "unquoted.sql:5: {{external}}.orders must be quoted",
    ),
    "models/transformations/unknown.sql": (
        hourly("", "select at from {{ ref('raw.ordes') }}"),
        "unknown.sql:5: shop.unknown depends on 'raw.ordes'",
    ),
    "models/transformations/cycle.sql": (
        hourly("", "select at from {{ ref('shop.cycle') }}"),
        "cycle.sql:5: shop.cycle depends on itself",
    ),
    "models/transformations/axis.sql": (
        front("interval: 100\nposition: at\naxis: block\n"),
        "axis.sql:4: shop.axis is on the axis 'block'",
    ),
    "models/transformations/name.sql": (
        hourly("", "select {{ bound.start }} as at"),
        "name.sql:5: the template uses 'bound'",
    ),
    "models/transformations/other.sql": (
        hourly("target_lag: 1m\n"),
        "other.sql:4: 'target_lag' is a key of dynamic models",
    ),
    "models/transformations/double.sql": (
        hourly("table: hourly\n"),
        "two files are the model shop.hourly",
    ),
    "models/transformations/two.sql": (
        hourly("", "select ordered_at as at from {{ ref('orders') }}; select 2"),
        "two.sql:5: there is a second statement",
    ),
    "models/transformations/later.sql": (
        "---\nschedule: '@hourly'\n---\nselect 1\n",
        "later.sql:2: shop.later: a full model is not built yet",
    ),
    "models/transformations/open.sql": (
        "---\ninterval: 1h\n",
        "open.sql:1: the front matter has no closing ---",
    ),
    "models/transformations/headless.sql": (
        "-- the hours\ninterval: 1h\n---\nselect 1\n",
        "headless.sql:2: the front matter has no opening ---",
    ),
    "models/transformations/never.sql": (
        hourly("", "select 1 as at"),
        "never.sql:2: shop.never reads nothing that has a position",
    ),
}


def test_a_project_with_fifteen_kinds_of_mistakes_reports_all_of_them(tmp_path: Path) -> None:
    files = {**SHOP, **{name: text for name, (text, _) in MISTAKES.items()}, "penstock.yml": CONFIG + "lgging: info\n"}
    found = mistakes(tmp_path, files)
    assert len(found) == len(MISTAKES) + 1
    for _, said in MISTAKES.values():
        assert [said in one for one in found].count(True) == 1, said
    assert "penstock.yml:3: the project has no key 'lgging'; did you mean 'logging'?" in found


@effort(25)
@given(st.sets(st.sampled_from(sorted(MISTAKES)), min_size=1))
def test_any_set_of_mistakes_is_reported_wholly_and_alone(chosen: set[str]) -> None:
    files = {**SHOP, **{name: MISTAKES[name][0] for name in chosen}}
    with pytest.raises(ProjectErrors) as caught:
        unpack({name: text.encode() for name, text in files.items()}, Path("/p"), {})
    found = [f"{error.place}: {error.message}" for error in caught.value.errors]
    assert len(found) == len(chosen)
    assert all(any(MISTAKES[name][1] in one for one in found) for name in chosen)


def test_project_errors_keep_file_line_and_hint(tmp_path: Path) -> None:
    with pytest.raises(ProjectErrors) as caught:
        read(
            tmp_path,
            {**SHOP, "models/transformations/unquoted.sql": MISTAKES["models/transformations/unquoted.sql"][0]},
        )
    error: ProjectError = caught.value
    assert (error.kind, error.exit_code) == ("project", 2)
    assert (error.file, error.line, error.hint) == (
        "models/transformations/unquoted.sql",
        5,
        'write "{{external}}.orders"',
    )


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ("'0 0 31 2 *'", "not '0 0 31 2 *': day of month, month, day of week: '31 2 *' is a date that never comes"),
        ("'0 25 * * *'", "not '0 25 * * *': hour: 25 is not between 0 and 23"),
        ("0 9 * * fri-mon", "not '0 9 * * fri-mon': day of week: the range 'fri-mon' runs backwards"),
        ("'@every 0s'", "not '@every 0s': the time between two slots must be at least a second"),
        ("99999999999", "not the number 99999999999: the time between two slots must be at least a second"),
        ("0", "not the number 0: the time between two slots must be at least a second"),
        ("'0'", "not '0': the time between two slots must be at least a second"),
        ("sometimes", "not 'sometimes': 'sometimes' is no schedule"),
        ("[1m]", "or off, not a list"),
        ("1.5", "or off, not the number 1.5"),
        ("true", "or off, not true"),
    ],
)
def test_s0_45_a_schedule_that_cannot_be_kept_is_a_mistake_on_its_line(
    tmp_path: Path, schedule: str, said: str
) -> None:
    expected = "a schedule: '@every 1m', '@hourly', five cron fields or a number of seconds, or off"
    files = {
        **SHOP,
        "models/transformations/m.sql": hourly(f"schedules:\n  backfill: off\n  forwardfill: {schedule}\n"),
    }
    (found,) = mistakes(tmp_path, files)
    assert found.startswith(f"models/transformations/m.sql:6: schedules.forwardfill must be {expected}"), found
    assert said in found


@pytest.mark.parametrize(
    ("place", "line"),
    [("defaults:\n  schedules:\n    backfill: ", 5), ("overrides:\n  shop.hourly:\n    schedules: {backfill: ", 5)],
)
def test_schedules_of_the_project_file_are_read_as_closely(tmp_path: Path, place: str, line: int) -> None:
    text = f"{CONFIG}{place}'0 0 31 2 *'{'}' if '{' in place else ''}\n"
    (found,) = mistakes(tmp_path, {**SHOP, "penstock.yml": text})
    assert found.startswith(f"penstock.yml:{line}: ")
    assert found.endswith("is a date that never comes")


@pytest.mark.parametrize(
    ("written", "spec"),
    [("300", "300"), ("'300'", "300"), ("0x12c", "300"), ("+300", "300"), ("'@hourly'", "@hourly"), ("off", "off")],
)
def test_a_schedule_is_kept_as_its_reader_takes_it(tmp_path: Path, written: str, spec: str) -> None:
    text = hourly(f"schedules: {{backfill: {written}}}\n")
    found = read(tmp_path, {**SHOP, "models/transformations/m.sql": text}).graph.models["shop.m"]
    assert isinstance(found, IntervalModel)
    assert found.schedules == Schedules(None, spec)


# One structural question about model files, asked of the loader and of the JSON schema.

STRUCTURE = [
    ("external", "location: x", True),
    ("external", "position: at\nscan: {full: 1h}", True),
    ("external", "position: at\ncache: {full_scan_interval: 1h}", True),
    ("external", "position: at\nttl: 60", True),
    ("external", "position: at\nttl: 60\nscan: {full: 1h}", False),
    ("external", "position: at\npartition: at", False),
    ("external", "interval: 1h", False),
    ("external", "lagg: 3", False),
    ("external", "type: interval", False),
    ("external", "position: at\ncompleteness: maybe", False),
    ("transformation", "interval: 1h\nposition: at", True),
    ("transformation", "interval: {max: 1h, min: 0}\npartition: at", True),
    ("transformation", "interval: 1h\nposition: at\ntype: interval\nexternal: false", True),
    ("transformation", "interval: 1h\nposition: at\ndependencies: [a.b, [c.d, {model: e}], '{{external}}.f']", True),
    ("transformation", "interval: 1h\nposition: at\ndependencies: [{before: 1h}]", False),
    ("transformation", "interval: 1h\nposition: at\ndependencies: ['a b']", False),
    ("transformation", "interval: 1h", False),
    ("transformation", "position: at", False),
    ("transformation", "interval: {min: 0}\nposition: at", False),
    ("transformation", "interval: 1h\nposition: at\nschedule: '@hourly'", False),
    ("transformation", "interval: 1h\nposition: at\nexternal: true", False),
    ("transformation", "interval: 1h\nposition: at\nschedules: {backfill: off}", True),
    ("transformation", "interval: 1h\nposition: at\nschedules: {backfill: false}", False),
    ("transformation", "interval: 1h\nposition: at\nchecks: [{unique: a, severity: warn}]", True),
    ("transformation", "interval: 1h\nposition: at\nchecks: [{severity: warn}]", False),
    ("transformation", "type: dynamic\ninterval: 1h\nposition: at", False),
    ("transformation", "target_lag: on_upstream\nkey: [a, b]", True),
    ("transformation", "target_lag: 300\nrefresh_strategy: incremental\ncardinality_threshold: 0.5", True),
    ("transformation", "target_lag: manual\ncluster_by: a\nchecks: [{unique: a}]\nmax_parallelism: 2", True),
    ("transformation", "target_lag: 1h\ncardinality_threshold: 2", False),
    ("transformation", "target_lag: never", False),
    ("transformation", "target_lag: 1h\nposition: at", False),
    ("transformation", "target_lag: 1h\nschedule: '@hourly'", False),
    ("transformation", "schedule: '0 3 * * *'\nunique_key: a", True),
    ("transformation", "schedule: sometimes", False),
    ("transformation", "type: full", False),
    ("transformation", "interval: 1h\nposition: at\nretries: true", False),
]
_BEYOND_STRUCTURE = (
    "not built yet",
    "depends on",
    "nothing that has a position",
    "asks for its bounds",
    "needs `position`",
    "needs `update_strategy: append`",
)


def plain(text: str) -> object:
    from penstock.project.reading.documents import read_document
    from penstock.project.reading.problems import Problems

    def value(node: object) -> object:
        if hasattr(node, "entries"):
            return {key: value(item) for key, item in node.entries.items()}
        return [value(item) for item in node.items] if hasattr(node, "items") else node.value  # type: ignore[attr-defined]

    return value(read_document(text, "f", Problems()))


@pytest.mark.parametrize(("kind", "text", "good"), STRUCTURE)
def test_the_schema_of_model_files_agrees_with_the_loader(kind: str, text: str, good: bool) -> None:
    file = "models/external/m.yml" if kind == "external" else "models/transformations/m.sql"
    content = text if kind == "external" else front(text + "\n")
    files = {"penstock.yml": CONFIG, "models/external/orders.yml": ORDERS, file: content}
    try:
        unpack({name: one.encode() for name, one in files.items()}, Path("/p"), {})
        found: list[str] = []
    except ProjectErrors as errors:
        found = [e.message for e in errors.errors if not any(one in e.message for one in _BEYOND_STRUCTURE)]
    part = "source" if kind == "external" else "transformation"
    published = {**schema(), "anyOf": [{"$ref": f"#/$defs/{part}"}]}
    assert (not found) == good, found
    assert Draft202012Validator(published).is_valid(plain(text)) == good
