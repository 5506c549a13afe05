"""Which snapshots of its inputs does a refresh read, so that they are all of one moment?

A table that reads another dynamic table, and an input of that one, reads the input as its parent did. Companions, the
tables that another one reads together, are refreshed to where the first of them is, and none goes on before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from functools import cached_property

from penstock.planner.dynamic.companions import Companions, companions
from penstock.values.models import DynamicModel, Graph
from penstock.values.tasks import Frontier, Pin


@dataclass(frozen=True, slots=True)
class Held:
    """No snapshots fit together now."""

    reason: str


@dataclass(frozen=True)
class Snapshots:
    """What is known of the tables that a component of the graph reads and consists of."""

    graph: Graph
    current: Mapping[str, Pin | None]
    """By table: the snapshot that may be read now."""
    made_from: Mapping[str, Frontier]
    """By dynamic table: what its rows were made from, directly or through other dynamic tables."""
    going: Set[str]
    """The dynamic tables that are refreshed by themselves: for others nobody waits."""

    def chosen(self, model: DynamicModel) -> Frontier | Held:
        """What a refresh of the model reads: its inputs, and what the dynamic ones of them were made from."""
        through = self._through_parents(model)
        if isinstance(through, Held):
            return through
        direct = [name for name in self.graph.parents(model.name) if name not in through]
        pins = dict(through)
        for name in direct:
            pin = self.current.get(name)
            if pin is None:
                return Held(f"waiting for {name}: it has no table yet")
            pins[name] = pin
        bases = [name for name in direct if not isinstance(self.graph.models[name], DynamicModel)]
        together = self._together(model, {name: pins[name] for name in bases})
        return together if isinstance(together, Held) else {**pins, **together}

    def _through_parents(self, model: DynamicModel) -> Frontier | Held:
        """What the dynamic parents read, as they read it; that may be another of the parents at an older snapshot."""
        read: dict[str, tuple[str, Pin]] = {}
        parents = [name for name in self.graph.parents(model.name) if name in self.made_from]
        through = {name for parent in parents for name in self.made_from[parent]}
        for parent in parents:
            if parent in through:
                continue
            for name, pin in self.made_from[parent].items():
                other, known = read.setdefault(name, (parent, pin))
                if not same_snapshot(known, pin):
                    late, early = (other, parent) if _is_behind(known, pin) else (parent, other)
                    return Held(f"waiting for {late}: it has read another snapshot of {name} than {early}")
        return {name: pin for name, (_, pin) in read.items()}

    def _together(self, model: DynamicModel, newest: Frontier) -> Frontier | Held:
        """`newest`, or the snapshots that its companions have read, while this one is behind them."""
        own, beside = self.made_from.get(model.name, {}), self._going(self._companions.of[model.name])
        ahead = {name: self._furthest(name, pin, (model.name, *beside)) for name, pin in newest.items()}
        if any(_is_behind(own.get(name), pin) for name, pin in ahead.items()):
            return {name: ahead[name] or newest[name] for name in newest}
        moved = any(not same_snapshot(own.get(name), pin) for name, pin in newest.items())
        lagging = self._lagging((*beside, *self._arms(model.name)), own) if moved else None
        return newest if lagging is None else lagging

    def _furthest(self, name: str, newest: Pin, tables: Iterable[str]) -> Pin | None:
        """The newest snapshot of an input that one of the tables has read; of a table that was replaced none counts."""
        pins = [pin for table in tables if (pin := self.made_from.get(table, {}).get(name)) is not None]
        readable = [pin for pin in pins if same_snapshot(pin, newest) or _is_behind(pin, newest)]
        return max(readable, key=_order, default=None)

    def _lagging(self, tables: Iterable[str], own: Frontier) -> Held | None:
        """A table that must come as far as `own` before that may go on; None: there is none."""
        for table in tables:
            for name, pin in self.made_from[table].items():
                if _is_behind(pin, own.get(name)) and self._moves(table, name):
                    return Held(f"waiting for {table}, which has not read {name} as far and has a consumer in common")
        return None

    def _arms(self, name: str) -> tuple[str, ...]:
        """The tables below this one that have companions: they can only read what this one holds now."""
        return self._going(table for table in self._companions.below[name] if self._companions.of[table])

    def _going(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(name for name in names if name in self.going and name in self.made_from))

    def _moves(self, table: str, name: str) -> bool:
        """Whether it will read a newer snapshot of that input by itself, through its dynamic parents too."""
        through = [above for above in self._companions.above[table] if name in self.made_from.get(above, {})]
        return table in self.going and self.going >= frozenset(through)

    @cached_property
    def _companions(self) -> Companions:
        return companions(self.graph)


def same_snapshot(pin: Pin | None, other: Pin | None) -> bool:
    """Whether both show the same rows: the same snapshot of the same table."""
    if pin is None or other is None:
        return pin is other
    return same_table(pin, other) and pin.snapshot == other.snapshot


def same_table(pin: Pin, other: Pin) -> bool:
    """Whether both are of the same build of the same table, at any snapshots."""
    return (pin.table_id, pin.generation) == (other.table_id, other.generation)


def _is_behind(pin: Pin | None, other: Pin | None) -> bool:
    """Whether `pin` is an older snapshot of the same table."""
    if pin is None or other is None or pin.snapshot is None or other.snapshot is None:
        return False
    return same_table(pin, other) and pin.snapshot < other.snapshot


def _order(pin: Pin) -> int:
    return -1 if pin.snapshot is None else pin.snapshot
