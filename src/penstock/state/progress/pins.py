"""How is a frontier stored, and is a pin behind a change of its input?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, TypedDict

from psycopg.types.json import Jsonb

from penstock.state.database.connection import Database
from penstock.values.tasks import Frontier, Pin


class StoredPin(TypedDict):
    location: str
    snapshot: int | None
    table_id: str | None
    generation: str | None


@dataclass(frozen=True, slots=True)
class InputChange:
    """One input changed, with this snapshot. None: nobody can say, or it was a person's wish."""

    model: str
    generation: str | None
    table_id: str | None
    snapshot: int | None


def stored(frontier: Frontier) -> Jsonb:
    return Jsonb({name: asdict(pin) for name, pin in frontier.items()})


def frontiers(database: Database, numbers: Sequence[int]) -> dict[int, Frontier]:
    """By number: a batch of chunks shares one."""
    return dict(database.rows("frontiers", _numbered, frontiers=list(numbers)))


def _numbered(id: int, inputs: dict[str, StoredPin]) -> tuple[int, Frontier]:  # noqa: A002  the column's name
    return id, loaded(inputs)


def loaded(inputs: Mapping[str, StoredPin] | None) -> Frontier:
    return {name: Pin(**pin) for name, pin in (inputs or {}).items()}


Preferred = Sequence[Sequence[str]]
"""For each group of alternatives that the changed input is in: the members listed before it."""

Standing = Literal["behind", "ahead", "unknown"]


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
