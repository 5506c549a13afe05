"""What may be forgotten?"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.state.database.connection import Database

STEP_ROWS = 1000
"""How many rows one transaction looks at: nothing waits long for it."""


@dataclass(frozen=True, slots=True)
class _Tasks:
    last: int | None
    removed: int


def prune(database: Database, retention_seconds: float, step_rows: int = STEP_ROWS) -> int:
    """Remove what ended longer ago than that and says nothing about what is there now; how many tasks.

    What generations hold, from which inputs each position was made and which scopes are held stay as they were.
    """
    _prune_coverage(database, retention_seconds, step_rows)
    removed = _prune_tasks(database, retention_seconds, step_rows)
    database.run("close_invalidations", invalidations=None)
    for name in ("prune_events", "prune_invalidations"):
        while database.run(name, retention_seconds=retention_seconds, most=step_rows) == step_rows:
            continue
    return removed


def _prune_coverage(database: Database, retention_seconds: float, step_rows: int) -> None:
    overlapped = database.values("overlapped_rows", int, retention_seconds=retention_seconds)
    for at in range(0, len(overlapped), step_rows):
        with database.transaction():
            frontiers = database.values("prune_coverage", int, rows=overlapped[at : at + step_rows])
            if frontiers:
                database.run("prune_frontiers", frontiers=frontiers)


def _prune_tasks(database: Database, retention_seconds: float, step_rows: int) -> int:
    after: int | None = 0
    removed = 0
    while after is not None:
        [seen] = database.rows("prune_tasks", _Tasks, after=after, most=step_rows, retention_seconds=retention_seconds)
        removed += seen.removed
        after = seen.last
    return removed
