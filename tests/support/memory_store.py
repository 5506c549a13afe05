"""Where do tables live that live in memory, and what do other programs do to them?"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from memory_tables import Entry, MemoryFile, MemorySnapshot, MemoryTable, Multiset, Row, Rows, positions_of

from penstock.errors import EngineError
from penstock.values.intervals import EVERYTHING, MIN_POSITION, NOTHING, IntervalSet
from penstock.values.tasks import Pin


class MemoryStore:
    """Safe to share between threads: values never change, and the lock is held for the swap of a table's head alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: dict[str, MemoryTable] = {}
        self._numbers = itertools.count(1)

    # what others do to tables

    def land(
        self,
        location: str,
        rows: Iterable[Mapping[str, object]],
        *,
        position: str | None = "n",
        columns: Sequence[str] = (),
    ) -> int:
        """Append rows in one commit; the snapshot it made. The first one makes the table, with `columns` if empty."""
        return self._rewrite(location, "WRITE", NOTHING, rows, position=position, columns=columns)

    def delete(self, location: str, window: IntervalSet) -> int:
        """Take away the rows of `window`. Where rows only leave at the old end, they expire."""
        return self._rewrite(location, "DELETE", window, ())

    def replace_rows(self, location: str, window: IntervalSet, rows: Iterable[Mapping[str, object]]) -> int:
        """Take away the rows of `window` and bring others, in one commit."""
        return self._rewrite(location, "UPDATE", window, rows)

    def compact(self, location: str) -> int:
        """Write all rows into one file, as OPTIMIZE does: nothing changes for readers."""
        with self._lock:
            table = self._table(location)
            head = table.head
            if len(head.files) > 1:
                whole = MemoryFile.of(f"compacted-{head.version + 1}", head.read(), table.position)
                table.append(head.columns, (), [whole], Entry("OPTIMIZE"))
            return table.head.version

    def drop(self, location: str) -> None:
        """The table is gone, with all its snapshots; the next one there has another id."""
        with self._lock:
            del self._tables[location]

    # looking

    def exists(self, location: str) -> bool:
        return location in self._tables

    def table_id(self, location: str) -> str:
        return self._table(location).id

    def snapshot(self, location: str, snapshot: int | None = None) -> MemorySnapshot:
        """One snapshot, the newest unless told which."""
        return self._pinned(Pin(location, snapshot))

    def snapshots(self, location: str) -> tuple[MemorySnapshot, ...]:
        """All there are, oldest first."""
        return tuple(self._table(location).snapshots)

    def rows(self, location: str, snapshot: int | None = None, window: IntervalSet | None = None) -> list[Row]:
        """Sorted tuples in the order of the columns' names."""
        content = self.snapshot(location, snapshot).read(window)
        return sorted(content.arranged(tuple(sorted(content.columns))), key=_sorting)

    def multiset(self, location: str, snapshot: int | None = None, window: IntervalSet | None = None) -> Multiset:
        return self.snapshot(location, snapshot).read(window).multiset()

    # how it is done

    def _pinned(self, pin: Pin) -> MemorySnapshot:
        table = self._tables.get(pin.location)
        if table is None or (pin.table_id is not None and pin.table_id != table.id):
            raise EngineError(f"there is no such table at {pin.location}")
        if pin.snapshot is None:
            return table.head
        if not 0 <= pin.snapshot < len(table.snapshots):
            raise EngineError(f"{pin.location} has no snapshot {pin.snapshot}")
        return table.snapshots[pin.snapshot]

    def _head(self, location: str) -> MemorySnapshot | None:
        table = self._tables.get(location)
        return None if table is None else table.head

    def _table(self, location: str) -> MemoryTable:
        table = self._tables.get(location)
        if table is None:
            raise EngineError(f"there is no table at {location}")
        return table

    def _rewrite(
        self,
        location: str,
        operation: str,
        window: IntervalSet,
        rows: Iterable[Mapping[str, object]],
        *,
        position: str | None = None,
        columns: Sequence[str] = (),
    ) -> int:
        """One foreign commit: the rows of `window` go, others come."""
        new_rows = [dict(row) for row in rows]
        named = tuple(dict.fromkeys([*columns, *(name for row in new_rows for name in row)]))
        new = Rows(named, [tuple([row.get(name) for name in named]) for row in new_rows])
        with self._lock:
            table = self._tables.get(location) or MemoryTable(self._new_id(), position)
            version = len(table.snapshots)
            head = table.head if version else None
            kept, added, went = _without(head, window, f"rewritten-{version}", table.position)
            if new.rows:
                added.append(MemoryFile.of(f"landed-{version}", new, table.position))
            elif head is not None and went is None:
                return head.version
            before = head.columns if head else ()
            changed, expired = _difference(table.position, new, went or set(), [*kept, *added])
            joined = tuple(dict.fromkeys([*before, *named]))
            table.append(joined, kept, added, Entry(operation), changed=changed, expired=expired)
            self._tables[location] = table  # only now: readers take no lock and expect a snapshot
            return version

    def _new_id(self) -> str:
        return str(UUID(int=next(self._numbers)))


def _without(
    head: MemorySnapshot | None, window: IntervalSet, path: str, position: str | None
) -> tuple[Sequence[MemoryFile], list[MemoryFile], set[int] | None]:
    """The files without a row in `window`, what is left of the others, and where rows went; None: there were none."""
    if head is None or not window:
        return head.files if head else (), [], None
    kept: list[MemoryFile] = []
    rest: list[MemoryFile] = []
    went: set[int] | None = None
    for number, file in enumerate(head.files):
        gone, left = file.split(window) if file.meets(window) else ([], [])
        if not gone:
            kept.append(file)
            continue
        went = (went or set()) | set(positions_of(gone, file.at))
        if left:
            rest.append(MemoryFile.of(f"{path}-{number}", Rows(file.columns, left), position))
    return kept, rest, went


def _difference(
    position: str | None, new: Rows, went: set[int], files: list[MemoryFile]
) -> tuple[IntervalSet, IntervalSet]:
    """Where a foreign commit changed rows, and where it only let the oldest go."""
    if position is None:
        return EVERYTHING, NOTHING
    came = set(positions_of(new.rows, new.columns.index(position))) if new.rows else set()
    if went and not came:
        low = min((file.low for file in files if file.low is not None), default=None)
        if low is not None and max(went) < low:
            return NOTHING, IntervalSet((MIN_POSITION, low))
    return IntervalSet.of((p, p + 1) for p in came | went), NOTHING


def _sorting(row: Row) -> list[tuple[bool, object]]:
    """NULLs first."""
    return [(value is not None, value) for value in row]
