"""How soon does somebody wake who is told, and how soon after its parent's commit does a child start?"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from penstock.runtime.place.workspace import apply
from penstock.runtime.process.wakeup import Wakeup, listening
from penstock.state.store import State
from places import postgres
from results import arguments, percentile, report

# an engine that needs no JVM, and projects for it
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from deployment import SCHEMA, Deployment
from processes import Residents
from residents import covers, everything, until

SOURCE = "axis: number\ncompleteness: inclusive\nscan: {incremental: 1s, full: 1h}\n"
NO_SWEEP = "scheduler: {sweep: 10 days}\n"
DAILY = 'interval: 10\nschedules: {forwardfill: "@every 1d", backfill: "@every 1d"}'
LATENCIES = """
select extract(epoch from cast(t.created_at - p.ended_at as interval)) * 1000,
  extract(epoch from cast(c.started_at - t.created_at as interval)) * 1000
from task pt join attempt p on p.task = pt.id and p.outcome = 'succeeded'
join task t on t.model = 't.child' and t.ranges = pt.ranges join attempt c on c.task = t.id and c.n = 1
where pt.model = 't.parent' order by t.id
"""
COLUMNS = ("from", "to", "times", "ms p50", "ms p99", "ms max", "ratio")


def row(begin: str, end: str, taken: Sequence[float], than: float | None = None) -> list[object]:
    middle = percentile(taken, 0.5)
    figures = (f"{figure:.2f}" for figure in (middle, percentile(taken, 0.99), max(taken)))
    return [begin, end, len(taken), *figures, "" if than is None else f"{middle / than:.2f}"]


def notified(dsn: str, rounds: int) -> list[list[object]]:
    """From NOTIFY to a waiting thread: through the driver alone, and as a worker waits."""

    def connect() -> State:
        return State.open(dsn, SCHEMA, migrate=False)

    caller = connect()
    wakeup = Wakeup()
    with _bare(connect, wakeup):
        plain = _woken(caller, wakeup, rounds)
    with listening(connect, wakeup):
        ours = _woken(caller, wakeup, rounds)
    caller.close()
    middle = percentile(plain, 0.5)
    return [row("NOTIFY", "bare LISTEN", plain, middle), row("NOTIFY", "worker awake", ours, middle)]


@contextmanager
def _bare(connect: Callable[[], State], wakeup: Wakeup) -> Iterator[None]:
    """The least that can be done: one thread in the driver's own wait."""
    state, ended = connect(), threading.Event()
    channel = state.database.value("channel", str)
    state.database.connection.execute(f'listen "{channel}"'.encode())

    def listen() -> None:
        while not ended.is_set():
            for _ in state.database.connection.notifies(timeout=0.1, stop_after=1):
                wakeup.wake()

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        state.close()


def _woken(caller: State, wakeup: Wakeup, rounds: int) -> list[float]:
    deadline = time.monotonic() + 10
    heard = False
    while not heard:  # until the listener listens
        assert time.monotonic() < deadline, "nobody listens"
        caller.database.run("wake")
        began = time.monotonic()
        wakeup.wait(0.5)
        heard = time.monotonic() - began < 0.5
    wakeup.wait(0.2)
    taken = []
    for _ in range(rounds):
        began = time.monotonic()
        caller.database.run("wake")
        wakeup.wait(10)
        taken.append((time.monotonic() - began) * 1000)
    return taken


def family(root: Path, dsn: str) -> Deployment:
    """A child that only its parent can set off: its own schedule is a day away, and nobody sweeps."""
    trial = Deployment.empty(root, dsn)
    config = root / "penstock.yml"
    config.write_text(config.read_text() + NO_SWEEP)
    trial.source("events", SOURCE)
    trial.model("parent", "select n, value from {{ ref('raw.events') }}")
    trial.model("child", "select n, value + 1 as value from {{ ref('t.parent') }}", DAILY)
    with trial.opened() as workspace:
        apply(workspace)
    return trial


def followed(trial: Deployment, rounds: int) -> list[tuple[float, float]]:
    """For every round, by the database's clock: from the parent's end to the child's task, and to its start."""
    for turn in range(1, rounds + 1):
        trial.land("events", range(turn * 10 - 10, turn * 10))
        until(trial, covers("child", turn * 10))
    return [(float(str(plan)), float(str(claim))) for plan, claim in trial.execute(LATENCIES)]


def started(name: str, taken: list[tuple[float, float]], than: float) -> list[list[object]]:
    parts = {
        "child's task": [plan for plan, _ in taken],
        "child starts": [plan + claim for plan, claim in taken],
    }
    return [row(f"parent's end, {name}", end, part, than) for end, part in parts.items()]


def main() -> None:
    options = arguments(__doc__ or "", quick="20 calls and three generations of parent and child in one process")
    calls, turns = (20, 3) if options.quick else (500, 30)
    with postgres() as (root, dsn):
        trial = family(root / "together", dsn)
        rows = notified(dsn, calls)
        middle = float(str(rows[0][3]))
        with everything(trial):
            rows += started("up", followed(trial, turns), middle)
        if not options.quick:
            trial = family(root / "apart", dsn)
            with Residents(trial, root / "logs") as residents:
                residents.start("scheduler")
                residents.start("worker")
                rows += started("scheduler and worker apart", followed(trial, turns), middle)
    report("being woken (embedded PostgreSQL, no Spark, no sweep); ratio to a bare LISTEN", COLUMNS, rows, options.json)


if __name__ == "__main__":
    main()
