"""What are the processes that stay: scheduler, worker, or both in one?"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from penstock.errors import ConflictError, SparkError, StateError
from penstock.planner.policy.selection import Pattern, Selection
from penstock.runtime.observe.source_watcher import BackgroundWatcher, polling
from penstock.runtime.place.revisions import Revisions
from penstock.runtime.place.workspace import Workspace
from penstock.runtime.plan.scheduler import Scheduler
from penstock.runtime.process.containment import cancel, contained
from penstock.runtime.process.logs import log
from penstock.runtime.process.metrics import Metrics
from penstock.runtime.process.wakeup import Stop, listening
from penstock.runtime.serve.endpoints import serve
from penstock.runtime.serve.housekeeping import housekeeping
from penstock.runtime.work.attempt import AttemptContext, SparkProcess
from penstock.runtime.work.heartbeat import Heartbeat
from penstock.runtime.work.worker import Worker
from penstock.runtime.work.worker_pool import WorkerPool
from penstock.values.tasks import Lease

STUCK_SECONDS = 120.0
"""A main loop that has not turned for so long is not healthy."""
_TROUBLE_SECONDS = 1.0


@dataclass(slots=True)
class Liveness:
    """When the main loop last turned, and whether the database answered."""

    last_loop_at: float = field(default_factory=time.monotonic)
    state_ok: bool = False

    def beat(self, *, state_ok: bool) -> None:
        self.last_loop_at, self.state_ok = time.monotonic(), state_ok

    @property
    def alive(self) -> bool:
        return time.monotonic() - self.last_loop_at < STUCK_SECONDS


def scheduler(workspace: Workspace, stop: Stop, address: str | None = None) -> None:
    """Plan, until asked to stop."""
    metrics, liveness = Metrics(), Liveness()
    info = _info(workspace, "scheduler", 0)
    with (
        _served(address, metrics, "scheduler", (liveness,)),
        Heartbeat(workspace.connect, workspace.worker, info, beaten=metrics.heartbeat_sent),
    ):
        _schedule(workspace, stop, metrics, liveness)
    if stop.error is not None:
        raise stop.error


def worker(workspace: Workspace, stop: Stop, address: str | None = None) -> None:
    """Do tasks, until asked to stop or Spark is gone."""
    metrics, liveness = Metrics(), Liveness()
    with _served(address, metrics, "worker", (liveness,), workspace.engine.session):
        _work(workspace, stop, metrics, liveness, "worker")


def up(workspace: Workspace, stop: Stop, address: str | None = None) -> None:
    """Both, in one process; when one cannot go on, the other ends too."""
    metrics, planning, working = Metrics(), Liveness(), Liveness()
    with (
        _served(address, metrics, "up", (planning, working), workspace.engine.session),
        _beside(stop, lambda: _schedule(workspace, stop, metrics, planning)),
    ):
        _work(workspace, stop, metrics, working, "up")


def _schedule(workspace: Workspace, stop: Stop, metrics: Metrics, liveness: Liveness) -> None:
    wakeup = stop.wakeup()
    state = workspace.connect()
    revisions = Revisions(workspace.project, workspace.environ)
    watcher = BackgroundWatcher(workspace.environ, wakeup.wake)
    scheduler = Scheduler(state, revisions, watcher, metrics, workspace.step, workspace.worker)
    log("scheduler_started", pid=os.getpid())
    try:
        with listening(workspace.connect, wakeup), housekeeping(workspace, revisions, metrics), polling(watcher):
            while not stop.asked:
                wakeup.wait(_round(scheduler, metrics, liveness))
    finally:
        state.close()
    log("scheduler_stopped")


def _round(scheduler: Scheduler, metrics: Metrics, liveness: Liveness) -> float:
    """One round, whatever happens to the database; how long to wait for the next."""
    try:
        pause = scheduler.round()
    except (StateError, ConflictError) as error:
        answered = isinstance(error, ConflictError)
        liveness.beat(state_ok=answered)
        metrics.error("scheduler", error)
        log("state_busy" if answered else "state_unreachable", "warning", error=error.message)
        return _TROUBLE_SECONDS
    except BaseException as error:  # the stored project does not load here: an unset variable, for example
        failure = contained(error)
        liveness.beat(state_ok=True)
        metrics.error("scheduler", error)
        log("round_failed", "error", error=failure.message, hint=failure.hint)
        return _TROUBLE_SECONDS
    liveness.beat(state_ok=True)
    return pause


def _work(workspace: Workspace, stop: Stop, metrics: Metrics, liveness: Liveness, role: str) -> None:
    own, wakeup = workspace.project.settings.worker, stop.wakeup()
    patterns = tuple(Pattern(glob.pattern, glob.concurrency) for glob in own.models)
    revisions = Revisions(workspace.project, workspace.environ)

    def lost(lease: Lease) -> None:
        log("lease_lost", "warning", task=lease.task, attempt=lease.attempt, model=lease.order.model)
        cancel(workspace.engine.attempts, lease)

    def heard(kind: str) -> None:
        if kind == "cancel":
            heartbeat.beat()

    def beaten() -> None:
        metrics.heartbeat_sent()
        wakeup.wake()  # its lock may have come back just now, without which it may claim nothing

    def spark_ended() -> None:
        if not stop.asked:  # whoever stops this process may have stopped Spark with it
            stop.ask(SparkError("Spark ended by itself", hint="was memory short? Its log tells more"))

    workspace.engine.session.on_death = spark_ended
    info = {**_info(workspace, role, own.concurrency), "globs": [g.pattern for g in own.models], "tags": list(own.tags)}
    with ExitStack() as stack:
        heartbeat = stack.enter_context(Heartbeat(workspace.connect, workspace.worker, info, lost, beaten))
        context = AttemptContext(
            revisions.resolver, workspace.state, workspace.engine.attempts, workspace.step, heartbeat
        )
        pool = WorkerPool(context, workspace.connect, heartbeat, own.concurrency, wakeup.wake)
        stack.callback(pool.close)
        stack.callback(workspace.engine.session.stop, quick=True)  # before the pool: it ends whatever still runs there
        selection = Selection(patterns, frozenset(own.tags), own.concurrency)
        worker = Worker(workspace, workspace.state, selection, revisions, pool, heartbeat, metrics, liveness.beat)
        stack.enter_context(listening(workspace.connect, wakeup, heard))
        log("worker_started", worker=workspace.worker, pid=os.getpid(), slots=own.concurrency)
        try:
            worker.serve(stop, wakeup)
        except Exception as error:  # raised below, after the other tasks were handed back: it is not their fault
            stop.ask(error)
        log("worker_stopping", worker=workspace.worker, running=len(pool.leases))
        # what ran when Spark ended may have ended it: that is not handed back, it counts as lost
        worker.leave(0.0 if stop.error else own.shutdown_seconds, hand_back=not isinstance(stop.error, SparkError))
    log("worker_stopped", worker=workspace.worker)
    if stop.error is not None:
        raise stop.error


def _info(workspace: Workspace, role: str, slots: int) -> dict[str, object]:
    return {"role": role, "host": workspace.host, "pid": os.getpid(), "slots": slots}


@contextmanager
def _served(
    address: str | None, metrics: Metrics, role: str, loops: tuple[Liveness, ...], spark: SparkProcess | None = None
) -> Iterator[None]:
    def ready() -> tuple[bool, Mapping[str, object]]:
        facts: dict[str, object] = {"role": role}
        state_ok = all(loop.state_ok for loop in loops)
        facts["state"] = "ok" if state_ok else "unreachable"
        if spark is not None:
            facts["spark"] = "ended" if not spark.alive else "started" if spark.started else "not started"
        return state_ok and (spark is None or spark.alive), facts

    with serve(address, metrics, ready, lambda: all(loop.alive for loop in loops)) as served:
        if served is not None:
            log("serving", address=served)
        yield


@contextmanager
def _beside(stop: Stop, act: Callable[[], None]) -> Iterator[None]:
    """Run `act` in a thread of its own; its end, in any way, ends the process."""

    def guarded() -> None:
        try:
            act()
        except BaseException as error:  # `stop` raises it again in the main thread
            stop.ask(error)
        else:
            stop.ask()

    thread = threading.Thread(target=guarded, name="penstock-scheduler", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.ask()
        thread.join()
