"""What is to be recomputed, on whose word?"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import UsageError
from penstock.intervals import MAX_POSITION, MIN_POSITION, IntervalSet
from penstock.models import IntervalModel
from penstock.models.axis import shown
from penstock.runtime.workspace import Workspace, applied


@dataclass(frozen=True, slots=True)
class Rerun:
    """What was marked, and which models may change because of it."""

    model: str
    scope: IntervalSet
    descendants: tuple[str, ...]


def request(workspace: Workspace, model: IntervalModel, start: int | None, end: int | None) -> Rerun:
    """What of the model a rerun would recompute: whatever it holds in the range."""
    world = workspace.state.world()
    applied(workspace, world)
    generation = world.working.get(model.name)
    low = MIN_POSITION if start is None else start
    high = MAX_POSITION if end is None else end
    touched = generation.covered.within(low, high) if generation else IntervalSet()
    if generation is None or not touched:
        held = generation.covered if generation else IntervalSet()
        first, last = held.first, held.end
        has = "nothing" if first is None or last is None else f"{shown(first, model.axis)} .. {shown(last, model.axis)}"
        raise UsageError(f"{model.name} holds nothing in that range; it holds {has}")
    return Rerun(model.name, touched, workspace.project.graph.descendants(model.name))


def record(workspace: Workspace, rerun: Rerun, actor: str) -> None:
    """Mark the range stale; the repair lane does the rest, and cascades where rows really change.

    The stored rows themselves are compared, not what was once published: they may be why somebody asks.
    """
    workspace.state.clear_holds(rerun.model)
    workspace.state.invalidate(rerun.model, rerun.scope, "rerun", actor, rows_unknown=True)
