"""Which files of a table are no longer needed by any reader?"""

from __future__ import annotations

import re
from urllib.parse import unquote
from uuid import UUID

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow.fs import FileSelector, FileSystem

from penstock.engine.log.handle import open_table
from penstock.engine.log.storage import Storage, first_line, is_absolute, place
from penstock.errors import EngineError

KEPT_HOURS = 7 * 24
"""What a commit took away stays that long for readers of older snapshots; so does what no commit names."""
_RETENTION = "delta.deletedFileRetentionDuration"
_STAGED = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/[0-9]+(-[0-9]+)?/")
"""Where attempts stage: the task, the attempt and perhaps the snapshot that it was staged again on."""


def discard(location: str, task: UUID, attempt: int, storage: Storage | None = None, *, others: bool = False) -> None:
    """Remove what an attempt staged that will never publish it; with `others` what all but that attempt staged."""
    try:
        filesystem, folder = place(location, str(task), storage)
        entries = filesystem.get_file_info(FileSelector(folder, allow_not_found=True))
        gone = [entry for entry in entries if (entry.base_name.partition("-")[0] == str(attempt)) != others]
        for entry in gone:
            filesystem.delete_dir(entry.path)
        if gone and len(gone) == len(entries):
            filesystem.delete_dir(folder)
    except OSError as error:
        raise EngineError(f"cannot remove what task {task} staged and left in {location}: {error}") from error


def sweep(location: str, storage: Storage | None = None) -> int:
    """Remove old files of our attempts that are not live and that no recent commit took away; how many there were.

    Whoever reads the newest snapshot, or one that was the newest within the time they are kept, never needs them, and
    no attempt is that old. What anybody else put there is theirs to remove.
    """
    table = open_table(location, storage=storage)
    if table is None:
        return 0
    try:
        filesystem, root = place(location, "", storage)
        root = root.rstrip("/")
        old = [f"{root}/{path}" if root else path for path in _removable(table)]
        gone = [path for path in old if _delete(filesystem, path)]
        for folder in sorted({path.rpartition("/")[0] for path in gone}, reverse=True):
            _remove_if_empty(filesystem, root, folder)
    except (DeltaError, OSError) as error:
        raise EngineError(f"cannot remove old files of {location}: {first_line(error)}") from error
    return len(gone)


def _removable(table: DeltaTable) -> list[str]:
    """As the loaded snapshot tells: it holds what was taken away, and when, for as long as that is kept."""
    if _RETENTION in table.metadata().configuration:  # set by a person or program that also cleans up
        return []
    live = {unquote(path) for path in pa.table(table.get_add_actions()).column("path").to_pylist()}
    if any(map(is_absolute, live)):
        return []
    old = table.vacuum(retention_hours=KEPT_HOURS, dry_run=True, full=True)
    return [path for path in old if _STAGED.match(path) and path not in live]


def _delete(filesystem: FileSystem, path: str) -> bool:
    """False when it went before: until the next checkpoint the log still tells of it, and others sweep, too."""
    try:
        filesystem.delete_file(path)
    except FileNotFoundError:
        return False
    return True


def _remove_if_empty(filesystem: FileSystem, root: str, folder: str) -> None:
    while folder != root and not filesystem.get_file_info(FileSelector(folder, allow_not_found=True)):
        filesystem.delete_dir(folder)
        folder = folder.rpartition("/")[0]
