"""Commands that recompute something; each says what it will be before it begins."""

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
    from penstock.values.models import DynamicModel, IntervalModel, Model


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
        options = {"--from": self.start, "--to": self.end, "--where": self.where, "--cascade": self.cascade}
        narrower = [name for name, value in options.items() if value is not None]
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
    from penstock.values.models import DynamicModel, Source

    with open_workspace(root_of(options), options.environ, target=options.target, config=options.config) as workspace:
        model = workspace.project.graph.models[workspace.resolve(name)]
        if isinstance(model, Source):
            raise UsageError(
                f"{model.name} is a source: nothing is computed for it",
                hint=f"penstock invalidate {model.name} recomputes its consumers",
            )
        if isinstance(model, DynamicModel):
            failed = _refresh(workspace, options, model, asked)
        elif asked.reset:
            failed = _reset(workspace, options, model, asked)
        elif asked.failed:
            failed = _retry(workspace, options, model, asked)
        else:
            failed = _recompute(workspace, options, model, asked)
    if failed:
        raise typer.Exit(1)


def _refresh(workspace: Workspace, options: Options, model: DynamicModel, asked: Rerunning) -> int:
    """All rows of a dynamic table; with --failed what has changed since."""
    from penstock.runtime.redo.rerun import refresh_again

    for option, given in (("--from", asked.start), ("--to", asked.end), ("--where", asked.where)):
        if given is not None:
            raise UsageError(f"{model.name} is dynamic: it has no positions", hint=f"leave out {option}")
    if asked.reset or asked.cascade == "eager":
        option = "--reset" if asked.reset else "--cascade eager"
        raise UsageError(
            f"{model.name} is dynamic: {option} is for interval models",
            hint=f"penstock rerun {model.name} computes all of its rows; consumers follow where rows change",
        )
    refresh_again(workspace, model, getpass.getuser(), failed=asked.failed)
    followers = workspace.project.graph.descendants(model.name)
    if not options.json:
        show.line(f"{model.name}: {'what failed is tried again' if asked.failed else 'all of it is computed again'}")
        _print_followers(followers)
    return _do(workspace, options, (), (model.name, *followers), no_wait=asked.no_wait)


def _recompute(workspace: Workspace, options: Options, model: IntervalModel, asked: Rerunning) -> int:
    from penstock.runtime.redo.rerun import record, request

    low, high = parsed_range(model.name, model.axis, asked.start, asked.end)
    eager = asked.cascade == "eager"
    planned = request(workspace, model, low, high, where=asked.where, eager=eager)
    if not planned.scope:
        return _nothing(options, f"no row of {model.name} there matches {planned.row_filter}: nothing is recomputed")
    if not options.json:
        _print_rerun(workspace, model, planned)
    record(workspace, planned, getpass.getuser())
    return _do(workspace, options, planned.recompute, planned.descendants, no_wait=asked.no_wait)


def _print_rerun(workspace: Workspace, model: IntervalModel, rerun: Rerun) -> None:
    _print_recompute(workspace, rerun.recompute)
    if rerun.left:
        pairs = [[part.start, part.end] for part in rerun.left]
        show.line(f"{show.span(pairs, model.axis)} is not recomputed: its source rows have expired", "yellow")
    marked = {part.model for part in rerun.recompute}
    _print_followers([name for name in rerun.descendants if name not in marked])


def _retry(workspace: Workspace, options: Options, model: IntervalModel, asked: Rerunning) -> int:
    from penstock.runtime.redo.rerun import failed, retry

    retried = failed(workspace, model)
    if not retried.scope:
        return _nothing(options, f"nothing of {model.name} has failed")
    if not options.json:
        pairs = [[part.start, part.end] for part in retried.scope]
        show.line(f"retrying {show.count(len(pairs), 'failed range')} of {model.name}")
        _print_recompute(workspace, retried.recompute)
    retry(workspace, retried, getpass.getuser())
    return _do(workspace, options, retried.recompute, retried.descendants, no_wait=asked.no_wait)


