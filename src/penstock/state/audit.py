"""What does the database know about commits that were found in a table of ours?"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from penstock.state.connection import Database


def owned(database: Database, tasks: Collection[UUID]) -> frozenset[UUID]:
    """Those of `tasks` that may still be accepted or already were; a commit of any other task is foreign."""
    return frozenset(database.values("owned_tasks", UUID, tasks=list(tasks))) if tasks else frozenset()


def accept_snapshot(database: Database, generation: int, expected: int, snapshot: int) -> None:
    """Serve a newer snapshot that holds the same rows, unless somebody published meanwhile."""
    database.run("accept_same_rows", generation=generation, expected=expected, snapshot=snapshot)
