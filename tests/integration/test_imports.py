"""What commands with a database import: neither parsers nor, for those that only ask, anything that reads tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from written_project import SHOP, written

HEAVY = ("jinja2", "sqlglot", "deltalake", "pyarrow", "pyspark", "py4j", "rich", "prometheus_client")
CODE = f"""
import json, sys
from penstock.cli.main import main
try:
    main()
except SystemExit as error:
    code = error.code
print(json.dumps([code, [name for name in {HEAVY!r} if name in sys.modules]]), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = written(tmp_path_factory.mktemp("imports"), SHOP)
    assert typed(root, "apply", "--yes") == {"sqlglot"}
    return root


def typed(root: Path, *arguments: str) -> set[str]:
    """The heavy modules of one command. The database stays for the next one, as it does for people."""
    environ = {**os.environ, "PENSTOCK_PG_LINGER": "20"}
    command = [sys.executable, "-c", CODE, *arguments]
    done = subprocess.run(command, cwd=root, env=environ, capture_output=True, text=True, check=True)
    code, found = json.loads(done.stderr.splitlines()[-1])
    assert code in (0, None), done.stderr
    return set(found)


@pytest.mark.parametrize("command", ["status", "apply", "tasks", "explain hourly", "pause hourly"])
def test_a_command_that_only_asks_parses_nothing_and_opens_no_table(project: Path, command: str) -> None:
    assert typed(project, *command.split()) == set()


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_command_that_looks_at_sources_reads_logs_and_no_more(project: Path, command: str) -> None:
    assert typed(project, command) <= {"deltalake", "pyarrow"}
