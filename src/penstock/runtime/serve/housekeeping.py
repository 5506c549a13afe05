"""What is removed regularly while a process stays up?"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import PenstockError
from penstock.runtime.place.revisions import Revisions
from penstock.runtime.place.workspace import Workspace
from penstock.runtime.process.logs import log
from penstock.runtime.process.metrics import Metrics
from penstock.state.pruning import prune

FIRST_SECONDS = 60.0
PRUNE_SECONDS = 3600.0


@contextmanager
def housekeeping(workspace: Workspace, revisions: Revisions, metrics: Metrics) -> Iterator[None]:
    """Remove history that is older than the project keeps it, in a thread of its own: that may take a while."""
    ended = threading.Event()

    def act() -> None:
        seconds = FIRST_SECONDS
        while not ended.wait(seconds):
            try:
                _prune(workspace, revisions, metrics)
            except PenstockError as error:
                metrics.error("housekeeping", error)
                log("pruning_failed", "warning", error=error.message)
            seconds = PRUNE_SECONDS

    thread = threading.Thread(target=act, name="penstock-housekeeping", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()  # what it does is in small transactions: it may be left in the middle


def _prune(workspace: Workspace, revisions: Revisions, metrics: Metrics) -> None:
    state = workspace.connect()
    try:
        resolver = revisions.resolver(state.views.whole(), state.projects)
        if resolver is not None and (
            gone := prune(state.database, resolver.project.settings.scheduler.retention_seconds)
        ):
            log("pruned", tasks=gone)
            metrics.pruned(gone)
    finally:
        state.close()
