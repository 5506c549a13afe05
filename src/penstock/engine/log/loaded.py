"""Is the head of a table's log still the one that was loaded?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.engine.log.handle import open_table
from penstock.engine.log.newer_commits import CommitFile, marks
from penstock.engine.log.snapshot import read
from penstock.engine.log.storage import Storage
from penstock.engine.values.files import PositionColumn, TableSnapshot

if TYPE_CHECKING:
    from deltalake import DeltaTable

ROUNDS = 4
"""A head that moves each time while it is loaded is left to whoever holds the lock."""


@dataclass(frozen=True, slots=True)
class LoadedHead:
    """The newest snapshot of a table, read before the lock is taken."""

    snapshot: TableSnapshot
    table: DeltaTable = field(repr=False)
    mark: CommitFile
    storage: Storage | None = field(repr=False)

    def is_head(self) -> bool:
        """Two look-ups, at any size of the table: its last commit is there as it was, and none follows."""
        version = self.snapshot.version
        mark, follows = marks(self.snapshot.location, (version, version + 1), self.storage)
        return mark == self.mark and follows is None


def load_head(
    location: str, position: PositionColumn | None, storage: Storage | None, likely: int | None = None
) -> LoadedHead | None:
    """None when there is no table, nothing to recognise its last commit by, or always another one.

    The mark is taken before the table is opened: one that is replaced meanwhile is then found out. That takes a number
    to begin with; with the `likely` one the table is opened once.
    """
    version = likely
    for _ in range(ROUNDS):
        mark = None if version is None else marks(location, (version,), storage)[0]
        table = open_table(location, storage=storage)
        if table is None:
            return None
        if table.version() == version:
            return None if mark is None else LoadedHead(read(table, location, position), table, mark, storage)
        version = table.version()
    return None
