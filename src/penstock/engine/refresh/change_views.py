"""How does Spark see the rows that changed, and those from before?"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.engine.log.snapshot import odd_path
from penstock.engine.log.storage import Storage, place
from penstock.engine.refresh.changed_files import ChangedFile
from penstock.engine.refresh.changed_rows import FewRows, ManyRows
from penstock.engine.refresh.reinitialize import Reinitialize
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
_FEED = "_change_data"


@dataclass(frozen=True, slots=True)
class ChangeViews:
    """Makes the views of one attempt."""

    spark: SparkSession
    reader: Reader
    reads: Mapping[str, InputRead]
    """By view."""
    storage: Storage | None = None

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
        read, then = self.reads[view], self._old(view, before)
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

    def unreadable(
        self, changes: Mapping[str, FewRows | ManyRows], old: Collection[str], before: RefreshedFrom
    ) -> Reinitialize | None:
        """Why Spark cannot read what it would be shown: a snapshot or a file is gone, or of a kind that it misreads."""
        for view, change in changes.items():
            answer = self._misread(view, change) if isinstance(change, ManyRows) else None
            if answer is None and view in old:
                answer = self._expired(self._old(view, before), self.reads[view])
            if answer is not None:
                return Reinitialize(answer.code, f"{self.reads[view].name}: {answer.reason}")
        return None

    def _misread(self, view: str, change: ManyRows) -> Reinitialize | None:
        planned = self.reader.planned(self.reads[view])
        columns = () if planned.snapshot is None else planned.snapshot.partition_columns
        files = change.files.all
        odd = None if planned.snapshot is None else planned.snapshot.needs_delta_reader
        odd = odd or next((why for file in files if (why := odd_path(_data_file(file), columns))), None)
        if columns and odd is not None:
            return Reinitialize("NOT_READABLE", f"many rows changed, and it has {odd}")
        return self._gone(planned.read, {file.path for file in files})

    def _expired(self, then: InputRead, read: InputRead) -> Reinitialize | None:
        planned = self.reader.planned(then)
        if planned.snapshot is None:
            return Reinitialize("HISTORY_EXPIRED", f"snapshot {then.pin.snapshot} cannot be read any more")
        live = {file.path for file in self.reader.planned(read).files}
        return self._gone(then, {file.path for file in planned.files} - live)

    def _gone(self, read: InputRead, paths: Collection[str]) -> Reinitialize | None:
        for path in sorted(paths):
            files, inside = place(read.pin.location, path, self.storage)
            if files.get_file_info(inside).type.name == "NotFound":
                return Reinitialize("HISTORY_EXPIRED", f"the file {path} is gone")
        return None

    def _old(self, view: str, before: RefreshedFrom) -> InputRead:
        read = self.reads[view]
        return replace(read, view=f"{view}{OLD}", pin=replace(read.pin, snapshot=before.frontier[read.name].snapshot))

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
            return _of_files(spark, read.pin.location, schema, files.came + files.went).union(
                _of_files(spark, f"{read.pin.location}/{_FEED}", schema, _below_feed(files.feed))
            )


def _of_files(spark: SparkSession, location: str, schema: StructType, files: Sequence[ChangedFile]) -> DataFrame:
    columns = tuple(files[0].partition or ()) if files else ()
    return through_parquet(spark, location, schema, tuple(map(_data_file, files)), columns)


def _below_feed(files: Sequence[ChangedFile]) -> tuple[ChangedFile, ...]:
    """Change files lie in a folder of their own, below which their partitions begin."""
    return tuple(replace(file, path=file.path.removeprefix(f"{_FEED}/")) for file in files)


def _data_file(file: ChangedFile) -> DataFile:
    """Rows that a deletion vector hides are read too: a row too many only computes a key too many."""
    return DataFile(file.path, file.size or 0, file.rows, None, None, None, file.partition or {})
