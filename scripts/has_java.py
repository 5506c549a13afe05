"""Is there a Java that can run Spark? The exit code says so; `setup.sh` adds one from a wheel when there is none."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from penstock.engine.spark.java import find
from penstock.errors import SparkError

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        try:
            find(os.environ, Path(scratch))
        except SparkError as error:
            sys.exit(str(error))
