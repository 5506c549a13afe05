"""An engine whose queries run in the SQL engine inside delta-rs instead of Spark: all the rest is the real thing."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import sqlglot
from deltalake import DeltaTable, QueryBuilder, Schema
from memory_append import Rule, check_key, keys_of
from memory_tables import Rows
from whole_engine import WholeEngine

from penstock.engine.commit.publish import FileSetChanged, checkpoint, find_commit, prepared, publish
from penstock.engine.commit.sweep import discard
from penstock.engine.log.snapshot import snapshot
from penstock.engine.rows.chunk_rows import ChunkRows, differing
from penstock.engine.rows.statistics import staged_file
from penstock.engine.spark.scan import VIEW
from penstock.engine.stage.append import searched
from penstock.engine.stage.compare import Comparison
from penstock.engine.stage.key_lookup import Lookup
from penstock.engine.stage.replaced_files import Head
from penstock.engine.stage.staged import Staged
from penstock.engine.values.files import DataFile, PositionColumn, TableSnapshot
from penstock.engine.values.job import Digest, HeadMoved, InputRead, Job, Rendering, StagedChunk, StagedFile, Step
from penstock.engine.values.positions import position_field
from penstock.errors import EngineError, QueryError, SourceError
from penstock.values.intervals import Interval, IntervalSet
from penstock.values.models.source_format import SourceFormat
from penstock.values.tasks import TAG, Commit, Cost, Pin

Row = tuple[object, ...]


class ArrowEngine(WholeEngine):
    """Positions are whole numbers, and queries are written in what Spark and DataFusion have in common."""

    def __init__(self, storage: Mapping[str, str] | None = None) -> None:
        self.storage = dict(storage or {})
        self.scans: list[str] = []
        """The bounds queries that were asked, in order."""
        self.cancelled: set[tuple[UUID, int]] = set()

    def stage(self, job: Job, step: Step) -> Staged:
        self._check_wanted(job)
        rows = pa.concat_tables(_new_rows(job))
        step("computed")
        self._check_wanted(job)
        staged = _staged(job, rows, step)
        self._check_wanted(job)
        return staged

    def restage(self, staged: Staged, step: Step) -> Staged:
        """The new rows stay as they are; what to keep beside them is read and written again."""
        job = _interval_job(staged)
        self._check_wanted(job)
        head = _head(job)
        live = head.meeting(job.scope) if head else ()
        folder = f"{job.task}/{job.attempt}-{head.version if head else 'new'}"
        if job.unique_key:
            step("files written")
            return _looked_up(staged, folder)
        kept = _kept(job, live, folder)
        step("files written")
        new = pa.concat_tables([_read(job.location, file.path) for file in staged.files]) if staged.files else None
        # what the chunks held once says nothing about a table that somebody else has changed
        chunks = tuple(_chunk(job, chunk, new, live, {}) for chunk in job.chunks)
        version, replaced = head.version if head else None, tuple(file.path for file in live)
        return replace(staged, base_version=version, kept=kept, replaced=replaced, chunks=chunks)

    def prepared(self, staged: Staged) -> Staged | FileSetChanged:
        self._check_wanted(_interval_job(staged))
        return prepared(staged, self.storage)

    def publish(self, staged: Staged, step: Step) -> Commit | FileSetChanged | HeadMoved:
        self._check_wanted(_interval_job(staged))
        return publish(staged, step, self.storage)

    def find_commit(self, location: str, task: UUID) -> Commit | None:
        return find_commit(location, task, self.storage)

    def compare(self, job: Job, snapshot: int) -> Comparison:
        """Compute the job's rows again and compare them, as multisets, with what the table holds at a snapshot."""
        expected = pa.concat_tables(_new_rows(job))
        stored = pa.table(DeltaTable(job.location, version=snapshot).to_pyarrow_table())
        if job.unique_key:
            return _compared_by_key(job, expected, stored)
        missing = unexpected = 0
        differing: set[Interval] = set()
        totals = [0, 0]
        for chunk in job.chunks:
            here, there = (Counter(_plain(_within(rows, job.position.name, chunk))) for rows in (stored, expected))
            totals[0] += here.total()
            totals[1] += there.total()
            missing += (there - here).total()
            unexpected += (here - there).total()
            if here != there:
                differing.add(chunk)
        return Comparison(totals[0], totals[1], missing, unexpected, frozenset(differing), ())

    def count_rows(self, read: InputRead) -> int:
        rows = pa.table(DeltaTable(read.pin.location, version=read.pin.snapshot).to_pyarrow_table())
        assert read.position is not None
        assert read.window is not None
        return sum(_within(rows, read.position.name, part).num_rows for part in read.window)

    def scan_bounds(
        self,
        location: str,
        source_format: SourceFormat,
        position: PositionColumn,
        *,
        snapshot: int | None,
        sql: str | None,
    ) -> tuple[int | None, int | None]:
        text = sql or f"select min({position.name}) as min, max({position.name}) as max from {VIEW}"
        self.scans.append(text)
        if not source_format.has_log:
            raise SourceError(f"{source_format.name} is not for this engine")
        try:
            (bounds,) = answer(text, (InputRead(VIEW, location, Pin(location, snapshot)),)).to_pylist()
        except QueryError as error:
            raise SourceError(error.message) from error
        return bounds["min"], bounds["max"]

    def query(self, sql: str, reads: Sequence[InputRead], limits: object = None) -> list[dict[str, object]]:
        rows = answer(sqlglot.transpile(sql, read="spark", write="postgres")[0], reads).to_pylist()
        return [dict(row) for row in rows]

    def checkpoint(self, location: str) -> None:
        checkpoint(location, self.storage)

    def discard(self, job: Job, *, others: bool = False) -> None:
        discard(job.location, job.task, job.attempt, self.storage, others=others)

    def cancel(self, task: UUID, attempt: int) -> None:
        self.cancelled.add((task, attempt))

    def _check_wanted(self, job: Job) -> None:
        if (job.task, job.attempt) in self.cancelled:
            raise EngineError(f"{job.model}: the attempt was cancelled")


