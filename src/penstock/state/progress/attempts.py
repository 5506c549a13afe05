"""How does an attempt begin, publish and end?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime

from penstock.errors import ConflictError, ErrorClass, LeaseLostError
from penstock.state.database.connection import Database
from penstock.state.progress import folding, pins
from penstock.state.progress.publication import Publication
from penstock.state.queue.tasks import fence
from penstock.values.records import AttemptRecord, GenerationHead
from penstock.values.tasks import Cost, Frontier, Lease, PinRecord


class _NothingRecorded(Exception):  # noqa: N818  a way out, not an error
    """Rolls the transaction back."""


@dataclass(frozen=True, slots=True)
class Attempts:
    _database: Database

    def intend(self, lease: Lease, frontier: Frontier, base_snapshot: int | None, staging: str) -> int:
        """Store what the attempt is about to read; the epoch says which invalidations came before it."""
        with self._database.transaction():
            fence(self._database, lease)
            epoch = self._database.value(
                "intend",
                int,
                task=lease.task,
                attempt=lease.attempt,
                generation=lease.generation,
                inputs=pins.stored(frontier),
                base_snapshot=base_snapshot,
                staging=staging,
            )
        if epoch is None:
            raise LeaseLostError(f"attempt {lease.attempt} of task {lease.task} has ended already")
        return epoch

    @contextmanager
    def publishing(self, lease: Lease) -> Iterator[Publication]:
        """Lock the generation, fence the task, and commit what the caller recorded; nothing recorded, nothing kept."""
        with suppress(_NothingRecorded), self._database.transaction():
            head = self._database.row("lock_generation_head", GenerationHead, generation=lease.generation)
            fence(self._database, lease)
            assert head is not None  # noqa: S101  the task refers to it
            publication = Publication(head, self._database, lease)
            yield publication
            if not publication.recorded:
                raise _NothingRecorded
        with suppress(ConflictError):  # it is published; somebody else's publication can fold
            folding.fold(self._database, lease.generation)

    def completed(self, lease: Lease) -> AttemptRecord | None:
        """How this very attempt ended, for a worker that lost the answer; None while it is open."""
        return self._database.row(
            "completed_attempt", attempt_record, task=lease.task, attempt=lease.attempt, token=lease.token
        )


def attempt_record(
    *,
    task: int,
    n: int,
    worker: str,
    outcome: str | None,
    error_class: ErrorClass | None,
    error: str | None,
    snapshot: int | None,
    inputs: dict[str, PinRecord] | None,
    metrics: dict[str, float],
    started_at: datetime,
    ended_at: datetime | None,
    strategy: str | None = None,
    followed_by: str | None = None,
    log_tail: str | None = None,
) -> AttemptRecord:
    return AttemptRecord(
        task,
        n,
        worker,
        outcome,
        error_class,
        error,
        snapshot,
        pins.loaded(inputs),
        cost_of(metrics),
        started_at,
        ended_at,
        strategy,
        followed_by,
        log_tail,
    )


def cost_of(metrics: Mapping[str, float | None] | None) -> Cost:
    known = metrics or {}
    return Cost(
        spark_jobs=int(known.get("spark_jobs") or 0),
        rows_read=int(known.get("rows_read") or 0),
        rows_written=int(known.get("rows_written") or 0),
        bytes_written=int(known.get("bytes_written") or 0),
        seconds=float(known.get("seconds") or 0.0),
        keys=None if (keys := known.get("keys")) is None else int(keys),
    )
