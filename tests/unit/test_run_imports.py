"""A run that finds nothing to do, and a status, begin without the libraries that rows are handled with."""

from __future__ import annotations

import subprocess
import sys

import pytest

ROWS = ("pyarrow", "pyspark", "py4j", "pandas", "numpy")


def imported(modules: str, names: tuple[str, ...]) -> str:
    code = f"import sys, {modules}; print(*(name for name in {names} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    return done.stdout.strip() or done.stderr


@pytest.mark.parametrize("module", ["run", "changes", "status", "workspace"])
def test_neither_arrow_nor_spark_is_imported_before_there_are_rows_to_look_at(module: str) -> None:
    assert imported(f"penstock.runtime.{module}", ROWS) == ""


@pytest.mark.parametrize("module", ["status", "workspace"])
def test_whoever_only_asks_needs_no_engine(module: str) -> None:
    assert imported(f"penstock.runtime.{module}", ("penstock.engine.session", "penstock.engine.job", "deltalake")) == ""
