"""What does a round of planning look at?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime

from penstock.state.database.connection import Database
from penstock.state.progress import pins
from penstock.state.progress.folding import CoverageTotal, read
from penstock.state.progress.reopenings import reopened
from penstock.values.intervals import IntervalSet, newest
from penstock.values.records import (
    Generation,
    GenerationHead,
    RefreshRecord,
    ScheduleRecord,
    SourceRecord,
    StateView,
    SuspensionRecord,
    Work,
)
from penstock.values.tasks import Lane, PinRecord

_HEAD_FIELDS = tuple(column.name for column in fields(GenerationHead))


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
    id: int
    generation: int
    state: str
    lane: Lane
    ranges: IntervalSet
    covered_since: IntervalSet
    error: str | None
    held_until: datetime | None
    finished_at: datetime | None

    @property
    def ended(self) -> bool:
        return self.state in ("dead", "cancelled")

    def counts(self, dead_since: datetime | None) -> bool:
        """Whether it is active or says something about what failed; the statement chooses by the same rule."""
        if self.state in ("queued", "running", "retrying"):
            return True
        held = self.state == "dead" or (self.state == "cancelled" and self.held_until is not None)
        return held and (dead_since is None or (self.finished_at is not None and self.finished_at >= dead_since))


@dataclass(frozen=True, slots=True)
class _Doing:
    """The work of one generation, and what makes it another one without any task being changed."""

    work: Work
    tasks: tuple[_Task, ...]
    """Newest first; all that count."""
    ended: IntervalSet
    """Where tasks ended without success: what is covered there since then counts."""
    until: datetime | None
    """When the next hold is over."""
    through: int
    """The last signed row that was seen."""

    def at(self, through: int) -> _Doing:
        return self if through == self.through else replace(self, through=through)


@dataclass(frozen=True, slots=True)
class _Covered:
    generation: int
    ranges: IntervalSet


@dataclass(slots=True)
class Memory:
    """What a connection saw at its last look. It only saves reading: forgetting it costs one whole look."""

    horizon: str | None = None
    """What every transaction before this one wrote was seen."""
    key: tuple[object, ...] = ()
    read_at: datetime | None = None
    generations: dict[int, Generation] = field(default_factory=dict)
    doing: dict[int, _Doing] = field(default_factory=dict)
    folds: dict[int, CoverageTotal] = field(default_factory=dict)

    def forget(self) -> None:
        self.horizon, self.read_at = None, None
        self.generations, self.doing, self.folds = {}, {}, {}


class Views:
    """What one connection looked at last is remembered, so that the next look reads only what changed since."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._memory = Memory()
        self._remembered_on = database.connection

    def whole(self, dead_since: datetime | None = None) -> StateView:
        """One moment, in a number of statements that does not grow; of what is remembered only what changed since."""
        database, memory = self._database, self._remembered()
        with database.looking():
            moment = _moment(database, memory, dead_since)
            heads = database.rows("state_generations", GenerationHead, since=memory.horizon, models=None)
            changed = _held(database, heads, memory.folds)
            generations = memory.generations | changed
            generations = {
                no: generation for no, generation in generations.items() if generation.state in ("building", "current")
            }
            tasks = _changed_tasks(database, memory, moment, generations, dead_since)
            seen = _seen(database, moment, generations, None)
        doing: dict[int, _Doing] = {}
        for no in generations:
            through = memory.folds[no].through
            known = memory.doing[no].at(through) if no not in tasks else None
            doing[no] = known or _doing(tasks[no], dead_since, moment.at, through)
        memory.horizon, memory.key = moment.horizon, (moment.revision, dead_since)
        memory.generations, memory.doing = generations, doing
        memory.folds = {no: memory.folds[no] for no in generations}
        memory.read_at = memory.read_at or moment.at
        return replace(seen, work=_work(seen, doing))

    def lineage(self, model: str) -> StateView:
        """The same of one model and of all that it is made of, without schedules: what an attempt asks."""
        database, memory = self._database, self._remembered()
        with database.looking():
            moment = database.rows("state_moment", _Moment, since=None)[0]
            models = database.values("state_lineage", str, model=model)
            heads = database.rows("state_generations", GenerationHead, since=None, models=models)
            generations = _held(database, heads, memory.folds)
            tasks = _tasks(database, generations, None)
            seen = _seen(database, moment, generations, models)
        return replace(seen, work=_work(seen, {no: _doing(mine, None, moment.at, 0) for no, mine in tasks.items()}))

    def _remembered(self) -> Memory:
        if (connection := self._database.ready()) is not self._remembered_on:
            # a server that crashed may have forgotten its last commits, if it does not wait for its disk
            self._memory.forget()
            self._remembered_on = connection
        return self._memory


