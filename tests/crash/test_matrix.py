"""A process is killed, or sleeps past its lease, at every labelled step: do the others make every table exact?

Three stories are told at a time, each in a schema of its own, by real processes on a real PostgreSQL and real tables.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deployment import Deployment
from fuzzing import FUZZ
from network import Proxy
from nursery import Nursery
from postgres_server import PostgresServer, own_server
from processes import Resident, Role

import penstock
from penstock.runtime.place.workspace import Workspace, apply
from penstock.state.store import State
from penstock.values.intervals import ranges

WORKER_STEPS = ("claimed", "intended", "computed", "files written", "staged", "locked", "table created", "head loaded",
                "delta committed", "recorded", "published")  # fmt: skip
SCHEDULER_STEPS = ("looked", "reaped", "settled", "ordered", "enqueued", "event read", "settled:2", "ordered:2",
                   "enqueued:2")  # fmt: skip
ELSEWHERE = {"planned", "keys found", "written"}
"""Steps that only Spark makes: tests/acceptance kills there, and tests/spark/test_refresh."""
WAIT_SECONDS = 60.0
CONFIG = "worker: {concurrency: 1}\nscheduler: {sweep: 5 seconds, repair_delay: 1 second}\n"
_END_IDLE = """
select pg_terminate_backend(a.pid) from pg_stat_activity a
where a.state = 'idle in transaction' and exists (
  select from pg_locks l join pg_class c on c.oid = l.relation
  where l.pid = a.pid and c.relnamespace = current_schema()::regnamespace
)
"""


@dataclass
class Stage:
    """Two models over one source, and processes that keep them."""

    trial: Deployment
    residents: Nursery
    server: PostgresServer
    broken: tuple[str, ...] = ()
    """What is said to every process, so that it lacks a mechanism."""
    values: list[int] = field(default_factory=list)

    def build(self, matter: str = "", without: int | None = None) -> None:
        model = "select * from {{{{ ref('{}') }}}}"
        self.trial.write("penstock.yml", (self.trial.root / "penstock.yml").read_text() + CONFIG)
        self.trial.source("numbers", "axis: number\nscan: {incremental: 1 second}\n")
        self.trial.model("copy", model.format("raw.numbers"), f"interval: 10\n{matter}")
        self.trial.model("again", model.format("t.copy"), f"interval: 20\n{matter}")
        with self.trial.opened() as workspace:
            apply(workspace)
        self.grow(40, without)

    def grow(self, more: int, without: int | None = None) -> None:
        new = range(len(self.values), len(self.values) + more)
        self.trial.land("numbers", [n for n in new if n != without])
        self.values += [n * 7 for n in new]

    def start(self, role: Role, *options: str) -> Resident:
        return self.residents.start(role, *options, *self.broken)

    def quiet(self) -> None:
        self.residents.wait_quiet(WAIT_SECONDS)

    def killed(self, role: Role, step: str) -> None:
        victim = self.start(role, "--die", step)
        assert victim.process.wait(WAIT_SECONDS) == -9, victim.text()
        victim.killed = True

    def asleep(self, role: Role, step: str) -> Resident:
        """A process that was stopped at a step for so long that the server hung up on what it left open."""
        sleeper = self.start(role, "--stop", step)
        sleeper.await_stopped()
        self.trial.execute(_END_IDLE)
        return sleeper

    def says(self, one: Resident, pattern: str) -> None:
        self.residents.wait_until(lambda _: None if re.search(pattern, one.text()) else f"no {pattern}", WAIT_SECONDS)

    def attempts(self) -> list[tuple[str | None, str | None]]:
        """Outcome and strategy of all of them."""
        with self.trial.opened() as workspace:
            tasks = workspace.state.history.tasks(None, False, True, 1000)
            by_task = workspace.state.history.attempts([task.id for task in tasks])
            return [(one.outcome, one.strategy) for made in by_task.values() for one in made]

    def computed(self) -> list[tuple[str, tuple[int, int]]]:
        """Every chunk that was computed and accepted, as often as it was."""
        done = [task for task in self.trial.tasks() if task.state == "succeeded"]
        return [(task.model, (chunk.start, chunk.end)) for task in done for chunk in task.order.chunks]

    def violations(self) -> list[str]:
        """Everything that must hold when it is quiet, and does not."""
        ended = self.residents.ended_by_themselves()
        found = [f"{one.name} ended with {one.exit_code}" for one in ended if one.exit_code]
        # its task contains the error, but nothing may come as far as a constraint of the database
        found += [f"{one.name} was refused by a constraint" for one in self.residents.all if "violates" in one.text()]
        commits: Counter[str] = Counter()
        with self.trial.opened() as workspace:
            for name, one in workspace.state.views.whole().current.items():
                place = workspace.resolver.table(one.location)
                table = DeltaTable(place, version=one.accepted_snapshot).to_pyarrow_table()
                rows = sorted(zip(table["n"].to_pylist(), table["value"].to_pylist(), strict=True))
                if rows != list(enumerate(self.values)):
                    found.append(f"{name} holds {rows}")
                if one.covered != ranges((0, len(self.values))) or one.stale:
                    found.append(f"{name} covers {one.covered}, stale {one.stale}")
                commits += _commits(Path(place))
            return found + _wrong_tasks(workspace, commits)


def _commits(table: Path) -> Counter[str]:
    """How many commits each task has in the log."""
    found: Counter[str] = Counter()
    for file in (table / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        found.update(action["txn"]["appId"] for action in actions if "txn" in action)
    return found


def _wrong_tasks(workspace: Workspace, commits: Counter[str]) -> list[str]:
    """Every task that succeeded has one accepted attempt, and one commit if it wrote rows, every other one none.

    Nothing is dead.
    """
    found = []
    for task in workspace.state.history.tasks(None, False, True, 1000):
        accepted = sum(one.outcome == "succeeded" for one in workspace.state.history.attempts([task.id])[task.id])
        made, wanted = commits[str(task.uuid)], int(task.state == "succeeded")
        equal = task.lane == "repair" and not task.cost.rows_written and task.strategy != "adopted"
        if task.state not in ("succeeded", "cancelled") or (accepted, made) != (wanted, wanted and not equal):
            found.append(f"task {task.id} of {task.order.model} is {task.state}: {made} commits, {accepted} accepted")
    return found


@contextmanager
def staged(server: PostgresServer, folder: Path, schema: str, broken: tuple[str, ...]) -> Iterator[Stage]:
    # only clients die here, so nothing that the server promised is lost
    dsn = f"{server.dsn} options='-c synchronous_commit=off'"
    State.migrated(dsn, schema)
    trial = Deployment(folder / "project", dsn, schema)
    with Nursery(trial, folder / "logs") as residents:
        yield Stage(trial, residents, server, broken)


# the stories


def a_worker_is_killed(stage: Stage, step: str) -> None:
    stage.build()
    stage.start("scheduler")
    stage.killed("worker", step)
    stage.start("worker")
    stage.quiet()
    ended = Counter(stage.attempts())
    adopted = sum(count for (_, strategy), count in ended.items() if strategy == "adopted")
    assert adopted == (step in ("delta committed", "recorded"))
    assert sum(count for (outcome, _), count in ended.items() if outcome == "lost") == (step != "published")


def a_worker_sleeps(stage: Stage, step: str) -> None:
    stage.build()
    stage.start("scheduler")
    sleeper = stage.asleep("worker", step)
    stage.trial.move_clock(600)
    stage.start("worker")
    stage.quiet()
    sleeper.go_on()
    stage.says(sleeper, "task_succeeded" if step == "published" else "task_lost")
    stage.grow(20)
    stage.quiet()
    assert sleeper.terminate() == 0


def a_scheduler_is_killed(stage: Stage, step: str) -> None:
    stage.build()
    stage.start("worker")
    stage.killed("scheduler", step)
    stage.start("scheduler")
    stage.quiet()


def a_scheduler_sleeps(stage: Stage, step: str) -> None:
    stage.build()
    stage.start("worker")
    sleeper = stage.asleep("scheduler", step)
    stage.start("scheduler")
    stage.quiet()
    sleeper.go_on()
    stage.grow(20)
    stage.quiet()
    assert sleeper.terminate() == 0


def with_a_new_column(stage: Stage, step: str, act: Callable[[Stage, str], None]) -> None:
    """The table gets a column in a commit of its own, right before the one with the rows."""
    stage.build("on_schema_change: add_columns")
    stage.start("scheduler")
    first = stage.start("worker")
    stage.quiet()
    assert first.terminate() == 0
    new = range(40, 60)
    stage.values += [n * 7 for n in new]
    rows = pa.table({"n": pa.array(new, pa.int64()), "value": [n * 7 for n in new], "more": ["x" for _ in new]})
    write_deltalake(str(stage.trial.landing("numbers")), rows, mode="append", schema_mode="merge")
    act(stage, step)


def _killed_and_followed(stage: Stage, step: str) -> None:
    stage.killed("worker", step)
    stage.start("worker")
    stage.quiet()


def _asleep_and_followed(stage: Stage, step: str) -> None:
    sleeper = stage.asleep("worker", step)
    stage.trial.move_clock(600)
    stage.start("worker")
    stage.quiet()
    sleeper.go_on()
    stage.says(sleeper, "task_lost")
    assert sleeper.terminate() == 0


def an_answer_is_lost(stage: Stage, step: str) -> None:
    """The first COMMIT after the step reaches the state database, and nobody hears of it."""
    stage.build()
    stage.start("scheduler")
    with Proxy("127.0.0.1", stage.server.port) as proxy:
        dsn = stage.server.dsn_at(proxy.host, proxy.port)
        with Nursery(stage.trial, stage.trial.root / "other logs", dsn) as others:
            caller = others.start("worker", "--stop", step, *stage.broken)
            caller.await_stopped()
            proxy.lose_next_answer(after=b"COMMIT")
            caller.go_on()
            assert proxy.lost.wait(WAIT_SECONDS)
            stage.residents.wait_quiet(25)  # long before a lease would run out
            assert caller.terminate() == 0
            assert "task_lost" not in caller.text()
    assert {outcome for outcome, _ in stage.attempts()} == {"succeeded"}


def a_commit_is_adopted(stage: Stage, step: str) -> None:
    stage.build("deduplicate: false")  # else the second attempt sees that its rows are there already
    stage.start("scheduler")
    _killed_and_followed(stage, step)


def a_sleeper_wakes_late(stage: Stage, step: str) -> None:
    stage.build()
    stage.start("scheduler")
    sleeper = stage.asleep("worker", step)
    stage.trial.move_clock(600)
    stage.start("worker")
    stage.quiet()
    sleeper.go_on()
    stage.says(sleeper, "task_lost|violates")
    sleeper.terminate()


def files_move_under_a_repair(stage: Stage, step: str) -> None:
    """Somebody compacts the table between the moment in which a repair read its files and the one it replaces them."""
    stage.build()
    stage.start("scheduler")
    first = stage.start("worker")
    stage.quiet()
    assert first.terminate() == 0
    landing = DeltaTable(str(stage.trial.landing("numbers")))
    landing.update({"value": "n * 9"}, predicate="n < 10")
    stage.values[:10] = [n * 9 for n in range(10)]

    def seen(workspace: Workspace) -> str | None:
        known = workspace.state.views.whole().sources["raw.numbers"].snapshot
        return None if known == landing.version() else f"known up to {known}"

    stage.residents.wait_until(seen, WAIT_SECONDS)
    with stage.trial.opened() as workspace:
        workspace.state.invalidations.invalidate("t.copy", ranges((0, 10)), "corrected", "test")
    sleeper = stage.asleep("worker", step)
    DeltaTable(stage.trial.place("copy")).optimize.compact()
    sleeper.go_on()
    stage.quiet()
    assert sleeper.terminate() == 0


def a_cascade_is_killed(stage: Stage, step: str) -> None:
    """A late row goes through three levels; whoever computes one of them dies, in the middle of it or between two."""
    late = 5
    stage.trial.model("last", "select * from {{ ref('t.again') }}", "interval: 20")
    stage.build(without=late)
    stage.start("scheduler")
    first = stage.start("worker")
    stage.quiet()
    assert first.terminate() == 0
    before = stage.computed()
    stage.trial.land("numbers", [late])
    stage.killed("worker", step)
    stage.start("worker")
    stage.quiet()
    again = Counter(stage.computed()) - Counter(before)
    affected = {"t.copy": (0, 10), "t.again": (0, 20), "t.last": (0, 20)}
    assert again == Counter(affected.items())


def a_reset_is_killed(stage: Stage, step: str) -> None:
    """The table is empty, and nobody was told; what was held there is found missing and computed again."""
    stage.build()
    stage.start("scheduler")
    stage.start("worker")
    stage.quiet()
    program = Path(__file__).parent / "child.py"
    died = subprocess.run(
        [sys.executable, str(program), str(stage.trial.root), "--reset", "t.copy", "--die", step, *stage.broken],
        env=stage.trial.environ,
        capture_output=True,
        check=False,
    )
    assert died.returncode == -9, died.stderr.decode()

    def rows() -> int:
        return DeltaTable(stage.trial.place("copy")).to_pyarrow_table().num_rows

    assert rows() == 0
    # the accepted snapshot has all of them all the time: it is the newest one that lacks them
    stage.residents.wait_until(lambda _: None if rows() else "no rows", WAIT_SECONDS)
    stage.quiet()


Act = Callable[[Stage, str], None]


@dataclass(frozen=True)
class Story:
    act: Act
    step: str
    broken: str | None = None

    def __str__(self) -> str:
        lacking = f" without {self.broken}" if self.broken else ""
        return f"{getattr(self.act, '__name__', 'act')} at {self.step}{lacking}".replace("_", " ")


def adding_columns(act: Act) -> Act:
    def tell(stage: Stage, step: str) -> None:
        with_a_new_column(stage, step, act)

    tell.__name__ = f"with a new column{act.__name__}"
    return tell


CASCADE_STEPS = ("intended", "delta committed", "published", "claimed:2")
EVERY_CASCADE_STEP = (
    *(step for step in WORKER_STEPS if step != "table created"),
    *(f"{step}:{level}" for level in (2, 3) for step in ("claimed", "locked", "delta committed", "published")),
)
MATRIX = [
    *(Story(act, step) for step in WORKER_STEPS for act in (a_worker_is_killed, a_worker_sleeps)),
    *(Story(act, step) for step in SCHEDULER_STEPS for act in (a_scheduler_is_killed, a_scheduler_sleeps)),
    *(Story(adding_columns(act), "columns added") for act in (_killed_and_followed, _asleep_and_followed)),
    Story(an_answer_is_lost, "recorded"),  # to the publication
    Story(an_answer_is_lost, "published"),  # to the claim of the next task
    Story(a_commit_is_adopted, "delta committed"),
    Story(files_move_under_a_repair, "staged"),
    Story(a_reset_is_killed, "emptied"),
    *(Story(a_cascade_is_killed, step) for step in (EVERY_CASCADE_STEP if FUZZ else CASCADE_STEPS)),
]
CONTROLS = [
    Story(an_answer_is_lost, "published", "doubt"),
    Story(a_commit_is_adopted, "delta committed", "adoption"),
    Story(a_sleeper_wakes_late, "staged", "fence"),
    Story(files_move_under_a_repair, "staged", "liveness"),
    Story(a_cascade_is_killed, "published", "cascade"),
]


@pytest.fixture(scope="module")
def told(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Story, Future[list[str]]]]:
    """The violations after each story; all that this session asks for are begun at once."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function) and item.path == request.path]
    wanted: list[Story] = [item.callspec.params["story"] for item in items if hasattr(item, "callspec")]
    wanted.sort(key=lambda story: story.broken is None)  # where something is missing, others wait for it in vain

    def tell(number: int, story: Story, folder: Path) -> list[str]:
        broken = ("--break", story.broken) if story.broken else ()
        with staged(server, folder, f"story_{number}", broken) as stage:
            try:
                story.act(stage, story.step)
            except AssertionError as error:
                if story.broken is None:
                    raise
                return [str(error)]
            return stage.violations()

    with own_server() as server:
        pool = ThreadPoolExecutor(3)
        yield {
            story: pool.submit(tell, number, story, tmp_path_factory.mktemp("story"))
            for number, story in enumerate(wanted)
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("story", MATRIX, ids=str)
def test_whatever_ends_in_the_middle_others_finish_it_exactly_once(
    told: dict[Story, Future[list[str]]], story: Story
) -> None:
    assert told[story].result() == []


@pytest.mark.parametrize("story", CONTROLS, ids=str)
def test_control_without_a_mechanism_the_same_story_ends_badly(
    told: dict[Story, Future[list[str]]], story: Story
) -> None:
    assert told[story].result() != []


def test_the_matrix_has_every_step_that_there_is() -> None:
    root = Path(str(penstock.__file__)).parent
    found = {
        label
        for folder in ("runtime", "engine")
        for file in (root / folder).rglob("*.py")
        for label in re.findall(r'\bstep\("([^"]+)"\)', file.read_text())
    }
    tried = {story.step.partition(":")[0] for story in MATRIX}
    assert found - ELSEWHERE <= tried
    assert tried - found <= {"computed", "files written"}  # the names that the engine of these tests has for its own
