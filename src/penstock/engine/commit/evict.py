"""Deletes rows that another program wrote into one of our tables."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

from penstock.engine.commit.publish import find_commit, prepared, publish
from penstock.engine.commit.sweep import discard
from penstock.engine.log.storage import Storage
from penstock.engine.rows.statistics import staged_file
from penstock.engine.stage.kept_rows import keep
from penstock.engine.stage.replaced_files import Head
from penstock.engine.stage.staged import Staged
from penstock.engine.values.files import DataFile, PositionColumn
from penstock.engine.values.job import HeadMoved, Job, StagedChunk
from penstock.engine.values.positions import position_field
from penstock.values.intervals import IntervalSet
from penstock.values.tasks import Commit


@dataclass(frozen=True, slots=True)
class Table:
    """One of our tables."""

    location: str
    model: str
    generation: str
    position: PositionColumn
    storage: Storage | None = None


def without(table: Table, scope: IntervalSet, audited: int) -> Staged | HeadMoved | None:
    """The files of a snapshot that meet a scope, written again without its rows, and ready to be published on it.

    None when it has no rows there. HeadMoved when it is not the newest any more: rows of ours may be there now.
    """
    job = _job(table, scope)
    head = Head.of(job, table.storage)
    if head.version != audited:
        return HeadMoved()
    if head.snapshot is None or not head.replaced:
        return None
    schema = head.snapshot.schema_json
    staged = Staged(
        job=job,
        base_version=head.version,
        schema_json=schema,
        files=(),
        kept=keep(job, head, position_field(schema, table.position), f"{job.task}/{job.attempt}", table.storage),
        replaced=tuple(file.path for file in head.replaced),
        chunks=tuple(StagedChunk(chunk, 0, None, changed=True) for chunk in job.chunks),
    )
    if sum(file.rows for file in staged.kept) == sum(_rows(table, file) for file in head.replaced):
        discard(table.location, job.task, job.attempt, table.storage)
        return None
    ready = prepared(staged, table.storage)
    if isinstance(ready, Staged) and ready.head is not None and ready.head.snapshot.version == audited:
        return ready
    discard(table.location, job.task, job.attempt, table.storage)
    return HeadMoved()


def evict(ready: Staged, storage: Storage | None = None) -> int | None:
    """Commit it; the snapshot without the rows, None when another commit is the newest by now.

    Called while the generation's row is locked, so only foreign programs can come between.
    """
    outcome = publish(ready, lambda _: None, storage)
    return outcome.snapshot if isinstance(outcome, Commit) else None


def abandon(staged: Staged, storage: Storage | None = None) -> None:
    """Remove what was staged unless it was committed."""
    job = staged.job
    if find_commit(job.location, job.task, storage) is None:  # else the commit is there, and only its answer was lost
        discard(job.location, job.task, job.attempt, storage)


def _job(table: Table, scope: IntervalSet) -> Job:
    return Job(
        model=table.model,
        location=table.location,
        position=table.position,
        chunks=scope.parts,
        renderings=(),
        cut=False,
        frontier={},
        task=uuid4(),
        attempt=1,
        generation=table.generation,
        epoch=0,
        digests={},
    )


def _rows(table: Table, file: DataFile) -> int:
    """By its footer where the log does not tell."""
    if file.rows is not None:
        return file.rows
    return staged_file(table.location, file.path, table.position, table.storage).rows
