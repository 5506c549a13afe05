"""How is a frontier stored, and is a pin behind a change of its input?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal, TypedDict

from psycopg.types.json import Jsonb

from penstock.tasks import Frontier, Pin


class StoredPin(TypedDict):
    location: str
    snapshot: int | None
    table_id: str | None
    generation: str | None


@dataclass(frozen=True, slots=True)
class News:
    """One input changed, with this snapshot. None: nobody can say, or it was a person's wish."""

    model: str
    generation: str | None
    table_id: str | None
    snapshot: int | None


def stored(frontier: Frontier) -> Jsonb:
    return Jsonb({name: asdict(pin) for name, pin in frontier.items()})


def loaded(inputs: Mapping[str, StoredPin] | None) -> Frontier:
    return {name: Pin(**pin) for name, pin in (inputs or {}).items()}


def standing(pin: Pin | None, news: News) -> Literal["behind", "ahead", "unknown"]:
    """Whether rows read at `pin` lack the news; unknown when the two cannot be compared."""
    if pin is None or pin.snapshot is None or news.snapshot is None:
        return "unknown"
    if _differ(pin.generation, news.generation) or _differ(pin.table_id, news.table_id):
        return "unknown"
    return "behind" if pin.snapshot < news.snapshot else "ahead"


def _differ(a: str | None, b: str | None) -> bool:
    return a is not None and b is not None and a != b
