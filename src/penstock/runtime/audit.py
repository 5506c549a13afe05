"""Has anybody else written to our tables?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.engine.handle import open_table
from penstock.errors import ConflictError, StateError
from penstock.intervals import EVERYTHING, IntervalSet
from penstock.models import IntervalModel
from penstock.runtime.containment import contained
from penstock.runtime.site import Site, position_column
from penstock.state.records import Generation, World
from penstock.state.store import State

if TYPE_CHECKING:
    from penstock.engine.audit import ForeignCommit


def audit(site: Site, state: State, world: World) -> Iterator[str | None]:
    """Judge the commits in our tables that no accepted task made, one table per step; why it could not be looked at.

    OPTIMIZE and its like are accepted. What else touched rows of ours raises an invalidation: they are computed again.
    """
    for name, generation in world.working.items():
        model = site.graph.models.get(name)
        if isinstance(model, IntervalModel) and generation.accepted_snapshot is not None:
            try:
                told = _audit(site, state, model, generation, generation.accepted_snapshot)
            except (StateError, ConflictError):
                raise
            except BaseException as error:
                yield f"{name}: {contained(error, model=name).message}"
            else:
                yield told and f"{name}: {told}"


def _audit(site: Site, state: State, model: IntervalModel, generation: Generation, accepted: int) -> str | None:
    """What was done about rows that no chunk accounts for, in words."""
    location, storage = site.table(generation.location), site.project.settings.target.storage
    table, audited = open_table(location, storage=storage), generation.audited_snapshot
    if table is None or (latest := table.version()) < accepted:
        _lost(state, model, generation, accepted, f"the table at {location} is gone or was replaced by an older one")
        return None
    if latest == accepted == audited:
        return None
    from penstock.engine.audit import foreign_commits

    column = position_column(model)
    after = accepted if audited is None else audited
    found = foreign_commits(location, after, latest, position=column, storage=storage) if column else ()
    owned = state.owned([commit.task for commit in found if commit.task is not None])
    foreign = [commit for commit in found if commit.task is None or commit.task not in owned]
    for commit in foreign:
        # by the table's own id: one that was rebuilt in its place counts its snapshots from the beginning
        key = f"foreign:{table.metadata().id}:{commit.version}"
        if scope := commit.scope & generation.covered:
            state.invalidate(model.name, scope, _reason(commit), "audit", key=key, rows_unknown=True, cause="audit")
    strays = [commit for commit in foreign if _is_stray(commit, generation.covered)]
    if not found and accepted < latest:
        state.accept_snapshot(generation.no, accepted, latest)
    elif strays and len(foreign) == len(found):
        return _evict(site, state, model, generation, strays=strays, latest=latest)
    elif len(foreign) == len(found) or latest == accepted:
        state.judged(generation.no, latest)  # else a task of ours is just being accepted; the next look goes on here
    return None


def _evict(
    site: Site,
    state: State,
    model: IntervalModel,
    generation: Generation,
    *,
    strays: Sequence[ForeignCommit],
    latest: int,
) -> str | None:
    """Take out rows that lie where nothing is covered: no chunk would replace them before its turn comes."""
    from penstock.engine.evicting import Table, abandon, evict, without
    from penstock.engine.job import HeadMoved

    column, storage = position_column(model), site.project.settings.target.storage
    assert column is not None  # noqa: S101
    table = Table(site.table(generation.location), model.name, str(generation.id), column, storage)
    scope = IntervalSet.of(part for commit in strays for part in commit.scope) - generation.covered
    ready = without(table, scope, latest)
    if isinstance(ready, HeadMoved):
        return None  # somebody else came between: the next look goes on from here
    if ready is None:
        state.judged(generation.no, latest)
        return None
    with state.holding(generation.no) as covered:
        # where a task has replaced them by now, the next look sees
        snapshot = None if scope & covered else evict(ready, storage)
        if snapshot is not None:
            state.judged(generation.no, snapshot)
    if snapshot is None:
        abandon(ready, storage)
        return None
    which = f"snapshot {strays[0].version}" if len(strays) == 1 else f"{len(strays)} snapshots"
    return f"rows that another program put where nothing is covered ({which}) were taken out"


def _is_stray(commit: ForeignCommit, covered: IntervalSet) -> bool:
    """Whether it certainly touched rows where nothing is covered: what may have been anywhere proves nothing."""
    return commit.task is None and commit.scope != EVERYTHING and bool(commit.scope - covered)


def _lost(state: State, model: IntervalModel, generation: Generation, accepted: int, reason: str) -> None:
    key = f"gone:{generation.id}:{generation.accepted_snapshot}:{generation.epoch}"
    state.invalidate(model.name, generation.covered, reason, "audit", key=key, rows_unknown=True, cause="audit")
    state.forget_table(generation.no, accepted)


def _reason(commit: ForeignCommit) -> str:
    if commit.is_reset:
        return f"a reset that did not finish emptied it at snapshot {commit.version}"
    who = f"task {commit.task}, which was never accepted" if commit.task else "another program"
    return f"{commit.operation} by {who} changed it at snapshot {commit.version}"
