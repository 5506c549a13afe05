"""What does a backfill of 200 hours and four models take, against making the same Delta tables in plain PySpark?"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from late import adopt_orphans, ran
from places import scratch
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
import json, os, sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from penstock.engine.spark.session import Session, SparkSettings
from penstock.runtime.place.workspace import cache_folder
session = Session(SparkSettings(cache=cache_folder(os.environ), environ=os.environ, quick=True))
spark = session.spark()
root, how, models, start, hours = Path(sys.argv[1]), sys.argv[2], *map(json.loads, sys.argv[3:])
where = {"raw.orders": f"delta.`{root / 'landing' / 'orders'}`"}
first = datetime.fromtimestamp(start, timezone.utc)
edges = [first + timedelta(hours=n) for n in (range(0, hours, 24) if how == "days" else [0])]
edges.append(first + timedelta(hours=hours))
for name, (parent, column, position, sql) in models.items():
    target = root / how / name
    for low, high in [[f"timestamp '{one:%Y-%m-%d %H:%M:%S}'" for one in pair] for pair in zip(edges, edges[1:])]:
        part = f"(select * from {where[parent]} where {column} >= {low} and {column} < {high})"
        writer = spark.sql(sql.format(part)).write.format("parquet" if how == "parquet" else "delta").mode("overwrite")
        if how == "days" and target.exists():
            writer = writer.option("replaceWhere", f"{position} >= {low} and {position} < {high}")
        writer.save(str(target))
    where["shop." + name] = f"{'parquet' if how == 'parquet' else 'delta'}.`{target}`"
session.stop()
"""
PLAIN_WAYS = {
    "parquet": "plain PySpark, all at once, Parquet",
    "delta": "plain PySpark, all at once, Delta",
    "days": "plain PySpark, a day at a time, Delta with replaceWhere",
}
_PARENT_COLUMN = {"raw.orders": "ordered_at", "shop.orders_minute": "minute", "shop.orders_hourly": "hour"}


def project(root: Path, hours: int) -> None:
    """Hours of orders, and the four models over them."""
    count = hours * ROWS_PER_HOUR
    seconds = [START + i * hours * 3600 // count for i in range(count + 1)]  # the last one says that all hours are over
    table = pa.table(
        {
            "order_id": pa.array(range(count + 1), pa.int64()),
            "ordered_at": pa.array([s * 1_000_000 for s in seconds], pa.timestamp("us", "UTC")),
            "customer_id": pa.array([i * 7919 % 2_000 for i in range(count + 1)], pa.int64()),
            "country": pa.array([("NO", "SE", "DK", "FI", "DE")[i % 5] for i in range(count + 1)]),
            "amount": pa.array([i * 31 % 997 for i in range(count + 1)], pa.int64()),
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


def timed(command: list[str], folder: Path) -> tuple[float, float, str]:
    """Wall and CPU seconds, of the JVM and the database too, and what it printed."""
    began = time.perf_counter()
    used, printed = ran(command, folder)
    return time.perf_counter() - began, used, printed


def rows_of(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def check(root: Path) -> None:
    """All of them made the same rows."""
    for name in MODELS:
        (ours,) = (root / "warehouse").glob(f"**/{name}/**/_delta_log")
        wanted = DeltaTable(ours.parent).to_pyarrow_table()
        tables = {how: DeltaTable(root / how / name).to_pyarrow_table() for how in ("delta", "days")}
        tables["parquet"] = pq.read_table(root / "parquet" / name).cast(tables["delta"].schema)
        for how, table in tables.items():
            if rows_of(table.select(wanted.column_names)) != rows_of(wanted):
                raise SystemExit(f"{name}: {PLAIN_WAYS[how]} made other rows")


def main() -> None:
    options = arguments(__doc__ or "", quick="50 hours")
    hours = 50 if options.quick else HOURS
    adopt_orphans()
    with scratch() as root:
        project(root, hours)
        plain = {
            name: (parent, _PARENT_COLUMN[parent], position, query(name))
            for name, (position, parent, *_) in MODELS.items()
        }
        parameters = [json.dumps(plain), json.dumps(START), json.dumps(hours)]
        figures = {
            how: timed([sys.executable, "-c", PLAIN, str(root), how, *parameters], root)[:2] for how in PLAIN_WAYS
        }
        wall, used, printed = timed([sys.executable, "-m", "penstock.cli.main", "run", "--json"], root)
        check(root)
    ours = json.loads(printed)
    rows = [
        (PLAIN_WAYS[how], f"{w:.1f}", f"{c:.1f}", "", "", f"{c / figures['delta'][1]:.2f}")
        for how, (w, c) in figures.items()
    ]
    volume = f"{ours['intervals']} intervals in {ours['tasks']} tasks"
    rows.append(
        ("penstock run", f"{wall:.1f}", f"{used:.1f}", ours["spark_jobs"], volume, f"{used / figures['delta'][1]:.2f}")
    )
    report(
        f"{hours} hours x {len(MODELS)} models, {hours * ROWS_PER_HOUR:,} rows, equal rows, each with its own JVM",
        ("", "wall s", "CPU s", "Spark jobs", "made", "CPU of Delta at once"),
        rows,
        options.json,
    )


if __name__ == "__main__":
    main()
