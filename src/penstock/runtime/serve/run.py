"""How does one process work until nothing is ready?"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from queue import SimpleQueue
from typing import TYPE_CHECKING, assert_never

from penstock.planner.dynamic.refresh import RefreshObservation, refresh
from penstock.planner.observations import Observations, superseded
from penstock.planner.policy.breaker import signature, suspended_words
from penstock.planner.readiness.observation import Observation
from penstock.planner.readiness.plan import plan
from penstock.planner.readiness.words import spans
from penstock.runtime.observe.audit import audit
from penstock.runtime.observe.sources import THREADS, Observer, Seen, SourceObservation, keep
from penstock.runtime.place.table_resolver import TableResolver
from penstock.runtime.place.workspace import Workspace
from penstock.runtime.plan.reconcile import reconcile
from penstock.runtime.process.containment import cancel, contained
from penstock.runtime.process.progress import Finished, Progress
from penstock.state.projects import Projects
from penstock.values.intervals import NOTHING, IntervalSet
from penstock.values.models import DynamicModel, IntervalModel
from penstock.values.records import StateView
from penstock.values.tasks import Lease, Order

if TYPE_CHECKING:
    from penstock.runtime.work.worker_pool import WorkerPool

OTHERS_POLL_SECONDS = 5.0
RETRY_PAUSE_SECONDS = 5.0
"""A person waits: retries come soon."""


@dataclass(slots=True)
class Summary:
    """What a run did."""

    tasks: int = 0
    intervals: int = 0
    refreshes: int = 0
    """Of dynamic tables."""
    spark_jobs: int = 0
    spark_started: bool = False
    failed: int = 0
    seconds: float = 0.0
    errors: list[str] = field(default_factory=list)
    """One for all ranges of a model that failed alike."""
    _failed: dict[tuple[str, str], tuple[int, IntervalSet]] = field(default_factory=dict)

    def add(self, result: Finished, axis: str | None) -> None:
        if result.outcome == "succeeded":
            self.tasks += 1
            if result.order.lane == "refresh":
                self.refreshes += 1
            else:
                self.intervals += len(result.order.chunks)
        elif result.outcome == "dead":
            self.failed += 1
            self._tell(result.order, result.error or "", axis)

    def _tell(self, order: Order, error: str, axis: str | None) -> None:
        alike = order.model, signature(error)
        number, before = self._failed.get(alike, (len(self.errors), NOTHING))
        scope = before | order.scope
        self._failed[alike] = number, scope
        what = "refresh" if axis is None else spans(scope, axis)
        self.errors[number : number + 1] = [f"{order.model} {what}: {error}"]


Built = IntervalModel | DynamicModel


def run(workspace: Workspace, models: tuple[Built, ...], progress: Progress, *, named: bool = False) -> Summary:
    """Observe every source once, then plan, claim and work until nothing is ready at those snapshots.

    Tables that are only refreshed when somebody asks are left out, unless the models were `named`.
    """
    began = time.monotonic()
    since = observe(workspace, progress)
    if not named:
        models = tuple(model for model in models if not (isinstance(model, DynamicModel) and model.by_hand))
    workspace.state.control.go_on_all([model.name for model in models])
    summary = Summary()
    with _running(workspace, models, progress, since) as running:
        running.work_until_quiet(summary)
    summary.spark_jobs = workspace.engine.attempts.jobs
    summary.spark_started = workspace.engine.session.started
    summary.seconds = time.monotonic() - began
    return summary


def observe(workspace: Workspace, progress: Progress) -> datetime:
    """Look at every source once and keep what was seen; look at our own tables for commits that are not ours.

    When that was, by the database's clock: what died before is tried again.
    """
    view = workspace.state.views.whole()
    observer = Observer(workspace.resolver, workspace.engine.scanner, workspace.environ)
    with closing(_seen(observer, view)) as observations:
        for seen in observations:
            if isinstance(seen, SourceObservation):
                keep(workspace.state.sources, seen)
                if seen.record.error and seen.record.observed_at is not None:
                    progress.note(f"{seen.record.model}: {seen.record.error}; tables built from it are kept")
    workspace.state.sources.note_looks([source.name for source in workspace.project.graph.sources])
    for problem in audit(workspace.resolver, workspace.state, view):
        if problem is not None:
            progress.note(problem)
    return view.at


def _seen(observer: Observer, view: StateView) -> Generator[Seen, None, None]:
    """Every source as it is, as soon as it is seen: none waits for the store of another.

    Whoever leaves before the end waits for the looks under way, and no other is begun: they use what is closed next.
    """
    sources = [source.name for source in observer.resolver.graph.sources]
    if len(sources) == 1:
        yield from observer.look(sources, view)
        return
    queue = SimpleQueue[Seen | BaseException | None]()

    def look(name: str) -> None:
        try:
            for seen in observer.look((name,), view):
                queue.put(seen)
        except BaseException as error:  # whoever waits raises it
            queue.put(error)
        queue.put(None)

    with ThreadPoolExecutor(THREADS, "penstock-look") as pool:
        looking = len([pool.submit(look, name) for name in sources])
        try:
            while looking:
                seen = queue.get()
                if isinstance(seen, BaseException):
                    raise seen
                if seen is None:
                    looking -= 1
                else:
                    yield seen
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _running(workspace: Workspace, models: tuple[Built, ...], progress: Progress, since: datetime) -> Iterator[_Run]:
    def lost(lease: Lease) -> None:
        cancel(workspace.engine.attempts, lease)

    def resolver(view: StateView, _: Projects) -> TableResolver | None:
        return None if superseded(workspace.project.revision, view) else workspace.resolver

    def staff() -> WorkerPool:
        """Only when there is work: to find out that there is none takes no worker."""
        from penstock.runtime.work.attempt import AttemptContext
        from penstock.runtime.work.heartbeat import Heartbeat
        from penstock.runtime.work.worker_pool import WorkerPool

        info = {"pid": os.getpid(), "host": workspace.host, "role": "run", "slots": workspace.slots}
        heartbeat = stack.enter_context(Heartbeat(workspace.connect, workspace.worker, info, lost))
        context = AttemptContext(
            resolver, workspace.state, workspace.engine.attempts, workspace.step, heartbeat, RETRY_PAUSE_SECONDS
        )
        pool = WorkerPool(context, workspace.connect, heartbeat, workspace.slots)
        stack.callback(pool.close)
        return pool

    with ExitStack() as stack:
        yield _Run(workspace, models, progress, staff, since)


class _Run:
    """Plans, claims and collects, in one thread."""

    def __init__(
        self,
        workspace: Workspace,
        models: tuple[Built, ...],
        progress: Progress,
        staff: Callable[[], WorkerPool],
        since: datetime,
    ) -> None:
        self._workspace, self._state, self._models, self._progress = workspace, workspace.state, models, progress
        self._names = frozenset(model.name for model in models)
        self._staff, self._since = staff, since
        self._pool: WorkerPool | None = None
        self._unplannable: dict[str, str] = {}
        self._starving: dict[str, str] = {}
        self._refreshed: set[str] = set()

    def work_until_quiet(self, summary: Summary) -> None:
        """What died before this run is tried again, what dies in it is not."""
        while True:
            view = self._look()
            if superseded(self._workspace.project.revision, view):
                return self._leave(summary)
            added = self._enqueue(view)
            self._claim(view, added)
            if self._pool is not None and self._pool.leases:
                self._collect(self._pool, summary)
            elif not added and not view.events and not self._wait_for_others(view):
                for name, empty in self._starving.items():
                    self._progress.note(f"{name} cannot begin: {empty}")
                return self._count_dead(view, summary)

    def _leave(self, summary: Summary) -> None:
        """The tables are another revision's now: our queries must not fill them."""
        self._progress.note("another revision of the project was applied: this run ends here")
        while self._pool is not None and self._pool.leases:
            self._collect(self._pool, summary)

    def _count_dead(self, view: StateView, summary: Summary) -> None:
        """A task may die without an attempt of ours: lost twice by other workers, for example."""
        dead = {name: work for name, work in view.work.items() if name in self._names and work.dead_tasks}
        summary.failed = sum(work.dead_tasks for work in dead.values()) + len(self._unplannable)
        summary.errors += [f"{name} cannot be planned: {error}" for name, error in self._unplannable.items()]
        failed = dead.keys() | self._unplannable.keys() | view.suspended.keys()
        summary.errors = [error for error in summary.errors if error.split(" ", 1)[0] in failed]
        named = {error.split(" ", 1)[0] for error in summary.errors}
        summary.errors += [f"{name} {work.last_error}" for name, work in dead.items() if name not in named]
        for name in sorted(view.suspended.keys() & self._names):
            suspension = view.suspended[name]
            words = suspended_words(name, suspension.error, passing=suspension.passing)
            summary.errors = [said for said in summary.errors if said.split(" ", 1)[0] != name] + [f"{name} {words}"]
            summary.failed += not dead.get(name)

    def _look(self) -> StateView:
        """The state as it is after everything that can be settled without Spark."""
        view = self._state.views.whole(self._since)
        if superseded(self._workspace.project.revision, view):
            return view
        reconciled = reconcile(
            self._state, self._workspace.resolver, own_worker=self._workspace.worker, dead_since=self._since
        )
        if reconciled.took_over:
            tables = "table" if len(reconciled.took_over) == 1 else "tables"
            self._progress.note(f"the rebuilt {', '.join(reconciled.took_over)} replaced the old {tables}")
        return reconciled.view

    def _enqueue(self, view: StateView) -> int:
        orders = tuple(self._wanted(view))
        if not orders:
            return 0
        if any(order.lane != "refresh" for order in orders):  # whether a refresh needs Spark is known when it begins
            self._workspace.engine.session.begin()
        added = self._state.queue.enqueue(orders, {name: generation.no for name, generation in view.working.items()})
        if added:
            self._progress.planned(orders)
        return added

    def _wanted(self, view: StateView) -> Iterator[Order]:
        """A dynamic table is refreshed once, after all that this run does above it."""
        graph = self._workspace.project.graph
        observations = Observations(graph, view)
        # nobody claims the tasks of a paused or suspended model
        away = view.paused | view.suspended.keys()
        moving = {
            name
            for name, work in view.work.items()
            if name in self._names and (work.running or (name not in away and work.queued + work.retrying))
        }
        for model in graph.built:
            above = not moving.isdisjoint(graph.parents(model.name))
            if above:
                moving.add(model.name)
            if model.name in self._names and not (above and isinstance(model, DynamicModel)):
                orders = self._orders(observations, model)
                if orders:
                    moving.add(model.name)
                yield from orders

    def _orders(self, observations: Observations, model: Built) -> list[Order]:
        """A model that cannot be planned fails by itself."""
        try:
            match model:
                case IntervalModel():
                    seen = observations.observation(model)
                    self._note_starving(model.name, _empty_sources(seen))
                    return [decision for decision in plan(seen) if isinstance(decision, Order)]
                case DynamicModel():
                    return self._refreshes(observations.refresh(model))
                case _:
                    assert_never(model)
        except BaseException as error:
            self._unplannable[model.name] = contained(error, model=model.name).message
            return []

    def _refreshes(self, seen: RefreshObservation) -> list[Order]:
        """A table whose rows depend on the time is refreshed once."""
        name = seen.model.name
        self._note_starving(name, "; ".join(f"{parent}: {why}" for parent, why in sorted(seen.missing.items())))
        decision = refresh(replace(seen, timed=seen.timed and name not in self._refreshed), self._since)
        return [decision] if isinstance(decision, Order) else []

    def _note_starving(self, name: str, empty: str) -> None:
        self._starving.pop(name, None)
        if empty:
            self._starving[name] = empty

    def _claim(self, view: StateView, added: int) -> None:
        waits = added or any(work.queued or work.retrying for name, work in view.work.items() if name in self._names)
        if self._pool is None and waits:
            self._pool = self._staff()
        pool = self._pool
        while pool is not None and pool.free and (lease := pool.claim(self._workspace.worker, self._names)):
            self._progress.started(lease.order)

    def _collect(self, pool: WorkerPool, summary: Summary) -> None:
        for lease, result in pool.collect(None):
            if result.outcome == "succeeded" and lease.order.lane == "refresh":
                self._refreshed.add(lease.order.model)
            summary.add(result, self._workspace.project.graph.models[lease.order.model].axis)
            self._progress.finished(result)

    def _wait_for_others(self, view: StateView) -> bool:
        """Whether somebody (or our own retry) still has work that may make more work."""
        own = {name: w for name, w in view.work.items() if name in self._names}
        # nobody claims the tasks of a paused or suspended model: only what runs already will end
        idle = view.paused | view.suspended.keys()
        busy = {n: w for n, w in own.items() if w.running or (n not in idle and w.queued + w.retrying)}
        if not busy:
            for name in sorted(self._names & view.paused):
                waiting = own[name].queued + own[name].retrying if name in own else 0
                tasks = "1 waiting task stays" if waiting == 1 else f"{waiting} waiting tasks stay"
                said = f"its {tasks}" if waiting else "nothing of it is computed"
                self._progress.note(f"{name} is paused: {said} until penstock resume {name}")
            return False
        running = sorted(name for name, w in busy.items() if w.running)
        if running:
            self._progress.note(f"waiting for another process that works on {', '.join(running)}")
        self._state.listener.wait(OTHERS_POLL_SECONDS if running else 1.0)
        return True


def _empty_sources(seen: Observation) -> str:
    """The sources without which a model cannot begin, and why they have nothing."""
    groups = [[seen.inputs[member.model] for member in group] for group in seen.starving if not seen.covered]
    sources = [read for group in groups if all(read.kind != "interval" for read in group) for read in group]
    return "; ".join(f"{source.name}: {source.why_empty}" for source in sources)
