"""Interval models: their keys and their queries."""

from __future__ import annotations

from pathlib import Path

import pytest
from written_project import BASE, CONFIG, SHOP, front, mistakes, model, one_model, read

from penstock.project.build import Builder
from penstock.values.models import Chunking, Declared, DynamicModel, Fill, FullModel, Limits, Schedules, Slices
from penstock.values.models.graph import parents_of

# Interval models


@pytest.mark.parametrize(
    ("written_as", "chunking"),
    [
        ("1 hour", Chunking(3600, 3600, 3600)),
        ("3600", Chunking(3600, 3600, 3600)),
        ("{max: 1 hour}", Chunking(3600, 3600, 3600)),
        ("{max: 1 hour, min: 0}", Chunking(3600, 0, 1)),
        ("{max: 1 hour, min: 5 minutes}", Chunking(3600, 300, 1)),
        ("{max: 1 hour, min: 0, align: 5 minutes}", Chunking(3600, 0, 300)),
        ("{max: 1 day, min: 1 day, align: 1 hour}", Chunking(86400, 86400, 3600)),
    ],
)
def test_s1_17_intervals_are_strict_partial_or_anything(tmp_path: Path, written_as: str, chunking: Chunking) -> None:
    assert model(read(tmp_path, one_model(f"interval: {written_as}\nposition: at\n")), "shop.m").interval == chunking


@pytest.mark.parametrize(
    "written_as", ["0", "{max: 0}", "{max: 60, min: 120}", "{max: 60, min: 0, align: 45}", "{max: 60, align: 0}"]
)
def test_impossible_intervals_are_errors(tmp_path: Path, written_as: str) -> None:
    found = mistakes(tmp_path, one_model(f"interval: {written_as}\nposition: at\n"))
    assert len(found) == 1
    assert found[0].startswith("models/transformations/m.sql:2: interval")


def test_all_keys_of_an_interval_model_are_read(tmp_path: Path) -> None:
    keys = """interval: {max: 1 hour, min: 0, type: second}
partition: at
description: what it is
tags: [a, 2]
env: {A: 1}
schedules: {forwardfill: "@every 1m", backfill: 300}
limits: {min: 2026-01-01, max: 2026-02-01T00:00:00Z}
fill: {direction: tail, allow_gap_skipping: false, buffer: 10 minutes, backfill: oldest}
max_inflight: 2
cluster_by: at
deduplicate: false
update_strategy: replace
manage: engine
live: false
on_schema_change: fail
timeout: 1 minute
retries: 0
checks:
  - not_null: [at]
  - {unique: at, severity: warn}
  - accepted_values: {column: c, values: [NO, 1]}
  - relationships: {column: o, to: orders, field: id}
  - row_count: {min: 1}
  - expression: at > 0
"""
    found = model(read(tmp_path, one_model(keys)), "shop.m")
    assert (found.position, found.axis, found.description, found.tags, found.env) == (
        "at",
        "second",
        "what it is",
        ("a", "2"),
        {"A": "1"},
    )
    assert found.schedules == Schedules("@every 1m", "300")
    assert found.limits == Limits(1767225600, 1769904000)
    assert found.fill == Fill("tail", False, 600, "oldest")
    assert (found.max_inflight, found.cluster_by, found.deduplicate) == (2, ("at",), False)
    assert (found.on_schema_change, found.timeout_seconds, found.retries) == ("fail", 60, 0)
    assert [(c.kind, dict(c.argument), c.severity) for c in found.checks] == [
        ("not_null", {"columns": ("at",)}, "error"),
        ("unique", {"columns": ("at",)}, "warn"),
        ("accepted_values", {"column": "c", "values": ("NO", 1)}, "error"),
        ("relationships", {"column": "o", "to": "raw.orders", "field": "id"}, "error"),
        ("row_count", {"min": 1}, "error"),
        ("expression", {"sql": "at > 0"}, "error"),
    ]


def test_s1_16_a_limit_of_0_is_no_limit_with_a_warning(tmp_path: Path) -> None:
    project = read(tmp_path, one_model("interval: 1h\nposition: at\nlimits: {min: 0, max: 0}\n"))
    assert model(project, "shop.m").limits == Limits()
    assert [str(notice) for notice in project.warnings] == [
        "models/transformations/m.sql:4: limits.min: 0 is read as no limit",
        "models/transformations/m.sql:4: limits.max: 0 is read as no limit",
    ]


