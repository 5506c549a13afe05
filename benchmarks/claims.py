"""How many tasks go through the queue per second, against a bare SKIP LOCKED queue, and does any go through twice?"""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.synchronize import Barrier
from uuid import uuid4

import psycopg

from penstock.state.store import State
from penstock.values.records import Definition
from penstock.values.tasks import ChunkResult, Commit, Cost, Lease, Pin
from places import postgres
from results import arguments, percentile, report

TASKS = 10_000
SLICES = 5
PATIENCE_SECONDS = 300.0
"""Longer than anything here may take: a worker that broke says nothing."""
SPAWN = multiprocessing.get_context("spawn")
PIN = {"raw.events": Pin("landing/events", 1, "table-1")}
QUEUED = """
insert into task (model, generation, lane, ranges, chunks, choices, reason, max_attempts, run_after)
select g.model, g.no, 'backfill', int8multirange(r), array[r], '{raw.events}', 'bench', 4, clock() - interval '1 hour'
from generation g, generate_series(1, %(each)s) i, int8range(3600 * i, 3600 * (i + 1)) r;
insert into turn (model, lane) select distinct model, 'backfill' from task;
create table bare (
  id bigint generated always as identity primary key, state text not null default 'queued', worker text, token uuid
);
insert into bare (state) select 'queued' from generate_series(1, %(tasks)s);
create index bare_queued on bare (id) where state = 'queued';
analyze;
"""
BARE_CLAIM = """
with next as materialized (
  select id from bare where state = 'queued' order by id limit 1 for update skip locked
)
update bare b set state = 'running', worker = %s, token = gen_random_uuid() from next where b.id = next.id
returning b.id, b.token
"""
BARE_COMPLETE = "update bare set state = 'done' where id = %s and token = %s and state = 'running'"


Turn = Callable[[], tuple[object, float] | None]
"""Claim and complete one task: which, and when it was claimed; None when there is none."""


@dataclass
class Run:
    """What one worker did in one way: how long it was at it, and how long each claim and each completion took."""

    seconds: float = 0.0
    claims: list[float] = field(default_factory=list)
    completions: list[float] = field(default_factory=list)
    done: list[object] = field(default_factory=list)

    def add(self, turn: Turn, seconds: float) -> None:
        """One slice."""
        began = at = time.monotonic()
        while at - began < seconds and (turned := turn()):
            ended = time.monotonic()
            self.done.append(turned[0])
            self.claims.append(turned[1] - at)
            self.completions.append(ended - turned[1])
            at = ended
        self.seconds += at - began


def our_turn(state: State, worker: str, models: list[str]) -> Turn:
    def turn() -> tuple[object, float] | None:
        lease = state.queue.claim(worker, models)
        if lease is None:
            return None
        claimed = time.monotonic()
        complete(state, lease)
        return lease.uuid, claimed

    return turn


def complete(state: State, lease: Lease) -> None:
    """All that the database hears of an attempt that goes well."""
    epoch = state.attempts.intend(lease, PIN, None, "staging")
    with state.attempts.publishing(lease) as publication:
        chunks = tuple(ChunkResult(chunk, 7, True, (7, 1, 2)) for chunk in lease.order.chunks)
        snapshot = (publication.generation.accepted_snapshot or 0) + 1
        publication.record(Commit(snapshot, chunks, PIN, epoch, written=True), Cost(spark_jobs=1), "interval")


def bare_turn(state: State, worker: str, _: list[str]) -> Turn:
    connection = state.database.connection

    def turn() -> tuple[object, float] | None:
        claimed = connection.execute(BARE_CLAIM, (worker,)).fetchone()
        if claimed is None:
            return None
        at = time.monotonic()
        connection.execute(BARE_COMPLETE, claimed)
        return claimed[0], at

    return turn


WAYS = {"bare": bare_turn, "penstock": our_turn}


