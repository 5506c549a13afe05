"""The walk that `make demo` shows, and what a person may type after it. The tests follow each other on one project."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.runtime.place.demo import extend

Shell = Any
SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "demo.py"
HOUR = 3600
ORIGIN = 1_767_225_600
"""2026-01-01 00:00 UTC."""
MODELS = ("block_propagation", "block_entity", "block_network", "minute_stats", "five_minute_stats", "hourly_stats")
TABLES = (*MODELS, "validator_stats")


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory, shell_in: Callable[[Path], Shell]) -> tuple[Shell, str]:
    """The demo after its walk, in a folder whose name has spaces, and what the walk printed."""
    shell = shell_in(tmp_path_factory.mktemp("demo") / "my beacon project")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(shell.folder)],
        env=dict(shell.environ),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return shell, done.stdout


@pytest.fixture
def built(walk: tuple[Shell, str]) -> Shell:
    return walk[0]


def model(shell: Shell, name: str) -> dict[str, object]:
    (found,) = shell.json("status", name)["models"]
    return found


def test_the_walk_ends_with_0_differences_and_the_next_steps(walk: tuple[Shell, str]) -> None:
    _, printed = walk
    assert "0 differences" in printed
    assert "nothing to do; Spark was not started" in printed
    last = printed.strip().splitlines()[-6:]
    assert last[0].startswith("The demo is in")
    assert last[-1].endswith("penstock plan.")


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


def test_a_rerun_of_equal_rows_wakes_nobody_and_late_rows_are_one_repair_of_each_model(built: Shell) -> None:
    """The walk reran an hour of one model, in which nothing changed, before the late rows came."""
    repairs = [task for task in built.json("tasks", "--history")["tasks"] if task["lane"] == "repair"]
    assert sorted(task["model"] for task in repairs) == sorted(
        ["beacon.block_propagation", *(f"beacon.{name}" for name in MODELS)]
    )


def test_a_dynamic_table_over_intervals_computes_the_keys_of_the_late_rows(built: Shell) -> None:
    refreshes = [task for task in built.json("tasks", "--history")["tasks"] if task["lane"] == "refresh"]
    assert [(task["strategy"], task["keys_affected"]) for task in refreshes] == [("affected_keys", 13), ("full", None)]
    seen = model(built, "beacon.validator_stats")
    assert (seen["health"], seen["target_lag_seconds"], seen["coverage"]) == ("ok", 300, [])


def test_new_data_makes_new_intervals_and_everything_verifies(built: Shell) -> None:
    extend(built.folder, 30)
    assert built.json("run")["failed"] == 0
    assert model(built, "beacon.hourly_stats")["coverage"] == [[ORIGIN, ORIGIN + 7 * HOUR]]
    answer = built.json("verify")
    assert answer["differences"] == 0
    assert {one["name"].split(".")[1] for one in answer["models"]} == set(TABLES)
    assert all(one["rows_stored"] == one["rows_expected"] > 0 for one in answer["models"])


def test_query_refuses_what_is_not_registered(built: Shell) -> None:
    refused = built("query", "select * from hourly_stat", "--json", code=2)
    assert "hourly_stats" in json.loads(refused.out)["error"]["hint"]
    built("query", "drop table hourly_stats", code=2)
    built("query", "select * from parquet.`/etc`", code=2)


def test_an_unknown_model_lists_the_known_ones(built: Shell) -> None:
    refused = built("explain", "hourly", "--json", code=2)
    assert "beacon.hourly_stats" in json.loads(refused.out)["error"]["message"]
