"""Scheduler and worker of a deployment, each in a thread of the test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from deployment import Deployment

from penstock.engine.values.job import Step
from penstock.runtime.place.workspace import Workspace, no_step
from penstock.runtime.process.wakeup import Stop
from penstock.runtime.serve import roles
from penstock.values.records import StateView

DEADLINE_SECONDS = 100.0
"""Ends a wait that is in vain. Shorter than a lease: nothing may come only because one has run out."""
Role = Callable[[Workspace, Stop], None]


@dataclass
class Resident:
    """One role that runs; its error, if it ended by one."""

    stop: Stop = field(default_factory=Stop)
    ready: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None
    thread: threading.Thread | None = None

    def end(self) -> None:
        self.stop.ask()
        assert self.thread is not None
        self.thread.join(DEADLINE_SECONDS)
        assert not self.thread.is_alive(), "the role did not stop"


@contextmanager
def serving(deployment: Deployment, role: Role, step: Step = no_step) -> Iterator[Resident]:
    """Run one role until the block ends."""
    resident = Resident()

    def live() -> None:
        try:
            with deployment.opened(step) as workspace:
                resident.ready.set()
                role(workspace, resident.stop)
        except BaseException as error:  # shown to the test
            resident.error = error
        finally:
            resident.ready.set()

    resident.thread = threading.Thread(target=live, daemon=True)
    resident.thread.start()
    resident.ready.wait(DEADLINE_SECONDS)
    try:
        yield resident
    finally:
        resident.end()


@contextmanager
def everything(deployment: Deployment, step: Step = no_step) -> Iterator[Resident]:
    with serving(deployment, roles.up, step) as resident:
        yield resident


def until(deployment: Deployment, holds: Callable[[StateView], bool], seconds: float = DEADLINE_SECONDS) -> StateView:
    """Wait, woken by whatever changes, until the database shows it."""
    deadline = time.monotonic() + seconds
    with deployment.opened() as workspace:
        while True:
            workspace.state.listener.wait(0.2)
            view = workspace.state.views.whole()
            if holds(view):
                return view
            assert time.monotonic() < deadline, f"not in time: {view.work}"


def covers(name: str, end: int) -> Callable[[StateView], bool]:
    """Whether the model has come that far."""

    def holds(view: StateView) -> bool:
        current = view.current.get(f"t.{name}")
        return bool(current and current.covered and current.covered.edges[-1] >= end and not current.stale)

    return holds
