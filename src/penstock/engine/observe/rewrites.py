"""Which positions have other rows after a commit than before it?"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.observe.change_rows import change_rows, feed_rows, rows_by_position
from penstock.engine.observe.deletion_vectors import NO_MASK, Masks, Part, padded, rows_around, vectors
from penstock.engine.observe.file_rows import LogScan, positions_in, rows_of, span
from penstock.engine.rows.changed_ranges import ChangedRanges, Span, counted_at, counts, differing, either
from penstock.engine.values.files import DataFile
from penstock.values.changes import MOST_PARTS
from penstock.values.intervals import EVERYTHING, MIN_POSITION, NOTHING, IntervalSet, ranges

_log = logging.getLogger("penstock")
CHANGE_TYPE = "_change_type"
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


def feed_changes(look: LogScan, feed: Sequence[DataFile], columns: frozenset[str], tally: ChangedRanges) -> bool:
    """Count the rows of a commit's change files; False when they cannot be read."""
    if sum(file.size for file in feed) <= SMALL_FEED_BYTES:
        rows = feed_rows(look, [Part(file) for file in feed], columns, CHANGE_TYPE)
        if rows is not None:
            tally.add(rows_by_position(rows))
            return True
    found = []
    for file in feed:
        read = rows_of(look, file.path, [look.field.physical, CHANGE_TYPE])
        positions = None if read is None else positions_in(look, file, read)
        if read is None or positions is None or CHANGE_TYPE not in read.column_names:
            return False
        kinds = read.column(CHANGE_TYPE)
        found.append(pa.table({"position": positions, "image": pc.equal(kinds, "update_preimage")}))
    tally.add(_feed_counts(pa.concat_tables(found)))
    return True


def file_changes(look: LogScan, rewrite: Rewrite, tally: ChangedRanges) -> None:
    """Count where rows came and went with whole files."""
    before = _worth_opening(look, rewrite.removed, tally)
    after = _worth_opening(look, rewrite.added, tally)
    if not before and not after:
        return
    selected = _selected(look, rewrite.version, before, after)
    if selected is None:
        gone, came = ([Part(file) for file in files] for files in (before, after))
    else:
        gone, came = selected
    if selected is not None and gone and came:
        rows = change_rows(look, gone, came, rewrite.columns)
        if rows is not None:
            tally.add(rows_by_position(rows))
            return
        _log.warning("rewrite_not_compared", extra={"fields": _facts(look, rewrite)})
    was, now = (_by_position(look, parts, tally) for parts in (gone, came))
    tally.add(either(was, now))


def delete_changes(look: LogScan, rewrite: Rewrite, first: int | None, tally: ChangedRanges) -> IntervalSet:
    """Count where a commit that brought no row took some, and tell where it certainly did.

    Where as many rows are left as there were, they are the same. Files that went whole below the first row are not
    opened.
    """
    stayed = IntervalSet.of(reach[:2] for file in rewrite.added if (reach := span(look, file)) is not None)
    cut: list[_Reaching] = []
    whole: list[_Reaching] = []
    for file in rewrite.removed:
        reach = span(look, file)
        if reach is not None:
            (cut if stayed.within(*reach[:2]) else whole).append((file, reach))
    taken = _cut_changes(look, rewrite, cut, first, tally)
    _whole_changes(look, rewrite.version, [one for one in whole if first is None or one[1][1] > first], tally, taken)
    for _, reach in whole:
        if first is not None and reach[1] <= first:
            _count_span(reach, tally)
    return taken.changed().ranges


def _cut_changes(
    look: LogScan, rewrite: Rewrite, cut: Sequence[_Reaching], first: int | None, tally: ChangedRanges
) -> ChangedRanges:
    """Rows of several files may lie together now: all are opened, or none is."""
    taken = ChangedRanges(look.axis)
    files = [file for file, _ in cut]
    lowest = min((low for _, (low, _, _) in cut), default=None)
    begins = None if lowest is None or first is None or lowest >= first else first
    selected = None
    if any(look.consumed.within(low, end) for _, (low, end, _) in cut):
        selected = _selected(look, rewrite.version, files, rewrite.added)
    if selected is not None and lowest is not None and begins is not None:
        went = _gone_below(look, selected, begins)
        if went is not None:
            for one in (tally, taken) if went else ():
                one.add_span((lowest, begins, went))
            return taken
    counted = None if selected is None else _counted(look, selected)
    if counted is not None:
        for one in (tally, taken):
            one.add(counted)
        return taken
    held = NOTHING if begins is None or selected is None else _held(look, selected[1])
    for _, (low, end, rows) in cut:
        for number, part in enumerate(ranges((low, end)) - held):
            _count_span((part.start, part.end, 0 if number else rows), tally)
    return taken


def _counted(look: LogScan, selected: tuple[list[Part], list[Part]]) -> pa.Table | None:
    """How many rows went at each position; None when not all of the files can be read."""
    if sum(part.file.rows or 0 for parts in selected for part in parts if not part.is_empty) > look.budget.rows:
        return None
    unread = ChangedRanges(look.axis)
    was, now = (_by_position(look, parts, unread) for parts in selected)
    return None if unread.changed() else differing(was, now)


