"""Runs all tests in processes that share the files, one more than there are cores: some tests mostly wait."""

from __future__ import annotations

import os
import subprocess
import sys

PROCESSES = (os.cpu_count() or 1) + 1
# a process that has done a file gets the next; one Spark session and one PostgreSQL serve all files of a process
SHARED = ("-n", str(PROCESSES), "--dist=loadfile", "--no-loadscope-reorder")


def main() -> int:
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *SHARED, *sys.argv[1:]], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
