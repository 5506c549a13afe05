"""A command imports what it needs: most of the time of a short one would be spent on libraries."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from written_project import SHOP, written

from penstock.cli import show

HEAVY = ("jinja2", "sqlglot", "deltalake", "pyarrow", "pyspark", "py4j", "psycopg", "rich", "yaml", "prometheus_client")
COMMAND = """
import json, sys
from penstock.cli.main import main
try:
    main()
except SystemExit as error:
    code = error.code
found = [name for name in sys.argv[0].split() if name in sys.modules]
print(json.dumps([code, found, "penstock.planner" in sys.modules]), file=sys.stderr)
"""


def heavy(folder: Path, *typed: str) -> tuple[int, set[str], bool]:
    code = COMMAND.replace("sys.argv[0].split()", repr(HEAVY))
    done = subprocess.run([sys.executable, "-c", code, *typed], cwd=folder, capture_output=True, text=True, check=True)
    status, found, planner = json.loads(done.stderr.splitlines()[-1])
    return status, set(found), planner


@pytest.mark.parametrize(
    ("typed", "needed"),
    [
        (("--version",), set()),
        (("status", "--help"), set()),
        (("schema",), {"yaml"}),
        (("init", "new"), set()),
    ],
)
def test_a_command_that_reads_no_project_imports_next_to_nothing(
    tmp_path: Path, typed: tuple[str, ...], needed: set[str]
) -> None:
    code, found, _ = heavy(tmp_path, *typed)
    assert code in (0, None)
    assert found <= needed


def test_validate_parses_once_and_then_needs_yaml_alone(tmp_path: Path) -> None:
    root = written(tmp_path, SHOP)
    assert heavy(root, "validate")[:2] == (0, {"yaml", "sqlglot"})
    for typed in (("validate",), ("validate", "--json")):
        assert heavy(root, *typed) == (0, {"yaml"}, False)


texts = st.text("ab é-.\t語\n", max_size=9).map(str.strip)  # a space at the end moves what stands to the right
cells = st.lists(st.lists(texts, min_size=3, max_size=3), max_size=4)


@given(cells)
def test_a_table_looks_the_same_with_and_without_the_library_that_folds_it(rows: list[list[str]]) -> None:
    columns = ("model", "rows", "reason")
    plain, folded = io.StringIO(), io.StringIO()
    with redirect_stdout(plain):
        show.print_table(columns, rows)
    with redirect_stdout(folded):
        show._print_folded(columns, rows, 220)
    assert [line.rstrip() for line in plain.getvalue().splitlines()] == [
        line.rstrip() for line in folded.getvalue().splitlines()
    ]


def test_a_table_that_is_wider_than_the_page_is_folded(capsys: pytest.CaptureFixture[str]) -> None:
    show.print_table(("model", "reason"), [["a", "x" * 300]])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 220
    assert sum(line.count("x") for line in lines) == 300
