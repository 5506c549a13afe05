"""Runs parts of the tests in processes that share the files: a process that has done a file gets the next."""

from __future__ import annotations

import os
import subprocess
import sys

# one Spark session and one PostgreSQL serve all files of a process
SHARED = ("--dist=loadfile", "--no-loadscope-reorder")


def main() -> int:
    """Tests with real servers often wait: there are two processes more than cores."""
    parts = sys.argv[1:]
    processes = (os.cpu_count() or 1) + (0 if parts == ["unit"] else 2)
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(processes), *SHARED]
    return subprocess.run([*command, *(f"tests/{part}" for part in parts)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