def test_s1_18_one_of_the_two_schedules_stays_on(tmp_path: Path) -> None:
    assert (
        "would never run"
        in mistakes(tmp_path, one_model("interval: 1h\nposition: at\nschedules: {forwardfill: off, backfill: off}\n"))[
            0
        ]
    )
    only_back = one_model("interval: 1h\nposition: at\nschedules: {forwardfill: off}\n")
    assert model(read(tmp_path, only_back), "shop.m").schedules == Schedules("off", None)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("interval: 1h\n", "m.sql:2: a model of type interval needs the key 'position'"),
        ("type: interval\nposition: at\n", "m.sql:2: a model of type interval needs the key 'interval'"),
        ("type: source\ninterval: 1h\nposition: at\n", "m.sql:2: the type is interval, not source"),
        (BASE + "schedule: '@hourly'\n", "m.sql:4: 'schedule' is a key of full models; this model is of type interval"),
        (BASE + "key: id\n", "m.sql:4: 'key' is a key of dynamic models"),
        (BASE + "location: x\n", "m.sql:4: 'location' is a key of source models"),
        (BASE + "partition: at\n", "m.sql:4: partition and position say the same"),
        (
            "interval: {max: 1h, type: second}\nposition: at\naxis: second\n",
            "m.sql:2: interval.type and axis say the same",
        ),
        ("intervall: 1h\nposition: at\n", "m.sql:2: there is no key 'intervall'; did you mean 'interval'?"),
        (BASE + "limts: {min: 1}\n", "m.sql:4: there is no key 'limts'; did you mean 'limits'?"),
        (BASE + "fill: {directon: head}\n", "m.sql:4: fill has no key 'directon'; did you mean 'direction'?"),
        (
            BASE + "fill: {direction: haed}\n",
            "m.sql:4: fill.direction must be head or tail, not 'haed'; did you mean 'head'?",
        ),
        ("interval: soon\nposition: at\n", "m.sql:2: interval must be a length such as 1 hour"),
        (BASE + "retries: many\n", "m.sql:4: retries must be a whole number from 0 to 2147483647, not 'many'"),
        (BASE + "tags: slow\n", "m.sql:4: tags must be a list"),
        (BASE + "limits: {min: 2026-13-01}\n", "m.sql:4: limits.min: '2026-13-01' is no position"),
        (BASE + "checks: [{unique: at, not_null: at}]\n", "m.sql:4: an item of checks must have exactly one of"),
        (BASE + "checks: [{relationships: {column: a, to: ordres, field: b}}]\n", "did you mean 'raw.orders'?"),
        ("interval: 1h\nposition: 'no good'\n", "m.sql:3: position must be a name"),
    ],
)
def test_a_wrong_key_is_one_error_with_its_line(tmp_path: Path, keys: str, said: str) -> None:
    found = mistakes(tmp_path, one_model(keys))
    assert len(found) == 1, found
    assert said in found[0]


# Append

APPEND = BASE + "update_strategy: append\n"


@pytest.mark.parametrize(("written_as", "key"), [("id", ("id",)), ("[day, id]", ("day", "id")), ("[a, a]", ("a",))])
def test_s2_18_an_append_has_a_key_and_one_attempt_at_a_time(
    tmp_path: Path, written_as: str, key: tuple[str, ...]
) -> None:
    made = model(read(tmp_path, one_model(APPEND + f"unique_key: {written_as}\non_retract: retract\n")), "shop.m")
    assert (made.update_strategy, made.unique_key, made.on_retract) == ("append", key, "retract")
    assert made.max_inflight == 1
    plain = model(read(tmp_path, one_model(APPEND + "unique_key: id\nmax_inflight: 1\n")), "shop.m")
    assert (plain.on_retract, plain.max_inflight) == ("keep", 1)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (APPEND, "m.sql:4: shop.m appends, so it needs `unique_key`"),
        (APPEND + "unique_key: []\n", "m.sql:4: shop.m appends, so it needs `unique_key`"),
        (BASE + "unique_key: id\n", "m.sql:4: 'unique_key' needs `update_strategy: append`"),
        (
            BASE + "update_strategy: replace\non_retract: keep\n",
            "m.sql:5: 'on_retract' needs `update_strategy: append`",
        ),
        (APPEND + "unique_key: id\nmax_inflight: 2\n", "m.sql:6: shop.m appends, so its attempts run one at a time"),
        (APPEND + "unique_key: id\non_retract: forget\n", "m.sql:6: on_retract must be"),
    ],
)
def test_keys_of_an_append_that_do_not_fit_are_one_error(tmp_path: Path, keys: str, said: str) -> None:
    found = mistakes(tmp_path, one_model(keys))
    assert len(found) == 1, found
    assert said in found[0]


