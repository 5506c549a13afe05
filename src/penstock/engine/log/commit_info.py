"""What does a commit of ours say of itself?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from penstock.engine.log.handle import LogCommit
from penstock.engine.values.job import StagedChunk, TableJob
from penstock.values.intervals import Interval, IntervalSet
from penstock.values.tasks import ChunkResult, Commit, frontier_of, frontier_record

Note = dict[str, object]


def written(noted: Note) -> dict[str, str]:
    """A note as the metadata of a commit."""
    return {"userMetadata": json.dumps({"penstock": noted})}


def note(commit: LogCommit) -> Mapping[str, Any] | None:
    """What we wrote into the user metadata of a commit; None when the commit is not ours."""
    text = commit.info.get("userMetadata")
    try:
        noted = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return noted["penstock"] if isinstance(noted, dict) and isinstance(noted.get("penstock"), dict) else None


def of_attempt(job: TableJob, chunks: Sequence[StagedChunk]) -> Note:
    """Enough to adopt the commit if the database has no record of it."""
    moment = None if job.moment is None else job.moment.isoformat()
    return {
        **_of_table(job.task, job.model, job.generation),
        **({} if moment is None else {"moment": moment}),
        "attempt": job.attempt,
        "epoch": job.epoch,
        "chunks": [chunk_noted(chunk) for chunk in chunks],
        "frontier": frontier_record(job.frontier),
    }


def of_reset(task: UUID, model: str, generation: str, covered: IntervalSet) -> Note:
    """Enough for the audit to see what is empty now, should the database never hear of it."""
    emptied = [StagedChunk(part, 0, None, changed=True) for part in covered]
    return {
        **_of_table(task, model, generation),
        "attempt": 0,
        "reset": True,
        "chunks": [chunk_noted(chunk) for chunk in emptied],
    }


def recorded(version: int, noted: Mapping[str, Any]) -> Commit:
    """The commit of an attempt, from its note."""
    chunks = tuple(_chunk_recorded(chunk) for chunk in noted["chunks"])
    moment = datetime.fromisoformat(noted["moment"]) if "moment" in noted else None
    frontier = frontier_of(noted["frontier"])
    return Commit(version, chunks, frontier, noted["epoch"], written=True, adopted=True, moment=moment)


def chunk_noted(chunk: StagedChunk) -> list[object]:
    edges = None if chunk.differs is None else chunk.differs.edges
    return [chunk.interval.start, chunk.interval.end, chunk.rows, chunk.changed, digest_noted(chunk), edges]


def digest_noted(chunk: StagedChunk) -> tuple[int, int, int] | None:
    return None if chunk.digest is None else (chunk.digest.rows, chunk.digest.sum_a, chunk.digest.sum_b)


def _of_table(task: UUID, model: str, generation: str) -> Note:
    return {"task": str(task), "model": model, "generation": generation}


def _chunk_recorded(noted: Sequence[Any]) -> ChunkResult:
    start, end, rows, changed, digest, *later = noted
    edges = later[0] if later else None  # older notes end before it
    differs = None if edges is None else IntervalSet(tuple(edges))
    return ChunkResult(Interval(start, end), rows, changed, None if digest is None else tuple(digest), differs)
