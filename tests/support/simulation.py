"""Days of a deployment in seconds: real state database, real schedulers and attempts, tables in memory, dice for fate.

Three schedulers and four workers take turns (`turns`): at any labelled step, and before any statement, another may go
on instead, and the one that stands there may be stopped, cut off or killed. The clock is a row that the dice move.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from functools import partial
from random import Random
from types import SimpleNamespace

import pytest
from faults import Killed
from memory_engine import MemoryEngine
from memory_observer import MemoryObserver
from simulated_project import environ, revisions
from turns import Process

from penstock.errors import ConflictError, EngineError, StateError
from penstock.planner.policy.selection import Pattern, Selection
from penstock.project import Project
from penstock.runtime.place import revisions as stored
from penstock.runtime.place.definitions import bundle, definitions
from penstock.runtime.place.revisions import Revisions
from penstock.runtime.place.table_resolver import TableResolver
from penstock.runtime.plan.scheduler import Scheduler
from penstock.runtime.process import retrying
from penstock.runtime.process.metrics import Metrics
from penstock.runtime.process.progress import Finished
from penstock.runtime.work import heartbeat, worker_pool
from penstock.runtime.work import worker as workers
from penstock.runtime.work.attempt import AttemptContext
from penstock.runtime.work.heartbeat import HEARTBEAT_SECONDS, Heartbeat
from penstock.runtime.work.worker import IDLE_SECONDS, Worker
from penstock.runtime.work.worker_pool import WorkerPool
from penstock.state.database import connection
from penstock.state.database.connection import Database, speaking
from penstock.state.queue import failure
from penstock.state.store import State
from penstock.values.models import IntervalModel
from penstock.values.tasks import Lease

SCHEMA = "simulation"
IDLE_IN_TRANSACTION_SECONDS = 60.0
"""What the server does to whoever stands still inside a transaction, on the simulated clock."""
_CLOCK = b"""
set local lock_timeout = '30s';  -- the server may be tidying up after the story before
create table if not exists simulated_clock (at timestamptz not null);
create or replace function clock() returns timestamptz language sql volatile as 'select at from simulated_clock';
create table if not exists simulated_event (
  no bigint generated always as identity, id text, kind text, model text, generation text, table_id text,
  snapshot bigint, ranges int8multirange
);
create or replace function remember_event() returns trigger language plpgsql as $$
begin
  insert into simulated_event (id, kind, model, generation, table_id, snapshot, ranges)
  values (new.id, new.kind, new.model, new.generation, new.table_id, new.snapshot, new.ranges);
  return new;
end $$;
create or replace trigger remembered after insert on event for each row execute function remember_event();
create table if not exists simulated_source (model text, snapshot bigint, expired_pos bigint);
create or replace function remember_source() returns trigger language plpgsql as $$
begin
  insert into simulated_source values (new.model, new.snapshot, new.expired_pos);
  return new;
end $$;
create or replace trigger remembered after insert or update on source for each row execute function remember_source();
do $$
begin  -- with all numbers from the beginning, so that a seed tells the same story every time
  execute (select 'truncate ' || string_agg(quote_ident(tablename), ', ') || ' restart identity' from pg_tables
    where schemaname = current_schema() and tablename <> 'migration');
  perform setval('claim_no', 1, false);
