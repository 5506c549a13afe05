"""What rows does the demo's landing data hold?"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from penstock.errors import UsageError

ORIGIN = datetime(2026, 1, 1, tzinfo=UTC)
FIRST_SLOT = 10_000_000
SLOT_SECONDS = 12
SLOTS_PER_MINUTE = 60 // SLOT_SECONDS
VALIDATORS = 50
COMMITS = 8
MINUTES_PER_COMMIT = 50
MINUTES = COMMITS * MINUTES_PER_COMMIT
"""How long the generated history is: it ends inside an hour, so that one hour is always waiting."""

CLIENTS = ("grandine", "lighthouse", "lodestar", "nimbus", "prysm", "teku")
ENTITIES = ("anchorage", "bluewater", "cobalt", "driftwood", "ember", "solo")
LATE_CLIENT = "erigon"
LATE_MS = 9_000
LATE_MINUTES = range(130, 134)
"""Minutes after 00:00: the late client saw the blocks from 02:10 to 02:14."""
SKIP_CHANCE = 0.21
CHANGE_CHANCE = 0.1

BLOCKS = "beacon_blocks"
REGISTRY = "validator_entity"
_TIME = pa.timestamp("us", "UTC")
_SCHEMAS = {
    BLOCKS: pa.schema(
        {
            "slot_start": _TIME,
            "slot": pa.int64(),
            "block_root": pa.string(),
            "validator_index": pa.int32(),
            "propagation_ms": pa.int32(),
            "client": pa.string(),
        }
    ),
    REGISTRY: pa.schema({"observed_at": _TIME, "validator_index": pa.int32(), "entity": pa.string()}),
}
Row = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class _Landing:
    """One landing table and how many minutes of rows it holds."""

    path: Path
    minutes: int


def generate(project: Path) -> None:
    """Write the demo's history, commit by commit; tables that are there already are left as they are."""
    for end in range(MINUTES_PER_COMMIT, MINUTES + 1, MINUTES_PER_COMMIT):
        _write_until(project, end)


def extend(project: Path, minutes: int) -> int:
    """Append the next `minutes` as one commit per table; return how many observations were added."""
    if minutes < 1:
        raise UsageError(f"cannot extend the demo by {minutes} minutes; give at least 1")
    held = _landing(project, BLOCKS).minutes
    if held == 0:
        raise UsageError(f"{project} holds no demo data", hint="create it with penstock init --demo")
    return _write_until(project, held + minutes)


def land_late(project: Path) -> int:
    """Append observations of blocks that are hours old, by a client that was cut off; return how many."""
    landing = _landing(project, BLOCKS)
    if landing.minutes <= LATE_MINUTES[-1]:
        raise UsageError(f"{project} holds no demo data", hint="create it with penstock init --demo")
    slots = (minute * SLOTS_PER_MINUTE + slot for minute in LATE_MINUTES for slot in range(SLOTS_PER_MINUTE))
    seen = (next(_observations(index), None) for index in slots)
    return _append(landing, [{**row, "client": LATE_CLIENT, "propagation_ms": LATE_MS} for row in seen if row])


def _write_until(project: Path, end: int) -> int:
    """Bring both tables up to minute `end`; return how many observations were added."""
    # Entities first: an interrupted call leaves more of them than blocks, never blocks without an entity.
    registry, blocks = _landing(project, REGISTRY), _landing(project, BLOCKS)
    _append(registry, [row for minute in range(registry.minutes, end) for row in _registry_minute(minute)])
    return _append(blocks, [row for minute in range(blocks.minutes, end) for row in _blocks_minute(minute)])


def _landing(project: Path, table: str) -> _Landing:
    path = project / "landing" / table
    if not DeltaTable.is_deltatable(str(path)):
        return _Landing(path, 0)
    column = _SCHEMAS[table].names[0]
    newest = pc.max(DeltaTable(str(path)).to_pyarrow_table(columns=[column])[column]).as_py()
    return _Landing(path, (newest - ORIGIN) // timedelta(minutes=1) + 1)


def _append(landing: _Landing, rows: list[Row]) -> int:
    if rows:
        write_deltalake(str(landing.path), pa.Table.from_pylist(rows, _SCHEMAS[landing.path.name]), mode="append")
    return len(rows)


# Each slot and each reading depends on its own number alone: the same rows come out however they are cut into commits.


def _blocks_minute(minute: int) -> Iterator[Row]:
    for index in range(minute * SLOTS_PER_MINUTE, (minute + 1) * SLOTS_PER_MINUTE):
        yield from _observations(index)


def _observations(index: int) -> Iterator[Row]:
    slot = FIRST_SLOT + index
    random = _random(f"slot {slot}")
    closes_minute = index % SLOTS_PER_MINUTE == SLOTS_PER_MINUTE - 1
    if random.random() < SKIP_CHANCE and not closes_minute:  # the newest slot tells how many minutes a table holds
        return
    start = ORIGIN + timedelta(seconds=index * SLOT_SECONDS)
    root = "0x" + hashlib.sha256(f"block {slot}".encode()).hexdigest()
    validator = random.randrange(VALIDATORS)
    first_ms = random.randrange(300, 3600)
    for client in random.sample(CLIENTS, random.randint(1, 5)):
        yield {
            "slot_start": start,
            "slot": slot,
            "block_root": root,
            "validator_index": validator,
            "propagation_ms": first_ms + random.randrange(1200),
            "client": client,
        }


def _registry_minute(minute: int) -> Iterator[Row]:
    """All validators at the start, then one after the other: each is read again every 50 minutes."""
    for validator in range(VALIDATORS) if minute == 0 else (minute % VALIDATORS,):
        yield {
            "observed_at": ORIGIN + timedelta(minutes=minute),
            "validator_index": validator,
            "entity": _entity(validator, minute),
        }


def _entity(validator: int, minute: int) -> str:
    """Whoever runs `validator` at its latest reading up to `minute`; at each reading it may have changed hands."""
    held = validator % len(ENTITIES)
    for reading in range(VALIDATORS, minute + 1, VALIDATORS):
        random = _random(f"validator {validator} reading {reading}")
        if random.random() < CHANGE_CHANCE:
            held = (held + random.randrange(1, len(ENTITIES))) % len(ENTITIES)
    return ENTITIES[held]


def _random(seed: str) -> Random:
    return Random(seed)  # noqa: S311 - the rows must be the same everywhere
