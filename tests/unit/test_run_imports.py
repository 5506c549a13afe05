"""A run that finds nothing to do, and a status, begin without the libraries that rows are handled with."""

from __future__ import annotations

import subprocess
import sys


def test_neither_arrow_nor_spark_is_imported_before_there_are_rows_to_look_at() -> None:
    modules = "penstock.runtime.run, penstock.runtime.status, penstock.runtime.changes"
    found = "sorted({'pyarrow', 'pyspark', 'py4j', 'pandas', 'numpy'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, {modules}; print({found})"], check=False, capture_output=True, text=True
    )
    assert done.stdout == "[]\n", done.stderr
