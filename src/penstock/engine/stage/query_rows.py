"""What does a query give for its intervals?"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from penstock.engine.rows.columns import fitted, target_schema, unchanged
from penstock.engine.rows.digest import HASH_A, HASH_B, MOST_OBSERVED, digest_of, hash_columns, sums
from penstock.engine.spark.read import PlannedRead, Reader
from penstock.engine.spark.tags import chunk_start, copies
from penstock.engine.stage.file_parts import laid_out, pieces
from penstock.engine.stage.replaced_files import Head, Target
from penstock.engine.values.files import RUN
from penstock.engine.values.job import Digest, Job, Rendering
from penstock.engine.values.positions import PositionField, position_field
from penstock.engine.values.predicate import as_position, index, inside, quoted
from penstock.errors import QueryError, SourceError
from penstock.values.intervals import Interval, IntervalSet
from penstock.values.tasks import TAG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession
    from pyspark.sql.types import StructType

SMALL_BYTES = 128 * 2**20
"""Inputs up to this size give one file per contiguous run."""
TINY_BYTES = 16 * 2**20
"""Inputs up to this size are read by one task each, so that nothing has to be shuffled at all."""
MANY_QUERIES = 4
INTERPRETED_ROWS = 500_000
"""So many queries over so few rows run sooner than code for each of them is generated and compiled."""
_OUT = "__penstock_out"
_CHUNK = "__penstock_chunk"


@dataclass(frozen=True, slots=True)
class Observed:
    """What the staging job saw pass by."""

    outside: int
    example: int | None
    digests: Mapping[Interval, Digest]


@dataclass(frozen=True, slots=True)
class NewRows:
    """Frames of the new rows, one per contiguous run of the scope."""

    parts: tuple[DataFrame, ...]
    target: Target
    large: bool
    rows_read: int
    watches: tuple[_Watch, ...]

    def observed(self) -> Observed | None:
        """What passed by; only once the parts are written."""
        if not self.watches:
            return None
        seen = [watch.seen() for watch in self.watches]
        examples = [part.example for part in seen if part.example is not None]
        digests = {chunk: digest for part in seen for chunk, digest in part.digests.items()}
        return Observed(sum(part.outside for part in seen), examples[0] if examples else None, digests)


@dataclass(frozen=True, slots=True)
class _Watch:
    observation: Observation
    chunks: tuple[Interval, ...]

    def seen(self) -> Observed:
        metrics: dict[str, object] = self.observation.get
        example = metrics["example"]
        outside = metrics["outside"] or 0
        assert isinstance(outside, int) and (example is None or isinstance(example, int))  # noqa: S101
        digests = {chunk: digest_of(metrics, f"c{number}_") for number, chunk in enumerate(self.chunks)}
        return Observed(outside, example, digests)


def new_rows(spark: SparkSession, job: Job, head: Head, reader: Reader) -> NewRows:
    """Plan the job's queries; nothing runs yet."""
    queries = ask(spark, job, reader)
    query_schema = untagged(queries.frames[0].schema, job.renderings[0])
    key_columns(job, query_schema)  # the query itself must give them, whatever the table has
    schema = target_schema(query_schema, head.schema, job.add_columns)
    target = Target(schema, output_position(schema, job))
    parts, watches = _runs(job, queries, target)
    return NewRows(parts, target, queries.large, queries.rows_read, watches)


@dataclass(frozen=True, slots=True)
class PlannedQueries:
    """The job's queries as Spark understood them, in the order of the renderings."""

    frames: tuple[DataFrame, ...]
    tiny: bool
    large: bool
    rows_read: int
    size: int | None


def ask(spark: SparkSession, job: Job, reader: Reader) -> PlannedQueries:
    """Give the queries to Spark, with settings that fit the size of what they read; nothing runs yet."""
    planned = {read.view: reader.planned(read) for rendering in job.renderings for read in rendering.inputs}
    size = _size(planned.values())
    configure(spark, size)
    tiny = size is not None and size <= TINY_BYTES
    rows = sum(read.rows for read in planned.values())
    if tiny and len(job.renderings) >= MANY_QUERIES and rows <= INTERPRETED_ROWS:
        spark.conf.set("spark.sql.codegen.wholeStage", "false")
        spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    for view, read in planned.items():
        frame = reader.frame(read)
        (frame.coalesce(1) if tiny else frame).createOrReplaceTempView(view)
    frames = tuple(spark.sql(rendering.sql) for rendering in job.renderings)
    return PlannedQueries(frames, tiny, size is None or size > SMALL_BYTES, rows, size)


def _size(planned: Iterable[PlannedRead]) -> int | None:
    sizes = [None if plan.size is None else plan.size * copies(plan.read.tags) for plan in planned]
    return None if None in sizes else int(sum(size for size in sizes if size is not None))


def configure(spark: SparkSession, size: int | None) -> None:
    """Settings of this attempt alone, by how much it reads."""
    if size is not None and size <= SMALL_BYTES:
        # every shuffle and every broadcast would be a job of its own
        spark.conf.set("spark.sql.adaptive.enabled", "false")
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
        if size <= TINY_BYTES:
            spark.conf.set("spark.sql.shuffle.partitions", "1")
    else:
        spark.conf.set("spark.sql.adaptive.advisoryPartitionSizeInBytes", str(SMALL_BYTES))
        if size is not None:
            cores = spark.sparkContext.defaultParallelism
            spark.conf.set("spark.sql.shuffle.partitions", str(max(cores, math.ceil(size / (SMALL_BYTES / 2)))))


def output_position(schema: StructType, job: Job) -> PositionField:
    try:
        return position_field(schema.json(), job.position)
    except SourceError as error:
        raise QueryError(f"{job.about}: {error.message}", hint="`position` must name a column of the query") from error


