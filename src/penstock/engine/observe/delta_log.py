"""What does the log of a Delta source tell? What needs Arrow is imported by the first question that does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.log.newer_commits import goes_on, mark
from penstock.engine.log.storage import Storage
from penstock.engine.observe.bounds import observe_delta as observe
from penstock.engine.values.files import PositionColumn, TableSnapshot
from penstock.values.intervals import EVERYTHING, IntervalSet

if TYPE_CHECKING:
    from penstock.values.changes import LogChanges

__all__ = ["changes", "goes_on", "mark", "observe", "rewinds", "snapshot"]


def changes(
    location: str,
    position: PositionColumn | None,
    after: int,
    upto: int,
    *,
    consumed: IntervalSet = EVERYTHING,
    storage: Storage | None = None,
) -> LogChanges:
    from penstock.engine.observe.changes import log_changes

    return log_changes(location, position, after, upto, consumed=consumed, storage=storage)


def rewinds(location: str, after: int, upto: int, storage: Storage | None = None) -> bool:
    from penstock.engine.observe.changes import rewinds

    return rewinds(location, after, upto, storage)


def snapshot(
    location: str, position: PositionColumn | None, *, version: int | None = None, storage: Storage | None = None
) -> TableSnapshot | None:
    from penstock.engine.log.snapshot import snapshot

    return snapshot(location, position, version=version, storage=storage)
