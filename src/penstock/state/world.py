"""What does a round of planning look at?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime

from penstock.intervals import IntervalSet, newest
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

_HEAD_FIELDS = tuple(one.name for one in fields(GenerationHead))


FORGET_SECONDS = 600.0
"""So often everything is read anew: tasks that were pruned leave no trace."""


@dataclass(frozen=True, slots=True)
class _Moment:
    at: datetime
    revision: str | None
    paused: list[str]
    events: int
    horizon: str
    busy: list[int]


@dataclass(frozen=True, slots=True)
class _Task:
    generation: int
    state: str
    lane: Lane
    ranges: IntervalSet
    covered_since: IntervalSet
    error: str | None
    held_until: datetime | None


@dataclass(frozen=True, slots=True)
class _Doing:
    """The work of one generation, and what makes it another one without any task being touched."""

    work: Work
    ended: bool
    """Some of it is about tasks that ended: what is covered since then counts."""
    until: datetime | None
    """When the next hold is over."""


@dataclass(slots=True)
class Memory:
    """What a connection saw at its last look. It only saves reading: forgetting it costs one whole look."""

    horizon: str | None = None
    """What every transaction before this one wrote was seen."""
    key: tuple[object, ...] = ()
    read_at: datetime | None = None
    generations: dict[int, Generation] = field(default_factory=dict)
    doing: dict[int, _Doing] = field(default_factory=dict)
    folds: dict[int, Fold] = field(default_factory=dict)

    def forget(self) -> None:
        self.horizon, self.read_at = None, None
        self.generations, self.doing, self.folds = {}, {}, {}


def read_world(database: Database, dead_since: datetime | None, memory: Memory) -> World:
    """One moment, in a number of statements that does not grow; of what `memory` has only what changed since."""
    with database.looking():
        moment = _moment(database, memory, dead_since)
        heads = database.rows("world_generations", GenerationHead, since=memory.horizon, models=None)
        changed = _held(database, heads, memory.folds)
        generations = memory.generations | changed
        generations = {no: one for no, one in generations.items() if one.state in ("building", "current")}
        dirty = (changed.keys() | moment.busy | _over(memory, moment.at)) & generations.keys()
        if memory.horizon is not None:  # without tasks that ended nothing depends on what is covered
            dirty -= {no for no in changed.keys() - moment.busy if no in memory.doing and not memory.doing[no].ended}
        tasks = _tasks(database, sorted(dirty), dead_since)
        seen = _seen(database, moment, generations, None)
    doing = memory.doing | {no: _doing(mine, dead_since, moment.at) for no, mine in tasks.items()}
    memory.horizon, memory.key = moment.horizon, (moment.revision, dead_since)
    memory.generations, memory.doing = generations, {no: doing[no] for no in generations}
    memory.folds = {no: memory.folds[no] for no in generations}
    memory.read_at = memory.read_at or moment.at
    return replace(seen, work=_work(seen, doing))


def read_lineage(database: Database, model: str, memory: Memory) -> World:
    """The same of one model and of all that it is made of: what an attempt asks."""
    with database.looking():
        moment = database.rows("world_moment", _Moment, since=None)[0]
        models = database.values("world_lineage", str, model=model)
        heads = database.rows("world_generations", GenerationHead, since=None, models=models)
        generations = _held(database, heads, memory.folds)
        tasks = _tasks(database, sorted(generations), None)
        seen = _seen(database, moment, generations, models)
    return replace(seen, work=_work(seen, {no: _doing(mine, None, moment.at) for no, mine in tasks.items()}))


def _moment(database: Database, memory: Memory, dead_since: datetime | None) -> _Moment:
    moment = database.rows("world_moment", _Moment, since=memory.horizon)[0]
    age = 0.0 if memory.read_at is None else (moment.at - memory.read_at).total_seconds()
    if memory.key != (moment.revision, dead_since) or not 0 <= age < FORGET_SECONDS:
        memory.horizon, memory.read_at, memory.generations, memory.doing = None, None, {}, {}
    return moment


def _over(memory: Memory, now: datetime) -> set[int]:
    """Generations some of whose holds have ended since."""
    return {no for no, one in memory.doing.items() if one.until is not None and one.until <= now}


def _held(database: Database, heads: Sequence[GenerationHead], folds: dict[int, Fold]) -> dict[int, Generation]:
    """These generations with what they hold; `folds` keeps what large ones held last time."""
    folds.update(read(database, (head.no for head in heads), folds))
    return {head.no: _holding(head, folds[head.no]) for head in heads}


def _tasks(database: Database, generations: Sequence[int], dead_since: datetime | None) -> dict[int, list[_Task]]:
    """By generation, newest first."""
    tasks: dict[int, list[_Task]] = {no: [] for no in generations}
    if generations:
        for task in database.rows("world_tasks", _Task, generations=list(generations), dead_since=dead_since):
            tasks[task.generation].append(task)
    return tasks


def _work(seen: World, doing: Mapping[int, _Doing]) -> dict[str, Work]:
    return {model: doing[generation.no].work for model, generation in seen.working.items()}


def _seen(
    database: Database, moment: _Moment, generations: Mapping[int, Generation], models: Sequence[str] | None
) -> World:
    """All but the work, which takes longer to think about than a transaction may be idle."""
    current = {one.model: one for one in generations.values() if one.state == "current"}
    working = current | {one.model: one for one in generations.values() if one.state == "building"}
    numbers = [one.no for one in working.values()]
    sources = database.rows("world_sources", SourceRecord, models=models)
    schedules = database.rows("world_schedules", ScheduleRecord) if models is None else []
    suspended = database.rows("world_suspensions", SuspensionRecord, generations=numbers)
    return World(
        at=moment.at,
        revision=moment.revision,
        paused=frozenset(moment.paused),
        working=working,
        current=current,
        sources={source.model: source for source in sources},
        work={},
        events=moment.events,
        schedules=tuple(schedules),
        reopened=reopened(database, working.values()),
        suspended={one.model: one for one in suspended},
    )


def _holding(head: GenerationHead, fold: Fold) -> Generation:
    # not asdict: it copies every value deeply, which takes longer than reading 500 of them
    kept = {name: getattr(head, name) for name in _HEAD_FIELDS}
    return Generation(**kept, covered=fold.covered, stale=fold.stale)


def _doing(tasks: Sequence[_Task], dead_since: datetime | None, now: datetime) -> _Doing:
    """`tasks` come newest first."""
    ended = [task for task in tasks if task.state in ("dead", "cancelled")]
    active = [task for task in tasks if task.state not in ("dead", "cancelled")]
    in_flight = IntervalSet.of(part for task in active for part in task.ranges)
    dead = _unreplaced((task for task in ended if task.state == "dead"), in_flight)
    left_over = _unreplaced(ended, in_flight)
    failed = _union(left for _, left in dead)
    states = [task.state for task in active]
    errors = (task.error for task in tasks if task.error and (task.state == "retrying" or task.ranges & failed))
    held = [one for one in left_over if (until := one[0].held_until) and (dead_since is not None or until > now)]
    work = Work(
        in_flight=in_flight,
        dead=_union(left for _, left in held),
        cancelled=_union(left for task, left in held if task.state == "cancelled"),
        waiting=frozenset(task.lane for task in active if task.state == "queued"),
        queued=states.count("queued"),
        running=states.count("running"),
        retrying=states.count("retrying"),
        dead_tasks=len(dead),
        last_error=next(errors, None),
    )
    holds = [task.held_until for task in ended if task.held_until is not None and task.held_until > now]
    return _Doing(work, bool(ended), min(holds, default=None))


def _unreplaced(ended: Iterable[_Task], in_flight: IntervalSet) -> list[tuple[_Task, IntervalSet]]:
    """What is left of each: what a newer task is about says nothing of an older one any more."""
    tasks = list(ended)
    own = newest([in_flight, *(task.ranges - task.covered_since for task in tasks)])
    return [(task, left) for task, left in zip(tasks, own[1:], strict=True) if left]


def _union(sets: Iterable[IntervalSet]) -> IntervalSet:
    return IntervalSet.of(part for one in sets for part in one)
