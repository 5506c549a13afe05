"""Dynamic tables that are defined, changed and refreshed on disk, and Spark itself as the judge of their rows."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deployment import Deployment

from penstock.engine.refresh.changed_rows import FewRows, Unchanged, changed_rows
from penstock.engine.rows.multisets import WEIGHT
from penstock.engine.values.job import Step
from penstock.runtime.place.workspace import no_step
from penstock.runtime.serve.run import Summary
from penstock.values.records import TaskRecord
from penstock.values.tasks import Frontier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.engine.spark.session import Session

Row = tuple[object, ...]
Bag = Counter[Row]
FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}
_REF = re.compile(r"\{\{\s*ref\('([^']*)'\)\s*\}\}")
_NOW = re.compile(r"\b(?:now|current_timestamp)\(\)")


@dataclass(frozen=True, slots=True)
class How:
    """What the last task of a model did."""

    strategy: str | None
    reason: str
    keys: int | None
    jobs: int
    written: int

    @property
    def code(self) -> str:
        return self.reason.split(":", 1)[0]


@dataclass
class Tables:
    """Sources that others write, the dynamic tables made of them, and short words for what happens to both."""

    deployment: Deployment
    session: Session
    schemas: dict[str, pa.Schema] = field(default_factory=dict)
    queries: dict[str, str] = field(default_factory=dict)

    # what people write

    def define(self, name: str, query: str, **keys: object) -> None:
        """A dynamic table; `[a]` in its query stands for the source a, `<b>` for our table b."""
        text = re.sub(r"\[(\w+)\]", r"{{ ref('raw.\1') }}", query)
        text = re.sub(r"<(\w+)>", r"{{ ref('t.\1') }}", text)
        self.queries[f"t.{name}"] = text
        matter = "".join(
            f"{key}: {json.dumps(value)}\n" for key, value in {"target_lag": "on_upstream", **keys}.items()
        )
        self.deployment.write(f"models/transformations/{name}.sql", f"---\ntype: dynamic\n{matter}---\n{text}\n")

    def source(
        self, name: str, columns: Mapping[str, str], *, by: Sequence[str] = (), settings: str = "", **properties: str
    ) -> None:
        """An empty Delta table, and its declaration as a lookup unless `settings` give it a position."""
        self.schemas[name] = pa.schema([pa.field(own, _TYPES[kind]) for own, kind in columns.items()])
        write_deltalake(
            self.at(name), self.schemas[name].empty_table(), partition_by=list(by) or None, configuration=properties
        )
        self.deployment.write(f"models/external/{name}.yml", f'location: "{self.at(name)}"\n{settings}')

    # what others write

    def at(self, name: str) -> str:
        return str(self.deployment.landing(name))

    def table(self, name: str) -> DeltaTable:
        return DeltaTable(self.at(name))

    def rows(self, name: str, rows: Iterable[Row]) -> pa.Table:
        schema = self.schemas[name]
        return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)

    def land(self, name: str, *rows: Row) -> Tables:
        """One commit with these rows."""
        write_deltalake(self.at(name), self.rows(name, rows), mode="append")
        return self

    def overwrite(self, name: str, *rows: Row) -> Tables:
        write_deltalake(self.at(name), self.rows(name, rows), mode="overwrite")
        return self

    def change(self, name: str, predicate: str | None = None, **updates: str) -> Tables:
        self.table(name).update(updates=updates, predicate=predicate)
        return self

    def delete(self, name: str, predicate: str | None = None) -> Tables:
        self.table(name).delete(predicate)
        return self

    def vacuum(self, name: str) -> None:
        """Every file that the newest snapshot does not need is gone."""
        self.table(name).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)

    def spark(self, text: str) -> list[Row]:
        """What Spark does to tables; `[a]` stands for the source a."""
        sql = re.sub(r"\[(\w+)\]", lambda found: f"delta.`{self.at(found[1])}`", text)
        with self.session.attempt(f"test/{uuid4()}") as attempt:
            return [tuple(row) for row in attempt.spark.sql(sql).collect()]

    # what Penstock does

    def run(self, *names: str, step: Step = no_step) -> Summary:
        return self.deployment.run(*(f"t.{name}" for name in names), step=step)

    def task(self, model: str) -> TaskRecord:
        return self.deployment.tasks(model)[-1]

    def how(self, model: str) -> How:
        task = self.task(model)
        cost = task.cost
        return How(task.strategy, task.strategy_reason or "", cost.keys, cost.spark_jobs, cost.rows_written)

    def refreshed(self, *names: str) -> How:
        """Run, and what that did to the last of the named tables; all tables are right then."""
        done = self.run()
        assert not done.failed, done.errors
        self.check()
        return self.how(names[-1] if names else next(iter(self.queries)).removeprefix("t."))

    # what is there afterwards

    def made_from(self, model: str) -> tuple[Frontier, datetime]:
        """The snapshots that the accepted rows were made from, and the moment that they are of."""
        with self.deployment.opened() as workspace:
            view = workspace.state.views.whole()
            record = view.refreshed[f"t.{model}"]
            moment = record.data_timestamp or datetime.now(UTC)
            return {name: workspace.resolver.located(pin) for name, pin in record.inputs.items()}, moment

    def stored(self, model: str, snapshot: int | None = None) -> pa.Table:
        """The accepted snapshot, or another one, as it lies there."""
        current = self.deployment.current(model)
        version = current.accepted_snapshot if snapshot is None else snapshot
        return pa.table(DeltaTable(self.deployment.place(model), version=version).to_pyarrow_table())

    def commits(self, model: str) -> int:
        return DeltaTable(self.deployment.place(model)).version() + 1

    def files(self, model: str) -> set[str]:
        return set(DeltaTable(self.deployment.place(model)).file_uris())

    def visible(self, model: str, snapshot: int | None = None) -> Bag:
        table = self.stored(model, snapshot)
        return bag(table.select([name for name in table.column_names if not name.startswith("__penstock_")]))

    def expected(self, model: str) -> Bag:
        """What the query gives at those snapshots, with the queries of other dynamic tables in place of their rows."""
        frontier, moment = self.made_from(model)
        with self.session.attempt(f"judge/{uuid4()}") as attempt:
            attempt.spark.conf.set("spark.sql.shuffle.partitions", "1")
            return bag(_Judge(attempt.spark, self.queries, frontier, moment).frame(f"t.{model}").toArrow())

    def check(self, *models: str) -> None:
        """The visible rows of the tables are what their queries give at the snapshots that were recorded."""
        for model in models or [name.removeprefix("t.") for name in self.queries]:
            have, wanted = self.visible(model), self.expected(model)
            assert have == wanted, (
                f"{model} ({self.how(model).reason}): missing {dict(wanted - have)}, too many {dict(have - wanted)}"
            )

    def told(self, model: str, before: int, after: int) -> Bag:
        """The rows by which two snapshots differ as a consumer is told, with how many came, or below 0 went."""
        place = self.deployment.place(model)
        match changed_rows(place, str(DeltaTable(place).metadata().id), before, after):
            case FewRows(rows):
                weights = rows.column(WEIGHT).to_pylist()
                bags = [bag(rows.drop_columns([WEIGHT]).slice(n, 1)) for n in range(rows.num_rows)]
                return Counter({row: weight for one, weight in zip(bags, weights, strict=True) for row in one})
            case answer:
                assert isinstance(answer, Unchanged), answer
                return Counter()

    def differ(self, model: str, before: int, after: int) -> Bag:
        """The same, counted by the rows of both."""
        old, new = bag(self.stored(model, before)), bag(self.stored(model, after))
        return Counter({row: new[row] - old[row] for row in old | new if new[row] != old[row]})

    def newest(self, model: str) -> None:
        """It was made from the sources as they are now."""
        frontier, _ = self.made_from(model)
        for name, pin in frontier.items():
            if name.startswith("raw."):
                assert pin.snapshot == DeltaTable(pin.location).version(), name


@dataclass(slots=True)
class _Judge:
    """Knows nothing of programs: it reads tables by their snapshots, and runs queries as they are written."""

    spark: SparkSession
    queries: Mapping[str, str]
    frontier: Frontier
    moment: datetime

    def frame(self, model: str) -> DataFrame:
        query = self.queries[model]
        views = {name: f"judged_{name.replace('.', '_')}" for name in _REF.findall(query)}
        for name, view in views.items():
            rows = self.frame(name) if name in self.queries else self.table(name)
            rows.createOrReplaceTempView(view)
        text = _REF.sub(lambda found: views[found[1]], query)
        return self.spark.sql(_NOW.sub(f"timestamp'{self.moment:%Y-%m-%d %H:%M:%S.%f} UTC'", text))

    def table(self, name: str) -> DataFrame:
        from pyspark.sql.types import StructType

        pin = self.frontier[name]
        assert pin.snapshot is not None
        try:
            table = DeltaTable(pin.location, version=pin.snapshot)
            read = pa.table(table.to_pyarrow_table())
        except Exception:  # what delta-rs does not read, such as deletion vectors
            return self.spark.read.format("delta").option("versionAsOf", pin.snapshot).load(pin.location)
        return self.spark.createDataFrame(read, StructType.fromJson(json.loads(table.schema().to_json())))


def bag(table: pa.Table) -> Bag:
    """The rows in the order of the columns' names, doubles to 12 digits."""
    names = sorted(table.column_names, key=str.casefold)
    return Counter(tuple(_plain(row[name]) for name in names) for row in table.to_pylist())


def _plain(value: Any) -> object:
    if isinstance(value, float):
        return f"{value + 0.0:.12g}"
    if isinstance(value, list):
        return tuple(map(_plain, value))
    if isinstance(value, dict):
        return tuple((name, _plain(own)) for name, own in value.items())
    return value


_TYPES = {
    "int": pa.int32(),
    "bigint": pa.int64(),
    "string": pa.string(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "decimal": pa.decimal128(30, 7),
    "array": pa.list_(pa.int32()),
    "struct": pa.struct([("a", pa.int32()), ("b", pa.string())]),
    "binary": pa.binary(),
}


def data_files(table: str | Path) -> list[Path]:
    return sorted(Path(table).rglob("*.parquet"))
