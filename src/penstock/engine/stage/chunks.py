"""What does each chunk hold now, and does that differ from what was stored?"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.engine.log.storage import Storage, place
from penstock.engine.rows.chunk_rows import MOST_VALUES, chunk_rows, differing
from penstock.engine.rows.digest import HASH_A, HASH_B, digest_of, hash_columns, sums
from penstock.engine.spark.read import as_data_file, through_parquet
from penstock.engine.stage.query_rows import Observed
from penstock.engine.stage.replaced_files import Head, Target
from penstock.engine.values.arrow_positions import stored_positions
from penstock.engine.values.files import DataFile
from penstock.engine.values.job import Digest, Job, StagedChunk, StagedFile
from penstock.engine.values.positions import PositionField
from penstock.engine.values.predicate import index
from penstock.values.intervals import Interval, IntervalSet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# names that no model has
_IS_NEW, _NUMBER = "__penstock_is_new", "__penstock_number"


def staged_chunks(
    spark: SparkSession,
    job: Job,
    head: Head,
    target: Target,
    *,
    files: tuple[StagedFile, ...],
    seen: Observed | None,
    stored: Mapping[Interval, Digest],
    storage: Storage | None,
) -> tuple[StagedChunk, ...]:
    """Every chunk with its rows and whether they are new; `stored` says what some of them held before."""
    new = dict(seen.digests) if seen is not None else {}
    counted = not all(chunk in new for chunk in job.chunks)
    rows = (
        rows_per_chunk(job, files, target.field, storage)
        if counted
        else {chunk: new[chunk].rows for chunk in job.chunks}
    )
    different: dict[Interval, bool | None] = dict.fromkeys(job.chunks, True)
    if job.deduplicate:
        for chunk in job.chunks:
            different[chunk] = _differs(head, chunk, rows[chunk], new.get(chunk), stored.get(chunk))
    unsure = tuple(sorted(chunk for chunk in job.chunks if different[chunk] is None))
    places: dict[Interval, IntervalSet] = {}
    if few := _worth_a_look(job, head, target, files=files, different=different):
        places = _compared(job, head, target, files=files, chunks=few, storage=storage)
        different |= {chunk: bool(places[chunk]) for chunk in unsure}
    elif unsure:
        before, after = _digests(spark, job, head, target, files=files, chunks=unsure)
        different |= {chunk: before[chunk] != after[chunk] for chunk in unsure}
        new |= after
    return tuple(
        StagedChunk(chunk, rows[chunk], new.get(chunk), different[chunk] is True, places.get(chunk) or None)
        for chunk in job.chunks
    )


def rows_per_chunk(
    job: Job, files: Sequence[StagedFile], field: PositionField, storage: Storage | None
) -> dict[Interval, int]:
    """Exact counts: from the footer of a file inside one chunk, else from its position column."""
    chunks = sorted(job.chunks)
    starts = [chunk.start for chunk in chunks]
    counts = dict.fromkeys(job.chunks, 0)
    for file in files:
        assert file.low is not None and file.high is not None  # noqa: S101
        first = chunks[bisect_right(starts, file.low) - 1]
        if file.high < first.end:
            counts[first] += file.rows
            continue
        for number, count in _counted(job.location, file.path, field, starts, storage).items():
            counts[chunks[number]] += count
    return counts


def _counted(
    location: str, path: str, field: PositionField, starts: list[int], storage: Storage | None
) -> Mapping[int, int]:
    """How many rows of a file each chunk has, by its number."""
    filesystem, inside = place(location, path, storage)
    column = pq.read_table(inside, columns=[field.name], filesystem=filesystem, partitioning=None).column(0)
    ordered = pc.drop_null(stored_positions(column, field, f"{path} of {location}")).combine_chunks()
    ordered = ordered.take(pc.array_sort_indices(ordered))
    edges = [bisect_left(ordered, start, key=lambda value: value.as_py()) for start in starts[1:]]
    return {at: end - start for at, (start, end) in enumerate(pairwise([0, *edges, len(ordered)]))}


def _differs(head: Head, chunk: Interval, rows: int, new: Digest | None, stored: Digest | None) -> bool | None:
    """Whether the chunk's rows differ from the stored ones; None when only a look at the rows can tell."""
    window, meeting = IntervalSet.of((chunk,)), _met(head, chunk)
    if not meeting:
        return rows > 0
    if new is not None and stored is not None:
        return new != stored
    if all(file.inside(window) and file.rows is not None for file in meeting):
        before = sum(file.rows or 0 for file in meeting)
        if before != rows:
            return True
        if rows == 0:
            return False
    return None


