"""Which commits of other programs are in our tables, and what follows from them?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Protocol, TypeVar
from uuid import UUID

from penstock.engine.log.handle import open_table
from penstock.engine.log.newer_commits import ends_at
from penstock.errors import ConflictError, StateError
from penstock.planner.readiness.words import spans
from penstock.runtime.place.table_resolver import TableResolver, position_column
from penstock.runtime.process.containment import contained
from penstock.state.progress.generations import Generations
from penstock.state.progress.invalidations import Invalidations
from penstock.state.views import Views
from penstock.values.intervals import EVERYTHING, IntervalSet
from penstock.values.models import DynamicModel, IntervalModel, Source
from penstock.values.records import Generation, StateView

if TYPE_CHECKING:
    from penstock.engine.commit.evict import Table
    from penstock.engine.observe.foreign_commits import ForeignCommit
    from penstock.engine.stage.staged import Staged
    from penstock.engine.values.job import HeadMoved

T = TypeVar("T")

KNOWN_SECONDS = 1.0
"""What is known of the tables is read again after this time: one that was published to since is not audited."""


class AuditState(Protocol):
    views: Views
    generations: Generations
    invalidations: Invalidations


@dataclass(frozen=True, slots=True)
class OwnTable:
    """A table of ours, and what is known of it."""

    model: IntervalModel | DynamicModel
    generation: Generation
    accepted: int

    @property
    def name(self) -> str:
        return self.model.name


@dataclass(frozen=True, slots=True)
class TableSeen:
    """What the log of such a table says."""

    table: OwnTable
    table_id: str | None
    """None: there is no table."""
    latest: int
    commits: tuple[ForeignCommit, ...] = ()
    """Those since the last look that may not be ours."""


@dataclass(frozen=True, slots=True)
class StillLooking:
    """The rest is not known yet: other threads look."""


STILL_LOOKING = StillLooking()
Audited = str | StillLooking | None
"""Why a table could not be looked at, or what was done about it; None: nothing to say."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """Rows of other programs that lie where nothing is covered: no chunk would replace them before its turn comes."""

    model: IntervalModel
    generation: Generation
    scope: IntervalSet
    snapshots: tuple[int, ...]
    """Those that brought the rows."""
    latest: int
    notes: tuple[str, ...] = ()
    """What else follows from the same look."""

    @property
    def name(self) -> str:
        return self.model.name


def audit(resolver: TableResolver, state: AuditState, view: StateView) -> Iterator[str | None]:
    """Classify the commits in our tables that no accepted task made, one table per step; why it could not be read.

    OPTIMIZE and its like are accepted. What else touched rows of ours raises an invalidation: they are computed again.
    """
    for table in own_tables(resolver, state.views, view):
        outcome = audit_table(resolver, state, table, look_or_error(resolver, table))
        if isinstance(outcome, Eviction):
            yield evicted(resolver, state.generations, outcome, staged_or_error(resolver, outcome))
        else:
            yield outcome


def own_tables(resolver: TableResolver, views: Views, view: StateView) -> Iterator[OwnTable]:
    """Each as it is known when its turn comes."""
    read_at = time.monotonic()
    for name in tuple(view.working):
        if time.monotonic() - read_at > KNOWN_SECONDS:
            view, read_at = views.whole(), time.monotonic()
        model, generation = resolver.graph.models.get(name), view.working.get(name)
        if model is None or isinstance(model, Source):
            continue
        if generation is not None and generation.accepted_snapshot is not None:
            yield OwnTable(model, generation, generation.accepted_snapshot)


def look_or_error(resolver: TableResolver, table: OwnTable) -> TableSeen | BaseException:
    """What the log says, by the store alone; or why it cannot be read."""
    try:
        return _look(resolver, table)
    except BaseException as error:
        return error


def audit_table(
    resolver: TableResolver, state: AuditState, table: OwnTable, seen: TableSeen | BaseException
) -> Eviction | str | None:
    """What follows from it: rows to take out, or what went wrong, in words."""
    return _contained(table.model.name, lambda: _audit_table(resolver, state, _unless_error(seen)))


def staged_or_error(resolver: TableResolver, eviction: Eviction) -> Staged | HeadMoved | BaseException | None:
    """The files without those rows, by the store alone; or why they could not be written."""
    from penstock.engine.commit.evict import without

    try:
        return without(_table(resolver, eviction), eviction.scope, eviction.latest)
    except BaseException as error:
        return error


def evicted(
    resolver: TableResolver,
    generations: Generations,
    eviction: Eviction,
    ready: Staged | HeadMoved | BaseException | None,
) -> str | None:
    """Commit the files without them, in words; None when there is nothing to take out any more."""
    return _contained(eviction.model.name, lambda: _evict(resolver, generations, eviction, _unless_error(ready)))


def _contained(name: str, act: Callable[[], T]) -> T | str:
    """What `act` returns; a fault of one table is words about it."""
    try:
        return act()
    except (StateError, ConflictError):
        raise
    except BaseException as error:
        return f"{name}: {contained(error, model=name).message}"


def _unless_error(answer: T | BaseException) -> T:
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _look(resolver: TableResolver, own: OwnTable) -> TableSeen:
    location, storage = resolver.table(own.generation.location), resolver.storage
    audited = own.generation.audited_snapshot
    if own.accepted == audited and ends_at(location, own.accepted, storage):
        return TableSeen(own, None, own.accepted)  # as it was: there is no need to open it
    table = open_table(location, storage=storage)
    if table is None:
        return TableSeen(own, None, -1)
    latest, table_id = table.version(), str(table.metadata().id)
    column = position_column(own.model)
    if latest < own.accepted or latest == own.accepted == audited:
        return TableSeen(own, table_id, latest)
    from penstock.engine.observe.foreign_commits import foreign_commits

    after = own.accepted if audited is None else audited
    return TableSeen(
        own, table_id, latest, tuple(foreign_commits(location, after, latest, position=column, storage=storage))
    )


def unseen_commits(resolver: TableResolver, generations: Generations, table: OwnTable) -> list[int]:
    """The snapshots of other programs on top of what is accepted: the next look decides about them."""
    newer = [commit for commit in _look(resolver, table).commits if commit.version > table.accepted]
    return [commit.version for commit in _foreign(newer, _owned(generations, newer))]


def _audit_table(resolver: TableResolver, state: AuditState, seen: TableSeen) -> Eviction | str | None:
    """Rows that no chunk accounts for; what chunks account for is invalidated, which is reported once."""
    model, accepted = seen.table.model, seen.table.accepted
    latest, commits = seen.latest, seen.commits
    if latest == accepted == seen.table.generation.audited_snapshot:
        return None
    generation = _as_seen(state.views, seen.table)
    if generation is None:
        return None  # the next look is at what is there now
    if seen.table_id is None or latest < accepted:
        location = resolver.table(generation.location)
        return _lost(state, model, generation, accepted, f"the table at {location} is gone, or an older one is there")
    owned = _owned(state.generations, commits)
    foreign = _foreign(commits, owned)
    asked = []
    for commit in foreign:
        if scope := commit.scope & generation.covered:
            key = _key(seen.table_id, commit, scope)
            state.invalidations.invalidate(
                model.name, scope, _reason(commit), "audit", key=key, rows_unknown=True, cause="audit"
            )
            asked.append(f"{_reason(commit)}: {_repaired(model, scope)}")
    strays = [commit for commit in foreign if _is_stray(commit, generation.covered)]
    pending = unadopted(commits, owned)
    if not commits and accepted < latest:
        state.generations.accept_snapshot(generation.no, accepted, latest)
    elif strays and not pending and isinstance(model, IntervalModel):
        scope = IntervalSet.of(part for commit in strays for part in commit.scope) - generation.covered
        return Eviction(model, generation, scope, tuple(commit.version for commit in strays), latest, tuple(asked))
    elif not pending or latest == accepted:
        upto = audited_upto(latest, pending, strays)
        state.generations.audited(generation, upto)
        if asked and upto != generation.audited_snapshot:  # else it is audited, and reported, once more
            return f"{model.name}: {'; '.join(asked)}"
    return None  # else a task of ours is just being accepted; the next look goes on here


def _repaired(model: IntervalModel | DynamicModel, scope: IntervalSet) -> str:
    if isinstance(model, DynamicModel):
        return "all of it is computed again"
    keeps = model.unique_key and model.on_retract != "retract"
    return f"{spans(scope, model.axis)} {'gets its missing rows; other rows are kept' if keeps else 'is recomputed'}"


def _owned(generations: Generations, commits: Sequence[ForeignCommit]) -> Mapping[UUID, bool]:
    return generations.owned([commit.task for commit in commits if commit.task is not None])


def _foreign(commits: Sequence[ForeignCommit], owned: Mapping[UUID, bool]) -> list[ForeignCommit]:
    return [commit for commit in commits if commit.task is None or commit.task not in owned]


def audited_upto(latest: int, pending: Sequence[int], strays: Sequence[ForeignCommit]) -> int:
    """Up to where nothing is left to be done: rows to take out wait for the commits that are still to be adopted."""
    return min([latest + 1, *pending, *(commit.version for commit in strays)]) - 1


def _key(table_id: str, commit: ForeignCommit, scope: IntervalSet) -> str:
    """By the table's own id, since one that was rebuilt in its place counts its snapshots from the beginning.

    And by the scope: a commit that is audited again may have touched what is covered only since.
    """
    return f"foreign:{table_id}:{commit.version}:{sha256(str(scope.edges).encode()).hexdigest()[:16]}"


def unadopted(commits: Sequence[ForeignCommit], owned: Mapping[UUID, bool]) -> list[int]:
    """Commits of tasks that are still to adopt them.

    They are served once others publish on top of them. Should a task be taken away instead, its commit must be audited
    after all, so the audit stops before it.
    """
    return [commit.version for commit in commits if commit.task is not None and owned.get(commit.task) is False]


def _as_seen(views: Views, table: OwnTable) -> Generation | None:
    """The generation as it is now; None when the look was at another state of it, or at another table in its place."""
    seen, now = table.generation, views.whole().working.get(table.model.name)
    return now if now is not None and _identity(now) == _identity(seen) else None


def _identity(generation: Generation) -> tuple[object, ...]:
    return (
        generation.no,
        generation.state,
        generation.epoch,
        generation.accepted_snapshot,
        generation.audited_snapshot,
    )


def _evict(
    resolver: TableResolver, generations: Generations, eviction: Eviction, ready: Staged | HeadMoved | None
) -> str | None:
    from penstock.engine.commit.evict import abandon, evict
    from penstock.engine.values.job import HeadMoved

    generation, storage = eviction.generation, resolver.storage
    if isinstance(ready, HeadMoved):
        return None  # somebody else came between: the next look goes on from here
    if ready is None:
        generations.audited(generation, eviction.latest)
        return None
    with generations.holding(generation.no) as covered:
        # where a task has replaced them by now, the next look sees
        snapshot = None if eviction.scope & covered else evict(ready, storage)
        if snapshot is not None:
            generations.audited(generation, snapshot)
    if snapshot is None:
        abandon(ready, storage)
        return None
    brought = eviction.snapshots
    which = f"snapshot {brought[0]}" if len(brought) == 1 else f"{len(brought)} snapshots"
    said = f"rows that another program wrote outside the covered ranges ({which}) were removed"
    return f"{eviction.model.name}: {'; '.join((*eviction.notes, said))}"


def _table(resolver: TableResolver, eviction: Eviction) -> Table:
    from penstock.engine.commit.evict import Table

    column, generation = position_column(eviction.model), eviction.generation
    assert column is not None  # noqa: S101
    storage = resolver.storage
    return Table(resolver.table(generation.location), eviction.model.name, str(generation.id), column, storage)


def _is_stray(commit: ForeignCommit, covered: IntervalSet) -> bool:
    """Whether it certainly touched rows where nothing is covered: what may have been anywhere proves nothing."""
    return commit.task is None and commit.scope != EVERYTHING and bool(commit.scope - covered)


def _lost(
    state: AuditState, model: IntervalModel | DynamicModel, generation: Generation, accepted: int, reason: str
) -> str:
    key = f"gone:{generation.id}:{generation.accepted_snapshot}:{generation.epoch}"
    state.invalidations.invalidate(
        model.name, generation.covered, reason, "audit", key=key, rows_unknown=True, cause="audit"
    )
    state.generations.forget_table(generation.no, accepted)
    return f"{model.name}: {reason}: it is rebuilt"


def _reason(commit: ForeignCommit) -> str:
    if commit.is_reset:
        return f"a reset that did not finish emptied it at snapshot {commit.version}"
    who = f"task {commit.task}, whose commit was not accepted" if commit.task else "another program"
    return f"{commit.operation} by {who} changed it at snapshot {commit.version}"
