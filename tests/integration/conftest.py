"""One embedded PostgreSQL for the whole session, and empty tables for every test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from penstock.embedded.server import EmbeddedPostgres
from penstock.state.store import State
from penstock.values.intervals import Interval, IntervalSet
from penstock.values.records import Definition, Generation
from penstock.values.tasks import ChunkResult, Commit, Cost, Frontier, Lane, Lease, Order, Pin

_NUMBERS = itertools.count(1)
_EMPTY = """
do $$
declare name text;
begin
  set local session_replication_role = replica;  -- no foreign keys: the order does not matter
  for name in select tablename from pg_tables where schemaname = current_schema() loop
    if name <> 'migration' then execute format('delete from %I', name); end if;
  end loop;
  for name in select sequencename from pg_sequences where schemaname = current_schema() loop
    perform setval(quote_ident(name)::regclass, 1, false);
  end loop;
  create or replace function clock() returns timestamptz language sql volatile as 'select clock_timestamp()';
end $$
"""


@pytest.fixture(scope="session")
def dsn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    project: Path = tmp_path_factory.mktemp("postgres")
    with EmbeddedPostgres.attach(project, os.environ) as server:
        # nothing here survives the session, so nobody has to wait for the disk
        yield f"{server.dsn} options='-c synchronous_commit=off'"


@pytest.fixture
def schema() -> str:
    """A name that nobody uses yet."""
    return f"Test {os.getpid()}.{next(_NUMBERS)}"


@pytest.fixture
def empty_schema(dsn: str) -> str:
    """Tables as after the first migration. They are made once and emptied for every test: that is ten times faster."""
    name = "Penstock tests"
    state = State.open(dsn, name, migrate=True)
    state.database.connection.execute(_EMPTY)
    state.close()
    return name


@pytest.fixture
def connect(dsn: str, empty_schema: str) -> Iterator[Callable[[], State]]:
    """Opens further connections to the test's tables, and closes them at the end."""
    opened: list[State] = []

    def open_state() -> State:
        opened.append(State.open(dsn, empty_schema, migrate=False))
        return opened[-1]

    yield open_state
    for state in opened:
        state.close()


@pytest.fixture
def state(connect: Callable[[], State]) -> State:
    return connect()


@dataclass
class Story:
    """A small project in the database, and short words for what happens to it.

    `raw.events` is a source; `core.a` reads it, `core.b` reads `core.a` with ten positions of look-back.
    """

    state: State
    connect: Callable[[], State]

    def definitions(self, **fingerprints: str) -> tuple[Definition, ...]:
        def interval(name: str, parent: str, before: int) -> Definition:
            mark = fingerprints.get(name.split(".")[1], name)
            edges = ((parent, 0, 0, before, 0, False),)
            return Definition(name, "interval", mark, "second", "ts", {}, edges, max_inflight=4, retries=3)

        source = Definition("raw.events", "source", fingerprints.get("events", "raw"), "second", "ts", {})
        return (source, interval("core.a", "raw.events", 0), interval("core.b", "core.a", 10))

    cost: ClassVar[Cost] = Cost(spark_jobs=1, seconds=0.5)

    def begin(self) -> None:
        self.state.projects.apply("r1", b"bundle", {"files": 3}, self.definitions())

    def generation(self, model: str = "core.a") -> Generation:
        return self.state.views.whole().working[model]

    def covered(self, model: str = "core.a") -> IntervalSet:
        return self.generation(model).covered

    def stale(self, model: str = "core.a") -> IntervalSet:
        return self.generation(model).stale

    def order(self, *chunks: tuple[int, int], model: str = "core.a", lane: Lane = "forward") -> Order:
        return Order(model, lane, tuple(Interval(*chunk) for chunk in chunks), ("raw.events",), "new rows")

    def enqueue(self, *orders: Order) -> int:
        generations = {name: one.no for name, one in self.state.views.whole().working.items()}
        return self.state.queue.enqueue(orders, generations)

    def lease(self, *chunks: tuple[int, int], model: str = "core.a", worker: str = "w") -> Lease:
        """Enqueue one order and claim it."""
        assert self.enqueue(self.order(*chunks, model=model)) == 1
        return self.claim(worker, model)

    def claim(self, worker: str = "w", model: str = "core.a") -> Lease:
        lease = self.state.queue.claim(worker, [model])
        assert lease is not None
        return lease

    def frontier(self, lease: Lease, snapshot: int = 1) -> Frontier:
        """What the lease's model reads, as if its only input were at `snapshot`."""
        if lease.order.model == "core.a":
            return {"raw.events": Pin("landing/events", snapshot, "table-1")}
        parent = self.state.views.whole().working.get("core.a")
        return {"core.a": Pin(parent.location, snapshot, None, str(parent.id))} if parent else {}

    def commit(
        self, lease: Lease, epoch: int, inputs: int = 1, snapshot: int | None = None, changed: bool = True
    ) -> Commit:
        chunks = tuple(ChunkResult(chunk, 7, changed, (7, 1, 2)) for chunk in lease.order.chunks)
        if snapshot is None:
            [[head]] = self.execute(
                "select coalesce(accepted_snapshot, 0) from generation where no = %s", lease.generation
            )
            assert isinstance(head, int)
            snapshot = head + changed
        return Commit(snapshot, chunks, self.frontier(lease, inputs), epoch, written=changed)

    def record(self, lease: Lease, commit: Commit, state: State | None = None) -> None:
        with (state or self.state).attempts.publishing(lease) as publication:
            publication.record(commit, self.cost, "interval", ())

    def publish(self, lease: Lease, inputs: int = 1, snapshot: int | None = None, changed: bool = True) -> None:
        """Intend and publish, without anything in between."""
        epoch = self.state.attempts.intend(lease, self.frontier(lease, inputs), None, "staging")
        self.record(lease, self.commit(lease, epoch, inputs, snapshot, changed))

    def build(
        self, *chunks: tuple[int, int], model: str = "core.a", inputs: int = 1, snapshot: int | None = None
    ) -> Lease:
        """Order, claim and publish."""
        lease = self.lease(*chunks, model=model)
        self.publish(lease, inputs, snapshot)
        return lease

    def advance(self, seconds: float) -> None:
        """Let the clock of this schema run ahead."""
        self.execute(
            "create or replace function clock() returns timestamptz language sql volatile as "
            f"$$ select clock_timestamp() + interval '{seconds} seconds' $$"
        )

    def execute(self, text: str, *values: object) -> list[tuple[object, ...]]:
        cursor = self.state.database.connection.execute(text.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def story(state: State, connect: Callable[[], State]) -> Story:
    told = Story(state, connect)
    told.begin()
    return told
