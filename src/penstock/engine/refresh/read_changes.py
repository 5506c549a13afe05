"""Which rows are left of those that came and went between two snapshots, when they are read with Arrow?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.log.storage import Storage
from penstock.engine.observe.change_rows import add_feed
from penstock.engine.observe.file_rows import NoRowsToRead, ReadBudget
from penstock.engine.observe.unequal_rows import (
    Leftover,
    OpenedPart,
    TooManyRows,
    add_unequal,
    batches,
    in_turn,
    opened_part,
)
from penstock.engine.refresh.change_log import ChangeLog
from penstock.engine.refresh.changed_files import ChangedFile, ChangedFiles
from penstock.engine.refresh.table_rows import TableReader, arrow_schema, part_of
from penstock.engine.rows.multisets import WEIGHT


@dataclass(frozen=True, slots=True)
class _Files:
    location: str
    storage: Storage | None
    budget: ReadBudget


@dataclass(frozen=True, slots=True)
class _Opened:
    feed: Sequence[OpenedPart]
    sides: Sequence[tuple[Sequence[OpenedPart], Sequence[OpenedPart]]]
    """By partition those that went and those that came."""

    def bytes(self, reader: TableReader, feed: TableReader) -> int:
        sizes = [feed.bytes(part) for part in self.feed]
        return sum(sizes) + sum(reader.bytes(part) for sides in self.sides for side in sides for part in side)


def net_rows(log: ChangeLog, wanted: Sequence[str], most_bytes: int, storage: Storage | None) -> pa.Table | str | None:
    """One of each row with its weight, None without any; a text says why they cannot be read here.

    CannotTell when a file is gone.
    """
    files = _Files(log.commit_range.location, storage, ReadBudget(size=most_bytes))
    try:
        schema = arrow_schema(log.table, wanted)
        reader, feed = TableReader(files, schema), TableReader(files, schema, of_feed=True)
        opened = _opened(files, log.files)
        size = opened.bytes(reader, feed)
        if size > most_bytes:
            return f"{size} bytes of columns, at most {most_bytes} are read"
        rows = in_turn(lambda most_held: _netted(reader, feed, opened, most_held))
    except TooManyRows:
        return "more rows differ than memory is given for"
    except NoRowsToRead as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise log.commit_range.no_file(str(error)) from error
        return f"Arrow does not understand {error}"
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        return f"Arrow does not understand the rows: {error}"
    return reader.finished(rows) if rows is not None and rows.num_rows else None


def inserts_only(rows: pa.Table) -> bool:
    return bool(pc.min(rows.column(WEIGHT)).as_py() > 0)


def _opened(files: _Files, changed: ChangedFiles) -> _Opened:
    def opened(some: Iterable[ChangedFile]) -> list[OpenedPart]:
        parts = [part_of(files, file) for file in some]
        return [opened_part(files, part) for part in parts if not part.is_empty]

    return _Opened(opened(changed.feed), [(opened(went), opened(came)) for went, came in _by_partition(changed)])


def _netted(reader: TableReader, feed: TableReader, opened: _Opened, most_held: int) -> pa.Table | None:
    left = Leftover(most_held)
    for part in opened.feed:
        for rows in batches(feed, part):
            add_feed(rows, left)
    for sides in opened.sides:
        add_unequal(reader, sides, left)
    return left.netted()


def _by_partition(changed: ChangedFiles) -> Iterable[tuple[list[ChangedFile], list[ChangedFile]]]:
    """Those that were rewritten stay in their partition, and mostly in their order."""
    by_partition: dict[object, tuple[list[ChangedFile], list[ChangedFile]]] = {}
    for came, files in enumerate((changed.went, changed.came)):
        for file in files:
            by_partition.setdefault(file.partition_key, ([], []))[came].append(file)
    return by_partition.values()
