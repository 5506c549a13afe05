"""How does a frontier travel to PostgreSQL and back?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from psycopg.types.json import Jsonb

from penstock.state.database.connection import Database
from penstock.values.tasks import Frontier, PinRecord, frontier_of, frontier_record


def stored(frontier: Frontier) -> Jsonb:
    return Jsonb(frontier_record(frontier))


def frontiers(database: Database, numbers: Sequence[int]) -> dict[int, Frontier]:
    """By number: a batch of chunks shares one."""
    return dict(database.rows("frontiers", _numbered, frontiers=list(numbers)))


def _numbered(id: int, inputs: dict[str, PinRecord]) -> tuple[int, Frontier]:  # noqa: A002  the column's name
    return id, loaded(inputs)


def loaded(inputs: Mapping[str, PinRecord] | None) -> Frontier:
    return frontier_of(inputs or {})
