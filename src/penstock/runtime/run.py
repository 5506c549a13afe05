"""How does one process work until nothing is ready?"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from penstock.intervals import EVERYTHING, NOTHING, IntervalSet
from penstock.models import IntervalModel
from penstock.planner.consumers import affected
from penstock.planner.plan import plan
from penstock.planner.ready import ready
from penstock.planner.words import spans
from penstock.project import Project
from penstock.runtime.audit import audit
from penstock.runtime.heartbeat import Heartbeat
from penstock.runtime.observing import Observer, Scanner
from penstock.runtime.progress import Finished, Progress
from penstock.runtime.survey import Survey, superseded
from penstock.runtime.work import Bench, work
from penstock.runtime.workspace import Workspace
from penstock.state.records import SourceRecord, World
from penstock.state.store import State
from penstock.tasks import Lease, Order

OTHERS_POLL_SECONDS = 5.0


@dataclass(slots=True)
class Summary:
    """What a run did."""

    tasks: int = 0
    intervals: int = 0
    spark_jobs: int = 0
    spark_started: bool = False
    failed: int = 0
    seconds: float = 0.0
    errors: list[str] = field(default_factory=list)

    def add(self, result: Finished, axis: str) -> None:
        if result.outcome == "succeeded":
            self.tasks += 1
            self.intervals += len(result.order.chunks)
        elif result.outcome == "dead":
            self.failed += 1
            self.errors.append(f"{result.order.model} {spans(result.order.scope, axis)}: {result.error}")


def run(workspace: Workspace, models: tuple[IntervalModel, ...], progress: Progress) -> Summary:
    """Observe every source once, then plan, claim and work until nothing is ready at those snapshots."""
    began = time.monotonic()
    since = observe(workspace, progress)
    summary = Summary()
    with _crew(workspace, models, progress, since) as crew:
        crew.work_until_quiet(summary)
    summary.spark_jobs = workspace.engine.jobs
    summary.spark_started = workspace.engine.started
    summary.seconds = time.monotonic() - began
    return summary


def observe(workspace: Workspace, progress: Progress) -> datetime:
    """Look at every source once and keep what was seen; look at our own tables for commits that are not ours.

    When that was, by the database's clock: what died before is tried again.
    """
    world = workspace.state.world()
    for record in observer(workspace, workspace.engine).observe_all(world):
        known = world.sources.get(record.model)
        if record.error is not None:
            workspace.state.record_source_error(record.model, record.error)
        elif record != known:
            workspace.state.record_source(record, known.snapshot if known else None, _replaced(known, record))
    for problem in audit(workspace.site, workspace.state, world):
        progress.note(problem)
    return world.at


def _replaced(known: SourceRecord | None, now: SourceRecord) -> IntervalSet:
    """A new table under an old name: whatever was computed from the old one is out of date."""
    return EVERYTHING if known and known.table_id and known.table_id != now.table_id else NOTHING


def observer(workspace: Workspace, scanner: Scanner | None) -> Observer:
    return Observer(workspace.site, scanner, workspace.environ)


@contextmanager
def _crew(
    workspace: Workspace, models: tuple[IntervalModel, ...], progress: Progress, since: datetime
) -> Iterator[Crew]:
    with ExitStack() as stack:
        info = {"pid": os.getpid(), "command": "run"}
        heartbeat = stack.enter_context(Heartbeat(workspace.connect, workspace.worker, info))
        crew = Crew(workspace, models, progress, heartbeat, since)
        stack.callback(crew.close)
        yield crew


class Crew:
    """A dispatcher and its worker threads; every thread has its own connection."""

    def __init__(
        self,
        workspace: Workspace,
        models: tuple[IntervalModel, ...],
        progress: Progress,
        heartbeat: Heartbeat,
        since: datetime,
    ) -> None:
        self._workspace, self._state, self._models, self._progress = workspace, workspace.state, models, progress
        self._names = frozenset(model.name for model in models)
        self._heartbeat, self._since = heartbeat, since
        self._size = workspace.project.settings.worker.concurrency
        self._pool = ThreadPoolExecutor(self._size, thread_name_prefix="penstock-worker")
        self._running: dict[Future[Finished], Lease] = {}
        self._local = threading.local()
        self._opened: list[State] = []

    def close(self) -> None:
        """Wait for what is running, then hang up."""
        self._pool.shutdown()
        for state in self._opened:
            state.close()

    def work_until_quiet(self, summary: Summary) -> None:
        """What died before this run is tried again, what dies in it is not."""
        while True:
            world = self._look()
            if superseded(self._workspace.project, world):
                return self._leave(summary)
            added = self._enqueue(world)
            self._claim()
            if self._running:
                self._collect(summary)
            elif not added and not world.events and not self._wait_for_others(world):
                return self._count_dead(world, summary)

    def _leave(self, summary: Summary) -> None:
        """The tables are another revision's now: our queries must not fill them."""
        self._progress.note("another revision of the project was applied: this run ends here")
        while self._running:
            self._collect(summary)

    def _count_dead(self, world: World, summary: Summary) -> None:
        """A task may die without an attempt of ours: lost twice by other workers, for example."""
        dead = {name: work for name, work in world.work.items() if name in self._names and work.dead_tasks}
        summary.failed = sum(work.dead_tasks for work in dead.values())
        told = {error.split(" ", 1)[0] for error in summary.errors}
        summary.errors += [f"{name} {work.last_error}" for name, work in dead.items() if name not in told]

    def _look(self) -> World:
        """The world as it is after everything that can be settled without Spark."""
        project = self._workspace.project
        world = self._state.world(self._since)
        if superseded(project, world):
            return world
        moved = self._state.reap(self._workspace.worker)
        if world.events:
            moved += self._state.handle_events(partial(_affected, project))
        if moved:
            world = self._state.world(self._since)
        if cut := cutover(self._workspace, world):
            self._progress.note(f"the rebuilt {', '.join(cut)} took over")
            return self._state.world(self._since)
        return world

    def _enqueue(self, world: World) -> int:
        survey = Survey(self._workspace.project.graph, world)
        orders = tuple(
            decision
            for model in self._models
            for decision in plan(survey.observation(model))
            if isinstance(decision, Order)
        )
        if not orders:
            return 0
        added = self._state.enqueue(orders, {name: generation.no for name, generation in world.working.items()})
        if added:
            self._progress.planned(orders)
        return added

    def _claim(self) -> None:
        while len(self._running) < self._size:
            lease = self._state.claim(self._workspace.worker, self._names)
            if lease is None:
                return
            self._heartbeat.hold(lease)
            self._progress.started(lease.order)
            self._running[self._pool.submit(self._work, lease)] = lease

    def _work(self, lease: Lease) -> Finished:
        workspace = self._workspace
        if not hasattr(self._local, "state"):
            self._local.state = workspace.connect()
            self._opened.append(self._local.state)
        return work(Bench(workspace.site, self._local.state, workspace.engine, workspace.step), lease)

    def _collect(self, summary: Summary) -> None:
        done, _ = wait(self._running, return_when=FIRST_COMPLETED)
        for future in done:
            lease = self._running.pop(future)
            self._heartbeat.drop(lease)
            result = future.result()
            summary.add(result, self._workspace.project.graph.interval_model(lease.order.model).axis)
            self._progress.finished(result)

    def _wait_for_others(self, world: World) -> bool:
        """Whether somebody (or our own retry) still has work that may make more work."""
        busy = {name: w for name, w in world.work.items() if name in self._names and w.queued + w.running + w.retrying}
        if not busy:
            return False
        running = sorted(name for name, w in busy.items() if w.running)
        if running:
            self._progress.note(f"waiting for another process that works on {', '.join(running)}")
        self._state.wait_change(OTHERS_POLL_SECONDS if running else 1.0)
        return True


def _affected(project: Project, child: str, parent: str, changed: IntervalSet) -> IntervalSet:
    return affected(project.graph.interval_model(child), parent, changed)


def cutover(workspace: Workspace, world: World) -> tuple[str, ...]:
    """Let rebuilt generations take over, all in one transaction, once they hold what the old ones can still hold."""
    building = {name for name, generation in world.working.items() if generation.state == "building"}
    if not building:
        return ()
    survey = Survey(workspace.project.graph, world)
    for name in building:
        model = workspace.project.graph.interval_model(name)
        seen = survey.observation(model)
        old = world.current.get(name)
        if (seen.stale & ready(seen)) or (old and (old.covered & ready(seen)) - seen.covered):
            return ()
    return workspace.state.cutover(building)
