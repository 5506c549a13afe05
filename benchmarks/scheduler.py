"""What does a round of the scheduler cost with 500 models and a million intervals, and where does its time go?"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

import pyarrow as pa
from deltalake import write_deltalake

from penstock.planner.policy.triggers import Triggers
from penstock.runtime.observe.sources import Observer
from penstock.runtime.place.revisions import Revisions
from penstock.runtime.place.workspace import Workspace, apply, open_workspace
from penstock.runtime.plan.scheduler import Scheduler
from penstock.runtime.process.metrics import Metrics
from penstock.state.progress.events import Events
from penstock.state.queue.queue import Queue
from penstock.state.sources import Sources
from penstock.state.views import Views
from places import scratch
from results import arguments, report

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from table_watcher import TableWatcher

P = ParamSpec("P")
T = TypeVar("T")

CHUNK = 10
SOURCES, ROOTS = 10, 50
"""Of 500 models a source has 5 roots, and a root 9 children."""
SWEEP_SECONDS = 60
PARTS = {
    "project": ((Revisions, "resolver"),),
    "view": ((Views, "whole"),),
    "look": ((Sources, "claim_looks"), (Sources, "record"), (Observer, "_observe")),
    "settle": ((Queue, "reap"), (Events, "handle")),
    "diff": ((Triggers, "due"),),
    "enqueue": ((Queue, "enqueue"),),
    "audit": ((TableWatcher, "audit"),),
}
"""Where the time of a round may go; what is left of it is planning."""
# Half of a generation's last thousand chunks are not summed up yet, as it is on average.
POPULATE = """
set session_replication_role = replica;  -- what the rows refer to is there, and a million of them would be looked up
drop index coverage_span;
update generation set accepted_snapshot = 0, audited_snapshot = 0, data_timestamp = clock();
insert into task (model, generation, lane, ranges, chunks, choices, reason, max_attempts, state, finished_at, attempt)
select model, no, 'backfill', '{{[0,1)}}', array[int8range(0, 1)], '{{}}', '', 4, 'succeeded', clock(), 1
from generation;
insert into attempt (task, n, worker, token, outcome, ended_at, snapshot)
select id, 1, 'bench', gen_random_uuid(), 'succeeded', clock(), 0 from task;
insert into frontier (generation, snapshot, inputs, task, attempt) select generation, 0, '{{}}', id, 1 from task;
insert into coverage (generation, kind, range, task, attempt, frontier, snapshot, rows)
select t.generation, 'cover', int8range(c.first, c.first + {chunk}), t.id, 1, f.id, 0, 7
from generate_series(0, {each} - 1) i, lateral (select {chunk} * (i + {hole} * (i / 2)) as first) c,
  task t join frontier f on f.task = t.id
order by t.generation, i;
create index coverage_span on coverage using gist (span);
insert into folded (generation, through, covered, stale)
select generation, through, array(
  select edge from (
    select range_agg(range) as held from coverage c where c.generation = s.generation and c.id <= s.through
  ) h, unnest(h.held) part, unnest(array[lower(part), upper(part)]) edge order by edge
), '{{}}'
from (select generation, min(id) + {each} - 1 - least(500, {each} / 2) as through from coverage group by generation) s;
set session_replication_role = default;
"""
# Far above what the roots hold, so that nothing has covered it since; each with an attempt that says why.
FAILURES = """
set session_replication_role = replica;
with ended as (
  insert into task (
    model, generation, lane, ranges, chunks, choices, reason, max_attempts, state, finished_at, attempt, held_until
  )
  select g.model, g.no, 'backfill', int8multirange(r.range), array[r.range], '{{}}', '', 4, 'dead', clock(), 1, clock()
  from generation g, generate_series(1, {dead}) i,
    lateral (select int8range(1000000000 + {chunk} * 2 * i, 1000000000 + {chunk} * (2 * i + 1)) as range) r
  where g.model like 't.r%'
  returning id
)
insert into attempt (task, n, worker, token, outcome, error_class, error, ended_at)
select id, 1, 'bench', gen_random_uuid(), 'failed', 'user', 'bad', clock() from ended;
insert into task (model, generation, lane, ranges, chunks, choices, reason, max_attempts)
select g.model, g.no, 'backfill', int8multirange(r.range), array[r.range], '{{}}', '', 4
from generation g, generate_series(1, {queued}) i,
  lateral (select int8range(2000000000 + {chunk} * 2 * i, 2000000000 + {chunk} * (2 * i + 1)) as range) r
