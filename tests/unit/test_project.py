"""Reading whole projects: settings, models, graph, and every mistake of each in one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from penstock.errors import ProjectError, ProjectErrors, UsageError
from penstock.models import Chunking, Dependency, Fill, IntervalModel, Limits, Schedules, Source
from penstock.project import Analysis, Project, WorkerGlob, find_root, load, schema, unpack
from penstock.project.project import revision

CONFIG = "name: shop\ndatabases: {external: raw, transformation: shop}\n"
ORDERS = "location: ./landing/orders\nposition: ordered_at\n"
HOURLY = """---
interval: 1 hour
position: hour
---
select date_trunc('hour', ordered_at) as hour, count(*) as orders
from {{ ref('raw.orders') }}
group by all
"""
SHOP = {
    "penstock.yml": CONFIG,
    "models/external/orders.yml": ORDERS,
    "models/transformations/hourly.sql": HOURLY,
}


def written(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def read(
    root: Path, files: Mapping[str, str], environ: Mapping[str, str] | None = None, target: str | None = None
) -> Project:
    return load(written(root, files), environ or {}, target)


def mistakes(
    root: Path, files: Mapping[str, str], environ: Mapping[str, str] | None = None, target: str | None = None
) -> list[str]:
    with pytest.raises(ProjectErrors) as caught:
        read(root, files, environ, target)
    return [f"{error.place}: {error.message}" for error in caught.value.errors]


def model(project: Project, name: str) -> IntervalModel:
    found = project.graph.models[name]
    assert isinstance(found, IntervalModel)
    return found


def source(project: Project, name: str) -> Source:
    found = project.graph.models[name]
    assert isinstance(found, Source)
    return found


def front(keys: str, query: str = "select ordered_at as at from {{ ref('raw.orders') }}") -> str:
    return f"---\n{keys}---\n{query}\n"


def one_model(keys: str, query: str = "select ordered_at as at from {{ ref('raw.orders') }}") -> dict[str, str]:
    return {
        "penstock.yml": CONFIG,
        "models/external/orders.yml": ORDERS,
        "models/transformations/m.sql": front(keys, query),
    }


def test_the_smallest_project_is_a_name() -> None:
    project = unpack({"penstock.yml": b"name: shop\n"}, Path("/p"), {})
    assert project.settings.name == "shop"
    assert project.settings.target.name == "dev"
    assert project.settings.target.state is None
    assert project.graph.models == {}


def test_an_interval_model_reads_what_it_refs(tmp_path: Path) -> None:
    hourly = model(read(tmp_path, SHOP), "shop.hourly")
    assert hourly.dependencies == ((Dependency("raw.orders"),),)
    assert hourly.interval == Chunking(3600, 3600, 3600)
    assert hourly.axis == "second"
    assert hourly.widens, hourly.widens_reason
    assert (hourly.retries, hourly.timeout_seconds, hourly.max_inflight) == (3, 1800, 4)


def test_s0_41_moving_a_file_between_folders_changes_no_model(tmp_path: Path) -> None:
    before = read(tmp_path / "a", SHOP)
    moved = {**SHOP, "models/transformations/deep/er/hourly.sql": HOURLY}
    del moved["models/transformations/hourly.sql"]
    after = read(tmp_path / "b", moved)
    assert list(before.graph.models) == list(after.graph.models)
    assert before.fingerprints == after.fingerprints


def test_comment_lines_may_stand_before_the_front_matter(tmp_path: Path) -> None:
    files = {**SHOP, "models/transformations/hourly.sql": "-- a note\n# another\n\n" + HOURLY}
    assert model(read(tmp_path, files), "shop.hourly").position == "hour"


def test_find_root_walks_up(tmp_path: Path) -> None:
    written(tmp_path, SHOP)
    assert find_root(tmp_path / "models" / "external") == tmp_path.resolve()
    with pytest.raises(UsageError, match=r"no penstock\.yml"):
        find_root(Path("/"))


# Settings


def test_s1_3_every_setting_has_its_default(tmp_path: Path) -> None:
    found = read(tmp_path, {"penstock.yml": "name: shop\n"}).settings
    assert (found.warehouse, found.logging, found.web.address) == ("./warehouse", "info", "127.0.0.1:8080")
    assert (found.worker.concurrency, found.worker.models, found.worker.tags) == (2, (WorkerGlob("*"),), ())
    assert (found.worker.shutdown_seconds, found.scheduler.sweep_seconds, found.scheduler.repair_delay_seconds) == (
        30,
        60,
        30,
    )
    assert found.paths == {"external": ("models/external",), "transformation": ("models/transformations",)}
    assert (found.target.schema, found.target.master, found.target.storage) == ("penstock", None, {})


def test_every_setting_can_be_written(tmp_path: Path) -> None:
    text = """
