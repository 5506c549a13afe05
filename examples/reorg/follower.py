"""Follows a chain: writes blocks up to a tip, and rewrites some of them when the chain forks."""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

LANDING = Path(__file__).parent / "landing"
ACCOUNTS = {0: "exchange", 1: "bridge", 2: "miner"}
FIRST = 700
BLOCKS_PER_COMMIT = 100
FEED = {"delta.enableChangeDataFeed": "true"}
"""With a change feed the log says which rows were rewritten, and not only which files."""


def block_hash(number: int, branch: int) -> str:
    return hashlib.sha256(f"{number} on branch {branch}".encode()).hexdigest()[:12]


def blocks(first: int, end: int, branch: int) -> pa.Table:
    """One transfer per block: what matters here is which block it is in."""
    numbers = range(first, end)
    return pa.table(
        {
            "block_number": pa.array(numbers, pa.int64()),
            "block_hash": pa.array([block_hash(number, branch) for number in numbers]),
            "sender": pa.array([number % 3 for number in numbers], pa.int64()),
            "amount": pa.array([(number * 53 + branch * 51) % 100 for number in numbers], pa.int64()),
        }
    )


def follow(tip: int) -> None:
    """Append what is missing up to the tip."""
    place = str(LANDING / "blocks")
    first = FIRST
    if DeltaTable.is_deltatable(place):
        held = DeltaTable(place).to_pyarrow_table(columns=["block_number"])
        first = 1 + max(held["block_number"].to_pylist())
    else:
        names = pa.table({"account": pa.array(ACCOUNTS, pa.int64()), "label": list(ACCOUNTS.values())})
        write_deltalake(str(LANDING / "accounts"), names)
    for start in range(first, tip + 1, BLOCKS_PER_COMMIT):
        write_deltalake(
            place, blocks(start, min(start + BLOCKS_PER_COMMIT, tip + 1), 0), mode="append", configuration=FEED
        )
    print(f"blocks {first} .. {tip}")


def fork(first: int, last: int, branch: int) -> None:
    """Put the blocks of another branch in the place of those that are there."""
    condition = f"block_number >= {first} and block_number <= {last}"
    rows = blocks(first, last + 1, branch)
    write_deltalake(str(LANDING / "blocks"), rows, mode="overwrite", predicate=condition)
    print(f"blocks {first} .. {last} are of another branch now, it begins with {block_hash(first, branch)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("follow").add_argument("tip", type=int)
    forked = commands.add_parser("fork")
    forked.add_argument("first", type=int)
    forked.add_argument("last", type=int)
    forked.add_argument("--branch", type=int, default=1)
    given = parser.parse_args()
    if given.command == "follow":
        follow(given.tip)
    else:
        fork(given.first, given.last, given.branch)


if __name__ == "__main__":
    main()