where g.model like 't.r%';
set session_replication_role = default;
"""
COMMIT = """
insert into coverage (generation, kind, range, task, attempt, frontier, snapshot, rows)
select c.generation, 'cover', int8range(upper(c.range), upper(c.range) + {chunk}), c.task, 1, c.frontier, 0, 7
from coverage c join generation g on g.no = c.generation where g.model = 't.r{number}' order by c.id desc limit 1
"""
LATER = """
create or replace function clock() returns timestamptz language sql volatile as
'select clock_timestamp() + make_interval(secs => {seconds})'
"""


@dataclass
class Watch:
    """Seconds by part."""

    spent: dict[str, float] = field(default_factory=dict)

    def carry(self) -> None:
        """Put every part of a round on this watch."""
        for part, methods in PARTS.items():
            for owner, name in methods:
                setattr(owner, name, self._timed(part, getattr(owner, name)))

    def _timed(self, part: str, act: Callable[P, T]) -> Callable[P, T]:
        @wraps(act)
        def timed(*args: P.args, **kwargs: P.kwargs) -> T:
            began = time.perf_counter()
            try:
                return act(*args, **kwargs)
            finally:
                self.spent[part] = self.spent.get(part, 0.0) + time.perf_counter() - began

        return timed

    def round(self, act: Callable[[], object]) -> dict[str, float]:
        """Milliseconds of one round: in all, of this process alone, and by part."""
        self.spent.clear()
        began, busy = time.perf_counter(), time.process_time()
        act()
        taken, used = time.perf_counter() - began, time.process_time() - busy
        parts = {part: self.spent.get(part, 0.0) for part in PARTS}
        parts["plan"] = taken - sum(parts.values())
        return {"round": taken * 1000, "cpu": used * 1000} | {part: seconds * 1000 for part, seconds in parts.items()}


@dataclass(frozen=True)
class Shape:
    name: str
    models: int
    each: int
    """Chunks that every model holds."""
    hole: int
    """How many chunks are missing after every two."""
    dead: int = 0
    """Tasks of each root that failed for good; each root has ten that wait, too."""

    @property
    def end(self) -> int:
        return CHUNK * (self.each - 1 + self.hole * ((self.each - 1) // 2) + 1)


def write(root: Path, shape: Shape) -> None:
    """Roots fill no gaps, so that what they hold may stay in parts; their children have all that the roots have."""
    config = f"name: bench\ndatabases: {{external: raw, transformation: t}}\nscheduler: {{sweep: {SWEEP_SECONDS}s}}\n"
    (root / "models/external").mkdir(parents=True)
    (root / "models/transformations").mkdir(parents=True)
    (root / "penstock.yml").write_text(config)
    rows = pa.table({"n": pa.array([0, shape.end - 1], pa.int64())})
    for number in range(SOURCES):
        place = root / "landing" / f"s{number}"
        write_deltalake(str(place), rows)
        text = f"location: {place}\nposition: n\naxis: number\ncompleteness: inclusive\n"
        (root / f"models/external/s{number}.yml").write_text(text)
    for number in range(shape.models):
        root_number, child = number % ROOTS, number >= ROOTS
        parent = f"t.r{root_number}" if child else f"raw.s{number % SOURCES}"
        matter = "" if child else 'schedules: {backfill: "off"}\n'
        name = f"c{number}" if child else f"r{number}"
        text = f"---\nposition: n\ninterval: {CHUNK}\n{matter}---\nselect n from {{{{ ref('{parent}') }}}}\n"
        (root / f"models/transformations/{name}.sql").write_text(text)


def populate(workspace: Workspace, shape: Shape) -> None:
    """As if all had been built, chunk by chunk; every table is there, and was made by us."""
    apply(workspace)
    connection = workspace.state.database.connection
    text = POPULATE.format(chunk=CHUNK, each=shape.each, hole=shape.hole)
    connection.execute("set statement_timeout = 0")
    connection.execute(text.encode())
    if shape.dead:
        connection.execute(FAILURES.format(chunk=CHUNK, dead=shape.dead, queued=10).encode())
    connection.execute("vacuum analyze")
    template = workspace.project.root / "template"
    write_deltalake(str(template), pa.table({"n": pa.array([0], pa.int64())}))
    for (location,) in connection.execute("select location from generation").fetchall():
        shutil.copytree(template, workspace.resolver.table(location))


@dataclass
class Stand:
    """One populated database, and schedulers on it."""

    workspace: Workspace
    watch: Watch
    later: float = 0.0

    def execute(self, text: str) -> None:
        self.workspace.state.database.connection.execute(text.encode())

    @contextmanager
    def scheduler(self) -> Iterator[Scheduler]:
        """A new one, with a connection of its own, that knows nothing yet."""
        state, revisions = self.workspace.connect(), Revisions(self.workspace.project, os.environ)
        try:
            yield Scheduler(state, revisions, TableWatcher(os.environ), Metrics())
        finally:
            state.close()

    def cold(self, count: int) -> list[dict[str, float]]:
        rounds_taken = []
        for _ in range(count):
            with self.scheduler() as scheduler:
                rounds_taken.append(self.watch.round(scheduler.round))
        return rounds_taken

    def warm(self, scheduler: Scheduler, count: int, before: Callable[[int], None]) -> list[dict[str, float]]:
        rounds_taken = []
        for number in range(count):
            before(number)
            rounds_taken.append(self.watch.round(scheduler.round))
        return rounds_taken

    def nothing(self, _: int) -> None:
        return

    def minute_passes(self, _: int) -> None:
        self.later += SWEEP_SECONDS + 1
        self.execute(LATER.format(seconds=self.later))

    def source_moves(self, number: int) -> None:
        """As another scheduler has seen it."""
        self.execute(
            f"update source set end_pos = end_pos + {CHUNK}, looked_at = clock() where model = 'raw.s{number}'"
        )

    def root_commits(self, number: int) -> None:
        self.execute(COMMIT.format(chunk=CHUNK, number=number))


COLUMNS = ("coverage", "case", "orders", "of idle", "ms p50", "ms max", "own CPU ms", *PARTS, "plan")


def measured(root: Path, shape: Shape, watch: Watch, rounds: int) -> list[list[object]]:
    write(root, shape)
    with open_workspace(root, os.environ) as workspace:
        populate(workspace, shape)
        stand = Stand(workspace, watch)
        rows = []
        with stand.scheduler() as scheduler:
            stand.warm(scheduler, 2, stand.nothing)  # sources seen for the first time
            cases = {
                "nothing changed": stand.nothing,
                "sweep": stand.minute_passes,
                "one source moved": stand.source_moves,
                "one model committed": stand.root_commits,
            }
            rows.append(("cold start", stand.cold(min(rounds, 3)), 0))
            for name, before in cases.items():
                waiting = _waiting(stand)
                times = stand.warm(scheduler, rounds, before)
                rows.append((name, times, (_waiting(stand) - waiting) // rounds))
    idle = next(_median(times)["round"] for name, times, _ in rows if name == "nothing changed")
    return [_row(shape.name, name, times, orders, idle) for name, times, orders in rows]


def _waiting(stand: Stand) -> int:
    row = stand.workspace.state.database.connection.execute(
        "select count(*) from task where state = 'queued'"
    ).fetchone()
    assert row is not None
    return int(row[0])


def _median(rounds: list[dict[str, float]]) -> dict[str, float]:
    """The round in the middle, so that its parts are parts of one round."""
    return sorted(rounds, key=lambda taken: taken["round"])[len(rounds) // 2]


def _row(shape: str, name: str, rounds: list[dict[str, float]], orders: int, idle: float) -> list[object]:
    middle = _median(rounds)
    most = max(taken["round"] for taken in rounds)
    parts = [f"{middle[part]:.1f}" for part in (*PARTS, "plan")]
    times = [f"{figure:.0f}" for figure in (middle["round"], most, middle["cpu"])]
    return [shape, name, orders, f"{middle['round'] / idle:.1f}", *times, *parts]


def main() -> None:
    options = arguments(__doc__ or "", quick="60 models with 40 intervals each")
    models, each, rounds = (60, 40, 3) if options.quick else (500, 2000, 9)
    watch = Watch()
    watch.carry()
    rows = []
    dead = 2 if options.quick else 2000
    shapes = (
        Shape("contiguous", models, each, 0),
        Shape(f"{each // 2} parts each", models, each, 1),
        Shape(f"{ROOTS} backlogs, {ROOTS * dead:,} dead tasks", models, 40, 0, dead),
        Shape(f"{4 * models} models", 4 * models, 40, 0),
    )
    for shape in shapes:
        with scratch() as root:
            rows += measured(root, shape, watch, rounds)
    title = f"a scheduler's round: {models} models, {models * each:,} intervals; the parts are ms of the median round"
    report(title, COLUMNS, rows, options.json)


if __name__ == "__main__":
    main()
