"""How is a table emptied, so that it is rebuilt?"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

from penstock.engine.commit.reset import Emptying, empty, head_of
from penstock.engine.log.loaded import ROUNDS, LoadedHead
from penstock.engine.values.job import HeadMoved
from penstock.errors import UsageError
from penstock.planner.change.losses import lost, words
from penstock.planner.change.reach import Recompute, recompute
from penstock.runtime.place.workspace import Workspace, applied
from penstock.values.intervals import NOTHING
from penstock.values.models import IntervalModel
from penstock.values.records import Generation


@dataclass(frozen=True, slots=True)
class Resetting:
    """A table that is about to be emptied."""

    model: str
    generation: Generation
    recompute: tuple[Recompute, ...]
    descendants: tuple[str, ...]
    lost: str
    """What will not come back, in words; empty when all of it can."""


def resettable(workspace: Workspace, model: IntervalModel) -> Resetting:
    """What emptying the model's table means."""
    graph, view = workspace.project.graph, workspace.state.views.whole()
    applied(workspace, view)
    generation = view.working.get(model.name)
    if generation is None or generation.accepted_snapshot is None:
        raise UsageError(f"{model.name} holds nothing yet", hint=f"penstock run {model.name} builds it")
    if generation.state == "building":
        raise UsageError(
            f"{model.name} is being rebuilt already, while the old table is served",
            hint="let the rebuild end first: penstock status shows how far it is",
        )
    return Resetting(
        model.name,
        generation,
        recompute(graph, {model.name: generation.covered}),
        graph.descendants(model.name),
        _lost(words(model, lost(graph, view, {model.name}).get(model.name, NOTHING)), model),
    )


def reset(workspace: Workspace, asked: Resetting, actor: str) -> None:
    """Empty the table in one Delta commit inside of one transaction; the lanes then build it as if it were new."""
    workspace.state.control.clear_holds(asked.model)
    location, storage = workspace.resolver.table(asked.generation.location), workspace.resolver.storage
    for _ in range(ROUNDS):
        if _emptied(workspace, asked, actor, head_of(location, storage)):
            return
    _emptied(workspace, asked, actor, None)


def _emptied(workspace: Workspace, asked: Resetting, actor: str, head: LoadedHead | None) -> bool:
    """One try on top of a head that was loaded before the lock is taken; without one it is loaded behind the lock."""
    generation, storage = asked.generation, workspace.resolver.storage
    with workspace.state.generations.resetting(generation.no, actor) as resetting:
        workspace.step("locked")
        # as it stands under the lock: others may have published since somebody was asked
        emptying = Emptying(uuid4(), asked.model, str(generation.id), resetting.covered)
        snapshot = empty(workspace.resolver.table(generation.location), emptying, storage, head)
        if isinstance(snapshot, HeadMoved):
            return False  # nothing was recorded, so nothing is kept
        workspace.step("emptied")
        resetting.record(snapshot)
    return True


def _lost(said: tuple[str, ...], model: IntervalModel) -> str:
    if said:
        return "; ".join(said)
    if model.schedules.backfill == "off":
        return "its backfill is off: it starts where a new model would start"
    return ""
