"""How is a Delta table opened, and which commits has it?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from penstock.engine.log.storage import Storage, first_line, options, read_text
from penstock.errors import SourceError


class TableMissing(SourceError):  # noqa: N818 - it names a finding, not a fault
    """There is no Delta table at a location."""

    def __init__(self, location: str) -> None:
        self.location = location
        super().__init__(f"there is no Delta table at {location}", hint="check the location, or write the table first")


class UnreadableLog(SourceError):  # noqa: N818 - it names a finding, not a fault
    """A log that cannot be read here and now; which of its kinds it is says what follows from that."""

    says: ClassVar[str] = "the Delta log of {location} cannot be read: {why}"
    advice: ClassVar[str] = "check the location, its rights and its log"

    def __init__(self, location: str, why: str) -> None:
        self.location, self.why = location, why
        super().__init__(self.says.format(location=location, why=why), hint=self.advice)


class FeatureUnsupported(UnreadableLog):
    """The table asks for a reader that knows more: Spark may still be able to read it."""

    says = "the Delta log of {location} cannot be read without Spark: {why}"
    advice = "nothing to do if Spark can read the table"


class TableForbidden(UnreadableLog):
    """Something is there, and we may not read it."""

    says = "reading the Delta table at {location} is not allowed: {why}"
    advice = "check its rights and `storage:`"


class StoreFault(UnreadableLog):
    """The store does not answer, or not as it should: it may again in a moment, with the same table."""

    says = "the Delta log of {location} cannot be read right now: {why}"
    advice = "it is tried again by itself; if it stays so, check the store and the log's last files"


class SnapshotGone(UnreadableLog):
    """The table has no such snapshot, or not any more."""

    advice = "its log was cleaned, or another table stands there"


_FORBIDDEN = (
    "lacked the necessary privileges",
    "lacked valid authentication",
    "403 Forbidden",
    "401 Unauthorized",
    "Permission denied",
    "PermissionDenied",
)
_UNSUPPORTED = ("Kernel error: Unsupported", "catalog-managed")
_GONE = (
    "No files in log segment",
    "LogSegment end version",
    "No table metadata or protocol",
    "contiguous commit files",
    "Invalid Checkpoint",
    "Invalid table version",
    "not found",
    "NotFound",
)
"""How delta-rs says that it is not allowed, and that a snapshot cannot be put together (any more)."""


_FEEDS = ("Apache-Spark/", "Databricks-Runtime/", "delta-rs:")
"""Who writes change files that can be relied on, as far as that was tried. Others were found to leave rows out."""


@dataclass(frozen=True, slots=True)
class LogCommit:
    """One commit as its file in the log spells it."""

    version: int
    info: dict[str, object]
    adds: tuple[dict[str, object], ...]
    removes: tuple[dict[str, object], ...]
    cdc: tuple[dict[str, object], ...] = ()
    """Files of the change feed: where there are any, they tell every row that the commit changed.

    Those of writers that do not are left out: the files that were added and removed tell it as well.
    """
    metadata: dict[str, object] | None = None
    """The table's schema and properties, in commits that set them."""


def open_table(location: str, *, version: int | None = None, storage: Storage | None = None) -> DeltaTable | None:
    """A handle on one snapshot, the newest by default; None when there is no table."""
    try:
        return DeltaTable(location, version=version, storage_options=options(storage))
    except (DeltaError, OSError) as error:
        if isinstance(error, TableNotFoundError) and not _forbidden(str(error)):
            return None
        raise trouble(location, error, version) from error


def trouble(location: str, error: BaseException, version: int | None = None) -> UnreadableLog:
    """Which kind of trouble delta-rs tells of: it has one class for all, so its words decide."""
    text = str(error)
    why = first_line(error) if version is None else f"snapshot {version}: {first_line(error)}"
    if _forbidden(text):
        return TableForbidden(location, why)
    if any(words in text for words in _UNSUPPORTED):
        return FeatureUnsupported(location, why)
    if version is not None and any(words in text for words in _GONE):
        return SnapshotGone(location, why)
    return StoreFault(location, why)


def _forbidden(text: str) -> bool:
    return any(words in text for words in _FORBIDDEN)


def latest_version(location: str, storage: Storage | None = None) -> int | None:
    table = open_table(location, storage=storage)
    return None if table is None else table.version()


def commits(location: str, after: int, upto: int, storage: Storage | None = None) -> Iterator[LogCommit | int]:
    """The commits after one snapshot up to another, oldest first; a bare number when its file is gone."""
    for version in range(after + 1, upto + 1):
        yield commit_at(location, version, storage) or version


def commit_at(location: str, version: int, storage: Storage | None = None) -> LogCommit | None:
    text = read_text(location, f"_delta_log/{version:020d}.json", storage)
    if text is None:
        return None
    try:
        actions = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise StoreFault(location, f"snapshot {version}: {first_line(error)}") from error  # half written, perhaps
    info: dict[str, object] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    return LogCommit(
        version,
        info,
        tuple(action["add"] for action in actions if "add" in action),
        tuple(action["remove"] for action in actions if "remove" in action),
        tuple(action["cdc"] for action in actions if "cdc" in action and _tells_all(info)),
        next((action["metaData"] for action in actions if "metaData" in action), None),
    )


def _tells_all(info: dict[str, object]) -> bool:
    """Whether the change files of a commit have all rows that it changed.

    An UPDATE of delta-rs leaves out rows that are equal to another one of the same files, before or after it.
    """
    writer = str(info.get("engineInfo"))
    return writer.startswith(_FEEDS) and not (writer.startswith("delta-rs:") and info.get("operation") == "UPDATE")
