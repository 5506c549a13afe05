"""How does a generation begin again with an empty table?"""

from __future__ import annotations

from dataclasses import dataclass, field

from psycopg.types.json import Jsonb

from penstock.state.database.connection import Database
from penstock.values.intervals import IntervalSet
from penstock.values.records import GenerationHead


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
            row_counts=Jsonb([]),
        )
