"""Which positions have other rows after a commit than before it?"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.observe.change_rows import CHANGE_TYPE, change_rows, feed_rows, rows_by_position
from penstock.engine.observe.deletion_vectors import NO_MASK, Masks, Part, padded, rows_around, vectors
from penstock.engine.observe.file_rows import LogScan, positions_in, rows_of, span
from penstock.engine.rows.changed_ranges import ChangedRanges, Span, counted_at, counts, differing, either
from penstock.engine.values.files import DataFile
from penstock.values.changes import MOST_PARTS
from penstock.values.intervals import EVERYTHING, MIN_POSITION, NOTHING, IntervalSet, ranges

_log = logging.getLogger("penstock")
SMALL_FEED_BYTES = 64 * 2**20
"""A feed of this size is read whole, to leave out rows that were replaced by their like."""
_NO_ROWS = counted_at({})

_Reaching = tuple[DataFile, Span]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The files that a commit took out and put in."""

    version: int
    removed: tuple[DataFile, ...]
    added: tuple[DataFile, ...]
    columns: frozenset[str]
    """As the files name them; others are left over from a column that was dropped."""


def feed_changes(scan: LogScan, feed: Sequence[DataFile], columns: frozenset[str], changes: ChangedRanges) -> bool:
    """Count the rows of a commit's change files; False when they cannot be read."""
    if sum(file.size for file in feed) <= SMALL_FEED_BYTES:
        rows = feed_rows(scan, [Part(file) for file in feed], columns)
        if rows is not None:
            changes.add(rows_by_position(rows))
            return True
    tables = []
    for file in feed:
        read = rows_of(scan, file.path, [scan.field.physical, CHANGE_TYPE])
        positions = None if read is None else positions_in(scan, file, read)
        if read is None or positions is None or CHANGE_TYPE not in read.column_names:
            return False
        kinds = read.column(CHANGE_TYPE)
        tables.append(pa.table({"position": positions, "image": pc.equal(kinds, "update_preimage")}))
    changes.add(_feed_counts(pa.concat_tables(tables)))
    return True


def file_changes(scan: LogScan, rewrite: Rewrite, changes: ChangedRanges) -> None:
    """Count where rows came and went with whole files."""
    before = _worth_opening(scan, rewrite.removed, changes)
    after = _worth_opening(scan, rewrite.added, changes)
    if not before and not after:
        return
    selected = _selected(scan, rewrite.version, before, after)
    if selected is None:
        gone, came = ([Part(file) for file in files] for files in (before, after))
    else:
        gone, came = selected
    if selected is not None and gone and came:
        rows = change_rows(scan, gone, came, rewrite.columns)
        if rows is not None:
            changes.add(rows_by_position(rows))
            return
        _log.warning("rewrite_not_compared", extra={"fields": _facts(scan, rewrite)})
    was, now = (_by_position(scan, parts, changes) for parts in (gone, came))
    changes.add(either(was, now))


def delete_changes(scan: LogScan, rewrite: Rewrite, first: int | None, changes: ChangedRanges) -> IntervalSet:
    """Count where a commit that brought no row took some, and tell where it certainly did.

    Where as many rows are left as there were, they are the same. Files that went whole below the first row are not
    opened.
    """
    stayed = IntervalSet.of(reach[:2] for file in rewrite.added if (reach := span(scan, file)) is not None)
    cut: list[_Reaching] = []
    whole: list[_Reaching] = []
    for file in rewrite.removed:
        reach = span(scan, file)
        if reach is not None:
            (cut if stayed.within(*reach[:2]) else whole).append((file, reach))
    taken = _cut_changes(scan, rewrite, cut, first, changes)
    _whole_changes(
        scan, rewrite.version, [pair for pair in whole if first is None or pair[1][1] > first], changes, taken
    )
    for _, reach in whole:
        if first is not None and reach[1] <= first:
            _count_span(reach, changes)
    return taken.changed().ranges


def _cut_changes(
    scan: LogScan, rewrite: Rewrite, cut: Sequence[_Reaching], first: int | None, changes: ChangedRanges
) -> ChangedRanges:
    """Rows of several files may lie together now: all are opened, or none is."""
    taken = ChangedRanges(scan.axis)
    files = [file for file, _ in cut]
    lowest = min((low for _, (low, _, _) in cut), default=None)
    begins = None if lowest is None or first is None or lowest >= first else first
    selected = None
    if any(scan.consumed.within(low, end) for _, (low, end, _) in cut):
        selected = _selected(scan, rewrite.version, files, rewrite.added)
    if selected is not None and lowest is not None and begins is not None:
        went = _gone_below(scan, selected, begins)
        if went is not None:
            for target in (changes, taken) if went else ():
                target.add_span((lowest, begins, went))
            return taken
    counted = None if selected is None else _counted(scan, selected)
    if counted is not None:
        for target in (changes, taken):
            target.add(counted)
        return taken
    held = NOTHING if begins is None or selected is None else _held(scan, selected[1])
    for _, (low, end, rows) in cut:
        for number, part in enumerate(ranges((low, end)) - held):
            _count_span((part.start, part.end, 0 if number else rows), changes)
    return taken


