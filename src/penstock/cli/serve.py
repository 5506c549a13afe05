"""Commands that run until they are stopped, and those that control them."""

from __future__ import annotations

import getpass
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import TYPE_CHECKING

from penstock.cli import show
from penstock.cli.inspect import root_of
from penstock.cli.options import Options
from penstock.errors import UsageError

if TYPE_CHECKING:
    from types import FrameType

    from penstock.project import Project
    from penstock.runtime.place.workspace import Workspace
    from penstock.runtime.process.wakeup import Stop


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What a call says about its worker, over what the project says."""

    models: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    concurrency: int | None = None


def up(options: Options, yes: bool, address: str | None, chosen: WorkerOptions) -> None:
    from penstock.cli.build import store
    from penstock.runtime.serve import roles

    with _resident(options, chosen) as (workspace, stop):
        store(workspace, yes)
        roles.up(workspace, stop, address)


def scheduler(options: Options, address: str | None) -> None:
    from penstock.runtime.serve import roles

    with _resident(options, WorkerOptions()) as (workspace, stop):
        roles.scheduler(workspace, stop, address)


def worker(options: Options, address: str | None, chosen: WorkerOptions) -> None:
    from penstock.runtime.serve import roles

    with _resident(options, chosen) as (workspace, stop):
        roles.worker(workspace, stop, address)


@contextmanager
def _resident(options: Options, chosen: WorkerOptions) -> Iterator[tuple[Workspace, Stop]]:
    """A workspace that ends by SIGTERM or Ctrl-C in good order; the second signal ends it at once."""
    from penstock.runtime.place.workspace import open_project, open_workspace
    from penstock.runtime.process.logs import configure
    from penstock.runtime.process.wakeup import Stop

    root = root_of(options)
    project = _with_options(open_project(root, options.environ, options.target, options.config), chosen)
    configure("debug" if options.verbose else project.settings.logging, options.json, sys.stderr)
    stop = Stop()

    signals: SimpleQueue[int] = SimpleQueue()

    def handle(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        signals.put(number)  # the main thread may hold the very locks that asking takes

    def ask() -> None:
        signals.get()
        stop.ask()

    def broken(crash: threading.ExceptHookArgs) -> None:
        """A thread that a bug ended must not leave a process behind that only looks alive."""
        stop.ask(crash.exc_value)

    threading.excepthook = broken
    threading.Thread(target=ask, name="penstock-signals", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
    with open_workspace(root, options.environ, project=project) as workspace:
        yield workspace, stop


def _with_options(project: Project, chosen: WorkerOptions) -> Project:
    from penstock.project import WorkerGlob

    worker = project.settings.worker
    if chosen.models:
        worker = replace(worker, models=tuple(WorkerGlob(pattern) for pattern in chosen.models))
    if chosen.tags:
        worker = replace(worker, tags=chosen.tags)
    if chosen.concurrency is not None:
        if chosen.concurrency < 1:
            raise UsageError("--concurrency must be at least 1")
        worker = replace(worker, concurrency=chosen.concurrency)
    return replace(project, settings=replace(project.settings, worker=worker))


def pause(options: Options, models: tuple[str, ...]) -> None:
    def act(workspace: Workspace, model: str, actor: str) -> str:
        workspace.state.control.pause(model, actor)
        return f"{model} is paused: no new tasks start; running tasks continue"

    with _open(options) as workspace:
        for name in models:
            if name.isdigit():
                raise UsageError(f"{name} is a task; only models can be paused", hint=f"penstock cancel {name}")
        _steer(workspace, options, models, act)


def resume(options: Options, subjects: tuple[str, ...]) -> None:
    def act(workspace: Workspace, subject: str, actor: str) -> str:
        if subject.isdigit():
            if not workspace.state.control.resume_task(int(subject), actor):
                raise UsageError(f"task {subject} is not on hold", hint="penstock tasks --history lists them")
            return f"the range of task {subject} can be planned again"
        workspace.state.control.resume(subject, actor)
        return f"{subject} is active; ranges on hold can be planned again"

    with _open(options) as workspace:
        _steer(workspace, options, subjects, act)


def cancel(options: Options, subjects: tuple[str, ...]) -> None:
    def act(workspace: Workspace, subject: str, actor: str) -> str:
        if subject.isdigit():
            if not workspace.state.control.cancel_task(int(subject), actor):
                raise UsageError(f"there is no active task {subject}", hint="penstock tasks lists those that are")
            return f"task {subject} is cancelled; penstock resume {subject} lets it be planned again"
        count = workspace.state.control.cancel_model(subject, actor)
        again = f"; penstock resume {subject} lets them be planned again" if count else ""
        return f"{subject}: {show.count(count, 'task')} cancelled{again}"

    with _open(options) as workspace:
        _steer(workspace, options, subjects, act)


@contextmanager
def _open(options: Options) -> Iterator[Workspace]:
    from penstock.runtime.place.workspace import open_workspace

    with open_workspace(root_of(options), options.environ, target=options.target, config=options.config) as workspace:
        yield workspace


def _steer(
    workspace: Workspace, options: Options, subjects: tuple[str, ...], act: Callable[[Workspace, str, str], str]
) -> None:
    from penstock.values.models import Source

    actor = getpass.getuser()
    named = [subject if subject.isdigit() else workspace.resolve(subject) for subject in subjects]
    for name in named:
        if not name.isdigit() and isinstance(workspace.project.graph.models[name], Source):
            raise UsageError(f"{name} is a source: nothing is computed for it")
    said = [act(workspace, name, actor) for name in named]
    if options.json:
        show.print_json({"done": [{"subject": name, "text": text} for name, text in zip(named, said, strict=True)]})
    else:
        for text in said:
            show.line(text)
