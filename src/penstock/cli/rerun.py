"""Commands that ask for something to be computed again; they say what it will be before they do it."""

from __future__ import annotations

import getpass
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from penstock.cli import show
from penstock.cli.build import work
from penstock.cli.consent import require_consent
from penstock.cli.inspect import parsed_range, root_of
from penstock.cli.options import Options
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.planner.change.reach import Recompute
    from penstock.runtime.place.workspace import Workspace
    from penstock.runtime.redo.invalidate import Report
    from penstock.runtime.redo.rerun import Rerun
    from penstock.values.intervals import IntervalSet
    from penstock.values.models import IntervalModel, Model


@dataclass(frozen=True, slots=True)
class Rerunning:
    """What a call of `rerun` asks for."""

    start: str | None = None
    end: str | None = None
    where: str | None = None
    failed: bool = False
    reset: bool = False
    cascade: str | None = None
    no_wait: bool = False
    yes: bool = False

    def __post_init__(self) -> None:
        given = {"--from": self.start, "--to": self.end, "--where": self.where, "--cascade": self.cascade}
        narrower = [name for name, value in given.items() if value is not None]
        if self.reset and (others := [*narrower, *(["--failed"] if self.failed else [])]):
            raise UsageError(
                f"--reset builds the whole table anew: it cannot be used with {' and '.join(others)}",
                hint="leave out one of them",
            )
        if self.failed and narrower:
            raise UsageError(
                f"--failed takes the ranges that failed: it cannot be used with {' and '.join(narrower)}",
                hint="leave out one of them",
            )
        if self.cascade not in (None, "eager", "lazy"):
            raise UsageError(f"--cascade is eager or lazy, not {self.cascade}")


@dataclass(frozen=True, slots=True)
class Invalidating:
    """What a call of `invalidate` asks for."""

    start: str | None
    end: str | None
    where: str | None
    reason: str
    key: str | None
    no_wait: bool


def rerun(options: Options, name: str, asked: Rerunning) -> None:
    from penstock.runtime.place.workspace import open_workspace
    from penstock.values.models import IntervalModel

    with open_workspace(root_of(options), options.environ, target=options.target, config=options.config) as workspace:
        found = workspace.project.graph.models[workspace.resolve(name)]
        if not isinstance(found, IntervalModel):
            raise UsageError(
                f"{found.name} is a source: nothing is computed for it",
                hint=f"penstock invalidate {found.name} recomputes its consumers",
            )
        if asked.reset:
            failed = _reset(workspace, options, found, asked)
        elif asked.failed:
            failed = _retry(workspace, options, found, asked)
        else:
            failed = _again(workspace, options, found, asked)
    if failed:
        raise typer.Exit(1)


def _again(workspace: Workspace, options: Options, model: IntervalModel, asked: Rerunning) -> int:
    from penstock.runtime.redo.rerun import record, request

    low, high = parsed_range(model.name, model.axis, asked.start, asked.end)
    eager = asked.cascade == "eager"
    found = request(workspace, model, low, high, where=asked.where, eager=eager)
    if not found.scope:
        return _nothing(options, f"no row of {model.name} there matches {found.row_filter}: nothing is recomputed")
    if not options.json:
        _print_rerun(workspace, model, found)
    record(workspace, found, getpass.getuser())
    return _do(workspace, options, found.recompute, found.descendants, no_wait=asked.no_wait)


def _print_rerun(workspace: Workspace, model: IntervalModel, found: Rerun) -> None:
    _print_recompute(workspace, found.recompute)
    if found.left:
        pairs = [[part.start, part.end] for part in found.left]
        show.line(f"{show.span(pairs, model.axis)} is not recomputed: its source rows have expired", "yellow")
    marked = {one.model for one in found.recompute}
    _print_followers([name for name in found.descendants if name not in marked])


def _retry(workspace: Workspace, options: Options, model: IntervalModel, asked: Rerunning) -> int:
    from penstock.runtime.redo.rerun import failed, retry

    found = failed(workspace, model)
    if not found.scope:
        return _nothing(options, f"nothing of {model.name} has failed")
    if not options.json:
        pairs = [[part.start, part.end] for part in found.scope]
        show.line(f"retrying {show.count(len(pairs), 'failed range')} of {model.name}")
        _print_recompute(workspace, found.recompute)
    retry(workspace, found, getpass.getuser())
    return _do(workspace, options, found.recompute, found.descendants, no_wait=asked.no_wait)


