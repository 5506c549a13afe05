"""Which files a key is looked for in, as far as their statistics tell."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.log.snapshot import snapshot
from penstock.engine.rows import chunk_rows
from penstock.engine.rows.statistics import staged_file
from penstock.engine.stage.candidates import able_to_hold
from penstock.engine.values.files import PositionColumn
from penstock.values.intervals import ranges

POSITION = PositionColumn("n", "number")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def table(keys: Sequence[object], kind: pa.DataType) -> pa.Table:
    return pa.table({"n": pa.array(range(len(keys)), pa.int64()), "key": pa.array(keys, kind)})


def searched(root: Path, live: Sequence[Sequence[object]], new: Sequence[object], kind: pa.DataType) -> list[int]:
    """The numbers of the live files that would be opened."""
    paths: list[str] = []
    for keys in live:
        write_deltalake(root, table(keys, kind), mode="append", configuration={"delta.enableDeletionVectors": "false"})
        found = snapshot(str(root), POSITION)
        assert found is not None
        paths += [file.path for file in found.files if file.path not in paths]
    pq.write_table(table(new, kind), root / "new.parquet")
    staged = staged_file(str(root), "new.parquet", POSITION)
    now = snapshot(str(root), POSITION)
    assert now is not None
    spelled = json.loads(now.schema_json)["fields"][1]["type"]
    return sorted(paths.index(file.path) for file in able_to_hold(now, [staged], [("key", spelled)], None))


LONG = "x" * 40


@pytest.mark.parametrize(
    ("kind", "live", "new", "expected"),
    [
        (pa.int64(), [[1, 5], [6, 9], [20, 30]], [5, 7], [0, 1]),
        (pa.int64(), [[1, 5], [6, None], [None]], [None], [1, 2]),
        (pa.int64(), [[1, 5], [None, None]], [3], [0]),
        (pa.int64(), [[1, 5], [None, None]], [8, None], [1]),
        (pa.string(), [["a", "c"], ["d", "f"], ["ø"]], ["b", "bb"], [0]),
        (pa.string(), [[LONG + "a"], [LONG + "b"], ["y"]], [LONG + "c"], [0, 1]),
        (pa.date32(), [[date(2026, 1, 1)], [date(2026, 1, 2)]], [date(2026, 1, 2)], [1]),
        (pa.decimal128(10, 2), [[Decimal("1.25")], [Decimal("9.99")]], [Decimal("1.25")], [0]),
        (pa.bool_(), [[True], [False]], [False], [1]),
        (pa.float64(), [[1.0], [2.0, float("nan")]], [5.0], [0, 1]),
        (
            pa.timestamp("us", "UTC"),
            [[NOON + timedelta(microseconds=999)], [NOON + timedelta(hours=1)]],
            [NOON + timedelta(microseconds=999)],
            [0],
        ),
    ],
)
def test_a_key_is_looked_for_only_where_it_can_be(
    tmp_path: Path, kind: pa.DataType, live: list[list[object]], new: list[object], expected: list[int]
) -> None:
    assert searched(tmp_path, live, new, kind) == expected


def test_every_column_of_a_key_rules_files_out(tmp_path: Path) -> None:
    for n in (0, 10, 20):
        rows = pa.table({"n": [n, n + 9], "a": [n, n + 9], "b": [-n, -n - 9]})
        write_deltalake(tmp_path, rows, mode="append")
    pq.write_table(pa.table({"n": [12], "a": [12], "b": [-25]}), tmp_path / "new.parquet")
    staged = staged_file(str(tmp_path), "new.parquet", POSITION)
    now = snapshot(str(tmp_path), POSITION)
    assert now is not None
    assert len(able_to_hold(now, [staged], [("a", "long")], None)) == 1
    assert len(able_to_hold(now, [staged], [("a", "long"), ("b", "long")], None)) == 0
    assert len(able_to_hold(now, [staged], [("nowhere", "long")], None)) == 3
    assert able_to_hold(now, [], [("a", "long")], None) == ()


@given(st.sets(st.integers(-1000, 1000)))
def test_places_hold_every_position_and_are_few(positions: set[int]) -> None:
    found = chunk_rows.places(positions)
    assert all(position in found for position in positions)
    assert len(found) <= chunk_rows.MOST_PLACES
    if len(positions) <= chunk_rows.MOST_PLACES:
        assert found.size == len(positions)


def test_of_many_places_the_widest_gaps_stay_open() -> None:
    scattered = [*range(0, 100, 2), 1000, 1002]
    found = chunk_rows.places(scattered)
    assert 500 not in found
    assert found.end == 1003
    assert chunk_rows.places([3, 4, 9]) == ranges((3, 5), (9, 10))
