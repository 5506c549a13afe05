"""An engine whose rows are computed by pyarrow instead of Spark: everything after the computing is the real thing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema

from penstock.engine.job import Digest, Job, Staged, StagedChunk, Step
from penstock.engine.log import snapshot
from penstock.engine.publish import FileSetChanged, find_commit, publish
from penstock.engine.statistics import staged_file
from penstock.intervals import Interval, IntervalSet
from penstock.tasks import Commit, Cost


class ArrowEngine:
    """Copies the rows of the only input inside each chunk; enough to see every step of a commit."""

    started = False
    jobs = 0

    def __init__(self, storage: Mapping[str, str] | None = None) -> None:
        self.storage = dict(storage or {})

    def stage(self, job: Job, step: Step) -> Staged:
        rows = pa.concat_tables(_rows(job, rendering.interval) for rendering in job.renderings)
        step("computed")
        return _staged(job, rows, step)

    def restage(self, staged: Staged, step: Step) -> Staged:
        return self.stage(staged.job, step)

    def publish(self, staged: Staged, step: Step) -> Commit | FileSetChanged:
        return publish(staged, step, self.storage)

    def find_commit(self, location: str, task: UUID) -> Commit | None:
        return find_commit(location, task, self.storage)

    def stop(self) -> None:
        return


def _rows(job: Job, interval: Interval) -> pa.Table:
    (read,) = job.renderings[0].inputs
    table = pa.table(DeltaTable(read.pin.location, version=read.pin.snapshot).to_pyarrow_dataset().to_table())
    return _within(table, job.position.name, IntervalSet.of([interval]))


def _within(table: pa.Table, column: str, window: IntervalSet) -> pa.Table:
    mask = pa.scalar(False)
    values = pc.cast(table[column], pa.int64())
    for part in window:
        inside = pc.and_(pc.greater_equal(values, part.start), pc.less(values, part.end))
        mask = inside if isinstance(mask, pa.Scalar) else pc.or_(mask, inside)
    return table.filter(mask) if not isinstance(mask, pa.Scalar) else table.slice(0, 0)


def _staged(job: Job, rows: pa.Table, step: Step) -> Staged:
    head = snapshot(job.location, job.position)
    live = head.meeting(job.scope) if head else ()
    folder = f"{job.task}/{job.attempt}"
    new = [_written(job, f"{folder}/n{i}.parquet", _within(rows, job.position.name, IntervalSet.of([part])))
           for i, part in enumerate(job.scope)]  # fmt: skip
    outside = job.scope.complement()
    kept = []
    for number, file in enumerate(file for file in live if not file.inside(job.scope)):
        old = pq.read_table(Path(job.location) / file.path)
        for gap, part in enumerate(outside):
            kept.append(
                _written(
                    job, f"{folder}/k{number}_{gap}.parquet", _within(old, job.position.name, IntervalSet.of([part]))
                )
            )
    step("files written")
    return Staged(
        job=job,
        base_version=head.version if head else None,
        schema_json=Schema.from_arrow(rows.schema).to_json(),
        files=tuple(file for file in new if file is not None),
        kept=tuple(file for file in kept if file is not None),
        replaced=tuple(file.path for file in live),
        chunks=tuple(_chunk(job, chunk, rows, bool(live)) for chunk in job.chunks),
        cost=Cost(rows_written=rows.num_rows),
    )


def _written(job: Job, path: str, rows: pa.Table):  # type: ignore[no-untyped-def]
    if not rows.num_rows:
        return None
    target = Path(job.location) / path
    target.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, target)
    return staged_file(job.location, path, job.position)


def _chunk(job: Job, chunk: Interval, rows: pa.Table, stored: bool) -> StagedChunk:
    mine = _within(rows, job.position.name, IntervalSet.of([chunk]))
    digest = Digest(mine.num_rows, sum(hash(tuple(row.values())) % 2**61 for row in mine.to_pylist()), 0)
    known = job.digests.get(chunk)
    return StagedChunk(chunk, mine.num_rows, digest, changed=(known != digest) if stored else mine.num_rows > 0)