@dataclass(frozen=True)
class Filled:
    """A schema with so many models, and so many tasks in both queues."""

    dsn: str
    schema: str
    models: list[str]
    tasks: int

    @classmethod
    def new(cls, dsn: str, models: int, tasks: int) -> Filled:
        filled = cls(dsn, f"bench_{uuid4().hex[:8]}", [f"core.m{i:03}" for i in range(models)], tasks)
        state = State.open(dsn, filled.schema, migrate=True)
        source = Definition("raw.events", "source", "raw", "second", "ts", {})
        edges = (("raw.events", 0, 0, 0, 0, False),)
        state.projects.apply(
            "r1",
            b"",
            {},
            (source, *(Definition(name, "interval", name, "second", "ts", {}, edges) for name in filled.models)),
        )
        # the client fills in the values: the server takes several statements at once only without any
        psycopg.ClientCursor(state.database.connection).execute(QUEUED, {"each": tasks // models, "tasks": tasks})
        state.close()
        return filled

    def open(self) -> State:
        return State.open(self.dsn, self.schema, migrate=False)


def work(
    filled: Filled,
    ways: Sequence[str],
    seconds: float,
    start: Barrier,
    answers: multiprocessing.Queue[dict[str, Run]],
) -> None:
    """One worker: a process with a connection of its own, until its time is over or no task is left."""
    state, worker = filled.open(), f"bench-{uuid4().hex[:8]}"
    turns = {way: WAYS[way](state, worker, filled.models) for way in ways}
    runs = {way: Run() for way in ways}
    for _ in range(SLICES):
        # the ways take turns in short slices, so that whatever else the machine does slows both
        for way, turn in turns.items():
            start.wait(PATIENCE_SECONDS)
            runs[way].add(turn, seconds / SLICES)
    answers.put(runs)
    state.close()


def measured_runs(filled: Filled, ways: Sequence[str], workers: int, seconds: float) -> dict[str, list[Run]]:
    """By way, what each worker did in its slices of it."""
    start, answers = SPAWN.Barrier(workers), SPAWN.Queue()
    hands = [SPAWN.Process(target=work, args=(filled, ways, seconds, start, answers)) for _ in range(workers)]
    for hand in hands:
        hand.start()
    measured: list[dict[str, Run]] = [answers.get(timeout=PATIENCE_SECONDS) for _ in hands]
    for hand in hands:
        hand.join()
    return {way: [runs[way] for runs in measured] for way in ways}


COLUMNS = (
    "models",
    "queued",
    "workers",
    "queue",
    "tasks",
    "tasks/s",
    "claim p50 ms",
    "claim p99 ms",
    "complete p50 ms",
    "complete p99 ms",
    "of bare",
)


def measured(dsn: str, models: int, tasks: int, workers: int, seconds: float) -> list[list[object]]:
    """Both queues with the same workers and as many tasks."""
    measured = measured_runs(Filled.new(dsn, models, tasks), tuple(WAYS), workers, seconds)
    # every worker is at it for as long: the sum of their rates is the rate of all
    rates = {way: sum(len(run.done) / run.seconds for run in runs) for way, runs in measured.items()}
    rows: list[list[object]] = []
    for way, runs in measured.items():
        claims = [taken * 1000 for run in runs for taken in run.claims]
        completions = [taken * 1000 for run in runs for taken in run.completions]
        figures = [percentile(taken, share) for taken in (claims, completions) for share in (0.5, 0.99)]
        row = [models, tasks, workers, way, len(claims), round(rates[way]), *(f"{figure:.2f}" for figure in figures)]
        rows.append([*row, f"{rates[way] / rates['bare']:.2f}"])
    return rows


def doubled(dsn: str, models: int, tasks: int, workers: int) -> list[object]:
    """Let many workers empty the queue; how often was a task done twice, for the workers and for the database?"""
    filled = Filled.new(dsn, models, tasks)
    began = time.monotonic()
    runs = measured_runs(filled, ("penstock",), workers, PATIENCE_SECONDS)["penstock"]
    seconds = time.monotonic() - began
    done = Counter(task for run in runs for task in run.done)
    state = filled.open()
    asked = (
        "select count(*), count(distinct task), (select count(*) from coverage), count(distinct worker) from attempt"
    )
    row = state.database.connection.execute(asked).fetchone()
    state.close()
    assert row is not None
    attempts, attempted, covers, busy = row
    twice = done.total() - len(done)
    figures = (workers, busy, models, tasks, len(done), twice, attempts - attempted, covers - tasks)
    return [*figures, round(len(done) / seconds)]


DOUBLED = (
    "workers",
    "got work",
    "models",
    "queued",
    "done",
    "done twice",
    "attempts too many",
    "covers too many",
    "tasks/s, with start",
)


def main() -> None:
    options = arguments(__doc__ or "", quick="fewer tasks, two workers, half a second each")
    seconds, tasks = (0.5, 400) if options.quick else (5.0, TASKS)
    shapes = [(20, tasks)] if options.quick else [(20, tasks), (200, tasks)]
    crowd = (3, 40, 120) if options.quick else (20, 200, 4000)
    with postgres() as (_, dsn):
        rows = [
            row
            for models, queued in shapes
            for workers in ((2,) if options.quick else (1, 2, 4))
            for row in measured(dsn, models, queued, workers, seconds)
        ]
        report(f"claim + complete, {seconds:g} s each, embedded PostgreSQL", COLUMNS, rows, options.json)
        workers, models, queued = crowd
        row = doubled(dsn, models, queued, workers)
    beside = options.json and options.json.with_stem(f"{options.json.stem}_doubled")
    report("many workers empty one queue", DOUBLED, [row], beside)


if __name__ == "__main__":
    main()
