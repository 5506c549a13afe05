"""What does a round of planning look at?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime

from penstock.intervals import NOTHING, IntervalSet
from penstock.state.connection import Database
from penstock.state.folding import Fold, read
from penstock.state.records import Generation, GenerationHead, SourceRecord, Work, World


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
    ranges: IntervalSet
    covered_since: IntervalSet
    error: str | None


def read_world(database: Database, dead_since: datetime | None, known: dict[int, Fold]) -> World:
    """One moment, in a number of statements that does not grow; `known` keeps what large generations held last time."""
    with database.looking():
        moment = database.rows("world_moment", _Moment)[0]
        heads = database.rows("world_generations", GenerationHead)
        held = read(database, (head.no for head in heads), known)
        sources = database.rows("world_sources", SourceRecord)
        tasks = database.rows("world_tasks", _Task, generations=[head.no for head in heads], dead_since=dead_since)
    known.clear()
    known.update(held)
    generations = [_holding(head, held[head.no]) for head in heads]
    current = {one.model: one for one in generations if one.state == "current"}
    working = current | {one.model: one for one in generations if one.state == "building"}
    return World(
        at=moment.at,
        revision=moment.revision,
        paused=frozenset(moment.paused),
        working=working,
        current=current,
        sources={source.model: source for source in sources},
        work=_work(working, tasks),
        events=moment.events,
    )


def _holding(head: GenerationHead, fold: Fold) -> Generation:
    return Generation(**asdict(head), covered=fold.covered, stale=fold.stale)


def _work(working: Mapping[str, Generation], tasks: Iterable[_Task]) -> dict[str, Work]:
    mine: dict[int, list[_Task]] = {one.no: [] for one in working.values()}
    for task in tasks:
        if task.generation in mine:
            mine[task.generation].append(task)
    return {model: _model_work(mine[generation.no]) for model, generation in working.items()}


def _model_work(tasks: list[_Task]) -> Work:
    """`tasks` come newest first: what a newer task is about says nothing of an older one any more."""
    active = [task for task in tasks if task.state != "dead"]
    in_flight = IntervalSet.of(part for task in active for part in task.ranges)
    dead, dead_tasks = NOTHING, 0
    for task in (task for task in tasks if task.state == "dead"):
        if left := task.ranges - task.covered_since - in_flight - dead:
            dead, dead_tasks = dead | left, dead_tasks + 1
    states = [task.state for task in active]
    errors = (task.error for task in tasks if task.error and (task.state == "retrying" or task.ranges & dead))
    return Work(
        in_flight=in_flight,
        dead=dead,
        queued=states.count("queued"),
        running=states.count("running"),
        retrying=states.count("retrying"),
        dead_tasks=dead_tasks,
        last_error=next(errors, None),
    )