def _held(look: LogScan, parts: Sequence[Part]) -> IntervalSet:
    """Where rows are left of files that are gone, when that is told in few words."""
    unread = ChangedRanges(look.axis)
    there = ChangedRanges(look.axis)
    there.add(_by_position(look, parts, unread))
    held = there.changed().ranges
    return NOTHING if unread.changed() or len(held) >= MOST_PARTS else held


def _gone_below(look: LogScan, selected: tuple[list[Part], list[Part]], first: int) -> int | None:
    """How many rows went when all of them lay below the first that is left; None when others did, or nobody knows.

    Rows are only counted here, so that no file is too large: retention must not be taken for anything else.
    """
    gone, came = (rows_around(look, parts, first) for parts in selected)
    if gone is None or came is None or gone[1] != came[1]:
        return None
    return gone[0] - came[0]


def _whole_changes(
    look: LogScan, version: int, files: Sequence[_Reaching], tally: ChangedRanges, taken: ChangedRanges
) -> None:
    """Every row of these files went; the least one is known unopened."""
    opened = [file for file, (low, end, _) in files if look.consumed.within(low, end)]
    selected = _selected(look, version, opened, ())
    parts = {} if selected is None else {part.file.path: part for part in selected[0]}
    for file, reach in files:
        unread = ChangedRanges(look.axis)
        part = parts.get(file.path)
        counted = None if part is None else _by_position(look, [part], unread)
        if counted is not None and not unread.changed():
            tally.add(counted)
            taken.add(counted)
            continue
        _count_span(reach, tally)
        if not file.has_deletion_vector and reach[0] != MIN_POSITION:
            taken.add_span((reach[0], reach[0] + 1, 1))


def _worth_opening(look: LogScan, files: Iterable[DataFile], tally: ChangedRanges) -> tuple[DataFile, ...]:
    """The files whose rows somebody has read; the others count with their range."""
    found = []
    for file in files:
        reach = span(look, file)
        if reach is None:
            continue
        if look.consumed.within(reach[0], reach[1]):
            found.append(file)
        else:
            _count_whole(look, file, tally)
    return tuple(found)


def _count_whole(look: LogScan, file: DataFile, tally: ChangedRanges) -> None:
    reach = span(look, file)
    if reach is not None:
        _count_span(reach, tally)


def _count_span(reach: Span, tally: ChangedRanges) -> None:
    if reach[:2] == EVERYTHING.edges:
        tally.everything = True
    tally.add_span(reach)


def _selected(
    look: LogScan, version: int, before: Sequence[DataFile], after: Sequence[DataFile]
) -> tuple[list[Part], list[Part]] | None:
    """The rows to look at, without those that deletion vectors hide; None when these cannot be read.

    A file on both sides only changed its vector: the rows that stay are left out of both.
    """
    old = vectors(look, version - 1, before)
    new = vectors(look, version, after)
    if old is None or new is None:
        return None
    gone, came = _parts(before, after, old, new), _parts(after, before, new, old)
    return None if gone is None or came is None else (gone, came)


def _parts(files: Sequence[DataFile], others: Sequence[DataFile], own: Masks, other: Masks) -> list[Part] | None:
    """The rows of these files that the others have not; None when a vector is missing."""
    on_both = {file.path for file in others}
    found = []
    for file in files:
        mask = own.get(file.path, NO_MASK)
        if file.has_deletion_vector and file.path not in own:
            return None
        if file.path in on_both:
            theirs = other.get(file.path, NO_MASK)
            length = max(len(mask), len(theirs))
            fewer = pc.and_not(padded(mask, length, True), padded(theirs, length, True))
            found.append(Part(file, fewer, rest=False))
        else:
            found.append(Part(file, mask))
    return found


def _facts(look: LogScan, rewrite: Rewrite) -> dict[str, object]:
    size = sum(file.size for file in (*rewrite.removed, *rewrite.added))
    return {"table": look.location, "snapshot": rewrite.version, "bytes": size}


def _by_position(look: LogScan, parts: Sequence[Part], tally: ChangedRanges) -> pa.Table:
    """How many of these rows each position has; a file that cannot be read is counted with its range at once."""
    found = [_NO_ROWS]
    for part in parts:
        if part.is_empty:
            continue
        rows = rows_of(look, part.file.path, [look.field.physical])
        positions = None if rows is None else positions_in(look, part.file, rows)
        if positions is None:
            _count_whole(look, part.file, tally)
        else:
            found.append(counts(part.of(pa.table({"position": positions})).column("position")))
    return pa.concat_tables(found)


def _feed_counts(rows: pa.Table) -> pa.Table:
    """An updated row is one row, wherever it was and is."""
    images = rows.column("image")
    old = counts(rows.column("position").filter(images))
    new = counts(rows.column("position").filter(pc.invert(images)))
    return either(old, new)
