"""Which chunks does a rerun or an invalidation compute again?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.planner.change.consumers import affected, positioned
from penstock.planner.readiness.grid import Grid
from penstock.values.intervals import MAX_POSITION, MIN_POSITION, NOTHING, IntervalSet
from penstock.values.models import Graph, IntervalModel, Model
from penstock.values.records import StateView


@dataclass(frozen=True, slots=True)
class Recompute:
    """What of one model is computed again."""

    model: str
    scope: IntervalSet
    chunks: int

    @property
    def row(self) -> dict[str, object]:
        ranges = [[part.start, part.end] for part in self.scope]
        return {"model": self.model, "ranges": ranges, "chunks": self.chunks}


def recompute(graph: Graph, scopes: Mapping[str, IntervalSet]) -> tuple[Recompute, ...]:
    """By model, parents before children; those with nothing to do are left out."""
    return tuple(
        Recompute(name, scopes[name], _chunks(graph.models[name], scopes[name]))
        for name in graph.models
        if scopes.get(name)
    )


def _chunks(model: Model, scope: IntervalSet) -> int:
    """A table without positions is computed as one."""
    return chunk_count(model, scope) if isinstance(model, IntervalModel) else 1


def chunk_count(model: IntervalModel, scope: IntervalSet) -> int:
    """How many chunks `scope` is, as the repair lane cuts them."""
    grid, limits = Grid.of(model.interval), model.limits
    low = MIN_POSITION if limits.min is None else limits.min
    cells = scope.outward(grid.cell).within(low, MAX_POSITION if limits.max is None else limits.max)
    return sum(1 for run in cells for _ in grid.downwards(run))


def gone(graph: Graph, view: StateView, model: IntervalModel) -> IntervalSet:
    """What must not be recomputed: rows it was made of, its look-back included, have expired in their source."""
    return expired_below(graph, view, model, look_back=True).outward(Grid.of(model.interval).cell)


def expired_below(graph: Graph, view: StateView, model: IntervalModel, *, look_back: bool = False) -> IntervalSet:
    """What was made of expired rows, if it is as old as they were; with `look_back` also what only looked at them."""
    lone = [group[0] for group in model.dependencies if len(group) == 1]
    expired = [
        record.expired_pos + (dependency.before if look_back else 0)
        for dependency in lone
        if positioned(graph.models[dependency.model], model.axis)
        and (record := view.sources.get(dependency.model)) is not None
        and record.expired_pos is not None
    ]
    return IntervalSet.of((MIN_POSITION, position) for position in expired)


def covered(view: StateView, name: str) -> IntervalSet:
    generation = view.working.get(name)
    return generation.covered if generation else NOTHING


def carried(graph: Graph, view: StateView, changed: Mapping[str, IntervalSet]) -> dict[str, IntervalSet]:
    """What of every descendant may differ because `changed` does, hop by hop, within what is covered."""
    reached_by_model = dict(changed)
    for name, model in graph.models.items():
        if isinstance(model, IntervalModel) and name not in changed:
            reached = NOTHING
            for parent in graph.parents(name):
                if scope := reached_by_model.get(parent):
                    reached |= affected(model, graph.models[parent], scope)
            reached = reached.outward(Grid.of(model.interval).cell)
            if reached := (reached & covered(view, name)) - gone(graph, view, model):
                reached_by_model[name] = reached
    return reached_by_model


def descendants(graph: Graph, names: Iterable[str]) -> tuple[str, ...]:
    """All models below these, parents before children; the models themselves are left out."""
    roots = set(names)
    below = {child for name in roots for child in graph.descendants(name)}
    return tuple(name for name in graph.models if name in below - roots)
