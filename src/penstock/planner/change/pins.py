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
    """One input changed, with this snapshot. None: nobody can say, or it was a person's wish."""

    model: str
    generation: str | None
    table_id: str | None
    snapshot: int | None


@dataclass(frozen=True, slots=True)
class Asked:
    """What one invalidation still asks of one generation."""

    invalidation: int
    epoch: int
    remaining: IntervalSet
    news: InputChange
    preferred: Preferred


def compare_pin(frontier: Frontier, news: InputChange, preferred: Preferred = ()) -> Standing:
    """Whether rows made from `frontier` lack the news; unknown when the two cannot be compared."""
    pin = frontier.get(news.model)
    if pin is None and preferred and all(any(name in frontier for name in group) for group in preferred):
        return "ahead"  # another member, listed before it, was read in its place: it would not be read now either
    if pin is None or pin.snapshot is None or news.snapshot is None:
        return "unknown"
    if _differ(pin.generation, news.generation) or _differ(pin.table_id, news.table_id):
        return "unknown"
    return "behind" if pin.snapshot < news.snapshot else "ahead"


def has_read(frontier: Frontier, news: InputChange) -> bool:
    """Whether rows made from `frontier` were made from this very input, whatever was in its place then."""
    pin = frontier.get(news.model)
    return pin is not None and not _differ(pin.generation, news.generation)


def _differ(a: str | None, b: str | None) -> bool:
    return a is not None and b is not None and a != b


def lost(targets: Sequence[Asked], done: IntervalSet, frontier: Frontier, epoch: int) -> IntervalSet:
    """What of `done` was invalidated after its inputs were fixed."""
    late = (part for target in targets if too_early(target, frontier, epoch) for part in target.remaining)
    return IntervalSet.of(late) & done


def too_early(asked: Asked, frontier: Frontier, epoch: int) -> bool:
    """By the input's snapshot where both sides have one, else by the order of the marks."""
    match compare_pin(frontier, asked.news, asked.preferred):
        case "behind":
            return True
        case "ahead":
            return False
        case "unknown":
            return asked.epoch > epoch
