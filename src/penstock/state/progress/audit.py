"""What does the database know about commits that were found in a table of ours?"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from uuid import UUID

from penstock.state.database.connection import Database
from penstock.state.progress import folding
from penstock.values.intervals import EVERYTHING, IntervalSet
from penstock.values.records import GenerationHead


def owned(database: Database, tasks: Collection[UUID]) -> dict[UUID, bool]:
    """Those of `tasks` that may still be accepted, and whether they were; a commit of any other task is foreign."""
    return dict(database.rows("owned_tasks", _owned, tasks=list(tasks))) if tasks else {}


def _owned(uuid: UUID, accepted: bool) -> tuple[UUID, bool]:
    return uuid, accepted


def accept_snapshot(database: Database, generation: int, expected: int, snapshot: int) -> None:
    """Serve a newer snapshot that holds the same rows, unless somebody published meanwhile."""
    database.run("accept_same_rows", generation=generation, expected=expected, snapshot=snapshot)


def judged(database: Database, generation: GenerationHead, snapshot: int) -> None:
    """Every commit up to `snapshot` was looked at, and what somebody else changed was invalidated.

    Unless somebody published or judged since `generation` was read: the table may be another one by now.
    """
    database.run(
        "judged",
        generation=generation.no,
        accepted=generation.accepted_snapshot,
        audited=generation.audited_snapshot,
        snapshot=snapshot,
    )


@contextmanager
def holding(database: Database, generation: int) -> Iterator[IntervalSet]:
    """What the generation covers, which nobody changes meanwhile."""
    with database.transaction():
        database.one("lock_generation_head", GenerationHead, generation=generation)
        yield folding.read(database, [generation], {})[generation].covered


def forget_table(database: Database, generation: int, expected: int) -> None:
    """The table is gone, or another one lies in its place, unless somebody published meanwhile."""
    with database.transaction():
        forget(database, generation, expected)


def forget(database: Database, generation: int, expected: int) -> None:
    """In the caller's transaction."""
    if database.run("forget_table", generation=generation, expected=expected):
        database.run("forget_digests", generations=[generation], ranges=EVERYTHING)