def key_columns(job: Job, schema: StructType) -> tuple[tuple[str, str], ...]:
    """The columns of the unique key as the schema spells them, and their types."""
    spelled = {field.name.casefold(): field for field in schema.fields}
    columns: list[tuple[str, str]] = []
    for name in job.unique_key:
        field = spelled.get(name.casefold())
        if field is None:
            raise QueryError(
                f"{job.about}: the query gives no column {name!r}, which is part of unique_key",
                hint=f"select it, or name others in `unique_key`: {', '.join(schema.names)}",
            )
        kind = field.dataType.jsonValue()
        if not isinstance(kind, str):
            raise QueryError(
                f"{job.about}: the column {name!r} of unique_key holds {field.dataType.typeName()} values",
                hint="a key is made of plain values: take its parts, or a hash of it",
            )
        columns.append((field.name, kind))
    return tuple(columns)


def _runs(job: Job, queries: PlannedQueries, target: Target) -> tuple[tuple[DataFrame, ...], tuple[_Watch, ...]]:
    # a few rows are compared as they are, and without a watch the job is shorter
    digested = job.deduplicate and not job.unique_key and not queries.tiny and len(job.chunks) <= MOST_OBSERVED
    # footers tell that rows lie outside, but not whose rows they are
    marked = not job.cut and (len(queries.frames) > 1 or job.renderings[0].tagged)
    members = [
        (_shaped(frame, target, rendering, cut=job.cut, marked=marked), rendering.intervals)
        for frame, rendering in zip(queries.frames, job.renderings, strict=True)
    ]
    runs = [IntervalSet.of((run,)) for run in job.scope]
    if any(not run.covers(intervals[-1]) for run, intervals in _begun(runs, members)):
        # a query that crosses gaps is run once: its rows are told apart as they are written
        runs = [job.scope]
    parts: list[DataFrame] = []
    watches: list[_Watch] = []
    for run in runs:
        frames = [frame for frame, intervals in members if intervals[0].start in run]
        rows = reduce(lambda a, b: a.union(b), frames)
        inner = tuple(chunk for chunk in sorted(job.chunks) if chunk.start in run)
        share = len(inner) / len(job.chunks)
        files = pieces(run, inner, int(queries.rows_read * share), int((queries.size or 0) * share))
        if len(files) > 1:
            rows = rows.selectExpr("*", f"{index(target.field.name, target.field.kind, files)} as {RUN}")
        rows = laid_out(rows, target.field, queries.large, job.cluster_by)
        if digested or marked:
            watched, watch = _watched(rows, target, inner if digested else (), marked)
            names = (*target.schema.names, RUN) if len(files) > 1 else target.schema.names
            rows = watched.select(*map(quoted, names))
            watches.append(watch)
        parts.append(rows)
    return tuple(parts), tuple(watches)


def _begun(
    runs: list[IntervalSet], members: list[tuple[DataFrame, tuple[Interval, ...]]]
) -> Iterator[tuple[IntervalSet, tuple[Interval, ...]]]:
    """Each member's intervals with the run that they begin in."""
    firsts = [run.edges[0] for run in runs]
    for _, intervals in members:
        yield runs[bisect_right(firsts, intervals[0].start) - 1], intervals


def _shaped(frame: DataFrame, target: Target, rendering: Rendering, *, cut: bool, marked: bool) -> DataFrame:
    """The rendering's rows in the table's columns; rows outside their interval are dropped or marked."""
    rows, within = fitted_rows(frame, target, rendering), inside_its_chunk(target.field, rendering)
    names = [quoted(name) for name in target.schema.names]
    if marked:
        return rows.selectExpr(*names, f"not coalesce({within}, false) as {_OUT}")
    kept = rows.filter(within) if cut else rows
    return kept.select(*names) if rendering.tagged else kept


def fitted_rows(frame: DataFrame, target: Target, rendering: Rendering) -> DataFrame:
    """What the query gave in the table's columns, with their tags if there are any."""
    columns = fitted(untagged(frame.schema, rendering), target.schema)
    if rendering.tagged:
        return frame.selectExpr(*columns, TAG)
    # every further step is analysed by Spark: leave out those that change nothing
    return frame if frame.columns == target.schema.names and unchanged(columns) else frame.selectExpr(*columns)


def inside_its_chunk(field: PositionField, rendering: Rendering) -> str:
    """True for a row of the rendering whose position lies in what it was made for."""
    if rendering.tagged:
        return f"{chunk_start(field, rendering.intervals)} = {TAG}"
    return inside(field.name, field.kind, rendering.scope)


def untagged(schema: StructType, rendering: Rendering) -> StructType:
    """The columns that the author's query gives."""
    from pyspark.sql.types import StructType

    return StructType([field for field in schema.fields if field.name != TAG]) if rendering.tagged else schema


def _watched(frame: DataFrame, target: Target, chunks: tuple[Interval, ...], marked: bool) -> tuple[DataFrame, _Watch]:
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    field = target.field
    out = _OUT if marked else "false"
    metrics = [f"sum(if({out}, 1L, 0L)) as outside", f"min(if({out}, {as_position(field)}, null)) as example"]
    if chunks:
        hash_a, hash_b = hash_columns(target.schema)
        number = index(field.name, field.kind, chunks)
        frame = frame.selectExpr("*", f"{number} as {_CHUNK}", f"{hash_a} as {HASH_A}", f"{hash_b} as {HASH_B}")
        for i in range(len(chunks)):
            metrics += sums(f"{_CHUNK} = {i}", f"c{i}_")
    observation = Observation()
    return frame.observe(observation, *(f.expr(metric) for metric in metrics)), _Watch(observation, chunks)
