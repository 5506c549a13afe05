"""What would applying this project do?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.planner.change.consumers import affected
from penstock.planner.change.losses import lost, words
from penstock.planner.observations import Observations
from penstock.planner.readiness.observation import Observation
from penstock.planner.readiness.plan import plan
from penstock.runtime.place.definitions import definitions
from penstock.runtime.place.workspace import Workspace
from penstock.values.intervals import NOTHING, IntervalSet
from penstock.values.models import Graph, IntervalModel
from penstock.values.records import Change, StateView
from penstock.values.tasks import Order

if TYPE_CHECKING:
    from penstock.runtime.observe.sources import SourceObservation


def planned_changes(workspace: Workspace) -> list[dict[str, object]]:
    """Per model what changes, why, and how many intervals are to be computed now; nothing is stored."""
    from penstock.runtime.observe.sources import (
        Observer,
        SourceObservation,
    )  # with it comes what reads logs; apply does not

    changes = workspace.state.projects.changes(definitions(workspace.project))
    view = workspace.state.views.whole()
    view = _without_changed_sources(view, changes)
    for seen in Observer(workspace.resolver, None, workspace.environ).look(workspace.project.graph.models, view):
        if isinstance(seen, SourceObservation):
            view = _as_if_kept(workspace.project.graph, view, seen)
    return [_row(workspace, view, change) for change in _with_losses(workspace.project.graph, view, changes)]


def _as_if_kept(graph: Graph, view: StateView, seen: SourceObservation) -> StateView:
    """The state as it would be with what was seen: new bounds, and what was made of changed rows is stale."""
    source = graph.models[seen.record.model]
    working = dict(view.working)
    for name, generation in view.working.items() if seen.changed else ():
        child = graph.models.get(name)
        if isinstance(child, IntervalModel):
            stale = generation.covered & affected(child, source, seen.changed.ranges)
            working[name] = replace(generation, stale=generation.stale | stale)
    return replace(view, sources={**view.sources, source.name: seen.record}, working=working)


def _row(workspace: Workspace, view: StateView, change: Change) -> dict[str, object]:
    return {
        "model": change.model,
        "change": change.change,
        "type": change.type,
        "reason": change.reason,
        "intervals": _intervals(workspace, view, change),
    }


def _intervals(workspace: Workspace, view: StateView, change: Change) -> int:
    model = workspace.project.graph.models.get(change.model)
    if not isinstance(model, IntervalModel):
        return 0
    seen = Observations(workspace.project.graph, view).observation(model)
    if change.change in ("new", "rebuild"):
        seen = Observation(model, seen.inputs)
    return sum(len(order.chunks) for order in plan(seen, most=10**9) if isinstance(order, Order))


def needs_consent(workspace: Workspace, changes: tuple[Change, ...]) -> list[str]:
    """What `apply` asks about before it does it: rebuilds and removals of tables that are served."""
    if not any(change.change in ("rebuild", "removed") for change in changes):
        return []
    view = _without_changed_sources(workspace.state.views.whole(), changes)
    served = {name for name, generation in view.current.items() if generation.accepted_snapshot is not None}
    return [
        f"{change.model}: {change.change} ({change.reason})"
        for change in _with_losses(workspace.project.graph, view, changes)
        if change.change in ("rebuild", "removed") and change.model in served
    ]


def _without_changed_sources(view: StateView, changes: tuple[Change, ...]) -> StateView:
    """What is known of a source says nothing about the table that takes its place."""
    kept = {change.model for change in changes if change.change == "unchanged"}
    return replace(view, sources={name: record for name, record in view.sources.items() if name in kept})


def _with_losses(graph: Graph, view: StateView, changes: tuple[Change, ...]) -> tuple[Change, ...]:
    """The same, and what a rebuild does not bring back is part of its reason."""
    losses = lost(graph, view, {change.model for change in changes if change.change == "rebuild"})
    return tuple(_with_loss(graph, view, change, losses.get(change.model, NOTHING)) for change in changes)


def _with_loss(graph: Graph, view: StateView, change: Change, gone: IntervalSet) -> Change:
    model, generation = graph.models.get(change.model), view.current.get(change.model)
    if change.change != "rebuild" or not isinstance(model, IntervalModel) or generation is None:
        return change
    said = words(model, gone) if generation.covered else ()
    return replace(change, reason="; ".join((change.reason, *said)))
