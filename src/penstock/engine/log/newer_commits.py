"""Has a Delta log gone on since one of its snapshots, as cheaply as that can be asked?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from stat import S_ISREG

from penstock.engine.log.storage import Storage, first_line, local_path, place
from penstock.errors import SourceError


@dataclass(frozen=True, slots=True)
class CommitFile:
    """The file of a commit as the store knows it: one of the same number in another table would differ."""

    size: int
    changed_ns: int


def goes_on(location: str, snapshot: int, storage: Storage | None = None) -> bool:
    """Whether the log has a commit after this snapshot."""
    return _answered(location, (snapshot + 1,), storage)[0] is not None


def mark(location: str, snapshot: int, storage: Storage | None = None) -> CommitFile | None:
    """The file of this snapshot; None: it is gone, with the table or with the old part of its log."""
    return _answered(location, (snapshot,), storage)[0]


def ends_at(location: str, snapshot: int, storage: Storage | None = None) -> bool:
    """Whether the log certainly ends at this snapshot; a part of it that was cleaned away tells nothing."""
    last, next_ = _answered(location, (snapshot, snapshot + 1), storage)
    return last is not None and next_ is None


def marks(location: str, snapshots: Sequence[int], storage: Storage | None) -> list[CommitFile | None]:
    """Of these commits; None where there is no such file. An OSError when the store does not answer."""
    names = [f"{snapshot:020d}.json" for snapshot in snapshots]
    local = local_path(location)
    if local is not None:
        return [_local(f"{local}/_delta_log/{name}") for name in names]
    filesystem, folder = place(location, "_delta_log", storage)
    infos = filesystem.get_file_info([f"{folder}/{name}" for name in names])
    return [CommitFile(int(info.size or 0), int(info.mtime_ns or 0)) if info.is_file else None for info in infos]


def _local(path: str) -> CommitFile | None:
    try:
        stat = os.stat(path)  # noqa: PTH116  # a Path costs more than the question
    except (FileNotFoundError, NotADirectoryError):
        return None
    return CommitFile(stat.st_size, stat.st_mtime_ns) if S_ISREG(stat.st_mode) else None


def _answered(location: str, snapshots: Sequence[int], storage: Storage | None) -> list[CommitFile | None]:
    try:
        return marks(location, snapshots, storage)
    except OSError as error:
        raise SourceError(f"{location} does not answer: {first_line(error)}") from error
