"""How much CPU does `penstock up` take, and the database beside it, while nothing happens?"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from penstock.embedded.server import EmbeddedPostgres
from penstock.runtime.place.workspace import apply, open_workspace
from penstock.runtime.process.progress import Silent
from penstock.runtime.serve.run import run
from places import scratch
from results import arguments, report

# an engine that needs no JVM builds the tables; `penstock up` then has its own and no need for it
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from arrow_engine import ArrowEngine
from deployment import commit

SETTLE_SECONDS = 15.0
"""The first rounds look at everything."""
TICKS = os.sysconf("SC_CLK_TCK")
MODELS = {
    "base": "select n, value from {{ ref('raw.events') }}",
    "copy": "select n, value + 1 as value from {{ ref('t.base') }}",
    "named": "select b.n, b.value from {{ ref('t.base') }} b",
    "tens": "select n - n % 10 as n, sum(value) as value from {{ ref('t.copy') }} group by n - n % 10",
    "hundreds": "select n - n % 100 as n, sum(value) as value from {{ ref('t.tens') }} group by n - n % 100",
    "last": "select n, value from {{ ref('t.hundreds') }}",
}
"""As many tables as the demo: three sources, six models in a chain with one branch."""


def build(root: Path) -> None:
    """A project whose tables hold all that can be had."""
    for folder in ("external", "transformations"):
        (root / "models" / folder).mkdir(parents=True)
    (root / "penstock.yml").write_text("name: idle\ndatabases: {external: raw, transformation: t}\n")
    for name in ("events", "people", "places"):
        commit(root / "landing" / name, {"n": range(1000), "value": range(1000)})
        text = f"location: ./landing/{name}\nposition: n\naxis: number\ncompleteness: inclusive\n"
        (root / f"models/external/{name}.yml").write_text(text)
    for name, sql in MODELS.items():
        (root / f"models/transformations/{name}.sql").write_text(f"---\nposition: n\ninterval: 100\n---\n{sql}\n")
    with open_workspace(root, os.environ) as workspace:
        workspace.engine = ArrowEngine()  # type: ignore[assignment]
        apply(workspace)
        done = run(workspace, workspace.interval_models(()), Silent())
    assert done.intervals == len(MODELS) * 10, done


def processes() -> dict[int, tuple[str, int]]:
    """By pid: the program's name and its parent's pid."""
    alive = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                name, rest = (place / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
            except OSError:  # it has just ended
                continue
            alive[int(place.name)] = (name, int(rest.split()[1]))
    return alive


def below(pid: int) -> Iterator[int]:
    """The process and all that it started."""
    alive = processes()
    todo = [pid]
    while todo:
        process = todo.pop()
        yield process
        todo += [child for child, (_, parent) in alive.items() if parent == process]


def cpu_seconds(pid: int) -> float:
    """Of a process and its children, those that have ended and were waited for included."""
    total = 0
    for process in below(pid):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += sum(int(ticks) for ticks in fields[11:15])
    return total / TICKS


def wait_started(log: Path) -> None:
    deadline = time.monotonic() + 60
    while "worker_started" not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def measured(root: Path, seconds: float, settle_seconds: float) -> list[list[object]]:
    command = [sys.executable, "-m", "penstock.cli.main", "up", "--yes"]
    with (root / "up.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=root, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_started(root / "up.log")
            time.sleep(settle_seconds)
            server = EmbeddedPostgres.inspect(root, os.environ).running_pid
            assert server is not None and process.poll() is None, (root / "up.log").read_text()
            pids = {"penstock up": process.pid, "embedded PostgreSQL": server}
            before = {name: cpu_seconds(pid) for name, pid in pids.items()}
            began = time.monotonic()
            time.sleep(seconds)
            taken = time.monotonic() - began
            used = {name: cpu_seconds(pid) - before[name] for name, pid in pids.items()}
            alive = processes()
            spark = any(alive[pid][0] == "java" for pid in below(process.pid) if pid in alive)
        finally:
            process.terminate()
            code = process.wait(60)
    assert code == 0, (root / "up.log").read_text()
    return [
        [name, round(taken), f"{cpu:.2f}", f"{cpu / taken * 60:.2f}", f"{cpu / taken:.2%}", spark]
        for name, cpu in used.items()
    ]


def main() -> None:
    options = arguments(__doc__ or "", quick="measures for four seconds")
    seconds, settle = (4.0, 2.0) if options.quick else (120.0, SETTLE_SECONDS)
    with scratch() as root:
        build(root)
        rows = measured(root, seconds, settle)
    columns = ("process", "seconds", "CPU s", "CPU s per minute", "of one core", "JVM")
    report("penstock up with nothing to do (9 tables, defaults)", columns, rows, options.json)


if __name__ == "__main__":
    main()
