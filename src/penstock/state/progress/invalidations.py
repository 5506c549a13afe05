"""What of a generation must be computed again, and is an attempt in time for it?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from psycopg.types.json import Jsonb

from penstock.planner.change.pins import InputChange, OpenInvalidation, lost, too_early
from penstock.state.database.connection import Database, storable
from penstock.state.progress import pins, row_counts
from penstock.state.progress.folding import Kind
from penstock.state.progress.row_counts import StoredCounts
from penstock.values.changes import RowCounts
from penstock.values.intervals import NOTHING, Interval, IntervalSet
from penstock.values.records import Cause, Recorded
from penstock.values.tasks import Frontier


@dataclass(frozen=True, slots=True)
class _CoverageEntry:
    """A signed row; covers name the frontier they were made from."""

    kind: Kind
    range: Interval
    frontier: int | None


@dataclass(frozen=True, slots=True)
class StaleRange:
    """What an invalidation does to one generation: `old` becomes stale, `asked` must be published again."""

    generation: int
    old: IntervalSet
    asked: IntervalSet


@dataclass(frozen=True, slots=True)
class Invalidation:
    """That something is computed again: what changed, and who says so why."""

    change: InputChange
    ranges: IntervalSet
    reason: str
    actor: str
    cause: Cause
    key: str | None = None
    row_filter: str | None = None
    row_counts: RowCounts = ()


@dataclass(frozen=True, slots=True)
class Invalidations:
    _database: Database

    def invalidate(
        self,
        model: str,
        scope: IntervalSet,
        reason: str,
        actor: str,
        *,
        key: str | None = None,
        rows_unknown: bool = False,
        cause: Cause = "rerun",
        row_filter: str | None = None,
    ) -> int:
        """Ask every generation of `model` that is not purged to compute `scope` again; the number of the invalidation.

        The same key asks once. With `rows_unknown` somebody else may have changed what is stored: equal rows can no
        longer be told by a digest.
        """
        invalidation = Invalidation(own_change(model), scope, reason, actor, cause, key, row_filter)
        with self._database.transaction():
            known = known_invalidation(self._database, model, key)
            return known.id if known is not None else self._ask([invalidation], rows_unknown)[0]

    def invalidate_all(
        self,
        scopes: Mapping[str, IntervalSet],
        reason: str,
        actor: str,
        *,
        rows_unknown: bool = False,
        row_filter: str | None = None,
    ) -> int:
        """Ask several models in one transaction, each to compute its own scope again; how many were asked.

        One invalidation for each: all are ordered by the epochs of their own generations, whatever they read.
        """
        invalidations = [
            Invalidation(own_change(model), scope, reason, actor, "rerun", row_filter=row_filter)
            for model, scope in sorted(scopes.items())
            if scope
        ]
        if invalidations:
            with self._database.transaction():
                self._ask(invalidations, rows_unknown)
        return len(invalidations)

    def _ask(self, invalidations: Sequence[Invalidation], rows_unknown: bool) -> list[int]:
        database = self._database
        names = [invalidation.change.model for invalidation in invalidations]
        generations = database.rows("lock_kept_generations", _of_model, models=names)
        numbers = []
        for invalidation in invalidations:
            own = [no for no, model in generations if model == invalidation.change.model]
            stale_ranges = [find_stale(database, no, invalidation.ranges, lambda _: True) for no in own]
            numbers.append(store(database, invalidation, stale_ranges))
            if rows_unknown:
                database.run("forget_digests", generations=own, ranges=invalidation.ranges)
            note(database, invalidation)
        database.run("wake")
        return numbers


def own_change(model: str) -> InputChange:
    """Not of an input: the model itself is to be recomputed."""
    return InputChange(model, None, None, None)


def known_invalidation(database: Database, model: str, key: str | None) -> Recorded | None:
    """Whether this was asked before. From here on whoever asks it too waits for the caller's transaction."""
    if key is None:
        return None
    database.run("lock_key", model=model, key=key)
    return database.row("known_invalidation", Recorded, model=model, key=key)


def note(database: Database, invalidation: Invalidation) -> None:
    """For those who ask later who did what."""
    scope = {"scope": str(invalidation.ranges)}
    database.run(
        "audit", actor=invalidation.actor, action="invalidate", subject=invalidation.change.model, detail=Jsonb(scope)
    )


def _of_model(no: int, model: str) -> tuple[int, str]:
    return no, model


