"""Many workers on many models, and slow workers under many schedules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from deployment import _EMPTY
from fuzzing import FUZZ
from kept import stop_clock
from memory_engine import MemoryEngine
from memory_observer import MemoryObserver
from oracle import holds
from simulated_project import environ

from penstock.engine.values.job import Step
from penstock.planner.policy.selection import Pattern, Selection
from penstock.project import Project, unpack
from penstock.runtime.place.definitions import bundle, definitions
from penstock.runtime.place.revisions import Revisions
from penstock.runtime.place.table_resolver import TableResolver
from penstock.runtime.place.workspace import no_step
from penstock.runtime.plan.scheduler import Scheduler
from penstock.runtime.process.metrics import Metrics
from penstock.runtime.process.wakeup import Stop, listening
from penstock.runtime.work.attempt import AttemptContext, work
from penstock.runtime.work.heartbeat import Heartbeat
from penstock.runtime.work.worker import Worker
from penstock.runtime.work.worker_pool import WorkerPool
from penstock.state import views
from penstock.state.store import State
from penstock.values.tasks import Lease

SCHEMA = "crowd"
WORKERS = 20
COPIES, CHILDREN = (150, 50) if FUZZ else (45, 15)
LANDING = "memory://landing/numbers"
SETTINGS = """name: crowd
databases: {external: raw, transformation: t}
warehouse: memory://warehouse
targets: {test: {state: "${PENSTOCK_STATE}", schema: crowd}}
"""
SOURCE = f"location: {LANDING}\nposition: n\naxis: number\nscan: {{incremental: 1s, full: 1h}}\n"
ONE_BY_ONE = "select {{ bounds.start }} as n, sum(value) + %d as value from {{ ref('%s') }}"


def project(models: dict[str, tuple[str, str]]) -> Project:
    texts = {"penstock.yml": SETTINGS, "models/external/numbers.yml": SOURCE} | {
        f"models/transformations/{name}.sql": f"---\nposition: n\n{matter}\n---\n{sql}\n"
        for name, (matter, sql) in models.items()
    }
    return unpack({name: text.encode() for name, text in texts.items()}, Path("/nowhere"), environ())


@dataclass
class Crowd:
    """A deployment in memory and PostgreSQL, and as many connections to it as anybody wants."""

    dsn: str
    engine: MemoryEngine = field(default_factory=MemoryEngine)
    metrics: Metrics = field(default_factory=Metrics)
    opened: list[State] = field(default_factory=list)
    state: State = field(init=False)
    project: Project = field(init=False)

    def __post_init__(self) -> None:
        State.migrated(self.dsn, SCHEMA)
        self.state = self.connect()
        self.execute(_EMPTY)

    def connect(self) -> State:
        state = State.open(self.dsn, SCHEMA, migrate=False)
        self.opened.append(state)
        return state

    def apply(self, wanted: Project) -> None:
        self.state.projects.apply(wanted.revision, bundle(wanted), {}, definitions(wanted))
        self.project = wanted

    def land(self, *positions: int) -> None:
        self.engine.land(LANDING, [{"n": n, "value": n} for n in positions])

    def scheduler(self, step: Step = no_step) -> Scheduler:
        revisions = Revisions(self.project, environ())
        return Scheduler(self.connect(), revisions, MemoryObserver(self.engine), self.metrics, step)

    def execute(self, text: str) -> list[tuple[object, ...]]:
        cursor = self.state.database.connection.execute(text.encode())
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def crowd(dsn: str) -> Iterator[Crowd]:
    made = Crowd(dsn)
    yield made
    for state in made.opened:
        state.close()


def serving(crowd: Crowd, name: str, revisions: Revisions, stop: Stop) -> None:
    """One worker, as a process has it: claims here, attempts and heartbeats in threads of their own."""
    wakeup = stop.wakeup()
    with ExitStack() as stack:
        heartbeat = stack.enter_context(Heartbeat(crowd.connect, name, {"role": "worker"}))
        context = AttemptContext(revisions.resolver, crowd.connect(), crowd.engine, no_step, heartbeat)
        pool = WorkerPool(context, crowd.connect, heartbeat, 1, wakeup.wake)
        stack.callback(pool.close)
        selection = Selection((Pattern("t.*"),), frozenset(), 1)
        place = SimpleNamespace(worker=name, connect=crowd.connect)
        worker = Worker(place, context.state, selection, revisions, pool, heartbeat, crowd.metrics, lambda **_: None)  # type: ignore[arg-type]
        stack.enter_context(listening(crowd.connect, wakeup))
        worker.serve(stop, wakeup)
        worker.leave(10.0)


def test_twenty_workers_on_many_models_do_everything_exactly_once(crowd: Crowd) -> None:
    copies = {f"m{i:03}": ("interval: 10", ONE_BY_ONE % (i, "raw.numbers")) for i in range(COPIES)}
    children = {f"c{i:03}": ("interval: 20", ONE_BY_ONE % (i, f"t.m{i:03}")) for i in range(CHILDREN)}
    crowd.apply(project(copies | children))
    crowd.land(*range(40))
    revisions, stop = Revisions(crowd.project, environ()), Stop()
    with ThreadPoolExecutor(WORKERS) as pool:
        working = [pool.submit(serving, crowd, f"worker {n}", revisions, stop) for n in range(WORKERS)]
        try:
            until_done(crowd, stop)
        finally:
            stop.ask()
        for one in working:
            one.result()
    wanted = Counter((f"t.{name}", start, start + 10) for name in copies for start in range(0, 40, 10))
    wanted += Counter((f"t.{name}", start, start + 20) for name in children for start in range(0, 40, 20))
    accepted = crowd.execute(
        "select t.model, lower(chunk), upper(chunk) from task t join attempt a on a.task = t.id, unnest(t.chunks) chunk"
    )
    assert Counter(accepted) == wanted, "some attempt was lost, tried again or done twice"
    assert crowd.execute("select distinct outcome from attempt") == [("succeeded",)]
    assert committed(crowd) == wanted
    assert len(crowd.execute("select distinct worker from attempt")) == WORKERS
    assert holds(crowd.engine, crowd.state, TableResolver(crowd.project)) == []


def until_done(crowd: Crowd, stop: Stop) -> None:
    """Rounds of a scheduler until every model has all there is."""
    scheduler, wakeup = crowd.scheduler(), stop.wakeup()
    with listening(crowd.connect, wakeup):
        while True:
            scheduler.round()
            view = crowd.state.views.whole()
            if all(one.covered.size == 40 for one in view.current.values()):
                return
            wakeup.wait(0.2)


def committed(crowd: Crowd) -> Counter[tuple[object, ...]]:
    """Every chunk, as often as it was written."""
    found: Counter[tuple[object, ...]] = Counter()
    for name, one in crowd.state.views.whole().current.items():
        for snapshot in crowd.engine.snapshots(TableResolver(crowd.project).table(one.location)):
            if snapshot.entry.commit is not None:
                found.update((name, c.interval.start, c.interval.end) for c in snapshot.entry.commit.chunks)
    return found


OVERLAPPING = """
select count(*) from task t join task u on u.generation = t.generation and u.id > t.id and u.ranges && t.ranges
"""


@pytest.mark.parametrize("excluded", [True, False])
def test_two_schedulers_that_saw_the_same_ask_for_everything_once(crowd: Crowd, excluded: bool) -> None:
    """The control: without the constraint that keeps active scopes apart both of them would be obeyed."""
    crowd.apply(project({f"m{i}": ("interval: 10", ONE_BY_ONE % (i, "raw.numbers")) for i in range(5)}))
    crowd.land(*range(40))
    other = crowd.scheduler()

    def step(label: str) -> None:
        if label == "ordered":
            other.round()

    if excluded:
        crowd.scheduler(step).round()
        assert crowd.execute(OVERLAPPING) == [(0,)]
        return
    crowd.execute("alter table task drop constraint active_scopes_never_overlap")
    try:
        crowd.scheduler(step).round()
        assert crowd.execute(OVERLAPPING) != [(0,)]
    finally:
        crowd.execute(f"drop schema {SCHEMA} cascade")


ROWS = "select n, value from {{ ref('raw.numbers') }}"
TICKING = {f"ticking{i}": (f'interval: 1\nschedules: {{forwardfill: "@every {i + 1}0s"}}', ROWS) for i in range(4)}
OFTEN = {
    "eager": ("interval: {max: 100, min: 0}", ROWS),
    "both": ('interval: 1\nschedules: {forwardfill: "@every 30s", backfill: "* * * * *"}', ROWS),
    "later": ('interval: 1\nschedules: {forwardfill: "off", backfill: "@every 1d"}', ROWS),
}
LANES = len(TICKING) + 2 * len(OFTEN)
STEP_SECONDS, TASK_STEPS = 20, 30


@dataclass
class Slow:
    """One worker that takes ten minutes for a task."""

    crowd: Crowd
    revisions: Revisions
    lease: Lease | None = None
    steps: int = 0

    def holds(self, lease: Lease) -> bool:
        return True

    def require(self, lease: Lease) -> None:
        return

    def go_on(self, most_steps: int = TASK_STEPS) -> bool:
        """Whether there was anything to do."""
        state = self.crowd.state
        if self.lease is None:
            self.lease, self.steps = state.queue.claim("slow"), 0
        if self.lease is None:
            return False
        self.steps += 1
        assert state.workers.heartbeat([self.lease]) == ()
        if self.steps >= most_steps:
            context = AttemptContext(self.revisions.resolver, state, self.crowd.engine, no_step, self)
            assert work(context, self.lease).outcome == "succeeded"
            self.lease = None
        return True


def lengths(crowd: Crowd, slow: Slow, seconds: int) -> list[int]:
    """Three schedulers, a slow worker and a row every minute for so long: how long the queue was, step by step."""
    schedulers = [crowd.scheduler() for _ in range(3)]
    found = []
    for step in range(seconds // STEP_SECONDS):
        stop_clock(crowd.state.database.connection, step * STEP_SECONDS)
        if step % 3 == 0:
            crowd.land(step // 3)
        schedulers[step % 3].round()
        slow.go_on()
        [[length]] = crowd.execute("select count(*) from task where state in ('queued', 'retrying')")
        assert isinstance(length, int)
        found.append(length)
    return found


def test_b19_slow_workers_make_no_queue_longer_than_the_schedules_are_many(crowd: Crowd) -> None:
    stop_clock(crowd.state.database.connection, 0)
    crowd.apply(project(TICKING | OFTEN))
    slow = Slow(crowd, Revisions(crowd.project, environ()))
    assert 0 < max(lengths(crowd, slow, 3600)) <= LANES
    assert crowd.execute("select 1 from task where state = 'queued' group by model, lane having count(*) > 1") == []
    enabled = ('interval: 1\nschedules: {forwardfill: "@every 30s"}', ROWS)
    crowd.apply(project(TICKING | OFTEN | {"later": enabled, "new": enabled}))
    scheduler = crowd.scheduler()
    for step in range(20):
        stop_clock(crowd.state.database.connection, 3600 + step * STEP_SECONDS)
        scheduler.round()
        while slow.go_on(1):
            continue
    covered = {name: one.covered.edges for name, one in crowd.state.views.whole().current.items()}
    assert covered == dict.fromkeys((f"t.{one}" for one in (*TICKING, *OFTEN, "new")), (0, 60))


def test_b19_control_if_waiting_lanes_got_more_orders_the_queue_would_grow(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = views._doing

    def nobody_waits(*args: object) -> object:
        done = found(*args)  # type: ignore[arg-type]
        return replace(done, work=replace(done.work, waiting=frozenset()))

    monkeypatch.setattr(views, "_doing", nobody_waits)
    stop_clock(crowd.state.database.connection, 0)
    crowd.apply(project(TICKING | OFTEN))
    assert max(lengths(crowd, Slow(crowd, Revisions(crowd.project, environ())), 1200)) > 3 * LANES
