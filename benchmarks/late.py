"""What do late and amended rows cost, against building everything anew and against nothing at all?"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from penstock.runtime.place.workspace import apply, open_workspace
from penstock.runtime.process.progress import Silent
from penstock.runtime.serve.run import observe, run
from places import scratch
from results import arguments, report

# a short run has an engine that needs no JVM
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

HOUR = 3600
START = 1_767_225_600
ROWS, HOURS = 10_000_000, 200
HOURS_PER_COMMIT = 10
CUSTOMERS = 2_000
SHARE = 1000
"""One row in so many is late, or amended."""
_COUNTED = "count(*) as orders, sum(amount) as revenue"
_SUMMED = "sum(orders) as orders, sum(revenue) as revenue"
MODELS = {
    "orders_minute": ("minute", 60, "raw.orders", "at", "country", _COUNTED),
    "orders_hourly": ("hour", 3600, "shop.orders_minute", "minute", "country", _SUMMED),
    "customers_hourly": ("hour", 3600, "raw.orders", "at", "customer_id", _COUNTED),
    "best_hourly": ("hour", 3600, "shop.orders_hourly", "hour", "country", f"{_SUMMED}, max(revenue) as best"),
}
"""Name: (position, grain, parent, its position, another key, the rest)."""
LOOK = """
import os
from pathlib import Path
from penstock.runtime.process.progress import Silent
from penstock.runtime.serve.run import observe
from penstock.runtime.place.workspace import open_workspace
with open_workspace(Path("."), os.environ) as workspace:
    observe(workspace, Silent())
"""

AGAIN = """
import os, sys
from late import Shop
from pathlib import Path
from penstock.runtime.process.progress import Silent
from penstock.runtime.serve.run import run
from penstock.runtime.place.workspace import open_workspace
first, times, rows, hours = map(int, sys.argv[1:])
with open_workspace(Path("."), os.environ) as workspace:
    for again in range(first, first + times):
        Shop(Path.cwd(), rows, hours).late(again)
        done = run(workspace, workspace.interval_models(()), Silent())
        assert done.intervals == 4 and not done.failed, done
