"""Which rows of a table differ between two of its snapshots?"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.engine.log.storage import Storage
from penstock.engine.refresh.change_log import ChangeLog, change_log
from penstock.engine.refresh.change_size import ChangeSize, change_size_of
from penstock.engine.refresh.changed_files import ChangedFiles
from penstock.engine.refresh.compared_columns import difference, wanted_columns
from penstock.engine.refresh.reinitialize import CannotTell, Reinitialize
from penstock.engine.values.schemas import shown, unknown_type

if TYPE_CHECKING:
    import pyarrow as pa

MOST_BYTES = 128 * 2**20
"""So many bytes of columns are read here, in a second or two on one core; Spark reads more in less time."""
MOST_FOOTERS, MOST_OF_OTHER_COLUMNS = 64, 16
"""Of so many files, so many times as large, it is worth a look how much of them the wanted columns are."""


@dataclass(frozen=True, slots=True)
class Unchanged:
    """No row differs in the columns that were asked for."""

    reason: str


@dataclass(frozen=True, slots=True)
class FewRows:
    """The rows that differ, in the columns of the newer snapshot."""

    rows: pa.Table = field(repr=False)
    """One of each, with its weight in the column `WEIGHT`: how many of it came, or below 0 went."""
    inserts_only: bool


@dataclass(frozen=True, slots=True)
class ManyRows:
    """The files in which the rows lie that differ; there may be equal ones among those that came and went."""

    files: ChangedFiles
    columns: tuple[str, ...]
    size: ChangeSize
    reason: str

    @property
    def inserts_only(self) -> bool:
        return self.files.inserts_only


ChangedRows = Unchanged | FewRows | ManyRows | Reinitialize


def changed_rows(
    location: str,
    table_id: str,
    after: int,
    upto: int,
    *,
    columns: Collection[str] | None = None,
    most_bytes: int = MOST_BYTES,
    storage: Storage | None = None,
) -> ChangedRows:
    """The rows by which the snapshot `upto` differs from the snapshot `after`, of the table with that id.

    Without `columns` in all of them; rows that are equal in the given ones are equal. Files are read up to so many
    bytes, and none when the log tells that no row changed.
    """
    log = change_log(location, table_id, after, upto, storage)
    if isinstance(log, Reinitialize):
        return log
    return changed_rows_of(log, columns=columns, most_bytes=most_bytes, storage=storage)


def changed_rows_of(
    log: ChangeLog,
    *,
    columns: Collection[str] | None = None,
    most_bytes: int = MOST_BYTES,
    storage: Storage | None = None,
) -> ChangedRows:
    """The same of a log that was read already."""
    try:
        wanted = _wanted(log, columns)
        if not log.files.all:
            return Unchanged(
                "no commit changed a row" if log.commit_range.after < log.commit_range.upto else "the same snapshot"
            )
        rows = _read(log, wanted, most_bytes, storage)
    except CannotTell as finding:
        return finding.answer
    if isinstance(rows, str):
        return ManyRows(log.files, wanted, change_size_of(log, storage), rows)
    return rows


def _wanted(log: ChangeLog, columns: Collection[str] | None) -> tuple[str, ...]:
    """CannotTell when the rows cannot be compared in these columns."""
    now = log.schemas[-1]
    wanted = wanted_columns(now, columns)
    if isinstance(wanted, str):
        raise log.commit_range.schema_changed(f"the column {wanted} is gone")
    changed = difference(log.schemas, columns)
    if changed is not None:
        raise log.commit_range.schema_changed(changed)
    for name in wanted:
        odd = unknown_type(name, now[name])
        if odd is not None:
            raise log.commit_range.not_readable(f"the column {odd[0]} is of type {shown(odd[1])}")
    return tuple(wanted)


def _read(
    log: ChangeLog, wanted: tuple[str, ...], most_bytes: int, storage: Storage | None
) -> Unchanged | FewRows | str:
    """The rows, or why they cannot be read here."""
    size, files = log.files.bytes, log.files.all
    others = len(wanted) < len(log.schemas[-1]) and len(files) <= MOST_FOOTERS
    if size > most_bytes * (MOST_OF_OTHER_COLUMNS if others else 1):
        return f"{size} bytes of files, at most {most_bytes} are read"
    from penstock.engine.refresh.read_changes import inserts_only, net_rows

    net = net_rows(log, wanted, most_bytes, storage)
    if net is None:
        return Unchanged("the rows that came are equal to those that went")
    return net if isinstance(net, str) else FewRows(net, inserts_only(net))
