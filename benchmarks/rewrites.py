"""What does it cost to find the rows that changed in a large file that was written anew, without a change feed?"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from late import HOUR, START, Cost, Shop, adopt_orphans, by_processes, in_process
from penstock.engine.spark.jars import delta_jars
from penstock.engine.spark.java import find
from penstock.engine.spark.session import Session, SparkSettings
from penstock.runtime.place.workspace import cache_folder
from places import scratch
from results import arguments, report

ROWS, HOURS = 5_000_000, 200
CHANGED_HOURS = 2
"""All rows of so many hours are one in a hundred of all."""
MODELS = 4


def in_one_file(shop: Shop) -> None:
    DeltaTable(shop.landing).optimize.compact(target_size=2**32)
    assert len(DeltaTable(shop.landing).file_uris()) == 1


def updated_by_spark(shop: Shop) -> int:
    """Spark's UPDATE writes the file anew, its rows in their order."""
    text = f"update delta.`{shop.landing}` set amount = amount + 1 where {_hours(30)}"
    done = subprocess.run([sys.executable, __file__, "--child", text], check=True, capture_output=True, text=True)
    return int(done.stdout.splitlines()[-1])


def in_spark(text: str) -> None:
    """One process that says how many rows a command changed."""
    shared = cache_folder(os.environ)
    jars = delta_jars(os.environ, shared, find(os.environ, shared).home)
    environ = {**os.environ, "PENSTOCK_JARS": str(Path(jars[0]).parent)}
    session = Session(SparkSettings(cache=shared, environ=environ, quick=True))
    print(session.spark().sql(text).collect()[0][0])
    session.stop()


def updated(shop: Shop) -> int:
    """That of delta-rs mixes blocks of rows."""
    table = DeltaTable(shop.landing)
    return int(table.update({"amount": "amount + 1"}, predicate=_hours(20))["num_updated_rows"])


def merged(shop: Shop) -> int:
    """A MERGE leaves no order."""
    rows = DeltaTable(shop.landing).to_pyarrow_table()
    at = rows.column("at")
    first = START + 10 * HOUR
    inside = pc.and_(pc.greater_equal(at, first), pc.less(at, first + CHANGED_HOURS * HOUR))
    amount = pc.add(rows.column("amount"), pc.cast(inside, pa.int64()))
    changed = rows.set_column(rows.column_names.index("amount"), "amount", amount)
    mixed = changed.take(pc.sort_indices(pc.bit_wise_xor(rows.column("order_id"), 0x5A5A5)))
    write_deltalake(shop.landing, mixed, mode="overwrite")
    return int(pc.sum(inside).as_py())


def _hours(first: int) -> str:
    return f"at >= {START + first * HOUR} and at < {START + (first + CHANGED_HOURS) * HOUR}"


def main() -> None:
    options = arguments(__doc__ or "", quick="few rows, and an engine without a JVM", rows=ROWS)
    rows, hours = (20_000, HOURS // 5) if options.quick else (options.rows, HOURS)
    act: Callable[[Shop, bool], Cost] = in_process if options.quick else by_processes
    with scratch() as root:
        shop = Shop(root / "shop", rows, hours)
        shop.write()
        in_one_file(shop)
        if not options.quick:
            adopt_orphans()
        full, idle = act(shop, True), act(shop, False)
        figures: list[list[object]] = [["full build", rows, full.intervals, "", f"{full.cpu:.2f}", "1.000"]]
        cases = {"UPDATE by delta-rs": updated, "rewritten in another order": merged}
        if not options.quick:
            cases = {"UPDATE by Spark": updated_by_spark, **cases}
        for name, change in cases.items():
            changed, cost = change(shop), act(shop, False)
            spent = cost.look_cpu - idle.look_cpu
            if cost.intervals != CHANGED_HOURS * MODELS:
                sys.exit(f"{name}: {cost.intervals} intervals were computed, {CHANGED_HOURS * MODELS} had changed")
            figures.append(
                [name, changed, cost.intervals, f"{spent:.2f}", f"{cost.cpu:.2f}", f"{spent / full.cpu:.3f}"]
            )
    columns = ("case", "rows", "intervals", "detection CPU s", "CPU s", "detection of full build")
    report(f"{rows:,} rows in one file, no change feed", columns, figures, options.json)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        in_spark(sys.argv[2])
    else:
        main()