def test_a_default_of_several_attempts_is_not_for_those_that_append(tmp_path: Path) -> None:
    files = {**one_model(APPEND + "unique_key: id\n"), "penstock.yml": CONFIG + "defaults: {max_inflight: 8}\n"}
    assert model(read(tmp_path, files), "shop.m").max_inflight == 1
    over = {**files, "penstock.yml": CONFIG + "overrides: {shop.m: {max_inflight: 8}}\n"}
    assert "max_inflight can only be 1" in mistakes(tmp_path, over)[0]


@pytest.mark.parametrize(
    ("file", "text", "what"),
    [
        ("d.sql", "---\nschedule: '@hourly'\nmax_parallelism: 3\n---\nselect 1\n", "a full model"),
        ("d.yml", "schedule: '@hourly'\nexec: python x.py\ncolumns: {a: string}\n", "a model made by a script"),
        ("d.yml", "interval: 1h\nposition: at\nexec: [python, x.py]\n", "a model made by a script"),
        ("d.py", '"""\ninterval: 1 hour\nposition: hour\n"""\n\n\ndef model(ctx): ...\n', "a Python model"),
        ("d.sql", front(BASE + "live: true\n"), "live: true"),
        ("d.sql", front(BASE + "manage: user\n"), "manage: user"),
        ("d.sql", front(BASE + "on_schema_change: rebuild\n"), "on_schema_change: rebuild"),
    ],
)
def test_what_is_known_but_not_built_is_one_clear_error(tmp_path: Path, file: str, text: str, what: str) -> None:
    files = {**SHOP, f"models/transformations/{file}": text}
    found = mistakes(tmp_path, files)
    assert len(found) == 1, found
    assert f"shop.d: {what} is not built yet in this release" in found[0]
    disabled = {**files, "penstock.yml": CONFIG + "overrides: {shop.d: {enabled: false}}\n"}
    assert set(read(tmp_path, disabled).graph.models) == {"raw.orders", "shop.hourly"}


@pytest.mark.parametrize(
    ("source", "dependencies", "said"),
    [
        ("location: x\n", "[orders, {model: prices, on_change: rerun}]", None),
        ("location: x\nformat: csv\n", "[orders, {model: prices, on_change: rerun}]", "rerun needs a Delta table"),
        ("location: x\n", "[{model: orders, on_change: rerun}, prices]", "raw.orders has a position"),
        ("location: x\n", "[[hourly, {model: orders, on_change: rerun}], prices]", "raw.orders has a position"),
    ],
)
def test_only_a_lookup_whose_log_tells_can_reopen_everything(
    tmp_path: Path, source: str, dependencies: str, said: str | None
) -> None:
    query = "select p.ordered_at as at from {{ ref('orders') }} p, {{ ref('prices') }}"
    text = front(BASE + f"dependencies: {dependencies}\n", query)
    files = {**SHOP, "models/external/prices.yml": source, "models/transformations/d.sql": text}
    if said is None:
        model = read(tmp_path, files).graph.interval_model("shop.d")
        assert [one.on_change for one in model.inputs] == ["ignore", "rerun"]
    else:
        (found,) = mistakes(tmp_path, files)
        assert "d.sql:4: " in found
        assert said in found


