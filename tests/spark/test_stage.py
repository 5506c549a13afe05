"""What an attempt stages, and what it refuses to stage."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from penstock.engine.commit.publish import FileSetChanged, publish
from penstock.engine.log.snapshot import snapshot
from penstock.engine.stage import chunks
from penstock.engine.stage import file_parts as parts
from penstock.engine.stage import query_rows as newrows
from penstock.engine.stage import staging as stage
from penstock.engine.values.files import PositionColumn
from penstock.engine.values.job import Job, Rendering, Tags
from penstock.engine.values.predicate import inside
from penstock.errors import EngineError, QueryError
from penstock.project.queries.sharing import Share, shared
from penstock.values.intervals import Interval, IntervalSet
from penstock.values.models import Check

if TYPE_CHECKING:
    from conftest import Bench

Hourly = Callable[..., Job]
HOUR = 3600
SLOW = "select a.at as hour, count(*) n from {events} a, range(1000000) b, range(1000000) c group by all"
NESTED = "array(1, null) as c, map('k', 1, 'l', 2) as d"


def test_a_small_interval_takes_one_spark_job_and_one_file(bench: Bench, hourly: Hourly) -> None:
    staged, commit = bench.run(hourly(3))
    assert staged.cost.spark_jobs == 1
    assert [file.rows for file in staged.files] == [3]
    assert [(chunk.rows, chunk.changed) for chunk in staged.chunks] == [(3, True)]
    assert commit.written
    assert len(bench.rows("hours")) == 3


def test_the_steps_of_an_attempt_are_reported(bench: Bench, hourly: Hourly) -> None:
    bench.stage(hourly(0))
    assert bench.steps == ["planned", "written", "staged"]


@pytest.mark.parametrize("widened", [True, False])
def test_any_batching_gives_the_rows_of_one_by_one(bench: Bench, hourly: Hourly, widened: bool) -> None:
    hours = (0, 1, 5, 23)
    for hour in hours:
        bench.run(hourly(hour))
    singly = bench.rows("hours")
    batch = replace(hourly(*hours, widened=widened), location=bench.path("batch"))
    staged, _ = bench.run(batch)
    assert bench.rows("batch") == singly
    assert [chunk.rows for chunk in staged.chunks] == [3] * 4
    assert len(staged.files) == 3  # one per contiguous run
    assert staged.cost.spark_jobs == 1


AROUND = (
    "select date_trunc('hour', at) hour, kind, count(*) n, sum(value) total, sum(count(*)) over () seen"
    " from {events} group by all"
)
"""What a chunk says of its rows and of all that it sees: with a look around, its neighbours' rows too."""


