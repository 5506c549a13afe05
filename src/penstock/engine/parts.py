"""How do rows become files that each lie in one stretch of positions?"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyarrow.fs import FileInfo, FileSelector, FileType

from penstock.engine.files import RUN
from penstock.engine.head import Head, Target
from penstock.engine.job import Job, StagedFile
from penstock.engine.positions import PositionField
from penstock.engine.predicate import inside, quoted
from penstock.engine.read import spark_path, through_parquet
from penstock.engine.statistics import staged_file
from penstock.engine.storage import Storage, place
from penstock.intervals import IntervalSet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def laid_out(frame: DataFrame, field: PositionField, large: bool, cluster_by: tuple[str, ...]) -> DataFrame:
    """The rows sorted for their files: one file when small, else ranges of positions."""
    parts = (RUN,) if RUN in frame.columns else ()
    order = [quoted(name) for name in dict.fromkeys((*parts, field.name, *cluster_by))]
    spread = frame.repartitionByRange(*order) if large else frame.coalesce(1)
    return spread.sortWithinPartitions(*order)


def kept_parts(
    spark: SparkSession,
    job: Job,
    head: Head,
    target: Target,
    large: bool,
) -> tuple[DataFrame, ...]:
    """The rows outside the scope of the files that straddle it, one frame per gap, so that no file spans the scope."""
    if head.snapshot is None:
        return ()
    name, kind = target.field.name, target.field.kind
    parts: list[DataFrame] = []
    for gap in job.scope.complement():
        window = IntervalSet.of((gap,))
        files = tuple(file for file in head.straddlers if file.meets(window))
        if files:
            rows = through_parquet(spark, job.location, target.schema, files).filter(inside(name, kind, window))
            parts.append(laid_out(rows, target.field, large, job.cluster_by))
    without = tuple(file for file in head.straddlers if file.nulls != 0)
    if without:
        rows = through_parquet(spark, job.location, target.schema, without)
        parts.append(rows.filter(f"{quoted(name)} is null").coalesce(1))
    return tuple(parts)


def written(parts: tuple[DataFrame, ...], job: Job, folder: str, storage: Storage | None) -> tuple[StagedFile, ...]:
    """Write the parts in one Spark job and look at the files; those without rows are left out."""
    if not parts:
        return ()
    apart = any(RUN in part.columns for part in parts)
    if apart:
        parts = tuple(
            part if RUN in part.columns else part.selectExpr("*", f"-{number} as {RUN}")
            for number, part in enumerate(parts, 2)
        )
    frame = reduce(lambda a, b: a.union(b), parts)
    writer = frame.write.partitionBy(RUN) if apart else frame.write
    writer.parquet(f"{spark_path(job.location).rstrip('/')}/{folder}")
    filesystem, path = place(job.location, folder, storage)
    found = filesystem.get_file_info(FileSelector(path, recursive=True))
    names = sorted(f.path[len(path) :].strip("/") for f in found if _is_rows(f))
    files = (staged_file(job.location, f"{folder}/{name}", job.position, storage) for name in names)
    return tuple(file for file in files if file.rows)


def _is_rows(file: FileInfo) -> bool:
    return bool(file.type == FileType.File and file.base_name.endswith(".parquet"))
