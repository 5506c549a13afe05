"""What does the log alone tell of the commits between two snapshots?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.engine.log.handle import FeatureUnsupported, SnapshotGone, TableMissing, commits, open_table
from penstock.engine.log.snapshot import PLAIN_FEATURES, read
from penstock.engine.log.storage import Storage
from penstock.engine.refresh.changed_files import ChangedFile, ChangedFiles, FileChanges
from penstock.engine.refresh.compared_columns import Columns, table_columns
from penstock.engine.refresh.reinitialize import CannotTell, CommitRange, Reinitialize

if TYPE_CHECKING:
    from deltalake import DeltaTable

MOST_COMMITS = 2000
_JUDGED_BY_COLUMN = {"typeWidening", "typeWidening-preview", "variantType", "variantType-preview"}
"""Rows of columns that make no use of them look as usual; delta-rs also names some that no column uses."""
_MAPPING = "delta.columnMapping.mode"


@dataclass(frozen=True, slots=True)
class ChangeLog:
    """The files that changed rows, and the schemas that the table had one after the other."""

    commit_range: CommitRange
    files: ChangedFiles
    schemas: tuple[Columns, ...]
    """The last is that of the newer snapshot; the one before the first commit is there if any commit set another."""
    table: DeltaTable = field(repr=False)
    """At the newer snapshot."""


def change_log(
    location: str, table_id: str, after: int, upto: int, storage: Storage | None = None
) -> ChangeLog | Reinitialize:
    """What the commits after one snapshot up to another say, of the table with that id."""
    try:
        return _change_log(CommitRange(location, table_id, after, upto), storage)
    except CannotTell as finding:
        return finding.answer


def _change_log(commit_range: CommitRange, storage: Storage | None) -> ChangeLog:
    after, upto = commit_range.after, commit_range.upto
    table = _opened(commit_range, upto, storage)
    found = str(table.metadata().id)
    if found != commit_range.table_id:
        raise commit_range.replaced(found)
    if upto < after:
        raise commit_range.rewound()
    if upto - after > MOST_COMMITS:
        raise commit_range.too_many(MOST_COMMITS)
    if (why := _unreadable(table)) is not None:
        raise commit_range.not_readable(why)
    changes, schemas = FileChanges(), [_columns(table)]
    for commit in commits(commit_range.location, after, upto, storage):
        if isinstance(commit, int):
            raise commit_range.no_commit(commit)
        changes.take(commit)
        if commit.metadata is not None:
            if _is_mapped(commit.metadata.get("configuration")):
                raise commit_range.not_readable("its columns were mapped")
            schemas.insert(-1, table_columns(str(commit.metadata["schemaString"])))
    if len(schemas) > 1:
        before = _opened(commit_range, after, storage)
        if _is_mapped(before.metadata().configuration):
            raise commit_range.not_readable("its columns were mapped")
        schemas.insert(0, _columns(before))
    files = _described(commit_range, changes.changed(), bool(table.metadata().partition_columns), storage)
    return ChangeLog(commit_range, files, tuple(schemas), table)


def _opened(commit_range: CommitRange, version: int, storage: Storage | None) -> DeltaTable:
    try:
        table = open_table(commit_range.location, version=version, storage=storage)
    except FeatureUnsupported as error:
        raise commit_range.not_readable(error.why) from error
    except SnapshotGone as error:
        raise commit_range.no_snapshot(version) from error
    if table is None:  # delta-rs says so of a snapshot too when its log was cleaned
        if open_table(commit_range.location, storage=storage) is None:
            raise TableMissing(commit_range.location)
        raise commit_range.no_snapshot(version)
    return table


def _columns(table: DeltaTable) -> Columns:
    return table_columns(table.schema().to_json())


def _unreadable(table: DeltaTable) -> str | None:
    """Why a file of the table does not look as its schema says."""
    if _is_mapped(table.metadata().configuration):
        return "its columns are mapped"
    unknown = set(table.protocol().reader_features or ()) - PLAIN_FEATURES - _JUDGED_BY_COLUMN
    return f"the table feature {min(unknown)}" if unknown else None


def _is_mapped(configuration: object) -> bool:
    return isinstance(configuration, Mapping) and configuration.get(_MAPPING, "none") != "none"


def _described(
    commit_range: CommitRange, files: ChangedFiles, partitioned: bool, storage: Storage | None
) -> ChangedFiles:
    """What a removal leaves out is known of the file from before: its size, and the partition it is in."""

    def lacks(file: ChangedFile) -> bool:
        return file.size is None or (partitioned and not file.partition)

    if not any(lacks(file) for file in files.went):
        return files
    before = read(_opened(commit_range, commit_range.after, storage), commit_range.location, None)
    known = {file.path: file for file in before.files}
    went = []
    for file in files.went:
        own = known.get(file.path)
        if own is None and (file.size is None or file.partition is None):
            raise commit_range.not_readable(f"its log does not describe {file.path}")
        went.append(file if own is None else replace(file, size=own.size, partition=own.partition))
    return replace(files, went=tuple(went))