@pytest.fixture(params=[0, 2 * HOUR])
def look(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def test_rows_that_carry_their_chunk_are_stored_like_those_of_one_by_one(
    bench: Bench, hourly: Hourly, look: int
) -> None:
    hours = (0, 1, 2, 5, 23)
    for hour in hours:
        bench.run(hourly(hour, sql=AROUND, look=look))
    batch = together(bench, hourly(*hours, sql=AROUND, look=look), look)
    staged, _ = bench.run(batch)
    assert bench.rows("batch") == bench.rows("hours")
    assert [chunk.rows for chunk in staged.chunks] == [3] * 5
    assert staged.cost.spark_jobs == 1


def test_rows_of_the_wrong_chunk_would_be_found_in_what_is_stored(
    bench: Bench, hourly: Hourly, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: a row is kept in whichever chunk it lies, and not in the one that it was made for."""
    anywhere = lambda field, rendering: inside(field.name, field.kind, rendering.scope)  # noqa: E731
    monkeypatch.setattr(newrows, "inside_its_chunk", anywhere)
    with pytest.raises(AssertionError):
        test_rows_that_carry_their_chunk_are_stored_like_those_of_one_by_one(bench, hourly, 2 * HOUR)


def together(bench: Bench, job: Job, look: int) -> Job:
    """The same chunks by one query over rows that carry their chunk."""
    read = replace(bench.input("events", "at"), view="penstock_in_0", window=IntervalSet.of(
        (one.start - look, one.end + look) for one in job.chunks), tags=Tags(job.chunks, look, look))  # fmt: skip
    made = shared(AROUND.format(events=read.view), frozenset({read.view}), Share(job.chunks, str))
    rendering = Rendering(job.chunks, made, (read,), tagged=True)
    return replace(job, renderings=(rendering,), location=bench.path("batch"))


@pytest.fixture(params=["rows", "digests", "jobs"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Few rows are compared one by one; else digests are, of a watched job or of a second one."""
    if request.param == "digests":
        monkeypatch.setattr(newrows, "TINY_BYTES", 0)
    if request.param == "jobs":
        monkeypatch.setattr(chunks, "MOST_VALUES", 0)
    return str(request.param)


def test_digests_are_the_same_however_the_chunks_are_batched(
    bench: Bench, hourly: Hourly, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newrows, "TINY_BYTES", 0)
    singly = [bench.stage(hourly(hour)).chunks[0].digest for hour in (3, 4, 9)]
    assert None not in singly
    assert [chunk.digest for chunk in bench.stage(hourly(3, 4, 9, widened=True)).chunks] == singly
    assert [chunk.digest for chunk in bench.stage(hourly(3, 4, 9)).chunks] == singly


def test_many_chunks_are_counted_exactly_without_a_second_job(bench: Bench) -> None:
    bench.put("ticks", slot=pa.array(range(0, 400, 3)), twice=pa.array(range(0, 800, 6)))
    slots = [(start, start + 7) for start in range(0, 399, 7)]
    job = bench.job("slots", "slot", "select * from {ticks}", slots, [bench.input("ticks", "slot", "slot")],
                    axis="slot", widened=True)  # fmt: skip
    staged = bench.stage(job)
    assert [chunk.rows for chunk in staged.chunks] == [len(range(-(-a // 3) * 3, b, 3)) for a, b in slots]
    assert staged.cost.spark_jobs == 1


def test_equal_rows_publish_nothing(bench: Bench, hourly: Hourly, way: str) -> None:
    first, commit = bench.run(hourly(3, 4))
    again, second = bench.run(hourly(3, 4))
    assert [chunk.changed for chunk in again.chunks] == [False, False]
    assert (second.written, second.snapshot) == (False, commit.snapshot)
    known = {chunk.interval: chunk.digest for chunk in first.chunks if chunk.digest}
    third = bench.stage(hourly(3, 4, digests=known))
    assert [chunk.changed for chunk in third.chunks] == [False, False]
    assert third.cost.spark_jobs == {"rows": 1, "digests": 1, "jobs": 2}[way]


def test_equal_rows_are_written_again_when_that_is_asked_for(bench: Bench, hourly: Hourly) -> None:
    bench.run(hourly(3))
    assert bench.run(hourly(3, deduplicate=False))[1].written


@pytest.mark.usefixtures("way")
def test_one_changed_value_is_noticed_by_every_way_to_compare(bench: Bench, hourly: Hourly) -> None:
    first, _ = bench.run(hourly(3, 4))
    known = {chunk.interval: chunk.digest for chunk in first.chunks if chunk.digest}
    sql = (
        "select date_trunc('hour', at) hour, kind, count(*) n, sum(value + if(kind = 1 and hour(at) = 3, 1, 0)) total "
        "from {events} group by all"
    )
    for digests in ({}, known):
        staged = bench.stage(hourly(3, 4, sql=sql, digests=digests))
        assert [chunk.changed for chunk in staged.chunks] == [True, False]


@pytest.mark.usefixtures("way")
def test_a_value_that_moves_to_another_column_is_a_change(bench: Bench) -> None:
    bench.put("pairs", slot=pa.array([1]), a=pa.array([None], pa.int32()), b=pa.array([7], pa.int32()))
    reads = [bench.input("pairs", "slot", "slot")]
    bench.run(
        bench.job("moved", "slot", "select slot, a, b, " + NESTED + " from {pairs}", [(0, 2)], reads, axis="slot")
    )
    swapped = "array(null, 1) as c, map('k', 1, 'l', 2) as d", "array(1, null) as c, map('k', 2, 'l', 1) as d"
    for columns in ("b as a, a as b, " + NESTED, *("a, b, " + nested for nested in swapped)):
        job = bench.job("moved", "slot", "select slot, " + columns + " from {pairs}", [(0, 2)], reads, axis="slot")
        assert [chunk.changed for chunk in bench.stage(job).chunks] == [True], columns
    same = "select slot, a, b, array(1, null) as c, map('l', 2, 'k', 1) as d from {pairs}"
    staged = bench.stage(bench.job("moved", "slot", same, [(0, 2)], reads, axis="slot"))
    assert [chunk.changed for chunk in staged.chunks] == [False]


def test_an_empty_result_removes_the_old_rows(bench: Bench, hourly: Hourly) -> None:
    bench.run(hourly(3, 4))
    sql = (
        "select date_trunc('hour', at) hour, kind, count(*) n, sum(value) total from {events} where false group by all"
    )
    staged, commit = bench.run(hourly(3, sql=sql))
    assert [(chunk.rows, chunk.changed) for chunk in staged.chunks] == [(0, True)]
    assert commit.written
    assert len(bench.rows("hours")) == 3
    again, nothing = bench.run(hourly(3, sql=sql))
    assert not again.chunks[0].changed
    assert not nothing.written


def test_no_rows_in_an_empty_table_are_no_change(bench: Bench, hourly: Hourly) -> None:
    staged, _ = bench.run(hourly(30))
    assert [(chunk.rows, chunk.changed) for chunk in staged.chunks] == [(0, False)]


def test_a_file_that_straddles_the_scope_keeps_its_other_rows(bench: Bench, hourly: Hourly) -> None:
    bench.run(hourly(*range(24), widened=True))
    before = bench.rows("hours")
    sql = "select date_trunc('hour', at) hour, kind, count(*) n, -1D total from {events} group by all"
    staged, _ = bench.run(hourly(5, 6, sql=sql))
    assert len(staged.replaced) == 1
    assert [file.rows for file in staged.kept] == [15, 51]
    assert staged.cost.spark_jobs == 1
    after = bench.rows("hours")
    assert len(after) == 72
    assert sum(row in after for row in before) == 66
    seen = snapshot(bench.path("hours"), PositionColumn("hour", "second"))
    assert seen is not None
    scope = IntervalSet.of([(bench.START + 5 * HOUR, bench.START + 7 * HOUR)])
    assert all(file.inside(scope) or not file.meets(scope) for file in seen.files)


def test_a_backfill_is_cut_at_edges_of_chunks_so_that_a_repair_writes_little_again(
    bench: Bench, hourly: Hourly, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PIECE_ROWS", 40)
    monkeypatch.setattr(parts, "GROUP_ROWS", 3)
    staged, _ = bench.run(hourly(*range(24), widened=True))
    assert staged.cost.spark_jobs == 1
    assert [file.rows for file in staged.files] == [18] * 4
    first = pq.read_metadata(Path(bench.path("hours")) / staged.files[0].path)
    assert first.num_row_groups == 6
    sql = "select date_trunc('hour', at) hour, kind, count(*) n, -1D total from {events} group by all"
    repaired, _ = bench.run(hourly(7, sql=sql))
    assert repaired.cost.spark_jobs == 1
    assert (len(repaired.replaced), [file.rows for file in repaired.kept]) == (1, [3, 12])
    assert len(bench.rows("hours")) == 72


def test_equal_rows_write_nothing_again(bench: Bench, hourly: Hourly) -> None:
    bench.run(hourly(*range(24), widened=True))
    staged, commit = bench.run(hourly(5))
    assert (staged.kept, commit.written) == ((), False)


def test_without_the_kept_rows_a_straddling_file_would_lose_them(
    bench: Bench, hourly: Hourly, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.run(hourly(*range(24), widened=True))
    monkeypatch.setattr(stage, "keep", lambda *_: ())
    sql = "select date_trunc('hour', at) hour, kind, count(*) n, -1D total from {events} group by all"
    bench.run(hourly(5, sql=sql))
    assert len(bench.rows("hours")) == 3


def test_rows_without_a_position_that_others_wrote_are_kept(bench: Bench, hourly: Hourly) -> None:
    bench.run(hourly(3))
    nowhere = pa.array([None], pa.timestamp("us", "UTC"))
    bench.put("hours", hour=nowhere, kind=pa.array([9]), n=pa.array([1]), total=pa.array([1.0]))
    bench.run(hourly(4))
    assert [row["hour"] for row in bench.rows("hours")].count(None) == 1
    assert len(bench.rows("hours")) == 7


@pytest.mark.parametrize(
    ("shift", "hours"), [("interval 1 hour", (3,)), ("interval 1 hour", (3, 4)), ("interval 2 days", (3,))]
)
def test_a_row_outside_its_interval_fails_the_attempt(
    bench: Bench, hourly: Hourly, shift: str, hours: tuple[int, ...]
) -> None:
    sql = f"select date_trunc('hour', at) + {shift} as hour, kind from {{events}}"
    with pytest.raises(QueryError, match="rows lie outside of") as caught:
        bench.stage(hourly(*hours, sql=sql))
    assert caught.value.hint


def test_a_row_outside_is_not_taken_for_a_kept_one(bench: Bench, hourly: Hourly) -> None:
    bench.run(hourly(*range(24), widened=True))
    sql = "select date_trunc('hour', at) + interval 1 hour as hour, kind, 1L n, 1D total from {events}"
    with pytest.raises(QueryError, match="rows lie outside"):
        bench.stage(hourly(5, sql=sql))


def test_a_row_without_a_position_fails_the_attempt(bench: Bench, hourly: Hourly) -> None:
    with pytest.raises(QueryError, match="hour is NULL"):
        bench.stage(hourly(3, sql="select cast(null as timestamp) as hour, kind from {events}"))


def test_a_query_that_looks_around_is_cut_to_its_interval(bench: Bench, hourly: Hourly) -> None:
    sql = "select at as hour, kind, lag(value) over (order by at) as earlier from {events}"
    staged, _ = bench.run(hourly(3, sql=sql, look=HOUR))
    assert [chunk.rows for chunk in staged.chunks] == [6]
    assert None not in [row["earlier"] for row in bench.rows("hours")]


def test_a_straddler_after_a_foreign_optimize_is_staged_again(bench: Bench, hourly: Hourly) -> None:
    for hour in range(4):
        bench.run(hourly(hour))
    sql = "select date_trunc('hour', at) hour, kind, count(*) n, -1D total from {events} group by all"
    job = hourly(2, sql=sql)
    staged = bench.stage(job)
    DeltaTable(bench.path("hours")).optimize.compact()
    again = stage.restage(bench.session, job, staged, bench.steps.append)
    assert again.files == staged.files
    assert [file.rows for file in again.kept] == [6, 3]
    commit = publish(again, bench.steps.append)
    assert not isinstance(commit, FileSetChanged)
    assert commit.written
    assert [row["total"] for row in bench.rows("hours")].count(-1.0) == 3
    assert len(bench.rows("hours")) == 12


def test_a_file_with_a_deletion_vector_is_never_replaced(bench: Bench, hourly: Hourly, with_vector: Path) -> None:
    shutil.copytree(with_vector / "hours", bench.path("hours"))
    with pytest.raises(EngineError, match="deletion vectors"):
        bench.stage(hourly(3))


def test_new_columns_are_added_and_missing_ones_become_null(bench: Bench, hourly: Hourly) -> None:
    bench.run(hourly(3))
    sql = "select date_trunc('hour', at) hour, count(*) n, max(value) as top from {events} group by all"
    bench.run(hourly(4, sql=sql))
    (row,) = [row for row in bench.rows("hours") if row["kind"] is None]
    assert (row["n"], row["total"], row["top"]) == (6, None, 29.0)
    with pytest.raises(QueryError, match="new columns: more"):
        bench.stage(hourly(5, sql=sql.replace("top", "more"), add_columns=False))


def test_a_narrower_type_is_widened_and_another_one_refused(bench: Bench, hourly: Hourly) -> None:
    bench.run(hourly(3))
    narrow = "select date_trunc('hour', at) hour, cast(kind as int) kind, 1L n, cast(1 as float) total from {events}"
    bench.run(hourly(4, sql=narrow))
    assert len(bench.rows("hours")) == 9
    with pytest.raises(QueryError, match="n is string in the query and bigint in the table"):
        bench.stage(hourly(5, sql="select date_trunc('hour', at) hour, kind, 'x' n, 1D total from {events}"))


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("select nonsense from {events}", "nonsense"),
        ("selec at from {events}", "selec"),
        ("select at as hour, 1 / (kind - kind) as boom from {events}", "DIVIDE_BY_ZERO"),
        ("select at as hour, cast('x' as int) as boom from {events}", "CAST_INVALID_INPUT"),
        ("select at as hour, cast(raise_error('no way') as int) as boom from {events}", "no way"),
        ("select at as hour, null as nothing from {events}", "type void"),
        ("select at as hour, 1 as a, 2 as a from {events}", "several columns named a"),
        ("select at as hour, 1 as `a b` from {events}", "'a b'"),
        ("select 'x' as hour from {events}", "'hour' is a string"),
        ("select at as other from {events}", "no column 'hour'"),
    ],
)
def test_a_wrong_query_is_the_authors_error_in_short(bench: Bench, hourly: Hourly, sql: str, message: str) -> None:
    with pytest.raises(QueryError) as caught:
        bench.stage(hourly(3, sql=sql))
    assert message in caught.value.message
    assert "org.apache.spark" not in caught.value.message
    assert len(caught.value.message) < 700


def test_a_file_that_vanished_is_not_the_authors_error(bench: Bench, hourly: Hourly) -> None:
    job = hourly(3)
    for file in (bench.root / "events").glob("*.parquet"):
        file.unlink()
    with pytest.raises(EngineError) as caught:
        bench.stage(job)
    assert not isinstance(caught.value, QueryError)


def test_an_attempt_that_takes_too_long_is_given_up(bench: Bench, hourly: Hourly) -> None:
    with pytest.raises(EngineError, match="not done after 1 s"):
        bench.stage(hourly(3, sql=SLOW, timeout_seconds=1))


def test_an_attempt_can_be_cancelled_from_another_thread(bench: Bench, hourly: Hourly) -> None:
    job = hourly(3, sql=SLOW)
    timer = threading.Timer(1.0, bench.session.cancel, (stage.group(job.task, job.attempt),))
    timer.start()
    with pytest.raises(EngineError):
        bench.stage(job)
    timer.join()


CHECKS = {
    "not_null": Check("not_null", {"columns": ["kind"]}),
    "unique": Check("unique", {"columns": ["hour", "kind"]}),
    "accepted_values": Check("accepted_values", {"column": "kind", "values": [0, 1, 2]}),
    "relationships": Check("relationships", {"column": "kind", "to": "raw.kinds", "field": "kind"}),
    "row_count": Check("row_count", {"min": 1, "max": 3}),
    "expression": Check("expression", {"sql": "n > 0"}),
}


def test_checks_that_hold_let_the_rows_pass_with_one_more_job(bench: Bench, hourly: Hourly) -> None:
    bench.put("kinds", kind=pa.array([0, 1, 2]))
    sql = "select date_trunc('hour', at) hour, kind, count(*) n from {events} join {kinds} using (kind) group by all"
    hourly()
    reads = [bench.input("events", "at"), bench.input("kinds", None)]
    chunk = (bench.START + 3 * HOUR, bench.START + 4 * HOUR)
    job = bench.job("hours", "hour", sql, [chunk], reads, checks=tuple(CHECKS.values()))
    staged = bench.stage(job)
    assert staged.warnings == ()
    assert staged.cost.spark_jobs == 2


@pytest.mark.parametrize("check", ["not_null", "unique", "accepted_values", "row_count", "expression"])
def test_a_broken_check_stops_the_rows_or_warns(bench: Bench, hourly: Hourly, check: str) -> None:
    columns = {"not_null": "cast(null as bigint)", "unique": "0L", "accepted_values": "kind + 7"}
    kind = columns.get(check, "kind")
    n = "-1L" if check == "expression" else "1L"
    sql = f"select date_trunc('hour', at) hour, {kind} kind, {n} n from {{events}}"
    rule = CHECKS[check]
    with pytest.raises(QueryError, match=f"check {check}"):
        bench.stage(hourly(3, sql=sql, checks=(rule,)))
    staged = bench.stage(hourly(3, sql=sql, checks=(replace(rule, severity="warn"),)))
    assert [check in warning for warning in staged.warnings] == [True]


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "date", "bigint", "int"])
def test_positions_of_every_kind_are_cut_and_replaced_alike(bench: Bench, kind: str) -> None:
    day = 86_400
    first = bench.START
    seconds = pa.array([first + i * day for i in range(10)])
    at = {
        "timestamp": seconds.cast(pa.timestamp("s", "UTC")).cast(pa.timestamp("us", "UTC")),
        "timestamp_ntz": seconds.cast(pa.timestamp("s")).cast(pa.timestamp("us")),
        "date": seconds.cast(pa.timestamp("s")).cast(pa.date32()),
        "bigint": seconds,
        "int": seconds.cast(pa.int32()),
    }[kind]
    bench.put("days", at=at, id=pa.array(range(10)))
    reads = [bench.input("days", "at")]
    days = [(first + i * day, first + (i + 1) * day) for i in range(10)]
    bench.run(bench.job("kept", "at", "select * from {days}", days, reads, widened=True))
    staged, _ = bench.run(bench.job("kept", "at", "select at, -id as id from {days}", days[4:6], reads))
    assert [chunk.rows for chunk in staged.chunks] == [1, 1]
    assert bench.column("kept", "id", by="at") == [0, 1, 2, 3, -4, -5, 6, 7, 8, 9]


def test_times_within_a_second_belong_to_that_second(bench: Bench) -> None:
    bench.put("fine", at=bench.moments(bench.START, 0.999999, 4), id=pa.array(range(4)))
    reads = [bench.input("fine", "at")]
    seconds = [(bench.START, bench.START + 1), (bench.START + 1, bench.START + 3)]
    staged, _ = bench.run(bench.job("seconds", "at", "select * from {fine}", seconds, reads, widened=True))
    assert [chunk.rows for chunk in staged.chunks] == [2, 2]
    staged, _ = bench.run(bench.job("seconds", "at", "select at, -id id from {fine}", seconds[:1], reads))
    assert bench.column("seconds", "id", by="at") == [0, -1, 2, 3]


def test_positions_before_1970_work(bench: Bench) -> None:
    bench.put("old", at=bench.moments(-0.5, -1, 5), id=pa.array(range(5)))
    job = bench.job("past", "at", "select * from {old}", [(-2, 0), (-5, -2)], [bench.input("old", "at")], widened=True)
    staged, _ = bench.run(job)
    assert [chunk.rows for chunk in staged.chunks] == [2, 3]


@pytest.mark.parametrize("zone", ["America/New_York", "Australia/Brisbane", "UTC"])
def test_hours_are_utc_hours_whatever_the_zone_of_the_machine(
    bench: Bench, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        change = 1_772_953_200  # 2026-03-08 07:00 UTC: clocks in New York go forward
        bench.put("clock", at=bench.moments(change - 7200, 900, 16))
        sql = "select date_trunc('hour', at) as hour, count(*) as n from {clock} group by all"
        hours = [(change + i * HOUR, change + (i + 1) * HOUR) for i in range(-2, 2)]
        bench.run(bench.job("spring", "hour", sql, hours, [bench.input("clock", "at")], widened=True))
        found = [int(hour.timestamp()) for hour in bench.column("spring", "hour", by="hour")]
        assert (found, bench.column("spring", "n", by="hour")) == ([start for start, _ in hours], [4] * 4)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_large_input_is_written_in_ranges(bench: Bench, hourly: Hourly, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newrows, "SMALL_BYTES", 1)
    monkeypatch.setattr(newrows, "TINY_BYTES", 0)
    staged, _ = bench.run(hourly(*range(24), widened=True))
    assert [chunk.rows for chunk in staged.chunks] == [3] * 24
    again = bench.stage(hourly(*range(24), widened=True))
    assert not any(chunk.changed for chunk in again.chunks)
    staged, _ = bench.run(hourly(5, sql="select date_trunc('hour', at) hour, kind, 1L n, 1D total from {events}"))
    assert [chunk.rows for chunk in staged.chunks] == [6]
    assert len(bench.rows("hours")) == 75


def test_a_path_with_odd_characters_works(bench: Bench) -> None:
    odd = replace(bench, root=bench.root / "a b,{c}#?*ü'=+")
    odd.put("events", at=bench.moments(bench.START, 600, 144))
    sql = "select date_trunc('hour', at) hour, count(*) n from {events} group by all"
    chunk = (bench.START, bench.START + HOUR)
    for text in (sql, sql.replace("count(*)", "count(*) + 1")):
        odd.run(odd.job("hours", "hour", text, [chunk], [odd.input("events", "at")]))
    assert len(odd.rows("hours")) == 1


def test_a_look_at_a_table_of_foreign_rows_finds_them_again(bench: Bench, hourly: Hourly) -> None:
    bench.run(hourly(3))
    hour = bench.moments(bench.START + 3 * HOUR, 1, 1)
    bench.put("hours", hour=hour, kind=pa.array([5]), n=pa.array([1]), total=pa.array([1.0]))
    staged, commit = bench.run(hourly(3))
    assert (staged.chunks[0].changed, commit.written) == (True, True)
    assert len(bench.rows("hours")) == 3
    assert staged.chunks[0].interval == Interval(bench.START + 3 * HOUR, bench.START + 4 * HOUR)


def test_a_first_attempt_replaces_and_keeps_nothing(bench: Bench, hourly: Hourly) -> None:
    staged = bench.stage(hourly(3))
    assert (staged.base_version, staged.kept, staged.replaced) == (None, (), ())


def test_when_the_tables_columns_changed_meanwhile_all_is_staged_again(bench: Bench, hourly: Hourly) -> None:
    bench.run(hourly(3))
    job = hourly(3, sql="select date_trunc('hour', at) hour, kind, 1L n, -1D total from {events} group by all")
    staged = bench.stage(job)
    bench.run(
        hourly(4, sql="select date_trunc('hour', at) hour, kind, 1L n, 1D total, 7 extra from {events} group by all")
    )
    again = stage.restage(bench.session, job, staged, bench.steps.append)
    assert again.files != staged.files
    commit = publish(again, bench.steps.append)
    assert not isinstance(commit, FileSetChanged)
    totals = [(row["total"], row["extra"]) for row in bench.rows("hours")]
    assert Counter(totals) == {(-1.0, None): 3, (1.0, 7): 3}
