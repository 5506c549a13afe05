"""What of a generation must be computed again, and is an attempt in time for it?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from psycopg.types.json import Jsonb

from penstock.planner.change.pins import Asked, InputChange, lost, too_early
from penstock.state.database.connection import Database, storable
from penstock.state.progress import pins
from penstock.state.progress import row_counts as told
from penstock.state.progress.folding import Kind
from penstock.state.progress.row_counts import StoredCounts
from penstock.values.changes import RowCounts
from penstock.values.intervals import NOTHING, Interval, IntervalSet
from penstock.values.records import Cause, Recorded
from penstock.values.tasks import Frontier


@dataclass(frozen=True, slots=True)
class _Said:
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

    news: InputChange
    ranges: IntervalSet
    reason: str
    actor: str
    cause: Cause
    key: str | None = None
    row_filter: str | None = None
    told: RowCounts = ()


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
        wish = Invalidation(own_news(model), scope, reason, actor, cause, key, row_filter)
        with self._database.transaction():
            known = known_wish(self._database, model, key)
            return known.id if known is not None else self._ask([wish], rows_unknown)[0]

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
        wishes = [
            Invalidation(own_news(model), scope, reason, actor, "rerun", row_filter=row_filter)
            for model, scope in sorted(scopes.items())
            if scope
        ]
        if wishes:
            with self._database.transaction():
                self._ask(wishes, rows_unknown)
        return len(wishes)

    def _ask(self, wishes: Sequence[Invalidation], rows_unknown: bool) -> list[int]:
        database = self._database
        names = [wish.news.model for wish in wishes]
        generations = database.rows("lock_kept_generations", _of_model, models=names)
        numbers = []
        for wish in wishes:
            own = [no for no, model in generations if model == wish.news.model]
            marks = [find_stale(database, no, wish.ranges, lambda _: True) for no in own]
            numbers.append(store(database, wish, marks))
            if rows_unknown:
                database.run("forget_digests", generations=own, ranges=wish.ranges)
            note(database, wish)
        database.run("wake")
        return numbers


def own_news(model: str) -> InputChange:
    """Not of an input: somebody wants the model itself computed again."""
    return InputChange(model, None, None, None)


def known_wish(database: Database, model: str, key: str | None) -> Recorded | None:
    """Whether this was asked before. From here on whoever asks it too waits for the caller's transaction."""
    if key is None:
        return None
    database.run("lock_key", model=model, key=key)
    return database.row("known_invalidation", Recorded, model=model, key=key)


def note(database: Database, wish: Invalidation) -> None:
    """For those who ask later who did what."""
    scope = {"scope": str(wish.ranges)}
    database.run("audit", actor=wish.actor, action="invalidate", subject=wish.news.model, detail=Jsonb(scope))


def _of_model(no: int, model: str) -> tuple[int, str]:
    return no, model


def find_stale(
    database: Database, generation: int, affected: IntervalSet, hit: Callable[[Frontier], bool]
) -> StaleRange:
    """What of `affected` was covered from rows that `hit` says are too old; the caller holds the generation's lock.

    Active work is asked too, covered or not: it may have fixed its inputs already, and finds the target when it
    publishes.
    """
    said = database.rows("overlapping_rows", _Said, generation=generation, ranges=affected)
    made_from = sorted({one.frontier for one in said if one.frontier is not None})
    hits = {number for number, inputs in pins.frontiers(database, made_from).items() if hit(inputs)}
    old = _covered_from(said, hits) & affected
    active = database.values("active_ranges", IntervalSet, generation=generation)
    return StaleRange(generation, old, old | (IntervalSet.of(part for one in active for part in one) & affected))


def store(database: Database, wish: Invalidation, marks: Sequence[StaleRange]) -> int:
    """Write an invalidation with its marks; one that asks nothing of anybody is closed at once."""
    number = database.value(
        "insert_invalidation",
        int,
        model=wish.news.model,
        ranges=wish.ranges,
        reason=storable(wish.reason),
        actor=wish.actor,
        cause=wish.cause,
        row_filter=None if wish.row_filter is None else storable(wish.row_filter),
        told=told.stored([wish.told]),
        input_generation=wish.news.generation,
        input_table_id=wish.news.table_id,
        input_snapshot=wish.news.snapshot,
        idem_key=wish.key,
    )
    assert number is not None  # noqa: S101  an insert without a condition returns its row
    for mark in marks:
        if mark.asked:
            epoch = database.value("next_epoch", int, generation=mark.generation)
            database.run("insert_signed_rows", generation=mark.generation, kind="stale", ranges=mark.old)
            database.run(
                "insert_target",
                invalidation=number,
                generation=mark.generation,
                epoch=epoch,
                ranges=mark.asked,
                stale=bool(mark.old),
            )
    if wish.cause in ("source", "parent"):  # what people said is kept as they said it
        _absorb(database, number, wish)
    database.run("close_invalidations", invalidations=[number])
    return number


def _absorb(database: Database, number: int, wish: Invalidation) -> None:
    """Let a trickle of late rows be one wish, not one for each."""
    taken = database.rows("absorb_invalidations", _taken, invalidation=number)
    if taken:
        database.run(
            "extend_invalidation",
            invalidation=number,
            ranges=IntervalSet.of(part for ranges in (wish.ranges, *(one for one, _ in taken)) for part in ranges),
            told=told.stored([wish.told, *(rows for _, rows in taken)]),
        )


def _taken(ranges: IntervalSet, told_: StoredCounts) -> tuple[IntervalSet, RowCounts]:
    return ranges, told.loaded(told_)


def answer_targets(database: Database, generation: int, done: IntervalSet, frontier: Frontier, epoch: int) -> None:
    """Close what `done` answers, and mark as stale what it was too early for."""
    targets = database.rows("open_targets", _asked, generation=generation, ranges=done)
    late = lost(targets, done, frontier, epoch)
    if late:
        database.run("insert_signed_rows", generation=generation, kind="stale", ranges=late)
        missed = [one.invalidation for one in targets if too_early(one, frontier, epoch)]
        database.run("reopen_targets", generation=generation, invalidations=missed)
    answered = [one.invalidation for one in targets if not too_early(one, frontier, epoch)]
    if answered:
        database.run("lock_invalidations", invalidations=answered)
        database.run("answer_targets", generation=generation, invalidations=answered, ranges=done)
        database.run("close_invalidations", invalidations=answered)


def _covered_from(said: Sequence[_Said], hits: Collection[int]) -> IntervalSet:
    """Where the last word is a cover that was made from one of these frontiers."""
    found = NOTHING
    words = ((one.kind == "cover" and one.frontier in hits, one.range) for one in said if one.kind != "stale")
    for is_hit, group in groupby(words, key=lambda word: word[0]):
        part = IntervalSet.of(interval for _, interval in group)
        found = found | part if is_hit else found - part
    return found


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
) -> Asked:
    return Asked(invalidation, epoch, remaining, InputChange(model, generation, table_id, snapshot), preferred)
