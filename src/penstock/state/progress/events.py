"""What do the consumers of a changed table have to do about it?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.errors import ConflictError, StateError
from penstock.planner.change.pins import InputChange, compare_pin, has_read
from penstock.state.database.connection import Database, storable
from penstock.state.progress import row_counts as told
from penstock.state.progress.invalidations import Invalidation, StaleRange, find_stale, known_wish, note, store
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
    told: StoredCounts
    attempts: int
    last_error: str | None

    @property
    def news(self) -> InputChange:
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
class _Kept:
    no: int
    model: str
    working: bool


@dataclass(frozen=True, slots=True)
class Events:
    _database: Database

    def handle(self, affected: Affected) -> int:
        """Turn every due event into marks on its consumers, one transaction each; how many there were.

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
        wish = Invalidation(change, ranges, reason, actor, "manual", key, row_filter)
        if not keep:
            return self._would_ask(wish, reach)
        with self._database.transaction():
            known = known_wish(self._database, change.model, key)
            if known is not None:
                return ConsumerImpact(known.id, {}, known)
            asking, marks = _asking(self._database, wish, reach, "lock_consumers")
            number = store(self._database, wish, marks)
            note(self._database, wish)
            self._database.run("wake")
        return ConsumerImpact(number, asking.asked)

    def _would_ask(self, wish: Invalidation, reach: Mapping[str, IntervalSet]) -> ConsumerImpact:
        with self._database.looking():
            known = self._database.row("known_invalidation", Recorded, model=wish.news.model, key=wish.key)
            if known is not None:
                return ConsumerImpact(known.id, {}, known)
            return _asking(self._database, wish, reach, "kept_consumers")[0]


def _handle(database: Database, event: _Event, affected: Affected) -> None:
    if event.generation is not None and not database.value("is_working", bool, generation=event.generation):
        database.run("delete_event", no=event.no)  # a build that was given up; nobody reads it
        return
    consumers = database.rows("consumers", _Consumer, model=event.model)
    hopeless = event.attempts >= MOST_TRIES
    if hopeless:
        reach = dict.fromkeys((one.child for one in consumers), EVERYTHING)
    else:
        reach = _reach(event.ranges, consumers, lambda child: affected(child, event.model, event.ranges))
    kept = database.rows("lock_consumers", _Kept, models=sorted(reach))
    marks = _marks(database, event.news, kept, reach, consumers)
    if any(mark.asked for mark in marks):
        reason = f"{event.model} changed" + (f" somewhere: {event.last_error}" if hopeless else "")
        cause: Literal["source", "parent"] = "source" if event.generation is None else "parent"
        rows = told.loaded(event.told)
        store(database, Invalidation(event.news, event.ranges, reason, "penstock", cause, told=rows), marks)
    if hopeless:
        database.run("bury_event", no=event.no)
    else:
        database.run("delete_event", no=event.no)
    database.run("wake")


def _asking(
    database: Database, wish: Invalidation, reach: Mapping[str, IntervalSet], kept_ones: str
) -> tuple[ConsumerImpact, list[StaleRange]]:
    consumers = database.rows("consumers", _Consumer, model=wish.news.model)
    reached = _reach(wish.ranges, consumers, lambda child: reach.get(child, NOTHING))
    kept = database.rows(kept_ones, _Kept, models=sorted(reached))
    marks = _marks(database, wish.news, kept, reached, consumers)
    names = {one.no: one.model for one in kept if one.working}
    asked = {names[mark.generation]: mark.asked for mark in marks if mark.asked and mark.generation in names}
    return ConsumerImpact(None, asked), marks


def _marks(
    database: Database,
    news: InputChange,
    kept: Sequence[_Kept],
    reach: Mapping[str, IntervalSet],
    consumers: Sequence[_Consumer],
) -> list[StaleRange]:
    return [_mark(database, news, one, reach[one.model], consumers) for one in kept if reach[one.model]]


def _mark(
    database: Database, news: InputChange, kept: _Kept, reach: IntervalSet, consumers: Sequence[_Consumer]
) -> StaleRange:
    preferred = [one.preferred for one in consumers if one.child == kept.model]

    def hit(frontier: Frontier) -> bool:
        # a table that nobody builds any more is only marked for rows that it has really read
        return compare_pin(frontier, news, preferred) != "ahead" and (kept.working or has_read(frontier, news))

    return find_stale(database, kept.no, reach, hit)


def _reach(
    ranges: IntervalSet, consumers: Sequence[_Consumer], affected: Callable[[str], IntervalSet]
) -> dict[str, IntervalSet]:
    """By consumer: the positions that may differ."""
    found: dict[str, IntervalSet] = {}
    for one in consumers:
        if one.removed:
            found[one.child] = found.get(one.child, NOTHING) | _widened(ranges, one)
        elif one.child not in found:
            found[one.child] = affected(one.child)
    return found


def _widened(ranges: IntervalSet, one: _Consumer) -> IntervalSet:
    """The project no longer knows a removed model; what was stored of it is enough."""
    return IntervalSet.of(
        (max(part.start - one.after_pos, MIN_POSITION), min(part.end + one.before_pos, MAX_POSITION)) for part in ranges
    )
