"""Which commits in a table of ours may be foreign, and what did they touch?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from penstock.engine.log.commit_info import note
from penstock.engine.log.handle import TableMissing, commits, open_table
from penstock.engine.log.storage import Storage
from penstock.engine.observe import changes
from penstock.engine.values.files import PositionColumn
from penstock.values.intervals import EVERYTHING, IntervalSet


@dataclass(frozen=True, slots=True)
class ForeignCommit:
    """A commit that changed rows; foreign unless it is of a task that was accepted."""

    version: int
    operation: str
    scope: IntervalSet
    """Where rows came or went; everything when that is unknown."""
    task: UUID | None = None
    """Of ours, by its note; whether it was accepted the database knows."""
    is_reset: bool = False
    """It emptied the table; a reset has no task that could be accepted."""


def foreign_commits(
    location: str,
    after_version: int,
    upto: int | None,
    *,
    position: PositionColumn | None,
    storage: Storage | None = None,
) -> tuple[ForeignCommit, ...]:
    """The commits after a snapshot, oldest first. Files rewritten without a change of data are nothing."""
    table = open_table(location, storage=storage)
    if table is None:
        raise TableMissing(location)
    last = table.version() if upto is None else min(upto, table.version())
    foreign: list[ForeignCommit] = []
    for commit in commits(location, after_version, last, storage):
        if isinstance(commit, int):
            foreign.append(ForeignCommit(commit, "unknown: its file is no longer in the log", EVERYTHING))
        elif (noted := note(commit)) is not None:
            foreign += _of_task(commit.version, noted)
        elif touched := _touched(location, position, commit.version, storage):
            foreign.append(ForeignCommit(commit.version, str(commit.info.get("operation", "unknown")), touched))
    return tuple(foreign)


def _of_task(version: int, noted: Mapping[str, Any]) -> list[ForeignCommit]:
    if "task" not in noted:
        return []
    scope = IntervalSet.of((chunk[0], chunk[1]) for chunk in noted["chunks"])
    return [ForeignCommit(version, "WRITE", scope, UUID(noted["task"]), is_reset=bool(noted.get("reset")))]


def _touched(location: str, position: PositionColumn | None, version: int, storage: Storage | None) -> IntervalSet:
    """Where rows came or went with a commit; nothing when it only arranged rows anew."""
    return changes.log_changes(location, position, version - 1, version, storage=storage).ranges
