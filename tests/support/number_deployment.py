"""A deployment of models over numbers, the processes that work on it, and what its tables must hold in the end."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from deployment import Deployment
from number_models import MODELS
from processes import Resident, Residents

from penstock.runtime.place.workspace import apply
from penstock.values.intervals import IntervalSet, ranges

CONFIG = """
defaults: {retries: 20}
worker: {concurrency: 2, shutdown_timeout: 10 seconds}
scheduler: {sweep: 5 seconds, repair_delay: 1 second}
"""
Rows = list[tuple[object, ...]]


def expected(values: list[int]) -> dict[str, tuple[Rows, IntervalSet]]:
    """Every table, computed in the plainest way there is, and the positions that it must cover."""
    v, size = values, len(values)

    def whole(chunk: int) -> int:
        return size // chunk * chunk

    def upto(end: int) -> IntervalSet:
        return ranges((0, end)) if end else ranges()

    return {
        "copy": ([(n, v[n]) for n in range(whole(10))], upto(whole(10))),
        "buckets": ([(n, sum(v[n : n + 10])) for n in range(0, size, 10)], upto(size)),
        "rolling": ([(n, sum(v[max(0, n - 14) : n + 1])) for n in range(whole(20))], upto(whole(20))),
        "totals": ([(n, sum(v[n : n + 40])) for n in range(0, whole(40), 40)], upto(whole(40))),
    }


class NumberDeployment:
    """A deployment, the processes that work on it, and what its tables must hold."""

    def __init__(self, trial: Deployment, residents: Residents) -> None:
        self.trial, self.residents = trial, residents
        trial.write("penstock.yml", (trial.root / "penstock.yml").read_text() + CONFIG)
        self.values: list[int] = []
        self.excused: frozenset[int] = frozenset()
        """Dead tasks that died as they should."""
        self.trial.source("numbers", settings="axis: number\nscan: {incremental: 1 second}\n")

    def models(self, *names: str, matter: str = "") -> None:
        for name in names:
            sql, settings = MODELS[name]
            self.trial.model(name, sql, f"{settings}\n{matter}".rstrip())
        self.names = names
        with self.trial.opened() as workspace:
            apply(workspace)

    def grow(self, count: int) -> None:
        start = len(self.values)
        self.trial.land("numbers", range(start, start + count))
        self.values += [n * 7 for n in range(start, start + count)]

    def expire(self, sleeper: Resident) -> None:
        """The lease of whatever a stopped worker holds runs out now, unless it sleeps inside of its transaction."""
        self.trial.execute(
            "update task set lease_expires_at = clock() where id in (select id from task where state = 'running' "
            f"and worker in (select id from worker where (info ->> 'pid')::int = {sleeper.pid}) for update skip locked)"
        )

    def excuse(self) -> None:
        """Find the tasks that are rightly dead: they lost two workers in a row, the first of which is gone for good.

        Whether the second one only lost its connection could not be known yet.
        """
        killed = ",".join(str(resident.pid) for resident in self.residents.all if resident.was_killed)
        rows = self.trial.execute(
            "select t.id from task t join attempt a on a.task = t.id and a.n = t.attempt - 1 and a.outcome = 'lost' "
            f"join worker w on w.id = a.worker and (w.info ->> 'pid')::int in ({killed or 'null'}) "
            "join attempt b on b.task = t.id and b.n = t.attempt and b.outcome = 'lost' and b.worker <> a.worker "
            "where t.state = 'dead'"
        )
        self.excused = frozenset(int(str(task)) for (task,) in rows)

    def violations(self) -> list[str]:
        """Everything that must hold when it is quiet, and does not."""
        problems = [
            f"{resident.name} ended by itself with {resident.exit_code}"
            for resident in self.residents.ended_by_themselves()
        ]
        wanted = expected(self.values)
        with self.trial.opened() as workspace:
            view = workspace.state.views.whole()
            tasks = {str(task.uuid): task for task in workspace.state.history.tasks(None, False, True, 100_000)}
        for name in self.names:
            rows, covered = wanted[name]
            generation = view.current[f"t.{name}"]
            if self.trial.rows(name) != rows:
                problems.append(f"t.{name} holds {_difference(self.trial.rows(name), rows)}")
            if generation.covered != covered or generation.stale:
                problems.append(f"t.{name} covers {generation.covered}, stale {generation.stale}, wanted {covered}")
            for task, commits in _commits(Path(self.trial.place(name))).items():
                if commits > 1:
                    problems.append(f"task {tasks[task].id} of t.{name} has {commits} commits")
                if tasks[task].state != "succeeded" and tasks[task].id not in self.excused:
                    problems.append(f"task {tasks[task].id} of t.{name} has a commit and is {tasks[task].state}")
        dead = [task for task in tasks.values() if task.state == "dead" and task.id not in self.excused]
        return problems + [f"task {task.id} of {task.order.model} is dead: {self.history(task.id)}" for task in dead]

    def history(self, task: int) -> str:
        """How its attempts ended, and in which processes."""
        names = {resident.pid: resident.name for resident in self.residents.all}
        rows = self.trial.execute(
            "select a.outcome, a.error, a.started_at::time(1), a.ended_at::time(1), (w.info ->> 'pid')::int, "
            "w.heartbeat_at::time(1) from attempt a left join worker w on w.id = a.worker "
            f"where task = {task} order by n"
        )
        return "; ".join(
            f"{outcome} {began}-{ended} by {names.get(int(str(pid or 0)))} (heard of at {heard}): {error}"
            for outcome, error, began, ended, pid, heard in rows
        )


def _commits(table: Path) -> Counter[str]:
    """How many commits each task has in the log."""
    commits: Counter[str] = Counter()
    for file in (table / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        commits.update(action["txn"]["appId"] for action in actions if "txn" in action)
    return commits


def _difference(rows: Rows, wanted: Rows) -> str:
    here, there = Counter(rows), Counter(wanted)
    missing, unexpected = sorted((there - here).elements()), sorted((here - there).elements())
    return f"{len(missing)} rows too few {missing[:5]} and {len(unexpected)} too many {unexpected[:5]}"


def is_stopped(resident: Resident) -> bool:
    try:
        return Path(f"/proc/{resident.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False
