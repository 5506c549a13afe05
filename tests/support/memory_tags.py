"""What the engines of the tests do with rows that carry their chunk."""

from __future__ import annotations

from collections.abc import Iterator

from memory_tables import Row, Rows

from penstock.engine.values.job import Rendering, Tags
from penstock.values.tasks import TAG


def tags_of(tags: Tags, position: object) -> Iterator[int]:
    """The chunks that read a row."""
    for chunk in tags.chunks:
        if isinstance(position, int) and chunk.start - tags.before <= position < chunk.end + tags.after:
            yield chunk.start


def with_tags(table: Rows, tags: Tags, position: str) -> Rows:
    at = table.columns.index(position)
    return Rows((*table.columns, TAG), [(*row, tag) for row in table.rows for tag in tags_of(tags, row[at])])


def stars_understood(sql: str) -> str:
    """SQLite has no stars with exceptions: there the tag is shown twice, and left out in the end."""
    return sql.replace(f"* EXCEPT ({TAG})", "*")


def shown(table: Rows) -> tuple[str, ...]:
    """The columns that a table gets."""
    return tuple(name for name in table.columns if not name.startswith(TAG))


def inside(rendering: Rendering, table: Rows, position: str) -> Rows:
    """The rows that lie in what they were made for, without their tags."""
    at = table.columns.index(position)
    if not rendering.tagged:
        scope = rendering.scope
        return Rows(table.columns, [row for row in table.rows if isinstance(p := row[at], int) and p in scope])
    ends = {chunk.start: chunk.end for chunk in rendering.intervals}
    tag = len(table.columns) - 1
    kept = [row for row in table.rows if isinstance(p := row[at], int) and _lies(p, row[tag], ends)]
    places = [table.columns.index(name) for name in shown(table)]
    rows: list[Row] = [tuple([row[place] for place in places]) for row in kept]
    return Rows(shown(table), rows)


def _lies(position: int, tag: object, ends: dict[int, int]) -> bool:
    return isinstance(tag, int) and tag <= position < ends[tag]
