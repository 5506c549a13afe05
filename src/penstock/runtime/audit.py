"""Has anybody else written to our tables?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.handle import TableMissing, latest_version
from penstock.models import IntervalModel
from penstock.runtime.site import Site, position_column
from penstock.state.records import Generation, World
from penstock.state.store import State

if TYPE_CHECKING:
    from penstock.engine.audit import ForeignCommit


def audit(site: Site, state: State, world: World) -> None:
    """Raise an invalidation for what a commit touched that no task of ours owns; OPTIMIZE and its like are accepted."""
    for name, generation in world.working.items():
        model = site.graph.models.get(name)
        if isinstance(model, IntervalModel) and generation.accepted_snapshot is not None:
            _audit(site, state, model, generation, generation.accepted_snapshot)


def _audit(site: Site, state: State, model: IntervalModel, generation: Generation, accepted: int) -> None:
    location, storage = site.table(generation.location), site.project.settings.target.storage
    latest = latest_version(location, storage)
    if latest == accepted:
        return
    from penstock.engine.audit import foreign_commits

    try:
        column = position_column(model)
        if latest is None or column is None:
            raise TableMissing(location)
        found = foreign_commits(location, min(accepted, latest - 1), latest, (), position=column, storage=storage)
    except TableMissing:
        reason = f"the table at {location} is gone"
        key = f"gone:{generation.id}:{accepted}"
        state.invalidate(model.name, generation.covered, reason, "audit", key=key, rows_unknown=True)
        return
    owned = state.owned([commit.task for commit in found if commit.task is not None])
    foreign = [commit for commit in found if commit.task is None or commit.task not in owned]
    harmful = [commit for commit in foreign if commit.scope & generation.covered]
    for commit in harmful:
        scope = commit.scope & generation.covered
        key = f"foreign:{generation.id}:{commit.version}"
        state.invalidate(model.name, scope, _reason(commit), "audit", key=key, rows_unknown=True)
    if not harmful and len(foreign) == len(found):
        state.accept_snapshot(generation.no, accepted, latest)


def _reason(commit: ForeignCommit) -> str:
    who = f"task {commit.task}, which was never accepted" if commit.task else "another program"
    return f"{commit.operation} by {who} changed it at snapshot {commit.version}"
