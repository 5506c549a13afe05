"""Which queries does a task stand for, and what do they read?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from penstock.engine.spark.tags import end_of
from penstock.engine.values.job import Digest, InputRead, Job, Rendering, Tags
from penstock.errors import QueryError
from penstock.project import RefUse, render, render_shared
from penstock.runtime.place.table_resolver import TableResolver, position_column
from penstock.values.intervals import NOTHING, Interval, IntervalSet
from penstock.values.models import Dependency, IntervalModel
from penstock.values.records import Generation, StateView
from penstock.values.tasks import Frontier, Order

Spelling = Callable[[InputRead], str]
"""How a relation stands in the text of a query."""
_MOST_GRIDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunksAtInputs:
    """Chunks of a model at fixed inputs: what an attempt writes, what `verify` compares, what `render` prints."""

    order: Order
    pins: Frontier
    now: int
    """What templates see as the time of the task."""


def readable(resolver: TableResolver, order: Order, view: StateView, *, serving: bool = False) -> Frontier:
    """The inputs of an order at the snapshots that `view` knows; an absent group gives its first member's columns."""
    model = resolver.graph.interval_model(order.model)
    names = [choice or group[0].model for group, choice in zip(model.dependencies, order.choices, strict=True)]
    return {name: pin for name in names if (pin := resolver.pin(name, view, serving=serving))}


def renderings(
    resolver: TableResolver, wanted: ChunksAtInputs, spelling: Spelling = lambda read: read.view
) -> tuple[Rendering, ...]:
    """One SELECT per chunk, or one for many of them where that provably gives the same rows."""
    model, chunks = resolver.graph.interval_model(wanted.order.model), wanted.order.chunks
    queries = _Queries(resolver, model, wanted, spelling)
    if len(chunks) > 1 and model.widens:
        shared = queries.shared() if model.tagged else (queries.alone(0, wanted.order.scope.parts),)
        if shared is not None:
            return shared
    return tuple(queries.alone(number, (chunk,)) for number, chunk in enumerate(chunks))


def shares(chunks: Sequence[Interval]) -> tuple[tuple[Interval, ...], ...]:
    """Chunks that share a query: those of one grid, for which arithmetic finds it; all when there are many grids."""
    grids: dict[tuple[int, int], list[Interval]] = {}
    for chunk in sorted(chunks):
        grids.setdefault((chunk.size, chunk.start % chunk.size), []).append(chunk)
    grouped = tuple(map(tuple, grids.values()))
    return grouped if len(grouped) <= _MOST_GRIDS else (tuple(sorted(chunks)),)


@dataclass(frozen=True, slots=True)
class _Queries:
    """Writes the queries of one order."""

    resolver: TableResolver
    model: IntervalModel
    wanted: ChunksAtInputs
    spelling: Spelling

    def alone(self, number: int, intervals: tuple[Interval, ...]) -> Rendering:
        relations = _Relations(self.resolver, self.model, self.wanted.pins, intervals, f"penstock_in_{number}")
        sql = render(
            self.model,
            self.resolver.project,
            bounds=Interval(intervals[0].start, intervals[-1].end),
            choices=self.wanted.order.choices,
            ref=lambda use: self.spelling(relations.read(use)),
            task_start=self.wanted.now,
            lane=self.wanted.order.lane,
        )
        return Rendering(intervals, sql, tuple(relations.reads))

    def shared(self) -> tuple[Rendering, ...] | None:
        """None: what the templates give now cannot be shared, unlike what they gave when the project was loaded."""
        from penstock.project.queries.sharing import Unshareable  # sqlglot takes 0.2 s to import

        try:
            return tuple(
                self.alone(number, share) if len(share) == 1 else self.tagged(number, share)
                for number, share in enumerate(shares(self.wanted.order.chunks))
            )
        except Unshareable:
            return None

    def tagged(self, number: int, chunks: tuple[Interval, ...]) -> Rendering:
        """One query over rows that carry their chunk."""
        from penstock.project.queries.sharing import Share, shared

        prefix = f"penstock_in_{number}"
        relations = _Relations(self.resolver, self.model, self.wanted.pins, chunks, prefix, tagged=True)
        sql = render_shared(
            self.model,
            self.resolver.project,
            choices=self.wanted.order.choices,
            ref=lambda use: self.spelling(relations.read(use)),
            task_start=self.wanted.now,
            lane=self.wanted.order.lane,
        )
        carriers = frozenset(read.view for read in relations.reads if read.tags is not None)
        text = shared(sql, carriers, Share(chunks, lambda tag: end_of(tag, chunks)))
        return Rendering(chunks, text, tuple(relations.reads), tagged=True)


@dataclass(slots=True)
class _Relations:
    """Hands out one view per use of an input within one rendering."""

    resolver: TableResolver
    model: IntervalModel
    pins: Frontier
    intervals: tuple[Interval, ...]
    prefix: str
    tagged: bool = False
    reads: list[InputRead] = field(default_factory=list)

    def read(self, use: RefUse) -> InputRead:
        pin = self.pins.get(use.model)
        if pin is None:
            raise QueryError(
                f"{self.model.name} reads {use.model}, which has no table yet",
                hint=f"penstock explain {use.model} says what it waits for",
            )
        before, after = self._looks(use.model)
        near = IntervalSet.of((interval.start - before, interval.end + after) for interval in self.intervals)
        window = NOTHING if use.absent else None if use.all else near
        read = self.resolver.reading(f"{self.prefix}_{len(self.reads)}", use.model, pin, window)
        if self.tagged and read.window is not None and not use.all:
            read = replace(read, tags=Tags(self.intervals, before, after))
        self.reads.append(read)
        return read

    def _looks(self, name: str) -> tuple[int, int]:
        looks = [dependency for dependency in self.model.inputs if dependency.model == name] or [Dependency(name)]
        return max(dependency.before for dependency in looks), max(dependency.after for dependency in looks)


def looks_beyond(model: IntervalModel) -> bool:
    """Whether a query sees rows outside its interval, so that its result must be cut to it."""
    return any(dependency.before or dependency.after for dependency in model.inputs)


def job(
    resolver: TableResolver,
    wanted: ChunksAtInputs,
    generation: Generation,
    *,
    task: UUID,
    attempt: int,
    digests: Mapping[Interval, Digest],
) -> Job:
    """What the engine is to compute, and for whom."""
    model = resolver.graph.interval_model(wanted.order.model)
    column = position_column(model)
    if column is None:
        raise TypeError(f"the interval model {model.name} has no position")
    return Job(
        model=model.name,
        location=resolver.table(generation.location),
        position=column,
        chunks=wanted.order.chunks,
        renderings=renderings(resolver, wanted),
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
        file=model.file,
    )