def answer(sql: str, reads: Sequence[InputRead]) -> pa.Table:
    """The rows of a query over pinned and cut inputs; a mistake in it is its author's."""
    builder = QueryBuilder()
    views = []
    for read in reads:
        try:
            table = DeltaTable(read.pin.location, version=read.pin.snapshot)
        except Exception as error:
            raise EngineError(f"cannot read {read.name} at {read.pin.snapshot}: {error}") from error
        builder.register(f"{read.view}_table", table)
        views.append(f"{read.view} as ({_relation(read)})")
    heading = f"with {', '.join(views)} " if views else ""
    try:
        answered = pa.table(builder.execute(f"{heading}select * from ({sql}\n)").read_all())
    except Exception as error:
        raise QueryError(str(error).split("\n", 1)[0]) from error
    return answered.cast(pa.schema([pa.field(f.name, _storable(f.type)) for f in answered.schema]))


def _storable(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_string_view(kind) else kind


def _relation(read: InputRead) -> str:
    rows = f"select * from {read.view}_table where {_condition(read)}"
    if read.tags is None or read.position is None:
        return rows
    name, tags = read.position.name, read.tags
    listed = ", ".join(f"({chunk.start}, {chunk.end})" for chunk in tags.chunks)
    reads = f"r.{name} >= c.a - {tags.before} and r.{name} < c.b + {tags.after}"
    return f"select r.*, c.a as {TAG} from ({rows}) r join (values {listed}) c(a, b) on {reads}"


def _condition(read: InputRead) -> str:
    if read.window is None or read.position is None:
        return "true"
    name = read.position.name
    return " or ".join(f"({name} >= {part.start} and {name} < {part.end})" for part in read.window) or "false"


def _new_rows(job: Job) -> list[pa.Table]:
    """What every rendering gives inside its interval; a row outside is the query's fault unless it looks beyond."""
    tables = []
    for rendering in job.renderings:
        rows = answer(rendering.sql, rendering.inputs)
        if job.position.name not in rows.column_names:
            raise QueryError(f"{job.model}: the query gives no column {job.position.name}")
        inside = _inside(rows, job.position.name, rendering)
        check_key(job, inside.column_names)
        if not job.cut and inside.num_rows != rows.num_rows:
            raise QueryError(f"{job.model}: rows lie outside of {rendering.scope}")
        tables.append(inside)
    return tables


def _inside(rows: pa.Table, position: str, rendering: Rendering) -> pa.Table:
    if not rendering.tagged:
        return pa.concat_tables(_within(rows, position, part) for part in rendering.intervals)
    parts = (
        _within(rows.filter(pc.equal(rows[TAG], part.start)), position, part).drop_columns([TAG])
        for part in rendering.intervals
    )
    return pa.concat_tables(parts)


def _within(table: pa.Table, column: str, part: Interval) -> pa.Table:
    values = pc.cast(table[column], pa.int64())
    return table.filter(pc.and_(pc.greater_equal(values, part.start), pc.less(values, part.end)))


def _head(job: Job) -> TableSnapshot | None:
    return snapshot(job.location, job.position)


def _staged(job: Job, rows: pa.Table, step: Step) -> Staged:
    head = _head(job)
    live = head.meeting(job.scope) if head and not job.unique_key else ()
    folder = f"{job.task}/{job.attempt}"
    new = [
        _written(job, f"{folder}/n{number}.parquet", _within(rows, job.position.name, part))
        for number, part in enumerate(job.scope)
    ]
    kept = _kept(job, live, folder)
    step("files written")
    staged = Staged(
        job=job,
        base_version=head.version if head else None,
        schema_json=Schema.from_arrow(rows.schema).to_json(),
        files=tuple(file for file in new if file is not None),
        kept=kept,
        replaced=tuple(file.path for file in live),
        chunks=tuple(_chunk(job, chunk, rows, live, job.digests) for chunk in job.chunks),
        cost=Cost(rows_written=rows.num_rows),
    )
    return _looked_up(replace(staged, computed=staged.files), folder) if job.unique_key else staged


def _interval_job(staged: Staged) -> Job:
    assert isinstance(staged.job, Job)
    return staged.job


def _looked_up(staged: Staged, folder: str) -> Staged:
    """An append against the table as it is now; the look-up is the real one."""
    job = _interval_job(staged)
    head = Head.of(job, None)
    types = {field["name"]: field["type"] for field in json.loads(staged.schema_json)["fields"]}
    live = searched(job, head, [(name, types[name]) for name in job.unique_key], staged.computed, None)
    field = position_field(staged.schema_json, job.position)
    lookup = Lookup(job, job.unique_key, field, folder).result(staged.computed, live)
    return replace(
        staged,
        base_version=head.version,
        on_base=True,
        files=lookup.files,
        kept=lookup.kept,
        replaced=lookup.replaced,
        chunks=lookup.chunks,
    )


def _compared_by_key(job: Job, expected: pa.Table, stored: pa.Table) -> Comparison:
    new, old = (
        Rows(tuple(table.column_names), [tuple(row.values()) for row in table.to_pylist()])
        for table in (expected, stored)
    )
    missing, unexpected = Rule.of(job).lacking(new, old, job.scope)
    at, place = new.columns.index(job.position.name), old.columns.index(job.position.name)
    positions = {row[at] for row in missing} | {row[place] for row in unexpected}
    return Comparison(
        sum(_within(stored, job.position.name, chunk).num_rows for chunk in job.chunks),
        len(set(keys_of(new.rows, new.columns, job.unique_key))),
        len(missing),
        len(unexpected),
        frozenset(c for c in job.chunks if any(isinstance(p, int) and c.start <= p < c.end for p in positions)),
        (),
    )


def _kept(job: Job, live: Sequence[DataFile], folder: str) -> tuple[StagedFile, ...]:
    """The rows outside the scope of files that straddle it, one file per gap."""
    kept = []
    for number, file in enumerate(file for file in live if not file.inside(job.scope)):
        old = _read(job.location, file.path)
        for gap, part in enumerate(job.scope.complement()):
            rows = _within(old, job.position.name, part)
            kept.append(_written(job, f"{folder}/k{number}_{gap}.parquet", rows))
        unplaced = old.filter(pc.is_null(old[job.position.name]))
        kept.append(_written(job, f"{folder}/k{number}_null.parquet", unplaced))
    return tuple(file for file in kept if file is not None)


def _read(location: str, path: str) -> pa.Table:
    return pq.ParquetFile(Path(location) / path).read()


def _written(job: Job, path: str, rows: pa.Table) -> StagedFile | None:
    if not rows.num_rows:
        return None
    target = Path(job.location) / path
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, target)
    except OSError as error:
        raise EngineError(f"cannot write {target}: {error}") from error
    return staged_file(job.location, path, job.position)