name: shop
warehouse: /data
env: {CURRENCY: EUR, LEVEL: 3}
vars: {x: 3, y: text}
worker: {concurrency: 4, models: ["shop.*", {pattern: "raw.*", concurrency: 1}], tags: [slow], shutdown_timeout: 1 minute}
scheduler: {sweep: 2 minutes, repair_delay: 5}
web: {address: "0.0.0.0:80"}
logging: debug
targets:
  dev: {spark: {master: "local[2]", conf: {spark.x: true}}, storage: {key: k}, schema: mine, warehouse: s3://b/w}
"""
    found = read(tmp_path, {"penstock.yml": text}).settings
    assert found.env == {"CURRENCY": "EUR", "LEVEL": "3"}
    assert found.vars == {"x": 3, "y": "text"}
    assert found.worker.models == (WorkerGlob("shop.*"), WorkerGlob("raw.*", 1))
    assert (found.worker.concurrency, found.worker.tags, found.worker.shutdown_seconds) == (4, ("slow",), 60)
    assert (found.scheduler.sweep_seconds, found.scheduler.repair_delay_seconds) == (120, 5)
    assert (found.target.master, found.target.conf, found.target.storage) == (
        "local[2]",
        {"spark.x": "true"},
        {"key": "k"},
    )
    assert (found.target.schema, found.warehouse, found.logging) == ("mine", "s3://b/w", "debug")


TARGETS = "name: shop\ntargets:\n  dev:\n  prod:\n    state: ${STATE}\n    warehouse: s3://b/w\n"


def test_the_first_target_is_the_default_and_others_need_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, {"penstock.yml": TARGETS}).settings.target.name == "dev"


def test_a_target_is_chosen_by_name_or_by_the_environment(tmp_path: Path) -> None:
    environ = {"STATE": "postgresql://db/x", "PENSTOCK_TARGET": "prod"}
    by_environ = read(tmp_path, {"penstock.yml": TARGETS}, environ)
    assert by_environ.settings.target.state == "postgresql://db/x"
    by_name = read(tmp_path, {"penstock.yml": TARGETS}, environ, target="dev")
    assert by_name.settings.target.state is None


def test_a_missing_variable_is_an_error_that_names_it_when_its_target_is_used(tmp_path: Path) -> None:
    assert mistakes(tmp_path, {"penstock.yml": TARGETS}, target="prod") == [
        "penstock.yml:5: the environment variable STATE is not set"
    ]


def test_an_unknown_target_is_an_error_with_the_nearest_one(tmp_path: Path) -> None:
    assert mistakes(tmp_path, {"penstock.yml": TARGETS}, target="prd") == [
        "penstock.yml:2: there is no target 'prd'; did you mean 'prod'?"
    ]


def test_a_dollar_sign_can_be_escaped(tmp_path: Path) -> None:
    text = "name: shop\nenv: {A: '$${HOME}', B: '${X}-${X}'}\n"
    assert read(tmp_path, {"penstock.yml": text}, {"X": "1"}).settings.env == {"A": "${HOME}", "B": "1-1"}


def test_secrets_do_not_show_in_what_settings_print(tmp_path: Path) -> None:
    found = read(tmp_path, {"penstock.yml": TARGETS}, {"STATE": "postgresql://u:hush@db/x"}, "prod")
    assert "hush" not in repr(found)


def test_with_a_state_server_relative_locations_are_errors(tmp_path: Path) -> None:
    config = CONFIG + "targets:\n  prod:\n    state: postgresql://db/x\n"
    files = {"penstock.yml": config, "models/external/orders.yml": ORDERS}
    found = mistakes(tmp_path, files)
    assert len(found) == 2
    assert found[0].startswith("models/external/orders.yml:1: the location './landing/orders' is relative")
    assert found[1].startswith("penstock.yml:5: the warehouse './warehouse' is relative")


def test_locations_may_come_from_the_environment(tmp_path: Path) -> None:
    files = {"penstock.yml": CONFIG, "models/external/orders.yml": "location: ${LANDING}/orders\n"}
    assert source(read(tmp_path, files, {"LANDING": "s3://b"}), "raw.orders").location == "s3://b/orders"
    assert mistakes(tmp_path, files) == ["models/external/orders.yml:1: the environment variable LANDING is not set"]


def test_relative_locations_are_beside_the_project(tmp_path: Path) -> None:
    project = read(tmp_path, SHOP)
    assert project.resolve("./landing/orders") == str(tmp_path.resolve() / "landing" / "orders")
    assert project.resolve("s3://b/x") == "s3://b/x"
    assert project.resolve("/abs") == "/abs"


def test_another_file_can_be_the_configuration(tmp_path: Path) -> None:
    written(tmp_path, {**SHOP, "other/prod.yml": CONFIG.replace("shop\n", "prod\n", 1)})
    project = load(tmp_path, {}, config=tmp_path / "other" / "prod.yml")
    assert project.settings.name == "prod"
    assert unpack(project.files, tmp_path, {}).settings.name == "prod"


# Defaults and overrides


def test_defaults_hold_where_a_model_does_not_say(tmp_path: Path) -> None:
    defaults = "defaults: {retries: 7, timeout: 5 minutes, target_lag: 1 minute, schedules: {backfill: off}, scan: {full: 1h}}\n"
    files = {
        **SHOP,
        "penstock.yml": CONFIG + defaults,
        "models/transformations/own.sql": front(
            "interval: 1h\nposition: at\nretries: 1\nschedules: {forwardfill: '@hourly'}\n"
        ),
    }
    project = read(tmp_path, files)
    hourly, own = model(project, "shop.hourly"), model(project, "shop.own")
    assert (hourly.retries, hourly.timeout_seconds, hourly.schedules) == (7, 300, Schedules(None, "off"))
    assert (own.retries, own.schedules) == (1, Schedules("@hourly", "off"))
    assert source(project, "raw.orders").full_scan_seconds == 3600


def test_b17_an_override_of_one_limit_keeps_the_other(tmp_path: Path) -> None:
    files = {
        **SHOP,
        "penstock.yml": CONFIG + "overrides: {shop.m: {limits: {max: 7200}, tags: [slow]}}\n",
        "models/transformations/m.sql": front("interval: 1h\nposition: at\nlimits: {min: 3600, max: 10800}\n"),
    }
    found = model(read(tmp_path, files), "shop.m")
    assert found.limits == Limits(3600, 7200)
    assert found.tags == ("slow",)


def test_b17_limits_that_cross_after_an_override_are_an_error(tmp_path: Path) -> None:
    files = {
        **SHOP,
        "penstock.yml": CONFIG + "overrides:\n  shop.m:\n    limits: {max: 3600}\n",
        "models/transformations/m.sql": front("interval: 1h\nposition: at\nlimits: {min: 7200}\n"),
    }
    assert mistakes(tmp_path, files) == ["penstock.yml:5: limits.min 7200 must be less than limits.max 3600"]


def test_b17_every_spelling_can_be_overridden_and_is_checked(tmp_path: Path) -> None:
    files = {
        **SHOP,
        "models/external/orders.yml": ORDERS + "cache: {incremental_scan_interval: 10s, full_scan_interval: 5m}\n",
        "penstock.yml": CONFIG + "overrides: {raw.orders: {scan: {full: 1 hour}, partition: at2}}\n",
    }
    orders = source(read(tmp_path / "a", files), "raw.orders")
    assert (orders.incremental_scan_seconds, orders.full_scan_seconds, orders.position) == (10, 3600, "at2")
    wrong = {**SHOP, "penstock.yml": CONFIG + "overrides:\n  shop.hourly:\n    schedules: {backfill: sometimes}\n"}
    assert mistakes(tmp_path / "b", wrong)[0].startswith(
        "penstock.yml:5: overrides.shop.hourly.schedules.backfill must be"
    )


def test_an_override_may_make_a_strict_interval_partial(tmp_path: Path) -> None:
    files = {
        **one_model("interval: 1h\nposition: at\n"),
        "penstock.yml": CONFIG + "overrides: {shop.m: {interval: {min: 0}}}\n",
    }
    assert model(read(tmp_path, files), "shop.m").interval == Chunking(3600, 0, 1)


def test_an_override_of_no_model_is_an_error_with_the_nearest_name(tmp_path: Path) -> None:
    files = {**SHOP, "penstock.yml": CONFIG + "overrides:\n  shop.hourli: {tags: [a]}\n"}
    assert mistakes(tmp_path, files) == [
        "penstock.yml:4: overrides: there is no model 'shop.hourli'; did you mean 'shop.hourly'?"
    ]


# Names and places


def test_s1_4_the_database_is_the_files_then_the_kinds_default_then_an_error(tmp_path: Path) -> None:
    own = {"penstock.yml": CONFIG, "models/external/a.yml": "database: other\ntable: b\n"}
    assert list(read(tmp_path / "a", own).graph.models) == ["other.b"]
    default = {"penstock.yml": CONFIG, "models/external/a.yml": "location: x\n"}
    assert list(read(tmp_path / "b", default).graph.models) == ["raw.a"]
    none = {"penstock.yml": "name: shop\n", "models/external/a.yml": "location: x\n"}
    assert "has no database" in mistakes(tmp_path / "c", none)[0]


@pytest.mark.parametrize("name", ["a-b.yml", "1a.yml", "a b.yml"])
def test_b27_a_file_name_that_is_no_identifier_needs_a_table(tmp_path: Path, name: str) -> None:
    assert (
        "cannot be the name of a table"
        in mistakes(tmp_path, {"penstock.yml": CONFIG, f"models/external/{name}": "location: x\n"})[0]
    )
    fixed = {"penstock.yml": CONFIG, f"models/external/{name}": "table: fine\n"}
    assert list(read(tmp_path, fixed).graph.models) == ["raw.fine"]


def test_s1_6_models_come_from_several_paths_and_single_files(tmp_path: Path) -> None:
    outside = written(tmp_path / "shared", {"extra.yml": "location: x\n"})
    paths = (
        f"paths: {{external: [models/external, {outside}, one/single.yml], transformation: models/transformations}}\n"
    )
    files = {
        **SHOP,
        "penstock.yml": CONFIG + paths,
        "one/single.yml": "location: x\n",
        "one/ignored.yml": "location: x\n",
    }
    project = read(tmp_path / "p", files)
    assert set(project.graph.models) == {"raw.orders", "raw.extra", "raw.single", "shop.hourly"}
    assert unpack(project.files, tmp_path, {}).graph == project.graph


def test_a_written_path_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    files = {"penstock.yml": CONFIG + "paths:\n  external: nowhere\n"}
    assert mistakes(tmp_path, files) == ["penstock.yml:4: paths.external: there is no 'nowhere'"]


def test_b27_a_link_that_leaves_the_project_is_an_error_unless_its_target_is_a_path(tmp_path: Path) -> None:
    outside = written(tmp_path / "elsewhere", {"secret.yml": "location: x\n"})
    root = written(tmp_path / "p", SHOP)
    (root / "models" / "external" / "secret.yml").symlink_to(outside / "secret.yml")
    with pytest.raises(
        ProjectErrors, match=r"models/external/secret\.yml:1: it is a link to .*, outside of the project"
    ):
        load(root, {})
    config = CONFIG + f"paths: {{external: [models/external, {outside}]}}\n"
    (root / "penstock.yml").write_text(config)
    with pytest.raises(ProjectErrors, match="two files are the model raw.secret"):
        load(root, {})
    (root / "models" / "external" / "secret.yml").unlink()
    assert "raw.secret" in load(root, {}).graph.models


def test_b27_links_inside_the_project_and_loops_are_fine(tmp_path: Path) -> None:
    root = written(tmp_path, SHOP)
    written(root, {"more/extra.yml": "location: x\n"})
    (root / "models" / "external" / "more").symlink_to(root / "more", target_is_directory=True)
    (root / "models" / "external" / "loop").symlink_to(root / "models" / "external", target_is_directory=True)
    assert set(load(root, {}).graph.models) == {"raw.orders", "raw.extra", "shop.hourly"}


def test_two_files_with_one_name_are_an_error_that_names_both(tmp_path: Path) -> None:
    files = {**SHOP, "models/transformations/x/hourly.sql": HOURLY}
    assert mistakes(tmp_path, files) == [
        "models/transformations/x/hourly.sql:2: two files are the model shop.hourly: "
        "models/transformations/hourly.sql and models/transformations/x/hourly.sql"
    ]


def test_s0_57_a_flag_that_disagrees_with_the_folder_is_an_error(tmp_path: Path) -> None:
    files = {**SHOP, "models/external/orders.yml": ORDERS + "external: false\n"}
    assert mistakes(tmp_path, files) == [
        "models/external/orders.yml:3: external: false disagrees with the folder: it lies under the external models"
    ]
    agreeing = {**SHOP, "models/external/orders.yml": ORDERS + "external: true\ntype: source\n"}
    assert read(tmp_path, agreeing)


# Sources


def test_a_source_says_how_it_is_observed(tmp_path: Path) -> None:
    text = "location: /d\nformat: PARQUET\npartition: n\naxis: block\nlag: 3\nrecheck: 10\nttl: 30s\ncompleteness: watermark\n"
    found = source(read(tmp_path, {"penstock.yml": CONFIG, "models/external/b.yml": text}), "raw.b")
    assert (found.format, found.position, found.axis, found.axis_declared) == ("parquet", "n", "block", True)
    assert (found.lag, found.recheck, found.completeness) == (3, 10, "watermark")
    assert (found.incremental_scan_seconds, found.full_scan_seconds) == (30, 30)


@pytest.mark.parametrize(("axis", "completeness"), [("second", "watermark"), ("block", "inclusive")])
def test_whether_the_last_position_is_complete_follows_from_the_axis(
    tmp_path: Path, axis: str, completeness: str
) -> None:
    files = {"penstock.yml": CONFIG, "models/external/b.yml": f"position: n\naxis: {axis}\n"}
    assert source(read(tmp_path, files), "raw.b").completeness == completeness


def test_a_source_without_a_position_is_a_lookup(tmp_path: Path) -> None:
    found = source(read(tmp_path, {"penstock.yml": CONFIG, "models/external/b.yml": "location: x\n"}), "raw.b")
    assert (found.position, found.axis, found.completeness) == (None, None, None)


def test_an_assumed_axis_is_told_apart_from_a_written_one(tmp_path: Path) -> None:
    found = source(read(tmp_path, SHOP), "raw.orders")
    assert (found.axis, found.axis_declared) == ("second", False)


def test_a_source_may_ask_a_query_or_a_program(tmp_path: Path) -> None:
    files = {
        "penstock.yml": CONFIG,
        "models/external/q.sql": front(
            "position: at\n", "select min(at) as min, max(at) as max from {{ self.relation }}"
        ),
        "models/external/p.yml": "position: at\nexec: python scripts/bounds.py --table 'a b'\n",
        "scripts/bounds.py": "print()\n",
    }
    project = read(tmp_path, files)
    assert source(project, "raw.q").bounds_sql is not None
    assert source(project, "raw.p").exec == ("python", "scripts/bounds.py", "--table", "a b")
    assert project.files["scripts/bounds.py"] == b"print()\n"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select min(at) as min from {{ self.relation }}", "needs the columns min and max"),
        ("select 1 as min, {{ cache.previous_max }} as max", "not known in the first scan"),
        ("select 1 as min, {{ bounds.start }} as max", "'bounds', which is undefined"),
        ("select min(at) as min, max(at) as max from {{ ref('raw.orders') }}", "reads its own table only"),
        ("delete from x", "starts with 'DELETE'"),
    ],
)
def test_a_wrong_bounds_query_is_an_error(tmp_path: Path, query: str, said: str) -> None:
    files = {**SHOP, "models/external/q.sql": front("position: at\n", query)}
    found = mistakes(tmp_path, files)
    assert len(found) == 1
    assert found[0].startswith("models/external/q.sql:4: ")
    assert said in found[0]


@pytest.mark.parametrize("key", ["lag: 3", "recheck: 3", "completeness: inclusive", "axis: block"])
def test_what_is_about_positions_needs_a_position(tmp_path: Path, key: str) -> None:
    files = {"penstock.yml": CONFIG, "models/external/b.yml": f"location: x\n{key}\n"}
    found = mistakes(tmp_path, files)
    assert len(found) == 1
    assert "needs `position`" in found[0]


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
        ("interval: 1h\nposition: at\nschedule: '@hourly'\n", "m.sql:4: 'schedule' is a key of full models; this model is of type interval"),
        ("interval: 1h\nposition: at\nkey: id\n", "m.sql:4: 'key' is a key of dynamic models"),
        ("interval: 1h\nposition: at\nlocation: x\n", "m.sql:4: 'location' is a key of source models"),
        ("interval: 1h\nposition: at\npartition: at\n", "m.sql:4: partition and position say the same"),
        ("interval: {max: 1h, type: second}\nposition: at\naxis: second\n", "m.sql:2: interval.type and axis say the same"),
        ("intervall: 1h\nposition: at\n", "m.sql:2: there is no key 'intervall'; did you mean 'interval'?"),
        ("interval: 1h\nposition: at\nlimts: {min: 1}\n", "m.sql:4: there is no key 'limts'; did you mean 'limits'?"),
        ("interval: 1h\nposition: at\nfill: {directon: head}\n", "m.sql:4: fill has no key 'directon'; did you mean 'direction'?"),
        ("interval: 1h\nposition: at\nfill: {direction: haed}\n", "m.sql:4: fill.direction must be head or tail, not 'haed'; did you mean 'head'?"),
        ("interval: soon\nposition: at\n", "m.sql:2: interval must be a length such as 1 hour"),
        ("interval: 1h\nposition: at\nretries: many\n", "m.sql:4: retries must be a whole number of at least 0, not 'many'"),
        ("interval: 1h\nposition: at\ntags: slow\n", "m.sql:4: tags must be a list"),
        ("interval: 1h\nposition: at\nlimits: {min: 2026-13-01}\n", "m.sql:4: limits.min: '2026-13-01' is no position"),
        ("interval: 1h\nposition: at\nchecks: [{unique: at, not_null: at}]\n", "m.sql:4: an item of checks must have exactly one of"),
        ("interval: 1h\nposition: at\nchecks: [{relationships: {column: a, to: ordres, field: b}}]\n", "did you mean 'raw.orders'?"),
        ("interval: 1h\nposition: 'no good'\n", "m.sql:3: position must be a name"),
    ],
)  # fmt: skip
def test_a_wrong_key_is_one_error_with_its_line(tmp_path: Path, keys: str, said: str) -> None:
    found = mistakes(tmp_path, one_model(keys))
    assert len(found) == 1, found
    assert said in found[0]


@pytest.mark.parametrize(
    ("file", "text", "what"),
    [
        ("d.sql", "select 1\n", "a dynamic model"),
        ("d.sql", "---\ntarget_lag: downstream\nrefresh_strategy: auto\ncardinality_threshold: 0.5\n---\nselect 1\n", "a dynamic model"),
        ("d.sql", "---\nschedule: '@hourly'\nmax_parallelism: 3\n---\nselect 1\n", "a full model"),
        ("d.yml", "schedule: '@hourly'\nexec: python x.py\ncolumns: {a: string}\n", "a model made by a script"),
        ("d.yml", "interval: 1h\nposition: at\nexec: [python, x.py]\n", "a model made by a script"),
        ("d.py", '"""\ninterval: 1 hour\nposition: hour\n"""\n\n\ndef model(ctx): ...\n', "a Python model"),
        ("d.sql", "---\ninterval: 1h\nposition: at\nupdate_strategy: append\nunique_key: id\non_retract: keep\n---\nselect ordered_at as at from {{ ref('orders') }}\n", "update_strategy: append"),
        ("d.sql", "---\ninterval: 1h\nposition: at\nlive: true\n---\nselect ordered_at as at from {{ ref('orders') }}\n", "live: true"),
        ("d.sql", "---\ninterval: 1h\nposition: at\nmanage: user\n---\nselect ordered_at as at from {{ ref('orders') }}\n", "manage: user"),
    ],
)  # fmt: skip
def test_what_is_known_but_not_built_is_one_clear_error(tmp_path: Path, file: str, text: str, what: str) -> None:
    files = {**SHOP, f"models/transformations/{file}": text}
    found = mistakes(tmp_path, files)
    assert len(found) == 1, found
    assert f"shop.d: {what} is not built yet in this release" in found[0]
    disabled = {**files, "penstock.yml": CONFIG + "overrides: {shop.d: {enabled: false}}\n"}
    assert set(read(tmp_path, disabled).graph.models) == {"raw.orders", "shop.hourly"}


# Dependencies and the graph


def test_s1_12_and_s1_5_declared_dependencies_mix_names_groups_and_mappings(tmp_path: Path) -> None:
    keys = """interval: 1h
position: at
dependencies:
  - "{{external}}.orders"
  - [raw.a, {model: "{{ external }}.b", before: 1 day}]
  - {model: customers, optional: true, on_change: rerun, finality: 1 hour}
  - {model: "{{transformation}}.hourly", before: 1 hour, after: 10 minutes}
"""
    files = {
        **SHOP,
        "models/transformations/m.sql": front(keys),
        "models/external/a.yml": "position: at\n",
        "models/external/b.yml": "position: at\n",
        "models/external/customers.yml": "location: x\n",
    }
    found = model(read(tmp_path, files), "shop.m")
    assert found.dependencies == (
        (Dependency("raw.orders"),),
        (Dependency("raw.a"), Dependency("raw.b", before=86400)),
        (Dependency("raw.customers", optional=True, on_change="rerun", finality=3600),),
        (Dependency("shop.hourly", before=3600, after=600),),
    )


def test_s1_5_changing_the_default_database_re_points_dependencies(tmp_path: Path) -> None:
    query = "select ordered_at as at from {{ ref('{{external}}.orders') }}"
    files = one_model("interval: 1h\nposition: at\ndependencies: ['{{external}}.orders']\n", query)
    assert model(read(tmp_path, files), "shop.m").dependencies == ((Dependency("raw.orders"),),)
    moved = {**files, "penstock.yml": CONFIG.replace("raw", "lake")}
    assert model(read(tmp_path, moved), "shop.m").dependencies == ((Dependency("lake.orders"),),)


def test_a_ref_that_is_not_declared_is_added_and_a_gate_may_stay_unread(tmp_path: Path) -> None:
    files = {
        **one_model("interval: 1h\nposition: at\ndependencies: [raw.gate]\n"),
        "models/external/gate.yml": "position: at\n",
    }
    assert model(read(tmp_path, files), "shop.m").dependencies == (
        (Dependency("raw.gate"),),
        (Dependency("raw.orders"),),
    )


def test_a_ref_is_found_in_whatever_branch_it_stands(tmp_path: Path) -> None:
    query = "select ordered_at as at from {% if bounds.start < 0 %}{{ ref('raw.old') }}{% else %}{{ ref(self.database and 'orders') }}{% endif %}"
    files = {**one_model("interval: 1h\nposition: at\n", query), "models/external/old.yml": "position: at\n"}
    assert [d.model for d in model(read(tmp_path, files), "shop.m").inputs] == ["raw.old", "raw.orders"]


def test_a_bare_table_must_be_unique(tmp_path: Path) -> None:
    files = {
        **one_model("interval: 1h\nposition: at\n", "select ordered_at as at from {{ ref('orders') }}"),
        "models/external/other.yml": "database: lake\ntable: orders\nposition: at\n",
    }
    assert "'orders' means more than one table: lake.orders, raw.orders" in mistakes(tmp_path, files)[0]


def test_s0_20_an_unknown_dependency_names_both_ends_and_the_nearest(tmp_path: Path) -> None:
    files = one_model(
        "interval: 1h\nposition: at\ndependencies:\n  - raw.ordrs\n", "select at from {{ ref('raw.odrers') }}"
    )
    assert mistakes(tmp_path, files) == [
        "models/transformations/m.sql:5: shop.m depends on 'raw.ordrs', but there is no model 'raw.ordrs'; did you mean 'raw.orders'?",
        "models/transformations/m.sql:7: shop.m depends on 'raw.odrers', but there is no model 'raw.odrers'; did you mean 'raw.orders'?",
    ]


def test_s0_6_a_cycle_is_an_error_that_names_its_edges(tmp_path: Path) -> None:
    def reading(other: str) -> str:
        return front("interval: 1h\nposition: at\n", f"select at from {{{{ ref('{other}') }}}}")

    models = {"a": "b", "b": "c", "c": "a", "p": "q", "q": "p", "self": "self"}
    files = {"penstock.yml": CONFIG} | {
        f"models/transformations/{name}.sql": reading(other) for name, other in models.items()
    }
    assert mistakes(tmp_path, files) == [
        "models/transformations/a.sql:5: these models depend on each other: shop.a -> shop.b -> shop.c -> shop.a",
        "models/transformations/p.sql:5: these models depend on each other: shop.p -> shop.q -> shop.p",
        "models/transformations/self.sql:5: shop.self depends on itself",
    ]


BLOCKS = {
    "penstock.yml": CONFIG,
    "models/external/orders.yml": ORDERS,
    "models/external/blocks.yml": "position: n\naxis: block\n",
}


def test_an_interval_model_takes_the_axis_of_what_it_reads(tmp_path: Path) -> None:
    files = {
        **BLOCKS,
        "models/transformations/a.sql": front("interval: 100\nposition: n\n", "select n from {{ ref('blocks') }}"),
        "models/transformations/b.sql": front("interval: 1000\nposition: n\n", "select n from {{ ref('a') }}"),
    }
    project = read(tmp_path, files)
    assert (model(project, "shop.a").axis, model(project, "shop.b").axis) == ("block", "block")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            "interval: 100\nposition: n\n",
            "m.sql:5: shop.m reads raw.blocks on the axis 'block' and raw.orders on 'second'; they must agree",
        ),
        (
            "interval: 100\nposition: n\naxis: block\n",
            "m.sql:4: shop.m is on the axis 'block', but raw.orders is on 'second'",
        ),
    ],
)
def test_axes_must_agree(tmp_path: Path, keys: str, said: str) -> None:
    query = "select a.n from {{ ref('blocks') }} a join {{ ref('orders') }} o on true"
    found = mistakes(tmp_path, {**BLOCKS, "models/transformations/m.sql": front(keys, query)})
    assert len(found) == 1
    assert said in found[0]


@pytest.mark.parametrize(
    "key",
    [
        "interval: 1 hour",
        "interval: {max: 1h, min: 0}",
        "interval: 10\nfill: {buffer: 1m}",
        "interval: 10\ndependencies: [{model: blocks, before: 1h}]",
        "interval: 10\nlimits: {min: 2026-01-01}",
    ],
)
def test_units_of_time_are_for_the_axis_second(tmp_path: Path, key: str) -> None:
    files = {
        **BLOCKS,
        "models/transformations/m.sql": front(f"{key}\nposition: n\n", "select n from {{ ref('blocks') }}"),
    }
    found = mistakes(tmp_path, files)
    assert len(found) == 1
    assert "the axis" in found[0]


@pytest.mark.parametrize(
    ("dependencies", "limits", "good"),
    [
        ("[customers]", "", False),
        ("[customers]", "limits: {min: 3600}\n", False),
        ("[customers]", "limits: {min: 3600, max: 7200}\n", True),
        ("[{model: orders, optional: true}]", "", False),
        ("[[orders, customers]]", "", False),
        ("[customers, orders]", "", True),
    ],
)
def test_b54_a_model_with_no_positioned_input_needs_both_limits(
    tmp_path: Path, dependencies: str, limits: str, good: bool
) -> None:
    keys = f"interval: 1h\nposition: at\n{limits}dependencies: {dependencies}\n"
    files = {
        "penstock.yml": CONFIG,
        "models/external/orders.yml": ORDERS,
        "models/external/customers.yml": "location: x\n",
        "models/transformations/m.sql": front(keys, "select {{ bounds.start_time }} as at"),
    }
    if good:
        assert read(tmp_path, files)
    else:
        assert "set limits.min and limits.max" in mistakes(tmp_path, files)[0]


def test_b27_a_disabled_model_is_left_out_and_its_dependents_are_told(tmp_path: Path) -> None:
    files = {**SHOP, "penstock.yml": CONFIG + "overrides: {raw.orders: {enabled: false}}\n"}
    assert mistakes(tmp_path, files) == [
        "models/transformations/hourly.sql:6: shop.hourly depends on raw.orders, which is disabled"
    ]


def test_b27_a_disabled_member_of_an_or_group_is_dropped(tmp_path: Path) -> None:
    keys = "interval: 1h\nposition: at\ndependencies: [[raw.off, raw.orders]]\n"
    files = {
        **one_model(keys, "select ordered_at as at from {{ ref('raw.off') }}"),
        "models/external/off.yml": "position: ordered_at\nenabled: false\n",
    }
    found = model(read(tmp_path, files), "shop.m")
    assert found.dependencies == ((Dependency("raw.orders"),),)
    assert found.stand_ins == {"raw.off": "raw.orders"}
    assert found.widens


# Queries


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (
            "select ordered_at as at from {{ ref('orders') }};\n\ndelete from x",
            "m.sql:7: there is a second statement (DELETE …)",
        ),
        ("insert into x\nselect 1", "m.sql:5: the query starts with 'INSERT'"),
        ("select\n 1 as at from raw.orders", "m.sql:6: the query reads raw.orders directly"),
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


# All mistakes at once

MISTAKES = {
    "models/external/typo.yml": ("locaton: x\n", "typo.yml:1: there is no key 'locaton'; did you mean 'location'?"),
    "models/external/flag.yml": ("external: false\n", "flag.yml:1: external: false disagrees"),
    "models/external/twice.yml": ("location: x\nlocation: y\n", "twice.yml:2: the key 'location' stands twice"),
    "models/external/value.yml": ("position: at\nlag: soon\n", "value.yml:2: lag must be a duration"),
    "models/transformations/unquoted.sql": (front("interval: 1h\nposition: at\ndependencies:\n  - {{external}}.orders\n"), "unquoted.sql:5: {{external}}.orders must be quoted"),
    "models/transformations/unknown.sql": (front("interval: 1h\nposition: at\n", "select at from {{ ref('raw.ordes') }}"), "unknown.sql:5: shop.unknown depends on 'raw.ordes'"),
    "models/transformations/cycle.sql": (front("interval: 1h\nposition: at\n", "select at from {{ ref('shop.cycle') }}"), "cycle.sql:5: shop.cycle depends on itself"),
    "models/transformations/axis.sql": (front("interval: 100\nposition: at\naxis: block\n"), "axis.sql:4: shop.axis is on the axis 'block'"),
    "models/transformations/name.sql": (front("interval: 1h\nposition: at\n", "select {{ bound.start }} as at"), "name.sql:5: the template uses 'bound'"),
    "models/transformations/other.sql": (front("interval: 1h\nposition: at\ntarget_lag: 1m\n"), "other.sql:4: 'target_lag' is a key of dynamic models"),
    "models/transformations/double.sql": (front("interval: 1h\nposition: at\ntable: hourly\n"), "two files are the model shop.hourly"),
    "models/transformations/two.sql": (front("interval: 1h\nposition: at\n", "select ordered_at as at from {{ ref('orders') }}; select 2"), "two.sql:5: there is a second statement"),
    "models/transformations/later.sql": ("select 1\n", "later.sql:1: shop.later: a dynamic model is not built yet"),
    "models/transformations/open.sql": ("---\ninterval: 1h\n", "open.sql:1: the front matter has no closing ---"),
    "models/transformations/never.sql": (front("interval: 1h\nposition: at\n", "select 1 as at"), "never.sql:2: shop.never reads nothing that has a position"),
}  # fmt: skip


def test_a_project_with_fifteen_kinds_of_mistakes_reports_all_of_them(tmp_path: Path) -> None:
    files = {**SHOP, **{name: text for name, (text, _) in MISTAKES.items()}, "penstock.yml": CONFIG + "lgging: info\n"}
    found = mistakes(tmp_path, files)
    assert len(found) == len(MISTAKES) + 1
    for _, said in MISTAKES.values():
        assert [said in one for one in found].count(True) == 1, said
    assert "penstock.yml:3: the project has no key 'lgging'; did you mean 'logging'?" in found


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
)


def plain(text: str) -> object:
    from penstock.project.documents import read_document
    from penstock.project.problems import Problems

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


# The bundle


def test_a_bundle_is_the_same_project(tmp_path: Path) -> None:
    project = read(tmp_path, {**SHOP, "scripts/x.py": "pass\n", "README.md": "not part of it"})
    assert set(project.files) == {*SHOP, "scripts/x.py"}
    again = unpack(project.files, project.root, {})
    assert (again.revision, again.graph, again.fingerprints) == (project.revision, project.graph, project.fingerprints)


def test_the_revision_follows_content_but_not_line_endings() -> None:
    assert revision({"a": b"x\r\ny"}) == revision({"a": b"x\ny"})
    assert revision({"a": b"x"}) != revision({"a": b"y"})
    assert revision({"a": b"xb", "b": b""}) != revision({"a": b"x", "b": b"b"})
    assert revision({"a": b"1", "b": b"2"}) == revision({"b": b"2", "a": b"1"})


def test_remembered_analyses_are_used_instead_of_the_parser(tmp_path: Path) -> None:
    project = read(tmp_path, SHOP)
    kept = {key: Analysis(**asdict(one)) for key, one in project.analyses.items()}
    assert load(tmp_path, {}, known=kept).graph == project.graph
    forged = {key: Analysis(False, False, "remembered", None) for key in kept}
    assert model(load(tmp_path, {}, known=forged), "shop.hourly").widens_reason == "remembered"


def test_text_that_is_not_utf_8_is_an_error(tmp_path: Path) -> None:
    root = written(tmp_path, SHOP)
    (root / "models" / "external" / "bad.yml").write_bytes(b"location: x\n# \xff\n")
    with pytest.raises(ProjectErrors, match=r"bad\.yml:2: the file is not UTF-8"):
        load(root, {})
