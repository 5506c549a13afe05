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


def model(interval: Chunking, *groups: Group | Dependency | str, **more: Any) -> IntervalModel:
    named = [Dependency(one) if isinstance(one, str) else one for one in groups]
    dependencies = tuple((one,) if isinstance(one, Dependency) else one for one in named)
    settings = {"name": "t.child", "file": "child.sql", "sql": "", "position": "p", "axis": "block"} | more
    return IntervalModel(interval=interval, dependencies=dependencies, **settings)


def source(name: str, first: int, end: int, lag: int = 0) -> Input:
    return Input(name, "source", IntervalSet((MIN_POSITION, end - lag)), first, lag=lag)


def built(name: str, *parts: tuple[int, int]) -> Input:
    found = ranges(*parts)
    return Input(name, "interval", found, found.first, "not built yet")


def empty(name: str) -> Input:
    return Input(name, "source", NOTHING, None, "no rows yet")


def lookup(name: str) -> Input:
    return Input(name, "lookup", EVERYTHING, None)


def observation(one: IntervalModel, *inputs: Input, covered: IntervalSet = NOTHING, **more: Any) -> Observation:
    return Observation(one, {each.name: each for each in inputs}, covered, **more)


def orders(seen: Observation, **more: Any) -> list[Order]:
    return [one for one in plan(seen, **more) if isinstance(one, Order)]


def waits(seen: Observation) -> list[Wait]:
    return [one for one in plan(seen) if isinstance(one, Wait)]


def chunks(seen: Observation, lane: str | None = None, **more: Any) -> list[tuple[int, int]]:
    found = [one for one in orders(seen, **more) if lane in (None, one.lane)]
    return [(chunk.start, chunk.end) for one in found for chunk in one.chunks]


def group(*names: str) -> Group:
    return tuple(Dependency(name) for name in names)
