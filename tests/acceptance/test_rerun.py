"""Late rows, conditions and invalidations as they are typed: real processes, real PostgreSQL, real Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from fuzzing import FUZZ

Shell = Any
START = 1_767_225_600
HOUR = 3600
ODD = "Côte d'Ivoire"
COUNTRIES = ["NO", ODD, None, "NO"]


@pytest.fixture
def shop(tmp_path: Path, shell_in: Callable[[Path], Shell]) -> Shell:
    """Four hours of orders, each from one country, counted by hour and by pairs of hours."""
    shell = shell_in(tmp_path / "late shop")
    count = "count(*) as orders, min(country) as country"
    files = {
        "penstock.yml": "name: shop\ndatabases: {external: raw, transformation: shop}\n",
        "models/external/orders.yml": "location: ./landing/orders\nposition: ordered_at\ncompleteness: inclusive\n",
        "models/transformations/hourly.sql": "---\ninterval: 1 hour\nposition: hour\n---\n"
        f"select date_trunc('hour', ordered_at) as hour, {count}\n"
        "from {{ ref('raw.orders') }} group by date_trunc('hour', ordered_at)\n",
        "models/transformations/pairs.sql": "---\ninterval: 2 hours\nposition: hour\n---\n"
        "select hour, orders, '{{ bounds.key }}' as pair from {{ ref('shop.hourly') }}\n",
    }
    for name, text in files.items():
        path = shell.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    seconds = [START + i * 600 for i in range(24)]
    land(shell.folder, [*seconds, START + 4 * HOUR - 1], [*(COUNTRIES[i // 6] for i in range(24)), "NO"])
    return shell


def land(folder: Path, seconds: list[int], countries: list[str | None]) -> None:
    at = pa.array([second * 1_000_000 for second in seconds], pa.timestamp("us", "UTC"))
    rows = pa.table({"ordered_at": at, "country": pa.array(countries, pa.string())})
    write_deltalake(str(folder / "landing" / "orders"), rows, mode="append")


def hours(first: int, last: int) -> list[list[int]]:
    return [[START + first * HOUR, START + last * HOUR]]


@pytest.mark.skipif(not FUZZ, reason="a minute of starting Spark: make fuzz plays it")
def test_a_late_row_that_is_reported_and_a_condition_with_a_quote(shop: Shell) -> None:
    assert shop.json("run")["intervals"] == 6
    land(shop.folder, [START + HOUR + 60], [ODD])
    invalidate = ("invalidate", "orders", "--from", "2026-01-01 01:00", "--to", "2026-01-01 02:00")
    told = shop.json(*invalidate, "--reason", "a late file", "--key", "file-7")
    assert told["recompute"] == [{"model": "shop.hourly", "ranges": hours(1, 2), "chunks": 1}]
    assert (told["intervals"], told["failed"]) == (2, 0)
    assert shop.json(*invalidate, "--reason", "again", "--key", "file-7") == {"recompute": [], "recorded": True}
    assert (
        "reopened: commit 1 of raw.orders changed 1 row of this interval"
        in shop("explain", "hourly", "--at", "2026-01-01 01:30").out
    )
    answer = shop.json("rerun", "hourly", "--where", "country = 'Côte d''Ivoire' or country is null")
    assert answer["recompute"] == [{"model": "shop.hourly", "ranges": hours(1, 3), "chunks": 2}]
    assert answer["intervals"] == 2
    (row,) = shop.json("status", "pairs")["models"]
    assert (row["stale"], row["cursor"], row["coverage"]) == ([], START + 4 * HOUR, hours(0, 4))
    (newest, *_) = shop.json("tasks", "pairs", "--history")["tasks"]
    assert newest["scope"]["partitions"] == [f"{START}_{START + 2 * HOUR}"]


def test_calls_that_make_no_sense_end_with_2_and_say_why(shop: Shell) -> None:
    clash = json.loads(shop("rerun", "hourly", "--reset", "--failed", "--json", code=2).out)["error"]
    assert "--reset" in clash["message"]
    assert "--failed" in clash["message"]
    assert "--reason" in shop("invalidate", "orders", code=2).err
