"""What does one small interval cost when everything is warm, against `VERSION AS OF` and `replaceWhere`?"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from penstock.engine.commit.publish import publish
from penstock.engine.spark.session import Session, SparkSettings
from penstock.engine.stage.staging import stage
from penstock.engine.values.files import PositionColumn
from penstock.engine.values.job import InputRead, Job, Rendering
from penstock.runtime.place.workspace import cache_folder
from penstock.values.intervals import Interval, IntervalSet
from penstock.values.tasks import Commit, Pin
from results import arguments, report

HOURS, ROWS_PER_HOUR, KEYS = 24, 20_000, 4
WARM_UP, ROUNDS = 8, 16
START = 1_767_225_600
SELECT = "select date_trunc('hour', at) hour, kind, count(*) n, sum(value) total from {events} group by all"


@dataclass
class Cost:
    """What the measured rounds of one way took."""

    jobs: list[int] = field(default_factory=list)
    phases: list[dict[str, float]] = field(default_factory=list)

    def row(self, name: str, slowest: float | None = None) -> list[object]:
        walls = [sum(phases.values()) for phases in self.phases]
        best = min(range(len(walls)), key=walls.__getitem__)
        split = ", ".join(f"{label} {value:.0f}" for label, value in self.phases[best].items())
        times = "" if slowest is None else f"{slowest / statistics.median(walls):.1f}"
        return [name, max(self.jobs), f"{min(walls):.0f}", f"{statistics.median(walls):.0f}", times, split]

    @property
    def median(self) -> float:
        return statistics.median(sum(phases.values()) for phases in self.phases)


def main() -> None:
    options = arguments(__doc__ or "")
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        events = _events(root)
        session = Session(SparkSettings(cache=cache_folder(os.environ), environ=os.environ))
        ours, theirs = Cost(), Cost()
        try:
            # alternating rounds, so that whatever else the machine does slows both
            for number in range(WARM_UP + ROUNDS):
                span = _hour(number % HOURS)
                _by_us(session, root, events, span, ours if number >= WARM_UP else Cost())
                _by_spark(session, root, events, span, theirs if number >= WARM_UP else Cost())
            _check_equal(root)
        finally:
            session.stop()
    columns = (
        "one hour: 20,000 rows in, 4 out",
        "spark jobs",
        "ms min",
        "ms p50",
        "times faster",
        "ms of the best round",
    )
    rows = [ours.row("file list, staged Parquet, delta-rs", theirs.median), theirs.row("VERSION AS OF + replaceWhere")]
    report("Warm cost of one small interval", columns, rows, options.json)


def _events(root: Path) -> str:
    place = str(root / "events")
    for hour in range(HOURS):
        micros = [(START + hour * 3600) * 10**6 + i * 3600 * 10**6 // ROWS_PER_HOUR for i in range(ROWS_PER_HOUR)]
        columns = {
            "at": pa.array(micros, pa.timestamp("us", "UTC")),
            "kind": pa.array([i % KEYS for i in range(ROWS_PER_HOUR)]),
            "value": pa.array([float(i) for i in range(ROWS_PER_HOUR)]),
        }
        write_deltalake(place, pa.table(columns), mode="append")
    return place


def _hour(number: int) -> Interval:
    return Interval(START + number * 3600, START + (number + 1) * 3600)


def _by_us(session: Session, root: Path, events: str, span: Interval, cost: Cost) -> None:
    pin = Pin(events, DeltaTable(events).version())
    window = IntervalSet.of([span])
    read = InputRead("events_in", "raw.events", pin, position=PositionColumn("at", "second"), window=window)
    job = Job(
        model="shop.hours",
        location=str(root / "ours"),
        position=PositionColumn("hour", "second"),
        chunks=(span,),
        renderings=(Rendering((span,), SELECT.format(events="events_in"), (read,)),),
        cut=False,
        frontier={"raw.events": pin},
        task=uuid4(),
        attempt=1,
        generation="bench",
        epoch=0,
        digests={},
    )
    marks = [("", time.perf_counter())]
    staged = stage(session, job, lambda label: marks.append((label, time.perf_counter())))
    done = publish(staged, lambda _: None)
    assert isinstance(done, Commit) and done.written
    marks.append(("published", time.perf_counter()))
    names = {"planned": "plan", "written": "stage", "staged": "look", "published": "publish"}
    cost.phases.append({names[label]: (at - before) * 1000 for (_, before), (label, at) in pairwise(marks)})
    cost.jobs.append(staged.cost.spark_jobs)


def _by_spark(session: Session, root: Path, events: str, span: Interval, cost: Cost) -> None:
    target = str(root / "theirs")
    version = DeltaTable(events).version()
    with session.attempt(f"bench/{uuid4()}") as attempt:
        spark = attempt.spark
        began = time.perf_counter()
        cut = f"timestamp_seconds({span.start})", f"timestamp_seconds({span.end})"
        source = f"(select * from delta.`{events}` version as of {version} where at >= {cut[0]} and at < {cut[1]})"
        frame = spark.sql(SELECT.format(events=source))
        planned = time.perf_counter()
        writer = frame.coalesce(1).write.format("delta").mode("overwrite")
        if Path(target).exists():
            writer = writer.option("replaceWhere", f"hour >= {cut[0]} and hour < {cut[1]}")
        writer.save(target)
        ended = time.perf_counter()
        cost.phases.append({"plan": (planned - began) * 1000, "write": (ended - planned) * 1000})
        cost.jobs.append(attempt.jobs)


def _check_equal(root: Path) -> None:
    both = [
        sorted(
            map(repr, DeltaTable(str(root / name)).to_pyarrow_table(columns=["hour", "kind", "n", "total"]).to_pylist())
        )
        for name in ("ours", "theirs")
    ]
    assert both[0] == both[1], "the two ways gave different rows"


if __name__ == "__main__":
    main()
