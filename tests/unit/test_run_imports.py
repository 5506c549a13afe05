"""A run that finds nothing to do, and a status, begin without the libraries that rows are handled with."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache

ROWS = {"pyarrow", "pyspark", "py4j", "pandas", "numpy"}
ENGINE = {"penstock.engine.spark.session", "penstock.engine.values.job", "deltalake"}
SERVING = {"prometheus_client", "http.server"}
ASKING = ("cli.main", "cli.inspect", "answers.status", "answers.history", "runtime.place.workspace")
RUNNING = ("runtime.serve.run", "answers.changes")
CODE = """
import importlib, json, sys
for group in sys.argv[1:]:
    for module in group.split():
        importlib.import_module("penstock." + module)
    print(json.dumps(sorted(sys.modules)))
"""


@cache
def imported() -> tuple[set[str], set[str]]:
    """By all modules that only ask, and by them and those that run: what none of them imports, no single one does."""
    groups = [" ".join(ASKING), " ".join(RUNNING)]
    done = subprocess.run([sys.executable, "-c", CODE, *groups], check=True, capture_output=True, text=True)
    inspecting, running = (set(json.loads(line)) for line in done.stdout.splitlines())
    return inspecting, running


def test_neither_arrow_nor_spark_is_imported_before_there_are_rows_to_look_at() -> None:
    _, running = imported()
    assert "penstock.runtime.serve.run" in running
    assert not running & ROWS


def test_a_command_that_only_asks_needs_no_engine() -> None:
    inspecting, _ = imported()
    assert not inspecting & ENGINE


def test_commands_that_do_not_serve_do_not_load_what_serves() -> None:
    inspecting, _ = imported()
    assert "penstock.cli.inspect" in inspecting
    assert not inspecting & SERVING
