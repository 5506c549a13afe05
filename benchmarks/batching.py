"""What does a query cost that many intervals share, by the way it says what an hour is?"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

from late import adopt_orphans, ran
from places import scratch
from results import arguments, report

HOUR = 3600
START = 1_767_225_600
HOURS = 216
ROWS = 2_000_000
COUNTED = "count(*) as n, sum(amount) as amount, count(distinct device) as devices"
QUERIES = {
    "date_trunc('hour', event_ts)": f"select date_trunc('hour', event_ts) as event_hour, country, {COUNTED} "
    "from {{ ref('raw.events') }} group by 1, 2",
    "a column of the input": f"select event_hour, country, {COUNTED} from {{{{ ref('raw.events') }}}} "
    "group by country, event_hour",
    "a join and a window": f"select e.event_hour, e.country, {COUNTED}, "
    "sum(count(*)) over (partition by e.country) as total "
    "from {{ ref('raw.events') }} e join (select distinct country from {{ ref('raw.events') }}) c "
    "on e.country = c.country group by e.country, e.event_hour",
    "not shared": f"select event_hour, country, {COUNTED}, first(device) as some from {{{{ ref('raw.events') }}}} "
    "group by country, event_hour",
}
"""The last has an aggregate that hangs on the order of rows, so every interval gets a query of its own."""


@dataclass(frozen=True)
class Case:
    cpu: float
    wall: float
    intervals: int
    jobs: int
    tasks: int


def project(root: Path, query: str, events: Path) -> None:
    for folder in ("external", "transformations"):
        (root / "models" / folder).mkdir(parents=True)
    (root / "penstock.yml").write_text("name: batching\ndatabases: {external: raw, transformation: shop}\n")
    source = f"location: {events}\nposition: event_ts\ncompleteness: inclusive\n"
    (root / "models/external/events.yml").write_text(source)
    head = "---\ninterval: 1 hour\nposition: event_hour\n---\n"
    (root / "models/transformations/hours.sql").write_text(head + query + "\n")


def land(events: Path, rows: int, hours: int) -> None:
    """Rows in order of time, a commit per day."""
    per_hour = rows // hours
    for first in range(0, hours, 24):
        many = min(24, hours - first)
        numbers = pa.array(range(first * per_hour, (first + many) * per_hour), pa.int64())
        at = pc.add(
            pc.divide(pc.multiply(pc.subtract(numbers, first * per_hour), HOUR), per_hour), START + first * HOUR
        )
        times = pc.cast(pc.multiply(at, 1_000_000), pa.timestamp("us", tz="UTC"))
        table = pa.table(
            {
                "event_ts": times,
                "event_hour": pc.floor_temporal(times, unit="hour"),
                "country": pc.take(pa.array(["NO", "SE", "DK", "FI", "DE"]), pc.bit_wise_and(numbers, 3)),
                "device": pc.bit_wise_and(pc.multiply(numbers, 7919), 1023),
                "amount": pc.bit_wise_and(pc.multiply(numbers, 31), 511),
            }
        )
        write_deltalake(str(events), table, mode="append")
    last = pc.cast(pa.array([(START + hours * HOUR - 1) * 1_000_000]), pa.timestamp("us", tz="UTC"))
    end = {"event_ts": last, "event_hour": pc.floor_temporal(last, unit="hour"), "country": pa.array(["NO"])}
    numbers = pa.array([1], pa.int64())
    write_deltalake(str(events), pa.table({**end, "device": numbers, "amount": numbers}), mode="append")


def measured(root: Path) -> Case:
    began = time.perf_counter()
    cpu, printed = ran([sys.executable, "-m", "penstock.cli.main", "run", "--json"], root)
    done = json.loads(printed)
    return Case(cpu, time.perf_counter() - began, done["intervals"], done["spark_jobs"], done["tasks"])


def main() -> None:
    options = arguments(__doc__ or "", quick="a ninth of the hours", rows=ROWS)
    hours = HOURS // 9 if options.quick else HOURS
    cases: dict[str, Case] = {}
    adopt_orphans()
    with scratch() as root:
        events = root / "events"
        land(events, options.rows, hours)
        for number, (name, query) in enumerate(QUERIES.items()):
            project(root / f"p{number}", query, events)
            cases[name] = measured(root / f"p{number}")
    first = next(iter(cases.values()))
    rows = [
        [
            name,
            case.intervals,
            case.tasks,
            case.jobs,
            f"{case.cpu:.1f}",
            f"{case.wall:.1f}",
            f"{case.cpu / first.cpu:.2f}",
        ]
        for name, case in cases.items()
    ]
    columns = ("hours are", "intervals", "tasks", "Spark jobs", "CPU s", "wall s", "of the first")
    report(f"{options.rows:,} rows, {hours} hours; CPU of all processes", columns, rows, options.json)


if __name__ == "__main__":
    main()
