"""An observation of the source that the stories of the database are about."""

from __future__ import annotations

from datetime import UTC, datetime

from penstock.values.records import SourceRecord


def record(snapshot: int) -> SourceRecord:
    now = datetime.now(UTC)
    return SourceRecord(
        "raw.events", "table-1", snapshot, "hash", {"ts": "long"}, 0, 100, 1000, 10, None, None, now, None
    )