def _reset(workspace: Workspace, options: Options, model: IntervalModel, asked: Rerunning) -> int:
    from penstock.runtime.redo.reset import reset, resettable

    found = resettable(workspace, model)
    question = f"{model.name}: its table is emptied and rebuilt; until then its rows cannot be read"
    said = [question, *([found.lost] if found.lost else [])]
    if not options.json:
        _print_recompute(workspace, found.recompute)
    require_consent(said, asked.yes)
    if asked.yes and found.lost and not options.json:
        show.line(found.lost, "yellow")
    if not options.json:
        _print_followers(found.descendants)
    reset(workspace, found, getpass.getuser())
    return _do(workspace, options, found.recompute, found.descendants, no_wait=asked.no_wait)


def invalidate(options: Options, name: str, asked: Invalidating) -> None:
    from penstock.runtime.place.workspace import open_workspace
    from penstock.runtime.redo.invalidate import Words, record, report

    if not asked.reason.strip():
        raise UsageError("--reason says nothing", hint="people will read it in penstock explain")
    words = Words(asked.reason.strip(), getpass.getuser(), asked.key)
    with open_workspace(root_of(options), options.environ, target=options.target, config=options.config) as workspace:
        table = workspace.project.graph.models[workspace.resolve(name)]
        within = positions(table, asked.start, asked.end)
        found = report(workspace, table, within, asked.where, words)
        if not found.ranges:
            _nothing(options, f"no row of {table.name} there matches {found.row_filter}: nothing is recomputed")
            return
        if not options.json and not found.known:
            _print_report(workspace, found)
        if found.known or not record(workspace, found, words):
            _nothing(options, f"{asked.key} is already recorded: nothing is recomputed", recorded=True)
            return
        if not found.recompute:
            _nothing(options, "", recorded=True)
            return
        failed = _do(workspace, options, found.recompute, found.descendants, no_wait=asked.no_wait)
    if failed:
        raise typer.Exit(1)


def positions(table: Model, start: str | None, end: str | None) -> IntervalSet | None:
    """`--from` and `--to` as a set, open where one of them is left out; None when both are."""
    from penstock.values.intervals import MAX_POSITION, MIN_POSITION, IntervalSet
    from penstock.values.models.axis import SECOND

    low, high = parsed_range(table.name, table.axis or SECOND, start, end)
    if low is None and high is None:
        return None
    return IntervalSet((MIN_POSITION if low is None else low, MAX_POSITION if high is None else high))


def _print_report(workspace: Workspace, found: Report) -> None:
    table = found.news.model
    if found.recompute:
        _print_recompute(workspace, found.recompute)
        _print_followers(found.descendants)
    elif not found.readers:
        show.line(f"{table} has no consumers: it is recorded, and nothing is recomputed")
    elif workspace.project.graph.models[table].position is None and not found.reach:
        show.line(
            f"{table} is a lookup, and its consumers ignore its changes (on_change: ignore); "
            f"to recompute: penstock rerun {found.readers[0]}"
        )
    elif found.held:
        show.line(
            f"all consumers of {table} have read snapshot {found.news.snapshot} already: nothing is recomputed; "
            f"to recompute: penstock rerun {found.held[0]}"
        )
    else:
        show.line(f"no consumer of {table} has computed anything in that range: nothing is recomputed")


def _do(
    workspace: Workspace,
    options: Options,
    asked: Sequence[Recompute],
    followers: Collection[str],
    *,
    no_wait: bool,
) -> int:
    """Work on what was recorded, unless others will; how many tasks failed for good."""
    rows = [one.row for one in asked]
    live = workspace.state.workers.alive()
    # workers alone do nothing about it: somebody has to plan it first
    planned = any(one.role in ("scheduler", "up") for one in live)
    others = [one for one in live if planned and one.role in ("worker", "up")]
    if not no_wait and not others:
        names = (*(one.model for one in asked), *followers)
        return work(workspace, workspace.interval_models(names), options.json, {"recompute": rows})
    if options.json:
        show.print_json({"recompute": rows, "recorded": True})
    elif others:
        show.line(f"recorded; {show.count(len(others), 'worker')} will compute it: see penstock status")
        paused = workspace.state.views.world().paused
        for name in (one.model for one in asked if one.model in paused):
            show.line(f"but {name} is paused: penstock resume {name}", "yellow")
    else:
        show.line("recorded; the next penstock run computes it")
    return 0


def _nothing(options: Options, said: str, *, recorded: bool = False) -> int:
    if options.json:
        show.print_json({"recompute": [], "recorded": recorded})
    elif said:
        show.line(said)
    return 0


def _print_recompute(workspace: Workspace, asked: Sequence[Recompute]) -> None:
    models = workspace.project.graph.models
    show.print_table(
        ("model", "chunks", "recomputed"),
        (
            (one.model, one.chunks, show.span([[p.start, p.end] for p in one.scope], models[one.model].axis))
            for one in asked
        ),
    )


def _print_followers(names: Sequence[str]) -> None:
    if names:
        show.line(f"and downstream, where rows change: {', '.join(names)}")
