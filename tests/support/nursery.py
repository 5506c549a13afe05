"""Resident processes that are forked from one that has already imported everything: they start ten times sooner."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from threading import Event
from typing import cast

from processes import PROGRAM, Resident, Residents, Role

_PRELOADED = ["pytest", "nursery", "resident", "penstock.engine.observe.foreign_commits"]
_POLL_SECONDS = 0.02


class Child:
    """A forked process with the manners of a `subprocess.Popen`."""

    def __init__(self, process: ForkServerProcess) -> None:
        self._process = process
        self.pid: int = process.pid or 0

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self._process.exitcode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class ForkedResident(Resident):
    def await_stopped(self) -> None:
        """It is not our own child, so that nobody tells us."""
        while not _is_stopped(self.pid):
            if self.process.poll() is not None:
                raise AssertionError(f"{self.name} ended with {self.exit_code}:\n{self.text()[-3000:]}")
            Event().wait(_POLL_SECONDS)
        self.stopped = True


class Nursery(Residents):
    def start(self, role: Role, *options: str) -> Resident:
        self.logs.mkdir(parents=True, exist_ok=True)
        name = f"{role}-{len(self.all)}"
        log = self.logs / f"{name}.log"
        argv = [str(PROGRAM), str(self.trial.root), role, *options]
        environ = {**self.trial.environ, "PENSTOCK_STATE": self.dsn or self.trial.dsn, **self.environ}
        process = _context().Process(target=_live, args=(argv, environ, str(log)))
        process.start()
        started = ForkedResident(name, role, options, log, cast("subprocess.Popen[bytes]", Child(process)))
        self.all.append(started)
        return started


def _context() -> multiprocessing.context.ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    for folder in (Path(__file__).parent, PROGRAM.parent):
        _on_path(folder)
    return context


def _on_path(folder: Path) -> None:
    """For the process that forks: it reads this once, when it starts."""
    known = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    if str(folder) not in known:
        os.environ["PYTHONPATH"] = os.pathsep.join([*known, str(folder)])


def _live(argv: list[str], environ: dict[str, str], log: str) -> None:
    os.environ.clear()
    os.environ.update(environ)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for number in (1, 2):
        os.dup2(handle, number)
    import resident

    sys.argv = argv
    sys.exit(resident.main())


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False