end $$;
insert into simulated_clock values ('2026-01-01 00:00:00+00');
"""
TABLE_LABELS = ("written", "staged", "locked")
"""An attempt has read the table and not written it yet."""
SELECTIONS = (("t.*",), ("t.[a-e]*", "t.slow"), ("t.[j-z]*",), ("t.*",))
"""What each worker may claim."""


@dataclass(frozen=True, slots=True)
class Odds:
    """How often what happens, at one step or before one statement."""

    waits: float = 0.2
    waits_speaking: float = 0.006
    dies: float = 0.006
    dies_speaking: float = 0.0006
    stops: float = 0.004
    fails: float = 0.01
    unheard: float = 0.006
    interferes: float = 0.05
    wakes: float = 0.04
    """Somebody who sleeps is woken early."""
    oversleeps: float = 0.4
    """Somebody who sleeps is not woken in time."""


CALM = Odds(*[0.0] * len(fields(Odds)))


class Pulse(Heartbeat):
    """The real one without its thread: it beats when the clock is moved."""

    beaten_at = 0.0

    def begin(self, seconds: float) -> None:
        self.beaten_at = seconds
        self._state = self._connect()
        try:
            self._state.workers.register(self._worker, self._info)
        except BaseException:
            self.hang_up()
            raise

    def beat_at(self, seconds: float) -> None:
        self.beaten_at = seconds
        with suppress(StateError, ConflictError):
            self._extend()
        self._give_up_overdue()

    @property
    def backend(self) -> int | None:
        state = self._state
        return None if state is None or state.database.connection.closed else _backend(state)

    def hang_up(self) -> None:
        if self._state is not None:
            with suppress(Exception):  # the server may have hung up first
                self._state.database.connection.execute("select pg_advisory_unlock_all()")
            self._state.close()
        self._ear.close()
        self._waker.close()


class _AtOnce:
    """Stands for a pool of threads: whoever submits does it, and has no other turn to take meanwhile."""

    def submit(self, act: Callable[..., Finished], *values: object) -> Future[Finished]:
        future: Future[Finished] = Future()
        try:
            future.set_result(act(*values))
        except Exception as error:
            future.set_exception(error)
        return future


class _Telling(Worker):
    """The real one; what comes of its attempts is told."""

    tell: Callable[[str], None]
    judge: Callable[[Lease], None]

    def _report(self, lease: Lease, result: Finished) -> None:
        what = f"task {lease.task}.{lease.attempt} {lease.order.model} {lease.order.lane} {lease.order.scope}"
        self.tell(f"{lease.worker}: {what} {result.outcome} {result.error or ''}".rstrip())
        if result.outcome == "succeeded" and lease.order.lane == "repair":
            self.judge(lease)
        super()._report(lease, result)


@dataclass
class Simulation:
    """Everybody, the clock, and the dice."""

    dsn: str
    seed: int
    schema: str = SCHEMA
    odds: Odds = field(default_factory=Odds)
    seconds: float = 0.0
    engine: MemoryEngine = field(default_factory=MemoryEngine)
    log: list[str] = field(default_factory=list)
    processes: dict[str, Process] = field(default_factory=dict)
    """By place: the one that stands there now."""
    pulses: dict[str, Pulse] = field(default_factory=dict)
    """By the name of the worker."""
    turns: int = 0
    wrong: list[str] = field(default_factory=list)
    """What was done that may never be."""
    interfere: Callable[[], None] = lambda: None
    """What another program does to tables, while somebody works on them."""
    project: Project = field(init=False)

    def __post_init__(self) -> None:
        self.dice = Random(self.seed)
        self.metrics = Metrics()
        self.observer = MemoryObserver(self.engine)
        self.state = State.open(self.dsn, self.schema, migrate=True)
        with self.state.database.transaction():
            self.state.database.connection.execute(_CLOCK)
        self.apply(revisions()[0])
        self._started = 0

    # what people do

    def apply(self, project: Project) -> None:
        self.state.projects.apply(project.revision, bundle(project), {}, definitions(project))
        self.project = project

    @property
    def resolver(self) -> TableResolver:
        return TableResolver(self.project)

    def tell(self, text: str) -> None:
        self.log.append(f"{self.seconds / 86400:8.4f}  {text}")

    def story(self, last: int = 1000) -> str:
        """Beside others a story may not come out the same again: what went wrong early must be told at once."""
        return "\n".join([f"PENSTOCK_SEED={self.seed}", *self.log[-last:]])

    # how time passes

    def advance(self, seconds: float) -> None:
        self.seconds += seconds
        self._execute("update simulated_clock set at = at + make_interval(secs => %s)", seconds)
        for process in self.alive:
            if process.in_transaction and self.seconds - process.since > IDLE_IN_TRANSACTION_SECONDS:
                self.tell(f"{process.name} stood in a transaction at {process.at!r} for too long")
                self.cut_off(process.backends)
        for process in self.alive:
            pulse = self.pulses.get(process.name)
            if pulse and process.stopped_until <= self.seconds and self.seconds - pulse.beaten_at >= HEARTBEAT_SECONDS:
                pulse.beat_at(self.seconds)

    def cut_off(self, backends: Collection[int]) -> None:
        """The server ends these sessions; nobody goes on before they are gone."""
        self._execute("select pg_terminate_backend(pid) from unnest(%s::int[]) as pid", list(backends))
        while self._execute("select pid from pg_stat_activity where pid = any (%s)", list(backends)):
            continue

    # who is there

    @property
    def alive(self) -> list[Process]:
        return [process for process in self.processes.values() if not process.ended]

    def staff(self) -> None:
        """Somebody on every place."""
        for number in range(3):
            self._place(f"scheduler {number}", self._schedule)
        for number, patterns in enumerate(SELECTIONS):
            selection = Selection(tuple(Pattern(pattern) for pattern in patterns), frozenset(), 1)
            self._place(f"worker {number}", partial(self._work, selection))

    def _place(self, place: str, live: Callable[[Process], None]) -> None:
        known = self.processes.get(place)
        if known is None or known.ended:
            self._started += 1
            self.processes[place] = Process(f"{place}-{self._started}", self, live)

    def turn(self) -> bool:
        """Somebody who can goes on; False: all sleep or stand still."""
        going = [process for process in self.alive if process.stopped_until <= self.seconds]
        ready = [process for process in going if process.wake_at <= self.seconds]
        if going and (not ready or self.dice.random() < self.odds.wakes):
            if not ready and self.dice.random() >= self.odds.wakes:
                return False
            ready = going
        if not ready:
            return False
        self.give_turn(self.dice.choice(ready))
        return True

    def give_turn(self, process: Process) -> None:
        self.turns += 1
        process.take_turn()
        if process.ended:
            self.tell(f"{process.name} died at {process.at!r}")
            self._bury(process)

    def kill(self, process: Process) -> None:
        process.condemned = True
        self.give_turn(process)

    def _bury(self, process: Process) -> None:
        pulse = self.pulses.pop(process.name, None)
        if pulse is not None:
            pulse.hang_up()

    def close(self) -> None:
        for process in self.alive:
            process.condemned = True
            with suppress(AssertionError):
                process.take_turn()
        for pulse in self.pulses.values():
            pulse.hang_up()
        self.state.close()

    # what fate does (`turns.Fate`)

    def meets(self, process: Process, label: str) -> None:
        odds, thrown = self.odds, self.dice.random()
        if label in TABLE_LABELS and self.dice.random() < odds.interferes:
            self.interfere()
        if thrown < odds.dies:
            raise Killed
        if (thrown := thrown - odds.dies) < odds.stops:
            self.stop(process)
            process.wait()
        elif (thrown := thrown - odds.stops) < odds.fails and process.name in self.pulses:
            self.tell(f"{process.name} fails at {label!r}")
            raise EngineError("a hiccup")
        elif thrown - odds.fails < odds.waits:
            process.wait()

    def speaks(self, process: Process, name: str) -> None:
        thrown = self.dice.random()
        if thrown < self.odds.dies_speaking:
            process.at = f"{process.at}, saying {name}"
            raise Killed
        if thrown - self.odds.dies_speaking < self.odds.waits_speaking:
            process.at = f"{process.at}, saying {name}"
            process.wait()

    def is_heard(self, process: Process) -> bool:
        heard = self.dice.random() >= self.odds.unheard
        if not heard:
            self.tell(f"{process.name} does not hear the answer to a commit after {process.at!r}")
        return heard

    def stop(self, process: Process) -> None:
        """As SIGSTOP does, often for longer than a lease."""
        seconds = self.dice.choice((20, 90, 150, 400, 4000))
        process.stopped_until = self.seconds + seconds
        self.tell(f"{process.name} stands still at {process.at!r} for {seconds} s")

    # what they do

    def _schedule(self, process: Process) -> None:
        state = process.connect(self.dsn, self.schema)
        scheduler = Scheduler(state, self._revisions(), self.observer, self.metrics, process.step)
        while True:
            process.at = "a round"
            try:
                pause = scheduler.round()
            except (StateError, ConflictError):
                pause = 1.0
            self._nap(process, pause)

    def _work(self, selection: Selection, process: Process) -> None:
        state, known = process.connect(self.dsn, self.schema), self._revisions()
        pulse = Pulse(self._connect, process.name, {"role": "worker"}, self._lost)
        pulse.begin(self.seconds)
        self.pulses[process.name] = pulse
        context = AttemptContext(known.resolver, state, self.engine, process.step, pulse)
        pool = WorkerPool(context, lambda: process.connect(self.dsn, self.schema), pulse, 1)
        pool._pool = _AtOnce()  # type: ignore[assignment]
        place = SimpleNamespace(worker=process.name)
        worker = _Telling(place, state, selection, known, pool, pulse, self.metrics, lambda **_: None)  # type: ignore[arg-type]
        worker.tell, worker.judge = self.tell, self._judge
        while True:
            process.at = "a claim"
            began = 0
            with suppress(StateError, ConflictError):
                began = worker.turn()
            if not began:
                self._nap(process, IDLE_SECONDS)

    def _judge(self, lease: Lease) -> None:
        """Nothing is made of rows that have expired: what was made of them before is all there will ever be."""
        model = self.resolver.graph.models.get(lease.order.model)
        attempts = [
            attempt for attempt in self.state.history.attempts([lease.task])[lease.task] if attempt.n == lease.attempt
        ]
        if not isinstance(model, IntervalModel) or not attempts or attempts[0].strategy == "adopted":
            return
        for group in model.dependencies:
            pin = attempts[0].inputs.get(group[0].model)
            if len(group) == 1 and pin is not None and pin.generation is None:
                [[expired]] = self._execute(
                    "select min(coalesce(expired_pos, -1)) from simulated_source where model = %s and snapshot = %s",
                    group[0].model,
                    pin.snapshot,
                )
                gone = [c for c in lease.order.chunks if isinstance(expired, int) and c.end <= expired]
                self.wrong += [
                    f"{model.name} {c} was computed again, but its rows expired before {expired}" for c in gone
                ]

    def _nap(self, process: Process, seconds: float) -> None:
        late = self.dice.random() < self.odds.oversleeps
        process.sleep(seconds + self.dice.choice((60, 3600, 20000)) if late else seconds)

    def _lost(self, lease: Lease) -> None:
        self.engine.cancel(lease.uuid, lease.attempt)

    def _revisions(self) -> Revisions:
        return Revisions(revisions()[0], environ())

    def _connect(self) -> State:
        return State(Database.connect(self.dsn, self.schema))

    def _execute(self, text: str, *values: object) -> list[tuple[object, ...]]:
        with speaking():
            cursor = self.state.database.connection.execute(text.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def sleep(self, seconds: float) -> None:
        """For whoever has the turn: the calling thread."""
        name = threading.current_thread().name
        next(process for process in self.processes.values() if process.name == name).sleep(seconds)


@contextmanager
def simulating(dsn: str, seed: int, schema: str = SCHEMA) -> Iterator[Simulation]:
    """A deployment whose processes have no other clock than the simulated one."""
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # it would tell of every connection that is cut off
    with pytest.MonkeyPatch.context() as patch:
        # whoever waits for a lock waits for somebody who has not the turn
        patch.setitem(connection.SETTINGS, "lock_timeout", "5ms")
        simulation = Simulation(dsn, seed, schema)
        patch.setattr(failure, "_RANDOM", simulation.dice)
        # what is unpacked is known: reading it again for every process would take longer than all they do
        patch.setattr(
            stored, "unpack", lambda files, *_: next(revision for revision in revisions() if revision.files == files)
        )
        for module in (heartbeat, worker_pool, workers):
            patch.setattr(module, "time", SimpleNamespace(monotonic=lambda: simulation.seconds))
        patch.setattr(retrying, "time", SimpleNamespace(sleep=simulation.sleep))
        try:
            yield simulation
        finally:
            simulation.close()


def _backend(state: State) -> int:
    return state.database.connection.info.backend_pid
