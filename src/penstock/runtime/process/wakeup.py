"""What wakes a process that stays, and what ends it?"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.errors import StateError
from penstock.state.store import State

_LISTEN_SECONDS = 1.0
"""How long a listener may take to see that it is to end."""
_PARTING_SECONDS = 5.0
"""A listener that a silent database keeps any longer ends with the process."""


class Wakeup:
    """Set by notifications, ended work and signals; the one that waits looks for itself what there is to do."""

    def __init__(self) -> None:
        self._woken = threading.Event()

    def wake(self) -> None:
        self._woken.set()

    def wait(self, seconds: float) -> None:
        """At most so long; a call of `wake` since the last wait counts."""
        self._woken.wait(seconds)
        self._woken.clear()


class Stop:
    """Asks the parts of a process to end; the first reason counts."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._wakeups: list[Wakeup] = []
        self.error: BaseException | None = None

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    def wakeup(self) -> Wakeup:
        """One that is woken when the process is to stop."""
        wakeup = Wakeup()
        self._wakeups.append(wakeup)
        if self.asked:
            wakeup.wake()
        return wakeup

    def ask(self, error: BaseException | None = None) -> None:
        """`error`: why the process cannot go on."""
        if self.error is None:
            self.error = error
        self._asked.set()
        for wakeup in self._wakeups:
            wakeup.wake()

    def wait(self, seconds: float) -> bool:
        return self._asked.wait(seconds)


@contextmanager
def listening(
    connect: Callable[[], State], wakeup: Wakeup, heard: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Wake up whenever the database notifies; `heard` is called with the kind of notification."""
    ended = threading.Event()

    def listen() -> None:
        state: State | None = None
        while not ended.is_set():
            try:
                state = state or connect()
                for kind in state.listener.wait(_LISTEN_SECONDS):
                    if kind and heard is not None:
                        heard(kind)
                    wakeup.wake()
            except StateError:  # the main loop also looks without notifications, now and then
                ended.wait(_LISTEN_SECONDS)
        if state is not None:
            state.close()

    thread = threading.Thread(target=listen, name="penstock-listener", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_PARTING_SECONDS)
