"""Runs a project in a process of its own that may die at a labelled step, or work with one mechanism broken.

python child.py PROJECT [--die STEP[:N]] [--stop STEP[:N]] [--break MECHANISM] [--spark] [--reset MODEL]

With --reset it empties the table of a model first, as `penstock rerun --reset` does.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))

from arrow_engine import ArrowEngine

from penstock.runtime.place.workspace import apply, open_workspace
from penstock.runtime.process.progress import Silent
from penstock.runtime.redo.reset import reset, resettable
from penstock.runtime.serve.run import run


class Fate:
    """Sends this process a signal, as the kernel would, when a step is reached for the n-th time."""

    def __init__(self, wanted: str | None, number: signal.Signals) -> None:
        label, _, count = (wanted or "").partition(":")
        self.label, self.left, self.number = label, int(count or 1), number
        self.seen: list[str] = []

    def __call__(self, label: str) -> None:
        self.seen.append(label)
        if label == self.label:
            self.left -= 1
            if self.left == 0:
                # to this thread: it would go on for a moment if another one had to be told first
                signal.pthread_kill(threading.get_ident(), self.number)


def broken(mechanism: str | None) -> None:
    """Replace one safety mechanism by a version that does nothing."""
    if mechanism == "adoption":
        from penstock.engine import delta
        from penstock.engine.commit import publish

        publish.find_commit = lambda *_, **__: None  # type: ignore[assignment]
        delta.find_commit = publish.find_commit
        import arrow_engine

        arrow_engine.find_commit = publish.find_commit
    elif mechanism == "fence":
        from penstock.state.progress import attempts

        attempts.fence = lambda *_: None  # type: ignore[assignment]
    elif mechanism == "doubt":
        from penstock.state.queue.queue import Queue

        Queue.unheard_claim = lambda *_: None  # type: ignore[method-assign]
    elif mechanism == "cascade":
        from penstock.state.progress.publication import Publication

        Publication._tell = lambda *_: None  # type: ignore[method-assign]
    elif mechanism == "liveness":
        from penstock.engine.commit import publish

        publish.moved = lambda *_: None  # type: ignore[assignment]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("project", type=Path)
    parser.add_argument("--die")
    parser.add_argument("--stop")
    parser.add_argument("--break", dest="broken")
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--reset")
    options = parser.parse_args()
    broken(options.broken)
    fate = Fate(options.stop, signal.SIGSTOP) if options.stop else Fate(options.die, signal.SIGKILL)
    with open_workspace(options.project, dict(os.environ), step=fate) as workspace:
        if not options.spark:
            workspace.engine = ArrowEngine()  # type: ignore[assignment]
        apply(workspace)
        if options.reset:
            reset(workspace, resettable(workspace, workspace.project.graph.interval_model(options.reset)), "test")
        summary = run(workspace, workspace.project.graph.interval_models, Silent())
    answer = {"tasks": summary.tasks, "failed": summary.failed, "errors": summary.errors, "steps": fate.seen}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
