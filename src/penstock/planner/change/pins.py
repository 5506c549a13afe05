"""Were rows made before or after an input changed?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.values.intervals import IntervalSet
from penstock.values.tasks import Frontier

Preferred = Sequence[Sequence[str]]
"""For each group of alternatives that the changed input is in: the members listed before it."""
Standing = Literal["behind", "ahead", "unknown"]


@dataclass(frozen=True, slots=True)
class InputChange:
    """One input changed, with this snapshot. None: it is unknown, or a person asked for it."""

    model: str
    generation: str | None
    table_id: str | None
    snapshot: int | None


@dataclass(frozen=True, slots=True)
class OpenInvalidation:
    """What one invalidation still asks of one generation."""

    invalidation: int
    epoch: int
    remaining: IntervalSet
    change: InputChange
    preferred: Preferred


def compare_pin(frontier: Frontier, change: InputChange, preferred: Preferred = ()) -> Standing:
    """Whether rows made from `frontier` lack the change; unknown when the two cannot be compared."""
    pin = frontier.get(change.model)
    if pin is None and preferred and all(any(name in frontier for name in group) for group in preferred):
        return "ahead"  # another member, listed before it, was read in its place: it would not be read now either
    if pin is None or pin.snapshot is None or change.snapshot is None:
        return "unknown"
    if _differ(pin.generation, change.generation) or _differ(pin.table_id, change.table_id):
        return "unknown"
    return "behind" if pin.snapshot < change.snapshot else "ahead"


def has_read(frontier: Frontier, change: InputChange) -> bool:
    """Whether rows made from `frontier` were made from this very input, whatever was in its place then."""
    pin = frontier.get(change.model)
    return pin is not None and not _differ(pin.generation, change.generation)


def _differ(a: str | None, b: str | None) -> bool:
    return a is not None and b is not None and a != b


def lost(targets: Sequence[OpenInvalidation], done: IntervalSet, frontier: Frontier, epoch: int) -> IntervalSet:
    """What of `done` was invalidated after its inputs were fixed."""
    late = (part for target in targets if too_early(target, frontier, epoch) for part in target.remaining)
    return IntervalSet.of(late) & done


def too_early(asked: OpenInvalidation, frontier: Frontier, epoch: int) -> bool:
    """By the input's snapshot where both sides have one, else by the order of the epochs."""
    match compare_pin(frontier, asked.change, asked.preferred):
        case "behind":
            return True
        case "ahead":
            return False
        case "unknown":
            return asked.epoch > epoch