def find_stale(
    database: Database, generation: int, affected: IntervalSet, hit: Callable[[Frontier], bool]
) -> StaleRange:
    """What of `affected` was covered from rows that `hit` says are too old; the caller holds the generation's lock.

    Active work is asked too, covered or not: it may have fixed its inputs already, and finds the target when it
    publishes.
    """
    said = database.rows("overlapping_rows", _CoverageEntry, generation=generation, ranges=affected)
    made_from = sorted({row.frontier for row in said if row.frontier is not None})
    hits = {number for number, inputs in pins.frontiers(database, made_from).items() if hit(inputs)}
    old = _covered_from(said, hits) & affected
    active = database.values("active_ranges", IntervalSet, generation=generation)
    return StaleRange(generation, old, old | (_union(active) & affected))


def store(database: Database, invalidation: Invalidation, stale_ranges: Sequence[StaleRange]) -> int:
    """Write an invalidation with its stale ranges; one that marks nothing is closed at once."""
    number = database.value(
        "insert_invalidation",
        int,
        model=invalidation.change.model,
        ranges=invalidation.ranges,
        reason=storable(invalidation.reason),
        actor=invalidation.actor,
        cause=invalidation.cause,
        row_filter=None if invalidation.row_filter is None else storable(invalidation.row_filter),
        row_counts=row_counts.stored([invalidation.row_counts]),
        input_generation=invalidation.change.generation,
        input_table_id=invalidation.change.table_id,
        input_snapshot=invalidation.change.snapshot,
        idem_key=invalidation.key,
    )
    assert number is not None  # noqa: S101  an insert without a condition returns its row
    for stale_range in stale_ranges:
        if stale_range.asked:
            epoch = database.value("next_epoch", int, generation=stale_range.generation)
            database.run("insert_signed_rows", generation=stale_range.generation, kind="stale", ranges=stale_range.old)
            database.run(
                "insert_target",
                invalidation=number,
                generation=stale_range.generation,
                epoch=epoch,
                ranges=stale_range.asked,
                stale=bool(stale_range.old),
            )
    if invalidation.cause in ("source", "parent"):  # what people said is kept as they said it
        _absorb(database, number, invalidation)
    database.run("close_invalidations", invalidations=[number])
    return number


def _absorb(database: Database, number: int, invalidation: Invalidation) -> None:
    """Let a trickle of late rows be one invalidation, not one for each."""
    taken = database.rows("absorb_invalidations", _taken, invalidation=number)
    if taken:
        database.run(
            "extend_invalidation",
            invalidation=number,
            ranges=_union([invalidation.ranges, *(ranges for ranges, _ in taken)]),
            row_counts=row_counts.stored([invalidation.row_counts, *(rows for _, rows in taken)]),
        )


def _union(sets: Iterable[IntervalSet]) -> IntervalSet:
    return IntervalSet.of(part for ranges in sets for part in ranges)


def _taken(ranges: IntervalSet, counts: StoredCounts) -> tuple[IntervalSet, RowCounts]:
    return ranges, row_counts.loaded(counts)


def answer_targets(database: Database, generation: int, done: IntervalSet, frontier: Frontier, epoch: int) -> None:
    """Close what `done` answers, and mark as stale what it was too early for."""
    targets = database.rows("open_targets", _asked, generation=generation, ranges=done)
    late = lost(targets, done, frontier, epoch)
    if late:
        database.run("insert_signed_rows", generation=generation, kind="stale", ranges=late)
        missed = [target.invalidation for target in targets if too_early(target, frontier, epoch)]
        database.run("reopen_targets", generation=generation, invalidations=missed)
    answered = [target.invalidation for target in targets if not too_early(target, frontier, epoch)]
    if answered:
        database.run("lock_invalidations", invalidations=answered)
        database.run("answer_targets", generation=generation, invalidations=answered, ranges=done)
        database.run("close_invalidations", invalidations=answered)


def _covered_from(said: Sequence[_CoverageEntry], hits: Collection[int]) -> IntervalSet:
    """Where the last word is a cover that was made from one of these frontiers."""
    covered = NOTHING
    words = ((row.kind == "cover" and row.frontier in hits, row.range) for row in said if row.kind != "stale")
    for is_hit, group in groupby(words, key=lambda word: word[0]):
        part = IntervalSet.of(interval for _, interval in group)
        covered = covered | part if is_hit else covered - part
    return covered


def _asked(
    *,
    invalidation: int,
    epoch: int,
    remaining: IntervalSet,
    model: str,
    generation: str | None,
    table_id: str | None,
    snapshot: int | None,
    preferred: list[list[str]],
) -> OpenInvalidation:
    return OpenInvalidation(
        invalidation, epoch, remaining, InputChange(model, generation, table_id, snapshot), preferred
    )
