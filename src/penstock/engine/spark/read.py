"""How does Spark read a table at one snapshot, cut to a window?"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.engine.log import handle
from penstock.engine.log.storage import Storage, is_absolute, local_path
from penstock.engine.observe.source_log import source_log
from penstock.engine.spark.tags import tagged
from penstock.engine.values.files import DataFile, PositionColumn, TableSnapshot
from penstock.engine.values.job import InputRead, StagedFile
from penstock.engine.values.positions import position_field
from penstock.engine.values.predicate import inside, quoted
from penstock.engine.values.schemas import nullable, unknown_type
from penstock.errors import EngineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_PADDED = re.compile(r'"__CHAR_VARCHAR_TYPE_STRING"\s*:\s*"[^"]*\bchar\(')
_PATTERN = re.compile(r"[{}\[\]*?\\]")
HIDDEN = "__penstock_"
"""So begin columns of our tables that nobody is shown: keys that the query does not select."""
MOST_FILES = 2000
MOST_FILES_AFAR = 200
"""Spark looks at every path it is given, one by one; beyond so many its Delta reader is quicker."""


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """What a read will touch, known before Spark is asked."""

    read: InputRead
    snapshot: TableSnapshot | None
    """None: it has no log, or one that only Spark understands."""
    files: tuple[DataFile, ...]

    @property
    def size(self) -> int | None:
        return None if self.snapshot is None else sum(file.size for file in self.files)

    @property
    def rows(self) -> int:
        return sum(file.rows or 0 for file in self.files)


class Reader:
    """Plans and opens reads for one attempt; each snapshot is loaded once."""

    def __init__(self, spark: SparkSession, storage: Storage | None = None) -> None:
        self._spark, self._storage = spark, storage
        self._snapshots: dict[tuple[str, int, PositionColumn | None], TableSnapshot] = {}

    def planned(self, read: InputRead) -> PlannedRead:
        if read.pin.snapshot is None:
            return PlannedRead(read, None, ())
        key = (read.pin.location, read.pin.snapshot, read.position)
        snapshot = self._snapshots.get(key)
        if snapshot is None:
            try:
                loaded = source_log(read.format).snapshot(
                    read.pin.location, read.position, version=read.pin.snapshot, storage=self._storage
                )
            except handle.UnreadableLog:
                return PlannedRead(read, None, ())
            if loaded is None:
                raise EngineError(f"{read.name}: there is no {read.format.name} table at {read.pin.location}")
            if read.pin.table_id not in (None, loaded.table_id):
                raise EngineError(f"{read.name}: another table stands at {read.pin.location} than the one observed")
            snapshot = self._snapshots[key] = loaded
        window = None if read.position is None else read.window
        return PlannedRead(read, snapshot, snapshot.meeting(window))

    def frame(self, planned: PlannedRead) -> DataFrame:
        """The rows of the read, columns in table order."""
        read, snapshot = planned.read, planned.snapshot
        if snapshot is None or needs_delta_reader(snapshot, planned.files) is not None:
            frame = through_format(self._spark, read)
        else:
            schema = plain_schema(snapshot.schema_json)
            frame = through_parquet(self._spark, snapshot.location, schema, planned.files, snapshot.partition_columns)
        if read.pin.generation is not None and (hidden := [c for c in frame.columns if c.startswith(HIDDEN)]):
            frame = frame.drop(*hidden)
        if read.window is None or read.position is None:
            return frame
        field = position_field(snapshot.schema_json if snapshot else frame.schema.json(), read.position)
        cut = frame.filter(inside(field.name, field.kind, read.window))
        return cut if read.tags is None else tagged(cut, field, read.tags)


def needs_delta_reader(snapshot: TableSnapshot, files: tuple[DataFile, ...]) -> str | None:
    """Why these files cannot be handed to Spark as plain Parquet; None when they can."""
    if snapshot.needs_delta_reader is not None:
        return snapshot.needs_delta_reader
    if len(files) > (MOST_FILES if local_path(snapshot.location) is not None else MOST_FILES_AFAR):
        return f"{len(files)} files"
    if unknown_type("", json.loads(snapshot.schema_json)) is not None:
        return "column types"
    if _PADDED.search(snapshot.schema_json):
        return "columns of type char, which are padded as they are read"
    return None


def through_format(spark: SparkSession, read: InputRead) -> DataFrame:
    """The whole table as Spark's own reader of its format shows it, at its snapshot if it has any."""
    reader = spark.read.format(read.format.name)
    if read.pin.snapshot is not None and read.format.version_option is not None:
        reader = reader.option(read.format.version_option, read.pin.snapshot)
    return reader.load(spark_path(read.pin.location))


def through_parquet(
    spark: SparkSession,
    location: str,
    schema: StructType,
    files: tuple[DataFile, ...],
    partition_columns: tuple[str, ...] = (),
) -> DataFrame:
    """The rows of `files` with the schema of the table, whatever columns the files have."""
    if not files:
        return empty(spark, schema)
    reader = spark.read.schema(schema)
    if partition_columns:
        reader = reader.option("basePath", spark_path(location))
    frame = reader.parquet(*(_literally(file_path(location, file.path)) for file in files))
    return frame.select(*map(quoted, schema.names)) if partition_columns else frame


def staged_rows(spark: SparkSession, location: str, schema: StructType, files: tuple[StagedFile, ...]) -> DataFrame:
    """The rows of files that no snapshot shows yet."""
    return through_parquet(spark, location, schema, tuple(as_data_file(file) for file in files))


def as_data_file(file: StagedFile) -> DataFile:
    return DataFile(file.path, file.size, file.rows, file.low, file.high, file.nulls, {})


def empty(spark: SparkSession, schema: StructType) -> DataFrame:
    """No rows, as a constant: Spark leaves out whatever depends on it."""
    from pyspark.sql import DataFrame

    jvm = spark._jvm
    assert jvm is not None  # noqa: S101
    java_schema = spark._jsparkSession.parseDataType(schema.json())
    return DataFrame(spark._jsparkSession.createDataFrame(jvm.java.util.ArrayList(), java_schema), spark)


def plain_schema(schema_json: str) -> StructType:
    """The schema without Delta's notes, everything nullable: older files may lack newer columns."""
    from pyspark.sql.types import StructType

    plain = nullable(json.loads(schema_json))
    assert isinstance(plain, dict)  # noqa: S101
    return StructType.fromJson(plain)


def file_path(location: str, path: str) -> str:
    return spark_path(path) if is_absolute(path) else f"{spark_path(location).rstrip('/')}/{path}"


def spark_path(location: str) -> str:
    """A location as Spark spells it: a plain path when local, `s3a` for S3."""
    local = local_path(location)
    if local is not None:
        return local
    return "s3a://" + location.removeprefix("s3://") if location.startswith("s3://") else location


def _literally(path: str) -> str:
    """The path escaped, for Spark takes every path it reads for a pattern."""
    return _PATTERN.sub(r"\\\g<0>", path)
