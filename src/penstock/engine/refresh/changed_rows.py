"""Which rows of a table differ between two of its snapshots?"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.engine.log.storage import Storage
from penstock.engine.refresh.change_log import ChangeLog, change_log
from penstock.engine.refresh.change_size import ChangeSize, size_of
from penstock.engine.refresh.changed_files import ChangedFile, ChangedFiles
from penstock.engine.refresh.compared_columns import difference, wanted_columns
from penstock.engine.refresh.reinitialize import CannotTell, Reinitialize
from penstock.engine.values.schemas import shown, unknown_type

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.engine.observe.file_rows import ReadBudget

MOST_BYTES = 128 * 2**20
"""Files of so many bytes are read here; Spark reads more in less time."""


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
    return rows_of(log, columns=columns, most_bytes=most_bytes, storage=storage)


def rows_of(
    log: ChangeLog,
    *,
    columns: Collection[str] | None = None,
    most_bytes: int = MOST_BYTES,
    storage: Storage | None = None,
) -> ChangedRows:
    """The same of a log that was read already."""
    try:
        return _rows(log, columns, most_bytes, storage)
    except CannotTell as finding:
        return finding.answer


def _rows(log: ChangeLog, columns: Collection[str] | None, most_bytes: int, storage: Storage | None) -> ChangedRows:
    wanted = wanted_columns(log.schemas[-1], columns)
    if isinstance(wanted, str):
        raise log.stretch.schema_changed(f"the column {wanted} is gone")
    changed = difference(log.schemas, columns)
    if changed is not None:
        raise log.stretch.schema_changed(changed)
    odd = next((odd for name in wanted if (odd := unknown_type(name, log.schemas[-1][name])) is not None), None)
    if odd is not None:
        raise log.stretch.not_readable(f"the column {odd[0]} is of type {shown(odd[1])}")
    if not log.files.all:
        return Unchanged("no commit changed a row" if log.stretch.after < log.stretch.upto else "the same snapshot")
    if log.files.bytes > most_bytes:
        why = f"{log.files.bytes} bytes of files, at most {most_bytes} are read"
    else:
        rows = _read(log, wanted, most_bytes, storage)
        if not isinstance(rows, str):
            return rows
        why = rows
    return ManyRows(log.files, tuple(wanted), size_of(log, storage), why)


def _read(log: ChangeLog, wanted: list[str], most_bytes: int, storage: Storage | None) -> Unchanged | FewRows | str:
    """What they are, or why they cannot be read here."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from penstock.engine.observe.file_rows import NoRowsToRead, ReadBudget
    from penstock.engine.observe.unequal_rows import TooManyRows, in_turn
    from penstock.engine.refresh.table_rows import arrow_schema
    from penstock.engine.rows.multisets import WEIGHT

    files = _Files(log.stretch.location, storage, ReadBudget(size=most_bytes))
    try:
        schema = arrow_schema(log.table, wanted)
        rows = in_turn(lambda most_held: _netted(files, schema, log.files, most_held))
    except TooManyRows:
        return "more rows differ than memory is given for"
    except NoRowsToRead as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise log.stretch.no_file(str(error)) from error
        return f"Arrow does not understand {error}"
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        return f"Arrow does not understand the rows: {error}"
    if rows is None or not rows.num_rows:
        return Unchanged("the rows that came are equal to those that went")
    return FewRows(rows, inserts_only=pc.min(rows.column(WEIGHT)).as_py() > 0)


@dataclass(frozen=True, slots=True)
class _Files:
    location: str
    storage: Storage | None
    budget: ReadBudget


def _netted(files: _Files, schema: pa.Schema, changed: ChangedFiles, most_held: int) -> pa.Table | None:
    from penstock.engine.observe.change_rows import add_feed
    from penstock.engine.observe.unequal_rows import Leftover, add_unequal, batches, opened_part
    from penstock.engine.refresh.table_rows import TableReader, part_of

    left = Leftover(most_held)
    feed = TableReader(files, schema, of_feed=True)
    for file in changed.feed:
        for rows in batches(feed, opened_part(files, part_of(files, file))):
            add_feed(rows, left)
    reader = TableReader(files, schema)
    for went, came in _by_partition(changed):
        sides = [[opened_part(files, part_of(files, file)) for file in side] for side in (went, came)]
        add_unequal(reader, sides, left)
    rows = left.netted()
    return None if rows is None else reader.finished(rows)


def _by_partition(changed: ChangedFiles) -> Iterable[tuple[list[ChangedFile], list[ChangedFile]]]:
    """Rows of one partition are equal to no others, and those that were rewritten are mostly in the same order."""
    by_partition: dict[object, tuple[list[ChangedFile], list[ChangedFile]]] = {}
    for came, files in enumerate((changed.went, changed.came)):
        for file in files:
            key = tuple(sorted((file.partition or {}).items()))
            by_partition.setdefault(key, ([], []))[came].append(file)
    return by_partition.values()
