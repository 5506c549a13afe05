"""Runs a resident role in a process of its own that may die at a labelled step, or work with one mechanism broken.

python resident.py PROJECT ROLE [--die STEP[:N]] [--stop STEP[:N]] [--break MECHANISM] [--spark] [--concurrency N]
  [--disk-limit BYTES]

ROLE is scheduler, worker or up. Ends at SIGTERM with 0, and with 3 when it could not bear a lost state database.
"""

from __future__ import annotations

import argparse
import logging
import os
import resource
import signal
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))

from arrow_engine import ArrowEngine
from child import Fate, broken

from penstock.errors import StateError
from penstock.runtime.place.workspace import Workspace, open_workspace
from penstock.runtime.process.logs import configure, log
from penstock.runtime.process.wakeup import Stop
from penstock.runtime.serve import roles

AGAIN_SECONDS = 0.3


class Started(logging.Handler):
    """Knows whether the role has begun: who finds no database before that is started again, as by a supervisor."""

    seen = False

    def emit(self, record: logging.LogRecord) -> None:
        self.seen = self.seen or record.getMessage().endswith("_started")


def limit_disk(most_bytes: int) -> None:
    """No file may grow beyond this: a write fails with an error, as on a full disk, and sends no deadly signal."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))


def with_concurrency(workspace: Workspace, size: int) -> None:
    settings = workspace.project.settings
    worker = replace(settings.worker, concurrency=size)
    workspace.project = replace(workspace.project, settings=replace(settings, worker=worker))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("project", type=Path)
    parser.add_argument("role", choices=("scheduler", "worker", "up"))
    parser.add_argument("--die")
    parser.add_argument("--stop")
    parser.add_argument("--break", dest="broken")
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--concurrency", type=int)
    parser.add_argument("--disk-limit", type=int)
    options = parser.parse_args()
    configure("info", as_json=False, stream=sys.stderr)
    broken(options.broken)
    if options.disk_limit is not None:
        limit_disk(options.disk_limit)
    fate = Fate(options.stop, signal.SIGSTOP) if options.stop else Fate(options.die, signal.SIGKILL)
    stop, started = Stop(), Started()
    logging.getLogger("penstock").addHandler(started)
    signal.signal(signal.SIGTERM, lambda *_: stop.ask())
    while not stop.asked:
        try:
            with open_workspace(options.project, dict(os.environ), step=fate) as workspace:
                if not options.spark:
                    workspace.engine = ArrowEngine()  # type: ignore[assignment]
                if options.concurrency is not None:
                    with_concurrency(workspace, options.concurrency)
                {"scheduler": roles.scheduler, "worker": roles.worker, "up": roles.up}[options.role](workspace, stop)
        except StateError as error:
            log("no_state", "error", error=str(error))
            if started.seen:
                return 3
            stop.wait(AGAIN_SECONDS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