def _moment(database: Database, memory: Memory, dead_since: datetime | None) -> _Moment:
    moment = database.rows("state_moment", _Moment, since=memory.horizon)[0]
    age = 0.0 if memory.read_at is None else (moment.at - memory.read_at).total_seconds()
    if memory.key != (moment.revision, dead_since) or not 0 <= age < FORGET_SECONDS:
        memory.horizon, memory.read_at, memory.generations, memory.doing = None, None, {}, {}
    return moment


def _over(memory: Memory, now: datetime) -> set[int]:
    """Generations some of whose holds have ended since."""
    return {no for no, doing in memory.doing.items() if doing.until is not None and doing.until <= now}


def _held(
    database: Database, heads: Sequence[GenerationHead], folds: dict[int, CoverageTotal]
) -> dict[int, Generation]:
    """These generations with what they hold; `folds` keeps what large ones held last time."""
    folds.update(read(database, (head.no for head in heads), folds))
    return {head.no: _holding(head, folds[head.no]) for head in heads}


def _changed_tasks(
    database: Database,
    memory: Memory,
    moment: _Moment,
    generations: Mapping[int, Generation],
    dead_since: datetime | None,
) -> dict[int, tuple[_Task, ...]]:
    """The tasks of generations whose work is another one now, newest first.

    Those that ended stay as they are remembered until they change, or what is covered of them does.
    """
    known = {no: memory.doing[no] for no in generations if no in memory.doing}
    again = _covered_again(database, known, memory.folds)
    ids = [task.id for no, where in again.items() for task in known[no].tasks if task.ended and task.ranges & where]
    busy = known.keys() & moment.busy
    changed: dict[int, dict[int, _Task]] = {}
    if busy or ids:
        since = memory.horizon
        for task in database.rows("changed_tasks", _Task, generations=sorted(busy), since=since, ids=ids):
            changed.setdefault(task.generation, {})[task.id] = task
    # of several that ended alike only the last is known: when it counts no more, the others are asked for
    revealing = {no for no, mine in changed.items() if _reveals(known[no], mine, dead_since)}
    tasks = _tasks(database, (generations.keys() - known.keys()) | revealing, dead_since)
    for no, mine in changed.items():
        if no not in revealing:
            tasks[no] = _merged(known[no].tasks, mine, dead_since)
    for no in _over(memory, moment.at) & known.keys() - tasks.keys():
        tasks[no] = known[no].tasks
    return tasks


def _covered_again(
    database: Database, known: Mapping[int, _Doing], folds: Mapping[int, CoverageTotal]
) -> dict[int, IntervalSet]:
    """Where rows that came since have covered what tasks failed at."""
    grown = [no for no, doing in known.items() if doing.ended and folds[no].through != doing.through]
    if not grown:
        return {}
    through = [known[no].through for no in grown]
    rows = database.rows("covered_after", _Covered, generations=grown, through=through)
    again = {row.generation: known[row.generation].ended & row.ranges for row in rows}
    return {no: where for no, where in again.items() if where}


def _reveals(known: _Doing, changed: Mapping[int, _Task], dead_since: datetime | None) -> bool:
    return any(task.ended and task.id in changed and not changed[task.id].counts(dead_since) for task in known.tasks)