"""
TIMES = 8
"""So many late hours in one process tell what one more costs."""


@dataclass(frozen=True)
class Cost:
    """What one case took: looking at the source, and then everything else."""

    look_cpu: float
    run_cpu: float
    wall: float
    intervals: int

    @property
    def cpu(self) -> float:
        return self.look_cpu + self.run_cpu


@dataclass(frozen=True)
class Shop:
    """A project with orders of so many hours."""

    root: Path
    rows: int
    hours: int

    @property
    def landing(self) -> str:
        return str(self.root / "landing" / "orders")

    def write(self) -> None:
        for folder in ("external", "transformations"):
            (self.root / "models" / folder).mkdir(parents=True)
        (self.root / "penstock.yml").write_text("name: late\ndatabases: {external: raw, transformation: shop}\n")
        text = "location: ./landing/orders\nposition: at\naxis: second\ncompleteness: inclusive\n"
        (self.root / "models/external/orders.yml").write_text(text)
        for name, (position, grain, parent, read, key, rest) in MODELS.items():
            place = f"cast(floor({read} / {grain}) * {grain} as bigint)"
            sql = f"select {place} as {position}, {key}, {rest} from {{{{ ref('{parent}') }}}} group by {place}, {key}"
            body = f"---\ninterval: 1 hour\nposition: {position}\n---\n{sql}\n"
            (self.root / f"models/transformations/{name}.sql").write_text(body)
        self._land()

    def _land(self) -> None:
        per_hour = self.rows // self.hours
        for first in range(0, self.hours, HOURS_PER_COMMIT):
            count = per_hour * min(HOURS_PER_COMMIT, self.hours - first)
            numbers = pa.array(range(first * per_hour, first * per_hour + count), pa.int64())
            within = pc.subtract(numbers, first * per_hour)
            span = HOUR * (count // per_hour)
            at = pc.add(pc.divide(pc.multiply(within, span), count), START + first * HOUR)
            self._append(numbers, at)
        # the last second there is: every hour is complete
        self._append(pa.array([self.rows], pa.int64()), pa.array([START + self.hours * HOUR - 1], pa.int64()))

    def _append(self, numbers: pa.Array, at: pa.Array) -> None:
        fifth = _remainder(numbers, 5)
        table = pa.table(
            {
                "order_id": numbers,
                "at": at,
                "customer_id": _remainder(pc.multiply(numbers, 7919), CUSTOMERS),
                "country": pc.take(pa.array(["NO", "SE", "DK", "FI", "DE"]), fifth),
                "amount": _remainder(pc.multiply(numbers, 31), 997),
            }
        )
        write_deltalake(self.landing, table, mode="append")

    def late(self, hours_later: int = 0) -> int:
        """One row in a thousand of all, in one hour of long ago."""
        count = max(self.rows // SHARE, 1)
        numbers = pa.array(range(2 * self.rows, 2 * self.rows + count), pa.int64())
        hour = START + (self.hours // 4 + hours_later) * HOUR
        self._append(numbers, pc.add(_remainder(numbers, HOUR), hour))
        return count

    def amended(self, which: int) -> int:
        """One row in a thousand, all over the table."""
        table = DeltaTable(self.landing)
        return int(
            table.update({"amount": "amount + 1"}, predicate=f"order_id % {SHARE} = {which}")["num_updated_rows"]
        )

    def feed(self) -> None:
        DeltaTable(self.landing).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})


def _remainder(values: pa.Array, size: int) -> pa.Array:
    return pc.subtract(values, pc.multiply(pc.divide(values, size), size))


def adopt_orphans() -> None:
    """Whatever our children leave behind becomes ours to wait for, and counts: the JVM, the database."""
    ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def ran(command: list[str], folder: Path, environ: dict[str, str] | None = None) -> tuple[float, str]:
    """The CPU seconds of a program and of everything that it started, and what it printed."""
    before = cpu_of_children()
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stdout}\n{done.stderr}")
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    return cpu_of_children() - before, done.stdout


def by_processes(shop: Shop, first: bool) -> Cost:
    """As a person has it: a process that looks, and one that does the rest, with Spark when there is work."""
    began = time.perf_counter()
    look = 0.0 if first else ran([sys.executable, "-c", LOOK], shop.root)[0]
    used, printed = ran([sys.executable, "-m", "penstock.cli.main", "run", "--json"], shop.root)
    return Cost(look, used, time.perf_counter() - began, json.loads(printed)["intervals"])


def warm(shop: Shop) -> float:
    """The CPU seconds of one more late hour in a process that has done some before."""

    def used(first: int, times: int) -> float:
        numbers = [str(number) for number in (first, times, shop.rows, shop.hours)]
        command = [sys.executable, "-c", AGAIN, *numbers]
        return ran(command, shop.root, {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})[0]

    few = used(1, 2)
    return (used(3, 2 + TIMES) - few) / TIMES


def spark_start(shop: Shop) -> float:
    """The CPU seconds of the smallest question that Spark answers: every case with work pays as much for its start."""
    name, (position, *_) = next(iter(MODELS.items()))
    sql = f"select {position} from {name} limit 1"
    return ran([sys.executable, "-m", "penstock.cli.main", "query", sql, "--json"], shop.root)[0]


def in_process(shop: Shop, first: bool) -> Cost:
    """The same without a JVM, for a look at whether it works."""
    from arrow_engine import ArrowEngine

    began, before = time.perf_counter(), time.process_time()
    with open_workspace(shop.root, os.environ) as workspace:
        workspace.engine = ArrowEngine()  # type: ignore[assignment]
        apply(workspace)
        observe(workspace, Silent())
        looked = time.process_time()
        done = run(workspace, workspace.interval_models(()), Silent())
    assert not done.failed, done.errors
    return Cost(looked - before, time.process_time() - looked, time.perf_counter() - began, done.intervals)


def measured(
    shop: Shop,
    act: Callable[[Shop, bool], Cost],
    start: Callable[[Shop], float],
    measure_another: Callable[[Shop], float],
) -> list[list[object]]:
    """One row per case; the first is what all are compared with."""
    cases: list[tuple[str, int, Cost]] = []

    def case(name: str, changed: int) -> None:
        cases.append((name, changed, act(shop, not cases)))

    case("full build", shop.rows)
    case("nothing changed", 0)
    case("late in one old hour", shop.late())
    warm = measure_another(shop)  # before its source is rearranged by updates
    case("amended in all hours", shop.amended(7))
    shop.feed()
    case("amended in all hours, change feed", shop.amended(8))
    begun = start(shop)
    full = cases[0][2]
    rows: list[list[object]] = []
    for name, changed, cost in cases:
        figures = [f"{value:.2f}" for value in (cost.look_cpu, cost.run_cpu, cost.cpu, cost.wall)]
        aside = f"{(cost.cpu - begun) / (full.cpu - begun):.3f}" if cost.intervals else ""
        rows.append([name, changed, cost.intervals, *figures, f"{cost.cpu / full.cpu:.3f}", aside])
    if warm:
        of_full = [f"{warm / whole:.3f}" for whole in (full.cpu, full.cpu - begun)]
        rows.append(["one more late hour in a process", shop.rows // SHARE, 4, "", "", f"{warm:.2f}", "", *of_full])
    return rows


def main() -> None:
    options = arguments(__doc__ or "", quick="a tenth of the hours, and an engine without a JVM", rows=ROWS)
    hours = HOURS // 10 if options.quick else HOURS
    rows = 20_000 if options.quick else options.rows
    with scratch() as root:
        shop = Shop(root / "shop", rows, hours)
        shop.write()
        if not options.quick:
            adopt_orphans()
        figures = (
            measured(shop, in_process, lambda _: 0.0, lambda _: 0.0)
            if options.quick
            else measured(shop, by_processes, spark_start, warm)
        )
    columns = (
        "case",
        "rows",
        "intervals",
        "look CPU s",
        "run CPU s",
        "CPU s",
        "wall s",
        "of full build",
        "Spark's start aside",
    )
    counted = "this process" if options.quick else "all processes, JVM and database included"
    title = f"{rows:,} rows, {hours} hours, {len(MODELS)} models; CPU of {counted}"
    report(title, columns, figures, options.json)


if __name__ == "__main__":
    main()
