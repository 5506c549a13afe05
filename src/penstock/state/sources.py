"""What was last seen of a source?"""

from __future__ import annotations

from dataclasses import asdict

from psycopg.types.json import Jsonb

from penstock.intervals import NOTHING, IntervalSet
from penstock.state.connection import Database
from penstock.state.records import SourceRecord


def record_source(
    database: Database, record: SourceRecord, expected_snapshot: int | None, changed: IntervalSet = NOTHING
) -> bool:
    """Keep an observation, unless somebody else has kept a later one than the one it was derived from.

    `changed` is where rows are not what they were; consumers hear of it in the same transaction.
    """
    values = asdict(record) | {"columns": Jsonb(dict(record.columns))}
    with database.transaction():
        if not database.run("record_source", **values, expected_snapshot=expected_snapshot):
            return False
        if changed:
            database.run(
                "insert_event",
                id=f"source:{record.model}:{record.table_id}:{record.snapshot}:{record.observed_at}",
                model=record.model,
                generation=None,
                table_id=record.table_id,
                snapshot=record.snapshot,
                ranges=changed,
            )
            database.run("wake")
    return True


def record_source_error(database: Database, model: str, error: str) -> None:
    """The last good bounds stay."""
    database.run("record_source_error", model=model, error=error)
