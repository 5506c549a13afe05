"""Schedulers and workers with real Spark under everything at once: do they reach quiet by themselves, and exactly?

Two schedulers, two workers, somebody who writes into our tables, rows that are corrected, kills, sleeps longer than a
lease, and a PostgreSQL that is restarted; nobody runs or resumes anything. It starts many JVMs and is the last part of
`make chaos`: PENSTOCK_CHAOS_SECONDS says how long both servers together, PENSTOCK_SEED tells a story again.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom
from threading import Event

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deployment import Deployment, commit
from number_deployment import NumberDeployment
from number_models import MODELS
from postgres_server import PostgresServer, own_server
from processes import Resident, Residents, Role, unrest

from penstock.answers.status import status
from penstock.embedded.polling import poll
from penstock.embedded.server import EmbeddedPostgres
from penstock.runtime.place.workspace import Workspace
from penstock.state.store import State

SECONDS = float(os.environ.get("PENSTOCK_CHAOS_SECONDS", "0")) / 2
QUIET_SECONDS = 600.0
ROLES: tuple[Role, ...] = ("scheduler", "scheduler", "worker", "worker")
pytestmark = pytest.mark.skipif(not SECONDS, reason="make chaos runs it: it takes minutes")


class Own:
    """A server of one's own, restarted by whoever looks after it."""

    def __init__(self, server: PostgresServer, dice: Random) -> None:
        self._server, self._dice = server, dice

    def restart(self) -> str:
        how = self._dice.choice(("crash", "kill", "stop"))
        getattr(self._server, how)()
        Event().wait(self._dice.uniform(0.2, 3))
        self._server.start()
        return how


class Embedded:
    """The server that a project has by itself, brought back by the processes that miss it."""

    def __init__(self, trial: Deployment, dice: Random) -> None:
        self._trial, self._dice = trial, dice

    def restart(self) -> str:
        lost, how = self._pid(), self._dice.choice((signal.SIGKILL, signal.SIGQUIT, signal.SIGINT))
        if lost is None:
            return "is down already"
        with suppress(ProcessLookupError):
            os.kill(lost, how)
        assert poll(lambda: self._pid() not in (None, lost) or None, 60), "nobody brought the server back"
        return how.name

    def _pid(self) -> int | None:
        return EmbeddedPostgres.inspect(self._trial.root, self._trial.environ).running_pid