def _counted(scan: LogScan, selected: tuple[list[Part], list[Part]]) -> pa.Table | None:
    """How many rows went at each position; None when not all of the files can be read."""
    if sum(part.file.rows or 0 for parts in selected for part in parts if not part.is_empty) > scan.budget.rows:
        return None
    unread = ChangedRanges(scan.axis)
    was, now = (_by_position(scan, parts, unread) for parts in selected)
    return None if unread.changed() else differing(was, now)


def _held(scan: LogScan, parts: Sequence[Part]) -> IntervalSet:
    """Where rows are left of files that are gone, when that is told in few words."""
    unread = ChangedRanges(scan.axis)
    there = ChangedRanges(scan.axis)
    there.add(_by_position(scan, parts, unread))
    held = there.changed().ranges
    return NOTHING if unread.changed() or len(held) >= MOST_PARTS else held


def _gone_below(scan: LogScan, selected: tuple[list[Part], list[Part]], first: int) -> int | None:
    """How many rows went when all of them lay below the first that is left; None when others did, or nobody knows.

    Rows are only counted here, so that no file is too large: retention must not be taken for anything else.
    """
    gone, came = (rows_around(scan, parts, first) for parts in selected)
    if gone is None or came is None or gone[1] != came[1]:
        return None
    return gone[0] - came[0]


def _whole_changes(
    scan: LogScan, version: int, files: Sequence[_Reaching], changes: ChangedRanges, taken: ChangedRanges
) -> None:
    """Every row of these files went; the least one is known unopened."""
    opened = [file for file, (low, end, _) in files if scan.consumed.within(low, end)]
    selected = _selected(scan, version, opened, ())
    parts = {} if selected is None else {part.file.path: part for part in selected[0]}
    for file, reach in files:
        unread = ChangedRanges(scan.axis)
        part = parts.get(file.path)
        counted = None if part is None else _by_position(scan, [part], unread)
        if counted is not None and not unread.changed():
            changes.add(counted)
            taken.add(counted)
            continue
        _count_span(reach, changes)
        if not file.has_deletion_vector and reach[0] != MIN_POSITION:
            taken.add_span((reach[0], reach[0] + 1, 1))


def _worth_opening(scan: LogScan, files: Iterable[DataFile], changes: ChangedRanges) -> tuple[DataFile, ...]:
    """The files whose rows somebody has read; the others count with their range."""
    to_open = []
    for file in files:
        reach = span(scan, file)
        if reach is None:
            continue
        if scan.consumed.within(reach[0], reach[1]):
            to_open.append(file)
        else:
            _count_whole(scan, file, changes)
    return tuple(to_open)


def _count_whole(scan: LogScan, file: DataFile, changes: ChangedRanges) -> None:
    reach = span(scan, file)
    if reach is not None:
        _count_span(reach, changes)


def _count_span(reach: Span, changes: ChangedRanges) -> None:
    if reach[:2] == EVERYTHING.edges:
        changes.everything = True
    changes.add_span(reach)


def _selected(
    scan: LogScan, version: int, before: Sequence[DataFile], after: Sequence[DataFile]
) -> tuple[list[Part], list[Part]] | None:
    """The rows to look at, without those that deletion vectors hide; None when these cannot be read.

    A file on both sides only changed its vector: the rows that stay are left out of both.
    """
    old = vectors(scan, version - 1, before)
    new = vectors(scan, version, after)
    if old is None or new is None:
        return None
    gone, came = _parts(before, after, old, new), _parts(after, before, new, old)
    return None if gone is None or came is None else (gone, came)


def _parts(files: Sequence[DataFile], others: Sequence[DataFile], own: Masks, other: Masks) -> list[Part] | None:
    """The rows of these files that the others have not; None when a vector is missing."""
    on_both = {file.path for file in others}
    parts = []
    for file in files:
        mask = own.get(file.path, NO_MASK)
        if file.has_deletion_vector and file.path not in own:
            return None
        if file.path in on_both:
            theirs = other.get(file.path, NO_MASK)
            length = max(len(mask), len(theirs))
            fewer = pc.and_not(padded(mask, length, True), padded(theirs, length, True))
            parts.append(Part(file, fewer, rest=False))
        else:
            parts.append(Part(file, mask))
    return parts


def _facts(scan: LogScan, rewrite: Rewrite) -> dict[str, object]:
    size = sum(file.size for file in (*rewrite.removed, *rewrite.added))
    return {"table": scan.location, "snapshot": rewrite.version, "bytes": size}


def _by_position(scan: LogScan, parts: Sequence[Part], changes: ChangedRanges) -> pa.Table:
    """How many of these rows each position has; a file that cannot be read is counted with its range at once."""
    counted = [_NO_ROWS]
    for part in parts:
        if part.is_empty:
            continue
        rows = rows_of(scan, part.file.path, [scan.field.physical])
        positions = None if rows is None else positions_in(scan, part.file, rows)
        if positions is None:
            _count_whole(scan, part.file, changes)
        else:
            counted.append(counts(part.of(pa.table({"position": positions})).column("position")))
    return pa.concat_tables(counted)


def _feed_counts(rows: pa.Table) -> pa.Table:
    """An updated row is one row, wherever it was and is."""
    images = rows.column("image")
    old = counts(rows.column("position").filter(images))
    new = counts(rows.column("position").filter(pc.invert(images)))
    return either(old, new)
