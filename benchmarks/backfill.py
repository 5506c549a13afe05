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
MODELS = {
    "orders_minute": ("minute", "raw.orders", "date_trunc('minute', ordered_at) as minute, country, count(*) as orders, sum(amount) as revenue", "date_trunc('minute', ordered_at), country"),
    "orders_hourly": ("hour", "shop.orders_minute", "date_trunc('hour', minute) as hour, country, sum(orders) as orders, sum(revenue) as revenue", "date_trunc('hour', minute), country"),
    "customers_hourly": ("hour", "raw.orders", "date_trunc('hour', ordered_at) as hour, customer_id, count(*) as orders, sum(amount) as revenue", "date_trunc('hour', ordered_at), customer_id"),
    "hours": ("hour", "shop.orders_hourly", "hour, sum(orders) as orders, sum(revenue) as revenue, max(revenue) as best", "hour"),
}  # fmt: skip
PLAIN = """
import json, sys, time
from pathlib import Path
from penstock.engine.session import Session, SparkSettings
from penstock.runtime.workspace import cache_folder
import os
began = time.perf_counter()
session = Session(SparkSettings(cache=cache_folder(os.environ), environment=os.environ))
spark = session.spark()
started = time.perf_counter()
root = Path(sys.argv[1])
where = {"raw.orders": root / "landing" / "orders"}
for name, (position, parent, columns, keys) in json.loads(sys.argv[2]).items():
    target = root / "plain" / name
    spark.sql(f"select {columns} from delta.`{where[parent]}` group by {keys}").write.format("delta").mode("overwrite").save(str(target))
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
    for name, (position, parent, columns, keys) in MODELS.items():
        body = f"---\ninterval: 1 hour\nposition: {position}\n---\nselect {columns}\nfrom {{{{ ref('{parent}') }}}}\ngroup by {keys}\n"
        (root / f"models/transformations/{name}.sql").write_text(body)


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
        plain_wall, plain = timed([sys.executable, "-c", PLAIN, str(root), json.dumps(MODELS)], root)
        wall, ours = timed([sys.executable, "-m", "penstock.cli.main", "run", "--json"], root)
    rows = [
        ("plain PySpark, full rebuild", f"{plain_wall:.1f}", "", "4 tables", "1.00"),
        ("penstock run", f"{wall:.1f}", ours["spark_jobs"], f"{ours['intervals']} intervals in {ours['tasks']} tasks", f"{wall / plain_wall:.2f}"),
    ]
    report(
        f"{HOURS} hours x {len(MODELS)} models, {HOURS * ROWS_PER_HOUR:,} rows, both with their own JVM",
        ("", "wall s", "Spark jobs", "made", "ratio"),
        rows,
        options.json,
    )


if __name__ == "__main__":
    main()
