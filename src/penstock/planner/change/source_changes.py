"""Which changes of a source matter, and to whom?"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.values.changes import UNCHANGED, Changed, CommitChanges, LogChanges, merged
from penstock.values.intervals import MAX_POSITION, MIN_POSITION, NOTHING, Interval, IntervalSet
from penstock.values.models import Dependency, Graph, IntervalModel, Source
from penstock.values.records import SourceRecord, StateView


@dataclass(frozen=True, slots=True)
class SourceChanges:
    """What a look at a source found out about the rows of before."""

    changed: Changed
    expired_pos: int | None
    """Rows below have left at the old end, now or earlier."""
    ignored: bool = False
    """Others came or changed below that since."""
    ignored_rows: int | None = None
    """How many, if that is known."""


def is_of_interest(source: Source, graph: Graph) -> bool:
    """Whether a change may reopen anything: a lookup does so only for those who ask for it."""
    return source.position is not None or any(
        dependency.on_change == "rerun" for _, dependency in _readings(source, graph)
    )


def consumed(source: Source, graph: Graph, view: StateView) -> IntervalSet:
    """The positions of a source that went into what its readers have covered or are working on."""
    read = NOTHING
    for model, dependency in _readings(source, graph):
        work = view.work.get(model.name)
        used = _covered(model, view) | (work.in_flight if work is not None else NOTHING)
        read |= IntervalSet.of(_read_by(part, dependency) for part in used)
    return read


def newest(source: Source, graph: Graph, view: StateView, length: int) -> Changed:
    """The last stretch of what the readers of a source have covered."""
    ends = [_covered(model, view).end for model, _ in _readings(source, graph)]
    end = max((end for end in ends if end is not None), default=None)
    return UNCHANGED if end is None or length <= 0 else Changed(IntervalSet((end - length, end)))


def replaced(known: SourceRecord, record: SourceRecord) -> bool:
    """Another table under the old name, or older files of the same one: nothing says what they have in common.

    Only an id that was really read says so: there is none while a table cannot be opened.
    """
    if record.table_id is not None and known.table_id != record.table_id:
        return True
    both = known.snapshot is not None and record.snapshot is not None
    return both and (record.snapshot or 0) < (known.snapshot or 0)


def classified(changes: LogChanges, expired_pos: int | None, read: IntervalSet) -> SourceChanges:
    """Commit by commit, what changed and what expired; what was `read` of the source may tell them apart.

    Nothing below what has expired is a change: there is nothing left to compute it with.
    """
    pending: list[Changed] = []
    ignored: list[Changed] = []
    for commit in changes.commits:
        if commit.first is not None and _is_retention(commit, commit.first, read):
            expired_pos = commit.first if expired_pos is None else max(commit.first, expired_pos)
            # what had changed there before has left as well
            pending = [_from(changed, expired_pos) for changed in pending]
            pending.append(_from(commit.changed, expired_pos))
            continue
        if commit.rewinds and expired_pos is not None and commit.changed.ranges.within(MIN_POSITION, expired_pos):
            expired_pos = lowered(expired_pos, commit.first, read)
        pending.append(commit.changed)
        if expired_pos is not None and commit.changed.ranges.within(MIN_POSITION, expired_pos):
            ignored.append(_below(commit.changed, expired_pos))
    changed = _from(merged(pending), MIN_POSITION if expired_pos is None else expired_pos)
    return SourceChanges(changed, expired_pos, bool(ignored), _row_count(ignored))


def _is_retention(commit: CommitChanges, first: int, read: IntervalSet) -> bool:
    """Rows went below all that are left, and certainly none above that a consumer had read.

    A delete of which it is unknown what it took counts as retention too: rows computed from deleted rows cannot be
    computed again.
    """
    if not commit.only_deletes or not commit.changed.ranges.within(MIN_POSITION, first):
        return False
    return not commit.taken.within(first, MAX_POSITION) & read


def lowered(expired_pos: int, first: int | None, read: IntervalSet) -> int | None:
    """Rows came back: what lies below the first of them is still gone, if anything was made of it."""
    if first is None or first >= expired_pos:
        return expired_pos
    return first if read.within(MIN_POSITION, first) else None


def _from(changed: Changed, start: int) -> Changed:
    """The changes from a position on."""
    rows = ((Interval(max(part.start, start), part.end), count) for part, count in changed.rows if part.end > start)
    return Changed(changed.ranges.within(start, MAX_POSITION), tuple(rows))


def _below(changed: Changed, end: int) -> Changed:
    rows = ((part, count) for part, count in changed.rows if part.end <= end)
    return Changed(changed.ranges.within(MIN_POSITION, end), tuple(rows))


def _row_count(changes: list[Changed]) -> int | None:
    """None when some of them were not counted."""
    counted = [IntervalSet.of(part for part, _ in commit.rows) for commit in changes]
    if any(commit.ranges - known for commit, known in zip(changes, counted, strict=True)):
        return None
    return sum(count for commit in changes for _, count in commit.rows)


def _readings(source: Source, graph: Graph) -> list[tuple[IntervalModel, Dependency]]:
    return [
        (model, dependency)
        for model in graph.interval_models
        for dependency in model.inputs
        if dependency.model == source.name
    ]


def _covered(model: IntervalModel, view: StateView) -> IntervalSet:
    """By what is being built and by what is served."""
    covered = NOTHING
    for generation in (view.working.get(model.name), view.current.get(model.name)):
        covered |= generation.covered if generation is not None else NOTHING
    return covered


def _read_by(part: Interval, dependency: Dependency) -> tuple[int, int]:
    """What of the source a stretch of the model was made of."""
    start = part.start if part.start == MIN_POSITION else part.start - dependency.before
    return start, part.end if part.end == MAX_POSITION else part.end + dependency.after
