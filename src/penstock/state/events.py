"""What do the consumers of a changed table have to do about it?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.errors import ConflictError, StateError
from penstock.intervals import EVERYTHING, MAX_POSITION, MIN_POSITION, IntervalSet
from penstock.state.connection import Database, storable
from penstock.state.invalidation import Mark, find_mark, store
from penstock.state.pins import News, standing
from penstock.tasks import Frontier

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
    attempts: int
    last_error: str | None

    @property
    def news(self) -> News:
        return News(self.model, self.generation, self.table_id, self.snapshot)


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


def handle_events(database: Database, affected: Affected) -> int:
    """Turn every due event into marks on its consumers, one transaction each; how many there were.

    An event that cannot be mapped does not hold up the others. After some tries it counts as "everything changed".
    """
    handled = 0
    while True:
        event: _Event | None = None
        try:
            with database.transaction():
                event = database.one("next_event", _Event)
                if event is None:
                    return handled
                _handle(database, event, affected)
        except (StateError, ConflictError):
            raise
        except Exception as error:
            if event is None:
                raise
            database.run("postpone_event", no=event.no, error=storable(f"{type(error).__name__}: {error}"))
        handled += 1


def _handle(database: Database, event: _Event, affected: Affected) -> None:
    if event.generation is not None and not database.value("is_working", bool, generation=event.generation):
        database.run("delete_event", no=event.no)  # a build that was given up; nobody reads it
        return
    consumers = database.rows("consumers", _Consumer, model=event.model)
    reach = _reach(event, consumers, affected)
    kept = database.rows("lock_consumers", _Kept, models=sorted(reach))
    marks = [_mark(database, event, one, reach[one.model], consumers) for one in kept if reach[one.model]]
    hopeless = event.attempts >= MOST_TRIES
    if any(mark.asked for mark in marks):
        reason = f"{event.model} changed" + (f" somewhere: {event.last_error}" if hopeless else "")
        store(database, event.news, event.ranges, reason=reason, actor="penstock", key=None, marks=marks)
    if hopeless:
        database.run("bury_event", no=event.no)
    else:
        database.run("delete_event", no=event.no)
    database.run("wake")


def _mark(database: Database, event: _Event, kept: _Kept, reach: IntervalSet, consumers: Sequence[_Consumer]) -> Mark:
    preferred = [one.preferred for one in consumers if one.child == kept.model]

    def hit(frontier: Frontier) -> bool:
        stands = standing(frontier, event.news, preferred)
        # a table that nobody builds any more is only marked for rows that it has really read
        return stands != "ahead" if kept.working else stands == "behind"

    return find_mark(database, kept.no, reach, hit)


def _reach(event: _Event, consumers: list[_Consumer], affected: Affected) -> dict[str, IntervalSet]:
    """By consumer: the positions that may differ."""
    found: dict[str, IntervalSet] = {}
    for one in consumers:
        if event.attempts >= MOST_TRIES:
            found[one.child] = EVERYTHING
        elif one.removed:
            found[one.child] = found.get(one.child, IntervalSet()) | _widened(event.ranges, one)
        elif one.child not in found:
            found[one.child] = affected(one.child, event.model, event.ranges)
    return found


def _widened(ranges: IntervalSet, one: _Consumer) -> IntervalSet:
    """The project no longer knows a removed model; what was stored of it is enough."""
    return IntervalSet.of(
        (max(part.start - one.after_pos, MIN_POSITION), min(part.end + one.before_pos, MAX_POSITION)) for part in ranges
    )
