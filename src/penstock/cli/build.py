"""Commands that change something, or that need Spark for their answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from penstock.cli import show
from penstock.cli.consent import require_consent
from penstock.cli.inspect import parsed_range, root_of
from penstock.cli.options import Options

if TYPE_CHECKING:
    from penstock.runtime.place.workspace import Workspace
    from penstock.runtime.serve.run import Summary
    from penstock.values.models import DynamicModel, IntervalModel
    from penstock.values.records import Change


def init(options: Options, directory: str, demo: bool) -> None:
    from penstock.runtime.place.scaffold import create

    created = create(Path(directory), demo)
    if options.json:
        show.print_json({"directory": str(created.directory), "files": list(created.files)})
        return
    show.line(f"created {created.directory} with {len(created.files)} files; next:")
    for command in created.next:
        show.line(f"  {command}")


def apply(options: Options, yes: bool) -> None:
    from penstock.runtime.place.workspace import open_workspace

    with open_workspace(root_of(options), options.environ, target=options.target, config=options.config) as workspace:
        changes = store(workspace, yes)
    if options.json:
        show.print_json({"changes": [asdict(change) for change in changes]})
        return
    for change in changes:
        if change.change != "unchanged":
            show.line(f"{change.model}: {change.change} ({change.reason})")
    show.line(f"revision {workspace.project.revision[:12]} is active")


def store(workspace: Workspace, yes: bool) -> tuple[Change, ...]:
    """Store the revision; what takes something away from readers is asked for first."""
    from penstock.answers.changes import needs_consent
    from penstock.runtime.place.definitions import definitions
    from penstock.runtime.place.workspace import apply as record

    changes = workspace.state.projects.changes(definitions(workspace.project))
    require_consent(needs_consent(workspace, changes), yes)
    record(workspace)
    return changes


def run(options: Options, models: tuple[str, ...], yes: bool) -> None:
    from penstock.runtime.place.workspace import open_workspace

    with open_workspace(root_of(options), options.environ, target=options.target, config=options.config) as workspace:
        chosen = workspace.built(models)
        store(workspace, yes)
        failed = work(workspace, chosen, options.json, named=bool(models))
    if failed:
        raise typer.Exit(1)


def work(
    workspace: Workspace,
    models: tuple[IntervalModel | DynamicModel, ...],
    as_json: bool,
    extra: Mapping[str, object] | None = None,
    *,
    named: bool = True,
) -> int:
    """Work until nothing is ready; the number of tasks that failed for good. `extra` goes into the JSON."""
    from penstock.runtime.process.progress import Silent
    from penstock.runtime.serve.run import run as work_on

    if as_json:
        summary = work_on(workspace, models, Silent(), named=named)
        show.print_json(
            {
                **(extra or {}),
                "tasks": summary.tasks,
                "intervals": summary.intervals,
                "refreshes": summary.refreshes,
                "spark_jobs": summary.spark_jobs,
                "spark_started": summary.spark_started,
                "failed": summary.failed,
                "seconds": round(summary.seconds, 3),
            }
        )
        return summary.failed
    from penstock.cli.bars import shown

    try:
        with shown() as bars:
            summary = work_on(workspace, models, bars, named=named)
    except KeyboardInterrupt:
        typer.echo("interrupted; the next penstock run continues", err=True)
        raise
    if not summary.tasks and not summary.failed:
        spark = "; Spark was not started" if not summary.spark_started else ""
        show.line(f"nothing to do{spark} ({summary.seconds:.1f} s)")
    else:
        show.line(f"{', '.join(_done(summary))}, {summary.seconds:.1f} s")
    for error in summary.errors:
        show.line(error, "red")
    if workspace.engine.session.keeps_classes:
        typer.echo("first run only: writing a class archive, so that Spark starts faster ...", err=True)
    return summary.failed


def _done(summary: Summary) -> Iterator[str]:
    """What failed comes first."""
    tasks = summary.tasks - summary.refreshes
    refreshes = "1 refresh" if summary.refreshes == 1 else f"{summary.refreshes} refreshes"
    jobs = show.count(summary.spark_jobs, "Spark job")
    if summary.failed:
        intervals = f" ({show.count(summary.intervals, 'interval')})" if summary.intervals else ""
        yield f"{show.count(summary.failed, 'task')} failed"
        yield f"{summary.tasks} succeeded{intervals}"
        yield jobs
        return
    if tasks or not summary.refreshes:
        yield f"{show.count(summary.intervals, 'interval')} in {show.count(tasks, 'task')}"
    if summary.refreshes:
        yield refreshes
    yield jobs
    yield "0 failed"


def query(options: Options, sql: str, limit: int, timeout: int) -> None:
    from penstock.answers.query import query as ask
    from penstock.runtime.place.workspace import open_workspace

    with open_workspace(root_of(options), options.environ, target=options.target, config=options.config) as workspace:
        rows = ask(workspace, sql, limit, timeout)
    if options.json:
        show.print_json(rows)
    elif rows:
        show.print_table(list(rows[0]), ([row[column] for column in rows[0]] for row in rows))
    else:
        show.line("no rows")


def verify(options: Options, models: tuple[str, ...], start: str | None, end: str | None) -> None:
    from penstock.answers.verify import verify as check
    from penstock.runtime.place.workspace import open_workspace
    from penstock.values.models import IntervalModel

    with open_workspace(root_of(options), options.environ, target=options.target, config=options.config) as workspace:
        chosen = workspace.built(models)
        axes = {model.axis for model in chosen if model.axis is not None}
        low, high = parsed_range("verify", axes.pop() if len(axes) == 1 else "", start, end)
        verified = check(workspace, chosen, low, high)
    if options.json:
        show.print_json(verified.as_json())
    else:
        show.print_table(
            ("model", "rows stored", "rows expected", "missing", "unexpected", "wrong", "behind", "unverifiable"),
            (
                (
                    v.name,
                    v.rows_stored,
                    v.rows_expected,
                    v.missing,
                    v.unexpected,
                    len(v.wrong),
                    len(v.behind),
                    len(v.unverifiable),
                )
                for v in verified.models
            ),
        )
        appending = (model for model in chosen if isinstance(model, IntervalModel) and model.unique_key)
        keeping = {model.name for model in appending if model.on_retract == "keep"}
        for verification in verified.models:
            if verification.strays:
                show.line(f"  {verification.name}: {show.count(verification.strays, 'row')} outside the covered ranges")
            if verification.unseen:
                which = "snapshot" if len(verification.unseen) == 1 else "snapshots"
                numbers = ", ".join(map(str, verification.unseen))
                remedy = "the next penstock run handles it"
                show.line(f"  {verification.name}: not compared: {which} {numbers} of another program; {remedy}")
            for why, count in Counter(why for _, why in verification.unverifiable).items():
                show.line(f"  {verification.name}: {show.count(count, 'interval')} not compared: {why}")
            if verification.name in keeping and verification.rows_stored > verification.rows_expected:
                rest = "stored rows that the query no longer returns are no difference (on_retract: keep)"
                show.line(f"  {verification.name}: {rest}")
            for sample in verification.samples:
                show.line(f"  {verification.name}: {sample}")
        show.line(f"{verified.differences} differences")
    if verified.differences:
        raise typer.Exit(1)


def migrate(options: Options, reader: str | None) -> None:
    from penstock.project import load
    from penstock.runtime.place.workspace import database
    from penstock.state.database.roles import grant_reader
    from penstock.state.store import State

    project = load(root_of(options), options.environ, options.target, options.config)
    with database(project, options.environ) as address:
        applied = State.migrated(address.dsn, project.settings.target.schema)
        if reader is not None:
            state = address.connect(project.settings.target.schema, migrate=False)
            try:
                grant_reader(state.database, reader)
            finally:
                state.close()
    if options.json:
        show.print_json({"applied": list(applied), "reader": reader})
        return
    show.line(f"applied {', '.join(applied)}" if applied else "the state database is up to date")
    if reader is not None:
        show.line(f"the role {reader} may read it")
