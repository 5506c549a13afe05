"""Tables that we wrote: Spark and delta-rs read them right, and our next attempt works after whatever they did."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.engine.values.job import Job

if TYPE_CHECKING:
    from conftest import Bench

Hourly = Callable[..., Job]
HOUR = 3600
NEGATIVE = "select date_trunc('hour', at) hour, kind, count(*) n, -1D total from {events} group by all"


@pytest.fixture
def hourly(bench: Bench, six_hours: Path) -> Hourly:
    for name in ("events", "hours"):
        shutil.copytree(six_hours / name, bench.root / name)
    return lambda *hours, **more: bench.hourly(bench, *hours, **more)


@pytest.fixture
def ours(bench: Bench, hourly: Hourly) -> str:
    """A copy of a table that we built: six hours, the third one twice."""
    assert hourly
    return f"delta.`{bench.path('hours')}`"


def test_spark_and_delta_rs_read_our_table_alike(bench: Bench, ours: str) -> None:
    rows = bench.rows("hours")
    assert len(rows) == 18
    assert [row["total"] for row in rows].count(-1.0) == 3
    assert len(bench.spark_rows("hours")) == 18
    totals = bench.sql(f"select count(*), sum(n), sum(total) from {ours}")
    assert totals == [(18, 36, sum(float(str(row["total"])) for row in rows))]


def test_spark_skips_files_by_our_statistics_and_misses_no_row(bench: Bench, ours: str) -> None:
    starts = [bench.START + hour * HOUR for hour in range(6)]
    hours = [f"hour >= timestamp_seconds({at}) and hour < timestamp_seconds({at + HOUR})" for at in starts]
    counts = [f"(select count(*) from {ours} where {one})" for one in (*hours, "total = -1", "kind > 1")]
    assert bench.sql(f"select {', '.join(counts)}") == [(3, 3, 3, 3, 3, 3, 3, 6)]


def test_sparks_history_shows_our_commits(bench: Bench, ours: str) -> None:
    history = bench.sql(f"describe history {ours}")
    assert [row[0] for row in history] == list(range(len(history)))[::-1]
    assert len(history) == 7  # the creation and six publications


def test_time_travel_shows_the_rows_of_then(bench: Bench, ours: str) -> None:
    latest = DeltaTable(bench.path("hours")).version()
    counts = [f"(select count(*) from {ours} version as of {at} where total = -1)" for at in (latest - 1, latest)]
    assert bench.sql(f"select {', '.join(counts)}, (select count(*) from {ours} version as of 2)") == [(0, 3, 6)]


def test_the_change_feed_shows_what_a_replacement_changed(bench: Bench, ours: str) -> None:
    latest = DeltaTable(bench.path("hours")).version()
    feed = f"table_changes('delta.`{bench.path('hours')}`', {latest}, {latest})"
    with bench.session.attempt("test/feed") as attempt:
        reader = attempt.spark.read.format("delta").option("readChangeFeed", "true")
        changes = reader.option("startingVersion", latest).option("endingVersion", latest).load(bench.path("hours"))
        found = {(row[0], row[1]) for row in changes.groupBy("_change_type").count().collect()}
    assert found == {("delete", 3), ("insert", 3)}, feed
    by_rust = pa.table(DeltaTable(bench.path("hours")).load_cdf(latest, latest).read_all())
    assert by_rust.num_rows == 6


@pytest.mark.parametrize("by", ["spark", "delta-rs"])
def test_our_next_attempt_works_after_an_optimize(bench: Bench, hourly: Hourly, ours: str, by: str) -> None:
    before = bench.rows("hours")
    if by == "spark":
        bench.sql(f"optimize {ours}")
        latest = DeltaTable(bench.path("hours")).version()
        log = (bench.root / "hours" / "_delta_log" / f"{latest:020d}.json").read_text()
        assert ('"dataChange":false' in log, '"dataChange":true' in log) == (True, False)
    else:
        DeltaTable(bench.path("hours")).optimize.compact()
    assert len(DeltaTable(bench.path("hours")).file_uris()) == 1
    assert bench.rows("hours") == before
    staged, commit = bench.run(hourly(3, sql=NEGATIVE))
    assert commit.written
    assert [file.rows for file in staged.kept] == [9, 6]
    assert [row["total"] for row in bench.rows("hours")].count(-1.0) == 6
    assert len(bench.spark_rows("hours")) == 18


def test_our_next_attempt_works_after_a_vacuum(bench: Bench, hourly: Hourly, ours: str) -> None:
    before = bench.rows("hours")
    files = len(list((bench.root / "hours").rglob("*.parquet")))
    with bench.session.attempt("test/vacuum") as attempt:
        attempt.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        attempt.spark.sql(f"vacuum {ours} retain 0 hours").collect()
    assert len(list((bench.root / "hours").rglob("*.parquet"))) < files
    assert bench.rows("hours") == before
    bench.run(hourly(3, sql=NEGATIVE))
    assert [row["total"] for row in bench.rows("hours")].count(-1.0) == 6


def test_our_next_attempt_works_after_a_restore(bench: Bench, hourly: Hourly, ours: str) -> None:
    latest = DeltaTable(bench.path("hours")).version()
    bench.sql(f"restore table {ours} to version as of {latest - 1}")
    assert [row["total"] for row in bench.rows("hours")].count(-1.0) == 0
    staged, commit = bench.run(hourly(2, sql=NEGATIVE))
    assert (staged.chunks[0].changed, commit.written) == (True, True)
    assert [row["total"] for row in bench.rows("hours")].count(-1.0) == 3
    assert len(bench.spark_rows("hours")) == 18


def test_our_next_attempt_works_after_foreign_writers(bench: Bench, hourly: Hourly, ours: str) -> None:
    bench.sql(f"update {ours} set total = 5 where kind = 0")
    ones = pa.array([1] * 12)
    bench.put("hours", hour=bench.moments(bench.START, 1800, 12), kind=ones, n=ones, total=ones.cast(pa.float64()))
    bench.run(hourly(*range(6), sql=NEGATIVE))
    assert [row["total"] for row in bench.rows("hours")] == [-1.0] * 18
    assert len(bench.spark_rows("hours")) == 18


def test_a_checkpoint_by_spark_or_delta_rs_changes_nothing(bench: Bench, hourly: Hourly, ours: str) -> None:
    DeltaTable(bench.path("hours")).create_checkpoint()
    bench.run(hourly(6))
    DeltaTable(bench.path("hours")).alter.set_table_properties({"delta.checkpointInterval": "1"})
    bench.write("hours", f"select timestamp_seconds({bench.START + 9 * HOUR}) hour, 1L kind, 1L n, 1D total")
    newest = DeltaTable(bench.path("hours")).version()
    assert list((bench.root / "hours" / "_delta_log").glob(f"{newest:020d}.checkpoint*.parquet"))
    bench.run(hourly(7))
    assert len(bench.rows("hours")) == 25
    assert ours


def test_every_file_of_ours_lies_below_its_task(bench: Bench, ours: str) -> None:
    table = DeltaTable(bench.path("hours"))
    assert ours
    for uri in table.file_uris():
        inside = Path(uri).relative_to(bench.path("hours"))
        assert len(inside.parts) == 3
        assert "=" not in str(inside)
