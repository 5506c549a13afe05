"""What would a revision change of what is stored?"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from penstock.values.records import Change, Definition


@dataclass(frozen=True, slots=True)
class StoredModel:
    name: str
    type: str
    lineage: str
    removed: bool


@dataclass(frozen=True, slots=True)
class StoredGeneration:
    no: int
    model: str
    fingerprint: str
    lineage: str
    state: str


@dataclass(frozen=True, slots=True)
class Move:
    """What applying does to one model: generations to retire, and the state of a new one."""

    change: Change
    lineage: str | None = None
    retire: tuple[int, ...] = ()
    begin: str | None = None


def lineages(definitions: Sequence[Definition]) -> Mapping[str, str]:
    """A hash of each model and all it is made from: when it differs, the stored rows are those of another query."""
    by_name = {definition.name: definition for definition in definitions}

    @cache
    def lineage(name: str) -> str:
        parents = sorted({edge[0] for edge in by_name[name].edges} & by_name.keys())
        made_of = [by_name[name].fingerprint, *(f"{parent}={lineage(parent)}" for parent in parents)]
        return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()

    return {name: lineage(name) for name in by_name}


def moves(
    definitions: Sequence[Definition], models: Sequence[StoredModel], generations: Sequence[StoredGeneration]
) -> tuple[Move, ...]:
    """One move per model of the revision, and one per model that is no longer in it."""
    hashes = lineages(definitions)
    known = {model.name: model for model in models}
    by_state: dict[str, dict[str, StoredGeneration]] = {}
    for generation in generations:
        by_state.setdefault(generation.model, {})[generation.state] = generation
    moves_by_model: dict[str, Move] = {}
    for definition in _parents_first(definitions):
        moves_by_model[definition.name] = _move(definition, hashes[definition.name], known, by_state, moves_by_model)
    gone = (model for model in models if model.name not in moves_by_model and not model.removed)
    removed = (Move(Change(model.name, "removed", model.type, "it is no longer in the project")) for model in gone)
    return (*(moves_by_model[definition.name] for definition in definitions), *removed)


def _move(
    definition: Definition,
    lineage: str,
    known: Mapping[str, StoredModel],
    by_state: Mapping[str, Mapping[str, StoredGeneration]],
    before: Mapping[str, Move],
) -> Move:
    name, stored = definition.name, known.get(definition.name)
    mine = by_state.get(name, {})
    building, current = mine.get("building"), mine.get("current")
    if definition.type == "source":
        return _source_move(definition, lineage, stored, tuple(generation.no for generation in mine.values()))
    if current is None and building is None:
        return Move(Change(name, "new", definition.type, "it is not built yet"), lineage, begin="current")
    if current and current.lineage == lineage:
        reason = "it is back as it was" if building or (stored and stored.removed) else "same definition"
        retire = (building.no,) if building else ()
        return Move(Change(name, "unchanged", definition.type, reason), lineage, retire)
    if building and building.lineage == lineage:
        return Move(Change(name, "unchanged", definition.type, "it is being rebuilt already"), lineage)
    working = building or current
    changed = working is None or working.fingerprint != definition.fingerprint
    reason = "its definition changed" if changed else _inherited(definition, before)
    retire = (building.no,) if building else ()
    begin = "building" if current else "current"
    return Move(Change(name, "rebuild", definition.type, reason), lineage, retire, begin)


def _source_move(definition: Definition, lineage: str, stored: StoredModel | None, tables: tuple[int, ...]) -> Move:
    if stored is None:
        change = Change(definition.name, "new", "source", "it was never observed")
    elif stored.lineage == lineage:
        change = Change(definition.name, "unchanged", "source", "same definition")
    else:
        change = Change(definition.name, "rebuild", "source", "its definition changed")
    return Move(change, lineage, tables)


def _inherited(definition: Definition, before: Mapping[str, Move]) -> str:
    """Which ancestor makes a model with an unchanged query different."""
    for parent, *_ in definition.edges:
        change = before[parent].change if parent in before else None
        if change and change.change == "rebuild":
            return change.reason if change.reason.startswith("it reads") else f"it reads {parent}, which is rebuilt"
    return "its inputs changed"


def _parents_first(definitions: Sequence[Definition]) -> list[Definition]:
    by_name = {definition.name: definition for definition in definitions}
    order: dict[str, Definition] = {}

    def visit(definition: Definition) -> None:
        if definition.name not in order:
            for parent, *_ in definition.edges:
                if parent in by_name:
                    visit(by_name[parent])
            order[definition.name] = definition

    for definition in definitions:
        visit(definition)
    return list(order.values())
