"""Which queries does a task stand for, and what do they read?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from penstock.engine.job import Digest, InputRead, Job, Rendering
from penstock.errors import QueryError
from penstock.intervals import NOTHING, Interval, IntervalSet
from penstock.models import Dependency, IntervalModel
from penstock.project import Project, RefUse, render
from penstock.runtime.places import Places, pin, position_column, reading
from penstock.state.records import Generation, World
from penstock.tasks import Frontier, Lease, Order, Pin

RefText = Callable[[InputRead], str]


def frontier(model: IntervalModel, choices: Sequence[str], project: Project, world: World) -> Frontier:
    """Every input the attempt reads, at the snapshot that `world` knows."""
    pins: dict[str, Pin] = {}
    for group, choice in zip(model.dependencies, choices, strict=True):
        name = choice or group[0].model
        found = pin(name, project.graph, world)
        if found is not None:
            pins[name] = found
    return pins


@dataclass(slots=True)
class Relations:
    """Hands out one view per use of an input within one rendering."""

    model: IntervalModel
    project: Project
    places: Places
    pins: Frontier
    interval: Interval
    number: int
    spelled: RefText
    reads: list[InputRead] = field(default_factory=list)

    def text(self, use: RefUse) -> str:
        return self.spelled(self.read(use))

    def read(self, use: RefUse) -> InputRead:
        stored = self.pins.get(use.model)
        if stored is None:
            raise QueryError(
                f"{self.model.name} reads {use.model}, which has no table yet",
                hint=f"penstock explain {use.model} says what it waits for",
            )
        window = NOTHING if use.absent else None if use.all else _window(self.model, use.model, self.interval)
        view = f"penstock_in_{self.number}_{len(self.reads)}"
        found = reading(view, use.model, stored, self.project.graph, self.places, window)
        self.reads.append(found)
        return found


def _window(model: IntervalModel, name: str, interval: Interval) -> IntervalSet:
    looks = [dependency for dependency in model.inputs if dependency.model == name] or [Dependency(name)]
    before = max(dependency.before for dependency in looks)
    after = max(dependency.after for dependency in looks)
    return IntervalSet((interval.start - before, interval.end + after))


def renderings(
    model: IntervalModel,
    order: Order,
    project: Project,
    places: Places,
    pins: Frontier,
    task_start: int,
    text: RefText = lambda read: read.view,
) -> tuple[Rendering, ...]:
    """One SELECT per chunk, or one for all of them where that provably gives the same rows."""
    intervals = _spans(order.chunks) if model.widens else order.chunks
    found = []
    for number, interval in enumerate(intervals):
        relations = Relations(model, project, places, pins, interval, number, text)
        sql = render(
            model,
            project,
            bounds=interval,
            choices=order.choices,
            ref=relations.text,
            task_start=task_start,
            lane=order.lane,
        )
        found.append(Rendering(interval, sql, tuple(relations.reads)))
    return tuple(found)


def _spans(chunks: tuple[Interval, ...]) -> tuple[Interval, ...]:
    return IntervalSet.of(chunks).parts


def looks_beyond(model: IntervalModel) -> bool:
    return any(dependency.before or dependency.after for dependency in model.inputs)


def job(
    lease: Lease,
    model: IntervalModel,
    generation: Generation,
    project: Project,
    places: Places,
    pins: Frontier,
    digests: Mapping[Interval, Digest],
    task_start: int,
) -> Job:
    """What the engine is to do for one claimed task."""
    return described(
        lease.order,
        model,
        generation,
        project,
        places,
        pins,
        task_start=task_start,
        task=lease.uuid,
        attempt=lease.attempt,
        digests=digests,
    )


def described(
    order: Order,
    model: IntervalModel,
    generation: Generation,
    project: Project,
    places: Places,
    pins: Frontier,
    *,
    task_start: int,
    task: UUID,
    attempt: int,
    digests: Mapping[Interval, Digest],
) -> Job:
    column = position_column(model)
    if column is None:
        raise QueryError(f"{model.name} has no position column")
    return Job(
        model=model.name,
        location=places.table(generation.location),
        position=column,
        chunks=order.chunks,
        renderings=renderings(model, order, project, places, pins, task_start),
        cut=looks_beyond(model),
        frontier=pins,
        task=task,
        attempt=attempt,
        generation=str(generation.id),
        epoch=generation.epoch,
        cluster_by=model.cluster_by,
        checks=model.checks,
        deduplicate=model.deduplicate,
        digests=digests,
        add_columns=model.on_schema_change == "add_columns",
        timeout_seconds=model.timeout_seconds,
    )
