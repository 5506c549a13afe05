"""What is done before planning, without a worker: lost tasks, events, rebuilt tables."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import assert_never

from penstock.engine.values.job import Step
from penstock.errors import ConflictError
from penstock.planner.change.consumers import affected
from penstock.planner.dynamic.refresh import rebuilt
from penstock.planner.observations import Observations
from penstock.planner.policy.breaker import tries_again
from penstock.planner.readiness.lanes import repairable
from penstock.planner.readiness.ready import ready
from penstock.runtime.place.table_resolver import TableResolver
from penstock.runtime.place.workspace import no_step
from penstock.runtime.process.containment import contained
from penstock.runtime.process.logs import log
from penstock.state.projects import Projects
from penstock.state.queue.control import Control
from penstock.state.store import State
from penstock.values.intervals import NOTHING, IntervalSet
from penstock.values.models import DynamicModel, Graph, IntervalModel, Source
from penstock.values.records import StateView


@dataclass(frozen=True, slots=True)
class Reconciled:
    view: StateView
    reaped: int
    """Tasks whose workers are gone."""
    took_over: tuple[str, ...]
    """Models whose rebuilt table serves from now on."""


def reconcile(
    state: State,
    resolver: TableResolver,
    *,
    own_worker: str | None = None,
    dead_since: datetime | None = None,
    step: Step = no_step,
) -> Reconciled:
    """Take back what lost workers held, tell consumers of changes, let rebuilt tables take over."""
    reaped = state.queue.reap(own_worker)
    step("reaped")
    state.events.handle(partial(_affected, resolver.graph, step))
    view = state.views.whole(dead_since)
    if _go_on(state.control, view, dead_since):
        view = state.views.whole(dead_since)
    took_over = _cutover(state.projects, resolver, view)
    if took_over:
        view = state.views.whole(dead_since)
    return Reconciled(view, reaped, took_over)


def _affected(graph: Graph, step: Step, child: str, parent: str, changed: IntervalSet) -> IntervalSet:
    step("event read")
    if (
        child not in graph.models or parent not in graph.models
    ):  # nothing is wrong with the event: the next look knows that revision
        raise ConflictError(f"another revision was applied meanwhile, in which {child} reads {parent}")
    match graph.models[child]:
        case IntervalModel() as model:
            return affected(model, graph.models[parent], changed)
        case DynamicModel() | Source():  # a dynamic table follows the snapshots of its inputs: nobody has to tell it
            return NOTHING
        case unknown:
            assert_never(unknown)


def _go_on(control: Control, view: StateView, dead_since: datetime | None) -> int:
    """Let suspended models be tried again whose inputs have changed, or whose fault may have passed; how many.

    A run, which does not try again what died in it, does not wait for a fault of its own time either.
    """
    due = [
        suspension
        for suspension in view.suspended.values()
        if tries_again(
            suspension.since,
            suspension.times,
            view.at,
            moved=suspension.moved,
            passing=suspension.passing and (dead_since is None or suspension.since < dead_since),
        )
    ]
    for suspension in due:
        control.go_on(suspension.generation)
    return len(due)


def _cutover(projects: Projects, resolver: TableResolver, view: StateView) -> tuple[str, ...]:
    """Let rebuilt generations take over, all in one transaction, once they hold what the old ones can still hold."""
    building = {name for name, generation in view.working.items() if generation.state == "building"}
    if not building or view.revision != resolver.project.revision:
        return ()
    observations = Observations(resolver.graph, view)
    if not all(_complete(observations, name) for name in building):
        return ()
    return projects.cutover(building, [view.working[name].no for name in building])


def _complete(observations: Observations, name: str) -> bool:
    """Whether a rebuilt generation holds what the old one can still hold; one that cannot be compared does not."""
    try:
        model = observations.graph.models[name]
        old = observations.view.current.get(name)
        if isinstance(model, DynamicModel):
            return rebuilt(observations.refresh(model)) or not (old and old.covered)
        if not isinstance(model, IntervalModel):
            return True
        seen = observations.observation(model)
        if old and old.covered and seen.starving:  # nothing to build it from is no reason to serve nothing
            return False
        return not repairable(seen) and not (old and (old.covered & ready(seen)) - seen.covered)
    except BaseException as error:
        log("cutover_failed", "error", model=name, error=contained(error, model=name).message)
        return False
