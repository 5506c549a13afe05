"""What of a generation must be computed again, and is an attempt in time for it?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import groupby

from psycopg.types.json import Jsonb

from penstock.intervals import NOTHING, Interval, IntervalSet
from penstock.state import pins
from penstock.state.connection import Database
from penstock.state.folding import Kind
from penstock.state.pins import News, Preferred, standing
from penstock.tasks import Frontier


@dataclass(frozen=True, slots=True)
class Asked:
    """What one invalidation still asks of one generation."""

    invalidation: int
    epoch: int
    remaining: IntervalSet
    news: News
    preferred: Preferred


@dataclass(frozen=True, slots=True)
class _Said:
    """A signed row; covers name the frontier they were made from."""

    kind: Kind
    range: Interval
    frontier: int | None


@dataclass(frozen=True, slots=True)
class Mark:
    """What an invalidation does to one generation: `old` becomes stale, `asked` must be published again."""

    generation: int
    old: IntervalSet
    asked: IntervalSet


def invalidate(
    database: Database,
    model: str,
    scope: IntervalSet,
    reason: str,
    actor: str,
    *,
    key: str | None = None,
    rows_unknown: bool = False,
) -> int:
    """Ask every generation of `model` that is not purged to compute `scope` again; the same key asks once.

    With `rows_unknown` somebody else may have changed what is stored: equal rows can no longer be told by a digest.
    """
    with database.transaction():
        generations = database.values("lock_kept_generations", int, models=[model])
        if key is not None and (known := database.value("known_invalidation", int, key=key)):
            return known
        marks = [find_mark(database, generation, scope, lambda _: True) for generation in generations]
        number = store(database, News(model, None, None, None), scope, reason=reason, actor=actor, key=key, marks=marks)
        if rows_unknown:
            database.run("forget_digests", generations=generations, ranges=scope)
        database.run("audit", actor=actor, action="invalidate", subject=model, detail=Jsonb({"scope": str(scope)}))
        database.run("wake")
    return number


def find_mark(database: Database, generation: int, affected: IntervalSet, hit: Callable[[Frontier], bool]) -> Mark:
    """What of `affected` was covered from rows that `hit` says are too old; the caller holds the generation's lock.

    Active work is asked too, covered or not: it may have fixed its inputs already, and finds the target when it
    publishes.
    """
    said = database.rows("overlapping_rows", _Said, generation=generation, ranges=affected)
    made_from = sorted({one.frontier for one in said if one.frontier is not None})
    hits = {number for number, inputs in pins.frontiers(database, made_from).items() if hit(inputs)}
    old = _covered_from(said, hits) & affected
    active = database.values("active_ranges", IntervalSet, generation=generation)
    return Mark(generation, old, old | (IntervalSet.of(part for one in active for part in one) & affected))


def store(
    database: Database,
    news: News,
    ranges: IntervalSet,
    *,
    reason: str,
    actor: str,
    key: str | None,
    marks: Sequence[Mark],
) -> int:
    """Write an invalidation with its marks; one that asks nothing of anybody is closed at once."""
    number = database.value(
        "insert_invalidation",
        int,
        model=news.model,
        ranges=ranges,
        reason=reason,
        actor=actor,
        input_generation=news.generation,
        input_table_id=news.table_id,
        input_snapshot=news.snapshot,
        idem_key=key,
    )
    assert number is not None  # noqa: S101  an insert without a condition returns its row
    for mark in marks:
        if mark.asked:
            epoch = database.value("next_epoch", int, generation=mark.generation)
            database.run("insert_signed_rows", generation=mark.generation, kind="stale", ranges=mark.old)
            database.run(
                "insert_target", invalidation=number, generation=mark.generation, epoch=epoch, ranges=mark.asked
            )
    database.run("close_invalidations", invalidations=[number])
    return number


def settle(database: Database, generation: int, done: IntervalSet, frontier: Frontier, epoch: int) -> None:
    """Close what `done` answers, and mark as stale what it was too early for."""
    targets = database.rows("open_targets", _asked, generation=generation, ranges=done)
    late = lost(targets, done, frontier, epoch)
    if late:
        database.run("insert_signed_rows", generation=generation, kind="stale", ranges=late)
    answered = [one.invalidation for one in targets if not too_early(one, frontier, epoch)]
    if answered:
        database.run("answer_targets", generation=generation, invalidations=answered, ranges=done)
        database.run("close_invalidations", invalidations=answered)


def lost(targets: Sequence[Asked], done: IntervalSet, frontier: Frontier, epoch: int) -> IntervalSet:
    """What of `done` was invalidated after its inputs were fixed."""
    late = (part for one in targets if too_early(one, frontier, epoch) for part in one.remaining)
    return IntervalSet.of(late) & done


def too_early(asked: Asked, frontier: Frontier, epoch: int) -> bool:
    """By the input's snapshot where both sides have one, else by the order of the marks."""
    match standing(frontier, asked.news, asked.preferred):
        case "behind":
            return True
        case "ahead":
            return False
        case "unknown":
            return asked.epoch > epoch


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
    return Asked(invalidation, epoch, remaining, News(model, generation, table_id, snapshot), preferred)
