"""How do rows become files that each lie in one stretch of positions?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING

from pyarrow.fs import FileInfo, FileSelector, FileType

from penstock.engine.log.storage import Storage, place
from penstock.engine.rows.statistics import staged_file
from penstock.engine.spark.read import spark_path
from penstock.engine.stage.kept_rows import FILE_ROWS, GROUP_ROWS
from penstock.engine.values.files import RUN
from penstock.engine.values.job import StagedFile, TableJob
from penstock.engine.values.positions import PositionField
from penstock.engine.values.predicate import quoted
from penstock.values.intervals import Interval, IntervalSet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PIECE_ROWS, PIECE_BYTES, MOST_PIECES = FILE_ROWS, 64 * 2**20, 32
"""A file is what is made of so much input, unless an attempt would write too many files. Of more rows than a file has
several would be written, and not cut at the edges of chunks."""


def laid_out(frame: DataFrame, field: PositionField, large: bool, cluster_by: tuple[str, ...]) -> DataFrame:
    """The rows sorted for their files: one file when small, else ranges of positions."""
    parts = (RUN,) if RUN in frame.columns else ()
    order = [quoted(name) for name in dict.fromkeys((*parts, field.name, *cluster_by))]
    spread = frame.repartitionByRange(*order) if large else frame.coalesce(1)
    return spread.sortWithinPartitions(*order)


def pieces(run: IntervalSet, chunks: Sequence[Interval], rows: int, size: int | None) -> tuple[Interval, ...]:
    """How a run is cut into files, at edges of its sorted chunks: by what its queries read, for it is never less.

    Whoever replaces one chunk later writes the rest of its piece again.
    """
    wanted = max(-(-rows // PIECE_ROWS), -(-(size or 0) // PIECE_BYTES), 1)
    most = -(-len(chunks) // min(wanted, MOST_PIECES))
    intervals: list[Interval] = []
    for part in run:
        inner = [chunk for chunk in chunks if chunk.start in IntervalSet.of((part,))]
        edges = [part.start, *(inner[at].start for at in range(most, len(inner), most)), part.end]
        intervals += [Interval(start, end) for start, end in pairwise(edges)]
    return tuple(intervals)


def written(
    parts: tuple[DataFrame, ...], job: TableJob, folder: str, storage: Storage | None
) -> tuple[StagedFile, ...]:
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
    # the option of a writer reaches Parquet's own settings
    limits = {"maxRecordsPerFile": FILE_ROWS, "parquet.block.row.count.limit": GROUP_ROWS}
    writer.options(**limits).parquet(f"{spark_path(job.location).rstrip('/')}/{folder}")
    filesystem, path = place(job.location, folder, storage)
    entries = filesystem.get_file_info(FileSelector(path, recursive=True))
    names = sorted(f.path[len(path) :].strip("/") for f in entries if _is_rows(f))
    files = (staged_file(job.location, f"{folder}/{name}", job.position, storage) for name in names)
    return tuple(file for file in files if file.rows)


def _is_rows(file: FileInfo) -> bool:
    return bool(file.type == FileType.File and file.base_name.endswith(".parquet"))
