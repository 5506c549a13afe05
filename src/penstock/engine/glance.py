"""Has a Delta log gone on since one of its snapshots, as cheaply as that can be asked?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.engine.storage import Storage, first_line, place
from penstock.errors import SourceError

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo


@dataclass(frozen=True, slots=True)
class Mark:
    """The file of a commit as the store knows it: one of the same number in another table would differ."""

    size: int
    changed_ns: int

    @classmethod
    def of(cls, info: FileInfo) -> Mark | None:
        """None: there is no such file."""
        return cls(int(info.size or 0), int(info.mtime_ns or 0)) if info.is_file else None


def goes_on(location: str, snapshot: int, storage: Storage | None = None) -> bool:
    """Whether the log has a commit after this snapshot."""
    return bool(_info(location, snapshot + 1, storage).is_file)


def mark(location: str, snapshot: int, storage: Storage | None = None) -> Mark | None:
    """The file of this snapshot; None: it is gone, with the table or with the old part of its log."""
    return Mark.of(_info(location, snapshot, storage))


def _info(location: str, snapshot: int, storage: Storage | None) -> FileInfo:
    try:
        filesystem, inside = place(location, f"_delta_log/{snapshot:020d}.json", storage)
        return filesystem.get_file_info(inside)
    except OSError as error:
        raise SourceError(f"{location} does not answer: {first_line(error)}") from error
