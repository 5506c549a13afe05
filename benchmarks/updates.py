"""What does a scattered UPDATE cost, against computing everything that it touched at once?"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from late import adopt_orphans, ran
from places import scratch
from results import arguments, report

HOUR = 3600
START = 1_767_225_600
ROWS, HOURS = 300_000, 720
SHARES = (0.0001, 0.001, 0.01, 0.1)
"""Of the rows, how many are updated."""
MODELS = {
    "strict": (
        "interval: 1 hour\nposition: hour",
        "select cast(floor(at / 3600) * 3600 as bigint) as hour, country, count(*) as n, sum(amount) as amount "
        "from {{ ref('raw.events') }} group by 1, 2",
    ),
    "partial": (
        "interval: {max: 1 day, min: 1 hour, align: 1 hour}\nposition: hour",
        "select cast(floor(at / 3600) * 3600 as bigint) as hour, device, max(amount) as amount "
        "from {{ ref('raw.events') }} group by 1, 2",
    ),
    "cursor": (
        "interval: {max: 1 hour, min: 0}\nposition: at",
        "select at, id, country, amount * 2 as twice from {{ ref('raw.events') }} where amount > 5",
    ),
    "apart": (
        "interval: {max: 1 hour, min: 0}\nposition: at",
        "select at, id, amount, {{ bounds.start }} * 0 as nought from {{ ref('raw.events') }}",
    ),
}
"""The last has a query for each of its chunks, because it mentions where its chunk begins."""


@dataclass(frozen=True)
class Cost:
    cpu: float
    wall: float
    intervals: int
    tasks: int


@dataclass(frozen=True)
class Events:
    """A project over events of so many hours."""

    root: Path
    rows: int
    hours: int

    @property
    def landing(self) -> str:
        return str(self.root / "landing" / "events")

    def write(self, feed: bool) -> None:
        for folder in ("external", "transformations"):
            (self.root / "models" / folder).mkdir(parents=True)
        (self.root / "penstock.yml").write_text("name: updates\ndatabases: {external: raw, transformation: shop}\n")
        text = "location: ./landing/events\nposition: at\naxis: second\ncompleteness: inclusive\n"
        (self.root / "models/external/events.yml").write_text(text)
        for name, (keys, sql) in MODELS.items():
            (self.root / f"models/transformations/{name}.sql").write_text(f"---\n{keys}\n---\n{sql}\n")
        self._land({"delta.enableChangeDataFeed": "true"} if feed else {})

    def _land(self, properties: dict[str, str | None]) -> None:
        numbers = pa.array(range(self.rows), pa.int64())
        at = pc.add(pc.divide(pc.multiply(numbers, self.hours * HOUR), self.rows), START)
        table = pa.table(
            {
                "id": numbers,
                "at": pc.if_else(pc.equal(numbers, self.rows - 1), START + self.hours * HOUR - 1, at),
                "country": pc.take(pa.array(["NO", "SE", "DK", "FI"]), pc.bit_wise_and(numbers, 3)),
                "device": pc.bit_wise_and(pc.multiply(numbers, 7919), 255),
                "amount": pc.bit_wise_and(pc.multiply(numbers, 31), 511),
            }
        )
        write_deltalake(self.landing, table, configuration=properties)

    def update(self, share: float, seed: int) -> int:
        """Change so many rows, anywhere."""
        chance = Random(seed)
        prime, size = chance.choice((7919, 7927, 7933)), round(1 / share)
        condition = f"(id * {prime}) % {size} = {chance.randrange(size)}"
        done = DeltaTable(self.landing).update({"amount": "amount + 1000"}, predicate=condition)
        return int(done["num_updated_rows"])


def act(events: Events, *arguments_: str) -> Cost:
    began = time.perf_counter()
    cpu, printed = ran([sys.executable, "-m", "penstock.cli.main", *arguments_, "--json"], events.root)
    done = json.loads(printed)
    return Cost(cpu, time.perf_counter() - began, done["intervals"], done["tasks"])


def measured(events: Events, feed: bool, shares: tuple[float, ...]) -> list[list[object]]:
    """One row per update; each against a rerun of all that there is, in a process of its own."""
    events.write(feed)
    act(events, "run")
    for name in MODELS:
        ran([sys.executable, "-m", "penstock.cli.main", "rerun", f"shop.{name}", "--no-wait", "--yes"], events.root)
    whole = act(events, "run")
    rows: list[list[object]] = []
    for number, share in enumerate(shares):
        changed = events.update(share, number)
        cost = act(events, "run")
        said = f"{share:.2%}, {'with' if feed else 'without'} a feed"
        figures = [f"{cost.cpu:.1f}", f"{cost.wall:.1f}", f"{whole.cpu:.1f}", f"{cost.cpu / whole.cpu:.2f}"]
        rows.append([said, changed, cost.intervals, cost.tasks, *figures])
    return rows


def main() -> None:
    options = arguments(__doc__ or "", quick="a tenth of the hours and of the rows", rows=ROWS)
    hours = HOURS // 10 if options.quick else HOURS
    rows = options.rows // 10 if options.quick else options.rows
    adopt_orphans()
    figures: list[list[object]] = []
    for feed in (False, True):
        with scratch() as root:
            figures += measured(Events(root / "events", rows, hours), feed, SHARES)
    columns = ("update", "rows", "intervals", "tasks", "CPU s", "wall s", "CPU s of all at once", "ratio")
    title = f"{rows:,} rows, {hours} hours, {len(MODELS)} models; CPU of all processes, Spark's start included"
    report(title, columns, figures, options.json)


if __name__ == "__main__":
    main()
