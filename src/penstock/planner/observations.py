"""What does the planner need to know of every model, given what the database remembers?"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, assert_never

from penstock.planner.change.consumers import offered, positioned
from penstock.planner.policy.breaker import suspended_words
from penstock.planner.readiness.grid import Grid
from penstock.planner.readiness.observation import Input, Observation
from penstock.values.intervals import EVERYTHING, MIN_POSITION, NOTHING, IntervalSet
from penstock.values.models import Graph, IntervalModel, Source
from penstock.values.records import Generation, SourceRecord, StateView, SuspensionRecord, Work


class Observations:
    """One moment of the database, seen model by model; what several consumers ask about is worked out once."""

    def __init__(self, graph: Graph, view: StateView) -> None:
        self.graph, self.view = graph, view
        self._inputs: dict[str, Input] = {}

    def observation(self, model: IntervalModel) -> Observation:
        """One model and its inputs."""
        generation = self.view.working.get(model.name)
        work = self.view.work.get(model.name, Work())
        return Observation(
            model=model,
            inputs={dependency.model: self.input(dependency.model, model.axis) for dependency in model.inputs},
            covered=generation.covered if generation else NOTHING,
            stale=stale_cells(model, generation) if generation else NOTHING,
            in_flight=work.in_flight,
            failed=work.dead,
            cancelled=work.cancelled,
            paused=model.name in self.view.paused,
            suspended=_suspended(self.view.suspended.get(model.name)),
        )

    def input(self, name: str, axis: str) -> Input:
        """A model as its consumers see it."""
        match parent := self.graph.models[name]:
            case Source():
                return _source_input(parent, axis, self.view.sources.get(name))
            case IntervalModel():
                if name not in self._inputs:
                    self._inputs[name] = offered(self.observation(parent))
                return self._inputs[name]
            case _:
                assert_never(parent)


def stale_cells(model: IntervalModel, generation: Generation) -> IntervalSet:
    """What is stale, in the whole cells that are computed as one."""
    cells = generation.stale.outward(Grid.of(model.interval).cell)
    return cells & generation.covered if cells else NOTHING


def superseded(revision: str, view: StateView) -> bool:
    """Whether another revision is active: the tables are no longer those that this one's queries fill."""
    return view.revision not in (None, revision)


def without_own(seen: Observation, scope: IntervalSet) -> Observation:
    """The same as a worker sees it that holds `scope`: its own work is not in its way."""
    return replace(seen, in_flight=seen.in_flight - scope, failed=seen.failed - scope)


def _suspended(record: SuspensionRecord | None) -> str | None:
    return None if record is None else suspended_words(record.model, record.error, passing=record.passing)


def _source_input(source: Source, axis: str, record: SourceRecord | None) -> Input:
    kind: Literal["source", "lookup"] = "source" if positioned(source, axis) else "lookup"
    if record is None or record.observed_at is None:
        why = record.error if record and record.error else "it was never observed"
        return Input(source.name, kind, NOTHING, None, why_empty=why, observed=False)
    if kind == "lookup":
        return Input(source.name, "lookup", EVERYTHING, None)
    if record.min_pos is None or record.end_pos is None:
        return Input(source.name, "source", NOTHING, None, why_empty="it has no rows yet", expired=record.expired_pos)
    length = max(record.end_pos - record.min_pos, 1)
    return Input(
        source.name,
        "source",
        IntervalSet((MIN_POSITION, record.end_pos - source.lag)),
        record.min_pos,
        bytes_per_position=(record.bytes or 0) / length,
        lag=source.lag,
        expired=record.expired_pos,
    )
