"""What does an append add to a table in memory, and what does it take away?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from memory_tables import MemoryFile, MemorySnapshot, Row, Rows

from penstock.engine.values.job import Job
from penstock.errors import QueryError
from penstock.values.intervals import IntervalSet

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Appended:
    """The rows whose key is not stored; the files that hold a retracted row, and what stays of each."""

    fresh: list[Row]
    left: list[tuple[MemoryFile, list[Row]]]
    differs: frozenset[int]


def keys_of(rows: Sequence[Row], columns: Sequence[str], key: Sequence[str]) -> list[Key]:
    """A column that is not there is NULL, and NULLs are equal."""
    places = [columns.index(name) if name in columns else None for name in key]
    return [tuple([None if place is None else row[place] for place in places]) for row in rows]


def check_key(job: Job, columns: Sequence[str]) -> None:
    for name in job.unique_key:
        if name not in columns:
            raise QueryError(f"{job.model}: the query gives no column {name!r}, which is part of unique_key")


def appended(job: Job, new: Rows, head: MemorySnapshot | None) -> Appended:
    """The new rows against every row that is stored."""
    at = new.columns.index(job.position.name)
    keyed = list(zip(keys_of(new.rows, new.columns, job.unique_key), new.rows, strict=True))
    computed = {(key, row[at]) for key, row in keyed}
    winners: dict[Key, Row] = {}
    for key, row in sorted(keyed, key=lambda pair: _order(pair[1], at)):
        winners.setdefault(key, row)
    stored: set[Key] = set()
    left: list[tuple[MemoryFile, list[Row]]] = []
    differs: set[object] = set()
    for file in head.files if head else ():
        stays: list[Row] = []
        for key, row in zip(keys_of(file.rows, file.columns, job.unique_key), file.rows, strict=True):
            position = None if file.at is None else row[file.at]
            if job.retract and isinstance(position, int) and position in job.scope and (key, position) not in computed:
                differs.add(position)
            else:
                stored.add(key)
                stays.append(row)
        if len(stays) < len(file.rows):
            left.append((file, stays))
    fresh = [row for key, row in winners.items() if is_fresh(key, stored)]
    differs |= {row[at] for row in fresh}
    return Appended(fresh, left, frozenset(position for position in differs if isinstance(position, int)))


def is_fresh(key: Key, stored: set[Key]) -> bool:
    return key not in stored


@dataclass(frozen=True, slots=True)
class Rule:
    """What makes a keyed row the same, and whether it goes when it is no longer given."""

    key: tuple[str, ...]
    position: str
    retract: bool

    @classmethod
    def of(cls, job: Job) -> Rule:
        return cls(job.unique_key, job.position.name, job.retract)

    def lacking(self, new: Rows, stored: Rows, scope: IntervalSet) -> tuple[list[Row], list[Row]]:
        """Given rows whose key is nowhere stored, and stored ones of the scope that should not be there."""
        at, place = new.columns.index(self.position), stored.columns.index(self.position)
        rows = [row for row in new.rows if isinstance(p := row[at], int) and p in scope]
        keyed = list(zip(keys_of(rows, new.columns, self.key), rows, strict=True))
        there = list(zip(keys_of(stored.rows, stored.columns, self.key), stored.rows, strict=True))
        known = {key for key, _ in there}
        missing = {key: row for key, row in reversed(keyed) if key not in known}
        pairs = {(key, row[at]) for key, row in keyed}
        seen: set[Key] = set()
        unexpected: list[Row] = []
        for key, row in there:
            position = row[place]
            if isinstance(position, int) and position in scope:
                if key in seen or (self.retract and (key, position) not in pairs):
                    unexpected.append(row)
                seen.add(key)
        return list(missing.values()), unexpected


def places(positions: Iterable[int]) -> IntervalSet:
    return IntervalSet.of((position, position + 1) for position in positions)


def _order(row: Row, at: int) -> tuple[object, ...]:
    position = row[at]
    return (position, *[(value is not None, value if value is not None else 0) for value in row])
