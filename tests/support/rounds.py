"""A scheduler and a worker that take turns in the test's own thread, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from deployment import Deployment
from table_watcher import TableWatcher

from penstock.engine.values.job import Step
from penstock.runtime.place.revisions import Revisions
from penstock.runtime.place.workspace import Workspace, apply, no_step
from penstock.runtime.plan.scheduler import Scheduler
from penstock.runtime.process.metrics import Metrics
from penstock.runtime.process.progress import Finished
from penstock.runtime.work.attempt import AttemptContext, work
from penstock.values.tasks import Lease


class Sure:
    """Nobody takes a lease away here."""

    def holds(self, lease: Lease) -> bool:
        return True

    def require(self, lease: Lease) -> None:
        return


@dataclass
class Rounds:
    """What `penstock up` does, one round after the other."""

    workspace: Workspace
    scheduler: Scheduler
    context: AttemptContext
    seconds: float = 0.0
    """How far the clock was moved."""
    done: list[Finished] = field(default_factory=list)

    def round(self) -> None:
        """Look, plan, and do what was planned, until nothing more comes of it."""
        self.plan()
        while self.work():
            self.plan()

    def plan(self) -> None:
        self.scheduler.round()

    def work(self) -> int:
        """How many tasks there were to do."""
        count = 0
        while (lease := self.workspace.state.queue.claim("w")) is not None:
            self.done.append(work(self.context, lease))
            count += 1
        return count

    def wait(self, seconds: float) -> None:
        """Let time pass, then have a round."""
        self.seconds += seconds
        body = f"select clock_timestamp() + interval '{self.seconds} seconds'"
        statement = f"create or replace function clock() returns timestamptz language sql volatile as $$ {body} $$"
        self.workspace.state.database.connection.execute(statement.encode())
        self.round()


@contextmanager
def rounds(trial: Deployment, step: Step = no_step) -> Iterator[Rounds]:
    """Apply what is on disk, and be ready for the first round."""
    with trial.opened(step) as workspace:
        apply(workspace)
        scheduler = Scheduler(
            workspace.state, Revisions(workspace.project, workspace.environ), TableWatcher(workspace.environ), Metrics()
        )
        context = AttemptContext(
            lambda *_: workspace.resolver, workspace.state, workspace.engine, workspace.step, Sure()
        )
        yield Rounds(workspace, scheduler, context)
