"""Several processes on one project: exact tables, and readers that never see a half-written one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from fuzzing import FUZZ

Shell = Any
CHILD = Path(__file__).parent.parent / "crash" / "child.py"
HOURS = 6
PER_HOUR = 50
START = 1_767_225_600


@pytest.fixture
def orders(tmp_path: Path, shell_in: Callable[[Path], Shell]) -> Shell:
    """Hours of orders, a sum per hour, and a look-back over it that cannot be widened."""
    shell = shell_in(tmp_path / "orders shop")
    files = {
        "penstock.yml": "name: shop\ndatabases: {external: raw, transformation: shop}\n",
        "models/external/orders.yml": "location: ./landing/orders\nposition: ordered_at\ncompleteness: inclusive\n",
        "models/transformations/hourly.sql": "---\ninterval: 1 hour\nposition: hour\n---\n"
        "select date_trunc('hour', ordered_at) as hour, count(*) as orders, sum(amount) as revenue\n"
        "from {{ ref('raw.orders') }} group by date_trunc('hour', ordered_at)\n",
        "models/transformations/trend.sql": "---\ninterval: 1 hour\nposition: hour\n"
        "dependencies: [{model: shop.hourly, before: 2 hours}]\n---\n"
        "select a.hour, sum(b.revenue) as recent from {{ ref('shop.hourly') }} a join {{ ref('shop.hourly') }} b\n"
        "on b.hour <= a.hour and b.hour > a.hour - interval 3 hours group by a.hour\n",
    }
    for name, text in files.items():
        path = shell.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    write_orders(shell.folder, factor=1)
    return shell


def write_orders(folder: Path, factor: int) -> None:
    count = HOURS * PER_HOUR
    at = [(START + i * HOURS * 3600 // count) * 1_000_000 for i in range(count)]
    last = (START + HOURS * 3600 - 1) * 1_000_000
    rows = pa.table(
        {
            "ordered_at": pa.array([*at, last], pa.timestamp("us", "UTC")),
            "amount": pa.array([*((i % 7) * factor for i in range(count)), 0], pa.int64()),
        }
    )
    write_deltalake(str(folder / "landing" / "orders"), rows, mode="overwrite")


def rows(model: dict[str, Any]) -> list[dict[str, Any]]:
    """What `status` says that is served."""
    table = DeltaTable(model["location"], version=model["snapshot"]).to_pyarrow_table()
    return sorted(table.to_pylist(), key=lambda row: row["hour"])


def exact(shell: Shell, factor: int = 1) -> bool:
    """Whether both tables hold what Python counts in the orders; nothing is stale and nothing is missing."""
    amounts = [(i % 7) * factor for i in range(HOURS * PER_HOUR)]
    sums = [sum(amounts[hour * PER_HOUR : (hour + 1) * PER_HOUR]) for hour in range(HOURS)]
    models = {one["name"]: one for one in shell.json("status")["models"]}
    hourly, trend = models["shop.hourly"], models["shop.trend"]
    for one in (hourly, trend):
        assert (one["health"], one["gaps"], one["stale"]) == ("ok", [], []), one
        assert [row["hour"].timestamp() for row in rows(one)] == [START + hour * 3600 for hour in range(HOURS)]
    assert [(row["orders"], row["revenue"]) for row in rows(hourly)] == [
        (PER_HOUR + (hour == HOURS - 1), sums[hour]) for hour in range(HOURS)
    ]
    return [row["recent"] for row in rows(trend)] == [sum(sums[max(0, hour - 2) : hour + 1]) for hour in range(HOURS)]


def test_two_runs_at_once_share_the_work_and_both_end_well(orders: Shell) -> None:
    both = [orders.start("run", "--json") for _ in range(2)]
    ended = [(process.communicate(timeout=240), process.returncode) for process in both]
    assert [code for _, code in ended] == [0, 0], ended
    answers = [json.loads(out) for (out, _), _ in ended]
    assert sum(answer["intervals"] for answer in answers) == 2 * HOURS
    assert sum(answer["failed"] for answer in answers) == 0
    assert exact(orders)


def test_a_reader_sees_the_old_rows_or_the_new_ones(orders: Shell) -> None:
    """Some readers ask for the accepted snapshot, others just open the table; one asks Spark at the end."""
    orders("run")

    def status() -> dict[str, Any]:
        (found,) = orders.json("status", "hourly")["models"]
        return found

    def total(table: DeltaTable) -> tuple[int, int]:
        found = table.to_pyarrow_table()
        return sum(found["revenue"].to_pylist()), found.num_rows

    place = status()["location"]
    before = total(DeltaTable(place))
    write_orders(orders.folder, factor=10)
    rewriting = orders.start("rerun", "hourly", "--json")
    seen = []
    while rewriting.poll() is None:
        seen.append(total(DeltaTable(place, version=status()["snapshot"])))
        seen.extend(total(DeltaTable(place)) for _ in range(20))
    out, err = rewriting.communicate()
    assert rewriting.returncode == 0, out + err
    after = (before[0] * 10, HOURS)
    assert set(seen) <= {before, after}
    assert before in seen
    asked = orders("query", "select sum(revenue) as total, count(*) as hours from hourly", "--json").json
    assert asked == [{"total": after[0], "hours": HOURS}]
    assert exact(orders, 10)  # the look-back was recomputed, too


def killed_at(shell: Shell, step: str) -> None:
    """A real run, with Spark, that is killed at a step."""
    command = [sys.executable, str(CHILD), str(shell.folder), "--spark", "--die", step]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("step", ["planned", "staged", "written"] if FUZZ else ["written"])
def test_a_run_killed_while_spark_stages_is_finished_by_the_next(orders: Shell, step: str) -> None:
    killed_at(orders, step)
    assert orders.json("run")["failed"] == 0
    assert exact(orders)


def test_a_task_that_took_two_workers_with_it_is_set_aside_and_said(orders: Shell) -> None:
    killed_at(orders, "planned")
    killed_at(orders, "delta committed")
    answer = orders.json("run", code=1)
    assert answer["failed"] >= 1  # whatever ran in the two workers
    assert orders.json("tasks", "--failed")["tasks"][0]["state"] == "dead"
    assert orders.json("run")["failed"] == 0  # a new run tries again what an older one gave up
    assert exact(orders)


def test_an_edited_model_is_rebuilt_aside_and_takes_over(orders: Shell) -> None:
    orders("run")
    old = orders.json("status", "hourly")["models"][0]["generation"]
    path = orders.folder / "models/transformations/hourly.sql"
    path.write_text(path.read_text().replace("sum(amount) as revenue", "sum(amount) * 2 as revenue"))
    changes = {row["model"]: row["change"] for row in orders.json("plan")["changes"]}
    assert changes == {"raw.orders": "unchanged", "shop.hourly": "rebuild", "shop.trend": "rebuild"}
    refused = orders("run", "--json", code=2)
    assert "--yes" in json.loads(refused.out)["error"]["hint"]
    assert orders.json("run", "--yes")["failed"] == 0
    assert orders.json("status", "hourly")["models"][0]["generation"] != old
    assert exact(orders, 2)
