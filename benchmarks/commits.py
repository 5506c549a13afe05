"""Does opening, publishing and reading a table stay as quick after very many commits?"""

from __future__ import annotations

import time
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema

from penstock.engine.commit.publish import checkpoint, publish
from penstock.engine.commit.sweep import discard, sweep
from penstock.engine.log.snapshot import snapshot
from penstock.engine.rows.statistics import staged_file
from penstock.engine.stage.kept_rows import keep
from penstock.engine.stage.replaced_files import Head
from penstock.engine.stage.staged import Staged
from penstock.engine.values.column_types import LONG
from penstock.engine.values.files import PositionColumn
from penstock.engine.values.job import Job, StagedChunk
from penstock.engine.values.positions import PositionField
from penstock.values.intervals import Interval
from penstock.values.tasks import Commit
from places import scratch
from results import arguments, percentile, report

COMMITS, EACH = 10_000, 8
"""Chunks with so many rows each, one commit after the other at the tip of the table."""
POSITION, FIELD = PositionColumn("n", "number"), PositionField("n", "n", LONG)


def job_at(root: Path, number: int) -> Job:
    return Job(
        model="bench.tip",
        location=str(root),
        position=POSITION,
        chunks=(Interval(number * 10, number * 10 + 10),),
        renderings=(),
        cut=False,
        frontier={},
        task=uuid4(),
        attempt=1,
        generation="g",
        epoch=0,
        digests={},
    )


def staged(root: Path, job: Job) -> Staged:
    """What an attempt does, with Arrow in the place of Spark; every tenth is one that comes out equal."""
    head = Head.of(job, None, gather=True)
    start, folder = job.chunks[0].start, f"{job.task}/{job.attempt}"
    rows = pa.table({"n": pa.array(range(start, start + EACH), pa.int64()), "v": pa.array([start] * EACH)})
    (root / folder).mkdir(parents=True)
    pq.write_table(rows, root / folder / "part.parquet")
    return Staged(
        job=job,
        base_version=head.version,
        schema_json=str(Schema.from_arrow(rows.schema).to_json()),
        files=(staged_file(str(root), f"{folder}/part.parquet", POSITION),),
        kept=keep(job, head, FIELD, folder),
        replaced=tuple(file.path for file in head.replaced),
        chunks=(StagedChunk(job.chunks[0], EACH, None, changed=(start // 10) % 10 != 9),),
    )


def timed_commit(root: Path, number: int) -> tuple[float, float, float]:
    """Milliseconds to publish one more, to open the table and to find the files of one chunk in it."""
    job = job_at(root, number)
    ready = staged(root, job)
    began = time.perf_counter()
    outcome = publish(ready, lambda _: None)
    assert isinstance(outcome, Commit)
    if not outcome.written:
        discard(job.location, job.task, job.attempt)
    if checkpoint(job.location):
        sweep(job.location)
    at_publish = time.perf_counter()
    DeltaTable(str(root))
    at_open = time.perf_counter()
    seen = snapshot(str(root), POSITION)
    assert seen is not None
    seen.meeting(job.scope)
    ended = time.perf_counter()
    return (at_publish - began) * 1000, (at_open - at_publish) * 1000, (ended - at_open) * 1000


def main() -> None:
    options = arguments(__doc__ or "", quick="400 commits")
    count = 400 if options.quick else COMMITS
    figures: list[list[object]] = []
    with scratch() as place:
        root = place / "table"
        took: list[tuple[float, float, float]] = []
        for number in range(count):
            took.append(timed_commit(root, number))
            if (number + 1) % (count // 10) == 0:
                table = DeltaTable(str(root))
                files = sum(1 for _ in root.rglob("*.parquet")) - sum(
                    1 for _ in (root / "_delta_log").glob("*.parquet")
                )
                last = took[-(count // 10) :]
                medians = [f"{percentile([row[at] for row in last], 0.5):.1f}" for at in range(3)]
                figures.append([number + 1, *medians, len(table.file_uris()), files])
    columns = ("commits", "publish ms", "open ms", "read ms", "live files", "files on disk")
    report(f"{EACH} rows per commit, medians of each tenth", columns, figures, options.json)


if __name__ == "__main__":
    main()
