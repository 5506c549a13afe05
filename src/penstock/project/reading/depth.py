"""How deep may a parser call itself while it reads a query or a template?"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from penstock.project.reading.limits import MAX_NESTING, TOO_DEEP, unreadable

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # what it cannot read is ours to tell
FRAMES = 1_000 + 64 * MAX_NESTING
"""sqlglot calls itself 20 to 32 times for a bracket, and a bracket may have a few NOT before it."""


class _Room:
    """Python has one limit for all threads: it is raised while anybody reads a query."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._readers = 0
        self._before = 0

    def enter(self) -> None:
        with self._lock:
            if self._readers == 0:
                self._before = sys.getrecursionlimit()
                sys.setrecursionlimit(max(self._before, FRAMES))
            self._readers += 1

    def leave(self) -> None:
        with self._lock:
            self._readers -= 1
            if self._readers == 0:
                sys.setrecursionlimit(self._before)


_ROOM = _Room()


@contextmanager
def deep() -> Iterator[None]:
    """Room for `MAX_NESTING` brackets inside each other; beyond it Python still says RecursionError."""
    _ROOM.enter()
    try:
        yield
    finally:
        _ROOM.leave()


@contextmanager
def reading(sql: str, refused: Callable[[str, int], Exception]) -> Iterator[None]:
    """Room to read `sql`. What would take a parser too long is `refused`, with the reason and the line."""
    why = unreadable(sql)
    if why is not None:
        raise refused(*why)
    try:
        with deep():
            yield
    except RecursionError as error:  # not by brackets alone
        raise refused(TOO_DEEP, _place(error)) from None


def _place(error: BaseException) -> int:
    """The line that the parser had reached; it has a token in its hand."""
    line, trace = 1, error.__traceback__
    while trace is not None:
        token = getattr(trace.tb_frame.f_locals.get("self"), "_curr", None)
        line = getattr(token, "line", line)
        trace = trace.tb_next
    return line
