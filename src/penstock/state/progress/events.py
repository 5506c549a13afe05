"""What do the consumers of a changed table have to do about it?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.errors import ConflictError, StateError
from penstock.planner.change.pins import InputChange, compare_pin, has_read
from penstock.state.database.connection import Database, storable
from penstock.state.progress import row_counts
from penstock.state.progress.invalidations import Invalidation, StaleRange, find_stale, known_invalidation, note, store
from penstock.state.progress.row_counts import StoredCounts
from penstock.values.intervals import EVERYTHING, MAX_POSITION, MIN_POSITION, NOTHING, IntervalSet
from penstock.values.records import ConsumerImpact, Recorded
from penstock.values.tasks import Frontier

Affected = Callable[[str, str, IntervalSet], IntervalSet]
MOST_TRIES = 3


@dataclass(frozen=True, slots=True)
class _Event:
    no: int
    id: str
    model: str
    generation: str | None
    table_id: str | None
    snapshot: int | None
    ranges: IntervalSet
    row_counts: StoredCounts
    attempts: int
    last_error: str | None

    @property
    def change(self) -> InputChange:
        return InputChange(self.model, self.generation, self.table_id, self.snapshot)


@dataclass(frozen=True, slots=True)
class _Consumer:
    """One way in which a model reads the changed one."""

    child: str
    removed: bool
    before_pos: int
    after_pos: int
    preferred: list[str]


@dataclass(frozen=True, slots=True)
class _KeptGeneration:
    no: int
    model: str
    working: bool


@dataclass(frozen=True, slots=True)
class Events:
    _database: Database

    def handle(self, affected: Affected) -> int:
        """Turn every due event into stale ranges of its consumers, one transaction each; how many there were.

        An event that cannot be mapped does not hold up the others. After some tries it counts as "everything changed".
        """
        handled = 0
        while True:
            event: _Event | None = None
            try:
                with self._database.transaction():
                    event = self._database.row("next_event", _Event)
                    if event is None:
                        return handled
                    _handle(self._database, event, affected)
            except (StateError, ConflictError):
                raise
            except Exception as error:
                if event is None:
                    raise
                said = storable(f"{type(error).__name__}: {error}")
                self._database.run("postpone_event", no=event.no, error=said)
            handled += 1

    def last_change(self, model: str, ranges: IntervalSet) -> InputChange | None:
        """The newest change of a source there that its log has shown; None when it has shown none."""
        return self._database.row("last_change", InputChange, model=model, ranges=ranges)

    def ask_consumers(
        self,
        change: InputChange,
        ranges: IntervalSet,
        reach: Mapping[str, IntervalSet],
        reason: str,
        actor: str,
        *,
        key: str | None = None,
        row_filter: str | None = None,
        keep: bool = True,
    ) -> ConsumerImpact:
        """`ranges` of a table of others changed: its consumers compute `reach` again, unless they read that snapshot.

        Without `keep` it is only said what would be asked.
        """
        invalidation = Invalidation(change, ranges, reason, actor, "manual", key, row_filter)
        if not keep:
            return self._would_ask(invalidation, reach)
        with self._database.transaction():
            known = known_invalidation(self._database, change.model, key)
            if known is not None:
                return ConsumerImpact(known.id, {}, known)
            impact, stale_ranges = _impact(self._database, invalidation, reach, "lock_consumers")
            number = store(self._database, invalidation, stale_ranges)
            note(self._database, invalidation)
            self._database.run("wake")
        return ConsumerImpact(number, impact.asked)

    def _would_ask(self, invalidation: Invalidation, reach: Mapping[str, IntervalSet]) -> ConsumerImpact:
        with self._database.looking():
            known = self._database.row(
                "known_invalidation", Recorded, model=invalidation.change.model, key=invalidation.key
            )
            if known is not None:
                return ConsumerImpact(known.id, {}, known)
            return _impact(self._database, invalidation, reach, "kept_consumers")[0]


def _handle(database: Database, event: _Event, affected: Affected) -> None:
    if event.generation is not None and not database.value("is_working", bool, generation=event.generation):
        database.run("delete_event", no=event.no)  # a build that was given up; nobody reads it
        return
    consumers = database.rows("consumers", _Consumer, model=event.model)
    hopeless = event.attempts >= MOST_TRIES
    if hopeless:
        reach = dict.fromkeys((consumer.child for consumer in consumers), EVERYTHING)
    else:
        reach = _reach(event.ranges, consumers, lambda child: affected(child, event.model, event.ranges))
    generations = database.rows("lock_consumers", _KeptGeneration, models=sorted(reach))
    stale_ranges = _stale_ranges(database, event.change, generations, reach, consumers)
    if any(stale_range.asked for stale_range in stale_ranges):
        reason = f"{event.model} changed" + (f" somewhere: {event.last_error}" if hopeless else "")
        cause: Literal["source", "parent"] = "source" if event.generation is None else "parent"
        rows = row_counts.loaded(event.row_counts)
        store(
            database, Invalidation(event.change, event.ranges, reason, "penstock", cause, row_counts=rows), stale_ranges
        )
    if hopeless:
        database.run("bury_event", no=event.no)
    else:
        database.run("delete_event", no=event.no)
    database.run("wake")


def _impact(
    database: Database, invalidation: Invalidation, reach: Mapping[str, IntervalSet], statement: str
) -> tuple[ConsumerImpact, list[StaleRange]]:
    consumers = database.rows("consumers", _Consumer, model=invalidation.change.model)
    reached = _reach(invalidation.ranges, consumers, lambda child: reach.get(child, NOTHING))
    generations = database.rows(statement, _KeptGeneration, models=sorted(reached))
    stale_ranges = _stale_ranges(database, invalidation.change, generations, reached, consumers)
    names = {generation.no: generation.model for generation in generations if generation.working}
    asked = {
        names[stale_range.generation]: stale_range.asked
        for stale_range in stale_ranges
        if stale_range.asked and stale_range.generation in names
    }
    return ConsumerImpact(None, asked), stale_ranges


def _stale_ranges(
    database: Database,
    change: InputChange,
    generations: Sequence[_KeptGeneration],
    reach: Mapping[str, IntervalSet],
    consumers: Sequence[_Consumer],
) -> list[StaleRange]:
    return [
        _stale_range(database, change, generation, reach[generation.model], consumers)
        for generation in generations
        if reach[generation.model]
    ]


def _stale_range(
    database: Database,
    change: InputChange,
    generation: _KeptGeneration,
    reach: IntervalSet,
    consumers: Sequence[_Consumer],
) -> StaleRange:
    preferred = [consumer.preferred for consumer in consumers if consumer.child == generation.model]

    def hit(frontier: Frontier) -> bool:
        # a table that nobody builds any more is only marked for rows that it has really read
        return compare_pin(frontier, change, preferred) != "ahead" and (
            generation.working or has_read(frontier, change)
        )

    return find_stale(database, generation.no, reach, hit)


def _reach(
    ranges: IntervalSet, consumers: Sequence[_Consumer], affected: Callable[[str], IntervalSet]
) -> dict[str, IntervalSet]:
    """By consumer: the positions that may differ."""
    reach: dict[str, IntervalSet] = {}
    for consumer in consumers:
        if consumer.removed:
            reach[consumer.child] = reach.get(consumer.child, NOTHING) | _widened(ranges, consumer)
        elif consumer.child not in reach:
            reach[consumer.child] = affected(consumer.child)
    return reach


def _widened(ranges: IntervalSet, consumer: _Consumer) -> IntervalSet:
    """The project no longer knows a removed model; what was stored of it is enough."""
    return IntervalSet.of(
        (max(part.start - consumer.after_pos, MIN_POSITION), min(part.end + consumer.before_pos, MAX_POSITION))
        for part in ranges
    )
