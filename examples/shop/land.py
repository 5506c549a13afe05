"""Writes the tables of a shop, and then changes some of their rows."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

LANDING = Path(__file__).parent / "landing"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
ORDERS, CUSTOMERS, PRODUCTS = 4000, 400, 20
SEGMENTS = ("consumer", "business", "school", "club", "reseller")
COUNTRIES = ("NO", "SE", "DK", "FI", "IS", "DE")
CATEGORIES = ("books", "games", "garden", "kitchen")
NEW, MOVED, RENAMED = 5, 1234, 42


def begin() -> None:
    _write_orders(range(ORDERS))
    customers = range(CUSTOMERS)
    _write(
        "customers",
        {
            "customer_id": pa.array(customers, pa.int64()),
            "name": pa.array([f"customer {number}" for number in customers]),
            "segment": pa.array([SEGMENTS[number % len(SEGMENTS)] for number in customers]),
            "country": pa.array([COUNTRIES[number // 5 % len(COUNTRIES)] for number in customers]),
        },
    )
    products = range(PRODUCTS)
    _write(
        "products",
        {
            "product_id": pa.array(products, pa.int64()),
            "name": pa.array([f"product {number}" for number in products]),
            "category": pa.array([CATEGORIES[number % len(CATEGORIES)] for number in products]),
        },
    )
    print(f"{ORDERS} orders, {CUSTOMERS} customers, {PRODUCTS} products")


def more() -> None:
    """New rows and nothing else: one order each of five customers."""
    _write_orders(range(ORDERS, ORDERS + NEW))
    print(f"{NEW} new orders")


def move() -> None:
    """The order was of customer 238 and is of customer 7 now."""
    _update("orders", f"order_id = {MOVED}", {"customer_id": "7"})
    print(f"order {MOVED} moved from customer {MOVED * 7 % CUSTOMERS} to customer 7")


def rename() -> None:
    _update("customers", f"customer_id = {RENAMED}", {"name": "'Ada'"})
    print(f"customer {RENAMED} is called Ada now")


def prices() -> None:
    changed = _update("orders", "customer_id % 10 < 8", {"amount": "amount + 1"})
    print(f"{changed} orders of 80 % of the customers cost more now")


def compact() -> None:
    """Maintenance writes the same rows to other files."""
    _table("orders").optimize.z_order(["customer_id"])
    print("the same orders are in other files now")


def _write_orders(numbers: range) -> None:
    moments = [BEGIN + timedelta(minutes=number) for number in numbers]
    _write(
        "orders",
        {
            "order_id": pa.array(numbers, pa.int64()),
            "customer_id": pa.array([number * 7 % CUSTOMERS for number in numbers], pa.int64()),
            "product_id": pa.array([number * 3 % PRODUCTS for number in numbers], pa.int64()),
            "ordered_at": pa.array(moments, pa.timestamp("us", "UTC")),
            "amount": pa.array([number % 90 + 10 for number in numbers], pa.int64()),
        },
    )


def _write(name: str, columns: Mapping[str, pa.Array]) -> None:
    write_deltalake(str(LANDING / name), pa.table(dict(columns)), mode="append")


def _update(name: str, where: str, values: Mapping[str, str]) -> int:
    return int(_table(name).update(predicate=where, updates=dict(values))["num_updated_rows"])


def _table(name: str) -> DeltaTable:
    return DeltaTable(str(LANDING / name))


STEPS: Mapping[str, Callable[[], None]] = {step.__name__: step for step in (begin, more, move, rename, prices, compact)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=STEPS)
    STEPS[parser.parse_args().step]()


if __name__ == "__main__":
    main()
