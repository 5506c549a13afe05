"""How does Spark see the rows that changed, and those from before?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.engine.refresh.changed_files import ChangedFile
from penstock.engine.refresh.changed_rows import FewRows, ManyRows
from penstock.engine.rows.multisets import WEIGHT
from penstock.engine.spark.read import Reader, plain_schema, through_parquet
from penstock.engine.values.files import DataFile
from penstock.engine.values.job import InputRead, RefreshedFrom
from penstock.engine.values.predicate import quoted
from penstock.errors import EngineError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

CHANGES, OLD = "__changes", "__old"


@dataclass(frozen=True, slots=True)
class ChangeViews:
    """Makes the views of one attempt."""

    spark: SparkSession
    reader: Reader
    reads: Mapping[str, InputRead]
    """By view."""

    def show(self, changes: Mapping[str, FewRows | ManyRows]) -> None:
        """The changed rows of each input; none where it has not changed."""
        for view, read in self.reads.items():
            frame = _changed(self.spark, read, changes.get(view), self._schema(read))
            frame.createOrReplaceTempView(f"{view}{CHANGES}")

    def show_added(self, view: str, change: FewRows) -> None:
        """The rows that came to an input, each as often as it came."""
        weights = change.rows.column(WEIGHT).to_pylist()
        rows = change.rows.drop_columns([WEIGHT])
        if any(weight != 1 for weight in weights):
            rows = rows.take([place for place, weight in enumerate(weights) for _ in range(weight)])
        schema = self._schema(self.reads[view])
        self.spark.createDataFrame(rows, schema).createOrReplaceTempView(f"{view}{CHANGES}")

    def show_old(self, view: str, before: RefreshedFrom) -> None:
        """All rows of an input as they were."""
        read = self.reads[view]
        pin = replace(read.pin, snapshot=before.frontier[read.name].snapshot)
        then = replace(read, view=f"{view}{OLD}", pin=pin)
        frame = self.reader.frame(self.reader.planned(then))
        known = {name.casefold() for name in frame.columns}
        # a column that came since was NULL in every row
        columns = [
            quoted(field.name)
            if field.name.casefold() in known
            else f"cast(null as {field.dataType.simpleString()}) as {quoted(field.name)}"
            for field in self._schema(read).fields
        ]
        frame.selectExpr(*columns).createOrReplaceTempView(then.view)

    def _schema(self, read: InputRead) -> StructType:
        snapshot = self.reader.planned(read).snapshot
        if snapshot is None:
            raise EngineError(f"{read.name}: its columns are not known")
        return plain_schema(snapshot.schema_json)


def rows_as_view(spark: SparkSession, rows: pa.Table, view: str) -> None:
    """A few rows, given to Spark with its plan: no job is needed to read them."""
    spark.createDataFrame(rows).createOrReplaceTempView(view)


def _changed(spark: SparkSession, read: InputRead, change: FewRows | ManyRows | None, schema: StructType) -> DataFrame:
    match change:
        case None:
            return through_parquet(spark, read.pin.location, schema, ())
        case FewRows(rows):
            bare = rows.drop_columns([WEIGHT]) if WEIGHT in rows.column_names else rows
            return spark.createDataFrame(bare, schema)
        case ManyRows(files):
            everything = (*files.came, *files.went, *files.feed)
            return through_parquet(spark, read.pin.location, schema, tuple(map(_data_file, everything)))


def _data_file(file: ChangedFile) -> DataFile:
    """Rows that a deletion vector hides are read too: a row too many only computes a key too many."""
    return DataFile(file.path, file.size or 0, file.rows, None, None, None, {})
