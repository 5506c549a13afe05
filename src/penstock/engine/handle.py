"""How is a Delta table opened, and which commits has it?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from penstock.engine.storage import Storage, options, read_text
from penstock.errors import SourceError


class TableMissing(SourceError):  # noqa: N818 - it names a finding, not a fault
    """There is no Delta table at a location."""

    def __init__(self, location: str) -> None:
        self.location = location
        super().__init__(f"there is no Delta table at {location}", hint="check the location, or write the table first")


class UnreadableLog(SourceError):  # noqa: N818 - it names a finding, not a fault
    """The table is there, but its log needs a reader that knows more: Spark may still be able to read it."""

    def __init__(self, location: str, why: str) -> None:
        self.location, self.why = location, why
        super().__init__(
            f"the Delta log of {location} cannot be read without Spark: {why}",
            hint="nothing to do if Spark can read the table; else check the location, its rights and its log",
        )


@dataclass(frozen=True, slots=True)
class LogCommit:
    """One commit as its file in the log spells it."""

    version: int
    info: dict[str, object]
    adds: tuple[dict[str, object], ...]
    removes: tuple[dict[str, object], ...]
    cdc: tuple[dict[str, object], ...] = ()
    """Files of the change feed: where there are any, they tell every row that the commit changed."""
    metadata: dict[str, object] | None = None
    """The table's schema and properties, in commits that set them."""


def open_table(location: str, *, version: int | None = None, storage: Storage | None = None) -> DeltaTable | None:
    """A handle on one snapshot, the newest unless told; None when there is no table."""
    try:
        return DeltaTable(location, version=version, storage_options=options(storage))
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        what = "" if version is None else f"snapshot {version}: "
        raise UnreadableLog(location, what + first_line(error)) from error


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
        raise UnreadableLog(location, f"snapshot {version}: {first_line(error)}") from error
    return LogCommit(
        version,
        next((action["commitInfo"] for action in actions if "commitInfo" in action), {}),
        tuple(action["add"] for action in actions if "add" in action),
        tuple(action["remove"] for action in actions if "remove" in action),
        tuple(action["cdc"] for action in actions if "cdc" in action),
        next((action["metaData"] for action in actions if "metaData" in action), None),
    )


def first_line(error: BaseException) -> str:
    """delta-rs appends a stack to some messages."""
    return str(error).strip().split("\n", 1)[0] or type(error).__name__
