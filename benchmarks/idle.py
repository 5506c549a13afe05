"""What does `penstock run` cost when there is nothing to do?"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from results import arguments, report

RUNS = 7


def penstock(folder: Path, *typed: str) -> dict[str, object]:
    command = [sys.executable, "-m", "penstock.cli.main", *typed, "--json"]
    # as at a person's terminal: compiled modules are kept
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


def main() -> None:
    options = arguments(__doc__ or "")
    with tempfile.TemporaryDirectory() as scratch:
        project = Path(scratch) / "beacon"
        penstock(Path(scratch), "init", str(project), "--demo")
        penstock(project, "run")
        walls, started = [], set()
        for _ in range(RUNS):
            began = time.perf_counter()
            answer = penstock(project, "run")
            walls.append(time.perf_counter() - began)
            started.add(answer["spark_started"])
    row = (RUNS, f"{min(walls):.3f}", f"{statistics.median(walls):.3f}", f"{max(walls):.3f}", any(started))
    columns = ("runs", "min s", "median s", "max s", "JVM")
    report("run with nothing to do (9 tables, embedded PostgreSQL)", columns, [row], options.json)


if __name__ == "__main__":
    main()
