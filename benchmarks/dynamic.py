"""What does it cost to refresh a table by the keys that changed, in full, and by Spark's own MERGE?"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from penstock.runtime.place.workspace import Workspace, apply, open_workspace
from penstock.runtime.process.progress import Silent
from penstock.runtime.serve.run import run
from penstock.values.records import TaskRecord
from places import scratch
from results import arguments, report

ROWS, KEYS = 10_000_000, 1_000_000
FILES = 20
SHARES = (0.0001, 0.001, 0.01, 0.1)
IDLE_TABLES = 1000
_TOTALS = "select k, count(*) as n, sum(amount) as total from {{ ref('raw.facts') }} group by k"
STRATEGIES = ("auto", "affected_keys", "full")


@dataclass(frozen=True)
class Facts:
    """A table of facts in the order of their keys, and tables that are made of it in several ways."""

    root: Path
    rows: int
    keys: int

    @property
    def landing(self) -> str:
        return str(self.root / "landing" / "facts")

    def write(self) -> None:
        for folder in ("external", "transformations"):
            (self.root / "models" / folder).mkdir(parents=True)
        (self.root / "penstock.yml").write_text("name: dynamic\ndatabases: {external: raw, transformation: d}\n")
        (self.root / "models/external/facts.yml").write_text("location: ./landing/facts\n")
        for strategy in STRATEGIES:
            matter = f"---\nrefresh_strategy: {strategy}\ncardinality_threshold: 1\n---\n"
            (self.root / f"models/transformations/totals_{strategy}.sql").write_text(matter + _TOTALS)
        per_file = self.rows // FILES
        for number in range(FILES):
            numbers = pa.array(range(number * per_file, (number + 1) * per_file), pa.int64())
            keys = pc.divide(numbers, max(self.rows // self.keys, 1))
            write_deltalake(self.landing, self._facts(keys, numbers), mode="append")

    def _facts(self, keys: pa.Array, numbers: pa.Array) -> pa.Table:
        amount = pc.subtract(numbers, pc.multiply(pc.divide(numbers, 997), 997))
        return pa.table({"k": keys, "amount": amount})

    def more(self, share: float, *, scattered: bool, round_: int) -> int:
        """New facts for a share of all keys: for neighbours, or for keys everywhere."""
        count = max(int(self.keys * share), 1)
        step = self.keys // count if scattered else 1
        first = (round_ * 131 * step) % max(self.keys - count * step, 1)
        keys = pa.array(range(first, first + count * step, step), pa.int64())
        write_deltalake(self.landing, self._facts(keys, keys), mode="append")
        return count


def refreshed(workspace: Workspace) -> dict[str, TaskRecord]:
    """Refresh everything once; the last task of each table."""
    done = run(workspace, workspace.built(()), Silent())
    assert not done.failed, done.errors
    tasks = workspace.state.history.tasks(None, failed=False, history=True, limit=50)
    return {task.model: task for task in reversed(tasks)}


def cases(facts: Facts, workspace: Workspace) -> Iterator[list[object]]:
    first = refreshed(workspace)
    yield ["first build", "", facts.keys, *_figures(first), ""]
    facts.more(0.0001, scattered=False, round_=0)
    refreshed(workspace)  # the code of this kind of query is compiled now
    number = 0
    for share in SHARES:
        for scattered in (False, True):
            number += 1
            count = facts.more(share, scattered=scattered, round_=number)
            yield [
                f"{share:.2%}",
                "scattered" if scattered else "local",
                count,
                *_figures(refreshed(workspace)),
                f"{merged(workspace, facts):.2f}",
            ]


def _figures(tasks: dict[str, TaskRecord]) -> list[object]:
    by_keys, full, auto = (tasks[f"d.totals_{name}"] for name in ("affected_keys", "full", "auto"))
    return [
        f"{by_keys.cost.seconds:.2f}",
        by_keys.cost.spark_jobs,
        f"{full.cost.seconds:.2f}",
        full.cost.spark_jobs,
        f"{full.cost.seconds / by_keys.cost.seconds:.1f}",
        str(auto.strategy),
        f"{auto.cost.seconds / min(by_keys.cost.seconds, full.cost.seconds):.2f}",
    ]


def merged(workspace: Workspace, facts: Facts) -> float:
    """Seconds of Spark's MERGE for the keys of the last commit, into a table of its own."""
    target = str(facts.root / "merged")
    with workspace.engine.session.attempt(f"merge/{uuid4()}") as attempt:
        spark = attempt.spark
        totals = f"select k, count(*) as n, sum(amount) as total from delta.`{facts.landing}`"
        if not DeltaTable.is_deltatable(target):
            spark.sql(f"{totals} group by k").write.format("delta").save(target)
        latest = DeltaTable(facts.landing).version()
        newest = DeltaTable(facts.landing).get_add_actions(flatten=True)["path"].to_pylist()[0]
        spark.read.parquet(f"{facts.landing}/{newest}").createOrReplaceTempView("changed")
        began = time.monotonic()
        spark.sql(
            f"merge into delta.`{target}` t using ({totals} version as of {latest} where k in (select k from changed) "
            "group by k) s on t.k = s.k when matched then update set * when not matched then insert *"
        )
        return time.monotonic() - began


def idle(root: Path, count: int) -> float:
    """Seconds to find out that nothing has to be done for so many tables."""
    for folder in ("external", "transformations"):
        (root / "models" / folder).mkdir(parents=True)
    (root / "penstock.yml").write_text("name: idle\ndatabases: {external: raw, transformation: d}\n")
    (root / "models/external/facts.yml").write_text("location: ./landing/facts\n")
    write_deltalake(str(root / "landing/facts"), pa.table({"k": [1, 2, 3]}))
    for number in range(count):
        text = f"select k, count(*) + {number} as n from {{{{ ref('raw.facts') }}}} group by k"
        (root / f"models/transformations/t{number}.sql").write_text(text)
    with open_workspace(root, os.environ) as workspace:
        apply(workspace)
        run(workspace, workspace.built(()), Silent())
        began = time.monotonic()
        done = run(workspace, workspace.built(()), Silent())
        assert not done.tasks
        return time.monotonic() - began


def main() -> None:
    options = arguments(__doc__ or "", quick="a hundredth of the rows", rows=ROWS)
    rows = options.rows // 100 if options.quick else options.rows
    keys = KEYS // 100 if options.quick else KEYS
    tables = 20 if options.quick else IDLE_TABLES
    with scratch() as root:
        facts = Facts(root / "facts", rows, keys)
        facts.write()
        with open_workspace(facts.root, os.environ) as workspace:
            apply(workspace)
            figures = list(cases(facts, workspace))
        seconds = idle(root / "idle", tables)
    columns = (
        "keys",
        "where",
        "count",
        "by keys s",
        "its jobs",
        "full s",
        "jobs of full",
        "full / by keys",
        "chosen",
        "of the better",
        "MERGE s",
    )
    title = f"{rows:,} rows of {keys:,} keys; {tables} tables without a change are checked in {seconds:.2f} s"
    report(title, columns, figures, options.json)


if __name__ == "__main__":
    main()