# Queries


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (
            "select ordered_at as at from {{ ref('orders') }};\n\ndelete from x",
            "m.sql:7: there is a second statement (DELETE …)",
        ),
        ("insert into x\nselect 1", "m.sql:5: the query starts with 'INSERT'"),
        (
            "select\n 1 as at from raw.orders",
            "m.sql:6: the query reads raw.orders directly: write {{ ref('raw.orders') }} instead of raw.orders",
        ),
        ("select 1 as at from nowhere.orders2", "m.sql:5: the query reads nowhere.orders2 directly, so nothing pins"),
        ("select 1 as at from {{ source('raw', 'orders') }}", "which is undefined; write ref('database.table')"),
        ("select a from {{ ref('orders') }}", "m.sql:5: the query has no column 'at'"),
        ("select at from\n  where x", "m.sql:6: not valid SQL"),
        ("\n{{ bonds.start }}", "m.sql:6: the template uses 'bonds', which is undefined; did you mean 'bounds'?"),
        ("\n\n{{ bounds.strat }}", "m.sql:7: bounds has no 'strat'; did you mean 'start'?"),
        ("{% if x %}", "m.sql:5: not a valid template"),
        ("{{ task.direction == 'repair' and env.NOPE }}", "m.sql:5: env has no 'NOPE'"),
        ("{{ var('nope') }}", "m.sql:5: there is no var 'nope'"),
        ("", "m.sql:5: the file has no query"),
    ],
)
def test_b26_a_wrong_query_is_one_error_with_its_line(tmp_path: Path, query: str, said: str) -> None:
    found = mistakes(tmp_path, one_model("interval: 1h\nposition: at\n", query))
    assert len(found) == 1, found
    assert said in found[0]


def test_a_semicolon_in_a_string_or_comment_is_no_statement(tmp_path: Path) -> None:
    query = "select ordered_at as at, ';' as x -- ; select 2\nfrom {{ ref('orders') }} /* ; */;"
    assert read(tmp_path, one_model("interval: 1h\nposition: at\n", query))


GROUPED = "select ordered_at as at, count(*) as n from {{ ref('orders') }} group by 1"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("interval: {max: 1h, min: 0}\n", "add interval.align"),
        ("interval: 1h\nlimits: {min: 1800}\n", "limits.min 1800 is not a multiple of interval.align 3600"),
        ("interval: {max: 1h, min: 0, align: 5m}\nlimits: {max: 400}\n", "limits.max 400 is not a multiple"),
    ],
)
def test_b22_a_grouped_query_is_never_cut_inside_a_group(tmp_path: Path, keys: str, said: str) -> None:
    found = mistakes(tmp_path, one_model(f"{keys}position: at\n", GROUPED))
    assert len(found) == 1
    assert said in found[0]


@pytest.mark.parametrize(
    "keys",
    [
        "interval: {max: 1h, min: 0, align: 5m}\n",
        "interval: {max: 1h, min: 0, align: 1}\n",
        "interval: 1h\nlimits: {min: 7200}\n",
    ],
)
def test_b22_a_grouped_query_with_aligned_chunks_is_fine(tmp_path: Path, keys: str) -> None:
    assert read(tmp_path, one_model(f"{keys}position: at\n", GROUPED))


def test_b22_buckets_longer_than_the_chunks_are_an_error(tmp_path: Path) -> None:
    query = "select date_trunc('day', ordered_at) as at, count(*) from {{ ref('orders') }} group by 1"
    assert (
        "at comes in steps of 86400, but chunks start at multiples of 3600"
        in mistakes(tmp_path, one_model("interval: 1h\nposition: at\n", query))[0]
    )


DYNAMIC = """
target_lag: 5 minutes
refresh_strategy: affected_keys
cardinality_threshold: 0.5
key: [customer]
max_parallelism: 3
cluster_by: customer
retries: 1
"""
FULL = """
schedule: "0 3 * * *"
update_strategy: append
unique_key: id
on_retract: retract
allow_parallel_refresh: false
parallel_threshold: 10
deduplicate: false
"""


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> list[Declared]:
    """What models became before they were refused."""
    seen: list[Declared] = []
    for name in ("dynamic_model", "full_model"):
        made = getattr(Builder, name)
        monkeypatch.setattr(Builder, name, lambda self, linked, made=made: seen.append(made(self, linked)) or seen[-1])
    return seen