def _reset(workspace: Workspace, options: Options, model: IntervalModel, asked: Rerunning) -> int:
    from penstock.runtime.redo.reset import reset, resettable

    emptied = resettable(workspace, model)
    question = f"{model.name}: its table is emptied and rebuilt; until then its rows cannot be read"
    said = [question, *([emptied.lost] if emptied.lost else [])]
    if not options.json:
        _print_recompute(workspace, emptied.recompute)
    require_consent(said, asked.yes)
    if asked.yes and emptied.lost and not options.json:
        show.line(emptied.lost, "yellow")
    if not options.json:
        _print_followers(emptied.descendants)
    reset(workspace, emptied, getpass.getuser())
    return _do(workspace, options, emptied.recompute, emptied.descendants, no_wait=asked.no_wait)


def invalidate(options: Options, name: str, asked: Invalidating) -> None:
    from penstock.runtime.place.workspace import open_workspace
    from penstock.runtime.redo.invalidate import Words, record, report

    if not asked.reason.strip():
        raise UsageError("--reason says nothing", hint="penstock explain shows it")
    words = Words(asked.reason.strip(), getpass.getuser(), asked.key)
    with open_workspace(root_of(options), options.environ, target=options.target, config=options.config) as workspace:
        table = workspace.project.graph.models[workspace.resolve(name)]
        within = positions(table, asked.start, asked.end)
        reported = report(workspace, table, within, asked.where, words)
        if not reported.ranges:
            _nothing(options, f"no row of {table.name} there matches {reported.row_filter}: nothing is recomputed")
            return
        if not options.json and not reported.known:
            _print_report(workspace, reported)
        if reported.known or not record(workspace, reported, words):
            _nothing(options, f"{asked.key} is already recorded: nothing is recomputed", recorded=True)
            return
        if not reported.recompute:
            _nothing(options, "", recorded=True)
            return
        failed = _do(workspace, options, reported.recompute, reported.descendants, no_wait=asked.no_wait)
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


def _print_report(workspace: Workspace, report: Report) -> None:
    table = report.change.model
    if report.recompute:
        _print_recompute(workspace, report.recompute)
        _print_followers(report.descendants)
    elif not report.readers:
        show.line(f"{table} has no consumers: it is recorded, and nothing is recomputed")
    elif workspace.project.graph.models[table].position is None and not report.reach:
        show.line(
            f"{table} is a lookup, and its consumers ignore its changes (on_change: ignore); "
            f"to recompute: penstock rerun {report.readers[0]}"
        )
    elif report.held:
        show.line(
            f"all consumers of {table} have read snapshot {report.change.snapshot} already: nothing is recomputed; "
            f"to recompute: penstock rerun {report.held[0]}"
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
    rows = [part.row for part in asked]
    live = workspace.state.workers.alive()
    # workers alone do nothing about it: a scheduler has to plan it first
    planned = any(process.role in ("scheduler", "up") for process in live)
    others = [process for process in live if planned and process.role in ("worker", "up")]
    if not no_wait and not others:
        names = (*(part.model for part in asked), *followers)
        return work(workspace, workspace.built(names), options.json, {"recompute": rows})
    if options.json:
        show.print_json({"recompute": rows, "recorded": True})
    elif others:
        show.line(f"recorded; {show.count(len(others), 'worker')} will compute it: see penstock status")
        paused = workspace.state.views.whole().paused
        for name in (part.model for part in asked if part.model in paused):
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
        ((part.model, part.chunks, _places(models[part.model], part)) for part in asked),
    )


def _places(model: Model, part: Recompute) -> str:
    if model.axis is None:
        return "all rows"
    return show.span([[p.start, p.end] for p in part.scope], model.axis)


def _print_followers(names: Sequence[str]) -> None:
    if names:
        show.line(f"and downstream, where rows change: {', '.join(names)}")
