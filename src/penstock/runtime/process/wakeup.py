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


class Bell:
    """Rung by notifications, ended work and signals; whoever waits looks for itself at what there is to do."""

    def __init__(self) -> None:
        self._rung = threading.Event()

    def ring(self) -> None:
        self._rung.set()

    def wait(self, seconds: float) -> None:
        """At most so long; what rang since the last wait counts."""
        self._rung.wait(seconds)
        self._rung.clear()


class Stop:
    """Asks the parts of a process to end; the first reason counts."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._bells: list[Bell] = []
        self.error: BaseException | None = None

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    def bell(self) -> Bell:
        """A bell that this rings."""
        bell = Bell()
        self._bells.append(bell)
        if self.asked:
            bell.ring()
        return bell

    def ask(self, error: BaseException | None = None) -> None:
        """`error`: why the process cannot go on."""
        if self.error is None:
            self.error = error
        self._asked.set()
        for bell in self._bells:
            bell.ring()

    def wait(self, seconds: float) -> bool:
        return self._asked.wait(seconds)


@contextmanager
def listening(connect: Callable[[], State], bell: Bell, heard: Callable[[str], None] | None = None) -> Iterator[None]:
    """Ring the bell whenever somebody changed something; `heard` is told what kind of news it was."""
    ended = threading.Event()

    def listen() -> None:
        state: State | None = None
        while not ended.is_set():
            try:
                state = state or connect()
                for news in state.listener.wait(_LISTEN_SECONDS):
                    if news and heard is not None:
                        heard(news)
                    bell.ring()
            except StateError:  # whoever waits looks now and then without being told
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
