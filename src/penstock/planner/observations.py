"""What does the planner need to know of every model, given what the database remembers?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import Literal, assert_never

from penstock.planner.change.consumers import offered, positioned
from penstock.planner.dynamic.lag import leads, target_lags
from penstock.planner.dynamic.refresh import RefreshObservation
from penstock.planner.dynamic.snapshots import Snapshots, same_snapshot
from penstock.planner.policy.breaker import suspended_words
from penstock.planner.readiness.grid import Grid
from penstock.planner.readiness.observation import Input, Observation
from penstock.values.intervals import EVERYTHING, MIN_POSITION, NOTHING, IntervalSet
from penstock.values.models import DynamicModel, Graph, IntervalModel, Model, Source
from penstock.values.records import Generation, SourceRecord, StateView, SuspensionRecord, Work
from penstock.values.tasks import Pin


class Observations:
    """One moment of the database, seen model by model; what several consumers ask about is worked out once."""

    def __init__(self, graph: Graph, view: StateView) -> None:
        self.graph, self.view = graph, view
        self._inputs: dict[str, Input] = {}
        self._fresh: dict[str, datetime | None] = {}

    @cached_property
    def current(self) -> Mapping[str, Pin | None]:
        """The snapshot of every table that may be read now; None: there is nothing to read."""
        return {name: pin_of(model, self.view) for name, model in self.graph.models.items()}

    @cached_property
    def _snapshots(self) -> Snapshots:
        view, made_from = self.view, {name: record.inputs for name, record in self.view.refreshed.items()}
        held = {name for name, work in view.work.items() if work.dead or work.cancelled}
        away = view.paused | view.suspended.keys() | held
        going = frozenset(name for name in made_from if name not in away and self._target_lags.get(name) is not None)
        return Snapshots(self.graph, self.current, made_from, going)

    @cached_property
    def _target_lags(self) -> Mapping[str, int | None]:
        return target_lags(self.graph)

    @cached_property
    def _leads(self) -> Mapping[str, float]:
        takes = {name: record.seconds for name, record in self.view.refreshed.items()}
        return leads(self.graph, self._target_lags, takes)

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

    def refresh(self, model: DynamicModel) -> RefreshObservation:
        """One dynamic table and the snapshots of its inputs."""
        name, view = model.name, self.view
        generation, work = view.working.get(name), view.work.get(name, Work())
        record = view.refreshed.get(name)
        names = [dependency.model for dependency in model.inputs]
        missing = {parent: why for parent in names if (why := self._why_missing(parent)) is not None}
        return RefreshObservation(
            model=model,
            now=view.at,
            snapshots=self._snapshots.chosen(model),
            missing=missing,
            made_from=record.inputs if record and generation and generation.covered else None,
            fresh=self.fresh(name),
            target_lag=self._target_lags[name],
            takes_seconds=self._leads[name],
            asked=generation is not None and bool(generation.stale),
            timed=self._changes_unseen(model),
            in_flight=bool(work.in_flight),
            failed=bool(work.dead),
            cancelled=bool(work.cancelled),
            paused=name in view.paused,
            suspended=_suspended(view.suspended.get(name)),
        )

    def _changes_unseen(self, model: DynamicModel) -> bool:
        """Whether its rows may change although no input has another snapshot: by the clock, or in files without log."""
        pins = (self.current.get(name) for name in self.graph.parents(model.name))
        return model.timed or any(pin is not None and pin.snapshot is None for pin in pins)

    def fresh(self, name: str) -> datetime | None:
        """The moment that the stored rows of a dynamic table are of: later, while no input has changed since."""
        if name not in self._fresh:
            self._fresh[name] = self._fresh_now(name)
        return self._fresh[name]

    def _fresh_now(self, name: str) -> datetime | None:
        record = self.view.refreshed.get(name)
        if record is None:
            return None
        model = self.graph.models[name]
        current = [self.current.get(parent) for parent in self.graph.parents(name)]
        read = [record.inputs.get(parent) for parent in self.graph.parents(name)]
        unseen = isinstance(model, DynamicModel) and self._changes_unseen(model)
        if unseen or not all(same_snapshot(pin, now) for pin, now in zip(read, current, strict=True)):
            return record.data_timestamp
        moments = [self.known_until(parent) for parent in self.graph.parents(name)]
        known = [moment for moment in moments if moment is not None]
        return min(known) if known and len(known) == len(moments) else record.data_timestamp

    def moment(self, name: str, pin: Pin) -> datetime | None:
        """Up to when a snapshot of a table was all there was of it, as far as that is known."""
        if same_snapshot(pin, self.current.get(name)):
            return self.known_until(name)
        readers = [record for record in self.view.refreshed.values() if same_snapshot(record.inputs.get(name), pin)]
        return max((reader.data_timestamp for reader in readers if reader.data_timestamp is not None), default=None)

    def known_until(self, name: str) -> datetime | None:
        """Up to when the snapshot that may be read now is all there is of a table."""
        match self.graph.models[name]:
            case Source():
                record = self.view.sources.get(name)
                return None if record is None else record.looked_at or record.observed_at
            case IntervalModel():
                return self.view.at
            case DynamicModel():
                return self.fresh(name)
            case unknown:
                assert_never(unknown)

    def _why_missing(self, name: str) -> str | None:
        """Why a refresh cannot read an input; None: it can."""
        if self.current.get(name) is not None:
            return None
        record = self.view.sources.get(name)
        if isinstance(self.graph.models[name], Source):
            return record.error if record and record.error else "it was never observed"
        return "not built yet"

    def input(self, name: str, axis: str) -> Input:
        """A model as its consumers see it."""
        match parent := self.graph.models[name]:
            case Source():
                return _source_input(parent, axis, self.view.sources.get(name))
            case IntervalModel():
                if name not in self._inputs:
                    self._inputs[name] = offered(self.observation(parent))
                return self._inputs[name]
            case DynamicModel():
                generation = self.view.working.get(name)
                built = generation is not None and generation.accepted_snapshot is not None
                return Input(name, "lookup", EVERYTHING if built else NOTHING, None, "" if built else "not built yet")
            case _:
                assert_never(parent)


def pin_of(model: Model, view: StateView, *, serving: bool = False) -> Pin | None:
    """A table as it may be read: sources as observed, ours as accepted; None when there is nothing to read.

    While a model is rebuilt, its consumers read the new generation and `serving` readers the old one.
    """
    match model:
        case Source():
            record = view.sources.get(model.name)
            if record is None or record.observed_at is None:
                return None
            return Pin(model.location or "", record.snapshot, record.table_id)
        case IntervalModel() | DynamicModel():
            generation = (view.current if serving else view.working).get(model.name)
            if generation is None or generation.accepted_snapshot is None:
                return None
            return Pin(generation.location, generation.accepted_snapshot, None, str(generation.id))
        case _:
            assert_never(model)


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
