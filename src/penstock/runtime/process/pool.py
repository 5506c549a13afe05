"""A few threads for many calls, some of which may never return."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Pool(Generic[Key]):
    """Daemon threads, started when needed. What hangs costs a thread, not a place: others are started in its stead."""

    def __init__(self, size: int, hanging_seconds: float) -> None:
        self._size, self._hanging_seconds = size, hanging_seconds
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Key, Callable[[], None]]] = deque()
        self._begun: dict[Key, float | None] = {}
        """By key: since when a thread is at it; None while it waits for one."""
        self._lost: set[Key] = set()
        """Those that hang."""
        self._threads = 0

    def begin(self, key: Key, act: Callable[[], None]) -> None:
        """Do it as soon as a thread is free, unless the same is under way."""
        with self._changed:
            if key not in self._begun:
                self._begun[key] = None
                self._waiting.append((key, act))
                self._staff()
                self._changed.notify()

    def busy(self, key: Key) -> bool:
        return key in self._begun

    def hanging(self) -> list[Key]:
        """What has taken too long; each is returned once."""
        until = time.monotonic() - self._hanging_seconds
        with self._changed:
            late = [key for key, since in self._begun.items() if since is not None and since < until]
            new = [key for key in late if key not in self._lost]
            self._lost.update(new)
            self._staff()
        return new

    def _staff(self) -> None:
        wanted = min(self._size, len(self._begun) - len(self._lost)) + len(self._lost)
        while self._threads < wanted:
            self._threads += 1
            threading.Thread(target=self._serve, name="penstock-look", daemon=True).start()

    def _serve(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                key, act = self._waiting.popleft()
                self._begun[key] = time.monotonic()
            leaves = True
            try:
                act()
                leaves = False
            finally:
                with self._changed:
                    del self._begun[key]
                    leaves = leaves or key in self._lost  # somebody else is in its place
                    self._lost.discard(key)
                    self._threads -= leaves
                    self._staff()
            if leaves:
                return