def test_dynamic_and_full_models_are_values_with_all_their_keys(tmp_path: Path, declared: list[Declared]) -> None:
    query = "select * from {{ ref('orders') }}"
    files = {"models/transformations/d.sql": front(DYNAMIC, query), "models/transformations/f.sql": front(FULL, query)}
    assert len(mistakes(tmp_path, {**SHOP, **files})) == 1
    dynamic, full = sorted(declared, key=lambda model: model.name)
    assert isinstance(dynamic, DynamicModel)
    assert (dynamic.target_lag, dynamic.refresh_strategy, dynamic.cardinality_threshold) == (300, "affected_keys", 0.5)
    assert (dynamic.key, dynamic.slices, dynamic.cluster_by) == (("customer",), Slices(most=3), ("customer",))
    assert (dynamic.retries, parents_of(dynamic)) == (1, ("raw.orders",))
    assert isinstance(full, FullModel)
    assert (full.schedule, full.update_strategy, full.unique_key) == ("0 3 * * *", "append", ("id",))
    assert (full.on_retract, full.slices, full.deduplicate) == ("retract", Slices(False, 10), False)
    assert parents_of(full) == ("raw.orders",)


def test_a_plain_select_is_a_dynamic_table_with_the_lag_of_the_project(tmp_path: Path) -> None:
    files = {**SHOP, "models/transformations/d.sql": "select * from {{ ref('orders') }}\n"}
    plain = read(tmp_path, files).graph.models["shop.d"]
    assert isinstance(plain, DynamicModel)
    assert (plain.target_lag, plain.refresh_strategy, plain.timed) == (300, "auto", False)
    late = {**files, "penstock.yml": CONFIG + "defaults: {target_lag: 1 hour}\n"}
    assert getattr(read(tmp_path, late).graph.models["shop.d"], "target_lag", None) == 3600


@pytest.mark.parametrize(
    ("keys", "query", "said"),
    [
        (
            "",
            "select * from {{ ref('orders') }} where ordered_at < {{ bounds.end_time }}",
            "d.sql:4: the template uses 'bounds'",
        ),
        (
            "",
            "select *\nfrom {{ ref('orders') }} where {{ in_bounds('ordered_at') }}",
            "d.sql:5: the template uses 'in_bounds'",
        ),
        (
            "dependencies: [[orders, hourly]]\n",
            "select * from {{ ref('orders') }}",
            "d.sql:3: shop.d is dynamic and reads",
        ),
        (
            "dependencies: [{model: orders, before: 1h}]\n",
            "select * from {{ ref('orders') }}",
            "'before' is about positions",
        ),
        ("", "select * from raw.orders", "d.sql:4: the query reads raw.orders directly"),
        ("", "select * from {{ ref('orders') }}; select 1", "d.sql:4: there is a second statement"),
        ("target_lag: soon\n", "select * from {{ ref('orders') }}", "d.sql:3: target_lag must be"),
        ("cardinality_threshold: 30\n", "select * from {{ ref('orders') }}", "d.sql:3: cardinality_threshold must be"),
        ("position: at\n", "select * from {{ ref('orders') }}", "'position' is a key of"),
    ],
)
def test_what_cannot_be_a_dynamic_table_is_said_with_its_line(tmp_path: Path, keys: str, query: str, said: str) -> None:
    text = f"---\ntype: dynamic\n{keys}---\n{query}\n".replace("---\n---", "---")
    if not keys:
        text = f"---\ntype: dynamic\n---\n{query}\n"
    (mistake,) = mistakes(tmp_path, {**SHOP, "models/transformations/d.sql": text})
    assert said in mistake


def test_a_query_that_asks_for_the_time_says_so(tmp_path: Path) -> None:
    query = "select * from {{ ref('orders') }} where ordered_at >= NOW() - interval 1 day -- current_date\n"
    timed = read(tmp_path, {**SHOP, "models/transformations/d.sql": query}).graph.models["shop.d"]
    assert getattr(timed, "timed", None) is True
    quoted = "select 'now' as a from {{ ref('orders') }} -- current_date\n"
    plain = read(tmp_path, {**SHOP, "models/transformations/d.sql": quoted}).graph.models["shop.d"]
    assert getattr(plain, "timed", None) is False


def test_what_is_wrong_with_a_dynamic_model_is_said_as_of_any_other(tmp_path: Path) -> None:
    text = front("target_lag: sometimes\nrefresh_strategy: quickly\n", "select * from {{ ref('order') }}")
    found = mistakes(tmp_path, {**SHOP, "models/transformations/d.sql": text})
    assert len(found) == 3
    assert [
        part for part in ("target_lag", "refresh_strategy", "raw.orders") if not any(part in one for one in found)
    ] == []
