"""What is recomputed when a person asks for it?"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.errors import UsageError
from penstock.planner.change.reach import Recompute, carried, covered, gone, recompute
from penstock.planner.readiness.grid import Grid
from penstock.runtime.place.workspace import Workspace, applied
from penstock.runtime.redo.matching import condition, matching
from penstock.values.intervals import EVERYTHING, MAX_POSITION, MIN_POSITION, NOTHING, IntervalSet
from penstock.values.models import DynamicModel, IntervalModel
from penstock.values.models.axis import shown
from penstock.values.records import StateView

_EVER = datetime(1970, 1, 1, tzinfo=UTC)
_MANY = 100_000


@dataclass(frozen=True, slots=True)
class Rerun:
    """What is marked, and which models may change because of it."""

    model: str
    scope: IntervalSet
    recompute: tuple[Recompute, ...]
    """What is computed again whatever comes of it: the range itself, and with `eager` all that hangs on it."""
    descendants: tuple[str, ...]
    eager: bool = False
    row_filter: str | None = None
    left: IntervalSet = NOTHING
    """What was asked for and is not recomputed: its source rows have expired their source."""


def request(
    workspace: Workspace,
    model: IntervalModel,
    start: int | None,
    end: int | None,
    *,
    where: str | None = None,
    eager: bool = False,
) -> Rerun:
    """What of the model a rerun would recompute: every cell it holds that meets the range and the condition."""
    graph = workspace.project.graph
    row_filter = None if where is None else condition(where)
    view = workspace.state.views.whole()
    applied(workspace, view)
    generation = view.working.get(model.name)
    low = MIN_POSITION if start is None else start
    high = MAX_POSITION if end is None else end
    held = generation.covered.within(low, high) if generation else NOTHING
    if generation is None or not held:
        raise UsageError(f"{model.name} holds nothing in that range; it holds {_held(view, model)}")
    if row_filter is not None:
        held &= _matched(workspace, model, view, row_filter)
    # cells are computed as one: a range that begins inside of one takes all of it
    asked = held.outward(Grid.of(model.interval).cell) & generation.covered
    left = asked & gone(graph, view, model)
    whole = asked - left
    if asked and not whole:
        raise UsageError(
            f"the source rows of {model.name} in that range have expired; its rows are kept",
            hint=f"penstock rerun {model.name} --reset builds it from the rows that are left",
        )
    marked = carried(graph, view, {model.name: whole}) if eager else {model.name: whole}
    return Rerun(
        model.name,
        whole,
        recompute(graph, marked),
        graph.descendants(model.name),
        eager=eager,
        row_filter=row_filter,
        left=left,
    )


def record(workspace: Workspace, rerun: Rerun, actor: str) -> None:
    """Mark the range stale; the repair lane does the rest, and cascades where rows really change.

    The stored rows themselves are compared, not what was once published: they may be why somebody asks.
    """
    state = workspace.state
    for recomputed in rerun.recompute:
        state.control.clear_holds(recomputed.model)
    if rerun.eager:
        scopes = {recomputed.model: recomputed.scope for recomputed in rerun.recompute}
        state.invalidations.invalidate_all(scopes, "rerun", actor, rows_unknown=True, row_filter=rerun.row_filter)
    else:
        state.invalidations.invalidate(
            rerun.model, rerun.scope, "rerun", actor, rows_unknown=True, cause="rerun", row_filter=rerun.row_filter
        )


def failed(workspace: Workspace, model: IntervalModel) -> Rerun:
    """The ranges of the model whose tasks failed for good."""
    # with those whose hold is over: a resident would try them again by itself, but here a person asks
    graph, view = workspace.project.graph, workspace.state.views.whole(_EVER)
    applied(workspace, view)
    work = view.work.get(model.name)
    dead = work.dead - work.cancelled if work else NOTHING
    return Rerun(model.name, dead, recompute(graph, {model.name: dead}), graph.descendants(model.name))


def retry(workspace: Workspace, rerun: Rerun, actor: str) -> None:
    """Let what failed be planned again; nothing else is marked, and what was cancelled stays away."""
    state = workspace.state
    for task in state.history.tasks(rerun.model, failed=True, history=False, limit=_MANY):
        if task.order.scope & rerun.scope:
            state.control.resume_task(task.id, actor)


def _matched(workspace: Workspace, model: IntervalModel, view: StateView, where: str) -> IntervalSet:
    pin = workspace.resolver.pin(model.name, view)
    return NOTHING if pin is None else matching(workspace, model.name, pin, where, Grid.of(model.interval).cell)


def _held(view: StateView, model: IntervalModel) -> str:
    held = covered(view, model.name)
    first, last = held.first, held.end
    return "nothing" if first is None or last is None else f"{shown(first, model.axis)} .. {shown(last, model.axis)}"


def refresh_again(workspace: Workspace, model: DynamicModel, actor: str, *, failed: bool) -> None:
    """Compute all rows of a dynamic table again, or with `failed` let it be refreshed although that failed before."""
    view = workspace.state.views.whole()
    applied(workspace, view)
    generation = view.working.get(model.name)
    workspace.state.control.clear_holds(model.name)
    workspace.state.control.go_on_all([model.name])
    if not failed and generation is not None and generation.covered:
        workspace.state.invalidations.invalidate(
            model.name, EVERYTHING, "rerun", actor, rows_unknown=True, cause="rerun"
        )
