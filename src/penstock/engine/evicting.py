"""How are rows taken out of a table of ours that nobody asked for?"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

from penstock.engine.files import PositionColumn
from penstock.engine.head import Head
from penstock.engine.job import Job, Staged, StagedChunk
from penstock.engine.keeping import keep
from penstock.engine.positions import position_field
from penstock.engine.publish import FileSetChanged, publish
from penstock.engine.storage import Storage
from penstock.engine.sweeping import discard
from penstock.intervals import IntervalSet
from penstock.tasks import Commit


@dataclass(frozen=True, slots=True)
class Table:
    """One of our tables."""

    location: str
    model: str
    generation: str
    position: PositionColumn
    storage: Storage | None = None


def without(table: Table, scope: IntervalSet) -> Staged | None:
    """The files of a table that meet a scope, written again without its rows; None when none does."""
    job = Job(
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
    head = Head.of(job, table.storage)
    if head.snapshot is None or not head.replaced:
        return None
    schema = head.snapshot.schema_json
    return Staged(
        job=job,
        base_version=head.version,
        schema_json=schema,
        files=(),
        kept=keep(job, head, position_field(schema, table.position), f"{job.task}/{job.attempt}", table.storage),
        replaced=tuple(file.path for file in head.replaced),
        chunks=tuple(StagedChunk(chunk, 0, None, changed=True) for chunk in job.chunks),
    )


def evict(staged: Staged, storage: Storage | None = None) -> int | None:
    """Commit it; the snapshot without the rows, None when the files are others by now.

    Called while the generation's row is locked, so only foreign programs can come between.
    """
    outcome = publish(staged, lambda _: None, storage)
    if isinstance(outcome, Commit):
        return outcome.snapshot
    assert isinstance(outcome, FileSetChanged)  # noqa: S101
    discard(staged.job.location, staged.job.task, staged.job.attempt, storage)
    return None
