"""Statistics that may hide no row: footers turned into Delta's words and into positions."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.log import snapshot as log
from penstock.engine.rows import statistics
from penstock.engine.rows.statistics import footer, position_range, rounded_down, rounded_up, staged_file
from penstock.engine.values.column_types import TIMESTAMP
from penstock.engine.values.files import PositionColumn
from penstock.engine.values.moments import micros_of_text
from penstock.errors import EngineError, QueryError, SourceError
from penstock.values.intervals import ranges

MICROS = pa.timestamp("us", "UTC")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
AT = PositionColumn("at", "second")


def moments(*micros: int) -> pa.Array:
    return pa.array(micros, pa.int64()).cast(MICROS)


def told(root: Path, table: pa.Table, position: PositionColumn = AT, **options: Any) -> dict[str, Any]:
    pq.write_table(table, root / "f.parquet", **options)
    found: dict[str, Any] = json.loads(staged_file(str(root), "f.parquet", position).stats_json, parse_float=Decimal)
    return found


def test_times_are_rounded_outwards_to_milliseconds(tmp_path: Path) -> None:
    stats = told(
        tmp_path, pa.table({"at": moments(-1, 1_000_001), "wall": moments(-1, 1_999_001).cast(pa.timestamp("us"))})
    )
    assert stats["minValues"] == {"at": "1969-12-31T23:59:59.999Z", "wall": "1969-12-31T23:59:59.999"}
    assert stats["maxValues"] == {"at": "1970-01-01T00:00:01.001Z", "wall": "1970-01-01T00:00:02.000"}
    assert stats["nullCount"] == {"at": 0, "wall": 0} and stats["numRecords"] == 2


def committed(root: Path, stats_json: str) -> log.TableSnapshot:
    schema = Schema.from_json('{"type":"struct","fields":[{"name":"at","type":"long","nullable":true,"metadata":{}}]}')
    table = DeltaTable.create(root, schema)
    action = AddAction("f.parquet", (root / "f.parquet").stat().st_size, {}, 0, True, stats_json)
    table.create_write_transaction([action], "append", table.schema())
    seen = log.snapshot(str(root), AT)
    assert seen is not None
    return seen


def test_a_maximum_that_is_cut_off_hides_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control of outward rounding: positions cut to tens lose the last file of a window."""
    pq.write_table(pa.table({"at": [1, 19]}), tmp_path / "f.parquet")
    window = ranges((15, 20))
    honest = committed(tmp_path / ".", staged_file(str(tmp_path), "f.parquet", AT).stats_json)
    assert len(honest.meeting(window)) == 1
    (tmp_path / "cut").mkdir()
    pq.write_table(pa.table({"at": [1, 19]}), tmp_path / "cut" / "f.parquet")
    monkeypatch.setattr(statistics, "rounded_up", lambda value, _: str(value // 10 * 10))
    broken = committed(tmp_path / "cut", staged_file(str(tmp_path / "cut"), "f.parquet", AT).stats_json)
    assert broken.meeting(window) == ()


def test_cut_off_milliseconds_hide_a_row_from_other_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"at": moments(0, 1_500_999)})
    asked = EPOCH + timedelta(microseconds=1_500_998)

    def maximum() -> datetime:
        return datetime.fromisoformat(told(tmp_path, table)["maxValues"]["at"])

    assert maximum() >= asked
    monkeypatch.setattr(statistics, "rounded_up", rounded_down)
    assert maximum() < asked


@given(st.integers(-(10**15), 10**15))
def test_rounding_never_moves_a_time_inwards(micros: int) -> None:
    low, high = rounded_down(micros, MICROS), rounded_up(micros, MICROS)
    assert low is not None and high is not None
    below, above = micros_of_text(json.loads(low)), micros_of_text(json.loads(high))
    assert below is not None and above is not None
    assert below <= micros <= above and above - below <= 1000


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=80))
def test_rounding_never_moves_a_text_inwards(text: str) -> None:
    low, high = rounded_down(text, pa.string()), rounded_up(text, pa.string())
    assert low is not None and json.loads(low) <= text
    assert high is None or json.loads(high) >= text
    assert high is None or len(json.loads(high)) <= 32


def test_a_text_without_a_successor_has_no_maximum() -> None:
    assert rounded_up("\U0010ffff" * 40, pa.string()) is None
    assert json.loads(rounded_up("a" * 31 + "\ud7ff" + "b", pa.string()) or "") == "a" * 31 + "\ue000"


def test_every_primitive_type_has_both_bounds_or_none(tmp_path: Path) -> None:
    table = pa.table(
        {
            "at": pa.array([1, None], pa.int8()),
            "short": pa.array([-2, 3], pa.int16()),
            "money": pa.array([Decimal("-12345678901234567890.12"), Decimal("0.10")], pa.decimal128(38, 2)),
            "small_money": pa.array([Decimal("-0.5"), Decimal("0.1")], pa.decimal128(9, 1)),
            "day": [date(1, 1, 1), date(9999, 12, 31)],
            "flag": [True, False],
            "raw": [b"a", b"b"],
            "name": ["a" * 40, "b"],
            "nothing": pa.array([None, None], pa.string()),
            "ratio": [1.5, float("nan")],
            "inner": [{"x": 1, "y": {"z": "q"}}, {"x": 2, "y": None}],
            "many": [[1], [2, 3]],
            "after": [7, 8],
        }
    )
    stats = told(tmp_path, table)
    assert stats["minValues"] == {
        "at": 1,
        "short": -2,
        "money": Decimal("-12345678901234567890.12"),
        "small_money": Decimal("-0.5"),
        "day": "0001-01-01",
        "flag": False,
        "name": "a" * 32,
        "inner": {"x": 1, "y": {"z": "q"}},
        "after": 7,
    }
    assert stats["maxValues"].keys() == stats["minValues"].keys()
    assert stats["maxValues"]["day"] == "9999-12-31" and stats["maxValues"]["name"] == "b"
    assert stats["nullCount"]["at"] == 1 and stats["nullCount"]["inner"] == {"x": 0, "y": {"z": 1}}
    assert stats["nullCount"]["nothing"] == 2


