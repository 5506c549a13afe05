"""Commands that only ask: none of them starts a JVM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import typer

from penstock.cli import show
from penstock.cli.options import Options
from penstock.errors import UsageError
from penstock.values.models.axis import shown

_ERROR_CLASSES = {
    "user": "error in the query or its data",
    "engine": "error of Spark or storage",
    "conflict": "another commit came between",
    "lost": "its worker was lost",
}
_FOLLOWED_BY = {"retrying": "retried", "dead": "not retried", "split": "split into parts"}
_TASK_COLUMNS = {name: name for name in ("id", "model", "lane", "intervals", "scope", "state", "attempt", "strategy")}
_TASK_COLUMNS |= {
    "scope": "scope_text",
    "rows": "rows_written",
    "seconds": "seconds",
    "reason": "reason",
    "error": "error",
}


def root_of(options: Options) -> Path:
    from penstock.project import project_root

    return project_root(options.start, options.config)


def doctor(options: Options) -> None:
    from penstock.answers.doctor import examine

    findings = examine(options.start, options.config, options.target, options.environ)
    if options.json:
        show.print_json([finding.as_json() for finding in findings])
    else:
        for finding in findings:
            show.line(
                f"{'ok ' if finding.ok else 'BAD'}  {finding.name:<12} {finding.detail}", "" if finding.ok else "red"
            )
            if finding.hint:
                show.line(f"                  {finding.hint}")
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


def validate(options: Options) -> None:
    from penstock.answers.validate import validated
    from penstock.project import cache_of, load

    root = root_of(options)
    project = load(root, options.environ, options.target, options.config, cache_of(root))
    answer = validated(project)
    if options.json:
        show.print_json(answer.as_json())
        return
    for warning in project.warnings:
        show.line(f"warning: {warning}", "yellow")
    for note in answer.notes:
        show.line(f"note: {note.file}: {note.message}")
    show.line(f"{show.count(answer.sources, 'source')}, {show.count(answer.models, 'model')}, 0 errors")


def schema(options: Options) -> None:
    from penstock.project import schema as project_schema

    show.print_json(project_schema())


def plan(options: Options) -> None:
    from penstock.answers.changes import planned_changes
    from penstock.runtime.place.workspace import open_workspace

    with open_workspace(root_of(options), options.environ, target=options.target, config=options.config) as workspace:
        rows = planned_changes(workspace)
    if options.json:
        show.print_json({"changes": rows})
        return
    columns = ("model", "type", "change", "intervals", "reason")
    show.print_table(columns, ([row[column] for column in columns] for row in rows))


def status(options: Options, model: str | None, gaps: bool) -> None:
    from penstock.answers.status import project_status
    from penstock.runtime.place.workspace import open_workspace

    with open_workspace(root_of(options), options.environ, target=options.target, config=options.config) as workspace:
        answer = project_status(workspace, model)
    if options.json:
        show.print_json(answer)
        return
    rows = answer["models"]
    assert isinstance(rows, list)  # noqa: S101
    show.print_table(
        ("model", "type", "health", "holds", "cursor", "gaps", "stale", "tasks", "reason"),
        (
            (
                row["name"],
                row["type"],
                row["health"],
                _holds(row),
                "" if row["cursor"] is None else shown(row["cursor"], row["axis"] or ""),
                len(row["gaps"]) or "",
                _stale_words(row),
                show.counts(row["tasks"]) if row["type"] != "source" else "",
                row["reason"],
            )
            for row in rows
        ),
    )
    if gaps:
        _print_gaps(rows)
    _print_workers(answer)
    if answer["revision"] is None:
        show.line("nothing was applied yet: penstock apply, run or up does it", "yellow")


def _holds(row: Mapping[str, object]) -> str:
    """The positions of a table; of a dynamic one how old its rows are, and how old they may get."""
    if row["type"] == "dynamic":
        return _lag_words(row)
    if row["type"] == "source" and row["axis"] is None and row["health"] != "blocked":
        return "read whole"
    held = show.span(row["coverage"] if row["type"] == "interval" else row["available"], str(row["axis"] or ""))
    expired = row["expired_before"]
    return held + (f", before {shown(expired, str(row['axis'] or ''))} expired" if isinstance(expired, int) else "")


def _lag_words(row: Mapping[str, object]) -> str:
    """`lag 12 s of 5 m`."""
    if row["data_timestamp"] is None:
        return "nothing"
    target = row["target_lag_seconds"]
    return f"lag {show.age(row['lag_seconds'])}" + (f" of {show.age(target)}" if target else "")


def _stale_words(row: Mapping[str, object]) -> str:
    """`2 ranges, oldest 3 m`: how much is to be computed again, and for how long already."""
    stale = row["stale"]
    if not isinstance(stale, Sequence) or not stale:
        return ""
    since = show.age(row["stale_seconds"])
    return show.count(len(stale), "range") + (f", oldest {since}" if since else "")


def _print_workers(answer: Mapping[str, object]) -> None:
    workers = answer["workers"]
    if not isinstance(workers, list) or not workers:
        return
    now = datetime.fromisoformat(str(answer["at"]))
    roles = Counter(str(worker["role"] or "worker") for worker in workers)
    show.line(", ".join(f"{count} {role}" for role, count in sorted(roles.items())) + ":")
    for worker in workers:
        silent = max((now - datetime.fromisoformat(worker["heartbeat_at"])).total_seconds(), 0)
        facts = [f"{worker['id']} (pid {worker['pid']}) {worker['role'] or 'worker'}"]
        if worker["slots"] or worker["tasks"]:
            facts.append(f"{worker['tasks']} of {show.count(worker['slots'] or worker['tasks'], 'task')}")
        facts.append(f"heartbeat {silent:.0f} s ago")
        if worker["stopping"]:
            facts.append("stopping")
        show.line(f"  {', '.join(facts)}")


def _print_gaps(rows: list[dict[str, object]]) -> None:
    for row in rows:
        axis = str(row["axis"] or "")
        for kind in ("gaps", "stale"):
            ranges = row[kind]
            for start, end in ranges if isinstance(ranges, Sequence) else ():
                show.line(
                    f"{row['name']} {'gap' if kind == 'gaps' else 'stale'} [{shown(start, axis)}, {shown(end, axis)})"
                )
        permanent = row["permanent_gaps"]
        for (start, end), why in permanent if isinstance(permanent, list) else []:
            show.line(f"{row['name']} permanent gap [{shown(start, axis)}, {shown(end, axis)}): {why}")


def explain(options: Options, model: str, at: str | None) -> None:
    from penstock.answers.explain import explained
    from penstock.answers.validate import APART
    from penstock.runtime.place.workspace import open_workspace

    with open_workspace(root_of(options), options.environ, target=options.target, config=options.config) as workspace:
        answer = explained(workspace, model, at)
    if options.json:
        show.print_json(answer)
        return
    done = str(answer["reason"]).startswith("up to date")
    heading = f"{answer['model']} ({answer['type']}) {answer['chunk_text']}".rstrip()
    show.line(f"{heading}: {'up to date' if done else answer['decision']}", "bold")
    show.line(f"  {answer['reason']}")
    if answer["strategy"] == "interval":
        show.line(f"  {APART}: {answer['strategy_reason']}")
    if answer["type"] == "dynamic":
        _print_refresh(answer)
    checks = answer["checks"]
    for check in checks if isinstance(checks, list) else []:
        why = "" if check["ok"] or check["why"] == check["value"] else f": {check['why']}"
        mark = "yes" if check["ok"] else "NO "
        show.line(f"  {mark} {check['dependency']}: {check['rule']}; {check['value']}{why}")
    reopened = answer["reopened"]
    for reopening in reopened if isinstance(reopened, list) else []:
        show.line(f"  reopened: {reopening['why']}, {_moment(reopening['at'])}, {_outcome(reopening)}")


def _print_refresh(answer: Mapping[str, object]) -> None:
    """How a refresh is done, and by which columns the rows are told apart."""
    key = answer["key"]
    if isinstance(key, list):
        show.line(f"  {answer['shape']}, by {', '.join(key) if key else 'its only row'}")
    if answer["strategy"] is not None:
        show.line(f"  {answer['strategy']}: {answer['strategy_reason']}")


def _outcome(reopened: Mapping[str, object]) -> str:
    done = reopened["repaired_at"]
    return str(reopened["state"]) + (f" {_moment(done)}" if done else "")


def _moment(text: object) -> str:
    return datetime.fromisoformat(str(text)).strftime("%Y-%m-%d %H:%M:%S")


def render(options: Options, model: str, at: str | None) -> None:
    from penstock.answers.explain import rendered
    from penstock.runtime.place.workspace import open_workspace

    with open_workspace(root_of(options), options.environ, target=options.target, config=options.config) as workspace:
        answer = rendered(workspace, model, at)
    if options.json:
        show.print_json(answer)
    else:
        show.line(f"-- {answer['model']} {answer['chunk_text']}")
        print(answer["sql"])  # noqa: T201


def tasks(options: Options, model: str | None, failed: bool, history: bool, logs: bool, *, limit: int = 200) -> None:
    from penstock.answers.history import task_list
    from penstock.runtime.place.workspace import open_workspace

    with open_workspace(root_of(options), options.environ, target=options.target, config=options.config) as workspace:
        answer = task_list(workspace, model, failed, history, limit)
    if options.json:
        show.print_json(answer)
        return
    entries = answer["tasks"]
    rows = entries if isinstance(entries, list) else []
    if not rows:
        what = "no task failed" if failed else "no tasks" if history else "no tasks are waiting or running"
        show.line(what if failed or history else f"{what}; --history shows what is done")
        return
    show.print_table(
        tuple(_TASK_COLUMNS), ((_task_cell(row, column) for column in _TASK_COLUMNS.values()) for row in rows)
    )
    if answer["truncated"]:
        show.line(f"showing the newest {len(rows)} of {answer['total']}; --limit shows more")
    for row in rows:
        _print_attempts(row, logs)


def _task_cell(row: Mapping[str, object], column: str) -> object:
    """Why a dynamic table was refreshed, and why in that way."""
    if column == "seconds":
        return show.seconds(row[column])
    if column == "reason" and row["lane"] == "refresh" and row["strategy_reason"]:
        return f"{row['reason']}; {row['strategy_reason']}"
    return row[column]


def _print_attempts(row: Mapping[str, object], logs: bool) -> None:
    """Those of a task that did not go well at once, or that have something in their log."""
    entries = row["attempts"]
    attempts = entries if isinstance(entries, list) else []
    bumpy = len(attempts) > 1 or any(attempt["outcome"] not in ("succeeded", None) for attempt in attempts)
    if not bumpy and not (logs and any(attempt["log_tail"] for attempt in attempts)):
        return
    show.line(f"task {row['id']} {row['model']} {row['scope_text']}")
    for attempt in attempts:
        show.line(f"  {'; '.join(_attempt_words(attempt))}")
        for line in (attempt["log_tail"] or "").splitlines() if logs else ():
            show.line(f"    {line}")


def _attempt_words(attempt: Mapping[str, object]) -> Iterator[str]:
    words = f"attempt {attempt['n']} by {attempt['worker']}: {attempt['outcome'] or 'running'}"
    if attempt["ended_at"]:
        took = datetime.fromisoformat(str(attempt["ended_at"])) - datetime.fromisoformat(str(attempt["started_at"]))
        words += f" after {took.total_seconds():.1f} s"
    if attempt["error_class"] not in (None, attempt["outcome"]):
        words += f": {_ERROR_CLASSES.get(str(attempt['error_class']), attempt['error_class'])}"
    yield words
    if attempt["followed_by"]:
        yield _FOLLOWED_BY.get(str(attempt["followed_by"]), str(attempt["followed_by"]))
    if attempt["error"]:
        yield str(attempt["error"]).splitlines()[0]


def parsed_range(model: str, axis: str, start: str | None, end: str | None) -> tuple[int | None, int | None]:
    """`--from` and `--to` as positions; both ends must make sense together."""
    from penstock.values.models.axis import position

    try:
        low = None if start is None else position(start, axis)
        high = None if end is None else position(end, axis)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if low is not None and high is not None and low >= high:
        raise UsageError(
            f"--from {start} is not before --to {end} for {model}", hint="the range is half-open: [from, to)"
        )
    return low, high
