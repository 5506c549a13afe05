"""Which files brought rows and which took rows, when all commits between two snapshots are taken together?"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

from penstock.engine.log.deletion_vector import DeletionVector
from penstock.engine.log.handle import LogCommit


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """Rows of a Parquet file: those that `among` hides, or else all, without those that `hidden` hides."""

    path: str
    """As the log spells it, decoded; relative to the table's root unless absolute."""
    size: int | None
    """Of the whole file."""
    rows: int | None
    """At most so many; None: the log does not say."""
    partition: Mapping[str, str | None] | None
    """None: the log does not say."""
    hidden: DeletionVector | None = None
    among: DeletionVector | None = None

    @property
    def partition_key(self) -> tuple[tuple[str, str | None], ...]:
        """The same for all files of a partition."""
        return tuple(sorted((self.partition or {}).items()))


@dataclass(frozen=True, slots=True)
class ChangedFiles:
    """The rows that came less those that went are what two snapshots differ by."""

    came: tuple[ChangedFile, ...] = ()
    went: tuple[ChangedFile, ...] = ()
    feed: tuple[ChangedFile, ...] = ()
    """Change files: each of their rows says whether it came or went."""
    fed_rows: int | None = 0
    """At most so many rows are in the feed; None: the log does not say."""

    @property
    def inserts_only(self) -> bool:
        return not self.went and not self.feed

    @property
    def all(self) -> tuple[ChangedFile, ...]:
        return (*self.came, *self.went, *self.feed)

    @property
    def bytes(self) -> int:
        return sum(file.size or 0 for file in self.all)


_Key = tuple[str, DeletionVector | None]


@dataclass(slots=True)
class FileChanges:
    """Takes one commit after the other.

    A commit with change files counts by these. Any other counts by the files that it added and removed; a file that
    one adds and another removes counts for nothing.
    """

    _weights: dict[_Key, int] = field(default_factory=dict)
    _known: dict[_Key, ChangedFile] = field(default_factory=dict)
    _live: dict[_Key, bool] = field(default_factory=dict)
    """After the last commit that named them."""
    _feed: list[ChangedFile] = field(default_factory=list)
    _fed_rows: int | None = 0

    def take(self, commit: LogCommit) -> None:
        changing = any(_changes_rows(action) for action in (*commit.adds, *commit.removes))
        if commit.cdc:
            self._feed += [_changed_file(action) for action in commit.cdc]
            rows = _fed_rows(commit)
            self._fed_rows = None if rows is None or self._fed_rows is None else self._fed_rows + rows
        counted = not commit.cdc
        replaced = set() if changing or commit.cdc else self._replaced(commit)
        for actions, weight in ((commit.removes, -1), (commit.adds, 1)):
            for action in actions:
                file = _changed_file(action)
                key = file.path, file.hidden
                if weight > 0 or key not in self._known:
                    self._known[key] = file
                if self._live.get(key) is not (weight > 0):
                    self._live[key] = weight > 0
                    if (counted and _changes_rows(action)) or self._known[key].partition_key in replaced:
                        self._weights[key] = self._weights.get(key, 0) + weight

    def _replaced(self, commit: LogCommit) -> set[object]:
        """The partitions in which a commit that only arranges rows anew took nothing but files that came since.

        Those that it made hold the same rows, are fewer, and stay when the others are swept.
        """
        partitions: dict[object, bool] = {}
        for action in commit.removes:
            file = _changed_file(action)
            key = file.path, file.hidden
            if key not in self._known:
                if file.partition is None:
                    return set()
                partitions[file.partition_key] = False
                continue
            partition = self._known[key].partition_key
            partitions[partition] = partitions.get(partition, True) and self._weights.get(key) == 1
        return {partition for partition, own in partitions.items() if own}

    def changed(self) -> ChangedFiles:
        by_path: dict[str, tuple[list[ChangedFile], list[ChangedFile]]] = {}
        for key, weight in self._weights.items():
            # twice, when change files said how it went, and a RESTORE brought it back
            by_path.setdefault(key[0], ([], []))[weight > 0].extend([self._known[key]] * abs(weight))
        went: list[ChangedFile] = []
        came: list[ChangedFile] = []
        for old, new in by_path.values():
            both = min(len(old), len(new))
            for before, after in zip(old, new, strict=False):
                went += _between(after, before)
                came += _between(before, after)
            went += old[both:]
            came += new[both:]
        feed = (file for file in self._feed if file.rows != 0)
        return ChangedFiles(_with_rows(came), _with_rows(went), tuple(feed), self._fed_rows)


def _between(vector: ChangedFile, file: ChangedFile) -> list[ChangedFile]:
    """The rows of a file that another vector of it hides and its own does not."""
    if vector.hidden is None:
        return []
    return [replace(file, among=vector.hidden, rows=vector.hidden.rows)]


def _with_rows(files: Iterable[ChangedFile]) -> tuple[ChangedFile, ...]:
    return tuple(file for file in files if file.rows != 0)


def _changes_rows(action: Mapping[str, Any]) -> bool:
    return bool(action.get("dataChange", True))


def _changed_file(action: Mapping[str, Any]) -> ChangedFile:
    vector = DeletionVector.of(action)
    rows = _records(action)
    if rows is not None and vector is not None:
        rows -= vector.rows
    return ChangedFile(unquote(str(action["path"])), action.get("size"), rows, action.get("partitionValues"), vector)


def _records(action: Mapping[str, Any]) -> int | None:
    try:
        stats = json.loads(action.get("stats") or "{}")
    except ValueError:
        return None
    rows = stats.get("numRecords")
    return rows if isinstance(rows, int) else None


_ONCE = ("numdeletedrows", "numtargetrowsinserted", "numtargetrowsdeleted")
_TWICE = ("numupdatedrows", "numtargetrowsupdated")
"""A changed row is in the feed as it was and as it is."""


def _fed_rows(commit: LogCommit) -> int | None:
    """How many rows the change files of a commit hold, if its metrics tell."""
    if commit.info.get("operation") not in ("UPDATE", "DELETE", "MERGE"):
        return None
    metrics = commit.info.get("operationMetrics")
    if not isinstance(metrics, Mapping):
        return None
    told = {str(name).replace("_", "").lower(): value for name, value in metrics.items()}
    try:
        counts = [
            times * int(told[name]) for times, names in ((1, _ONCE), (2, _TWICE)) for name in names if name in told
        ]
    except (TypeError, ValueError):
        return None
    return sum(counts) if counts else None
