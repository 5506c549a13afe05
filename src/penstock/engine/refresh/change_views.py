"""How does Spark see the rows that changed, and those from before?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
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


def show_changes(
    spark: SparkSession,
    reader: Reader,
    reads: Iterable[InputRead],
    changes: Mapping[str, FewRows | ManyRows],
    before: RefreshedFrom,
    old: Iterable[str],
) -> None:
    """A view of the changed rows of each input, and of what some of them held before."""
    by_view = {read.view: read for read in reads}
    for view, read in by_view.items():
        schema = _schema(reader, read)
        _changed(spark, read, changes.get(view), schema).createOrReplaceTempView(f"{view}{CHANGES}")
    for view in old:
        read = by_view[view]
        pin = replace(read.pin, snapshot=before.frontier[read.name].snapshot)
        then = replace(read, view=f"{view}{OLD}", pin=pin)
        frame = reader.frame(reader.planned(then))
        names = _schema(reader, read).names
        known = {name.casefold() for name in frame.columns}
        # a column that came since was NULL in every row
        columns = [quoted(name) if name.casefold() in known else f"null as {quoted(name)}" for name in names]
        frame.selectExpr(*columns).createOrReplaceTempView(then.view)


def rows_as_view(spark: SparkSession, rows: pa.Table, view: str) -> None:
    """A few rows, given to Spark with its plan: no job is needed to read them."""
    spark.createDataFrame(rows).createOrReplaceTempView(view)


def _schema(reader: Reader, read: InputRead) -> StructType:
    snapshot = reader.planned(read).snapshot
    if snapshot is None:
        raise EngineError(f"{read.name}: its columns are not known")
    return plain_schema(snapshot.schema_json)


def _changed(spark: SparkSession, read: InputRead, change: FewRows | ManyRows | None, schema: StructType) -> DataFrame:
    match change:
        case None:
            return through_parquet(spark, read.pin.location, schema, ())
        case FewRows(rows):
            bare = rows.drop_columns([WEIGHT]) if WEIGHT in rows.column_names else rows
            return spark.createDataFrame(bare, schema)
        case ManyRows(files):
            everything = (*files.came, *files.went, *files.feed)
            if any(file.partition for file in everything):
                raise EngineError(f"{read.name}: many rows of a partitioned table changed")
            return through_parquet(spark, read.pin.location, schema, tuple(map(_data_file, everything)))


def _data_file(file: ChangedFile) -> DataFile:
    """Rows that a deletion vector hides are read too: a row too many only computes a key too many."""
    return DataFile(file.path, file.size or 0, file.rows, None, None, None, {})
