"""What is decided about the table of a generation, beside what attempts publish?"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from uuid import UUID

from psycopg.types.json import Jsonb

from penstock.errors import StateError
from penstock.state.database.connection import Database
from penstock.state.database.wakeup import wake_cancelled
from penstock.state.progress import folding
from penstock.state.progress.resetting import Reset
from penstock.state.queue.tasks import lock_active
from penstock.values.intervals import EVERYTHING, IntervalSet
from penstock.values.records import GenerationHead


class _NothingRecorded(Exception):  # noqa: N818  a way out, not an error
    """Rolls the transaction back."""


@dataclass(frozen=True, slots=True)
class Generations:
    _database: Database

    def owned(self, tasks: Collection[UUID]) -> Mapping[UUID, bool]:
        """Those of `tasks` that may still be accepted, and whether they were; a commit of any other task is foreign."""
        return dict(self._database.rows("owned_tasks", _owned, tasks=list(tasks))) if tasks else {}

    def accept_snapshot(self, generation: int, expected: int, snapshot: int) -> None:
        """Serve a newer snapshot that holds the same rows, unless there was a publication meanwhile."""
        self._database.run("accept_same_rows", generation=generation, expected=expected, snapshot=snapshot)

    def audited(self, generation: GenerationHead, snapshot: int) -> None:
        """Every commit up to `snapshot` was looked at, and what other programs changed was invalidated.

        Unless there was a publication or an audit since `generation` was read: the table may be another one by now.
        """
        self._database.run(
            "audited",
            generation=generation.no,
            accepted=generation.accepted_snapshot,
            audited=generation.audited_snapshot,
            snapshot=snapshot,
        )

    @contextmanager
    def holding(self, generation: int) -> Iterator[IntervalSet]:
        """What the generation covers, which cannot change meanwhile."""
        with self._database.transaction():
            self._database.row("lock_generation_head", GenerationHead, generation=generation)
            yield folding.read(self._database, [generation], {})[generation].covered

    def forget_table(self, generation: int, expected: int) -> None:
        """The table is gone, or another one is in its place, unless there was a publication meanwhile."""
        with self._database.transaction():
            forget(self._database, generation, expected)

    @contextmanager
    def resetting(self, generation: int, actor: str = "rerun") -> Iterator[Reset]:
        """Lock the generation and take its tasks away; the caller empties the table and records it, or nothing is kept.

        Whoever runs one of the tasks is fenced off from the moment that this commits; until then it waits for the lock.
        """
        database = self._database
        with suppress(_NothingRecorded), database.transaction():
            head = database.row("lock_generation_head", GenerationHead, generation=generation)
            if head is None or head.state not in ("building", "current"):
                raise StateError(
                    f"generation {generation} is not worked on",
                    hint="another revision replaced it: penstock status shows what is there now",
                )
            lock_active(database, generations=[generation])
            database.run("drop_tasks", generations=[generation], state="superseded", reason="its table was emptied")
            reset = Reset(head, folding.read(database, [generation], {})[generation].covered, database)
            yield reset
            if not reset.recorded:
                raise _NothingRecorded
            database.run("audit", actor=actor, action="reset", subject=head.model, detail=Jsonb({}))
            wake_cancelled(database)


def _owned(uuid: UUID, accepted: bool) -> tuple[UUID, bool]:
    return uuid, accepted


def forget(database: Database, generation: int, expected: int) -> None:
    """In the caller's transaction."""
    if database.run("forget_table", generation=generation, expected=expected):
        database.run("forget_digests", generations=[generation], ranges=EVERYTHING)
