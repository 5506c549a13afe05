"""How do others know that this worker is alive?"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType

from penstock.errors import ConflictError, StateError
from penstock.state.store import State
from penstock.tasks import Lease

HEARTBEAT_SECONDS = 30.0


class Heartbeat:
    """Holds the worker's session lock on its own connection and extends the leases it was told of."""

    def __init__(self, connect: Callable[[], State], worker: str, info: Mapping[str, object]) -> None:
        self._connect, self._worker, self._info = connect, worker, info
        self._leases: dict[int, Lease] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._state: State | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Heartbeat:
        self._state = self._connect()
        self._state.register_worker(self._worker, self._info)
        self._thread = threading.Thread(target=self._beat, name="penstock-heartbeat", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self._state is not None:
            self._state.close()

    def hold(self, lease: Lease) -> None:
        with self._lock:
            self._leases[lease.task] = lease

    def drop(self, lease: Lease) -> None:
        with self._lock:
            self._leases.pop(lease.task, None)

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            with self._lock:
                held = tuple(self._leases.values())
            try:
                self._extend(held)
            except (StateError, ConflictError):
                self._reconnect()

    def _extend(self, held: tuple[Lease, ...]) -> None:
        if self._state is None:
            self._reconnect()
        elif held:
            for lease in self._state.heartbeat(held):
                self.drop(lease)

    def _reconnect(self) -> None:
        """Hold the session lock again; until then others may take our tasks, and publishing checks the fence."""
        if self._state is not None:
            self._state.close()
        self._state = None
        with suppress(StateError):
            state = self._connect()
            state.register_worker(self._worker, self._info)
            self._state = state
