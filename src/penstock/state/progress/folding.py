"""What does a generation hold, given its signed rows?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from penstock.planner.change.coverage import Coverage, invalidated, published
from penstock.state.database.connection import Database
from penstock.values.intervals import NOTHING, IntervalSet

Kind = Literal["cover", "stale", "drop"]
FOLD_AFTER_ROWS = 1000


@dataclass(frozen=True, slots=True)
class CoverageEntries:
    """Rows of one kind that follow each other; `id` is the last one's."""

    generation: int
    id: int
    kind: Kind
    ranges: IntervalSet


@dataclass(frozen=True, slots=True)
class CoverageTotal:
    """What a generation holds after all of its rows up to `through`."""

    through: int = 0
    covered: IntervalSet = NOTHING
    stale: IntervalSet = NOTHING


def extended(base: CoverageTotal, runs: Sequence[CoverageEntries]) -> CoverageTotal:
    """`base` and the rows after it, in the order of their ids."""
    if not runs:
        return base
    touched = IntervalSet.of(part for run in runs for part in run.ranges)
    # the rows are few and the base may be large: only what they touch is worked on, and it is put back once
    local = Coverage(base.covered & touched, base.stale & touched)
    for run in runs:
        local = _signed(local, run.kind, run.ranges)
    covered = (base.covered - touched) | local.covered
    stale = (base.stale - touched) | local.stale
    return CoverageTotal(runs[-1].id, covered, stale)


def _signed(held: Coverage, kind: Kind, part: IntervalSet) -> Coverage:
    match kind:
        case "cover":
            return published(held.covered, held.stale, part, NOTHING)
        case "stale":
            return invalidated(held.covered, held.stale, part)
        case "drop":
            return Coverage(held.covered - part, held.stale - part)


@dataclass(frozen=True, slots=True)
class _Folded:
    generation: int
    through: int
    covered: list[int]
    stale: list[int]


def read(
    database: Database, generations: Iterable[int], known: Mapping[int, CoverageTotal]
) -> dict[int, CoverageTotal]:
    """What `generations` hold now: two statements, and only rows that `known` does not have yet.

    Rows are written under the generation's lock, so none with a smaller id can appear later.
    """
    wanted = sorted(generations)
    missing = [no for no in wanted if no not in known]
    folds = {no: known.get(no, CoverageTotal()) for no in wanted}
    for folded in database.rows("read_folded", _Folded, generations=missing):
        folds[folded.generation] = CoverageTotal(
            folded.through, IntervalSet(tuple(folded.covered)), IntervalSet(tuple(folded.stale))
        )
    through = [folds[no].through for no in wanted]
    runs = database.rows("read_signed_rows", CoverageEntries, generations=wanted, through=through)
    for no, group in groupby(runs, key=lambda run: run.generation):
        folds[no] = extended(folds[no], list(group))
    return folds


def fold(database: Database, generation: int, after_rows: int = FOLD_AFTER_ROWS) -> bool:
    """Sum up the rows of a generation when there are many; whether it did.

    Without the generation's lock: rows up to `through` are all there, and a sum that reaches further is never replaced.
    """
    if (database.value("count_unfolded", int, generation=generation, most=after_rows) or 0) < after_rows:
        return False
    with database.looking():
        held = read(database, [generation], {})[generation]
    written = database.run(
        "write_folded",
        generation=generation,
        through=held.through,
        covered=_array(held.covered),
        stale=_array(held.stale),
    )
    return written > 0


def _array(held: IntervalSet) -> str:
    """PostgreSQL's text of an array; the driver would look at every number by itself."""
    return f"{{{','.join(map(str, held.edges))}}}"