def _worth_a_look(
    job: Job,
    head: Head,
    target: Target,
    *,
    files: tuple[StagedFile, ...],
    different: Mapping[Interval, bool | None],
) -> tuple[Interval, ...]:
    """The chunks to compare row by row: the unsure ones, and better those too that are known to differ.

    Where in a chunk rows differ decides which consumers are woken.
    """
    if not job.deduplicate:
        return ()
    unsure = tuple(sorted(chunk for chunk, differs in different.items() if differs is None))
    differing = tuple(
        sorted(chunk for chunk, differs in different.items() if differs is not False and _met(head, chunk))
    )
    width = len(target.schema.names)
    return next((chunks for chunks in (differing, unsure) if chunks and _few(head, files, chunks, width)), ())


def _met(head: Head, chunk: Interval) -> list[DataFile]:
    window = IntervalSet.of((chunk,))
    return [file for file in head.replaced if file.meets(window)]


def _few(head: Head, files: tuple[StagedFile, ...], chunks: tuple[Interval, ...], columns: int) -> bool:
    """Whether the rows in question are so few that looking at them here is quicker than a Spark job."""
    window = IntervalSet.of(chunks)
    counts = [file.rows for file in (*head.replaced, *map(as_data_file, files)) if file.meets(window)]
    return None not in counts and sum(count or 0 for count in counts) * columns <= MOST_VALUES


def _compared(
    job: Job,
    head: Head,
    target: Target,
    *,
    files: tuple[StagedFile, ...],
    chunks: tuple[Interval, ...],
    storage: Storage | None,
) -> dict[Interval, IntervalSet]:
    """Where each of the chunks holds other rows than before."""
    window = IntervalSet.of(chunks)
    both = []
    for side in (head.replaced, tuple(map(as_data_file, files))):
        paths = [file.path for file in side if file.meets(window)]
        both.append(chunk_rows(job.location, paths, target.schema.names, target.field, chunks, storage=storage))
    return {chunk: differing(both[0][chunk], both[1][chunk]) for chunk in chunks}


def _digests(
    spark: SparkSession,
    job: Job,
    head: Head,
    target: Target,
    *,
    files: tuple[StagedFile, ...],
    chunks: tuple[Interval, ...],
) -> tuple[dict[Interval, Digest], dict[Interval, Digest]]:
    """What those chunks held before and hold now, by one look at the files of both."""
    from pyspark.sql import functions as f

    window = IntervalSet.of(chunks)
    old = tuple(file for file in head.replaced if file.meets(window))
    now = tuple(file for file in map(as_data_file, files) if file.meets(window))
    both = _marked(spark, job, target, old, "false").union(_marked(spark, job, target, now, "true"))
    number = index(target.field.name, target.field.kind, chunks)
    hash_a, hash_b = hash_columns(target.schema)
    hashed = both.selectExpr(_IS_NEW, f"{number} as {_NUMBER}", f"{hash_a} as {HASH_A}", f"{hash_b} as {HASH_B}")
    grouped = hashed.filter(f"{_NUMBER} >= 0").groupBy(_IS_NEW, _NUMBER).agg(*map(f.expr, sums("true", "d")))
    before = dict.fromkeys(chunks, Digest(0, 0, 0))
    after = dict(before)
    for row in grouped.collect():
        (after if row[_IS_NEW] else before)[chunks[row[_NUMBER]]] = digest_of(row.asDict(), "d")
    return before, after


def _marked(spark: SparkSession, job: Job, target: Target, files: tuple[DataFile, ...], is_new: str) -> DataFrame:
    rows = through_parquet(spark, job.location, target.schema, files)
    return rows.selectExpr("*", f"{is_new} as {_IS_NEW}")
