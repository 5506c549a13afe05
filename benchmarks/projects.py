"""What does a project of 2,000 models and 100 sources cost: to read, to show, to schedule, to leave alone?"""

from __future__ import annotations

import os
import resource
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from idle_up import cpu_seconds
from penstock.embedded.server import EmbeddedPostgres
from penstock.runtime.place.workspace import open_workspace
from penstock.runtime.process.progress import Silent
from penstock.runtime.serve.run import observe
from places import scratch
from results import arguments, report

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from deployment import commit

SETTLE_SECONDS = 20.0
"""The first rounds look at everything."""
QUERY = """select n, sum(value) as value, max(case when value > {{{{ var('least') }}}} then 1 end) as large_{number}
from {{{{ ref('{parent}') }}}}
where value is not null and value not in (1, 2, 3)
group by n, value
"""


@dataclass(frozen=True, slots=True)
class Size:
    models: int
    sources: int
    idle_seconds: float


def write(root: Path, size: Size) -> None:
    """Half of the models read a source, the others read one of those."""
    for folder in ("external", "transformations"):
        (root / "models" / folder).mkdir(parents=True)
    (root / "penstock.yml").write_text(
        "name: large\ndatabases: {external: raw, transformation: t}\nvars: {least: 10}\n"
    )
    for number in range(size.sources):
        commit(root / "landing" / f"s{number:03}", {"n": range(100), "value": range(100)})
        text = f"location: ./landing/s{number:03}\nposition: n\naxis: number\ncompleteness: inclusive\n"
        (root / f"models/external/s{number:03}.yml").write_text(text)
    half = size.models // 2
    for number in range(size.models):
        parent = f"raw.s{number % size.sources:03}" if number < half else f"t.m{number - half:04}"
        keys = f"description: model {number}\nposition: n\ninterval: 100\ntags: [t{number % 7}]\n"
        query = QUERY.format(parent=parent, number=number)
        (root / f"models/transformations/m{number:04}.sql").write_text(f"---\n{keys}---\n{query}")


def environment() -> dict[str, str]:
    # as at a person's terminal: compiled modules are kept
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def command(root: Path, *typed: str) -> tuple[float, float]:
    """Wall and CPU seconds of one command, the embedded server's work for it included."""
    server = EmbeddedPostgres.inspect(root, os.environ).running_pid
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    spent = cpu_seconds(server) if server else 0.0
    program = [sys.executable, "-m", "penstock.cli.main", *typed]
    subprocess.run(program, cwd=root, env=environment(), stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    own = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    still = EmbeddedPostgres.inspect(root, os.environ).running_pid
    return wall, own + (cpu_seconds(server) - spent if server and still == server else 0.0)


def forget(root: Path) -> None:
    shutil.rmtree(root / ".penstock" / "cache", ignore_errors=True)


def edit(root: Path) -> None:
    file = root / "models/transformations/m0000.sql"
    file.write_text(file.read_text() + f"-- {time.time()}\n")


def build(root: Path) -> None:
    """Every table as if it had been computed: there is nothing to do, and much to look after."""
    with open_workspace(root, os.environ) as workspace:
        observe(workspace, Silent())
        for generation in workspace.state.views.whole().current.values():
            commit(workspace.resolver.table(generation.location), {"n": range(100), "value": range(100)})
        connection = workspace.state.database.connection
        connection.execute("update generation set accepted_snapshot = 0, audited_snapshot = 0")
        connection.execute(
            "insert into folded (generation, through, covered, stale) select no, 0, '{0,100}', '{}' from generation"
        )


def scheduled(root: Path, idle_seconds: float) -> list[list[object]]:
    """A scheduler from its start until it is ready, and then with nothing to do."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = [sys.executable, "-m", "penstock.cli.main", "scheduler", "--address", f"127.0.0.1:{port}"]
    began = time.perf_counter()
    with (root / "scheduler.log").open("wb") as log:
        process = subprocess.Popen(program, cwd=root, env=environment(), stdout=log, stderr=subprocess.STDOUT)
        try:
            until(lambda: ready(port), process, root / "scheduler.log")
            wall = time.perf_counter() - began
            server = EmbeddedPostgres.inspect(root, os.environ).running_pid
            assert server is not None
            started = cpu_seconds(process.pid) + cpu_seconds(server)
            quiet(process.pid, server)
            before, began = (cpu_seconds(process.pid), cpu_seconds(server)), time.perf_counter()
            time.sleep(idle_seconds)
            taken = time.perf_counter() - began
            used = (cpu_seconds(process.pid) - before[0], cpu_seconds(server) - before[1])
        finally:
            process.terminate()
            process.wait(120)
    return [
        ["scheduler, until it is ready", f"{wall:.1f}", f"{started:.1f}", ""],
        ["scheduler, idle", f"{taken:.0f}", f"{used[0]:.2f}", f"{used[0] / taken:.2%}"],
        ["its PostgreSQL, idle", f"{taken:.0f}", f"{used[1]:.2f}", f"{used[1] / taken:.2%}"],
    ]


def ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def until(holds: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 600
    while not holds():
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-2000:]
        time.sleep(0.05)


def quiet(*pids: int) -> None:
    """Until the first rounds are over: less than a tenth of a core for some seconds."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        before = sum(map(cpu_seconds, pids))
        time.sleep(SETTLE_SECONDS)
        if sum(map(cpu_seconds, pids)) - before < SETTLE_SECONDS / 10:
            return


def measured(root: Path, size: Size) -> list[list[object]]:
    rows: list[list[object]] = []

    def row(what: str, *typed: str, first: Callable[[Path], None] | None = None) -> None:
        if first is not None:
            first(root)
        wall, cpu = command(root, *typed)
        rows.append([what, f"{wall:.2f}", f"{cpu:.2f}", ""])

    row("validate, first time", "validate", first=forget)
    row("validate, nothing changed", "validate")
    row("validate, one file changed", "validate", first=edit)
    row("apply", "apply", "--yes")
    row("status, first time", "status", first=forget)
    row("status, nothing changed", "status")
    build(root)
    return rows + scheduled(root, size.idle_seconds)


def main() -> None:
    options = arguments(__doc__ or "", quick="200 models, 10 sources, five seconds of rest")
    size = Size(200, 10, 5.0) if options.quick else Size(2000, 100, 60.0)
    with scratch() as root:
        write(root, size)
        rows = measured(root, size)
    columns = ("what", "wall s", "CPU s", "of one core")
    report(f"{size.models} models, {size.sources} sources", columns, rows, options.json)


if __name__ == "__main__":
    main()
