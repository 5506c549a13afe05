"""Which queries does a task stand for, and what do they read?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from penstock.engine.job import Digest, InputRead, Job, Rendering
from penstock.errors import QueryError
from penstock.intervals import NOTHING, Interval, IntervalSet
from penstock.models import Dependency, IntervalModel
from penstock.project import RefUse, render
from penstock.runtime.site import Site, position_column
from penstock.state.records import Generation, World
from penstock.tasks import Frontier, Order

Spelling = Callable[[InputRead], str]
"""How a relation stands in the text of a query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Chunks of a model at fixed inputs: what an attempt writes, what `verify` compares, what `render` prints."""

    order: Order
    pins: Frontier
    now: int
    """What templates see as the time of the task."""


def readable(site: Site, order: Order, world: World, *, serving: bool = False) -> Frontier:
    """The inputs of an order at the snapshots that `world` knows; an absent group gives its first member's columns."""
    model = site.graph.interval_model(order.model)
    names = [choice or group[0].model for group, choice in zip(model.dependencies, order.choices, strict=True)]
    return {name: pin for name in names if (pin := site.pin(name, world, serving=serving))}


def renderings(site: Site, wanted: Wanted, spelling: Spelling = lambda read: read.view) -> tuple[Rendering, ...]:
    """One SELECT per chunk, or one for all of them where that provably gives the same rows."""
    model = site.graph.interval_model(wanted.order.model)
    intervals = wanted.order.scope.parts if model.widens else wanted.order.chunks
    return tuple(_rendering(site, wanted, spelling, number, interval) for number, interval in enumerate(intervals))


def _rendering(site: Site, wanted: Wanted, spelling: Spelling, number: int, interval: Interval) -> Rendering:
    model = site.graph.interval_model(wanted.order.model)
    relations = _Relations(site, model, wanted.pins, interval, f"penstock_in_{number}")
    sql = render(
        model,
        site.project,
        bounds=interval,
        choices=wanted.order.choices,
        ref=lambda use: spelling(relations.read(use)),
        task_start=wanted.now,
        lane=wanted.order.lane,
    )
    return Rendering(interval, sql, tuple(relations.reads))


@dataclass(slots=True)
class _Relations:
    """Hands out one view per use of an input within one rendering."""

    site: Site
    model: IntervalModel
    pins: Frontier
    interval: Interval
    prefix: str
    reads: list[InputRead] = field(default_factory=list)

    def read(self, use: RefUse) -> InputRead:
        pin = self.pins.get(use.model)
        if pin is None:
            raise QueryError(
                f"{self.model.name} reads {use.model}, which has no table yet",
                hint=f"penstock explain {use.model} says what it waits for",
            )
        window = NOTHING if use.absent else None if use.all else self._window(use.model)
        found = self.site.reading(f"{self.prefix}_{len(self.reads)}", use.model, pin, window)
        self.reads.append(found)
        return found

    def _window(self, name: str) -> IntervalSet:
        looks = [dependency for dependency in self.model.inputs if dependency.model == name] or [Dependency(name)]
        before = max(dependency.before for dependency in looks)
        after = max(dependency.after for dependency in looks)
        return IntervalSet((self.interval.start - before, self.interval.end + after))


def looks_beyond(model: IntervalModel) -> bool:
    """Whether a query sees rows outside its interval, so that its result must be cut to it."""
    return any(dependency.before or dependency.after for dependency in model.inputs)


def job(
    site: Site,
    wanted: Wanted,
    generation: Generation,
    *,
    task: UUID,
    attempt: int,
    digests: Mapping[Interval, Digest],
) -> Job:
    """What the engine is to compute, and for whom."""
    model = site.graph.interval_model(wanted.order.model)
    column = position_column(model)
    if column is None:
        raise TypeError(f"the interval model {model.name} has no position")
    return Job(
        model=model.name,
        location=site.table(generation.location),
        position=column,
        chunks=wanted.order.chunks,
        renderings=renderings(site, wanted),
        cut=looks_beyond(model),
        frontier={name: wanted.pins[name] for name in wanted.order.choices if name in wanted.pins},
        task=task,
        attempt=attempt,
        generation=str(generation.id),
        epoch=generation.epoch,
        cluster_by=model.cluster_by,
        checks=model.checks,
        deduplicate=model.deduplicate,
        digests=digests,
        unique_key=model.unique_key,
        retract=model.on_retract == "retract",
        add_columns=model.on_schema_change == "add_columns",
        timeout_seconds=model.timeout_seconds,
    )
