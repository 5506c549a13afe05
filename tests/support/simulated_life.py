"""What nature, people and bad luck do to a simulated deployment, and what must hold when they leave it alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import invariants
from memory_tables import Multiset
from oracle import holds
from simulated_project import DAY, HOUR, SECONDS, SOURCES, factor, revisions
from simulation import CALM, SCHEMA, Simulation, simulating
from turns import Process

from penstock.errors import ConflictError, UnknownModelError
from penstock.planner.change.consumers import affected
from penstock.planner.change.pins import InputChange
from penstock.planner.change.reach import carried, covered
from penstock.planner.observations import Observations
from penstock.planner.readiness.plan import plan
from penstock.state.pruning import prune
from penstock.values.intervals import EVERYTHING, MAX_POSITION, MIN_POSITION, NOTHING, IntervalSet
from penstock.values.tasks import Order

BEGINNING = 2 * DAY
"""Where the first rows lie; history may come below."""
PAUSES = ((1, 2), (5, 2), (12, 2), (31, 2), (65, 2), (130, 3), (700, 3), (3600, 4), (14400, 9))
"""Seconds between two bursts of turns, and how often."""


@dataclass
class Life:
    """One story, told by its seed."""

    simulation: Simulation
    landed: dict[str, int] = field(default_factory=dict)
    """By source: all rows below have come, or are late."""
    late: dict[str, list[int]] = field(default_factory=dict)
    lowest: dict[str, int] = field(default_factory=dict)
    expired: set[str] = field(default_factory=set)
    doomed: dict[str, int] = field(default_factory=dict)
    """By source: what lies below leaves next."""
    said: tuple[str, IntervalSet, str] | None = None
    """What somebody last said of a source: which, where, and the key."""

    def __post_init__(self) -> None:
        self.simulation.interfere = self.a_table_is_written_to
        for name in SOURCES:
            self.landed[name] = self.lowest[name] = BEGINNING + (HOUR if name == "primary" else 0)
            self.late[name] = []
            self._land(name, range(self.landed[name], self.landed[name] + 4))
            self.landed[name] += 4

    # telling

    def live(self, days: float) -> None:
        until = self.simulation.seconds + days * 86400
        while self.simulation.seconds < until:
            self.tick()

    def tick(self) -> None:
        sim, dice = self.simulation, self.simulation.dice
        if dice.random() < 0.7:
            sim.staff()
        for happening, odds in self._happenings():
            if dice.random() < odds:
                with suppress(ConflictError):  # somebody stands in the way; it is tried again some other time
                    happening()
        for _ in range(dice.choice((2, 5, 10, 25))):
            if not sim.turn():
                break
        sim.advance(
            dice.choices([pause for pause, _ in PAUSES], [weight for _, weight in PAUSES])[0] * dice.uniform(0.6, 1.4)
        )

    def _happenings(self) -> list[tuple[Callable[[], None], float]]:
        return [
            (self.rows_come, 0.6),
            (self.late_rows_come, 0.2),
            (self.rows_are_corrected, 0.12),
            (self.rows_vanish, 0.05),
            (self.rows_expire, 0.2),
            (self.history_comes, 0.02),
            (self.files_are_compacted, 0.04),
            (self.a_table_is_damaged, 0.03),
            (self.events_are_delayed, 0.1),
            (self.events_come_twice, 0.15),
            (self.history_is_pruned, 0.05),
            (self.somebody_reruns, 0.04),
            (self.somebody_reruns_all_below, 0.02),
            (self.somebody_resets, 0.02),
            (self.somebody_invalidates, 0.06),
            (self.somebody_cancels, 0.03),
            (self.somebody_pauses, 0.03),
            (self.somebody_resumes, 0.1),
            (self.somebody_applies, 0.03),
            (self.a_process_dies, 0.06),
            (self.a_process_stands_still, 0.06),
            (self.a_connection_breaks, 0.06),
        ]

    # nature

    @property
    def tip(self) -> int:
        return BEGINNING + int(self.simulation.seconds // SECONDS)

    def _land(self, name: str, positions: range | list[int]) -> None:
        dice = self.simulation.dice
        rows = [{"n": n, "value": dice.randrange(1000)} for n in positions]
        if rows:
            self.simulation.engine.land(place(name), rows)

    def rows_come(self) -> None:
        dice = self.simulation.dice
        for name in SOURCES:
            tip = self.tip if name != "primary" else self.tip - 2 * HOUR
            if dice.random() < 0.6 and tip > self.landed[name]:
                new = list(range(self.landed[name], tip))
                missing = [n for n in new if dice.random() < 0.04]
                self.late[name] += missing
                self._land(name, [n for n in new if n not in missing])
                self.landed[name] = tip

    def late_rows_come(self) -> None:
        name = self.simulation.dice.choice(SOURCES)
        if self.late[name]:
            self.simulation.tell(f"late rows of {name}: {self.late[name]}")
            self._land(name, self.late[name])
            self.late[name] = []

    def _window(self, name: str, longest: int = 20) -> IntervalSet:
        dice = self.simulation.dice
        low, high = self.lowest[name], self.landed[name]
        start = dice.randrange(low, high) if dice.random() < 0.3 else dice.randrange(max(low, high - DAY), high)
        return IntervalSet((start, start + dice.randrange(1, longest)))

    def rows_are_corrected(self) -> None:
        name = self.simulation.dice.choice(SOURCES)
        self._correct(name, self._window(name))

    def _correct(self, name: str, window: IntervalSet) -> None:
        sim = self.simulation
        sim.tell(f"{name} is corrected in {window}")
        rows = [{"n": n, "value": sim.dice.randrange(1000)} for n in _positions(window) if n < self.landed[name]]
        sim.engine.replace_rows(place(name), window, rows)

    def rows_vanish(self) -> None:
        sim, name = self.simulation, self.simulation.dice.choice(SOURCES)
        window = self._window(name, 8)
        sim.tell(f"{name} loses {window}")
        sim.engine.delete(place(name), window)

    def rows_expire(self) -> None:
        """The oldest rows leave, as a retention takes them, most often after they were touched once more."""
        sim, name = self.simulation, self.simulation.dice.choice(("numbers", *SOURCES))
        before = self.doomed.get(name)
        if before is None or before <= self.lowest[name]:
            self.doomed[name] = before = self.lowest[name] + sim.dice.randrange(1, 3 * HOUR)
            self._correct(name, IntervalSet((self.lowest[name], before)))
        elif before < self.landed[name] - HOUR and (self._is_asked_for(before) or sim.dice.random() < 0.2):
            sim.tell(f"{name} expires before {before}")
            self.late[name] = [n for n in self.late[name] if n >= before]
            sim.engine.delete(place(name), IntervalSet((MIN_POSITION, before)))
            self.lowest[name] = before
            self.expired.add(name)
            del self.doomed[name]

    def _is_asked_for(self, before: int) -> bool:
        """Somebody has asked for a chunk that lies below, and nobody has computed it yet."""
        work = self.simulation.state.views.whole().work.values()
        return any(tasks.queued and tasks.in_flight.within(MIN_POSITION, before) for tasks in work)

    def history_comes(self) -> None:
        sim, name = self.simulation, self.simulation.dice.choice(SOURCES)
        if name in self.expired:
            return  # what comes back below what has expired changes nothing
        low = self.lowest[name] - sim.dice.randrange(1, 2 * HOUR)
        sim.tell(f"{name} now begins at {low}")
        self._land(name, range(low, self.lowest[name]))
        self.lowest[name] = low

    def files_are_compacted(self) -> None:
        sim = self.simulation
        tables = {name: place(name) for name in SOURCES} if sim.dice.random() < 0.2 else self._tables()
        name, where = sim.dice.choice(sorted(tables.items()))
        if sim.engine.exists(where):
            sim.tell(f"{name} is compacted")
            sim.engine.compact(where)

    def a_table_is_damaged(self) -> None:
        """Another program writes into a table of ours, where it holds something or is about to."""
        sim = self.simulation
        name, where = sim.dice.choice(sorted(self._tables().items()))
        if name == "t.known" or not sim.engine.exists(where):
            return  # a keyed row that is taken away may stand for a row elsewhere, which is not computed again
        window = self._window("numbers", 12) & self._held(name, where)
        if window:
            sim.tell(f"{name} is damaged in {window}")
            if sim.dice.random() < 0.5:
                sim.engine.delete(where, window)
            else:
                sim.engine.replace_rows(where, window, [{"n": window.edges[0], "value": -5}])

    def _held(self, name: str, where: str) -> IntervalSet:
        """Without what a task has written there that was not accepted yet: nobody would notice."""
        sim, view = self.simulation, self.simulation.state.views.whole()
        commits = [
            snapshot.entry.commit for snapshot in sim.engine.snapshots(where) if snapshot.entry.commit is not None
        ]
        written = IntervalSet.of(chunk.interval for commit in commits for chunk in commit.chunks)
        work = view.work.get(name)
        return view.working[name].covered | ((work.in_flight if work else NOTHING) - written)

    def a_table_is_written_to(self) -> None:
        if self.simulation.dice.random() < 0.7:
            self.files_are_compacted()
        else:
            self.a_table_is_damaged()

    def _tables(self) -> dict[str, str]:
        """Those that somebody is just working on, if there are any: there it does most harm."""
        sim = self.simulation
        view = sim.state.views.whole()
        running = {name for name, work in view.work.items() if work.running}
        tables = {name: sim.resolver.table(generation.location) for name, generation in view.working.items()}
        return {name: where for name, where in tables.items() if name in running} or tables

    def events_are_delayed(self) -> None:
        """So they are handled late, and out of order."""
        self.simulation._execute(
            "update event set available_at = available_at + make_interval(secs => %s) where no %% 3 = %s",
            self.simulation.dice.choice((40, 400, 4000)),
            self.simulation.dice.randrange(3),
        )

    def events_come_twice(self) -> None:
        sim = self.simulation
        [[count]] = sim._execute("select count(*) from simulated_event")
        if isinstance(count, int) and count:
            sim._execute(
                "insert into event (id, kind, model, generation, table_id, snapshot, ranges) "
                "select id, kind, model, generation, table_id, snapshot, ranges from simulated_event "
                "order by no offset %s limit 3 on conflict do nothing",
                sim.dice.randrange(max(0, count - 40), count),
            )

    def history_is_pruned(self) -> None:
        prune(self.simulation.state.database, self.simulation.project.settings.scheduler.retention_seconds)

    # people

    def _model(self) -> str:
        return self.simulation.dice.choice(
            sorted(model.name for model in self.simulation.resolver.graph.interval_models)
        )

    def somebody_reruns(self) -> None:
        name, window = self._model(), self._window("numbers", DAY)
        self.simulation.tell(f"somebody reruns {name} in {window}")
        self.simulation.state.invalidations.invalidate(name, window, "rerun", "somebody")

    def somebody_reruns_all_below(self) -> None:
        """With all that hangs on it, whether rows differ or not."""
        sim, name, window = self.simulation, self._model(), self._window("numbers", DAY)
        view = sim.state.views.whole()
        scopes = carried(sim.resolver.graph, view, {name: window & covered(view, name)})
        sim.tell(f"somebody reruns {name} in {window} and all below: {sorted(scopes)}")
        sim.state.invalidations.invalidate_all(scopes, "rerun", "somebody", rows_unknown=True)

    def somebody_resets(self) -> None:
        sim, name = self.simulation, self._model()
        generation = sim.state.views.whole().current.get(name)
        if generation is None or generation.accepted_snapshot is None:
            return
        sim.tell(f"somebody resets {name}")
        with sim.state.generations.resetting(generation.no, "somebody") as resetting:
            resetting.record(sim.engine.delete(sim.resolver.table(generation.location), EVERYTHING))

    def somebody_invalidates(self) -> None:
        """Somebody who follows a source says what changed in it, sometimes twice."""
        sim, name = self.simulation, self.simulation.dice.choice(SOURCES)
        graph, record = sim.resolver.graph, sim.state.views.whole().sources.get(f"raw.{name}")
        if record is None or record.snapshot is None:
            return
        if not self.said or sim.dice.random() < 0.7:
            self.said = (f"raw.{name}", self._window(name), f"{sim.dice.randrange(8)}")
        source, window, key = self.said
        reach = {model.name: affected(model, graph.models[source], window) for model in graph.interval_models}
        change = (
            InputChange(source, None, record.table_id, record.snapshot)
            if source == record.model
            else InputChange(source, None, None, None)
        )
        sim.tell(f"somebody says that {source} changed in {window}, as {key}")
        sim.state.events.ask_consumers(change, window, reach, "somebody says so", "somebody", key=key)

    def somebody_cancels(self) -> None:
        name = self._model()
        count = self.simulation.state.control.cancel_model(name, "somebody")
        self.simulation.tell(f"somebody cancels {count} tasks of {name}")

    def somebody_pauses(self) -> None:
        name = self._model()
        self.simulation.tell(f"somebody pauses {name}")
        self.simulation.state.control.pause(name, "somebody")

    def somebody_resumes(self) -> None:
        name = self._model()
        self.simulation.state.control.resume(name, "somebody")

    def somebody_applies(self) -> None:
        project = self.simulation.dice.choice(revisions())
        self.simulation.tell(f"somebody applies {project.revision[:6]}")
        self.simulation.apply(project)

    # bad luck

    def _somebody(self) -> Process | None:
        alive = self.simulation.alive
        return self.simulation.dice.choice(alive) if alive else None

    def a_process_dies(self) -> None:
        if (process := self._somebody()) is not None:
            self.simulation.kill(process)

    def a_process_stands_still(self) -> None:
        if (process := self._somebody()) is not None:
            self.simulation.stop(process)

    def a_connection_breaks(self) -> None:
        process = self._somebody()
        if process is None:
            return
        pulse = self.simulation.pulses.get(process.name)
        if pulse is not None and pulse.backend is not None and self.simulation.dice.random() < 0.5:
            self.simulation.tell(f"{process.name} loses the connection of its heartbeat at {process.at!r}")
            self.simulation.cut_off([pulse.backend])
        elif process.backends:
            self.simulation.tell(f"{process.name} loses its connection at {process.at!r}")
            self.simulation.cut_off(process.backends)

    # the end

    def go_quiet(self, most: int = 300) -> None:
        """Nobody disturbs any more; until nothing is active, nothing can be planned and no event waits."""
        sim = self.simulation
        sim.odds = CALM
        for process in sim.alive:
            process.stopped_until = process.wake_at = sim.seconds
            if sim.dice.random() < 0.3:
                sim.kill(process)
        if sim.dice.random() < 0.5:  # else a source may have become shorter than what was made of it
            for name in SOURCES:
                self.late_rows_of(name)
        self._settle(20.0)
        self._settle(150.0)
        for model in sim.resolver.graph.interval_models:
            with suppress(UnknownModelError):
                sim.state.control.resume(model.name, "somebody")
        for number in range(most):
            self._settle((11.0, 35.0, 70.0, 700.0, 5000.0)[min(number // 3, 4)])
            if not self.unsettled():
                return
        raise AssertionError("it never goes quiet: " + "; ".join(self.unsettled()))

    def late_rows_of(self, name: str) -> None:
        """All that were ever held back, and those up to now."""
        self._land(name, self.late[name])
        self.late[name] = []
        self._land(name, range(self.landed[name], self.tip + 1))
        self.landed[name] = self.tip + 1

    def _settle(self, seconds: float) -> None:
        sim = self.simulation
        sim.staff()
        sim.advance(seconds)
        while sim.turn():
            continue

    def unsettled(self) -> list[str]:
        """Why it is not quiet yet."""
        sim = self.simulation
        view = sim.state.views.whole()
        reasons = [f"{view.events} events"] if view.events else []
        observations = Observations(sim.resolver.graph, view)
        for model in sim.resolver.graph.interval_models:
            generation, work = view.working.get(model.name), view.work.get(model.name)
            if generation is None or generation.state == "building":
                reasons.append(f"{model.name} is being built")
            if work is not None and (work.in_flight or work.dead):
                reasons.append(f"{model.name}: {work}")
            reasons += [
                f"{decision}" for decision in plan(observations.observation(model)) if isinstance(decision, Order)
            ]
        for name in SOURCES:
            record = view.sources.get(f"raw.{name}")
            if record is None or record.snapshot != sim.engine.snapshot(place(name)).version:
                reasons.append(f"{name} was not looked at")
        return reasons

    def violations(self) -> list[str]:
        """What is wrong now that it is quiet."""
        sim = self.simulation
        problems = holds(sim.engine, sim.state, sim.resolver)
        if self.expired:  # nothing is computed there any more that would take away what others wrote
            problems = [problem for problem in problems if "outside of everything covered" not in problem]
        problems += invariants.violations(sim.state.database.connection)
        return [*problems, *sim.wrong, *self._incomplete()]

    def _incomplete(self) -> list[str]:
        """Two tables computed in the plainest way there is, whatever anybody says is covered."""
        sim, view = self.simulation, self.simulation.state.views.whole()
        expired = view.sources["raw.numbers"].expired_pos or 0
        begins = expired + -expired % DAY  # no chunk is longer; what lies below may have outlived its rows
        every = [(n, value) for n, value in sim.engine.rows(place("numbers")) if isinstance(n, int)]
        end = max(n for n, _ in every) + 1
        whole = max(end - end % HOUR, view.current["t.copy"].covered.end or 0)
        rows = [(n, value) for n, value in every if n >= begins]
        times = factor(sim.project)
        sums: dict[int, int] = {}
        for n, value in rows:
            sums[n - n % HOUR] = sums.get(n - n % HOUR, 0) + int(str(value))
        wanted = {
            "t.copy": Multiset((("n", n), ("value", int(str(value)) * times)) for n, value in rows if n < whole),
            "t.buckets": Multiset((("n", n), ("value", value)) for n, value in sums.items()),
        }
        problems = []
        for name, multiset in wanted.items():
            generation = view.current[name]
            left = IntervalSet((begins, MAX_POSITION))
            stored = sim.engine.multiset(sim.resolver.table(generation.location), generation.accepted_snapshot, left)
            if stored != multiset:
                problems.append(
                    f"{name}: {list(multiset - stored)[:3]} are missing, {list(stored - multiset)[:3]} too many"
                )
        return problems


def story(dsn: str, seed: int, days: float, schema: str = SCHEMA) -> list[str]:
    """Live so long, go quiet, and say what is wrong then."""
    with simulating(dsn, seed, schema) as simulation:
        life = Life(simulation)
        try:
            life.live(days)
            life.go_quiet()
            problems = life.violations()
        except AssertionError as error:
            problems = [str(error)]
        return [*problems[:20], simulation.story()] if problems else []


def own_story(dsn: str, days: float, seed: int) -> list[str]:
    """For a process of its own, beside others."""
    return story(dsn, seed, days, f"simulation {os.getpid()}")


def place(source: str) -> str:
    return f"memory://landing/{source}"


def _positions(window: IntervalSet) -> range:
    return range(window.edges[0], window.edges[-1])
