"""Two connections, one of them stopped before any one of its statements: what the other does meanwhile is observed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import psycopg

from penstock.errors import PenstockError
from penstock.state.database.connection import Database
from penstock.state.store import State

T = TypeVar("T")
Act = Callable[[State], object]
DEADLINE_SECONDS = 60.0


@dataclass
class Gate:
    """Lets statements pass until the one that somebody wants to see from outside."""

    stop_at: int | None = None
    said: list[str] = field(default_factory=list)
    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)

    def reset(self, stop_at: int | None) -> None:
        self.stop_at, self.said = stop_at, []
        self.reached.clear()
        self.opened.clear()

    def pass_(self, name: str) -> None:
        self.said.append(name)
        if len(self.said) - 1 == self.stop_at:
            self.reached.set()
            assert self.opened.wait(DEADLINE_SECONDS), "nobody opened the gate"


class GatedDatabase(Database):
    """A connection that passes its gate before every statement, and once more before it commits."""

    gate: Gate

    def rows(self, name: str, make: Callable[..., T], /, **values: object) -> list[T]:
        self.gate.pass_(name)
        return super().rows(name, make, **values)

    def values(self, name: str, kind: type[T], /, **values: object) -> list[T]:
        self.gate.pass_(name)
        return super().values(name, kind, **values)

    def run(self, name: str, /, **values: object) -> int:
        self.gate.pass_(name)
        return super().run(name, **values)

    def run_many(self, name: str, values: Sequence[dict[str, object]]) -> int:
        self.gate.pass_(name)
        return super().run_many(name, values)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with super().transaction():
            yield
            self.gate.pass_("commit")


def gated(dsn: str, schema: str) -> State:
    database = GatedDatabase.connect(dsn, schema)
    assert isinstance(database, GatedDatabase)
    database.gate = Gate()
    return State(database)


def gate_of(state: State) -> Gate:
    assert isinstance(state.database, GatedDatabase)
    return state.database.gate


def answer(act: Act, state: State) -> object:
    """What it gives, or the kind of error that it ends with."""
    try:
        return act(state)
    except PenstockError as error:
        return type(error).__name__


@dataclass(frozen=True, slots=True)
class Preempted:
    """What came of two acts when the second one ran while the first stood still."""

    stopped_before: str
    waited: bool
    """The second one had to wait for the first."""
    first: object
    second: object


def preempt(
    looking: psycopg.Connection, first: tuple[State, Act], second: tuple[State, Act], stop_at: int
) -> Preempted:
    """Stop `first` before its statement number `stop_at`, let `second` run as far as it comes, then let both end."""
    (stopped, act), (other, act_meanwhile) = first, second
    gate = gate_of(stopped)
    gate.reset(stop_at)
    gate_of(other).reset(None)
    with ThreadPoolExecutor(2) as pool:
        ours = pool.submit(answer, act, stopped)
        try:
            assert gate.reached.wait(DEADLINE_SECONDS), f"it ended before: {gate.said}"
            theirs = pool.submit(answer, act_meanwhile, other)
            waited = blocked(looking, other, theirs)
        finally:
            gate.opened.set()
        preempted = Preempted(
            gate.said[stop_at], waited, ours.result(DEADLINE_SECONDS), theirs.result(DEADLINE_SECONDS)
        )
    gate.reset(None)
    return preempted


def blocked(looking: psycopg.Connection, state: State, running: Future[object]) -> bool:
    """Wait until that connection waits for a lock (True), or has ended what it does (False)."""
    pid = state.database.connection.info.backend_pid
    while not running.done():
        if looking.execute("select cardinality(pg_blocking_pids(%s)) > 0", (pid,)).fetchall() == [(True,)]:
            return True
    return False


def statements_of(state: State, act: Act) -> tuple[list[str], object]:
    """Everything that an act says to the database, in order, and its answer."""
    gate = gate_of(state)
    gate.reset(None)
    outcome = answer(act, state)
    return list(gate.said), outcome
