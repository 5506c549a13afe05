"""The threads that do the tasks this process has claimed."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace

from penstock.engine.values.job import Step
from penstock.errors import BusyError, ConflictError, LeaseLostError, StateError
from penstock.runtime.process.containment import cancel
from penstock.runtime.process.logs import attempt_log, log
from penstock.runtime.process.progress import Finished
from penstock.runtime.work.attempt import AttemptContext, work
from penstock.runtime.work.heartbeat import Heartbeat
from penstock.state.store import State
from penstock.values.tasks import Lease


class WorkerPool:
    """Worker threads, every one with a connection of its own, and the leases they hold."""

    def __init__(
        self,
        context: AttemptContext,
        connect: Callable[[], State],
        heartbeat: Heartbeat,
        size: int,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._context, self._connect, self._heartbeat, self._ended = context, connect, heartbeat, ended
        self.size = size
        self._pool = ThreadPoolExecutor(size, thread_name_prefix="penstock-worker")
        self._running: dict[Future[Finished], Lease] = {}
        self._local = threading.local()
        self._in_doubt: float | None = None
        """When a claim was sent whose answer never came."""
        self._lost: deque[int] = deque(maxlen=100)
        """Tasks that were given up: the database may know them as ours until they are taken back."""
        self._opened: list[State] = []

    @property
    def leases(self) -> tuple[Lease, ...]:
        return tuple(self._running.values())

    @property
    def free(self) -> int:
        return self.size - len(self._running)

    def claim(self, worker: str, models: frozenset[str]) -> Lease | None:
        """Take the fairest task of these models and begin it."""
        lease, claimed = self._taken(worker, models)
        if lease is not None:
            self._heartbeat.hold(lease, claimed)
            if lease.order.lane != "refresh":  # whether a refresh needs Spark is known when it begins
                self._context.engine.session.begin()
            future = self._pool.submit(self._work, lease)
            self._running[future] = lease
            future.add_done_callback(lambda _: self._ended())
        return lease

    def collect(self, wait_seconds: float | None) -> list[tuple[Lease, Finished]]:
        """What has ended; None waits until something has."""
        done, _ = wait(self._running, wait_seconds, return_when=FIRST_COMPLETED)
        return [self._dropped(future) for future in done]

    def hand_back(self, reason: str) -> None:
        """Give up what still runs: others may start it at once."""
        state = self._connect()
        try:
            for lease in self.leases:
                self._heartbeat.drop(lease)  # it begins no commit, and waits for no database
                cancel(self._context.engine, lease)
                with suppress(LeaseLostError, BusyError):  # it has just ended, or is about to
                    state.queue.hand_back(lease, reason)
        finally:
            state.close()

    def close(self) -> None:
        """Wait for what is running, then hang up."""
        self._pool.shutdown()
        for state in self._opened:
            state.close()

    def _taken(self, worker: str, models: frozenset[str]) -> tuple[Lease | None, float]:
        """A claim whose answer got lost may hold a task, which no other worker takes meanwhile: it comes first."""
        if self._in_doubt is not None:
            known = [*self._lost, *(held.task for held in self.leases)]
            lease = self._context.state.queue.unheard_claim(worker, known)
            if lease is not None:
                return lease, self._in_doubt
            self._in_doubt = None
        now = time.monotonic()
        try:
            return self._context.state.queue.claim(worker, models), now
        except StateError:
            self._in_doubt = now
            raise

    def _dropped(self, future: Future[Finished]) -> tuple[Lease, Finished]:
        lease = self._running.pop(future)
        self._heartbeat.drop(lease)
        result = future.result()
        if result.outcome == "lost":
            self._lost.append(lease.task)
        return lease, result

    def _work(self, lease: Lease) -> Finished:
        if not hasattr(self._local, "state"):
            try:
                self._local.state = self._context.patiently(lease, self._connect)
            except LeaseLostError as error:
                return Finished(lease.order, "lost", 0.0, error=error.message)
            self._opened.append(self._local.state)
        state: State = self._local.state
        context = replace(self._context, state=state, step=_logged(self._context.step))
        with attempt_log(task=lease.task, attempt=lease.attempt, model=lease.order.model) as tail:
            log("began", "debug", lane=lease.order.lane, intervals=len(lease.order.chunks), worker=lease.worker)
            result = work(context, lease)
        with suppress(StateError, ConflictError):  # a log is worth no second try
            state.history.keep_log(lease, tail.text())
        return result


def _logged(step: Step) -> Step:
    def act(label: str) -> None:
        log(label.replace(" ", "_"), "debug")
        step(label)

    return act
