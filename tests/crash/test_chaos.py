"""Real schedulers and workers, and everything that can happen to them at once: is every table exact in the end?

A story is told by its seed: PENSTOCK_SEED=17 tells it again, as far as real processes do; PENSTOCK_CHAOS_SECONDS says
how long it is.
"""

from __future__ import annotations

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
from number_deployment import NumberDeployment, is_stopped
from number_models import MODELS
from postgres_server import PostgresServer, own_server
from processes import Resident, Residents, Role

from penstock.embedded.polling import poll
from penstock.embedded.server import EmbeddedPostgres
from penstock.runtime.place.workspace import Workspace
from penstock.state.store import State
from penstock.values.intervals import ranges

SECONDS = float(os.environ.get("PENSTOCK_CHAOS_SECONDS", "20"))
SCHEMA = "chaos"
STEPS = ("claimed", "intended", "computed", "files written", "staged", "locked", "table created", "head loaded",
         "delta committed", "recorded", "published")  # fmt: skip
SCHEDULER_STEPS = ("looked", "reaped", "event read", "settled", "ordered", "enqueued")


@dataclass(frozen=True)
class Network:
    """A server of the test's own, and the way to it that can break."""

    server: PostgresServer
    proxy: Proxy


@pytest.fixture
def network() -> Iterator[Network]:
    with own_server() as server, Proxy("127.0.0.1", server.port) as proxy:
        yield Network(server, proxy)


@pytest.fixture
def world(network: Network, tmp_path: Path) -> Iterator[NumberDeployment]:
    server, proxy = network.server, network.proxy
    State.migrated(server.dsn, SCHEMA)
    trial = Deployment(tmp_path / "project", server.dsn, SCHEMA)
    with Residents(trial, tmp_path / "logs", server.dsn_at(proxy.host, proxy.port)) as residents:
        yield NumberDeployment(trial, residents)


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[NumberDeployment]:
    """The same with the server that a project has by itself."""
    trial = Deployment(tmp_path / "project", "")
    trial.write("penstock.yml", "name: trial\ndatabases: {external: raw, transformation: t}\n")
    with Residents(trial, tmp_path / "logs") as residents:
        yield NumberDeployment(trial, residents)


class Chaos:
    """What happens, chosen by dice."""

    def __init__(self, world: NumberDeployment, network: Network, seed: int) -> None:
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
            if one not in self.asleep and is_stopped(one):
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
        awake = [one for one in self.residents.running() if not is_stopped(one)]
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
        known = workspace.state.views.whole().sources.get("raw.numbers")
        seen = -1 if known is None or known.snapshot is None else known.snapshot
        for one in tuple(self.corrections):
            snapshot, start, end = one
            if snapshot <= seen:
                for name in ("copy", "buckets"):
                    workspace.state.invalidations.invalidate(f"t.{name}", ranges((start, end)), "correction", "test")
                self.corrections.remove(one)
        return f"{len(self.corrections)} corrections to tell of" if self.corrections else None

    def heal(self) -> None:
        """All is well again; nobody has to let go of what is held."""
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


def test_schedulers_and_workers_fill_every_table_while_rows_land(world: NumberDeployment) -> None:
    world.models(*MODELS)
    roles = [world.residents.start(role) for role in ("scheduler", "scheduler", "worker", "worker")]
    for _ in range(3):
        world.grow(30)
        world.residents.wait_quiet(60)
    assert world.violations() == []
    assert [one.terminate() for one in roles] == [0, 0, 0, 0]


def test_processes_bring_back_the_embedded_server_that_they_lost(embedded: NumberDeployment) -> None:
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
    assert embedded.violations() == [], embedded.residents.tails(40)
    assert [one.terminate() for one in roles] == [0, 0, 0]
    assert poll(lambda: server() is None or None, 20)


@pytest.mark.timeout(SECONDS + 300)
def test_whatever_happens_to_processes_server_and_network_every_table_is_exact(
    world: NumberDeployment, network: Network
) -> None:
    seed = int(os.environ.get("PENSTOCK_SEED") or SystemRandom().randrange(10**6))
    sys.stdout.write(f"PENSTOCK_SEED={seed}\n")
    world.models(*MODELS)
    chaos = Chaos(world, network, seed)
    chaos.run(SECONDS)
    chaos.heal()
    told = f"PENSTOCK_SEED={seed} {dict(chaos.happened)}\n" + "\n".join(chaos.log)
    try:
        world.residents.wait_until(chaos.say_corrections, 60)
        world.residents.wait_settled(240)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{told}") from None
    world.excuse()
    found = world.violations()
    assert not found, "\n".join([*found, told, world.residents.tails()])
    assert all(one.terminate() == 0 for one in world.residents.running()), told
