"""All commands, with their options and their help."""

from __future__ import annotations

import gc
import sys
from typing import Annotated

import click
import typer

from penstock.cli.options import Config, Json, Options, Project, Target, Verbose, with_options
from penstock.errors import PenstockError, ProjectError, ProjectErrors, UsageError

app = typer.Typer(
    name="penstock",
    help="Keeps Spark tables fresh by doing only the work that changed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
Models = Annotated[list[str] | None, typer.Argument(metavar="[MODEL]...", help="Models; all when none is named.")]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="A model, as db.table or the bare table.")]
At = Annotated[
    str | None, typer.Option("--at", metavar="POS", help="A position: an integer, or a UTC time on `second`.")
]
From = Annotated[str | None, typer.Option("--from", metavar="POS", help="The first position.")]
To = Annotated[str | None, typer.Option("--to", metavar="POS", help="The position after the last one.")]
Named = Annotated[list[str], typer.Argument(metavar="MODEL...", help="Models, as db.table or the bare table.")]
Subjects = Annotated[list[str], typer.Argument(metavar="MODEL|TASK...", help="Models, or numbers of tasks.")]
Address = Annotated[
    str | None, typer.Option("--address", metavar="HOST:PORT", help="Serve /metrics, /healthz and /readyz there.")
]
Globs = Annotated[
    list[str] | None, typer.Option("--models", metavar="GLOB", help="Work on these models only; may be repeated.")
]
Tags = Annotated[
    list[str] | None, typer.Option("--tags", metavar="TAG", help="Work on models with this tag only; may be repeated.")
]
Concurrency = Annotated[
    int | None, typer.Option("--concurrency", metavar="N", help="How many tasks at a time (default: the project's).")
]
Where = Annotated[
    str | None, typer.Option("--where", metavar="SQL", help="A condition on rows; only ranges with matching rows.")
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Only record the request; do not compute it here.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@app.command()
@with_options
def doctor(options: Options) -> None:
    """Check Python, Java, Spark, PostgreSQL and the warehouse."""
    from penstock.cli.inspect import doctor as command

    command(options)


@app.command()
@with_options
def init(
    options: Options,
    directory: Annotated[str, typer.Argument(metavar="DIR", help="The folder to create.")],
    demo: Annotated[bool, typer.Option("--demo", help="The beacon demo, with data.")] = False,
) -> None:
    """Create a project."""
    from penstock.cli.build import init as command

    command(options, directory, demo)


@app.command()
@with_options
def validate(options: Options) -> None:
    """Read the project and report every mistake.

    Needs neither Spark nor PostgreSQL.
    """
    from penstock.cli.inspect import validate as command

    command(options)


@app.command()
@with_options
def schema(options: Options) -> None:
    """Print the JSON schema of project files, for editors."""
    from penstock.cli.inspect import schema as command

    command(options)


@app.command()
@with_options
def plan(options: Options) -> None:
    """Show what applying the project would do, and why."""
    from penstock.cli.inspect import plan as command

    command(options)


@app.command()
@with_options
def apply(options: Options, yes: Yes = False) -> None:
    """Store the project; asks before a rebuild or a removal."""
    from penstock.cli.build import apply as command

    command(options, yes)


@app.command()
@with_options
def run(options: Options, models: Models = None, yes: Yes = False) -> None:
    """Apply, then work until nothing is ready."""
    from penstock.cli.build import run as command

    command(options, tuple(models or ()), yes)


@app.command()
@with_options
def status(
    options: Options,
    model: Annotated[str | None, typer.Argument(metavar="[MODEL]", help="One model only.")] = None,
    gaps: Annotated[bool, typer.Option("--gaps", help="List what is missing and what is stale.")] = False,
) -> None:
    """Show health, coverage, freshness and work of every model."""
    from penstock.cli.inspect import status as command

    command(options, model, gaps)


@app.command()
@with_options
def explain(options: Options, model: Model, at: At = None) -> None:
    """Say why a chunk or a dynamic table runs or waits.

    Without --at: the next forward chunk, else the newest gap.
    """
    from penstock.cli.inspect import explain as command

    command(options, model, at)


@app.command()
@with_options
def render(options: Options, model: Model, at: At = None) -> None:
    """Print the SQL of a chunk, ready to paste into Spark."""
    from penstock.cli.inspect import render as command

    command(options, model, at)


@app.command()
@with_options
def query(
    options: Options,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="One SELECT over the project's tables.")],
    limit: Annotated[int, typer.Option(min=1, metavar="ROWS", help="Fail beyond this many rows.")] = 10_000,
    timeout: Annotated[int, typer.Option(min=1, metavar="SECONDS", help="Fail after this many seconds.")] = 300,
) -> None:
    """Run one SELECT over the accepted tables."""
    from penstock.cli.build import query as command

    command(options, sql, limit, timeout)


@app.command()
@with_options
def tasks(
    options: Options,
    model: Annotated[str | None, typer.Argument(metavar="[MODEL]", help="One model only.")] = None,
    *,
    failed: Annotated[bool, typer.Option("--failed", help="Only tasks that failed for good.")] = False,
    history: Annotated[bool, typer.Option("--history", help="Include finished tasks.")] = False,
    logs: Annotated[bool, typer.Option("--logs", help="Include the log of each attempt.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Show at most this many, newest first.")] = 200,
) -> None:
    """List work that waits, runs or is done."""
    from penstock.cli.inspect import tasks as command

    command(options, model, failed, history, logs, limit=limit)


