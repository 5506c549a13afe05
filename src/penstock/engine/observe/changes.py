"""Which rows of a table changed between two snapshots?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.engine.log.handle import FeatureUnsupported, LogCommit, SnapshotGone, TableMissing, commits, open_table
from penstock.engine.log.snapshot import snapshot
from penstock.engine.log.storage import Storage
from penstock.engine.observe.deletion_vectors import first_position
from penstock.engine.observe.file_rows import LogScan, ReadBudget, added_file, removed_file, span
from penstock.engine.observe.rewrites import Rewrite, delete_changes, feed_changes, file_changes
from penstock.engine.rows.changed_ranges import ChangedRanges
from penstock.engine.values.files import DataFile, PositionColumn
from penstock.engine.values.positions import position_field
from penstock.errors import SourceError
from penstock.values.changes import ANYTHING, NO_CHANGES, UNCHANGED, CommitChanges, LogChanges
from penstock.values.intervals import EVERYTHING, IntervalSet

_REPLACING = ("TRUNCATE", "WRITE", "RESTORE", "UPDATE", "MERGE", "CREATE", "REPLACE", "OVERWRITE")
"""Operations that mean to change the table; when they leave only removed files behind, they still do."""
MOST_COMMITS = 1000
"""Nobody reads more of them only to learn whether rows came back: after so many they may have."""
_REWINDING = ("TRUNCATE", "RESTORE", "CREATE", "REPLACE", "OVERWRITE")


_ANYTHING = CommitChanges(ANYTHING)


def log_changes(
    location: str,
    position: PositionColumn | None,
    after: int,
    upto: int,
    *,
    consumed: IntervalSet = EVERYTHING,
    storage: Storage | None = None,
) -> LogChanges:
    """What the commits after one snapshot up to another changed; without a position all or nothing.

    Files that do not meet `consumed` are not opened and count with their whole range, as do those that are gone. A
    position may be told although its rows are the same, but never the other way round.
    """
    if position is None:
        return _lookup_changes(location, after, upto, storage)
    walk: _Walk | None = None
    changes: list[CommitChanges] = []
    for commit in commits(location, after, upto, storage):
        if isinstance(commit, int):
            changes.append(_ANYTHING)
            if walk is not None:
                walk.live = None
            continue
        if commit.metadata is None and not (commit.adds or commit.removes or commit.cdc):
            continue
        walk = walk or _Walk.begun(location, position, (after, upto), consumed, storage)
        if walk is None:
            return LogChanges((_ANYTHING,))
        changes.append(walk.take(commit))
    return LogChanges(tuple(change for change in changes if change.changed))


def rewinds(location: str, after: int, upto: int, storage: Storage | None = None) -> bool:
    """Whether rows that had left may be back, by a commit after one snapshot up to another.

    A commit whose file is gone may have brought them, and so may one of too many to be read.
    """
    if upto - after > MOST_COMMITS:
        return True
    return any(isinstance(commit, int) or _rewinds(commit) for commit in commits(location, after, upto, storage))


def _lookup_changes(location: str, after: int, upto: int, storage: Storage | None) -> LogChanges:
    """All or nothing, of a table without positions."""
    columns: dict[str, str] | None = None
    for commit in commits(location, after, upto, storage):
        if isinstance(commit, int) or _changes_rows(commit):
            return LogChanges((_ANYTHING,))
        if commit.metadata is not None:
            try:
                columns = columns or _columns_at(location, after, storage)
            except (FeatureUnsupported, SnapshotGone):
                return LogChanges((_ANYTHING,))
            now = _columns(str(commit.metadata["schemaString"]))
            if not _keeps(columns, now):
                return LogChanges((_ANYTHING,))
            columns = now
    return NO_CHANGES


@dataclass(slots=True)
class _Walk:
    """Goes from commit to commit and remembers the files that it met."""

    scan: LogScan
    own: LogScan
    """For the first row, with a budget of its own: looking for it and for changes take nothing from each other."""
    position: PositionColumn
    after: int
    upto: int
    schema: str | None
    """None: the snapshot to begin with cannot be read any more."""
    columns: frozenset[str]
    """As the files name them."""
    added: dict[str, DataFile] = field(default_factory=dict)
    _before: dict[str, DataFile] | None = None
    live: dict[str, DataFile] | None = None
    """None: nobody has asked yet."""

    @classmethod
    def begun(
        cls,
        location: str,
        position: PositionColumn,
        snapshots: tuple[int, int],
        consumed: IntervalSet,
        storage: Storage | None,
    ) -> _Walk | None:
        """None when the column of the positions came later: nothing of before can be told by it."""
        after, upto = snapshots
        try:
            table = open_table(location, version=after, storage=storage)
        except (FeatureUnsupported, SnapshotGone):
            table = None
        schema = None if table is None else table.schema().to_json()
        table = table or open_table(location, version=upto, storage=storage)
        if table is None:
            raise TableMissing(location)
        try:
            field_ = position_field(schema or table.schema().to_json(), position)
        except SourceError:
            return None
        scan = LogScan(location, field_, position.axis, consumed, storage, ReadBudget())
        columns = frozenset(_columns(table.schema().to_json()).values())
        return cls(scan, replace(scan, budget=ReadBudget()), position, after, upto, schema, columns)

    def take(self, commit: LogCommit) -> CommitChanges:
        """What a commit changed."""
        known = commit.metadata is None or self._keeps_its_columns(commit.metadata)
        self._arrange(commit)
        adds = [add for add in commit.adds if add.get("dataChange", True)]
        removes = [remove for remove in commit.removes if remove.get("dataChange", True)]
        rewinds = _rewinds(commit)
        if not known:
            return replace(_ANYTHING, rewinds=rewinds, first=self._first_if_told(commit.version) if rewinds else None)
        if not adds and not removes and not commit.cdc:
            return CommitChanges(UNCHANGED)
        rewrite = Rewrite(
            commit.version,
            tuple(self._removed(remove) for remove in removes),
            tuple(added_file(add, self.scan.field) for add in adds),
            self.columns,
        )
        feed = [added_file(action, self.scan.field) for action in commit.cdc] if self.scan.consumed else []
        changes = ChangedRanges(self.position.axis)
        fed = bool(feed) and feed_changes(self.scan, feed, self.columns, changes)
        if not _only_deletes(commit, adds, removes):
            if not fed:
                file_changes(self.scan, rewrite, changes)
            return CommitChanges(
                changes.changed(), rewinds=rewinds, first=self._first(commit.version) if rewinds else None
            )
        lowest = [reach[0] for file in rewrite.removed if (reach := span(self.own, file)) is not None]
        first = self._first(commit.version, min(lowest, default=None))
        taken = changes.changed().ranges if fed else delete_changes(self.scan, rewrite, first, changes)
        return CommitChanges(changes.changed(), only_deletes=True, taken=taken, first=first)

    def _first(self, version: int, enough: int | None = None) -> int | None:
        """The lowest position after a commit; of a snapshot that is gone, that of the last one."""
        if self.live is None:
            try:
                self.live = self._files_at(version)
            except (FeatureUnsupported, SnapshotGone):
                return first_position(self.own, self.upto, self._files_at(self.upto).values(), enough)
        return first_position(self.own, version, self.live.values(), enough)

    def _first_if_told(self, version: int) -> int | None:
        try:
            return self._first(version)
        except SourceError:
            return None  # the columns are others now, perhaps without one for positions

    def _arrange(self, commit: LogCommit) -> None:
        """Remember the files of a commit; those that were only arranged anew may be removed by a later one."""
        new = {file.path: file for file in (added_file(add, self.scan.field) for add in commit.adds)}
        if self.live is not None:
            for remove in commit.removes:
                self.live.pop(added_file(remove, self.scan.field).path, None)
            self.live.update(new)
        self.added.update(new)

    def _removed(self, remove: Mapping[str, Any]) -> DataFile:
        own = added_file(remove, self.scan.field)
        known = self.added.get(own.path)
        if known is None and (own.low is None or own.high is None):
            known = self._files_before().get(own.path)
        return removed_file(remove, known, self.scan.field)

    def _files_before(self) -> Mapping[str, DataFile]:
        """Removals carry no statistics: the snapshot to begin with has those of the files that were live then."""
        if self._before is None:
            try:
                self._before = self._files_at(self.after)
            except (FeatureUnsupported, SnapshotGone):
                self._before = {}
        return self._before

    def _files_at(self, version: int) -> dict[str, DataFile]:
        seen = snapshot(self.scan.location, self.position, version=version, storage=self.scan.storage)
        return {} if seen is None else {file.path: file for file in seen.files}

    def _keeps_its_columns(self, metadata: Mapping[str, Any]) -> bool:
        """Whether every column there was is still there, under its name; new columns change no row."""
        old, self.schema = self.schema, str(metadata["schemaString"])
        now = _columns(self.schema)
        self.columns = frozenset(now.values())
        try:
            field_ = position_field(self.schema, self.position)
        except SourceError:
            return False
        if field_ != self.scan.field:
            self.scan, self.own = (replace(scan, field=field_) for scan in (self.scan, self.own))
            self.live = None
            return False
        return old is not None and _keeps(_columns(old), now)


def _changes_rows(commit: LogCommit) -> bool:
    return bool(commit.cdc) or any(action.get("dataChange", True) for action in (*commit.adds, *commit.removes))


def _only_deletes(commit: LogCommit, adds: list[dict[str, object]], removes: list[dict[str, object]]) -> bool:
    operation = str(commit.info.get("operation", "")).upper()
    return operation == "DELETE" or (bool(removes) and not adds and not operation.startswith(_REPLACING))


def _rewinds(commit: LogCommit) -> bool:
    operation = str(commit.info.get("operation", "")).upper()
    parameters = commit.info.get("operationParameters")
    mode = (
        str(parameters.get("mode") or parameters.get("outputMode")).upper() if isinstance(parameters, Mapping) else ""
    )
    return operation.startswith(_REWINDING) or mode in ("OVERWRITE", "COMPLETE")


def _keeps(before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    return all(now.get(name) == physical for name, physical in before.items())


def _columns_at(location: str, version: int, storage: Storage | None) -> dict[str, str]:
    table = open_table(location, version=version, storage=storage)
    if table is None:
        raise TableMissing(location)
    return _columns(table.schema().to_json())


def _columns(schema_json: str) -> dict[str, str]:
    """The name that the files have for each column."""
    fields = json.loads(schema_json)["fields"]
    return {
        column["name"]: column.get("metadata", {}).get("delta.columnMapping.physicalName", column["name"])
        for column in fields
    }
