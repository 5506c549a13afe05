"""How does a process keep doing tasks until it is asked to stop?"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Protocol

from penstock.errors import ConflictError, ProjectError, StateError
from penstock.planner.policy.selection import Selection
from penstock.runtime.observe.sources import Observer, SourceObservation, keep
from penstock.runtime.place.revisions import Revisions
from penstock.runtime.place.table_resolver import TableResolver
from penstock.runtime.place.workspace import Workspace
from penstock.runtime.process.containment import contained
from penstock.runtime.process.logs import log
from penstock.runtime.process.metrics import Metrics
from penstock.runtime.process.progress import Finished
from penstock.runtime.process.wakeup import Stop, Wakeup
from penstock.runtime.work.heartbeat import Heartbeat
from penstock.runtime.work.worker_pool import WorkerPool
from penstock.state.projects import Projects
from penstock.state.sources import Sources
from penstock.state.views import Views
from penstock.values.tasks import Lease

IDLE_SECONDS = 2.0
"""A retry whose pause is over sends no notification."""
REVISION_SECONDS = 2.0


class WorkerState(Protocol):
    views: Views
    projects: Projects
    sources: Sources


@dataclass(slots=True)
class Worker:
    """Claims what it may, as long as it has free places."""

    workspace: Workspace
    state: WorkerState
    selection: Selection
    revisions: Revisions
    pool: WorkerPool
    heartbeat: Heartbeat
    metrics: Metrics
    turned: Callable[..., None]
    """Called after every turn with whether the database answered."""
    _resolver: TableResolver | None = None
    _seen_at: float | None = None
    _scan_pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "penstock-scan"))
    _scan: Future[None] | None = None

    def serve(self, stop: Stop, wakeup: Wakeup) -> None:
        """Until it is asked to stop; a database that does not answer is waited for."""
        while not stop.asked:
            try:
                self.turn()
                self.turned(state_ok=True)
            except (StateError, ConflictError) as error:
                answered = isinstance(error, ConflictError)
                self.turned(state_ok=answered)
                self.metrics.error("worker", error)
                log("state_busy" if answered else "state_unreachable", "warning", error=error.message)
            except ProjectError as error:  # the stored project does not load here: an unset variable, for example
                self.turned(state_ok=True)
                self.metrics.error("worker", error)
                log("project_error", "error", error=str(error), hint=error.hint)
            wakeup.wait(IDLE_SECONDS)

    def turn(self) -> int:
        """Put away what has ended and fill the free places; how many tasks were begun."""
        self.tidy()
        resolver = self._current()
        if resolver is None:
            return 0
        began = 0
        while names := self._claimable(resolver):
            lease = self.pool.claim(self.workspace.worker, names)
            if lease is None:
                break
            began += 1
        self._look_for_scans(resolver)
        return began

    def tidy(self) -> None:
        for lease, result in self.pool.collect(0):
            self._report(lease, result)

    def leave(self, seconds: float, *, hand_back: bool = True) -> None:
        """No more claims; what does not end in time is handed back."""
        self.heartbeat.say_stopping()
        until = time.monotonic() + seconds
        while self.pool.leases and (left := until - time.monotonic()) > 0:
            for lease, result in self.pool.collect(left):
                self._report(lease, result)
        if self.pool.leases and hand_back:
            log("handing_back", "warning", tasks=",".join(str(lease.task) for lease in self.pool.leases))
            try:
                self.pool.hand_back("its worker was stopped")
            except (StateError, ConflictError) as error:
                log("state_unreachable", "warning", error=error.message)
        self._scan_pool.shutdown(wait=False, cancel_futures=True)

    def _claimable(self, resolver: TableResolver) -> frozenset[str]:
        running = [lease.order.model for lease in self.pool.leases]
        return self.selection.claimable(resolver.graph.built, running)

    def _current(self) -> TableResolver | None:
        """The applied project; asked for now and then, and by every attempt again."""
        if self._resolver is None or self._seen_at is None or time.monotonic() - self._seen_at > REVISION_SECONDS:
            revision, known = self.state.projects.active_revision(), self._resolver and self._resolver.project.revision
            if revision != known or self._seen_at is None:
                self._resolver = self.revisions.resolver(self.state.views.whole(), self.state.projects)
                self._tell_revision()
            self._seen_at = time.monotonic()
        return self._resolver

    def _tell_revision(self) -> None:
        if self._resolver is None:
            log("nothing_applied", "warning", hint="penstock apply stores a project for workers to work on")
            return
        mine = sum(self.selection.matches(model) for model in self._resolver.graph.built)
        log("revision", "info" if mine else "warning", revision=self._resolver.project.revision[:12], models=mine)

    def _report(self, lease: Lease, result: Finished) -> None:
        self.metrics.task_ended(result)
        log(
            f"task_{result.outcome}",
            "info" if result.outcome in ("succeeded", "released") else "warning",
            task=lease.task,
            attempt=lease.attempt,
            model=lease.order.model,
            lane=lease.order.lane,
            intervals=len(lease.order.chunks),
            rows=result.rows if result.outcome == "succeeded" else None,
            changed=result.written if result.outcome == "succeeded" else None,
            seconds=result.seconds,
            error=result.error,
        )

    def _look_for_scans(self, resolver: TableResolver) -> None:
        """Sources that no log describes are measured by Spark, which a scheduler has not."""
        if self._scan is not None and not self._scan.done():
            return
        names = self.state.sources.claim_scans([source.name for source in resolver.graph.sources])
        if names:
            self._scan = self._scan_pool.submit(self._scanned, resolver, names)

    def _scanned(self, resolver: TableResolver, names: frozenset[str]) -> None:
        try:
            with closing(self.workspace.connect()) as state:
                view = state.views.whole()
                observer = Observer(resolver, self.workspace.engine.scanner, self.workspace.environ)
                for observation in observer.look(names, view):
                    if isinstance(observation, SourceObservation):
                        keep(state.sources, observation)
                        self.metrics.looked(observation.record.model, observation.record.error is None)
        except BaseException as error:
            self.metrics.error("scan", error)
            log("scan_failed", "warning", sources=",".join(sorted(names)), error=contained(error).message)
