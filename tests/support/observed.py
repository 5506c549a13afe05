"""What a test lets the planner see, in a few words."""

from __future__ import annotations

from typing import Any

from penstock.planner.readiness.observation import Input, Observation, Wait
from penstock.planner.readiness.plan import plan
from penstock.values.intervals import EVERYTHING, MIN_POSITION, NOTHING, IntervalSet, ranges
from penstock.values.models import Chunking, Dependency, Group, IntervalModel
from penstock.values.tasks import Order

OFF = "off"


def strict(size: int) -> Chunking:
    return Chunking(size, size, size)


def partial(least: int, most: int, align: int = 1) -> Chunking:
    return Chunking(most, least, align)


def model(interval: Chunking, *groups: Group | Dependency | str, **others: Any) -> IntervalModel:
    named = [Dependency(group) if isinstance(group, str) else group for group in groups]
    dependencies = tuple((group,) if isinstance(group, Dependency) else group for group in named)
    settings = {"name": "t.child", "file": "child.sql", "sql": "", "position": "p", "axis": "block"} | others
    return IntervalModel(interval=interval, dependencies=dependencies, **settings)


def source(name: str, first: int, end: int, lag: int = 0) -> Input:
    return Input(name, "source", IntervalSet((MIN_POSITION, end - lag)), first, lag=lag)


def built(name: str, *parts: tuple[int, int]) -> Input:
    parts_built = ranges(*parts)
    return Input(name, "interval", parts_built, parts_built.first, "not built yet")


def empty(name: str) -> Input:
    return Input(name, "source", NOTHING, None, "no rows yet")


def lookup(name: str) -> Input:
    return Input(name, "lookup", EVERYTHING, None)


def observation(
    observed_model: IntervalModel, *inputs: Input, covered: IntervalSet = NOTHING, **others: Any
) -> Observation:
    return Observation(observed_model, {each.name: each for each in inputs}, covered, **others)


def orders(seen: Observation, **others: Any) -> list[Order]:
    return [decision for decision in plan(seen, **others) if isinstance(decision, Order)]


def waits(seen: Observation) -> list[Wait]:
    return [decision for decision in plan(seen) if isinstance(decision, Wait)]


def chunks(seen: Observation, lane: str | None = None, **others: Any) -> list[tuple[int, int]]:
    planned = [order for order in orders(seen, **others) if lane in (None, order.lane)]
    return [(chunk.start, chunk.end) for order in planned for chunk in order.chunks]


def group(*names: str) -> Group:
    return tuple(Dependency(name) for name in names)
