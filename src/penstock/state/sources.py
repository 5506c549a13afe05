"""What was last seen of a source?"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass

from psycopg.types.json import Jsonb

from penstock.state.database.connection import Database, storable
from penstock.state.progress import row_counts
from penstock.values.changes import UNCHANGED, Changed
from penstock.values.records import SourceRecord

SCAN_SECONDS = 600.0
"""A scan that takes longer may have been lost with its worker."""


@dataclass(frozen=True, slots=True)
class Sources:
    _database: Database

    def record(
        self,
        record: SourceRecord,
        expected_snapshot: int | None,
        changed: Changed = UNCHANGED,
        *,
        expected_table: str | None = None,
    ) -> bool:
        """Keep an observation, unless something else is stored by now than what it was derived from, `expected_…`.

        `changed` is where rows are not what they were; consumers hear of it in the same transaction.
        """
        database = self._database
        values = asdict(record) | {"columns": Jsonb(dict(record.columns))}
        with database.transaction():
            if not database.run(
                "record_source", **values, expected_snapshot=expected_snapshot, expected_table=expected_table
            ):
                return False
            if changed:
                database.run(
                    "insert_event",
                    id=f"source:{record.model}:{record.table_id}:{record.snapshot}:{record.observed_at}",
                    model=record.model,
                    generation=None,
                    table_id=record.table_id,
                    snapshot=None if _went_back(record, expected_snapshot) else record.snapshot,
                    ranges=changed.ranges,
                    row_counts=row_counts.stored([changed.rows]),
                )
                database.run("wake")
        return True

    def record_error(self, model: str, error: str) -> None:
        """The last good bounds stay."""
        self._database.run("record_source_error", model=model, error=storable(error))

    def claim_looks(self, every_seconds: Mapping[str, float]) -> frozenset[str]:
        """Those of these sources that were not observed within their period: the caller is to observe them now."""
        if not every_seconds:
            return frozenset()
        return frozenset(self._database.values("claim_looks", str, every_seconds=Jsonb(dict(every_seconds))))

    def note_looks(self, models: Collection[str]) -> None:
        """They were all just looked at: what is known of those without an error is all there is."""
        self._database.run("note_looks", models=sorted(models))

    def ask_scan(self, models: Collection[str]) -> None:
        """Their bounds cannot be had from a log: a worker is to ask Spark."""
        if self._database.run("ask_scan", models=sorted(models)):
            self._database.run("wake")

    def claim_scans(self, models: Collection[str]) -> frozenset[str]:
        """Those of these sources that the caller is to scan now."""
        return frozenset(self._database.values("claim_scans", str, models=sorted(models), seconds=SCAN_SECONDS))


def _went_back(record: SourceRecord, expected_snapshot: int | None) -> bool:
    """Older files of the same table were put back: its numbers no longer tell what is newer."""
    return record.snapshot is not None and expected_snapshot is not None and record.snapshot < expected_snapshot
