"""What a source holds, told from its log and footers alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.log.handle import TableMissing
from penstock.engine.observe import bounds as observe
from penstock.engine.observe.bounds import (
    Bounds,
    Completeness,
    SourceSeen,
    complete_bounds,
    merged_bounds,
    observe_delta,
)
from penstock.engine.values.files import PositionColumn
from penstock.errors import SourceError

AT = PositionColumn("at", "second")
BLOCK = PositionColumn("at", "block")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moments(*seconds: float) -> pa.Table:
    times = [EPOCH + timedelta(microseconds=round(second * 1_000_000)) for second in seconds]
    return pa.table({"at": pa.array(times, pa.timestamp("us", "UTC"))})


def numbers(*positions: int | None) -> pa.Table:
    return pa.table({"at": pa.array(positions, pa.int64())})


def seen(root: Path, position: PositionColumn | None = AT, completeness: Completeness = "watermark") -> SourceSeen:
    found = observe_delta(str(root), position, completeness)
    assert found is not None
    return found


def bounds(
    root: Path, position: PositionColumn = AT, completeness: Completeness = "watermark"
) -> tuple[int | None, ...]:
    found = seen(root, position, completeness)
    assert not found.needs_scan
    return found.min_pos, found.end_pos


def edit_adds(root: Path, change: Callable[[dict[str, object]], None]) -> None:
    for path in sorted((root / "_delta_log").glob("*.json")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            if "add" in line:
                change(line["add"])
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def drop_statistics(add: dict[str, object]) -> None:
    add["stats"] = None


def test_a_watermark_leaves_the_last_position_out_and_inclusive_takes_it_in(tmp_path: Path) -> None:
    write_deltalake(tmp_path, moments(10, 20.5))
    write_deltalake(tmp_path, moments(5, 12), mode="append")
    assert bounds(tmp_path) == (5, 20)
    assert bounds(tmp_path, AT, "inclusive") == (5, 21)
    found = seen(tmp_path)
    assert (found.snapshot, found.rows, found.columns) == (1, 4, {"at": "timestamp"}) and found.bytes > 0


def test_an_axis_may_start_at_zero_or_below(tmp_path: Path) -> None:
    """B-9: zero is a position like any other."""
    write_deltalake(tmp_path / "zero", numbers(0))
    assert bounds(tmp_path / "zero", BLOCK, "inclusive") == (0, 1)
    write_deltalake(tmp_path / "below", numbers(-7, 0))
    assert bounds(tmp_path / "below", BLOCK, "inclusive") == (-7, 1)
    assert bounds(tmp_path / "below", BLOCK) == (-7, 0)
    write_deltalake(tmp_path / "before 1970", moments(-1.5, -0.5))
    assert bounds(tmp_path / "before 1970", AT, "inclusive") == (-2, 0)


def test_a_source_without_rows_has_no_bounds(tmp_path: Path) -> None:
    write_deltalake(tmp_path, numbers())
    assert bounds(tmp_path, BLOCK, "inclusive") == (None, None)
    write_deltalake(tmp_path, numbers(None, None), mode="append")
    assert bounds(tmp_path, BLOCK, "inclusive") == (None, None)
    write_deltalake(tmp_path, numbers(None, 0), mode="append")
    assert bounds(tmp_path, BLOCK, "inclusive") == (0, 1)


def test_one_position_that_may_still_fill_is_nothing_yet(tmp_path: Path) -> None:
    write_deltalake(tmp_path, moments(10, 10.7))
    assert bounds(tmp_path) == (None, None)
    assert bounds(tmp_path, AT, "inclusive") == (10, 11)


def test_a_table_emptied_later_is_empty(tmp_path: Path) -> None:
    write_deltalake(tmp_path, numbers(3, 4))
    DeltaTable(tmp_path).delete()
    assert bounds(tmp_path, BLOCK, "inclusive") == (None, None)


def round_up_to(second: str) -> Callable[[dict[str, object]], None]:
    def change(add: dict[str, object]) -> None:
        stats = json.loads(str(add["stats"]))
        stats["maxValues"]["at"] = second
        add["stats"] = json.dumps(stats)

    return change


def test_a_maximum_rounded_up_to_the_next_second_does_not_move_the_end(tmp_path: Path) -> None:
    write_deltalake(tmp_path, moments(10, 19.9995))
    edit_adds(tmp_path, round_up_to("1970-01-01T00:00:20.000Z"))
    assert bounds(tmp_path) == (10, 19)
    assert bounds(tmp_path, AT, "inclusive") == (10, 20)


def test_believing_the_rounded_maximum_would_claim_a_second_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_deltalake(tmp_path, moments(10, 19.9995))
    edit_adds(tmp_path, round_up_to("1970-01-01T00:00:20.000Z"))
    monkeypatch.setattr(observe, "_greatest", lambda _location, told, *_: max(file.high for file in told))
    assert bounds(tmp_path) == (10, 20)


def test_without_a_footer_the_second_before_a_whole_one_is_certain(tmp_path: Path) -> None:
    write_deltalake(tmp_path, moments(10, 20))
    assert bounds(tmp_path) == (10, 20)
    for path in tmp_path.glob("*.parquet"):
        path.unlink()
    assert bounds(tmp_path) == (10, 19)


@pytest.mark.parametrize("last", [20.0, 20.0005, 20.001, 20.4, 20.999999])
def test_the_end_is_the_second_of_the_last_row_whatever_its_fraction(tmp_path: Path, last: float) -> None:
    write_deltalake(tmp_path, moments(3.999999, last))
    assert bounds(tmp_path) == (3, 20)
    edit_adds(tmp_path, drop_statistics)
    assert bounds(tmp_path) == (3, 20)


def test_footers_tell_where_the_log_does_not(tmp_path: Path) -> None:
    write_deltalake(tmp_path, moments(10, 20.5))
    edit_adds(tmp_path, drop_statistics)
    write_deltalake(tmp_path, moments(30, 31.5), mode="append")
    assert bounds(tmp_path) == (10, 31)
    assert seen(tmp_path).rows is None


def test_when_nothing_tells_spark_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_deltalake(tmp_path, moments(10, 20.5))
    edit_adds(tmp_path, drop_statistics)
    monkeypatch.setattr(observe, "MOST_FOOTERS", 0)
    assert seen(tmp_path).needs_scan
    monkeypatch.undo()
    for path in tmp_path.glob("*.parquet"):
        path.unlink()
    found = seen(tmp_path)
    assert (found.needs_scan, found.min_pos, found.end_pos) == (True, None, None)


def test_dates_and_times_without_zone_are_utc(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "days", pa.table({"at": [date(1970, 1, 1), date(1970, 1, 3)]}))
    assert bounds(tmp_path / "days") == (0, 2 * 86400)
    walls = pa.array([datetime(1970, 1, 1, 0, 0, 1), datetime(1970, 1, 1, 1)], pa.timestamp("us"))  # noqa: DTZ001
    write_deltalake(tmp_path / "walls", pa.table({"at": walls}))
    assert bounds(tmp_path / "walls") == (1, 3600)


def test_a_source_partitioned_by_its_position_is_observed_by_the_values(tmp_path: Path) -> None:
    days = [date(1970, 1, 1), date(1970, 1, 3), None]
    write_deltalake(tmp_path, pa.table({"at": days, "v": [1, 2, 3]}), partition_by=["at"])
    assert bounds(tmp_path) == (0, 2 * 86400)


def test_an_unchanged_source_costs_no_second_look(tmp_path: Path) -> None:
    write_deltalake(tmp_path, numbers(1, 2))
    first = seen(tmp_path, BLOCK)
    assert observe_delta(str(tmp_path), BLOCK, "watermark", first.snapshot, previous_table_id=first.table_id) is None
    assert observe_delta(str(tmp_path), BLOCK, "watermark", first.snapshot, previous_table_id="another") is not None
    write_deltalake(tmp_path, numbers(3), mode="append")
    assert observe_delta(str(tmp_path), BLOCK, "watermark", first.snapshot) is not None


def test_a_lookup_has_no_bounds_and_a_missing_table_is_named(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"key": ["a"], "value": [1]}))
    found = seen(tmp_path, None)
    assert (found.min_pos, found.end_pos, found.needs_scan, found.rows) == (None, None, False, 1)
    with pytest.raises(TableMissing, match="nowhere"):
        observe_delta(str(tmp_path / "nowhere"), AT, "watermark")


def test_the_schema_hash_moves_with_the_columns_only(tmp_path: Path) -> None:
    write_deltalake(tmp_path, numbers(1))
    first = seen(tmp_path, BLOCK).schema_hash
    write_deltalake(tmp_path, numbers(2), mode="append")
    assert seen(tmp_path, BLOCK).schema_hash == first
    more = numbers(3).append_column("label", pa.array(["x"]))
    write_deltalake(tmp_path, more, mode="append", schema_mode="merge")
    assert seen(tmp_path, BLOCK).schema_hash != first


def test_an_incremental_scan_extends_and_a_full_scan_may_shrink() -> None:
    """B-7."""
    known = merged_bounds(None, complete_bounds(0, 100, "inclusive"), "full")
    assert merged_bounds(known, complete_bounds(101, 110, "inclusive"), "incremental") == Bounds(0, 111)
    assert merged_bounds(known, complete_bounds(5, 9, "inclusive"), "incremental") == known
    assert merged_bounds(known, complete_bounds(5, 9, "inclusive"), "full") == Bounds(5, 10)


def test_an_empty_scan_is_nothing_new_or_an_empty_source() -> None:
    """B-8: an empty window keeps the old bounds; only a full scan may say that there is nothing."""
    nothing = complete_bounds(None, None, "inclusive")
    assert merged_bounds(Bounds(0, 101), nothing, "incremental") == Bounds(0, 101)
    assert merged_bounds(Bounds(0, 101), nothing, "full") == Bounds(None, None)
    assert merged_bounds(None, nothing, "incremental") == Bounds(None, None)


@pytest.mark.parametrize("scanned", [(5, None), (None, 5), (5, 3), (5, 0)])
@pytest.mark.parametrize("kind", ["full", "incremental"])
def test_a_scan_that_cannot_be_is_refused(scanned: tuple[int | None, int | None], kind: observe.ScanKind) -> None:
    with pytest.raises(SourceError, match="the bounds scan"):
        merged_bounds(Bounds(0, 101), Bounds(*scanned), kind)


pairs = st.tuples(st.integers(-50, 50), st.integers(1, 50)).map(lambda pair: Bounds(pair[0], pair[0] + pair[1]))


@given(st.one_of(st.just(Bounds(None, None)), pairs), pairs)
def test_incremental_scans_never_shrink_and_do_not_mind_their_order(old: Bounds, scanned: Bounds) -> None:
    merged = merged_bounds(old, scanned, "incremental")
    assert merged == merged_bounds(scanned, old, "incremental")
    for part in (old, scanned):
        if part.min_pos is not None and part.end_pos is not None:
            assert merged.min_pos is not None and merged.min_pos <= part.min_pos
            assert merged.end_pos is not None and merged.end_pos >= part.end_pos
