"""What can go wrong at a labelled step of an attempt, for tests that want it to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field


class Killed(BaseException):
    """Stands for a process that ends here: nobody may catch it."""


@dataclass
class Fault:
    """Does something when a step is reached, some times; every step that was reached is remembered."""

    label: str
    act: Callable[[], object]
    times: int = 1
    after: int = 0
    seen: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, label: str) -> None:
        with self.lock:
            self.seen.append(label)
            number = self.seen.count(label) - self.after
            due = label == self.label and 0 < number <= self.times
        if due:
            self.act()


def raising(error: BaseException) -> Callable[[], object]:
    def act() -> object:
        raise error

    return act


@dataclass
class Hang:
    """Holds an attempt at a step: the test waits until it is there, and says when it may go on."""

    reached: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def __call__(self) -> None:
        self.reached.set()
        self.go_on.wait(60)
