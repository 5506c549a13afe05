"""What does a round of planning look at?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime

from penstock.intervals import IntervalSet
from penstock.state.connection import Database
from penstock.state.folding import Fold, read
from penstock.state.records import (
    Generation,
    GenerationHead,
    ScheduleRecord,
    SourceRecord,
    SuspensionRecord,
    Work,
    World,
)
from penstock.state.reopenings import reopened
from penstock.tasks import Lane

_HEAD_FIELDS = tuple(field.name for field in fields(GenerationHead))


@dataclass(frozen=True, slots=True)
class _Moment:
    at: datetime
    revision: str | None
    paused: list[str]
    events: int


@dataclass(frozen=True, slots=True)
class _Task:
    generation: int
    state: str
    lane: Lane
    ranges: IntervalSet
    covered_since: IntervalSet
    error: str | None
    held: bool


def read_world(database: Database, dead_since: datetime | None, known: dict[int, Fold]) -> World:
    """One moment, in a number of statements that does not grow; `known` keeps what large generations held last time."""
    with database.looking():
        moment = database.rows("world_moment", _Moment)[0]
        heads = database.rows("world_generations", GenerationHead)
        held = read(database, (head.no for head in heads), known)
        sources = database.rows("world_sources", SourceRecord)
        schedules = database.rows("world_schedules", ScheduleRecord)
        tasks = database.rows("world_tasks", _Task, generations=[head.no for head in heads], dead_since=dead_since)
        generations = [_holding(head, held[head.no]) for head in heads]
        current = {one.model: one for one in generations if one.state == "current"}
        working = current | {one.model: one for one in generations if one.state == "building"}
        again = reopened(database, working.values())
        numbers = [one.no for one in working.values()]
        suspended = database.rows("world_suspensions", SuspensionRecord, generations=numbers)
    known.clear()
    known.update(held)
    return World(
        at=moment.at,
        revision=moment.revision,
        paused=frozenset(moment.paused),
        working=working,
        current=current,
        sources={source.model: source for source in sources},
        work=_work(working, tasks),
        events=moment.events,
        schedules=tuple(schedules),
        reopened=again,
        suspended={one.model: one for one in suspended},
    )


def _holding(head: GenerationHead, fold: Fold) -> Generation:
    # not asdict: it copies every value deeply, which takes longer than reading 500 of them
    kept = {name: getattr(head, name) for name in _HEAD_FIELDS}
    return Generation(**kept, covered=fold.covered, stale=fold.stale)


def _work(working: Mapping[str, Generation], tasks: Iterable[_Task]) -> dict[str, Work]:
    mine: dict[int, list[_Task]] = {one.no: [] for one in working.values()}
    for task in tasks:
        if task.generation in mine:
            mine[task.generation].append(task)
    return {model: _model_work(mine[generation.no]) for model, generation in working.items()}


def _model_work(tasks: list[_Task]) -> Work:
    """`tasks` come newest first."""
    ended = [task for task in tasks if task.state in ("dead", "cancelled")]
    active = [task for task in tasks if task.state not in ("dead", "cancelled")]
    in_flight = IntervalSet.of(part for task in active for part in task.ranges)
    dead = _unreplaced((task for task in ended if task.state == "dead"), in_flight)
    held = _unreplaced(ended, in_flight)
    failed = _union(left for _, left in dead)
    states = [task.state for task in active]
    errors = (task.error for task in tasks if task.error and (task.state == "retrying" or task.ranges & failed))
    return Work(
        in_flight=in_flight,
        dead=_union(left for task, left in held if task.held),
        cancelled=_union(left for task, left in held if task.held and task.state == "cancelled"),
        waiting=frozenset(task.lane for task in active if task.state == "queued"),
        queued=states.count("queued"),
        running=states.count("running"),
        retrying=states.count("retrying"),
        dead_tasks=len(dead),
        last_error=next(errors, None),
    )


def _unreplaced(ended: Iterable[_Task], in_flight: IntervalSet) -> list[tuple[_Task, IntervalSet]]:
    """What is left of each: what a newer task is about says nothing of an older one any more."""
    found: list[tuple[_Task, IntervalSet]] = []
    seen = in_flight
    for task in ended:
        if left := task.ranges - task.covered_since - seen:
            found.append((task, left))
            seen |= left
    return found


def _union(sets: Iterable[IntervalSet]) -> IntervalSet:
    return IntervalSet.of(part for one in sets for part in one)
