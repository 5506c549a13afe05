"""Which models must recompute what, when a person reports that rows of a table changed?"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from penstock.errors import SourceError, UsageError
from penstock.planner.change.consumers import affected
from penstock.planner.change.pins import InputChange
from penstock.planner.change.reach import Recompute, covered, descendants, gone, recompute
from penstock.planner.readiness.grid import Grid
from penstock.planner.readiness.words import spans
from penstock.runtime.observe.sources import Observer, SourceObservation, keep
from penstock.runtime.place.workspace import Workspace, applied
from penstock.runtime.redo.matching import condition, matching
from penstock.values.intervals import EVERYTHING, NOTHING, IntervalSet
from penstock.values.models import IntervalModel, Model, Source
from penstock.values.models.axis import SECOND
from penstock.values.records import ConsumerImpact, StateView


@dataclass(frozen=True, slots=True)
class Report:
    """What somebody says of a table, and whom that concerns."""

    change: InputChange
    ranges: IntervalSet
    reach: dict[str, IntervalSet]
    """By consumer: what may differ."""
    recompute: tuple[Recompute, ...]
    """What will be computed again."""
    descendants: tuple[str, ...]
    """Who else reads what is computed again, directly or not."""
    row_filter: str | None
    readers: tuple[str, ...]
    """Everybody who reads the table directly."""
    held: tuple[str, ...]
    """Those of them that hold something there."""
    known: bool = False
    """The same key was recorded before."""


@dataclass(frozen=True, slots=True)
class Words:
    """Who says so, and why."""

    reason: str
    actor: str
    key: str | None = None


def report(workspace: Workspace, table: Model, within: IntervalSet | None, where: str | None, words: Words) -> Report:
    """What would be asked of whom; `within` is None when nobody said which positions."""
    row_filter = None if where is None else condition(where)
    before = workspace.state.views.whole()
    applied(workspace, before)
    if before.revision is None:
        raise UsageError("the project was never applied, so nothing was computed", hint="run penstock run")
    if isinstance(table, Source):
        _observe(workspace, table)
    view = workspace.state.views.whole()
    ranges = _ranges(workspace, table, view, within, row_filter)
    change = _input_change(workspace, table, ranges, words.key)
    graph = workspace.project.graph
    readers = graph.children(table.name)
    reach = {}
    for name in readers:
        model = graph.models[name]
        if isinstance(model, IntervalModel):
            reached = affected(model, table, ranges) - gone(graph, view, model)
        else:
            reached = EVERYTHING if ranges else NOTHING
        if reached:
            reach[name] = reached
    impact = workspace.state.events.ask_consumers(
        change, ranges, reach, words.reason, words.actor, key=words.key, row_filter=row_filter, keep=False
    )
    asked = {name: _whole(workspace, view, name, scope) for name, scope in impact.asked.items() if name in graph.models}
    recomputed = recompute(graph, asked)
    known = _same(table, ranges, row_filter, words, impact)
    held = tuple(name for name, scope in reach.items() if scope & covered(view, name))
    return Report(change, ranges, reach, recomputed, descendants(graph, asked), row_filter, readers, held, known)


def record(workspace: Workspace, asked: Report, words: Words) -> bool:
    """Keep it; False when the same key was kept before."""
    for recomputed in asked.recompute:
        workspace.state.control.clear_holds(recomputed.model)
    impact = workspace.state.events.ask_consumers(
        asked.change, asked.ranges, asked.reach, words.reason, words.actor, key=words.key, row_filter=asked.row_filter
    )
    table = workspace.project.graph.models[asked.change.model]
    return not _same(table, asked.ranges, asked.row_filter, words, impact)


def _same(table: Model, ranges: IntervalSet, row_filter: str | None, words: Words, impact: ConsumerImpact) -> bool:
    """Whether the key was recorded for just this; one that was recorded for something else is refused.

    The rows that meet a condition may be others by now: what counts is the condition.
    """
    recorded = impact.recorded
    if recorded is None:
        return False
    if recorded.row_filter == row_filter and (row_filter is not None or recorded.ranges == ranges):
        return True
    what = spans(recorded.ranges, table.axis or SECOND)
    rows = "" if recorded.row_filter is None else f" where {recorded.row_filter}"
    raise UsageError(
        f"the key {words.key} was recorded for {what} of {table.name}{rows}: nothing was recorded now",
        hint="say another --key for another change",
    )


def _whole(workspace: Workspace, view: StateView, name: str, scope: IntervalSet) -> IntervalSet:
    """The whole cells that are computed as one; what is only under way has none yet."""
    model = workspace.project.graph.models[name]
    if not isinstance(model, IntervalModel):
        return scope
    cells = scope.outward(Grid.of(model.interval).cell)
    return (cells & covered(view, name)) | scope


def _observe(workspace: Workspace, source: Source) -> None:
    view = workspace.state.views.whole()
    observer = Observer(workspace.resolver, workspace.engine.scanner, workspace.environ)
    for observation in observer.look((source.name,), view):
        if not isinstance(observation, SourceObservation):
            continue
        if observation.record.error is not None:
            raise SourceError(
                f"{source.name} cannot be observed: {observation.record.error}",
                hint=f"nothing was recorded: see {source.file}, and repeat the call when the source can be read",
            )
        keep(workspace.state.sources, observation)


def _input_change(workspace: Workspace, table: Model, ranges: IntervalSet, key: str | None) -> InputChange:
    """Without a key it is a request, and counts from now on.

    One with a key reports what happened. Where the log of a source showed that too, whoever has read it is not asked
    again: the same reorg, seen and reported, is computed once.
    """
    logged = None if key is None else workspace.state.events.last_change(table.name, ranges)
    return logged or InputChange(table.name, None, None, None)


def _ranges(
    workspace: Workspace, table: Model, view: StateView, within: IntervalSet | None, row_filter: str | None
) -> IntervalSet:
    if table.position is None:
        if within is not None or row_filter is not None:
            raise UsageError(
                f"{table.name} has no position: it is read whole", hint="leave out --from, --to and --where"
            )
        return EVERYTHING
    if within is None and row_filter is None:
        raise UsageError(f"say which positions of {table.name} changed", hint="--from POS --to POS, or --where SQL")
    whole = EVERYTHING if within is None else within
    if row_filter is None:
        return whole
    pin = workspace.resolver.pin(table.name, view)
    if pin is None:
        raise UsageError(
            f"{table.name} has no rows yet, so --where cannot be evaluated",
            hint="give --from and --to in place of --where",
        )
    return whole & matching(workspace, table.name, pin, row_filter, _grid(workspace, table))


def _grid(workspace: Workspace, table: Model) -> int:
    """Fine enough for everybody who reads the table, and no finer: there may be very many positions."""
    graph = workspace.project.graph
    models = [graph.models[name] for name in graph.children(table.name)]
    return gcd(*(Grid.of(model.interval).cell for model in models if isinstance(model, IntervalModel))) or 1
