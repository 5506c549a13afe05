"""The beacon story, typed as a person would type it. The tests follow each other on one project."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.runtime.demo import extend

Shell = Any
HOUR = 3600
ORIGIN = 1_767_225_600
"""2026-01-01 00:00 UTC."""
MODELS = ("block_propagation", "block_entity", "block_network", "minute_stats", "five_minute_stats", "hourly_stats")


@pytest.fixture(scope="module")
def built(demo: Shell) -> Shell:
    """The demo after its first run."""
    if not demo.json("status")["revision"]:
        answer = demo.json("run")
        assert answer["failed"] == 0
        assert answer["spark_started"] is True
    return demo


def model(shell: Shell, name: str) -> dict[str, object]:
    (found,) = shell.json("status", name)["models"]
    return found


def test_the_first_run_builds_every_interval_that_is_complete(built: Shell) -> None:
    hourly = model(built, "beacon.hourly_stats")
    assert hourly["coverage"] == [[ORIGIN, ORIGIN + 6 * HOUR]]
    assert hourly["gaps"] == []
    assert hourly["health"] == "ok"


def test_status_says_everything_the_contract_names(built: Shell) -> None:
    fields = {
        "name", "type", "desired", "health", "reason", "generation", "location", "snapshot", "axis", "coverage",
        "available", "gaps", "stale", "data_timestamp", "lag_seconds", "target_lag_seconds", "tasks", "last_error",
    }  # fmt: skip
    answer = built.json("status")
    assert set(answer) >= {"project", "revision", "at", "models"}
    assert all(fields <= set(one) for one in answer["models"])


def test_a_second_run_has_nothing_to_do_and_starts_no_jvm(built: Shell) -> None:
    answer = built.json("run")
    assert (answer["tasks"], answer["spark_started"]) == (0, False)


@pytest.mark.parametrize(
    "command", [("--help",), ("validate",), ("plan",), ("status",), ("explain", "hourly_stats"), ("run",)]
)
def test_commands_that_only_ask_never_import_pyspark(built: Shell, command: tuple[str, ...], tmp_path: Path) -> None:
    spy = tmp_path / "sitecustomize.py"
    spy.write_text(
        "import atexit, sys\n"
        f"atexit.register(lambda: open({str(tmp_path / 'seen')!r}, 'w').write(str('pyspark' in sys.modules)))\n"
    )
    replace(built, environ={**built.environ, "PYTHONPATH": str(tmp_path)})(*command)
    assert (tmp_path / "seen").read_text() == "False"


def test_a_covered_interval_explains_itself(built: Shell) -> None:
    answer = built.json("explain", "beacon.hourly_stats", "--at", "2026-01-01T02:30")
    assert answer["decision"] == "wait"
    assert "covered" in str(answer["reason"])


def test_a_waiting_interval_names_what_it_waits_for(built: Shell) -> None:
    answer = built.json("explain", "beacon.hourly_stats")
    assert answer["decision"] == "wait"
    assert "beacon.five_minute_stats" in str(answer["reason"])
    assert any(not check["ok"] for check in answer["checks"])


def test_the_or_group_uses_the_provider_that_is_there(built: Shell) -> None:
    answer = built.json("explain", "beacon.block_network", "--at", "2026-01-01T06:45")
    relay = next(check for check in answer["checks"] if check["dependency"] == "raw.relay_blocks")
    assert not relay["ok"]
    assert model(built, "beacon.block_network")["coverage"] == [[ORIGIN, ORIGIN + 6 * HOUR + 1800]]


def test_a_rerun_of_equal_rows_writes_nothing_and_wakes_nobody(built: Shell) -> None:
    before = {one["name"]: one["snapshot"] for one in built.json("status")["models"]}
    answer = built.json("rerun", "beacon.block_propagation", "--from", "2026-01-01T02:00", "--to", "2026-01-01T03:00")
    assert answer["failed"] == 0
    assert {one["name"]: one["snapshot"] for one in built.json("status")["models"]} == before
    repairs = [task for task in built.json("tasks", "--history")["tasks"] if task["lane"] == "repair"]
    assert {task["model"] for task in repairs} == {"beacon.block_propagation"}


def test_new_data_makes_new_intervals_and_everything_verifies(built: Shell) -> None:
    extend(built.folder, 30)
    assert built.json("run")["failed"] == 0
    assert model(built, "beacon.hourly_stats")["coverage"] == [[ORIGIN, ORIGIN + 7 * HOUR]]
    answer = built.json("verify")
    assert answer["differences"] == 0
    assert {one["name"].split(".")[1] for one in answer["models"]} == set(MODELS)
    assert all(one["rows_stored"] == one["rows_expected"] > 0 for one in answer["models"])


def test_query_reads_registered_tables_only(built: Shell) -> None:
    answer = built(
        "query",
        "with minute_stats as (select 1 as one) select h.hour, m.one from hourly_stats h, minute_stats m",
        "--json",
    )
    rows = json.loads(answer.out)
    assert len(rows) == 7
    assert {row["one"] for row in rows} == {1}
    refused = built("query", "select * from hourly_stat", "--json", code=2)
    assert "hourly_stats" in json.loads(refused.out)["error"]["hint"]
    built("query", "drop table hourly_stats", code=2)
    built("query", "select * from parquet.`/etc`", code=2)


def test_an_unknown_model_lists_the_known_ones(built: Shell) -> None:
    refused = built("explain", "hourly", "--json", code=2)
    assert "beacon.hourly_stats" in json.loads(refused.out)["error"]["message"]
