"""Which commits in a table of ours did no task of ours make, and what did they touch?"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote
from uuid import UUID

from penstock.engine.files import DataFile, PositionColumn
from penstock.engine.handle import LogCommit, TableMissing, UnreadableLog, commits, open_table
from penstock.engine.log import snapshot
from penstock.engine.positions import PositionField, position_field, position_of_text
from penstock.engine.publish import note
from penstock.engine.storage import Storage
from penstock.intervals import EVERYTHING, MAX_POSITION, MIN_POSITION, IntervalSet


@dataclass(frozen=True, slots=True)
class ForeignCommit:
    """A commit that changed rows and that no known task owns."""

    version: int
    operation: str
    scope: IntervalSet
    """Where its files hold rows; everything when that cannot be told."""
    task: UUID | None = None
    """A task of ours that nobody accepted."""


def foreign_commits(
    location: str,
    after_version: int,
    upto: int | None,
    known_tasks: Collection[UUID],
    *,
    position: PositionColumn,
    storage: Storage | None = None,
) -> tuple[ForeignCommit, ...]:
    """The foreign commits after a snapshot, oldest first. Files rewritten without a change of data are nothing."""
    table = open_table(location, storage=storage)
    if table is None:
        raise TableMissing(location)
    field = position_field(table.schema().to_json(), position)
    last = table.version() if upto is None else min(upto, table.version())
    found: list[ForeignCommit] = []
    for commit in commits(location, after_version, last, storage):
        if isinstance(commit, int):
            found.append(ForeignCommit(commit, "unknown: its file is no longer in the log", EVERYTHING))
        elif (noted := note(commit)) is not None:
            found += _unaccepted(commit.version, noted, known_tasks)
        elif touched := _touched(commit, location, position, field, storage):
            operation = str(commit.info.get("operation", "unknown"))
            found.append(ForeignCommit(commit.version, operation, IntervalSet.of(touched)))
    return tuple(found)


def _unaccepted(version: int, noted: Mapping[str, Any], known_tasks: Collection[UUID]) -> list[ForeignCommit]:
    task = UUID(noted["task"]) if "task" in noted else None
    if task is None or task in known_tasks:
        return []
    return [ForeignCommit(version, "WRITE", IntervalSet.of((c[0], c[1]) for c in noted["chunks"]), task)]


def _touched(
    commit: LogCommit, location: str, position: PositionColumn, field: PositionField, storage: Storage | None
) -> list[tuple[int, int]]:
    """The ranges of the files whose rows came or went; none when the commit only arranged rows anew."""
    adds = [add for add in commit.adds if add.get("dataChange", True)]
    removes = [unquote(str(remove["path"])) for remove in commit.removes if remove.get("dataChange", True)]
    touched = [_added(add, field) for add in adds]
    if removes:
        # Removals carry no statistics: the snapshot before still has them.
        try:
            before = snapshot(location, position, version=commit.version - 1, storage=storage)
        except UnreadableLog:
            before = None
        files = {file.path: file for file in before.files} if before is not None else {}
        touched += [_range(files.get(path)) for path in removes]
    return touched


def _added(add: Mapping[str, Any], field: PositionField) -> tuple[int, int]:
    try:
        stats = json.loads(add.get("stats") or "{}")
    except ValueError:
        return MIN_POSITION, MAX_POSITION
    low, high = (stats.get(side, {}).get(field.physical) for side in ("minValues", "maxValues"))
    start = None if low is None else position_of_text(low, field.kind)
    last = None if high is None else position_of_text(high, field.kind)
    if start is None or last is None:
        return (0, 0) if stats.get("numRecords") == 0 else (MIN_POSITION, MAX_POSITION)
    return start, last + 1


def _range(file: DataFile | None) -> tuple[int, int]:
    if file is None or file.low is None or file.high is None:
        return MIN_POSITION, MAX_POSITION
    return file.low, file.high + 1