def test_bounds_of_long_decimals_keep_every_digit(tmp_path: Path) -> None:
    digits = "12345678901234567890123456789012345"
    low, high = Decimal(f"-{digits}.679"), Decimal(f"{digits}.679")
    column = pa.array([low, high], pa.decimal128(38, 3))
    stats = told(tmp_path, pa.table({"at": moments(0, 1), "money": column}))
    assert stats["minValues"]["money"] == low and stats["maxValues"]["money"] == high


def test_bounds_of_floats_are_only_believed_from_a_writer_that_minds_nan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark sorts NaN last, Arrow leaves it out of the bounds: believed, they would hide the row from `ratio > 2`."""
    table = pa.table({"at": [1, 2], "ratio": [1.5, float("nan")]})
    assert "ratio" not in told(tmp_path, table)["maxValues"]
    monkeypatch.setattr(statistics, "_trusts_floats", lambda _: True)
    assert told(tmp_path, table)["maxValues"]["ratio"] == Decimal("1.5")
    assert "ratio" not in told(tmp_path, table.set_column(1, "ratio", pa.array([1.5, float("inf")])))["maxValues"]


def test_only_the_first_columns_and_the_position_have_statistics(tmp_path: Path) -> None:
    wide = {f"c{i:02}": [i] for i in range(40)}
    stats = told(tmp_path, pa.table({**wide, "at": [5]}))
    assert list(stats["minValues"]) == [f"c{i:02}" for i in range(32)] + ["at"]


def test_bounds_span_all_row_groups_and_one_silent_group_silences_them(tmp_path: Path) -> None:
    table = pa.table({"at": [5, 6, None, None, -7, 2]})
    assert told(tmp_path, table, row_group_size=2)["minValues"] == {"at": -7}
    found = position_range(footer(str(tmp_path), "f.parquet"), AT)
    assert found == statistics.PositionRange(-7, 6, 2)
    assert told(tmp_path, table, write_statistics=False)["minValues"] == {}
    assert position_range(footer(str(tmp_path), "f.parquet"), AT) is None


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        (moments(-1, 1_999_999), -1, 1),
        (moments(-1_000_000, -1_000_000), -1, -1),
        (moments(-1_000_001).cast(pa.timestamp("us")), -2, -2),
        (pa.array([-1], pa.timestamp("ms")), -1, -1),
        (pa.array([date(1969, 12, 31), date(1970, 1, 2)]), -86_400, 86_400),
        (pa.array([-5, 0], pa.int32()), -5, 0),
    ],
)
def test_positions_are_floored_also_before_1970(tmp_path: Path, values: pa.Array, low: int, high: int) -> None:
    pq.write_table(pa.table({"at": values}), tmp_path / "f.parquet")
    staged = staged_file(str(tmp_path), "f.parquet", AT)
    assert (staged.low, staged.high, staged.nulls, staged.rows) == (low, high, 0, len(values))


def test_a_file_of_null_positions_has_none(tmp_path: Path) -> None:
    pq.write_table(pa.table({"at": pa.array([None, None], pa.int64())}), tmp_path / "f.parquet")
    assert position_range(footer(str(tmp_path), "f.parquet"), AT) == statistics.PositionRange(None, None, 2)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1], "b": [{"at": 1}]}), tmp_path / "f.parquet")
    with pytest.raises(SourceError, match="no column 'at'; there are a"):
        position_range(footer(str(tmp_path), "f.parquet"), AT)
    with pytest.raises(QueryError, match="no column 'at'"):
        staged_file(str(tmp_path), "f.parquet", AT)
    (tmp_path / "torn.parquet").write_bytes(b"PAR1")
    for path in ("torn.parquet", "gone.parquet"):
        with pytest.raises(EngineError, match=path):
            footer(str(tmp_path), path)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-01-01T10:00:00.123Z", 1767261600),
        ("2026-01-01T20:00:00.123+10:00", 1767261600),
        ("2026-01-01 10:00:00", 1767261600),
        ("2026-01-01T10:00:00.999999", 1767261600),
        ("1969-12-31T23:59:59.999Z", -1),
        ("1970-01-01", 0),
        ("0001-01-01", -62135596800),
        ("-0044-03-15T00:00:00Z", -63549360000),
        ("+10000-01-01T00:00:00Z", 253402300800),
        ("hello", None),
        ("2026-13-01", None),
    ],
)
def test_times_are_read_as_logs_spell_them(text: str, seconds: int | None) -> None:
    assert TIMESTAMP.text_position(text) == seconds
