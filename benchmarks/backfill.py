"""How long does a backfill of 200 hours and four models take, against rebuilding the same tables in plain PySpark?"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from results import arguments, report

HOURS, ROWS_PER_HOUR = 200, 10_000
START = 1_767_225_600
_COUNTED = "count(*) as orders, sum(amount) as revenue"
_SUMMED = "sum(orders) as orders, sum(revenue) as revenue"
MODELS = {
    "orders_minute": ("minute", "raw.orders", "date_trunc('minute', ordered_at)", "country", _COUNTED),
    "orders_hourly": ("hour", "shop.orders_minute", "date_trunc('hour', minute)", "country", _SUMMED),
    "customers_hourly": ("hour", "raw.orders", "date_trunc('hour', ordered_at)", "customer_id", _COUNTED),
    "best_hourly": ("hour", "shop.orders_hourly", "hour", "country", f"{_SUMMED}, max(revenue) as best"),
}
"""Name: (position, parent, its expression, another key, the rest)."""
PLAIN = """
import json, sys, time
from pathlib import Path
from penstock.engine.session import Session, SparkSettings
from penstock.runtime.workspace import cache_folder
import os
began = time.perf_counter()
session = Session(SparkSettings(cache=cache_folder(os.environ), environ=os.environ, quick=True))
spark = session.spark()
started = time.perf_counter()
root = Path(sys.argv[1])
where = {"raw.orders": root / "landing" / "orders"}
for name, (parent, sql) in json.loads(sys.argv[2]).items():
    target = root / "plain" / name
    spark.sql(sql.format(f"delta.`{where[parent]}`")).write.format("delta").mode("overwrite").save(str(target))
    where["shop." + name] = target
done = time.perf_counter()
print(json.dumps({"start": started - began, "work": done - started}))
session.stop()
"""


def project(root: Path) -> None:
    """200 hours of orders, and the four models over them."""
    count = HOURS * ROWS_PER_HOUR
    numbers = pa.array(range(count), pa.int64())
    seconds = [START + i * HOURS * 3600 // count for i in range(count)]
    table = pa.table(
        {
            "order_id": numbers,
            "ordered_at": pa.array([s * 1_000_000 for s in seconds], pa.timestamp("us", "UTC")),
            "customer_id": pa.array([i * 7919 % 2_000 for i in range(count)], pa.int64()),
            "country": pa.array([("NO", "SE", "DK", "FI", "DE")[i % 5] for i in range(count)]),
            "amount": pa.array([i * 31 % 997 for i in range(count)], pa.int64()),
        }
    )
    write_deltalake(str(root / "landing" / "orders"), table, target_file_size=4_000_000)
    (root / "penstock.yml").write_text("name: backfill\ndatabases: {external: raw, transformation: shop}\n")
    (root / "models/external").mkdir(parents=True)
    (root / "models/transformations").mkdir(parents=True)
    (root / "models/external/orders.yml").write_text("location: ./landing/orders\nposition: ordered_at\n")
    for name, (position, parent, *_) in MODELS.items():
        sql = query(name).format(f"{{{{ ref('{parent}') }}}}")
        body = f"---\ninterval: 1 hour\nposition: {position}\n---\n{sql}\n"
        (root / f"models/transformations/{name}.sql").write_text(body)


def query(name: str) -> str:
    """A model's SELECT, with a hole for what it reads."""
    position, _, expression, key, rest = MODELS[name]
    return f"select {expression} as {position}, {key}, {rest} from {{}} group by {expression}, {key}"


def timed(command: list[str], folder: Path) -> tuple[float, dict[str, object]]:
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stdout}\n{done.stderr}")
    return time.perf_counter() - began, json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    options = arguments(__doc__ or "")
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        project(root)
        plain = {name: (parent, query(name)) for name, (_, parent, *_) in MODELS.items()}
        plain_wall, _ = timed([sys.executable, "-c", PLAIN, str(root), json.dumps(plain)], root)
        wall, ours = timed([sys.executable, "-m", "penstock.cli.main", "run", "--json"], root)
    made = f"{ours['intervals']} intervals in {ours['tasks']} tasks"
    rows = [
        ("plain PySpark, full rebuild", f"{plain_wall:.1f}", "", "4 tables", "1.00"),
        ("penstock run", f"{wall:.1f}", ours["spark_jobs"], made, f"{wall / plain_wall:.2f}"),
    ]
    report(
        f"{HOURS} hours x {len(MODELS)} models, {HOURS * ROWS_PER_HOUR:,} rows, both with their own JVM",
        ("", "wall s", "Spark jobs", "made", "ratio"),
        rows,
        options.json,
    )


if __name__ == "__main__":
    main()
