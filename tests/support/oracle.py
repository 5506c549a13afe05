"""Is every table what its query gives, and has nothing changed below it since?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from memory_append import Rule
from memory_engine import MemoryEngine
from memory_tables import Multiset, Rows

from penstock.errors import EngineError
from penstock.runtime.place.table_resolver import TableResolver
from penstock.runtime.work.jobs import ChunksAtInputs, readable, renderings
from penstock.state.store import State
from penstock.values.intervals import NOTHING, Interval, IntervalSet
from penstock.values.models import IntervalModel, Source
from penstock.values.records import CoverRecord, Generation, StateView
from penstock.values.tasks import Frontier, Order, Pin

_NO_PINS: Frontier = {}


def expected(
    engine: MemoryEngine,
    resolver: TableResolver,
    model: IntervalModel,
    interval: Interval,
    frontier: Frontier,
    *,
    others: Frontier = _NO_PINS,
) -> Multiset:
    """The rows of one interval, computed from scratch at the inputs of `frontier`.

    `others` gives the columns of optional inputs that were absent; their rows are not read.
    """
    rows = _computed(engine, resolver, _order(model, interval, frontier), {**others, **frontier})
    return _cut(rows, model.position, IntervalSet((interval.start, interval.end))).multiset()


def holds(engine: MemoryEngine, state: State, resolver: TableResolver) -> list[str]:
    """What is wrong with the tables that are served, in words; nothing when every covered interval is exact.

    Covered and not stale means: it equals its query at its recorded frontier, and no positioned input has changed
    inside it since. It is asked when all is quiet: what was not observed yet counts as a change.
    """
    view = state.views.whole()
    problems: list[str] = []
    for name, generation in sorted(view.current.items()):
        model = resolver.graph.models.get(name)
        if isinstance(model, IntervalModel):
            problems += _Examined(engine, resolver, view, model, generation).violations(state)
    return problems


@dataclass(frozen=True, slots=True)
class _Examined:
    """One served generation."""

    engine: MemoryEngine
    resolver: TableResolver
    view: StateView
    model: IntervalModel
    generation: Generation

    @property
    def location(self) -> str:
        return self.resolver.table(self.generation.location)

    def violations(self, state: State) -> Iterator[str]:
        generation = self.generation
        if generation.accepted_snapshot is None:
            if generation.covered:
                yield f"{self.model.name}: {generation.covered} is covered, but no snapshot is served"
            return
        try:
            self.engine.snapshot(self.location, generation.accepted_snapshot)
        except EngineError as error:
            yield f"{self.model.name}: what is served is gone: {error.message}"
            return
        usable = generation.covered - generation.stale
        explained = NOTHING
        for record in state.history.covers(generation.no, usable) if usable else ():
            explained |= record.left
            parts = record.left & usable
            yield from self._wrong(record, parts)
            yield from self._outdated(record, parts)
        if unexplained := usable - explained:
            yield f"{self.model.name}: {unexplained} is covered, but no record says by what"
        yield from self._strays(generation.accepted_snapshot)
        yield from self._twice()

    def _wrong(self, record: CoverRecord, parts: IntervalSet) -> Iterator[str]:
        """The stored rows against the query at the frontier that was recorded for them."""
        order = _order(self.model, record.interval, record.frontier)
        pins = {**readable(self.resolver, order, self.view, serving=True), **record.frontier}
        try:
            computed = _computed(self.engine, self.resolver, order, pins)
        except EngineError as error:
            yield f"{self.model.name} {record.interval}: cannot be computed again: {error.message}"
            return
        if self.model.update_strategy == "append":
            yield from self._lacking(record, computed, parts)
            return
        wanted = _cut(computed, self.model.position, parts).multiset()
        stored = self.engine.multiset(self.location, self.generation.accepted_snapshot, parts)
        if wanted != stored:
            differing = f"{_shown(wanted - stored)} missing, {_shown(stored - wanted)} unexpected"
            yield f"{self.model.name} {parts} of {record.interval}, by task {record.task}: {differing}"

    def _lacking(self, record: CoverRecord, computed: Rows, parts: IntervalSet) -> Iterator[str]:
        """Keyed rows, wherever the key is stored."""
        rule = Rule(self.model.unique_key, self.model.position, self.model.on_retract == "retract")
        stored = self.engine.snapshot(self.location, self.generation.accepted_snapshot).read()
        missing, unexpected = rule.lacking(computed, stored, parts)
        if missing or unexpected:
            differing = f"{len(missing)} keys missing, {len(unexpected)} rows unexpected"
            yield f"{self.model.name} {parts} of {record.interval}, by task {record.task}: {differing}"

    def _outdated(self, record: CoverRecord, parts: IntervalSet) -> Iterator[str]:
        """The inputs as they were read against the inputs as they are."""
        for name, pin in record.frontier.items():
            model = self.resolver.graph.models.get(name)
            if model is None or model.position is None:
                continue
            then, now = self.resolver.located(pin), self._newest(name)
            window = self._window(name, parts) - self._expired(then, now) - self._beyond_repair(name)
            try:
                before = self.engine.multiset(then.location, then.snapshot, window)
            except EngineError as error:
                yield f"{self.model.name} {record.interval}: {name} as it was read is gone: {error.message}"
                continue
            after = Multiset() if now is None else self.engine.multiset(now.location, now.snapshot, window)
            if before != after:
                yield (
                    f"{self.model.name} {parts}, read at {then.snapshot}: {name} has changed since: "
                    f"{_shown(before - after)} gone, {_shown(after - before)} new"
                )

    def _newest(self, name: str) -> Pin | None:
        """A source as it is, whether observed or not; a table of ours as it is served."""
        model = self.resolver.graph.models[name]
        if isinstance(model, Source):
            location = self.resolver.source(model)
            return Pin(location, self.engine.snapshot(location).version) if self.engine.exists(location) else None
        pin = self.resolver.pin(name, self.view, serving=True)
        return None if pin is None else self.resolver.located(pin)

    def _window(self, name: str, parts: IntervalSet) -> IntervalSet:
        looks = [dependency for dependency in self.model.inputs if dependency.model == name]
        before = max((dependency.before for dependency in looks), default=0)
        after = max((dependency.after for dependency in looks), default=0)
        return IntervalSet.of((part.start - before, part.end + after) for part in parts)

    def _expired(self, then: Pin, now: Pin | None) -> IntervalSet:
        """Where rows left at the old end since: coverage outlives them."""
        gone = NOTHING
        if now is not None and now.location == then.location and then.snapshot is not None:
            for snapshot in self.engine.snapshots(then.location)[then.snapshot + 1 :]:
                gone |= snapshot.expired
        return gone

    def _beyond_repair(self, name: str) -> IntervalSet:
        """Stale in a table of ours although all is quiet: others damaged it, and what it was made of has expired."""
        generation = self.view.current.get(name)
        return NOTHING if generation is None else generation.stale

    def _strays(self, accepted: int) -> Iterator[str]:
        """Rows where nothing was ever computed; what a task committed whose worker was lost is still to be adopted."""
        work = self.view.work.get(self.model.name)
        open_ = work.in_flight | work.dead if work else NOTHING
        strays = self.engine.multiset(self.location, accepted, (self.generation.covered | open_).complement())
        if strays:
            yield f"{self.model.name}: rows outside of everything covered: {_shown(strays)}"

    def _twice(self) -> Iterator[str]:
        """A task commits once, whatever happens to its workers."""
        seen: set[object] = set()
        for snapshot in self.engine.snapshots(self.location):
            if snapshot.entry.task is not None and snapshot.entry.task in seen:
                yield f"{self.model.name}: task {snapshot.entry.task} committed more than once"
            seen.add(snapshot.entry.task)


def _order(model: IntervalModel, interval: Interval, frontier: Frontier) -> Order:
    """One chunk alone, with the member of each group that its attempt read, by what the frontier names."""
    choices = [next((member.model for member in group if member.model in frontier), "") for group in model.dependencies]
    return Order(model.name, "repair", (interval,), tuple(choices), "oracle")


def _computed(engine: MemoryEngine, resolver: TableResolver, order: Order, pins: Frontier) -> Rows:
    (rendering,) = renderings(resolver, ChunksAtInputs(order=order, pins=pins, now=0))
    return engine.answer(rendering.sql, rendering.inputs)


def _cut(table: Rows, position: str, window: IntervalSet) -> Rows:
    at = table.columns.index(position)
    return replace(table, rows=[row for row in table.rows if isinstance(p := row[at], int) and p in window])


def _shown(multiset: Multiset) -> str:
    some = list(multiset.elements())
    return f"{len(some)} rows" + (f" such as {some[0]}" if some else "")