@dataclass
class Storm:
    """What happens, chosen by dice."""

    world: NumberDeployment
    server: Own | Embedded
    dice: Random
    began: float = field(default_factory=time.monotonic)
    log: list[str] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)
    wrongly_ok: list[str] = field(default_factory=list)
    asleep: dict[Resident, float] = field(default_factory=dict)

    def tell(self, text: str) -> None:
        self.log.append(f"{time.monotonic() - self.began:6.1f} {text}")

    def run(self, seconds: float) -> None:
        for role in ROLES:
            self.start(role)
        faults: tuple[Callable[[], None], ...] = (self.kill, self.sleep, self.restart_server, self.write_into_ours)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.live(self.dice.uniform(2, 10))  # a JVM must have time to start, now and then
            fault = self.dice.choice(faults)
            self.happened[fault.__name__] += 1
            fault()

    def live(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            Event().wait(min(left, 0.5))
            self.world.grow(self.dice.randrange(1, 20))
            if self.dice.random() < 0.1:
                self.correct()
            for one, end in tuple(self.asleep.items()):
                if time.monotonic() > end:
                    self.wake(one)
        with self.world.trial.opened() as workspace:
            self.wrongly_ok += resting_on_work(workspace)

    def start(self, role: Role) -> None:
        options = ("--spark", "--concurrency", "1") if role == "worker" else ()
        self.tell(f"{self.world.residents.start(role, *options).name} starts")

    def kill(self) -> None:
        one = self.dice.choice(self.world.residents.running())
        self.tell(f"kill -9 {one.name}")
        self.asleep.pop(one, None)
        one.kill()
        self.start(one.role)

    def sleep(self) -> None:
        awake = [one for one in self.world.residents.running() if one not in self.asleep]
        if awake:
            one = self.dice.choice(awake)
            self.tell(f"SIGSTOP {one.name}")
            one.stop()
            self.asleep[one] = time.monotonic() + self.dice.uniform(2, 10)

    def wake(self, one: Resident) -> None:
        """It slept through its lease."""
        del self.asleep[one]
        self.world.expire(one)
        self.tell(f"{one.name} wakes")
        one.go_on()

    def restart_server(self) -> None:
        self.tell(f"server: {self.server.restart()}")

    def write_into_ours(self) -> None:
        """Rows that no task of ours made, among those that are covered."""
        name = self.dice.choice(sorted(self.world.names))
        generation, place = self.world.trial.current(name), self.world.trial.place(name)
        if generation.covered and DeltaTable.is_deltatable(place):
            part = self.dice.choice(list(generation.covered))
            at = self.dice.randrange(part.start, part.end)
            self.tell(f"somebody writes into t.{name} at {at}")
            with suppress(CommitFailedError):  # a worker of ours came first
                commit(place, {"n": [at], "value": [-1]})

    def correct(self) -> None:
        """Rows of the source change; nobody says so but its log."""
        values = self.world.values
        start = self.dice.randrange(len(values))
        end = min(len(values), start + self.dice.randrange(1, 30))
        factor = self.dice.randrange(8, 12)
        self.tell(f"rows {start}..{end} become n * {factor}")
        landing = DeltaTable(str(self.world.trial.landing("numbers")))
        landing.update({"value": f"n * {factor}"}, predicate=f"n >= {start} and n < {end}")
        values[start:end] = [n * factor for n in range(start, end)]

    def heal(self) -> None:
        self.tell("all is well again")
        for one in tuple(self.asleep):
            self.wake(one)


def resting_on_work(workspace: Workspace) -> list[str]:
    """Models that are said to be fine beside ranges that are stale or missing."""
    models = status(workspace.resolver, workspace.state.views.whole(), ())["models"]
    assert isinstance(models, list)
    return [
        f"{one['name']} is ok with the gaps {one['gaps']}, stale {one['stale']}: {one['reason']}"
        for one in models
        if one["type"] != "source" and one["health"] == "ok" and (one["gaps"] or one["stale"])
    ]


def not_well(workspace: Workspace) -> str | None:
    """Why the deployment has not come to rest; None when every model is fine and every commit was audited."""
    if (complaint := unrest(workspace)) is not None:
        return complaint
    world = workspace.state.views.whole()
    models = status(workspace.resolver, world, ())["models"]
    assert isinstance(models, list)
    for one in models:
        if one["type"] != "source" and one["health"] != "ok":
            return f"{one['name']} is {one['health']}: {one['reason']}"
    for name, generation in world.current.items():
        place = workspace.resolver.table(generation.location)
        head = DeltaTable(place).version() if DeltaTable.is_deltatable(place) else None
        if head is not None and (generation.audited_snapshot or 0) < head:
            return f"{name} is audited up to {generation.audited_snapshot}, and is at {head}"
    return None


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("PENSTOCK_SEED") or SystemRandom().randrange(10**6))
    sys.stdout.write(f"PENSTOCK_SEED={chosen}\n")
    return chosen


@pytest.fixture(params=["own", "embedded"])
def storm(request: pytest.FixtureRequest, tmp_path: Path, seed: int) -> Iterator[Storm]:
    dice, root = Random(seed), tmp_path / "project"
    if request.param == "embedded":
        trial = Deployment(root, "")
        trial.write("penstock.yml", "name: trial\ndatabases: {external: raw, transformation: t}\n")
        with Residents(trial, tmp_path / "logs") as residents:
            yield Storm(NumberDeployment(trial, residents), Embedded(trial, dice), dice)
        return
    with own_server() as server:
        State.migrated(server.dsn, "chaos")
        trial = Deployment(root, server.dsn, "chaos")
        with Residents(trial, tmp_path / "logs") as residents:
            yield Storm(NumberDeployment(trial, residents), Own(server, dice), dice)


@pytest.mark.timeout(SECONDS + QUIET_SECONDS + 300)
def test_residents_with_spark_reach_quiet_by_themselves_and_every_table_is_exact(storm: Storm, seed: int) -> None:
    world = storm.world
    world.grow(50)
    world.models(*MODELS)
    storm.run(SECONDS)
    storm.heal()
    began = time.monotonic()
    told = f"PENSTOCK_SEED={seed} {dict(storm.happened)}\n" + "\n".join(storm.log)
    try:
        world.residents.wait_until(not_well, QUIET_SECONDS)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{told}") from None
    sys.stdout.write(
        f"{dict(storm.happened)}, {len(world.values)} rows, quiet after {time.monotonic() - began:.0f} s\n"
    )
    world.excuse()
    found = [*storm.wrongly_ok, *world.violations()]
    assert not found, "\n".join([*found, told, world.residents.tails()])
    assert all(one.terminate() == 0 for one in world.residents.running()), told
