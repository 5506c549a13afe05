"""Deletion vectors as the Delta protocol stores them, against what delta-rs reads."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from inline_vectors import delete_by_vector, z85

from penstock.engine.log.deletion_vector import DeletionVector, hidden_rows
from penstock.engine.log.handle import StoreFault

SEVERAL = [5, 70_000, 140_000, 210_000, 280_000, *range(300_000, 305_000)]


def last_vector(root: Path) -> DeletionVector:
    lines = max((root / "_delta_log").glob("*.json")).read_text().splitlines()
    (add,) = [action["add"] for line in lines if "add" in (action := json.loads(line))]
    vector = DeletionVector.of(add)
    assert vector is not None
    return vector


def by_delta_rs(root: Path) -> list[int]:
    (mask,) = pa.table(DeltaTable(str(root)).deletion_vectors().read_all()).column("selection_vector")
    return list(pc.indices_nonzero(pc.invert(mask.values)).to_pylist())


@pytest.mark.parametrize("stored", ["i", "u", "p"])
def test_a_vector_hides_the_same_rows_wherever_it_is_stored(tmp_path: Path, stored: str) -> None:
    root = tmp_path / "a table"
    write_deltalake(str(root), pa.table({"n": list(range(50))}))
    delete_by_vector(root, 0, 1, [0, 7, 49], stored=stored)
    assert hidden_rows(str(root), last_vector(root)).to_pylist() == by_delta_rs(root) == [0, 7, 49]


def container(rows: list[int], *, runs: bool) -> bytes:
    if runs:
        starts = [row for row in rows if row - 1 not in rows]
        ends = [row for row in rows if row + 1 not in rows]
        pairs = b"".join(struct.pack("<HH", start, end - start) for start, end in zip(starts, ends, strict=True))
        return struct.pack("<H", len(starts)) + pairs
    if len(rows) <= 4096:
        return struct.pack(f"<{len(rows)}H", *rows)
    return sum(1 << row for row in rows).to_bytes(8192, "little")


def bitmap(rows: Iterable[int], *, runs: bool) -> bytes:
    """As the specification of roaring bitmaps says it."""
    keys: dict[int, list[int]] = {}
    for row in rows:
        keys.setdefault(row >> 16, []).append(row & 0xFFFF)
    containers = [container(low, runs=runs) for low in keys.values()]
    heads = b"".join(struct.pack("<HH", key, len(low) - 1) for key, low in keys.items())
    if runs:
        flags = ((1 << len(keys)) - 1).to_bytes((len(keys) + 7) // 8, "little")
        begin = struct.pack("<I", 12347 | (len(keys) - 1) << 16) + flags + heads
    else:
        begin = struct.pack("<II", 12346, len(keys)) + heads
    has_offsets = not runs or len(keys) >= 4
    at = len(begin) + 4 * len(keys) * has_offsets
    offsets = []
    for part in containers:
        offsets.append(at)
        at += len(part)
    return begin + (struct.pack(f"<{len(offsets)}I", *offsets) if has_offsets else b"") + b"".join(containers)


def inline(data: bytes) -> DeletionVector:
    return DeletionVector("i", z85(data), 0, len(data), 0)


@pytest.mark.parametrize("runs", [False, True], ids=["numbers and bits", "runs"])
@pytest.mark.parametrize(
    "rows", [[0], [65_535, 65_536], list(range(100, 6000)), list(range(0, 20_000, 2)), SEVERAL],
    ids=["one", "two containers", "a run", "every other", "several containers"],
)  # fmt: skip
def test_every_kind_of_container_is_read(rows: list[int], runs: bool) -> None:
    data = struct.pack("<IQI", 1681511377, 1, 0) + bitmap(rows, runs=runs)
    assert hidden_rows("", inline(data)).to_pylist() == rows


def test_rows_beyond_32_bits_are_read() -> None:
    parts = [(0, [1, 2]), (3, [4])]
    data = struct.pack("<IQ", 1681511377, 2) + b"".join(
        struct.pack("<I", high) + bitmap(rows, runs=False) for high, rows in parts
    )
    assert hidden_rows("", inline(data)).to_pylist() == [1, 2, 3 << 32 | 4]


@pytest.mark.parametrize("data", [b"", struct.pack("<IQ", 1, 1), struct.pack("<IQI", 1681511377, 1, 0) + b"\0" * 8])
def test_what_is_no_vector_is_a_fault(data: bytes) -> None:
    with pytest.raises(StoreFault, match=r"the deletion vector .* cannot be read"):
        hidden_rows("somewhere", inline(data))


def test_a_vector_whose_file_is_gone_is_found_out(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"n": list(range(50))}))
    delete_by_vector(tmp_path, 0, 1, [0], stored="u")
    vector = last_vector(tmp_path)
    (tmp_path / vector.path).unlink()
    with pytest.raises(FileNotFoundError):
        hidden_rows(str(tmp_path), vector)
