"""Resident processes of a deployment that a test starts, kills, stops and continues; none outlives the test."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, Self

from deltalake import DeltaTable
from deployment import Deployment

from penstock.planner.observations import Observations
from penstock.planner.readiness.plan import plan
from penstock.runtime.place.workspace import Workspace
from penstock.values.models import IntervalModel, Source
from penstock.values.records import StateView
from penstock.values.tasks import Order

PROGRAM = Path(__file__).parent.parent / "crash" / "resident.py"
Role = Literal["scheduler", "worker", "up"]
_POLL_SECONDS = 0.2
_TERM_SECONDS = 60.0


@dataclass(eq=False)
class Resident:
    """One process. What it says is in its log."""

    name: str
    role: Role
    options: tuple[str, ...]
    log: Path
    process: subprocess.Popen[bytes]
    stopped: bool = False
    killed: bool = False

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def was_killed(self) -> bool:
        """By us, or by itself at a step, as it was told."""
        return self.exit_code == -signal.SIGKILL

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self.process.poll()

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def kill(self) -> None:
        """As the kernel would: at once, whatever it is doing, even while it is stopped."""
        self.killed = True
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """SIGSTOP, in force on return."""
        self.process.send_signal(signal.SIGSTOP)
        self.await_stopped()

    def await_stopped(self) -> None:
        """Until it is stopped, by us or by itself at a step."""
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self.process.returncode = os.waitstatus_to_exitcode(status)
            raise AssertionError(f"{self.name} ended with {self.process.returncode}:\n{self.text()[-3000:]}")
        self.stopped = True

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.stopped = False

    def terminate(self, seconds: float = _TERM_SECONDS) -> int:
        """SIGTERM, and the code it ends with."""
        if self.stopped:
            self.go_on()
        self.process.terminate()
        return self.process.wait(seconds)

    def fill_disk(self, left_bytes: int = 0) -> None:
        """From now on no file that it writes can grow beyond this."""
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (left_bytes, resource.RLIM_INFINITY))

    def free_disk(self) -> None:
        with suppress(ProcessLookupError):
            resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@dataclass
class Residents:
    """All processes that a test started for one deployment."""

    trial: Deployment
    logs: Path
    dsn: str | None = None
    """How they reach the database, if not as the test does."""
    environ: dict[str, str] = field(default_factory=dict)
    all: list[Resident] = field(default_factory=list)

    def start(self, role: Role, *options: str) -> Resident:
        self.logs.mkdir(parents=True, exist_ok=True)
        name = f"{role}-{len(self.all)}"
        log = self.logs / f"{name}.log"
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(self.trial.root), role, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**self.trial.environ, "PENSTOCK_STATE": self.dsn or self.trial.dsn, **self.environ},
        )
        # through a pipe, so that a process whose disk is full can still say so
        threading.Thread(target=_copy, args=(process.stdout, log), name=f"log-{name}", daemon=True).start()
        started = Resident(name, role, options, log, process)
        self.all.append(started)
        return started

    def running(self, role: Role | None = None) -> list[Resident]:
        return [resident for resident in self.all if resident.running and role in (None, resident.role)]

    def replace(self, gone: Resident, *options: str) -> Resident:
        """What a supervisor does."""
        return self.start(gone.role, *(options or gone.options))

    def ended_by_themselves(self) -> list[Resident]:
        """Neither running nor killed by us; who was told to end ends with 0."""
        return [resident for resident in self.all if not resident.running and not resident.was_killed]

    def wait_until(self, condition: Callable[[Workspace], str | None], seconds: float) -> None:
        """Until the condition has no more complaints; the last one is in the error."""
        deadline = time.monotonic() + seconds
        with self.trial.opened() as workspace:
            while (complaint := condition(workspace)) is not None:
                if time.monotonic() > deadline:
                    raise AssertionError(f"after {seconds:.0f} s still {complaint}\n{self.tails()}")
                workspace.state.listener.wait(_POLL_SECONDS)

    def wait_quiet(self, seconds: float) -> None:
        """Until nothing is active, nobody has to be told of anything, and the planner would order nothing."""
        self.wait_until(unrest, seconds)

    def wait_settled(self, seconds: float) -> None:
        """The same, and nothing is held back any more: what died was planned again by itself."""
        self.wait_until(lambda workspace: unrest(workspace) or _held(workspace), seconds)

    def tails(self, lines: int = 15) -> str:
        return "\n".join(
            f"--- {resident.name} ({'runs' if resident.running else resident.exit_code})\n"
            + "\n".join(resident.text().splitlines()[-lines:])
            for resident in self.all
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for resident in self.all:
            if resident.running:
                resident.kill()


def _copy(pipe: IO[bytes], log: Path) -> None:
    with pipe, log.open("wb", buffering=0) as out:
        while got := os.read(pipe.fileno(), 65536):
            out.write(got)


def unrest(workspace: Workspace) -> str | None:
    """Why the deployment is not quiet yet; None when it is."""
    view = workspace.state.views.whole()
    busy = {name: work for name, work in view.work.items() if work.queued + work.running + work.retrying}
    if busy:
        return f"active: {busy}"
    if view.events:
        return f"{view.events} events"
    return _unseen(workspace, view) or _plannable(workspace, view)


def _held(workspace: Workspace) -> str | None:
    held = {name: work.dead for name, work in workspace.state.views.whole().work.items() if work.dead}
    return f"held back: {held}" if held else None


def _unseen(workspace: Workspace, view: StateView) -> str | None:
    for model in workspace.project.graph.models.values():
        if isinstance(model, Source) and model.location is not None and DeltaTable.is_deltatable(model.location):
            known, newest = view.sources.get(model.name), DeltaTable(model.location).version()
            if known is None or known.snapshot != newest:
                return f"{model.name} is known up to {known and known.snapshot}, and is at {newest}"
    return None


def _plannable(workspace: Workspace, view: StateView) -> str | None:
    observations = Observations(workspace.project.graph, view)
    for model in workspace.project.graph.models.values():
        if isinstance(model, IntervalModel):
            for decision in plan(observations.observation(model)):
                if isinstance(decision, Order):
                    return f"{model.name} {decision.lane} {decision.scope} to be planned"
    return None
