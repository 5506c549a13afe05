"""Which rows does a table lose that is built anew?"""

from __future__ import annotations

from collections.abc import Collection

from penstock.planner.change.consumers import positioned
from penstock.planner.change.reach import expired_below
from penstock.planner.readiness.grid import Grid
from penstock.values.intervals import NOTHING, IntervalSet
from penstock.values.models import Graph, IntervalModel
from penstock.values.models.axis import shown
from penstock.values.records import StateView


def lost(graph: Graph, view: StateView, rebuilt: Collection[str]) -> dict[str, IntervalSet]:
    """By model what it serves and cannot be built again: its source rows have expired, or rows of a parent are lost."""
    found: dict[str, IntervalSet] = {}
    for name, model in graph.models.items():
        generation = view.current.get(name)
        if name not in rebuilt or generation is None or not isinstance(model, IntervalModel):
            continue
        below = expired_below(graph, view, model)
        for parent in graph.parents(name):
            if positioned(graph.models[parent], model.axis):
                below |= found.get(parent, NOTHING)
        if gone := generation.covered & below.outward(Grid.of(model.interval).cell):
            found[name] = gone
    return found


def words(model: IntervalModel, gone: IntervalSet) -> tuple[str, ...]:
    """What will not come back, for a person who is asked."""
    said = []
    if gone.end is not None:
        said.append(f"its rows before {shown(gone.end, model.axis)} are lost: their source rows have expired")
    if model.unique_key and model.on_retract == "keep":
        said.append("rows that it kept after they left its inputs are lost (on_retract: keep)")
    return tuple(said)