@app.command()
@with_options
def rerun(
    options: Options,
    model: Model,
    *,
    start: From = None,
    end: To = None,
    where: Where = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only what failed for good.")] = False,
    reset: Annotated[bool, typer.Option("--reset", help="Empty the table and rebuild it.")] = False,
    cascade: Annotated[
        str | None,
        typer.Option("--cascade", metavar="eager|lazy", help="eager: all consumers too, whether rows change or not."),
    ] = None,
    no_wait: NoWait = False,
    yes: Yes = False,
) -> None:
    """Recompute a range of a model, or all of a dynamic table, and downstream what changes."""
    from penstock.cli.rerun import Rerunning
    from penstock.cli.rerun import rerun as command

    command(options, model, Rerunning(start, end, where, failed, reset, cascade, no_wait, yes))


@app.command()
@with_options
def invalidate(
    options: Options,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A source or a model, as db.table or the bare table.")],
    *,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="The reason; penstock explain shows it.")],
    start: From = None,
    end: To = None,
    where: Where = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="ID", help="Makes the call idempotent: the same key counts once.")
    ] = None,
    no_wait: NoWait = False,
) -> None:
    """Report changed rows of a table; recomputes its consumers."""
    from penstock.cli.rerun import Invalidating
    from penstock.cli.rerun import invalidate as command

    command(options, table, Invalidating(start, end, where, reason, key, no_wait))


@app.command()
@with_options
def verify(options: Options, models: Models = None, start: From = None, end: To = None) -> None:
    """Recompute from scratch and compare with what is stored."""
    from penstock.cli.build import verify as command

    command(options, tuple(models or ()), start, end)


@app.command()
@with_options
def up(
    options: Options,
    *,
    yes: Yes = False,
    address: Address = None,
    models: Globs = None,
    tags: Tags = None,
    concurrency: Concurrency = None,
) -> None:
    """Apply, then schedule and work in one process until stopped."""
    from penstock.cli.serve import WorkerOptions
    from penstock.cli.serve import up as command

    command(options, yes, address, WorkerOptions(tuple(models or ()), tuple(tags or ()), concurrency))


@app.command()
@with_options
def scheduler(options: Options, address: Address = None) -> None:
    """Plan the applied project until stopped; any number may run."""
    from penstock.cli.serve import scheduler as command

    command(options, address)


@app.command()
@with_options
def worker(
    options: Options,
    address: Address = None,
    models: Globs = None,
    tags: Tags = None,
    concurrency: Concurrency = None,
) -> None:
    """Execute planned tasks until stopped; any number may run."""
    from penstock.cli.serve import WorkerOptions
    from penstock.cli.serve import worker as command

    command(options, address, WorkerOptions(tuple(models or ()), tuple(tags or ()), concurrency))


@app.command()
@with_options
def pause(options: Options, models: Named) -> None:
    """Start no new tasks of a model; running tasks continue."""
    from penstock.cli.serve import pause as command

    command(options, tuple(models))


@app.command()
@with_options
def resume(options: Options, subjects: Subjects) -> None:
    """Continue a paused model, or plan a cancelled task again."""
    from penstock.cli.serve import resume as command

    command(options, tuple(subjects))


@app.command()
@with_options
def cancel(options: Options, subjects: Subjects) -> None:
    """End a task, or all tasks of a model.

    They are not planned again until resumed.
    """
    from penstock.cli.serve import cancel as command

    command(options, tuple(subjects))


@app.command()
@with_options
def migrate(
    options: Options,
    reader: Annotated[
        str | None, typer.Option("--reader", metavar="ROLE", help="Let this database role read the state, and no more.")
    ] = None,
) -> None:
    """Bring the state database up to date.

    The embedded one is migrated automatically.
    """
    from penstock.cli.build import migrate as command

    command(options, reader)


def _release(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"penstock {version('penstock')}")
        raise typer.Exit


Release = Annotated[bool, typer.Option("--version", callback=_release, is_eager=True, help="Print the release.")]


@app.callback()
def shared(
    context: typer.Context,
    *,
    _: Release = False,
    project: Project = None,
    config: Config = None,
    target: Target = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    context.obj = Options(project, config, target, json, verbose)


def main() -> None:
    """Run a command; errors become one message and an exit code, in JSON when that was asked for."""
    as_json = "--json" in sys.argv
    gc.set_threshold(20_000, 20, 20)  # reading a project makes many values and hardly any garbage
    try:
        code = app(prog_name="penstock", standalone_mode=not as_json)
    except PenstockError as error:
        if {"-v", "--verbose"} & set(sys.argv):
            import traceback

            traceback.print_exc()
        _report(error, as_json)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        _report(UsageError(error.format_message()), as_json)
        sys.exit(UsageError.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def _report(error: PenstockError, as_json: bool) -> None:
    if as_json:
        import json

        file = error.file if isinstance(error, ProjectError) else None
        line = error.line if isinstance(error, ProjectError) else None
        body: dict[str, object] = {
            "kind": error.kind,
            "message": error.message,
            "file": file,
            "line": line,
            "hint": error.hint,
        }
        if isinstance(error, ProjectErrors):
            body["errors"] = [
                {"message": e.message, "file": e.file, "line": e.line, "hint": e.hint} for e in error.errors
            ]
        typer.echo(json.dumps({"error": body}))
        return
    errors = error.errors if isinstance(error, ProjectErrors) else (error,)
    for each in errors:
        place = f"{each.place}: " if isinstance(each, ProjectError) and each.place else ""
        typer.echo(f"error: {place}{each.message}", err=True)
        if each.hint:
            typer.echo(f"       {each.hint}", err=True)
    if len(errors) > 1:
        typer.echo(f"{len(errors)} errors", err=True)


if __name__ == "__main__":
    main()
