"""Which log tells what a source holds and what has changed in it?

The log of the format `delta` is read by the module `delta_log` beside this one, and so for every format that has a log.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from penstock.values.intervals import EVERYTHING, IntervalSet
from penstock.values.models.source_format import SourceFormat

if TYPE_CHECKING:
    from penstock.engine.log.newer_commits import CommitFile
    from penstock.engine.log.storage import Storage
    from penstock.engine.observe.bounds import Completeness, SourceSeen
    from penstock.engine.values.files import PositionColumn, TableSnapshot
    from penstock.values.changes import LogChanges


class SourceLog(Protocol):
    """The log of the table at a location. A snapshot is a number; every commit has the next one."""

    def observe(
        self,
        location: str,
        position: PositionColumn | None,
        completeness: Completeness,
        previous_version: int | None = None,
        storage: Storage | None = None,
        *,
        previous_table_id: str | None = None,
        most_commits: int | None = None,
    ) -> SourceSeen | None:
        """The newest snapshot, or one at most so many commits after the previous; None when that is the newest."""

    def changes(
        self,
        location: str,
        position: PositionColumn | None,
        after: int,
        upto: int,
        *,
        consumed: IntervalSet = EVERYTHING,
        storage: Storage | None = None,
    ) -> LogChanges:
        """Where the commits after one snapshot up to another changed rows."""

    def rewinds(self, location: str, after: int, upto: int, storage: Storage | None = None) -> bool:
        """Whether one of these commits may have brought old rows back."""

    def goes_on(self, location: str, snapshot: int, storage: Storage | None = None) -> bool:
        """Whether there is a commit after this one, as cheaply as that can be asked."""

    def mark(self, location: str, snapshot: int, storage: Storage | None = None) -> CommitFile | None:
        """What tells this commit from one of the same number in another table."""

    def snapshot(
        self,
        location: str,
        position: PositionColumn | None,
        *,
        version: int | None = None,
        storage: Storage | None = None,
    ) -> TableSnapshot | None:
        """The Parquet files of a snapshot; None when there is no table."""


def source_log(source_format: SourceFormat) -> SourceLog:
    """The log of a format that has one."""
    return cast("SourceLog", import_module(f"penstock.engine.observe.{source_format.name}_log"))
