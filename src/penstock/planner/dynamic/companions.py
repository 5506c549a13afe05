"""Which dynamic tables have to be of one moment, because another one reads them all?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.values.models import DynamicModel, Graph


@dataclass(frozen=True, slots=True)
class Companions:
    """How the dynamic tables of a project are related; an interval model between two of them parts them."""

    above: Mapping[str, frozenset[str]]
    """By dynamic table: those that it is made from, directly or not."""
    below: Mapping[str, frozenset[str]]
    """By dynamic table: those that are made from it."""
    readers: Mapping[str, tuple[str, ...]]
    """By dynamic table: those that read it themselves."""
    of: Mapping[str, frozenset[str]]
    """By dynamic table: those with a common input and a common consumer that it neither reads nor is read by."""


def companions(graph: Graph) -> Companions:
    above: dict[str, frozenset[str]] = {}
    inputs: dict[str, frozenset[str]] = {}
    readers: dict[str, list[str]] = {}
    for model in graph.dynamic_models:
        parents = graph.parents(model.name)
        own = [name for name in parents if isinstance(graph.models[name], DynamicModel)]
        readers[model.name] = []
        for name in own:
            readers[name].append(model.name)
        above[model.name] = frozenset(own).union(*(above[name] for name in own))
        inputs[model.name] = frozenset(parents).union(*(inputs[name] for name in own))
    below: dict[str, set[str]] = {name: set() for name in above}
    for name, tables in above.items():
        for table in tables:
            below[table].add(name)
    of: dict[str, frozenset[str]] = {}
    for name, tables in above.items():
        beside = {table for consumer in below[name] for table in above[consumer]} - tables - below[name] - {name}
        of[name] = frozenset(table for table in beside if inputs[name] & inputs[table])
    return Companions(
        above,
        {name: frozenset(tables) for name, tables in below.items()},
        {name: tuple(tables) for name, tables in readers.items()},
        of,
    )
