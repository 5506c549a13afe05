"""How does a generation begin again with an empty table?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from psycopg.types.json import Jsonb

from penstock.errors import StateError
from penstock.state.database.connection import Database
from penstock.state.database.wakeup import wake_cancelled
from penstock.state.progress import folding
from penstock.state.queue.tasks import lock_active
from penstock.values.intervals import IntervalSet
from penstock.values.records import GenerationHead

_REASON = "its table was emptied"


@dataclass(slots=True)
class Reset:
    """An open transaction that holds the generation's lock; none of its tasks is active any more."""

    generation: GenerationHead
    covered: IntervalSet
    """What the table holds until it is emptied."""
    _database: Database = field(repr=False)
    recorded: bool = False

    def record(self, snapshot: int | None) -> None:
        """The table has no rows any more, at this snapshot; None: there is no table."""
        no, database = self.generation.no, self._database
        database.run("accept_reset", generation=no, snapshot=snapshot)
        # whatever was to be computed again is gone: the table is built from the inputs as they are
        answered = database.values("drop_targets", int, generation=no)
        database.run("close_invalidations", invalidations=answered)
        first, end = self.covered.first, self.covered.end
        if first is not None and end is not None:
            # one row for all: whatever lies between the parts is not covered either
            database.run("insert_signed_rows", generation=no, kind="drop", ranges=IntervalSet((first, end)))
            self._tell(snapshot)
        self.recorded = True

    def _tell(self, snapshot: int | None) -> None:
        """Consumers must hear it now: a chunk that comes out empty equals the emptied table, and would tell nothing."""
        self._database.run(
            "insert_event",
            id=f"reset:{self.generation.id}:{snapshot}",
            model=self.generation.model,
            generation=str(self.generation.id),
            table_id=None,
            snapshot=snapshot,
            ranges=self.covered,
            told=Jsonb([]),
        )


class _NothingRecorded(Exception):  # noqa: N818  a way out, not an error
    """Rolls the transaction back."""


@contextmanager
def resetting(database: Database, generation: int, actor: str) -> Iterator[Reset]:
    """Lock the generation and take its tasks away; the caller empties the table and records it, or nothing is kept.

    Whoever runs one of the tasks is fenced off from the moment that this commits; until then it waits for the lock.
    """
    try:
        with database.transaction():
            head = database.one("lock_generation_head", GenerationHead, generation=generation)
            if head is None or head.state not in ("building", "current"):
                raise StateError(
                    f"generation {generation} is not worked on",
                    hint="another revision replaced it: penstock status shows what is there now",
                )
            lock_active(database, generations=[generation])
            database.run("drop_tasks", generations=[generation], state="superseded", reason=_REASON)
            reset = Reset(head, folding.read(database, [generation], {})[generation].covered, database)
            yield reset
            if not reset.recorded:
                raise _NothingRecorded
            database.run("audit", actor=actor, action="reset", subject=head.model, detail=Jsonb({}))
            wake_cancelled(database)
    except _NothingRecorded:
        return
