"""Writes orders: 26 hours of them, and then some that come late."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

LANDING = Path(__file__).parent / "landing" / "orders"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
HOURS, ORDERS_PER_HOUR = 26, 60
LATE = BEGIN + timedelta(hours=5, minutes=20)
"""All late rows belong to this minute of an hour that was computed long ago."""
COUNTRIES = ("NO", "SE", "DK")


def write(moments: Sequence[datetime], first: int) -> None:
    numbers = range(first, first + len(moments))
    table = pa.table(
        {
            "order_id": pa.array(numbers, pa.int64()),
            "ordered_at": pa.array(moments, pa.timestamp("us", "UTC")),
            "country": pa.array([COUNTRIES[number % len(COUNTRIES)] for number in numbers]),
            "amount": pa.array([number % 50 + 1 for number in numbers], pa.int64()),
        }
    )
    write_deltalake(str(LANDING), table, mode="append")


def begin() -> None:
    for hour in range(HOURS):
        start, step = BEGIN + timedelta(hours=hour), timedelta(hours=1) / ORDERS_PER_HOUR
        write([start + minute * step for minute in range(ORDERS_PER_HOUR)], hour * ORDERS_PER_HOUR)
    # the first order of the next hour: it says that the last one is complete
    write([BEGIN + timedelta(hours=HOURS)], HOURS * ORDERS_PER_HOUR)
    print(f"{HOURS * ORDERS_PER_HOUR + 1} orders in {HOURS} hours")


def late(rows: int, seconds: float) -> None:
    for number in range(rows):
        if number:
            time.sleep(seconds)
        held = sum(DeltaTable(str(LANDING)).get_add_actions(flatten=True)["num_records"].to_pylist())
        write([LATE + timedelta(seconds=number % 60)], held)
    print(f"{rows} late order{'s' if rows > 1 else ''} at {LATE:%Y-%m-%d %H:%M}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("begin")
    some = commands.add_parser("late")
    some.add_argument("rows", type=int, nargs="?", default=1)
    some.add_argument("--every", type=float, default=1.0, metavar="SECONDS")
    given = parser.parse_args()
    if given.command == "begin":
        begin()
    else:
        late(given.rows, given.every)


if __name__ == "__main__":
    main()
