"""Which snapshots of its inputs does a refresh read, so that they are all of one moment?

A table that reads another dynamic table, and an input of that one, reads the input as its parent did. Tables with a
common consumer stay together: whoever is behind is refreshed to where the others are, and nobody goes on before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

from penstock.values.models import DynamicModel, Graph
from penstock.values.tasks import Frontier, Pin


@dataclass(frozen=True, slots=True)
class Held:
    """No snapshots fit together now."""

    reason: str


@dataclass(frozen=True, slots=True)
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
        """What the dynamic parents read, as they read it."""
        read: dict[str, tuple[str, Pin]] = {}
        for parent in self.graph.parents(model.name):
            for name, pin in self.made_from.get(parent, {}).items():
                other, known = read.setdefault(name, (parent, pin))
                if not same_snapshot(known, pin):
                    late, early = (other, parent) if _is_behind(known, pin) else (parent, other)
                    return Held(f"waiting for {late}: it has read another snapshot of {name} than {early}")
        return {name: pin for name, (_, pin) in read.items()}

    def _together(self, model: DynamicModel, newest: Frontier) -> Frontier | Held:
        """`newest`, or the snapshots that tables with a common consumer have read, while this one is behind them."""
        own = self.made_from.get(model.name, {})
        peers = sorted(self._peers(model))
        read = {name: [pins[name] for peer in peers if name in (pins := self.made_from[peer])] for name in newest}
        ahead = {name: max((_least(own, name), *pins), key=_order) for name, pins in read.items() if pins}
        if any(_is_behind(own.get(name), pin) for name, pin in ahead.items()):
            return {name: ahead.get(name) or own.get(name) or newest[name] for name in newest}
        moved = {name for name, pin in newest.items() if not same_snapshot(own.get(name), pin)}
        for peer in peers if moved else ():
            for name, pin in self.made_from[peer].items():
                if name in newest and _is_behind(pin, own.get(name)):
                    return Held(f"waiting for {peer}, which has not read {name} as far and has a consumer in common")
        return newest

    def _peers(self, model: DynamicModel) -> Iterator[str]:
        """Built tables with a common dynamic consumer that neither read the model nor are read by it."""
        below = self._dynamic_below(model.name)
        for other in self.graph.dynamic_models:
            name = other.name
            if name == model.name or name in below or name not in self.made_from or name not in self.going:
                continue
            theirs = self._dynamic_below(name)
            if model.name not in theirs and below & theirs:
                yield name

    def _dynamic_below(self, name: str) -> set[str]:
        below = self.graph.descendants(name)
        return {child for child in below if isinstance(self.graph.models[child], DynamicModel)}


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


_NOTHING_READ = Pin("", -1)


def _least(frontier: Frontier, name: str) -> Pin:
    return frontier.get(name, _NOTHING_READ)


def _order(pin: Pin) -> int:
    return -1 if pin.snapshot is None else pin.snapshot
