"""Which lanes of which models must be planned now?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from penstock.values.intervals import NOTHING, IntervalSet
from penstock.values.models import Graph, IntervalModel
from penstock.values.records import Generation, SourceRecord, StateView, Work
from penstock.values.tasks import LANES, Lane

Due = dict[str, set[Lane]]


@dataclass(frozen=True, slots=True)
class _Own:
    """What a model's own plan depends on, and what its consumers see of it."""

    generation: int | None
    covered: IntervalSet
    stale: IntervalSet
    in_flight: IntervalSet
    dead: IntervalSet
    waiting: frozenset[Lane]
    paused: bool
    suspended: bool
    seen: tuple[Generation | None, Work | None] = field(compare=False, repr=False)
    """What was read from the database: while these are the same objects, nothing of this has changed."""


@dataclass(slots=True)
class Triggers:
    """Compares each look at the database with the one before; forgetting it all costs one sweep."""

    _own: dict[str, _Own] = field(default_factory=dict)
    _sources: dict[str, tuple[object, ...]] = field(default_factory=dict)
    _swept: datetime | None = None
    _revision: str | None = None

    def due(self, graph: Graph, view: StateView, slots: Iterable[tuple[str, Lane]], sweep_seconds: float) -> Due:
        """Every change upstream and every slot; all models when it is time to sweep, or nothing is known yet."""
        sweep = (
            self._swept is None
            or (view.at - self._swept).total_seconds() >= sweep_seconds
            or self._revision != view.revision
        )
        models = graph.interval_models
        own = {model.name: self._same_or_new(model.name, view) for model in models}
        sources = {source.name: _bounds(view.sources.get(source.name)) for source in graph.sources}
        lanes_due: Due = {}
        moved = sources != self._sources or any(own[name] is not self._own.get(name) for name in own)
        for model in models if sweep or moved else ():
            if lanes := self._lanes(model, own, sources, sweep=sweep, rebuilding=_rebuilding(model.name, view)):
                lanes_due[model.name] = lanes
        for name, lane in slots:
            lanes_due.setdefault(name, set()).add(lane)
        if sweep:
            self._swept, self._revision = view.at, view.revision
        self._own, self._sources = own, sources
        return lanes_due

    def _same_or_new(self, name: str, view: StateView) -> _Own:
        """As it was before, if the database has nothing new of it."""
        before = self._own.get(name)
        if before is None or (before.paused, before.suspended) != (name in view.paused, name in view.suspended):
            return _state(name, view)
        generation, work = before.seen
        same = generation is view.working.get(name) and work is view.work.get(name)
        return before if same else _state(name, view)

    def _lanes(
        self,
        model: IntervalModel,
        own: Mapping[str, _Own],
        sources: Mapping[str, tuple[object, ...]],
        *,
        sweep: bool,
        rebuilding: bool,
    ) -> set[Lane]:
        before, now = self._own.get(model.name), own[model.name]
        inputs = [dependency.model for dependency in model.inputs]
        by_parent = any(_offers(own[name]) != _offers(self._own.get(name)) for name in inputs if name in own)
        by_source = any(sources[name] != self._sources.get(name) for name in inputs if name in sources)
        if not (sweep or by_parent or by_source or now != before):
            return set()
        # in strict order only the end of one task makes the next
        goes_on = before is not None and now.covered != before.covered and not model.fill.allow_gap_skipping
        free = by_parent or rebuilding or _undone(before, now) or goes_on
        # a lost word about a parent's commit is made good for by the sweep
        free = free or (sweep and any(name in own for name in inputs))
        return {lane for lane in LANES if free or not _scheduled(model, lane)}

    def seconds_to_sweep(self, now: datetime, sweep_seconds: float) -> float:
        return 0.0 if self._swept is None else max(sweep_seconds - (now - self._swept).total_seconds(), 0.0)


def _undone(before: _Own | None, now: _Own) -> bool:
    """Work that ended without a result, or whose hold or suspension is over, leaves its slot undone."""
    if before is None:
        return False
    if before.suspended and not now.suspended:
        return True
    if before.in_flight == now.in_flight and before.dead == now.dead:
        return False
    wanted = before.in_flight | before.dead
    return bool(wanted - now.in_flight - now.dead - (now.covered & wanted))


def _scheduled(model: IntervalModel, lane: Lane) -> bool:
    """A lane with a cadence of its own: changes of sources alone do not start it."""
    return model.schedules.of(lane) is not None


def _state(name: str, view: StateView) -> _Own:
    generation, work = view.working.get(name), view.work.get(name, Work())
    return _Own(
        generation=generation.no if generation else None,
        covered=generation.covered if generation else NOTHING,
        stale=generation.stale if generation else NOTHING,
        in_flight=work.in_flight,
        dead=work.dead,
        waiting=work.waiting,
        paused=name in view.paused,
        suspended=name in view.suspended,
        seen=(generation, view.work.get(name)),
    )


def _offers(own: _Own | None) -> object:
    return None if own is None else (own.generation, own.covered, own.stale)


def _bounds(record: SourceRecord | None) -> tuple[object, ...]:
    return () if record is None else (record.table_id, record.min_pos, record.end_pos, record.observed_at is not None)


def _rebuilding(name: str, view: StateView) -> bool:
    generation = view.working.get(name)
    return generation is not None and generation.state == "building"
