"""Settings, names and the bundle of whole projects."""

from __future__ import annotations

from pathlib import Path

import pytest
from written_project import CONFIG, HOURLY, ORDERS, SHOP, front, mistakes, model, one_model, read, source, written

from penstock.errors import ProjectErrors, UsageError
from penstock.project import WorkerGlob, find_root, load, unpack
from penstock.project.project import revision
from penstock.values.models import Chunking, Dependency, Limits, Schedules


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
    assert found.scheduler.retention_seconds == 30 * 86400
    assert found.paths == {"external": ("models/external",), "transformation": ("models/transformations",)}
    assert (found.target.schema, found.target.master, found.target.storage) == ("penstock", None, {})


def test_every_setting_can_be_written(tmp_path: Path) -> None:
    text = """
name: shop
warehouse: /data
env: {CURRENCY: EUR, LEVEL: 3}
vars: {x: 3, y: text}
worker:
  {concurrency: 4, models: ["shop.*", {pattern: "raw.*", concurrency: 1}], tags: [slow], shutdown_timeout: 1 minute}
scheduler: {sweep: 2 minutes, repair_delay: 5, retention: 1 week}
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
    assert found.scheduler.retention_seconds == 604800
    assert (found.target.master, found.target.conf, found.target.storage) == (
        "local[2]",
        {"spark.x": "true"},
        {"key": "k"},
    )
    assert (found.target.schema, found.warehouse, found.logging) == ("mine", "s3://b/w", "debug")


@pytest.mark.parametrize(("written", "seconds"), [("1 hour", 3600), ("3600", 3600), ("90 minutes", 5400)])
def test_s0_29_retention_is_a_duration_of_at_least_an_hour(tmp_path: Path, written: str, seconds: int) -> None:
    text = f"name: shop\nscheduler:\n  retention: {written}\n"
    assert read(tmp_path, {"penstock.yml": text}).settings.scheduler.retention_seconds == seconds


@pytest.mark.parametrize("written", ["59 minutes", "0", "3599"])
def test_s0_29_finished_tasks_cannot_be_dropped_at_once(tmp_path: Path, written: str) -> None:
    text = f"name: shop\nscheduler:\n  retention: {written}\n"
    (said,) = mistakes(tmp_path, {"penstock.yml": text})
    assert said.startswith(f"penstock.yml:3: scheduler.retention must be at least 1 hour, not {written}")


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_there_are_four_levels_of_logging(tmp_path: Path, level: str) -> None:
    assert read(tmp_path, {"penstock.yml": f"name: shop\nlogging: {level}\n"}).settings.logging == level


@pytest.mark.parametrize("level", ["trace", "INFO", "warn", "off", "3"])
def test_other_levels_of_logging_are_refused(tmp_path: Path, level: str) -> None:
    (said,) = mistakes(tmp_path, {"penstock.yml": f"name: shop\nlogging: {level}\n"})
    assert said.startswith("penstock.yml:2: logging must be debug, info, warning or error")


@pytest.mark.parametrize(
    ("globs", "said"),
    [
        ("[{concurrency: 2}]", "an item of worker.models needs the key 'pattern'"),
        (
            "[{pattern: a.*, concurrency: 0}]",
            "an item of worker.models.concurrency must be a whole number",
        ),
        ("[3]", "an item of worker.models must be a glob or a mapping with pattern and concurrency, not the number 3"),
        ("a.*", "worker.models must be a list"),
    ],
)
def test_a_worker_selects_by_globs_with_or_without_a_limit(tmp_path: Path, globs: str, said: str) -> None:
    (found,) = mistakes(tmp_path, {"penstock.yml": f"name: shop\nworker:\n  models: {globs}\n"})
    assert found.startswith(f"penstock.yml:3: {said}")


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
    defaults = "defaults: {retries: 7, timeout: 5m, target_lag: 1m, schedules: {backfill: off}, scan: {full: 1h}}\n"
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
    own = {"penstock.yml": CONFIG, "models/external/a.yml": "location: x\ndatabase: other\ntable: b\n"}
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
    fixed = {"penstock.yml": CONFIG, f"models/external/{name}": "location: x\ntable: fine\n"}
    assert list(read(tmp_path, fixed).graph.models) == ["raw.fine"]


def test_s1_6_models_come_from_several_paths_and_single_files(tmp_path: Path) -> None:
    paths = "paths: {external: [models/external, ./shared/, one/single.yml], transformation: models/transformations}\n"
    files = {
        **SHOP,
        "shared/extra.yml": "location: x\n",
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


def test_b27_nothing_outside_of_the_project_is_read_by_a_link_or_by_a_path(tmp_path: Path) -> None:
    outside = written(tmp_path / "elsewhere", {"secret.yml": "location: x\n"})
    root = written(tmp_path / "p", SHOP)
    (root / "models" / "external" / "secret.yml").symlink_to(outside / "secret.yml")
    (root / "linked").symlink_to(outside, target_is_directory=True)
    assert mistakes(root, {}) == [
        f"models/external/secret.yml:1: it is a link to {(outside / 'secret.yml').resolve()}, outside of the project"
    ]
    (root / "models" / "external" / "secret.yml").unlink()
    for path in (str(outside), "../elsewhere", "linked", "models/../../elsewhere", "/"):
        (root / "penstock.yml").write_text(CONFIG + f"paths:\n  external: [models/external, {path}]\n")
        (found,) = mistakes(root, {})
        assert found.startswith("penstock.yml:4: paths.external: ")
        assert found.endswith(" lies outside of the project")


def test_b27_a_linked_folder_outside_is_refused_once_and_not_read(tmp_path: Path) -> None:
    outside = written(tmp_path / "elsewhere", {f"{n}.yml": "location: x\n" for n in "abc"})
    root = written(tmp_path / "p", SHOP)
    (root / "models" / "external" / "more").symlink_to(outside, target_is_directory=True)
    (root / "models" / "external" / "gone.yml").symlink_to(root / "nothing.yml")
    found = mistakes(root, {})
    assert len(found) == 2
    assert found[0].endswith("nothing.yml, which is not there")
    assert found[1] == f"models/external/more:1: it is a link to {outside.resolve()}, outside of the project"


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


def test_text_that_is_not_utf_8_is_an_error(tmp_path: Path) -> None:
    root = written(tmp_path, SHOP)
    (root / "models" / "external" / "bad.yml").write_bytes(b"location: x\n# \xff\n")
    with pytest.raises(ProjectErrors, match=r"bad\.yml:2: the file is not UTF-8"):
        load(root, {})
