"""Real schedulers and workers, and everything that can happen to them at once: is every table exact in the end?

A story is told by its seed: PENSTOCK_SEED=17 tells it again, as far as real processes do; PENSTOCK_CHAOS_SECONDS says
how long it is.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom
from threading import Event

import pytest
from deltalake import DeltaTable
from deployment import Deployment
from network import Proxy
from number_models import MODELS
from postgres_server import PostgresServer, own_server
from processes import Resident, Residents, Role

from penstock.intervals import IntervalSet, ranges
from penstock.runtime.workspace import Workspace, apply
from penstock.state.embedded.patience import poll
from penstock.state.embedded.server import EmbeddedPostgres
from penstock.state.store import State

SECONDS = float(os.environ.get("PENSTOCK_CHAOS_SECONDS", "40"))
SCHEMA = "chaos"
STEPS = ("claimed", "intended", "computed", "files written", "staged", "locked", "table created", "head loaded",
         "delta committed", "recorded", "published")  # fmt: skip
SCHEDULER_STEPS = ("looked", "reaped", "event read", "settled", "ordered", "enqueued")
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


@dataclass(frozen=True)
class Network:
    """A server of the test's own, and the way to it that can break."""

    server: PostgresServer
    proxy: Proxy


class World:
    """A deployment, the processes that work on it, and what its tables must hold."""

    def __init__(self, trial: Deployment, residents: Residents) -> None:
        self.trial, self.residents = trial, residents
        trial.write("penstock.yml", (trial.root / "penstock.yml").read_text() + CONFIG)
        self.values: list[int] = []
        self.excused: frozenset[int] = frozenset()
        """Dead tasks that died as they should."""
        self.trial.source("numbers", more="axis: number\nscan: {incremental: 1 second}\n")

    def models(self, *names: str, matter: str = "") -> None:
        for name in names:
            sql, more = MODELS[name]
            self.trial.model(name, sql, f"{more}\n{matter}".rstrip())
        self.names = names
        with self.trial.opened() as workspace:
            apply(workspace)

    def grow(self, more: int) -> None:
        start = len(self.values)
        self.trial.land("numbers", range(start, start + more))
        self.values += [n * 7 for n in range(start, start + more)]

    def expire(self, sleeper: Resident) -> None:
        """The lease of whatever a stopped worker holds runs out now, unless it sleeps inside of its transaction."""
        self.trial.execute(
            "update task set lease_expires_at = clock() where id in (select id from task where state = 'running' "
            f"and worker in (select id from worker where (info ->> 'pid')::int = {sleeper.pid}) for update skip locked)"
        )

    def let_go(self) -> None:
        """What a person does about tasks in quarantine.

        Rightly there are those that lost two workers in a row, the first of which is gone for good. Whether the second
        one only lost its connection could not be known yet.
        """
        killed = ",".join(str(one.pid) for one in self.residents.all if one.was_killed)
        rows = self.trial.execute(
            "select t.id from task t join attempt a on a.task = t.id and a.n = t.attempt - 1 and a.outcome = 'lost' "
            f"join worker w on w.id = a.worker and (w.info ->> 'pid')::int in ({killed or 'null'}) "
            "join attempt b on b.task = t.id and b.n = t.attempt and b.outcome = 'lost' and b.worker <> a.worker "
            "where t.state = 'dead' and t.held_until = 'infinity'"
        )
        self.excused = frozenset(int(str(task)) for (task,) in rows)
        with self.trial.opened() as workspace:
            for task in self.excused:
                workspace.state.resume_task(task, "test")

    def violations(self) -> list[str]:
        """Everything that must hold when it is quiet, and does not."""
        found = [f"{one.name} ended by itself with {one.exit_code}" for one in self.residents.ended_by_themselves()]
        wanted = expected(self.values)
        with self.trial.opened() as workspace:
            world = workspace.state.world()
            tasks = {str(task.uuid): task for task in workspace.state.tasks(None, False, True, 100_000)}
        for name in self.names:
            rows, covered = wanted[name]
            generation = world.current[f"t.{name}"]
            if self.trial.rows(name) != rows:
                found.append(f"t.{name} holds {_difference(self.trial.rows(name), rows)}")
            if generation.covered != covered or generation.stale:
                found.append(f"t.{name} covers {generation.covered}, stale {generation.stale}, wanted {covered}")
            for task, commits in _commits(Path(self.trial.place(name))).items():
                if commits > 1:
                    found.append(f"task {tasks[task].id} of t.{name} has {commits} commits")
                if tasks[task].state != "succeeded" and tasks[task].id not in self.excused:
                    found.append(f"task {tasks[task].id} of t.{name} has a commit and is {tasks[task].state}")
        dead = [task for task in tasks.values() if task.state == "dead" and task.id not in self.excused]
        return found + [f"task {task.id} of {task.order.model} is dead: {self.history(task.id)}" for task in dead]

    def history(self, task: int) -> str:
        """How its attempts ended, and in which processes."""
        names = {one.pid: one.name for one in self.residents.all}
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
    found: Counter[str] = Counter()
    for file in (table / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        found.update(action["txn"]["appId"] for action in actions if "txn" in action)
    return found


def _difference(rows: Rows, wanted: Rows) -> str:
    here, there = Counter(rows), Counter(wanted)
    missing, unexpected = sorted((there - here).elements()), sorted((here - there).elements())
    return f"{len(missing)} rows too few {missing[:5]} and {len(unexpected)} too many {unexpected[:5]}"


@pytest.fixture
def network() -> Iterator[Network]:
    with own_server() as server, Proxy("127.0.0.1", server.port) as proxy:
        yield Network(server, proxy)


@pytest.fixture
def world(network: Network, tmp_path: Path) -> Iterator[World]:
    server, proxy = network.server, network.proxy
    State.migrated(server.dsn, SCHEMA)
    trial = Deployment(tmp_path / "project", server.dsn, SCHEMA)
    with Residents(trial, tmp_path / "logs", server.dsn_at(proxy.host, proxy.port)) as residents:
        yield World(trial, residents)


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[World]:
    """The same with the server that a project has by itself."""
    trial = Deployment(tmp_path / "project", "")
    trial.write("penstock.yml", "name: trial\ndatabases: {external: raw, transformation: t}\n")
    with Residents(trial, tmp_path / "logs") as residents:
        yield World(trial, residents)


class Chaos:
    """What happens, chosen by dice."""

    def __init__(self, world: World, network: Network, seed: int) -> None:
        self.world, self.server, self.proxy, self.began = world, network.server, network.proxy, time.monotonic()
        # one for each subject: how often rows land must not decide what happens to whom
        self.dice, self.fates, self.data = (Random(f"{seed} {subject}") for subject in ("faults", "fates", "data"))
        self.residents = world.residents
        self.log: list[str] = []
        self.happened: Counter[str] = Counter()
        self.asleep: dict[Resident, float] = {}
        self.dead: set[Resident] = set()
        self.corrections: list[tuple[int, int, int]] = []
        self.pause = Event()

    def tell(self, text: str) -> None:
        self.log.append(f"{time.monotonic() - self.began:6.1f} {text}")

    def run(self, seconds: float) -> None:
        roles: tuple[Role, ...] = ("scheduler", "scheduler", "worker", "worker", "worker")
        for role in roles:
            self.start(role)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            faults = (self.crash_server, self.kill, self.sleep, self.cut, self.hang, self.lose_answer, self.fill_disk)
            fault = self.dice.choice(faults)
            self.happened[fault.__name__] += 1
            fault()
            self.live(self.dice.uniform(0.5, 2.5))

    def live(self, seconds: float) -> None:
        """Time passes: rows land, are corrected, and whoever fell asleep or died at a step is tended."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.pause.wait(min(left, 0.2))
            if self.data.random() < 0.7:
                self.world.grow(self.data.randrange(1, 12))
            elif self.data.random() < 0.2:
                self.correct()
            self.tend()

    # what happens to the processes

    def start(self, role: Role) -> None:
        """Many a process will die or fall asleep at some step."""
        step = f"{self.fates.choice(STEPS if role == 'worker' else SCHEDULER_STEPS)}:{self.fates.randrange(1, 12)}"
        options = self.fates.choice([(), ("--die", step), ("--stop", step)])
        started = self.residents.start(role, *options)
        self.tell(f"{started.name} starts {' '.join(options)}")

    def tend(self) -> None:
        for one in self.residents.running():
            if one not in self.asleep and _is_stopped(one):
                self.tell(f"{one.name} fell asleep")
                one.stopped = True
                self.asleep[one] = time.monotonic() + self.fates.uniform(1, 4)
        for one, until in tuple(self.asleep.items()):
            if time.monotonic() > until:
                self.wake(one)
        for one in self.residents.all:
            if one.was_killed and one not in self.dead:  # by itself, as it was told
                self.dead.add(one)
                self.tell(f"{one.name} died at its step")
                self.happened["died at a step"] += 1
                self.start(one.role)

    def wake(self, one: Resident) -> None:
        """It slept through its lease."""
        del self.asleep[one]
        if self.server.running:
            self.world.expire(one)
            self.pause.wait(self.fates.uniform(0, 1))
        self.tell(f"{one.name} wakes")
        one.go_on()

    def kill(self) -> None:
        one = self.dice.choice([*self.residents.running("worker"), *self.residents.running("scheduler")])
        self.tell(f"kill -9 {one.name}")
        self.asleep.pop(one, None)
        self.dead.add(one)
        one.kill()
        self.start(one.role)

    def sleep(self) -> None:
        awake = [one for one in self.residents.running() if not _is_stopped(one)]
        if awake:
            one = self.dice.choice(awake)
            self.tell(f"SIGSTOP {one.name}")
            one.stop()
            self.asleep[one] = time.monotonic() + self.dice.uniform(1, 4)

    def fill_disk(self) -> None:
        one = self.dice.choice(self.residents.running("worker"))
        self.tell(f"the disk of {one.name} is full")
        one.fill_disk(self.dice.choice((0, 300, 700)))
        self.live(self.dice.uniform(0.5, 2))
        one.free_disk()

    # what happens to the database and the network

    def crash_server(self) -> None:
        how = self.dice.choice(("crash", "kill", "stop"))
        self.tell(f"server: {how}")
        getattr(self.server, how)()
        self.live(self.dice.uniform(0.2, 2))
        self.server.start()
        self.tell("server starts")

    def cut(self) -> None:
        self.tell("network cut")
        self.proxy.cut()
        self.live(self.dice.uniform(0.2, 2))
        self.proxy.heal()

    def hang(self) -> None:
        self.tell("network hangs")
        self.proxy.hang()
        self.live(self.dice.uniform(0.5, 3))
        self.proxy.heal()

    def lose_answer(self) -> None:
        self.tell("an answer to COMMIT gets lost")
        self.proxy.lose_next_answer(after=b"COMMIT")
        self.live(self.dice.uniform(0.5, 2))
        self.tell("it was lost" if self.proxy.lost.is_set() else "nobody asked")

    # what happens to the data

    def correct(self) -> None:
        """Rows of the source change; whoever knows says so as soon as the new rows can be read."""
        values = self.world.values
        if not values:
            return
        start = self.data.randrange(len(values))
        end = min(len(values), start + self.data.randrange(1, 30))
        factor = self.data.randrange(8, 12)
        self.tell(f"rows {start}..{end} become n * {factor}")
        landing = DeltaTable(str(self.world.trial.landing("numbers")))
        landing.update({"value": f"n * {factor}"}, predicate=f"n >= {start} and n < {end}")
        values[start:end] = [n * factor for n in range(start, end)]
        self.corrections.append((landing.version(), start, end))

    def say_corrections(self, workspace: Workspace) -> str | None:
        known = workspace.state.world().sources.get("raw.numbers")
        seen = -1 if known is None or known.snapshot is None else known.snapshot
        for one in tuple(self.corrections):
            snapshot, start, end = one
            if snapshot <= seen:
                for name in ("copy", "buckets"):
                    workspace.state.invalidate(f"t.{name}", ranges((start, end)), "correction", "test")
                self.corrections.remove(one)
        return f"{len(self.corrections)} corrections to tell of" if self.corrections else None

    def heal(self) -> None:
        """All is well again, and people who look after it let go of what was held."""
        self.tell("all is well again")
        if not self.server.running:
            self.server.start()
        self.proxy.heal()
        for one in tuple(self.asleep):
            self.wake(one)
        for one in self.residents.running():
            one.free_disk()
            if one.options:  # nobody dies at a step any more
                one.kill()
        for role in ("scheduler", "worker", "worker"):
            self.residents.start(role)


def _is_stopped(one: Resident) -> bool:
    try:
        return Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def test_schedulers_and_workers_fill_every_table_while_rows_land(world: World) -> None:
    world.models(*MODELS)
    roles = [world.residents.start(role) for role in ("scheduler", "scheduler", "worker", "worker")]
    for _ in range(3):
        world.grow(30)
        world.residents.wait_quiet(60)
    assert world.violations() == []
    assert [one.terminate() for one in roles] == [0, 0, 0, 0]


def test_processes_bring_back_the_embedded_server_that_they_lost(embedded: World) -> None:
    def server() -> int | None:
        """Without attaching: that alone would bring it back."""
        return EmbeddedPostgres.inspect(embedded.trial.root, embedded.trial.environ).running_pid

    embedded.models("copy", "rolling")
    embedded.grow(40)
    roles = [embedded.residents.start(role) for role in ("scheduler", "worker", "up")]
    embedded.residents.wait_quiet(60)
    for how in (signal.SIGKILL, signal.SIGQUIT):
        lost = server()
        assert lost is not None
        os.kill(lost, how)
        assert poll(lambda lost=lost: server() not in (None, lost) or None, 60), embedded.residents.tails()  # type: ignore[misc]
        embedded.grow(40)
        embedded.residents.wait_quiet(60)
    assert embedded.violations() == []
    assert [one.terminate() for one in roles] == [0, 0, 0]
    assert poll(lambda: server() is None or None, 20)


@pytest.mark.timeout(SECONDS + 300)
def test_whatever_happens_to_processes_server_and_network_every_table_is_exact(world: World, network: Network) -> None:
    seed = int(os.environ.get("PENSTOCK_SEED") or SystemRandom().randrange(10**6))
    sys.stdout.write(f"PENSTOCK_SEED={seed}\n")
    world.models(*MODELS)
    chaos = Chaos(world, network, seed)
    chaos.run(SECONDS)
    chaos.heal()
    told = f"PENSTOCK_SEED={seed} {dict(chaos.happened)}\n" + "\n".join(chaos.log)
    try:
        world.residents.wait_until(chaos.say_corrections, 60)
        world.residents.wait_quiet(150)
        world.let_go()
        world.residents.wait_quiet(60)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{told}") from None
    found = world.violations()
    assert not found, "\n".join([*found, told, world.residents.tails()])
    assert all(one.terminate() == 0 for one in world.residents.running()), told
