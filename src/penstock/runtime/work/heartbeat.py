"""How does a worker show that it is alive, and know that it still owns its tasks?"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from types import TracebackType

from penstock.errors import ConflictError, LeaseLostError, StateError
from penstock.state.queue.workers import LEASE_SECONDS
from penstock.state.store import State
from penstock.values.tasks import Lease

HEARTBEAT_SECONDS = 30.0
RECONNECT_SECONDS = 1.0
WATCH_SECONDS = 1.0
MARGIN_SECONDS = 15.0
"""So long before its lease ends a worker that cannot extend it counts it as lost."""
_PARTING_SECONDS = 5.0


def _nobody(lease: Lease) -> None:
    """Reports nothing."""


class Heartbeat:
    """Holds the worker's session lock on its own connection and extends the leases that it was given."""

    def __init__(
        self,
        connect: Callable[[], State],
        worker: str,
        info: Mapping[str, object],
        lost: Callable[[Lease], None] = _nobody,
        beaten: Callable[[], None] = lambda: None,
    ) -> None:
        self._connect, self._worker, self._info = connect, worker, info
        self._lost, self._beaten = lost, beaten
        self._leases: dict[int, tuple[Lease, float]] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._ear, self._waker = socket.socketpair()
        self._ear.setblocking(False)
        self._state: State | None = None
        # two: a database that does not answer, and does not hang up either, must not keep us from giving up
        self._threads = [
            threading.Thread(target=self._beat, name="penstock-heartbeat", daemon=True),
            threading.Thread(target=self._watch, name="penstock-watch", daemon=True),
        ]

    def __enter__(self) -> Heartbeat:
        self._state = self._connect()
        self._state.workers.register(self._worker, self._info)
        self._beaten()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self.beat()
        for thread in self._threads:
            thread.join(_PARTING_SECONDS)
        if self._state is not None and not any(thread.is_alive() for thread in self._threads):
            self._state.close()  # else whoever still waits for an answer there ends with the process
            self._ear.close()
            self._waker.close()

    def hold(self, lease: Lease, claimed: float) -> None:
        """`claimed`: a moment before the claim, by this process's steady clock."""
        with self._lock:
            self._leases[lease.task] = (lease, claimed)

    def drop(self, lease: Lease) -> bool:
        """Whether it was held: the same task may be ours again, with another attempt."""
        with self._lock:
            held, _ = self._leases.get(lease.task, (None, 0.0))
            if held == lease:
                del self._leases[lease.task]
        return held == lease

    def beat(self) -> None:
        """Now, because a task may have been taken away."""
        self._waker.send(b"!")

    def holds(self, lease: Lease) -> bool:
        """Whether no other worker can have the task yet, as far as this process knows."""
        with self._lock:
            held, extended = self._leases.get(lease.task, (None, 0.0))
        return held == lease and time.monotonic() - extended < LEASE_SECONDS - MARGIN_SECONDS

    def require(self, lease: Lease) -> None:
        """Asked right before a commit: who was away too long must not begin one."""
        if not self.holds(lease):
            raise LeaseLostError(
                f"attempt {lease.attempt} of task {lease.task} ({lease.order.model}) could not extend its lease in time"
            )

    def say_stopping(self) -> None:
        """Tell people; claims end by themselves."""
        with suppress(StateError, ConflictError), closing(self._connect()) as state:
            state.workers.say_stopping(self._worker)

    def _beat(self) -> None:
        seconds = HEARTBEAT_SECONDS
        while not self._ended.is_set():
            self._wait(seconds)
            if self._ended.is_set():
                return
            try:
                self._extend()
                self._beaten()
                seconds = HEARTBEAT_SECONDS
            except (StateError, ConflictError):
                seconds = RECONNECT_SECONDS

    def _wait(self, seconds: float) -> None:
        """Until it is time, somebody asks, or the connection is lost: with it goes the lock, so every second counts."""
        if self._state is None or seconds < HEARTBEAT_SECONDS:
            select.select([self._ear], [], [], seconds)
        else:
            with suppress(StateError):
                self._state.database.wait_for_word(self._ear, seconds)
        with suppress(BlockingIOError):
            self._ear.recv(4096)

    def _watch(self) -> None:
        while not self._ended.wait(WATCH_SECONDS):
            self._give_up_overdue()

    def _extend(self) -> None:
        with self._lock:
            held = [lease for lease, _ in self._leases.values()]
        now = time.monotonic()
        lost = self._state.workers.heartbeat(held, self._worker) if self._state is not None else ()
        with self._lock:
            for lease in held:
                if lease not in lost and self._leases.get(lease.task, (None, 0.0))[0] == lease:
                    self._leases[lease.task] = (lease, now)
        for lease in lost:
            self._abandon(lease)

    def _give_up_overdue(self) -> None:
        with self._lock:
            held = [lease for lease, _ in self._leases.values()]
        for lease in held:
            if not self.holds(lease):
                self._abandon(lease)

    def _abandon(self, lease: Lease) -> None:
        if self.drop(lease):
            self._lost(lease)
