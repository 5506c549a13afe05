"""How appended rows are looked up in real files, and where in a chunk rows are found to differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from fuzzing import FUZZ

from penstock.engine.stage import append, chunks
from penstock.engine.stage import key_lookup as lookup
from penstock.engine.stage.staged import Staged
from penstock.engine.values.job import Job
from penstock.errors import QueryError
from penstock.values.intervals import Interval, IntervalSet, ranges
from penstock.values.models import Check

if TYPE_CHECKING:
    from conftest import Bench

Hourly = Callable[..., Job]
ODD = (
    "select at, kind as k, nullif(kind, 1) as nothing, "
    "cast(case when kind = 2 then 'NaN' when minute(at) % 20 = 0 then '-0.0' else '0.0' end as double) as odd, "
    "cast(floor(value / 4) as decimal(9, 2)) as part, array(kind) as kinds, value from {events}"
)
LESS = ODD + " where kind <> 0 or hour(at) <> 1"
KEY = ("nothing", "odd", "part")


def events(bench: Bench, *hours: int, **more: object) -> Job:
    """Every event of some hours of a day, six in each, one every ten minutes."""
    start, hour = bench.START, bench.HOUR
    spans = [(start + n * hour, start + (n + 1) * hour) for n in hours]
    sql, table = str(more.pop("sql", "select * from {events}")), str(more.pop("table", "facts"))
    return bench.job(table, "at", sql, spans, [bench.input("events", "at")], **more)  # type: ignore[arg-type]


@pytest.mark.skipif(not FUZZ, reason="half a minute: make fuzz plays it")
def test_many_rows_are_looked_up_as_few_are(bench: Bench, hourly: Hourly, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hourly(0)
    story = (((0, 1), ODD, False), ((1, 2, 4), ODD, False), ((0, 1), LESS, True), ((0, 1), LESS, True))
    outcomes: dict[str, list[tuple[list[tuple[int, bool]], bool, str]]] = {}
    for table, most in (("few", append.MOST_KEY_VALUES), ("many", -1)):
        monkeypatch.setattr(append, "MOST_KEY_VALUES", most)
        found = outcomes.setdefault(table, [])
        for hours, sql, retract in story:
            staged, commit = bench.run(events(bench, *hours, sql=sql, table=table, unique_key=KEY, retract=retract))
            rows = repr(bench.rows(table))  # as text, for NaN is not itself
            found.append(([(chunk.rows, chunk.changed) for chunk in staged.chunks], commit.written, rows))
    assert outcomes["many"] == outcomes["few"]
    assert [written for _, written, _ in outcomes["few"]] == [True, True, True, False]
    keys = [tuple(str(row[name]).lstrip("-") for name in KEY) for row in bench.rows("many")]
    assert len(keys) == len(set(keys)) > 10


def test_a_key_is_looked_for_only_in_files_that_can_hold_it(
    bench: Bench, hourly: Hourly, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hourly(0)
    for hour in range(4):
        bench.run(events(bench, hour, unique_key=("value",)))
    assert len(DeltaTable(bench.path("facts")).file_uris()) == 4
    late = bench.START + 2 * bench.HOUR + 5
    bench.put("events", at=bench.moments(late, 1, 2), kind=pa.array([7, 7]), value=pa.array([-1.0, -2.0]))
    real, opened = lookup.opened, list[str]()

    def watched(location: str, path: str, *rest: object) -> pa.Table:
        opened.append(path)
        return real(location, path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(lookup, "opened", watched)
    by_time = bench.stage(events(bench, 2, unique_key=("at", "kind")))
    live = [path for path in opened if not path.startswith(str(by_time.job.task))]
    assert len(live) == 1
    assert [chunk.differs for chunk in by_time.chunks] == [ranges((late, late + 2))]
    assert by_time.cost.spark_jobs == 1
    opened.clear()
    anywhere = bench.stage(events(bench, 2, unique_key=("value",)))  # doubles have no order that could be trusted
    assert len([path for path in opened if not path.startswith(str(anywhere.job.task))]) == 4


def test_only_a_file_with_a_retracted_row_is_written_again(bench: Bench, hourly: Hourly) -> None:
    assert hourly(0)
    for hour in range(3):
        bench.run(events(bench, hour, unique_key=("at",), retract=True))
    before = set(DeltaTable(bench.path("facts")).file_uris())
    less = "select * from {events} where value <> 8"
    staged, commit = bench.run(events(bench, 0, 1, 2, unique_key=("at",), retract=True, sql=less))
    after = set(DeltaTable(bench.path("facts")).file_uris())
    assert len(before - after) == len(after - before) == len(staged.replaced) == 1
    gone = bench.START + bench.HOUR + 1200
    assert commit.changed == ranges((gone, gone + 1))
    assert len(bench.rows("facts")) == 17


def test_b53_one_row_that_breaks_a_rule_keeps_all_others_out(bench: Bench, hourly: Hourly) -> None:
    assert hourly(0)
    rule = Check("expression", {"sql": "value <> 8"})
    with pytest.raises(QueryError, match="1 rows break it"):
        bench.run(events(bench, 0, 1, unique_key=("at",), checks=(rule,)))
    assert not DeltaTable.is_deltatable(bench.path("facts"))


def test_a_key_is_made_of_plain_values(bench: Bench, hourly: Hourly) -> None:
    assert hourly(0)
    with pytest.raises(QueryError, match="'kinds' of unique_key holds array"):
        bench.stage(events(bench, 0, sql=ODD, unique_key=("kinds",)))


# Where in a chunk rows differ


def day(bench: Bench) -> Job:
    text = "select date_trunc('hour', at) hour, kind, count(*) n, sum(value) total from {events} group by all"
    return bench.job("days", "hour", text, [(bench.START, bench.START + 86400)], [bench.input("events", "at")])


def differs_after(bench: Bench, seconds: int, kind: int) -> Staged:
    bench.run(day(bench))
    at = bench.moments(bench.START + seconds, 1, 1)
    bench.put("events", at=at, kind=pa.array([kind]), value=pa.array([1.0]))
    staged, _ = bench.run(day(bench))
    return staged


@pytest.mark.parametrize("kind", [1, 9])
def test_of_a_day_only_the_hour_that_differs_is_changed(bench: Bench, hourly: Hourly, kind: int) -> None:
    """Whether a row of that hour has another value, or the hour has a row more."""
    assert hourly(0)
    staged = differs_after(bench, 5 * bench.HOUR + 30, kind)
    fifth = bench.START + 5 * bench.HOUR
    assert [(chunk.changed, chunk.differs) for chunk in staged.chunks] == [(True, ranges((fifth, fifth + 1)))]


def test_of_a_day_of_many_rows_all_is_changed(bench: Bench, hourly: Hourly, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hourly(0)
    monkeypatch.setattr(chunks, "MOST_VALUES", 0)
    staged = differs_after(bench, 5 * bench.HOUR + 30, 1)
    assert [(chunk.changed, chunk.differs) for chunk in staged.chunks] == [(True, None)]
    assert IntervalSet.of(chunk.interval for chunk in staged.chunks).parts == (
        Interval(bench.START, bench.START + 86400),
    )
