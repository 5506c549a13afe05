"""Dynamic tables for tests of what the planner decides about them, and a life of them without Spark or a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

from penstock.planner.dynamic.refresh import RefreshObservation
from penstock.planner.dynamic.snapshots import Held, Snapshots
from penstock.values.models import Dependency, DynamicModel, Graph, Source
from penstock.values.tasks import Frontier, Pin

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def source(name: str) -> Source:
    return Source(name=name, file=f"{name}.yml", location=f"/landing/{name}")


def table(name: str, *inputs: str, **settings: Any) -> DynamicModel:
    dependencies = tuple((Dependency(parent),) for parent in inputs)
    return DynamicModel(name=name, file=f"{name}.sql", sql="select 1", dependencies=dependencies, **settings)


def graph(sources: str, **inputs: str) -> Graph:
    """`graph("orders", daily="orders", weekly="daily orders")`."""
    tables = [table(name, *parents.split()) for name, parents in inputs.items()]
    return Graph.of((*map(source, sources.split()), *tables))


def pin(name: str, snapshot: int, table_id: str = "first") -> Pin:
    return Pin(f"/landing/{name}", snapshot, table_id)


def pins(**snapshots: int) -> Frontier:
    return {name: pin(name, snapshot) for name, snapshot in snapshots.items()}


def snapshots(
    of: Graph, current: Mapping[str, Pin | None], made_from: Mapping[str, Frontier], *, away: Sequence[str] = ()
) -> Snapshots:
    """All tables that were built are refreshed by themselves, but those that are `away`."""
    return Snapshots(of, current, made_from, made_from.keys() - set(away))


def observed(model: DynamicModel | None = None, **settings: Any) -> RefreshObservation:
    """A built table of one input, of which nothing has changed for a minute."""
    known: dict[str, Any] = {
        "model": model or table("shop.daily", "orders"),
        "now": NOON,
        "snapshots": pins(orders=5),
        "missing": {},
        "made_from": pins(orders=5),
        "fresh": NOON,
        "target_lag": 300,
    }
    return RefreshObservation(**(known | settings))


@dataclass
class _Running:
    frontier: Frontier
    contents: Mapping[str, frozenset[int]]
    rounds_left: int


@dataclass
class Life:
    """Sources that commit in every round, and refreshes that take one to three rounds."""

    graph: Graph
    random: Random
    slots: int = 100
    """How many refreshes run at a time; the table that waited longest is next."""
    away: set[str] = field(default_factory=set)
    current: dict[str, Pin | None] = field(default_factory=dict)
    made_from: dict[str, Frontier] = field(default_factory=dict)
    contents: dict[tuple[str, int | None], Mapping[str, frozenset[int]]] = field(default_factory=dict)
    """By table and snapshot: by source the snapshots whose rows are in it."""
    refreshed: dict[str, int] = field(default_factory=dict)
    running: dict[str, _Running] = field(default_factory=dict)
    began: dict[str, int] = field(default_factory=dict)
    round: int = 0

    def live(self, rounds: int, *, commits: bool = True) -> None:
        for _ in range(rounds):
            self._end()
            self._commit(commits)
            self._begin()
            self.round += 1

    def _commit(self, commits: bool) -> None:
        for each in self.graph.sources:
            known = self.current.get(each.name)
            number = 0 if known is None or known.snapshot is None else known.snapshot
            self.current[each.name] = pin(each.name, number + (commits or known is None))

    def _begin(self) -> None:
        going = self.made_from.keys() - self.away
        seen = Snapshots(self.graph, dict(self.current), dict(self.made_from), going)
        for model in sorted(self.graph.dynamic_models, key=lambda model: self.began.get(model.name, -1)):
            wanted = seen.chosen(model)
            free = model.name not in self.running and len(self.running) < self.slots
            if free and model.name not in self.away and not isinstance(wanted, Held):
                own = self.made_from.get(model.name)
                if own is None or any(own.get(name) != wanted[name] for name in self.graph.parents(model.name)):
                    self.began[model.name] = self.round
                    self.running[model.name] = _Running(
                        wanted, self._contents(model, wanted), self.random.randint(1, 3)
                    )

    def _contents(self, model: DynamicModel, read: Frontier) -> Mapping[str, frozenset[int]]:
        held: dict[str, frozenset[int]] = {}
        for name in self.graph.parents(model.name):
            number = read[name].snapshot
            assert number is not None
            is_source = isinstance(self.graph.models[name], Source)
            part = {name: frozenset([number])} if is_source else self.contents[name, number]
            for base, numbers in part.items():
                held[base] = held.get(base, frozenset()) | numbers
        return held

    def _end(self) -> None:
        for name, work in list(self.running.items()):
            work.rounds_left -= 1
            if work.rounds_left <= 0:
                del self.running[name]
                known = self.current.get(name)
                number = 0 if known is None or known.snapshot is None else known.snapshot
                self.current[name] = pin(name, number + 1)
                self.made_from[name] = work.frontier
                self.contents[name, number + 1] = work.contents
                self.refreshed[name] = self.refreshed.get(name, 0) + 1

    @property
    def mixed(self) -> list[tuple[str, int | None]]:
        """Tables whose rows were ever made from two snapshots of one source."""
        return [key for key, held in self.contents.items() if any(len(numbers) > 1 for numbers in held.values())]
