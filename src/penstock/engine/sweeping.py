"""Which files of a table can nobody read any more?"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from urllib.parse import unquote
from uuid import UUID

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType

from penstock.engine.handle import commit_at, open_table
from penstock.engine.storage import Storage, is_absolute, place
from penstock.errors import EngineError

KEPT_SECONDS = 7 * 86_400
"""What a commit took away stays that long for readers of older snapshots; so does what no commit names."""


def discard(location: str, task: UUID, attempt: int, storage: Storage | None = None, *, others: bool = False) -> None:
    """Remove what an attempt staged that will never publish it; with `others` what all but that attempt staged."""
    try:
        filesystem, folder = place(location, str(task), storage)
        found = filesystem.get_file_info(FileSelector(folder, allow_not_found=True))
        gone = [one for one in found if (one.base_name.partition("-")[0] == str(attempt)) != others]
        for one in gone:
            filesystem.delete_dir(one.path)
        if gone and len(gone) == len(found):
            filesystem.delete_dir(folder)
    except OSError as error:
        raise EngineError(f"cannot remove what task {task} staged and left in {location}: {error}") from error


def sweep(location: str, storage: Storage | None = None, *, kept_seconds: int = KEPT_SECONDS) -> int:
    """Remove old files that are not live and that no recent commit took away; how many there were.

    Whoever reads the newest snapshot, or one that was the newest within the time they are kept, never needs them, and
    no attempt is that old.
    """
    oldest = datetime.fromtimestamp(time.time() - kept_seconds, UTC)
    try:
        filesystem, root = place(location, "", storage)
        root = root.rstrip("/")
        found = filesystem.get_file_info(FileSelector(root, recursive=True))
        old = {one.path[len(root) :].lstrip("/"): one for one in found if _is_old(one, oldest)}
        old = {path: one for path, one in old.items() if not path.startswith(("_", "."))}
        needed = _needed(location, oldest, storage) if old else None
        if needed is None:
            return 0
        gone = [one for path, one in old.items() if path not in needed]
        for one in gone:
            filesystem.delete_file(one.path)
        for folder in sorted({one.path.rpartition("/")[0] for one in gone} - {root}, reverse=True):
            _remove_if_empty(filesystem, root, folder)
    except OSError as error:
        raise EngineError(f"cannot remove old files of {location}: {error}") from error
    return len(gone)


def _is_old(file: FileInfo, oldest: datetime) -> bool:
    return bool(file.type == FileType.File and file.mtime is not None and file.mtime < oldest)


def _needed(location: str, oldest: datetime, storage: Storage | None) -> set[str] | None:
    """The live files, and those that commits since then took away; None when that cannot be told."""
    table = open_table(location, storage=storage)
    if table is None:
        return None
    needed = {unquote(path) for path in pa.table(table.get_add_actions()).column("path").to_pylist()}
    for version in range(table.version(), -1, -1):
        commit = commit_at(location, version, storage)
        if commit is None:
            return None
        at = commit.info.get("timestamp")
        if isinstance(at, int) and at < oldest.timestamp() * 1000:
            break
        needed |= {unquote(str(one["path"])) for one in commit.removes}
    return None if any(map(is_absolute, needed)) else needed


def _remove_if_empty(filesystem: FileSystem, root: str, folder: str) -> None:
    while folder != root and not filesystem.get_file_info(FileSelector(folder, allow_not_found=True)):
        filesystem.delete_dir(folder)
        folder = folder.rpartition("/")[0]
