"""Processes that take turns: one of them runs at a time, and dice decide who is next and who never comes back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol, TypeVar

import psycopg
from faults import Killed

from penstock.errors import StateError
from penstock.state.database.connection import Database
from penstock.state.store import State

T = TypeVar("T")
DEADLINE_SECONDS = 60.0


class Fate(Protocol):
    """What decides about everybody; asked while one process has the turn."""

    seconds: float
    """On the clock that all processes share."""

    def meets(self, process: Process, label: str) -> None:
        """A process has come to a labelled step: it may have to wait there, fail or die."""

    def speaks(self, process: Process, name: str) -> None:
        """It is about to say something to the database."""

    def is_heard(self, process: Process) -> bool:
        """Whether the answer to a commit reaches it."""


class Process:
    """A thread that runs only while it has the turn; whatever it knows dies with it."""

    def __init__(self, name: str, fate: Fate, live: Callable[[Process], None]) -> None:
        self.name, self.fate = name, fate
        self.at = "the beginning"
        self.since = fate.seconds
        """When it came there."""
        self.wake_at = fate.seconds
        """Asleep until then, unless somebody wakes it earlier."""
        self.stopped_until = fate.seconds
        """As if by SIGSTOP: it neither works nor beats until then."""
        self.condemned = self.ended = False
        self.error: Exception | None = None
        self.spoken_on: list[SharedDatabase] = []
        self._live = live
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    # for whoever gives turns

    def take_turn(self) -> None:
        """Let it run until it waits somewhere; an error that nobody there has caught is raised here."""
        if self.ended:
            return
        self._turn.release()
        assert self._back.acquire(timeout=DEADLINE_SECONDS), f"{self.name} never came back from {self.at!r}"
        if self.error is not None:
            raise AssertionError(f"{self.name} crashed after {self.at!r}: {self.error!r}") from self.error

    @property
    def in_transaction(self) -> bool:
        return any(spoken.in_block for spoken in self.spoken_on)

    @property
    def backends(self) -> list[int]:
        return [spoken.connection.info.backend_pid for spoken in self.spoken_on if not spoken.connection.closed]

    # for itself

    def step(self, label: str) -> None:
        self.at = label
        self.fate.meets(self, label)

    def wait(self) -> None:
        """Somebody else's turn."""
        self.since = self.fate.seconds
        self._back.release()
        self._turn.acquire()
        if self.condemned:
            raise Killed

    def sleep(self, seconds: float) -> None:
        self.wake_at = self.fate.seconds + seconds
        self.wait()
        self.wake_at = self.fate.seconds

    def connect(self, dsn: str, schema: str) -> State:
        database = SharedDatabase.connect(dsn, schema)
        assert isinstance(database, SharedDatabase)
        database.process = self
        self.spoken_on.append(database)
        return State(database)

    def _run(self) -> None:
        try:
            self._turn.acquire()
            if not self.condemned:
                self._live(self)
        except Killed:
            pass
        except Exception as error:
            self.error = error
        finally:
            for database in self.spoken_on:
                database.close()
            self.ended = True
            self._back.release()


class SharedDatabase(Database):
    """A connection of a process: before everything it says, and after every commit, fate has a word."""

    process: Process | None = None

    @property
    def in_block(self) -> bool:
        return self._open_blocks > 0 and not self.connection.closed

    def rows(self, name: str, make: Callable[..., T], /, **values: object) -> list[T]:
        self._say(name)
        return super().rows(name, make, **values)

    def values(self, name: str, kind: type[T], /, **values: object) -> list[T]:
        self._say(name)
        return super().values(name, kind, **values)

    def run(self, name: str, /, **values: object) -> int:
        self._say(name)
        return super().run(name, **values)

    def run_many(self, name: str, values: Sequence[dict[str, object]]) -> int:
        self._say(name)
        return super().run_many(name, values)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with super().transaction():
            yield
        if self.process is not None and not self.process.fate.is_heard(self.process):
            with suppress(psycopg.Error):
                self.connection.close()
            raise StateError("the answer was lost on its way")

    def _say(self, name: str) -> None:
        if self.process is not None:
            self.process.fate.speaks(self.process, name)
