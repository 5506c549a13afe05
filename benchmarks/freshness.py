"""How long until a commit in a source, and a row that comes late, has reached the second model under `penstock up`?"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from penstock.runtime.place.workspace import apply, open_workspace
from penstock.state.store import State
from places import scratch
from results import arguments, percentile, report

# a short run has an engine that needs no JVM
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

MODELS = {
    "first": "select n, value from {{ ref('raw.events') }}",
    "second": "select n, value + 1 as value from {{ ref('t.first') }}",
}
STEP = 10
PARTS = """
select p.created_at, p1.started_at, p1.ended_at, c.created_at, c1.started_at, c1.ended_at
from task p join attempt p1 on p1.task = p.id and p1.n = 1
join task c on c.model = 't.second' and c.lane = p.lane and c.id > p.id and c.ranges && p.ranges
join attempt c1 on c1.task = c.id and c1.n = 1
where p.model = 't.first' and p.created_at > %s order by p.id, c.id limit 1
"""
NAMES = ("source to task", "task to attempt", "attempt", "to the second's task", "to its attempt", "its attempt", "all")
SHORT = """
import sys
sys.path[:0] = sys.argv[1:3]
from pathlib import Path
from deployment import ArrowEngine
from penstock.runtime.serve import roles
from penstock.runtime.process.wakeup import Stop
from penstock.runtime.place.workspace import open_workspace
import os
with open_workspace(Path("."), os.environ) as workspace:
    workspace.engine = ArrowEngine()
    roles.up(workspace, Stop())
"""


def build(root: Path) -> None:
    for folder in ("external", "transformations"):
        (root / "models" / folder).mkdir(parents=True)
    (root / "penstock.yml").write_text("name: fresh\ndatabases: {external: raw, transformation: t}\n")
    (root / "models/external/events.yml").write_text(
        "location: ./landing/events\nposition: n\naxis: number\ncompleteness: inclusive\n"
    )
    for name, sql in MODELS.items():
        matter = f"position: n\ninterval: {STEP}"
        (root / f"models/transformations/{name}.sql").write_text(f"---\n{matter}\n---\n{sql}\n")
    land(root, range(STEP))
    with open_workspace(root, os.environ) as workspace:
        apply(workspace)


def land(root: Path, positions: range) -> None:
    rows = pa.table({"n": pa.array(positions, pa.int64()), "value": pa.array(positions, pa.int64())})
    write_deltalake(str(root / "landing/events"), rows, mode="append")


def wait(state: State, holds: Callable[[], bool], seconds: float = 180.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came"
        state.listener.wait(0.05)


def reached(state: State, end: int) -> bool:
    second = state.views.whole().current.get("t.second")
    return bool(second and second.covered.end == end and not second.stale)


def repaired(state: State, number: int) -> bool:
    row = state.database.connection.execute(
        b"select count(*) from task where model = 't.second' and lane = 'repair' and state = 'succeeded'"
    ).fetchone()
    return row is not None and int(row[0]) >= number


def measured(root: Path, state: State, times: int, pause: float) -> dict[str, list[list[float]]]:
    """By kind, the parts of each time; the pauses let the source rest a little, as sources do."""
    delays: dict[str, list[list[float]]] = {"new rows": [], "a late row": []}
    wait(state, lambda: reached(state, STEP))
    end = STEP
    for turn in range(times):
        time.sleep(pause + 0.37 * (turn % 5))
        began = datetime.now(UTC)
        land(root, range(end, end + STEP))
        end += STEP
        wait(state, lambda end=end: reached(state, end))  # type: ignore[misc]
        delays["new rows"].append(parts(state, began))
        time.sleep(pause + 0.37 * (turn % 5))
        began = datetime.now(UTC)
        land(root, range(turn, turn + 1))
        wait(state, lambda turn=turn: repaired(state, turn + 1))  # type: ignore[misc]
        delays["a late row"].append(parts(state, began))
    return delays


def parts(state: State, began: datetime) -> list[float]:
    row = state.database.connection.execute(PARTS.encode(), (began,)).fetchone()
    assert row is not None
    moments = [began, *row]
    steps = [(b - a).total_seconds() for a, b in pairwise(moments)]
    return [*steps, (moments[-1] - moments[0]).total_seconds()]


def main() -> None:
    options = arguments(__doc__ or "", quick="once, with an engine that needs no JVM")
    times, pause = (1, 0.1) if options.quick else (12, 2.0)
    with scratch() as root:
        build(root)
        support = str(Path(__file__).parent.parent / "tests" / "support")
        real = [sys.executable, "-m", "penstock.cli.main", "up", "--yes"]
        command = [sys.executable, "-c", SHORT, support, str(Path(__file__).parent)] if options.quick else real
        with (root / "up.log").open("wb") as log:
            process = subprocess.Popen(command, cwd=root, stdout=log, stderr=subprocess.STDOUT)
            try:
                with open_workspace(root, os.environ) as workspace:
                    delays = measured(root, workspace.state, times, pause)
            finally:
                process.terminate()
                process.wait(60)
    rows = [
        [kind, name, *(f"{percentile([delay[i] for delay in each], share):.2f}" for share in (0.5, 0.9))]
        for kind, each in delays.items()
        for i, name in enumerate(NAMES)
    ]
    columns = ("what", "part", "seconds p50", "p90")
    report("freshness under penstock up (two chained models, small data)", columns, rows, options.json)


if __name__ == "__main__":
    main()
