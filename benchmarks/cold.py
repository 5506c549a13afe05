"""What does a short command cost with three models: --help, validate, status, and a run with nothing to do?"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from penstock.embedded.polling import poll
from penstock.embedded.server import EmbeddedPostgres
from places import scratch
from results import arguments, report

RUNS, HOURS = 7, 72
START = 1_767_225_600
COMMANDS = {"--help": ("--help",), "validate": ("validate",), "status": ("status",), "no-op run": ("run", "--json")}
_COUNT, _SUM = "count(*) as orders", "sum(orders) as orders"
MODELS = {
    "orders_hourly": ("raw.orders", "hour", "date_trunc('hour', ordered_at)", _COUNT),
    "orders_daily": ("shop.orders_hourly", "day", "date_trunc('day', hour)", _SUM),
    "countries_hourly": (
        "raw.orders",
        "hour",
        "date_trunc('hour', ordered_at)",
        "count(distinct country) as countries",
    ),
}
"""Name: (parent, position, its expression, the rest)."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one process, without the database's."""

    wall: float
    cpu: float


def project(root: Path) -> None:
    count = HOURS * 60
    table = pa.table(
        {
            "order_id": pa.array(range(count), pa.int64()),
            "ordered_at": pa.array([(START + i * 60) * 1_000_000 for i in range(count)], pa.timestamp("us", "UTC")),
            "country": pa.array([("NO", "SE", "DK")[i % 3] for i in range(count)]),
        }
    )
    write_deltalake(str(root / "landing" / "orders"), table)
    (root / "penstock.yml").write_text("name: cold\ndatabases: {external: raw, transformation: shop}\n")
    (root / "models/external").mkdir(parents=True)
    (root / "models/transformations").mkdir(parents=True)
    (root / "models/external/orders.yml").write_text("location: ./landing/orders\nposition: ordered_at\n")
    for name, (parent, position, expression, rest) in MODELS.items():
        front = f"---\ninterval: 1 {position}\nposition: {position}\n---\n"
        sql = f"select {expression} as {position}, {rest} from {{{{ ref('{parent}') }}}} group by {expression}\n"
        (root / f"models/transformations/{name}.sql").write_text(front + sql)


def environ(linger: int) -> dict[str, str]:
    """As at a person's terminal: compiled modules are kept."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return inherited | {"PENSTOCK_PG_LINGER": str(linger)}


def cost(argv: list[str], folder: Path, env: Mapping[str, str]) -> Cost:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(argv, cwd=folder, env=dict(env), capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{argv}: {done.stdout}\n{done.stderr}")
    if '"spark_started": true' in done.stdout:
        raise SystemExit(f"{argv} had something to do: {done.stdout}")
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def forget(folder: Path) -> None:
    """What was found out about the files is gone, and no server runs."""
    kept = folder / ".penstock"
    for path in kept.iterdir() if kept.exists() else ():
        if path.name not in ("pg", "pgdata"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    if not poll(lambda: EmbeddedPostgres.inspect(folder, os.environ).running_pid is None or None, 60):
        raise SystemExit("a server is left")


def measured(folder: Path, runs: int) -> list[tuple[object, ...]]:
    command = [sys.executable, "-m", "penstock.cli.main"]
    cost([*command, "status"], folder, environ(0))  # the last wish counts: a server that lingers ends with it
    bare = [cost([sys.executable, "-c", "pass"], folder, environ(0)) for _ in range(runs)]
    rows = [_row("python -c pass", "", bare, bare)]
    for name, typed in COMMANDS.items():
        cold: list[Cost] = []
        for _ in range(runs):
            forget(folder)
            cold.append(cost([*command, *typed], folder, environ(0)))
        rows.append(_row(name, "nothing kept, no server", cold, bare))
    cost([*command, "status"], folder, environ(600))
    for name, typed in COMMANDS.items():
        warm = [cost([*command, *typed], folder, environ(600)) for _ in range(runs)]
        rows.append(_row(name, "files unchanged, server lingers", warm, bare))
    cost([*command, "status"], folder, environ(0))
    return rows


def _row(name: str, when: str, costs: list[Cost], bare: list[Cost]) -> tuple[object, ...]:
    cpu, walls = min(cost.cpu for cost in costs), [cost.wall for cost in costs]
    ratio = cpu / min(cost.cpu for cost in bare)
    return (name, when, f"{min(walls):.3f}", f"{statistics.median(walls):.3f}", f"{cpu:.3f}", f"{ratio:.1f}")


def main() -> None:
    options = arguments(__doc__ or "", quick=f"3 times each instead of {RUNS}")
    with scratch() as root:
        project(root)
        first = [sys.executable, "-m", "penstock.cli.main", "run", "--json"]
        done = subprocess.run(first, cwd=root, env=environ(0), capture_output=True, text=True, check=True)
        assert json.loads(done.stdout)["failed"] == 0
        rows = measured(root, 3 if options.quick else RUNS)
        forget(root)
    columns = ("command", "when", "wall s min", "median", "CPU s min", "x python")
    report(f"short commands, {len(MODELS)} models, embedded PostgreSQL", columns, rows, options.json)


if __name__ == "__main__":
    main()