def _merged(known: Sequence[_Task], changed: Mapping[int, _Task], dead_since: datetime | None) -> tuple[_Task, ...]:
    """`known` with what changed of it, newest first; of those that ended alike the last one speaks for all."""
    standing = [task for task in (*known, *changed.values()) if changed.get(task.id, task) is task]
    newest_first = sorted((task for task in standing if task.counts(dead_since)), key=lambda task: -task.id)
    tasks: list[_Task] = []
    spoken: set[tuple[str, IntervalSet]] = set()
    for task in newest_first:
        if not task.ended:
            tasks.append(task)
        elif (task.state, task.ranges) not in spoken:
            spoken.add((task.state, task.ranges))
            tasks.append(task)
    return tuple(tasks)


def _tasks(database: Database, generations: Iterable[int], dead_since: datetime | None) -> dict[int, tuple[_Task, ...]]:
    """All that count, by generation, newest first."""
    tasks: dict[int, list[_Task]] = {no: [] for no in sorted(generations)}
    if tasks:
        for task in database.rows("state_tasks", _Task, generations=list(tasks), dead_since=dead_since):
            tasks[task.generation].append(task)
    return {no: tuple(mine) for no, mine in tasks.items()}


def _work(seen: StateView, doing: Mapping[int, _Doing]) -> dict[str, Work]:
    return {model: doing[generation.no].work for model, generation in seen.working.items()}


def _seen(
    database: Database, moment: _Moment, generations: Mapping[int, Generation], models: Sequence[str] | None
) -> StateView:
    """All but the work, which takes longer to think about than a transaction may be idle."""
    current = {generation.model: generation for generation in generations.values() if generation.state == "current"}
    working = current | {
        generation.model: generation for generation in generations.values() if generation.state == "building"
    }
    numbers = [generation.no for generation in working.values()]
    sources = database.rows("state_sources", SourceRecord, models=models)
    schedules = database.rows("state_schedules", ScheduleRecord) if models is None else []
    suspended = database.rows("state_suspensions", SuspensionRecord, generations=numbers)
    refreshed = database.rows("state_refreshed", _refreshed, generations=numbers)
    return StateView(
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
        suspended={suspension.model: suspension for suspension in suspended},
        refreshed={record.model: record for record in refreshed},
    )


def _refreshed(
    *, model: str, inputs: dict[str, PinRecord], data_timestamp: datetime | None, seconds: float
) -> RefreshRecord:
    return RefreshRecord(model, pins.loaded(inputs), data_timestamp, float(seconds))


def _holding(head: GenerationHead, fold: CoverageTotal) -> Generation:
    # not asdict: it copies every value deeply, which takes longer than reading 500 of them
    values = {name: getattr(head, name) for name in _HEAD_FIELDS}
    return Generation(**values, covered=fold.covered, stale=fold.stale)


def _doing(tasks: tuple[_Task, ...], dead_since: datetime | None, now: datetime, through: int) -> _Doing:
    """`tasks` come newest first."""
    ended = [task for task in tasks if task.ended]
    active = [task for task in tasks if not task.ended]
    in_flight = IntervalSet.of(part for task in active for part in task.ranges)
    dead = _unreplaced((task for task in ended if task.state == "dead"), in_flight)
    left_over = _unreplaced(ended, in_flight)
    failed = _union(left for _, left in dead)
    states = [task.state for task in active]
    errors = (task.error for task in tasks if task.error and (task.state == "retrying" or task.ranges & failed))
    held = [
        (task, left)
        for task, left in left_over
        if (until := task.held_until) and (dead_since is not None or until > now)
    ]
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
    return _Doing(work, tasks, _union(task.ranges for task in ended), min(holds, default=None), through)


def _unreplaced(ended: Iterable[_Task], in_flight: IntervalSet) -> list[tuple[_Task, IntervalSet]]:
    """What is left of each: what a newer task is about says nothing of an older one any more."""
    tasks = list(ended)
    own = newest([in_flight, *(task.ranges - task.covered_since for task in tasks)])
    return [(task, left) for task, left in zip(tasks, own[1:], strict=True) if left]


def _union(sets: Iterable[IntervalSet]) -> IntervalSet:
    return IntervalSet.of(part for ranges in sets for part in ranges)
