"""How large is what changed between two snapshots, and how large is the table, as far as the log tells?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from penstock.engine.log.handle import SnapshotGone, open_table
from penstock.engine.log.storage import Storage
from penstock.engine.refresh.change_log import ChangeLog, change_log
from penstock.engine.refresh.changed_files import ChangedFile
from penstock.engine.refresh.reinitialize import Reinitialize

if TYPE_CHECKING:
    from deltalake import DeltaTable


@dataclass(frozen=True, slots=True)
class ChangeSize:
    """Found without opening a file. None: the log does not say."""

    rows: int | None
    """At most so many rows changed; one that was updated counts twice, and so do those that were only copied."""
    bytes: int
    """Of the files that the changed rows are in."""
    table_rows: int | None
    """At the newer snapshot, with those that deletion vectors hide."""
    table_bytes: int
    inserts_only: bool


def change_size(
    location: str, table_id: str, after: int, upto: int, storage: Storage | None = None
) -> ChangeSize | Reinitialize:
    """The size of the changes after one snapshot up to another, of the table with that id."""
    log = change_log(location, table_id, after, upto, storage)
    return log if isinstance(log, Reinitialize) else change_size_of(log, storage)


def change_size_of(log: ChangeLog, storage: Storage | None = None) -> ChangeSize:
    """The same of a log that was read already."""
    live = list(_live_files(log.table))
    return ChangeSize(
        rows=_rows(log, storage),
        bytes=log.files.bytes,
        table_rows=_sum(rows for _, rows, _ in live),
        table_bytes=sum(size for *_, size in live),
        inserts_only=log.files.inserts_only,
    )


def _rows(log: ChangeLog, storage: Storage | None) -> int | None:
    known: Mapping[str, int | None] = {}
    if any(file.rows is None for file in log.files.went):
        known = _rows_before(log, storage)

    def rows(file: ChangedFile) -> int | None:
        return known.get(file.path) if file.rows is None else file.rows

    return _sum([log.files.fed_rows, *(rows(file) for file in (*log.files.came, *log.files.went))])


def _rows_before(log: ChangeLog, storage: Storage | None) -> Mapping[str, int | None]:
    """Removals rarely tell how many rows went with them."""
    try:
        before = open_table(log.commit_range.location, version=log.commit_range.after, storage=storage)
    except SnapshotGone:
        return {}
    return {} if before is None else {path: rows for path, rows, _ in _live_files(before)}


def _live_files(table: DeltaTable) -> Iterator[tuple[str, int | None, int]]:
    import pyarrow as pa

    actions: Any = pa.table(table.get_add_actions(flatten=False))
    columns = (actions.column(name).to_pylist() for name in ("path", "num_records", "size_bytes"))
    for path, rows, size in zip(*columns, strict=True):
        yield unquote(path), rows, size


def _sum(counts: Iterable[int | None]) -> int | None:
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total