def _chunk(
    job: Job, chunk: Interval, rows: pa.Table | None, live: Sequence[DataFile], known: Mapping[Interval, Digest]
) -> StagedChunk:
    new = _digest(None if rows is None else _within(rows, job.position.name, chunk))
    meeting = [file for file in live if file.meets(IntervalSet.of([chunk]))]
    differs: IntervalSet | None = None
    if not job.deduplicate:
        changed = True
    elif not meeting:
        changed = new.rows > 0
    elif known.get(chunk) == new:
        changed = False
    else:
        old = pa.concat_tables([_read(job.location, file.path) for file in meeting])
        before, after = (
            _multiset(job, None if table is None else _within(table, job.position.name, chunk)) for table in (old, rows)
        )
        differs = differing(before, after) or None
        changed = before != after
    return StagedChunk(chunk, new.rows, new, changed, differs)


def _multiset(job: Job, rows: pa.Table | None) -> ChunkRows:
    placed = [] if rows is None else zip(rows[job.position.name].to_pylist(), _plain(rows), strict=True)
    return Counter((position, repr(row)) for position, row in placed)


def _digest(rows: pa.Table | None) -> Digest:
    hashes = [hashlib.sha256(repr(row).encode()).digest() for row in ([] if rows is None else _plain(rows))]
    return Digest(
        len(hashes),
        sum(int.from_bytes(digest[:8], "big") for digest in hashes),
        sum(int.from_bytes(digest[8:12], "big") for digest in hashes),
    )


def _plain(rows: pa.Table) -> list[Row]:
    names = sorted(rows.column_names)
    return [tuple(row[name] for name in names) for row in rows.to_pylist()]
