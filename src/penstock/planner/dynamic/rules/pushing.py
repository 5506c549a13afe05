"""Which files of an input can have rows of some keys?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from penstock.planner.dynamic.plans.algebra import Node, Scan, walk
from penstock.planner.dynamic.plans.kinds import Facts


@dataclass(frozen=True, slots=True, order=True)
class Pushed:
    """A column of an input that has to equal a key, or to give it when it is rounded down."""

    input: str
    column: str
    key: int
    """Its number."""
    unit: str | None
    """None: the key is the column. `date`: its date. `floor`: it rounded down. Else the unit of `date_trunc`."""


def pushed(plan: Node, lookups: Sequence[tuple[Scan, int, exp.Expr]], facts: Facts) -> tuple[Pushed, ...]:
    """What holds wherever the plan reads an input."""
    places: dict[tuple[str, ...], set[Pushed]] = {
        node.names: set() for node in walk(plan) if isinstance(node, Scan) and node.source
    }
    for scan, number, value in lookups:
        step = _step(value)
        if step is None:
            continue
        name, unit = step
        if facts.kinds.get(name) in ("float", "double"):
            continue  # NaN is in no statistics
        source = dict(zip(scan.names, scan.source_columns, strict=True))[name]
        places[scan.names].add(Pushed(scan.source, source, number, unit))
    inputs = {node.source for node in walk(plan) if isinstance(node, Scan)}
    by_input = {
        source: [places[node.names] for node in walk(plan) if isinstance(node, Scan) and node.source == source]
        for source in sorted(inputs)
    }
    return tuple(found for sets in by_input.values() for found in sorted(set.intersection(*sets), key=_order))


def _order(found: Pushed) -> tuple[str, int, str, str]:
    return found.input, found.key, found.column, found.unit or ""


def _step(value: exp.Expr) -> tuple[str, str | None] | None:
    """A column, and how it is rounded down."""
    match value.unnest():
        case exp.Column(name=name):
            return name, None
        case exp.Cast(this=exp.Column(name=name), args={"to": to}) if to.sql().upper() == "DATE":
            return name, "date"
        case exp.Anonymous(expressions=[exp.Column(name=name)]) as call if call.name.lower() in ("to_date", "date"):
            return name, "date"
        case exp.Anonymous(expressions=[exp.Column(name=name)]) as call if call.name.lower() == "floor":
            return name, "floor"
        case exp.Anonymous(expressions=[exp.Literal(is_string=True) as unit, exp.Column(name=name)]) as call:
            return (name, unit.name.lower()) if call.name.lower() == "date_trunc" else None
    return None
